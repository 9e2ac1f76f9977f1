"""How much of the wall clock a chain makes progress in, or a service is up."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from mirage.chain.runs import each_run
from mirage.chain.serving import paused_until_s, serving
from mirage.domain import HANDOVER_S, Link

_Span = tuple[int, int]
"""(since, until)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainProgress:
    """Of one chain, from when its first link worked or served to its end or the present, without the
    times for which its owner kept it from going on.
    """

    wall_s: int
    interrupted_s: int
    """Nothing of the chain ran, or no link of a service was ready, or its server was started again."""
    held_twice_s: int
    """Two links had their nodes at once."""
    handovers: int
    handover_s: int
    """Time lost by each handover; 0 of a service."""
    longest_gap_s: int = 0
    """The longest of the interruptions between runs. Of a server that was started again only the sum
    over its run is known (`Link.down_s`).
    """

    @property
    def goodput(self) -> float:
        """Share of the wall clock in which the chain makes progress, net of handovers; at least 0.
        Of a service: its up-time.
        """
        lost_s = self.interrupted_s + self.handovers * self.handover_s
        return max(0.0, 1 - lost_s / self.wall_s) if self.wall_s else 0.0

    @classmethod
    def of_all(cls, parts: Sequence[ChainProgress]) -> ChainProgress:
        """Of several chains with the same cost of a handover: sums, and the longest gap."""
        return cls(
            wall_s=sum(part.wall_s for part in parts),
            interrupted_s=sum(part.interrupted_s for part in parts),
            held_twice_s=sum(part.held_twice_s for part in parts),
            handovers=sum(part.handovers for part in parts),
            handover_s=parts[0].handover_s if parts else 0,
            longest_gap_s=max((part.longest_gap_s for part in parts), default=0),
        )


def chain_progress(
    links: Sequence[Link],
    until_s: int,
    handover_s: int = HANDOVER_S,
    *,
    start_up_s: int | None = None,
) -> ChainProgress:
    """``until_s``: the present, at which links that still run are cut. Zeros before the first link
    works. ``start_up_s``: of a service (`Chain.start_up_s`), whose handovers lose no time; None: a
    training chain.
    """
    runs = [run for run in each_run(links) if run.start_s is not None and run.start_s < until_s]
    worked = [span for run in runs if (span := serving(run, start_up_s))]
    served = [
        (since_s, min(end_s or until_s, until_s)) for since_s, end_s in worked if since_s < until_s
    ]
    cost_s = handover_s if start_up_s is None else 0
    if not served:
        return ChainProgress(
            wall_s=0, interrupted_s=0, held_twice_s=0, handovers=0, handover_s=cost_s
        )
    held = [(run.start_s or 0, min(run.end_s or until_s, until_s)) for run in runs]
    first_s = min(since_s for since_s, _ in served)
    is_over = all(link.end_s is not None for link in links)
    last_s = max(end_s for _, end_s in held) if is_over else until_s
    spans = [*served, (last_s, last_s)]
    gaps = list(_gaps_s([*spans, *_pauses(links, last_s)]))
    down_s = sum(run.down_s for run in runs)
    whole_s = max(end_s for _, end_s in held) - min(start_s for start_s, _ in held)
    covered_s = whole_s - sum(_gaps_s(held))
    return ChainProgress(
        wall_s=last_s - first_s - sum(_gaps_s(spans)) + sum(gaps),
        interrupted_s=sum(gaps) + down_s,
        held_twice_s=sum(end_s - start_s for start_s, end_s in held) - covered_s,
        handovers=len(held) - 1,
        handover_s=cost_s,
        longest_gap_s=max(gaps, default=0),
    )


def _pauses(links: Sequence[Link], until_s: int) -> Iterator[_Span]:
    """From the end of what ran before to the moment at which the next link could start again."""
    ends_s: list[int] = []
    for run in each_run(links):
        may_start_s = paused_until_s(run, until_s)
        if ends_s and may_start_s is not None and may_start_s > max(ends_s):
            yield max(ends_s), may_start_s
        if run.start_s is not None:
            ends_s.append(until_s if run.end_s is None else run.end_s)


def _gaps_s(spans: Iterable[_Span]) -> Iterator[int]:
    """The lengths of the times between the first and the last of these in which there is none."""
    reached_s: int | None = None
    for since_s, until_s in sorted(spans):
        if reached_s is not None and since_s > reached_s:
            yield since_s - reached_s
        reached_s = max(reached_s or until_s, until_s)
