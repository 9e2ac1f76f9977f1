"""What a handover cost: the figures that Mirage is judged by."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf

from mirage.chain.serving import paused_until_s, serving
from mirage.domain import Link, expected_limit_s

RECENT = 4
"""So many handovers of a chain are judged together."""
LEAST_PART = 4
"""A link should run for this part of its limit at least, where its owner names no time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Handoff:
    """From one link to the next. Of a training chain at most one of interruption and overlap is above
    zero.
    """

    link: Link
    predecessor: Link
    interruption_s: int
    """Nothing of the chain ran for this long (paper, section 4.5), or no link of a service was
    ready. It ends as this link serves, or ends itself before that. A pause of its owner's does not
    count.
    """
    overlap_s: int
    """Both ran for this long, on their own nodes."""
    cut_short_s: int
    """How long before its expected end the predecessor ended, since its successor was there and
    asked it to.
    """
    works_s: int
    """When the link started, or of a service was ready or ended before that: the end of an
    interruption.
    """

    @property
    def took_over(self) -> bool:
        """The link worked or served by the predecessor's end, near or past that one's limit too. Then
        the predecessor's exit code tells of no failure.
        """
        end_s = self.predecessor.end_s or 0
        outlived = self.link.end_s is None or self.link.end_s > end_s
        return outlived and self.works_s <= end_s and was_there(self.predecessor, self.link)

    @property
    def is_requeue(self) -> bool:
        """Slurm requeued the link: no other one took over."""
        return self.link.job_id == self.predecessor.job_id


def handoffs(links: Sequence[Link], start_up_s: int | None = None) -> list[Handoff]:
    """Of all links that started after a predecessor which is over, by segment. A link that Slurm
    requeued follows itself: `predecessor` is then its run before.

    ``start_up_s``: of a service (`Chain.start_up_s`), whose links count once they serve or have
    ended; None: a training chain.
    """
    by_id = {link.job_id: link for link in links}
    found: list[Handoff] = []
    reached_s = 0.0  # by all runs before; infinite while one of them goes on
    for link in sorted(links, key=lambda link: (link.segment, link.job_id)):
        before = by_id.get(link.predecessor_id or 0)
        predecessor = before.each_run[-1] if before else None
        for run in link.each_run:
            if predecessor and (handoff := _handoff(predecessor, run, reached_s, start_up_s)):
                found.append(handoff)
            if run.start_s is not None:
                reached_s = max(reached_s, inf if run.end_s is None else run.end_s)
            predecessor = run
    return found


def _handoff(
    predecessor: Link, link: Link, reached_s: float, start_up_s: int | None
) -> Handoff | None:
    """None: not both of its times are known."""
    start_s, end_s, served = link.start_s, predecessor.end_s, serving(link, start_up_s)
    since_s = served[0] if served else link.end_s
    if start_s is None or end_s is None or since_s is None:
        return None
    reached_s = max(end_s, reached_s, paused_until_s(link, end_s) or 0)
    both_end_s = min(end_s, link.end_s or end_s)
    return Handoff(
        link=link,
        predecessor=predecessor,
        works_s=since_s,
        interruption_s=0 if reached_s >= since_s else since_s - int(reached_s),
        overlap_s=max(0, both_end_s - start_s),
        # A service's successor asks once it serves.
        cut_short_s=0
        if start_up_s is not None and (served is None or since_s > end_s)
        else _cut_short_s(predecessor, link),
    )


def waited_for_predecessor_s(links: Sequence[Link], job_id: int) -> int:
    """How long this link of a training chain ran before its work began: its predecessor was to end
    first.
    """
    found = (handoff for handoff in reversed(handoffs(links)) if handoff.link.job_id == job_id)
    return next((handoff.overlap_s for handoff in found), 0)


def short_handovers(links: Sequence[Link], least_run_s: int | None, start_up_s: int = 0) -> int:
    """How many of the chain's last `RECENT` handovers ended a link too early.

    Its successor was there before it had worked for ``least_run_s`` (None: a quarter of its
    expected limit), although that one had hardly waited itself: so it could have been let in later.
    A link works once its own predecessor has ended, and its program has started (``start_up_s``).
    """
    found = handoffs(links)
    waited_s = {(each.link.job_id, each.link.start_s): each.overlap_s for each in found}
    return sum(
        _is_short(
            each,
            least_run_s,
            waited_s.get((each.predecessor.job_id, each.predecessor.start_s), 0) + start_up_s,
        )
        for each in found[-RECENT:]
    )


def _is_short(handoff: Handoff, least_run_s: int | None, idle_s: int) -> bool:
    before, link = handoff.predecessor, handoff.link
    if before.start_s is None or before.end_s is None or link.start_s is None:
        return False
    limit_s = expected_limit_s(before.time_limit_s, before.lead_s)
    least_s = (limit_s or 0) // LEAST_PART if least_run_s is None else least_run_s
    entered_s = link.released_s or link.eligible_s
    hardly_waited = entered_s is not None and link.start_s - entered_s < least_s
    is_early = before.end_s - before.start_s - idle_s < least_s
    return is_early and hardly_waited and was_there(before, link)


def _cut_short_s(predecessor: Link, successor: Link) -> int:
    if not was_there(predecessor, successor) or predecessor.expected_end_s is None:
        return 0
    return max(0, predecessor.expected_end_s - (predecessor.end_s or 0))


def was_there(predecessor: Link, successor: Link) -> bool:
    """Whether the successor had started before its predecessor ended. Slurm counts whole seconds.

    Where both fall on one second, it had if it was let into the queue before that.
    """
    end_s = predecessor.end_s or 0
    if successor.start_s is None or successor.start_s > end_s:
        return False
    return successor.start_s < end_s or (successor.eligible_s or end_s) < end_s
