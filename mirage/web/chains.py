"""What the page shows of chains, read from the store for one page of a list at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from mirage.chain.handoff import Handoff, handoffs
from mirage.chain.runs import down_s, each_run
from mirage.chain.serving import Readiness, readiness
from mirage.daemon.attention import ChainAlert, Trouble, attention, rank
from mirage.daemon.dismissed import Dismissed
from mirage.daemon.report import BAD_DAYS, explanation, what_next
from mirage.daemon.restraint import Restraint, restraint_in
from mirage.daemon.services import in_words as in_words_of
from mirage.daemon.services import replica_json, service_rows
from mirage.daemon.waiting_reason import DAEMON, let_in_by
from mirage.domain import USED_UP_EXIT, Action, Chain, Decision, JobState, Link
from mirage.ports import Store
from mirage.web.timeline import Bar, Window, bars, in_words, link_bars
from slurm_sim.seconds import DAY_S

_Item = TypeVar("_Item")

PER_PAGE = 50
MOST_LOOKED_AT = 300
"""Chains of a list that are searched for trouble; each costs a look at its links."""
DECISIONS = 20
"""Of each link, the newest."""


@dataclass(frozen=True, kw_only=True)
class Row:
    """One chain of a list."""

    chain: Chain
    position: int
    """The segment that runs, or ran last; 0: none yet."""
    bars: Sequence[Bar]
    words: str
    next: str
    attention: ChainAlert | None
    interruption_s: int
    overlap_s: int
    service: str = ""
    """Of a service of several replicas: how it stands, in words."""
    replicas: Sequence[Row] = ()
    """Their chains; the rest of the row is of the first."""

    @property
    def is_alarm(self) -> bool:
        return self.attention is not None and self.attention.trouble is not Trouble.USED_UP


@dataclass(frozen=True, kw_only=True)
class ChainVerdict:
    """A decision, for people."""

    decision: Decision
    restraint: Restraint | None
    reason: str
    axis_s: float
    """What the drawing of the waits is as wide as; 0: nothing to draw."""

    @property
    def words(self) -> str:
        release = self.decision.action is Action.RELEASE
        if self.restraint:
            return "Would release it" if release else "Would wait"
        return "Releases it" if release else "Waits"

    def x(self, at_s: float) -> float:
        """Percent of the drawing's width."""
        return round(100 * at_s / self.axis_s, 3)


@dataclass(frozen=True, kw_only=True)
class LinkRow:
    link: Link
    state: str
    bars: Sequence[Bar]
    handoff: Handoff | None
    """From the link before."""
    verdicts: Sequence[ChainVerdict]
    explanation: str
    let_in_by: str | None
    """`standing.let_in_by`."""

    @property
    def interruption_s(self) -> int | None:
        """Before the link and within its runs; None: not known."""
        return down_s(self.link) + (self.handoff.interruption_s if self.handoff else 0) or (
            0 if self.handoff else None
        )


@dataclass(frozen=True, kw_only=True)
class List:
    """One page of a list."""

    rows: Sequence[Row]
    window: Window
    total: int
    page: int
    pages: int


@dataclass(frozen=True, kw_only=True)
class Waiting:
    """A link that waits, and what was decided about it last."""

    chain: Chain
    link: Link
    verdict: ChainVerdict | None
    words: str
    """What holds now, whatever was decided."""


def chain_list(
    store: Store,
    user: str | None,
    window: Window,
    page: int,
    *,
    all_states: bool,
    dismissed: Dismissed | None = None,
) -> List:
    """Chains of a user (None: of all): active ones, then those that changed in the window.
    ``page``: from 1.

    Without ``all_states``: of those that are over only those that ended badly within `BAD_DAYS` and
    were not ``dismissed``.
    Chains that need attention are first, the most urgent before the others.
    """
    found = store.chains(user, window.start_s)
    if not all_states:
        found = _of_interest(found, window.now_s - BAD_DAYS * DAY_S, dismissed or Dismissed())
    found.sort(key=lambda chain: chain.state.is_over)
    troubles = _troubles(found[:MOST_LOOKED_AT], store, window.now_s)
    found.sort(key=lambda chain: _rank(troubles.get((chain.user, chain.chain_id))))
    page, pages, units = paged(_folded(found), page)
    shown = [chain for unit in units for chain in unit]
    links = [store.links(chain.user, chain.chain_id) for chain in shown]
    begun_s = min(
        (run.start_s or run.submit_s for own in links for run in each_run(own)),
        default=window.start_s,
    )
    window = window.from_first(begun_s)
    rows = [
        _row(chain, own, store, window, troubles.get((chain.user, chain.chain_id)))
        for chain, own in zip(shown, links, strict=True)
    ]
    by_key = {(row.chain.user, row.chain.chain_id): row for row in rows}
    rows = [
        _unit_row([by_key[chain.user, chain.chain_id] for chain in unit], store, window.now_s)
        for unit in units
    ]
    return List(rows=rows, window=window, total=len(_folded(found)), page=page, pages=pages)


def _of_interest(chains: Sequence[Chain], since_s: float, dismissed: Dismissed) -> list[Chain]:
    """Those that are not over, then those that ended badly since then and were not dismissed."""
    lately = [
        chain
        for chain in chains
        if chain.state.is_bad and chain.updated_s >= since_s and not dismissed.has(chain)
    ]
    return [*(chain for chain in chains if not chain.state.is_over), *lately]


def _folded(chains: Sequence[Chain]) -> list[list[Chain]]:
    """In the same order, the replicas of a service together at the place of the first."""
    found: dict[tuple[str, str], list[Chain]] = {}
    for chain in chains:
        found.setdefault((chain.user, chain.service or chain.chain_id), []).append(chain)
    return [sorted(each, key=lambda chain: chain.replica or 0) for each in found.values()]


def _unit_row(rows: Sequence[Row], store: Store, now_s: int) -> Row:
    """The row of a chain, or of a service, which is as urgent as its most urgent replica."""
    if rows[0].chain.service is None:
        return rows[0]
    every = [row.chain for row in rows]
    replicas = [replica_json(each, store.links(each.user, each.chain_id), now_s) for each in every]
    found = service_rows(replicas, now_s)
    first = min(rows, key=lambda row: _rank(row.attention))
    return replace(first, service=in_words_of(found[0]) if found else "over", replicas=rows)


def _troubles(
    chains: Sequence[Chain], store: Store, now_s: int
) -> dict[tuple[str, str], ChainAlert]:
    lately_s = now_s - BAD_DAYS * DAY_S
    found = {}
    for chain in chains:
        if not chain.state.is_over or (chain.state.is_bad and chain.updated_s >= lately_s):
            links = store.links(chain.user, chain.chain_id)
            if trouble := attention(chain, links, store, now_s):
                found[chain.user, chain.chain_id] = trouble
    return found


def _rank(found: ChainAlert | None) -> tuple[int, float]:
    return found.rank if found else (rank(None), 0)


def paged(items: Sequence[_Item], page: int) -> tuple[int, int, Sequence[_Item]]:
    """The page (the nearest one that there is), how many there are, and what is on it."""
    pages = max(1, -(-len(items) // PER_PAGE))
    page = min(max(1, page), pages)
    return page, pages, items[(page - 1) * PER_PAGE : page * PER_PAGE]


def link_rows(store: Store, chain: Chain, links: Sequence[Link], window: Window) -> list[LinkRow]:
    """One chain's links, each with its newest decisions."""
    found = handoffs(links, chain.start_up_s)
    costs = {handoff.link.job_id: handoff for handoff in found if not handoff.is_requeue}
    by_job = {link.job_id: link for link in links}
    left = {each.predecessor.job_id for each in costs.values() if _made_room(each)}
    return [
        LinkRow(
            link=link,
            state=_state(link, chain, link.job_id in left, window.now_s),
            bars=link_bars(chain, link, window),
            handoff=costs.get(link.job_id),
            verdicts=[verdict(decision) for decision in store.decisions(link.job_id, DECISIONS)],
            explanation=explanation(link, store),
            let_in_by=let_in_by(link, by_job.get(link.predecessor_id or 0), DAEMON),
        )
        for link in links
    ]


def _made_room(handoff: Handoff) -> bool:
    """Whether the predecessor ended since its successor asked it to, as far as Slurm tells."""
    has_ended = handoff.predecessor.state in (JobState.COMPLETED, JobState.FAILED)
    return handoff.cut_short_s > 0 or (handoff.took_over and has_ended)


def _state(link: Link, chain: Chain, handed_over: bool, now_s: int) -> str:
    """As `cli/table.py`, which knows the chain's folder besides."""
    ready = readiness(link, chain.start_up_s, now_s)
    if ready in (Readiness.STARTING, Readiness.NEVER):
        return str(ready.value)
    if handed_over:
        return "handed over"
    at_signal = link.state is JobState.FAILED and link.exit_code == USED_UP_EXIT
    return "at its signal" if at_signal else link.state.value.lower().replace("_", " ")


def waiting_list(
    store: Store, user: str | None, page: int, now_s: int
) -> tuple[int, int, list[Waiting]]:
    """The page of active chains (the nearest one that there is), how many there are, and the links
    that wait on it.
    """
    active = [chain for chain in store.chains(user, now_s) if not chain.state.is_over]
    page, pages, shown = paged(active, page)
    return page, pages, [waiting for chain in shown for waiting in _waiting(chain, store)]


def _waiting(chain: Chain, store: Store) -> Iterator[Waiting]:
    for link in store.links(chain.user, chain.chain_id):
        if link.is_waiting:
            newest = store.decisions(link.job_id, limit=1)
            words = explanation(link, store, asked=False)
            yield Waiting(
                chain=chain, link=link, verdict=verdict(newest[0]) if newest else None, words=words
            )


def verdict(decision: Decision) -> ChainVerdict:
    restraint, reason = restraint_in(decision.reason)
    axis_s = (
        max(decision.wait_p90_s or 0, decision.remaining_s or 0) * 1.1
        if decision.wait_p50_s is not None
        else 0
    )
    return ChainVerdict(decision=decision, restraint=restraint, reason=reason, axis_s=axis_s)


def whole(links: Sequence[Link], now_s: int) -> Window:
    """A window with all of a chain in it, and some time ahead."""
    start_s = min((run.submit_s for run in each_run(links)), default=now_s - 3600)
    ends = [link.end_s or link.expected_end_s or link.start_s for link in links if link.start_s]
    over = all(link.is_over for link in links)
    end_s = max([*ends, now_s] if not over else ends or [now_s])
    room_s = max(60, (end_s - start_s) // 50)
    return Window(start_s - room_s, end_s + room_s, now_s)


def _row(
    chain: Chain, links: list[Link], store: Store, window: Window, trouble: ChainAlert | None
) -> Row:
    costs = handoffs(links, chain.start_up_s)
    return Row(
        chain=chain,
        position=max((link.segment for link in links if link.has_started), default=0),
        bars=bars(chain, links, window),
        words=in_words(chain, links),
        next=what_next(chain, links, store),
        attention=trouble,
        interruption_s=sum(handoff.interruption_s for handoff in costs) + sum(map(down_s, links)),
        overlap_s=sum(handoff.overlap_s for handoff in costs),
    )
