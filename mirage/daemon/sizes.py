"""What longer links or fewer nodes would give a chain, by the waits that the service has seen. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.chain.durations import format_duration
from mirage.state.likeness import Likeness, Requests, Waits

LEAST_JOBS = 20
"""Fewer waits tell nothing."""
WORTH = 0.1
"""A smaller gain, as a share of the time, is not told."""


@dataclass(frozen=True)
class _Found:
    limit_s: float
    wait_s: float
    """Medians."""

    @property
    def share(self) -> float:
        """Of the time for which a link runs, if each waits from the end of the one before."""
        return self.limit_s / (self.limit_s + self.wait_s)


def better_sizes(waits: Waits, partition: str, nodes: int, limit_s: int) -> str:
    """A sentence, where like jobs wait for longer than half a link, and others are known to do better;
    empty: nothing is known to.
    """
    names = frozenset(partition.split(","))
    alike = _found(waits, Likeness(names, nodes, limit_s))
    if alike is None or alike.wait_s <= limit_s / 2:
        return ""
    own = _Found(limit_s, alike.wait_s)
    longer = _found(waits, Likeness(names, nodes), least_limit_s=2 * limit_s)
    fewer = _found(waits, Likeness(names, limit_s=limit_s), most_nodes=nodes // 2)
    told = []
    if longer and longer.share >= own.share + WORTH:
        told.append(f"with links of {format_duration(int(longer.limit_s))} {_words(longer)}")
    if fewer and (half := _Found(limit_s, fewer.wait_s)).share >= own.share + WORTH:
        most = f"{nodes // 2} nodes or fewer" if nodes > 3 else "1 node"
        told.append(f"on {most} {_words(half)}")
    if not told:
        return ""
    return (
        f"jobs of about {nodes} nodes and {format_duration(limit_s)} wait here for as long as"
        f" {format_duration(int(own.wait_s))} (median), so links that follow one another run"
        f" {own.share:.0%} of the time; {', '.join(told)}"
    )


def _words(found: _Found) -> str:
    return f"{found.share:.0%} (a wait of {format_duration(int(found.wait_s))})"


def _found(
    waits: Waits, likeness: Likeness, least_limit_s: int = 0, most_nodes: int | None = None
) -> _Found | None:
    """Medians of such jobs; None: too few of them have started."""
    requests: Requests = waits.requests
    chosen = likeness.among(requests) & (requests.limit_s >= least_limit_s)
    if most_nodes is not None:
        chosen &= requests.nodes <= most_nodes
    if int(chosen.sum()) < LEAST_JOBS:
        return None
    return _Found(
        float(np.median(requests.limit_s[chosen])), float(np.median(waits.wait_s[chosen]))
    )
