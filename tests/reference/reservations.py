"""Advanced reservations: when they keep which nodes from a job (`reservations.html`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from slurm_sim.config import Reservation


class Calendar:
    """All reservations. Each takes whole nodes."""

    def __init__(self, reservations: Sequence[Reservation], nodes: Mapping[str, int]) -> None:
        """`nodes`: those of each reservation, as a set."""
        self._all = [(item, nodes[item.name]) for item in reservations]
        self._by_name = {item.name: item for item in reservations}

    def end_s(self, name: str) -> int:
        return self._by_name[name].end_s

    def is_open(self, name: str, start_s: int) -> bool:
        """Whether a job in this reservation may start at this time."""
        item = self._by_name[name]
        return item.start_s <= start_s <= item.end_s

    def taken(self, name: str | None, start_s: int, end_s: int) -> int:
        """Nodes that other reservations hold at some time between these."""
        taken = 0
        for item, nodes in self._all:
            if item.name != name and item.start_s < end_s and item.end_s > start_s:
                taken |= nodes
        return taken

    def first_conflict_s(self, name: str | None, nodes: int, now_s: int, end_s: int) -> int | None:
        """When the first of the other reservations that are yet to begin takes one of these nodes;
        None: not before the end.
        """
        begins_s = (
            item.start_s
            for item, its in self._all
            if item.name != name and its & nodes and now_s < item.start_s < end_s
        )
        return min(begins_s, default=None)

    def next_end_s(self, start_s: int, resolution_s: int) -> int:
        """When backfill looks again after a reservation was in the way: past the first end, rounded
        up.
        """
        first_s = min(item.end_s for item, _ in self._all if item.end_s >= start_s)
        return -(-first_s // resolution_s) * resolution_s + 1
