"""Where and when a job could start: the planning half of Slurm's backfill scheduler (sched/backfill, select/linear)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from slurm_sim.nodes import pick_nodes


class Placement(NamedTuple):
    """Nodes for a job, and from when they are its own."""

    start_s: int
    nodes: int


class Outlook:
    """Which nodes the running jobs leave, one job after the other, each at the end of its limit.

    A job past its limit counts as ending a second from now.
    """

    def __init__(self, now_s: int, free: int, running: Iterable[tuple[int, int]]) -> None:
        self.now_s = now_s
        self._ends = sorted(running, key=lambda job: job[0])
        self._rebuild(free)

    def _rebuild(self, free: int) -> None:
        self._free = [free]
        for _, nodes in self._ends:
            self._free.append(self._free[-1] | nodes)

    @property
    def free(self) -> int:
        return self._free[0]

    def started(self, end_s: int, nodes: int) -> None:
        """A job started just now."""
        self._ends.insert(bisect_right(self._ends, end_s, key=lambda job: job[0]), (end_s, nodes))
        self._rebuild(self.free & ~nodes)

    def first(self, usable: int, count: int) -> Placement | None:
        """When at least `count` of the usable nodes are first free together, and which these are."""
        index = bisect_left(self._free, count, key=lambda free: (free & usable).bit_count())
        if index == len(self._free):
            return None
        start_s = self.now_s if index == 0 else max(self._ends[index - 1][0], self.now_s + 1)
        return Placement(start_s, self._free[index] & usable)


class Plan:
    """The nodes that reservations leave over, as steps in time; running jobs are not in it.

    Times are rounded down to `resolution_s`. A reservation that begins exactly at a job's end is in its way.
    """

    def __init__(self, now_s: int, window_s: int, resolution_s: int, nodes: int) -> None:
        self._resolution_s = resolution_s
        self._times = [self._floor(now_s)]
        self._nodes = [nodes]
        self._end_s = self._floor(now_s + window_s)
        self.tested = 0
        """Jobs for which there were enough unreserved nodes at some time: what bf_max_job_test counts."""

    def _floor(self, time_s: int) -> int:
        return time_s - time_s % self._resolution_s

    def unreserved(self, nodes: int, start_s: int, end_s: int) -> tuple[int, int | None]:
        """Those of the nodes that are unreserved all the time, and when to look again if they are not good enough.

        Looking again is worth it at the first step that brings a node which was reserved before.
        """
        left, later_s = nodes, None
        if start_s >= self._end_s:
            return left, later_s
        for index in range(max(0, bisect_right(self._times, start_s) - 1), len(self._times)):
            step = left & self._nodes[index]
            if later_s is None and index + 1 < len(self._times) and nodes & self._nodes[index + 1] & ~step:
                later_s = self._times[index + 1]
            if self._times[index] > end_s:
                break
            left = step
        return left, later_s

    def _overlaps(self, place: Placement, end_s: int) -> bool:
        start_s = self._floor(place.start_s)
        first = max(0, bisect_right(self._times, start_s) - 1)
        last = bisect_left(self._times, self._floor(end_s))
        return start_s < self._end_s and any(place.nodes & ~free for free in self._nodes[first:last])

    def earliest(self, outlook: Outlook, usable: int, count: int, limit_s: int) -> Placement | None:
        """The first place for a job; None: there is none. It may lie beyond the window."""
        later_s: int | None = outlook.now_s
        tested = self.tested + 1
        while later_s is not None:
            start_s = later_s
            nodes, later_s = self.unreserved(usable, start_s, start_s + limit_s)
            if nodes.bit_count() < count:
                continue
            self.tested = tested
            found = outlook.first(nodes, count)
            if found is None:
                continue
            place_s = max(found.start_s, start_s)
            if place_s > outlook.now_s and later_s is not None and place_s > later_s:
                continue
            place = Placement(place_s, pick_nodes(found.nodes, count))
            if place_s == outlook.now_s or not self._overlaps(place, place_s + limit_s):
                return place
            later_s = place_s
        return None

    def reserve(self, place: Placement, limit_s: int) -> None:
        """Takes the nodes out from the place's start to its end, for at least one step of the resolution.

        What starts beyond the window (bf_window) gets no reservation, so longer jobs may pass it.
        """
        start_s = max(self._floor(place.start_s), self._times[0])
        end_s = max(self._floor(place.start_s + limit_s), start_s + self._resolution_s)
        if start_s >= self._end_s:
            return
        first, last = self._cut(start_s), self._cut(end_s)
        for index in range(first, last):
            self._nodes[index] &= ~place.nodes

    def _cut(self, time_s: int) -> int:
        """The index of the step that begins at this time, made if needed."""
        index = bisect_left(self._times, time_s)
        if time_s >= self._end_s:
            return len(self._times)
        if index == len(self._times) or self._times[index] != time_s:
            self._times.insert(index, time_s)
            self._nodes.insert(index, self._nodes[index - 1])
        return index
