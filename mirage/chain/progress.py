"""How much of the wall clock a training chain makes progress in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage.chain.runs import each_run
from mirage.domain import HANDOVER_S, Link


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainProgress:
    """Of one chain, from the start of its first link to its end or the present."""

    wall_s: int
    interrupted_s: int
    """Nothing of the chain ran."""
    held_twice_s: int
    """Two links ran at once."""
    handovers: int
    handover_s: int
    """Time lost by each handover."""

    @property
    def goodput(self) -> float:
        """Share of the wall clock in which the chain makes progress, net of handovers; at least 0."""
        lost_s = self.interrupted_s + self.handovers * self.handover_s
        return max(0.0, 1 - lost_s / self.wall_s) if self.wall_s else 0.0


def chain_progress(
    links: Sequence[Link], until_s: int, handover_s: int = HANDOVER_S
) -> ChainProgress:
    """``until_s``: the present, at which links that still run are cut. Zeros before the first start."""
    spans = sorted(
        (link.start_s, min(link.end_s or until_s, until_s))
        for link in each_run(links)
        if link.start_s is not None and link.start_s < until_s
    )
    if not spans:
        return ChainProgress(
            wall_s=0, interrupted_s=0, held_twice_s=0, handovers=0, handover_s=handover_s
        )
    first_s = reached_s = spans[0][0]
    covered_s = 0
    for start_s, end_s in spans:
        covered_s += max(0, end_s - max(start_s, reached_s))
        reached_s = max(reached_s, end_s)
    is_over = all(link.end_s is not None for link in links)
    last_s = min(reached_s, until_s) if is_over else until_s
    return ChainProgress(
        wall_s=last_s - first_s,
        interrupted_s=last_s - first_s - covered_s,
        held_twice_s=sum(end_s - start_s for start_s, end_s in spans) - covered_s,
        handovers=len(spans) - 1,
        handover_s=handover_s,
    )
