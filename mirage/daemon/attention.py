"""Which chains need somebody's attention, and why: what `mirage top`, `mirage status --json` and the
web page show first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

from mirage.chain.durations import format_duration
from mirage.chain.runs import each_run
from mirage.chain.serving import Readiness, readiness, serving
from mirage.domain import HANDOVER_S, Chain, ChainState, Link
from mirage.ports import ChainStore

LATE_S = HANDOVER_S
"""A successor that is expected later than this after its predecessor's end is late."""


class Trouble(str, Enum):
    """In the order of urgency."""

    INTERRUPTED = "interrupted"
    """The chain is not over, it has run, and no link runs now, or none of a service is ready."""
    FAILED = "failed"
    """It ended, and not as its owner wanted (`ChainState.is_bad`)."""
    UNQUEUED = "unqueued"
    """The next link could not be queued."""
    LATE = "late"
    """The next link is expected to start, or to be ready, well after the one that runs ends; or the
    first link of a service is not ready for long.
    """
    USED_UP = "used-up"
    """Its links are used up, as its owner asked; more of them, or `mirage done`, are his choice. No
    alarm: it comes after the chains that go on.
    """


@dataclass(frozen=True, kw_only=True)
class ChainAlert:
    """Why a chain needs attention."""

    trouble: Trouble
    words: str
    """One sentence."""
    size_s: float
    """For how long it is interrupted, or late; 0 of one that failed."""

    @property
    def rank(self) -> tuple[int, float]:
        """The most urgent first."""
        return rank(self.trouble), -self.size_s


def rank(trouble: Trouble | None) -> int:
    """Lower is more urgent. None: a chain that goes on as planned."""
    order = [Trouble.INTERRUPTED, Trouble.FAILED, Trouble.LATE, None, Trouble.USED_UP]
    return order.index(trouble)


def attention(
    chain: Chain, links: Sequence[Link], store: ChainStore, now_s: float
) -> ChainAlert | None:
    """None: the chain goes on as planned, or its owner has paused, cancelled or finished it."""
    if chain.state is ChainState.USED_UP:
        words = f"Its links are used up: {chain.reason or 'no reason is known'}."
        return ChainAlert(trouble=Trouble.USED_UP, words=words, size_s=0)
    if chain.state.is_bad:
        words = f"Ended as {chain.state.value}: {chain.reason or 'no reason is known'}."
        return ChainAlert(trouble=Trouble.FAILED, words=words, size_s=0)
    if chain.state is not ChainState.ACTIVE:
        return None
    running = [link for link in links if link.state.has_nodes]
    working = [
        link
        for link in running
        if readiness(link, chain.start_up_s, now_s) is not Readiness.STARTING
    ]
    if working:
        return _late(working[-1], links, store, now_s, chain.start_up_s or 0)
    if interrupted := _interrupted(chain, links, now_s):
        return interrupted
    return _not_ready(running[-1], chain, now_s) if running else None


def _interrupted(chain: Chain, links: Sequence[Link], now_s: float) -> ChainAlert | None:
    """None: nothing of it has worked yet."""
    ended = [
        run
        for run in each_run(links)
        if run.end_s is not None and serving(run, chain.start_up_s) is not None
    ]
    if not ended:
        return None
    last = max(ended, key=lambda link: link.end_s or 0)
    since_s = max(0.0, now_s - (last.end_s or 0))
    words = (
        f"Interrupted for {format_duration(since_s)}: no link"
        f" {'runs' if chain.start_up_s is None else 'is ready'} since job {last.job_id}"
        f" (link {last.segment}) ended."
    )
    return ChainAlert(trouble=Trouble.INTERRUPTED, words=words, size_s=since_s)


def _not_ready(link: Link, chain: Chain, now_s: float) -> ChainAlert | None:
    """Of a service that has not been up yet."""
    late_s = now_s - (link.start_s or now_s) - (chain.start_up_s or 0)
    if late_s <= LATE_S:
        return None
    words = f"Late: {starting_words(link, chain, now_s)}"
    return ChainAlert(trouble=Trouble.LATE, words=words, size_s=late_s)


def starting_words(link: Link, chain: Chain, now_s: float) -> str:
    """How long a link of a service has been starting, in one sentence."""
    usual = (
        "" if chain.handover_s is None else f"; a start takes {format_duration(chain.handover_s)}"
    )
    runs = format_duration(max(0, now_s - (link.start_s or now_s)))
    return (
        f"job {link.job_id} (link {link.segment}) is not ready yet, {runs} after its start{usual}."
    )


def _late(
    running: Link, links: Sequence[Link], store: ChainStore, now_s: float, start_up_s: int
) -> ChainAlert | None:
    """``start_up_s``: from the next link's start until it serves."""
    end_s = running.expected_end_s
    waiting = next((link for link in links if link.is_waiting), None)
    if waiting is None or end_s is None:
        return None
    newest = next(iter(store.decisions(waiting.job_id, limit=1)), None)
    if newest is None or newest.wait_p50_s is None:
        return None
    entered_s = waiting.released_s or waiting.eligible_s or newest.at_s
    late_s = max(entered_s + newest.wait_p50_s, now_s) + start_up_s - end_s
    if late_s <= LATE_S:
        return None
    words = (
        f"Late: job {waiting.job_id} (link {waiting.segment}) is expected to"
        f" {'be ready' if start_up_s else 'start'} {format_duration(late_s)} after job {running.job_id} ends."
    )
    return ChainAlert(trouble=Trouble.LATE, words=words, size_s=late_s)
