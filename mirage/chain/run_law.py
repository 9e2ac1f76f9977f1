"""For how long a link of a chain runs, by what the chain's earlier links did.

A link that leaves by itself before its limit is not alone: all links run the same script. A link
whose successor was there was asked to end, so it would have run for at least that long. So was one
at whose end its owner held the next one (`mirage pause --now`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mirage.chain.handoff import was_there
from mirage.chain.runs import each_run
from mirage.chain.serving import paused_until_s
from mirage.domain import Job, JobState, Link, RunLaw

MOST_LINKS = 20
"""So many of the newest links count: a script may change its ways."""
_BY_ITSELF = frozenset(
    {JobState.COMPLETED, JobState.FAILED, JobState.OUT_OF_MEMORY, JobState.TIMEOUT}
)
_ALIKE = 0.1
"""Runs that differ by this part of the longer one, or less, may have had the same end."""
_Run = tuple[int, bool]
"""How long a link ran, and whether it ended by itself."""


def run_law(links: Iterable[Link], job: Job) -> RunLaw | None:
    """Of the link ``job``, by the other ``links`` of its chain. None: it has no limit.

    The product-limit estimate (Kaplan and Meier, 1958): a run that a successor or a pause cut short
    is censored. One link more, which runs to its limit, keeps a single early end from deciding all.
    """
    limit_s = job.expected_limit_s
    if limit_s is None:
        return None
    known = each_run(links)
    ended = [
        link
        for link in known
        if (link.job_id, link.submit_s) != (job.job_id, job.submit_s)
        and link.start_s is not None
        and link.end_s is not None
    ]
    clear = [_run(link, known, limit_s) for link in ended]
    usual_s = [run_s for run_s, is_whole in clear if is_whole and run_s < limit_s]
    runs = [_run(link, known, limit_s, usual_s) for link in ended]
    runs = [*runs[-MOST_LINKS:], (limit_s, True)]
    runs_s, shares = _product_limit(runs)
    early = sum(is_whole and run_s < limit_s for run_s, is_whole in runs)
    return RunLaw(runs_s, shares, early)


def _run(link: Link, known: Sequence[Link], limit_s: int, usual_s: Sequence[int] = ()) -> _Run:
    """``known``: all runs of the chain, the present one too, as it may have asked.

    A successor that starts in the second in which the link ends has asked a script that ends at
    once, or got the node that was left. The latter where other links ended by themselves after
    about as long: ``usual_s``.
    """
    assert link.start_s is not None
    assert link.end_s is not None
    run_s = max(link.end_s - link.start_s, 0)
    if run_s >= limit_s:
        return limit_s, True
    # Backfill may have shortened its limit (`--time-min`): then that one ended it.
    is_early = link.expected_end_s is None or link.end_s < link.expected_end_s
    later = [other for other in known if other.segment > link.segment]
    there = [other for other in later if was_there(link, other)]
    is_usual = any(abs(run_s - each_s) <= _ALIKE * max(run_s, each_s) for each_s in usual_s)
    was_asked = any(other.start_s != link.end_s or not is_usual for other in there)
    was_paused = any((paused_until_s(other, link.end_s) or 0) >= link.end_s for other in later[:1])
    return run_s, link.state in _BY_ITSELF and is_early and not was_asked and not was_paused


def _product_limit(runs: Sequence[_Run]) -> tuple[tuple[int, ...], tuple[float, ...]]:
    """Values, ascending, and their shares. The longest run ended by itself."""
    left, law = 1.0, dict[int, float]()
    ordered = sorted(runs, key=lambda run: (run[0], not run[1]))
    for index, (run_s, is_whole) in enumerate(ordered):
        if is_whole:
            share = left / (len(ordered) - index)
            law[run_s] = law.get(run_s, 0.0) + share
            left -= share
    return tuple(law), tuple(law.values())
