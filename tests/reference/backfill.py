"""Where and when a job could start: the planning half of Slurm's backfill scheduler
(sched/backfill).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from functools import reduce
from operator import or_
from typing import NamedTuple

from slurm_sim.admission import NodeRequest
from slurm_sim.config import Params, SelectType
from slurm_sim.picking import Picker
from slurm_sim.resources import FreeResources
from tests.reference.reservations import Calendar


class Placement(NamedTuple):
    """Nodes for a job, and from when they are its own."""

    start_s: int
    nodes: int


class Wish(NamedTuple):
    """What a job needs to be placed."""

    usable: int
    """Nodes that it may have, as far as slurmctld sees before it looks at GPUs: those that backfill
    plans with.
    """
    able: int
    """Those of them on which it can run."""
    needed: int
    request: NodeRequest
    limit_s: int
    """For so long nodes are kept for it: by backfill, for its --time-min at least."""
    asked_s: int
    """Its whole time limit."""
    reservation: str | None
    preferred: int
    """Nodes that its limits of nodes count already."""


class Holding(NamedTuple):
    """What a running job has, and until when at most."""

    end_s: int
    nodes: int
    request: NodeRequest
    overdue_s: int
    """When select/cons_tres expects it to end once it is over its limit (`_guess_job_end`)."""


class Opening(NamedTuple):
    """When enough nodes are first free together, which are, and what is free on them then."""

    start_s: int
    nodes: int
    pool: FreeResources


GROUP_S = 30
"""select/cons_tres lets running jobs end in groups: those that end within this time of a barrier,
then within twice as long, and so on, or with bf_window_linear so much longer each time (its
`_will_run_test`).
"""


class Outlook:
    """What the running jobs leave as they end, each at its limit: one by one, or in groups with
    select/cons_tres.
    """

    def __init__(
        self, now_s: int, pool: FreeResources, running: Iterable[Holding], params: Params
    ) -> None:
        self.now_s = now_s
        self._pool = pool
        self._params = params
        self._holdings = sorted(running, key=lambda holding: holding.end_s)
        self._chains: dict[NodeRequest, list[int]] = {}
        self._pools: dict[int, FreeResources] = {}
        """By how many jobs have ended."""

    @property
    def ends_with_now(self) -> bool:
        """Whether a test of a job that may only start now does not look further (`_will_run_test`,
        TEST_NOW_ONLY).
        """
        return self._params.select_type is SelectType.CONS_TRES

    def _chain(self, request: NodeRequest) -> list[int]:
        """Nodes on which it fits: now, and after each job's end."""
        if request not in self._chains:
            pool = self._pool.copy()
            chain = [pool.hosts(request)]
            for holding in self._holdings:
                pool.give(holding.nodes, holding.request)
                chain.append(pool.hosts(request))
            self._chains[request] = chain
        return self._chains[request]

    def _pool_after(self, count: int) -> FreeResources:
        if count not in self._pools:
            pool = self._pools[count] = self._pool.copy()
            for holding in self._holdings[:count]:
                pool.give(holding.nodes, holding.request)
        return self._pools[count]

    def free(self, request: NodeRequest) -> int:
        """Nodes on which it fits now."""
        return self._chain(request)[0]

    def fits_at_last(self, request: NodeRequest) -> int:
        """Nodes on which it fits when all jobs have ended."""
        return self._chain(request)[-1]

    def busy(self, found: Opening) -> int:
        """Nodes with a job now, where it matters: if running jobs have to end first
        (bf_busy_nodes).
        """
        if not self._params.bf_busy_nodes or found.start_s == self.now_s:
            return 0
        return reduce(or_, (holding.nodes for holding in self._holdings), 0)

    def add(self, holding: Holding) -> None:
        """A job started just now; the pool knows it already."""
        self._holdings.insert(
            bisect_right(self._holdings, holding.end_s, key=lambda other: other.end_s), holding
        )
        self._chains.clear()
        self._pools.clear()

    def first(self, wish: Wish, nodes: int) -> Opening | None:
        """When enough of these nodes are first free together."""
        chain = self._chain(wish.request)
        able = nodes & wish.able
        ended = bisect_left(chain, wish.needed, key=lambda free: (free & able).bit_count())
        if ended == len(chain):
            return None
        if ended == 0:
            return Opening(self.now_s, chain[0] & able, self._pool)
        if self._params.select_type is SelectType.LINEAR:
            start_s = max(self._holdings[ended - 1].end_s, self.now_s + 1)
        else:
            ended, start_s = self._end_of_group(nodes, ended)
        return Opening(start_s, chain[ended] & able, self._pool_after(ended))

    def _end_of_group(self, nodes: int, enough: int) -> tuple[int, int]:
        """How many jobs have ended with the group of the job with which it is enough, and when the
        last of them does.

        Jobs elsewhere belong to no group. The barrier is the first job's end, rounded up.
        """
        barrier_s, window_s, last_s, overdue_s = None, GROUP_S, self.now_s, self.now_s
        for index, holding in enumerate(self._holdings):
            if not holding.nodes & nodes:
                continue
            if barrier_s is None:
                barrier_s = holding.end_s - holding.end_s % GROUP_S + GROUP_S
            last_s, overdue_s = holding.end_s, holding.overdue_s
            next_s = self._holdings[index + 1].end_s if index + 1 < len(self._holdings) else None
            if next_s is not None and next_s <= barrier_s + window_s:
                continue
            if index + 1 >= enough:
                break
            window_s = self._wider(window_s, 0 if next_s is None else next_s - barrier_s)
        else:
            index = len(self._holdings) - 1
        return index + 1, last_s if last_s > self.now_s else max(overdue_s, self.now_s + 1)

    def _wider(self, window_s: int, least_s: int) -> int:
        """The window widened once, and on until it is so wide."""
        longer_s = self._params.bf_window_linear_s
        if longer_s is not None:
            return window_s + longer_s * max(1, -((window_s - least_s) // longer_s))
        window_s *= 2
        while window_s < least_s:
            window_s *= 2
        return window_s


class BackfillPlan:
    """The nodes that backfill's own reservations leave over, as steps in time; jobs that ran before
    are not in it.

    The steps are slurmctld's, record for record (`_add_reservation`): it merges one pair of equal
    neighbours at most, and which steps there are decides when a job is tried again. Times are
    rounded down to `resolution_s`.
    """

    def __init__(self, now_s: int, window_s: int, resolution_s: int, nodes: int) -> None:
        self._resolution_s = resolution_s
        self._last_start_s = now_s + window_s
        self._begins = [self._floor(now_s)]
        """Of the steps; each ends where the next begins, the last at `_end_s`."""
        self._end_s = self._floor(now_s + window_s)
        self._nodes = [nodes]
        self.records = 1
        """Steps ever made, merged ones too: what bf_node_space_size limits (slurmctld's table is
        not reused).
        """
        self.tests = 0
        """Jobs for which there were enough unreserved nodes at some time: what bf_max_job_test
        counts.
        """
        self.moved = False
        """Whether a try at a later time found an earlier one: then slurmctld sets the job's
        expected start to the time of the try, which it counts as a change of the job
        (`_attempt_backfill`: last_job_update).
        """
        self.last_test = 0
        """Nodes that the last successful test of the last job picked, though it may get others, or
        none.
        """
        self.planned = 0
        """Nodes that jobs are expected to start on: those without a job become PLANNED
        (`_handle_planned`).
        """

    def _floor(self, time_s: int) -> int:
        return time_s - time_s % self._resolution_s

    def _step_end_s(self, index: int) -> int:
        return self._begins[index + 1] if index + 1 < len(self._begins) else self._end_s

    def _first_after(self, time_s: int) -> int:
        """The index of the first step that ends after this time."""
        index = max(0, bisect_right(self._begins, time_s) - 1)
        while index < len(self._begins) and self._step_end_s(index) <= time_s:
            index += 1
        return index

    def _unreserved(self, nodes: int, start_s: int, end_s: int) -> tuple[int, int | None]:
        """Those of the nodes that are unreserved all the time, and when to look again if they are
        not good enough.

        A reservation that begins exactly at the end is in the way. Looking again is worth it at the
        first step that brings a node which was reserved before; the step after the end counts too.
        """
        left, later_s = nodes, None
        for index in range(self._first_after(start_s), len(self._begins)):
            step = left & self._nodes[index]
            if (
                later_s is None
                and index + 1 < len(self._begins)
                and nodes & self._nodes[index + 1] & ~step
            ):
                later_s = self._begins[index + 1]
            if self._begins[index] > end_s:
                break
            left = step
        return left, later_s

    def _overlaps(self, place: Placement, end_s: int) -> bool:
        first = self._first_after(self._floor(place.start_s))
        last = bisect_left(self._begins, self._floor(end_s))
        return any(place.nodes & ~free for free in self._nodes[first:last])

    def _candidates(
        self, wish: Wish, calendar: Calendar, start_s: int, open_s: int
    ) -> tuple[int, int | None]:
        """Nodes for a start at this time that neither kind of reservation holds, and when to look
        again. `open_s`: for so long no advanced reservation may be in the way.
        """
        taken = calendar.taken(wish.reservation, start_s, start_s + open_s) & wish.usable
        nodes, later_s = self._unreserved(wish.usable & ~taken, start_s, start_s + wish.limit_s)
        if taken:
            after_s = calendar.next_end_s(start_s, self._resolution_s)
            if after_s < self._end_s and (later_s is None or after_s < later_s):
                later_s = after_s
        return nodes, later_s

    def earliest(
        self,
        outlook: Outlook,
        calendar: Calendar,
        wish: Wish,
        pick: Picker,
        *,
        only_now: bool = False,
    ) -> Placement | None:
        """The first place for a job; None: there is none, or none now. It may lie beyond the
        window.
        """
        later_s: int | None = outlook.now_s
        tests, self.last_test, open_s = self.tests + 1, 0, wish.limit_s
        while later_s is not None:
            start_s = later_s
            nodes, later_s = self._candidates(wish, calendar, start_s, open_s)
            if only_now:
                later_s = None
            if nodes.bit_count() < wish.needed:
                continue
            # However often it is tried, a job counts once, and only if enough nodes were unreserved.
            self.tests = tests
            place = self._try(outlook, wish, pick, start_s, nodes, only_now=only_now)
            if place is None:
                # slurmctld takes a job's --time-min back then, which only reservations see.
                open_s = wish.asked_s
                continue
            starts = place.start_s == outlook.now_s
            # A reserved node comes back before that, and the job may start earlier with it.
            if not starts and later_s is not None and place.start_s > later_s:
                continue
            if (
                starts
                or self.is_beyond(place.start_s)
                or not self._overlaps(place, place.start_s + wish.limit_s)
            ):
                return place
            # Others have reserved some of these nodes for that time: it is tried again from there.
            later_s = place.start_s
        return None

    def _try(
        self,
        outlook: Outlook,
        wish: Wish,
        pick: Picker,
        start_s: int,
        nodes: int,
        *,
        only_now: bool,
    ) -> Placement | None:
        """A test of the job on nodes that are unreserved from this time on: when running jobs leave
        enough of them. None: never, or not now.
        """
        found = outlook.first(wish, nodes)
        fits = outlook.free(wish.request) if only_now else outlook.fits_at_last(wish.request)
        # A test counts GPUs near free CPUs on all nodes with room, and later picks see that count.
        there = fits if only_now or found is None else found.nodes
        pick.tested(nodes & wish.able & there, wish.request)
        if found is None:
            return None
        place_s = max(found.start_s, start_s)
        starts = place_s == outlook.now_s
        if starts:
            # slurmctld tests such a job once more, as it starts it.
            pick.attempt(nodes, wish.preferred)
            pick.tested(found.nodes, wish.request)
        if only_now and not starts and outlook.ends_with_now:
            return None
        self.last_test = pick(
            found.nodes,
            wish.needed,
            found.pool,
            wish.request,
            starts=starts,
            busy=outlook.busy(found),
        )
        if only_now and not starts:
            return None
        self.moved |= found.start_s < start_s
        return Placement(place_s, self.last_test)

    def first_conflict_s(self, nodes: int, end_s: int) -> int | None:
        """When the first of these nodes is kept for another job; None: not before this time."""
        steps = zip(self._begins, self._nodes, strict=True)
        return next((begin_s for begin_s, free in steps if begin_s < end_s and nodes & ~free), None)

    def is_beyond(self, start_s: int) -> bool:
        """Whether a start at this time gets no reservation (bf_window), so that longer jobs may
        pass it.
        """
        return start_s > self._last_start_s

    def reserve(self, start_s: int, end_s: int, nodes: int) -> None:
        """Takes the nodes out between these times, for at least one step of the resolution."""
        begin_s = max(self._floor(start_s), self._begins[0])
        end_s = max(self._floor(end_s), begin_s + self._resolution_s)
        before, first = self._split_begin(begin_s)
        index, after = first, len(self._begins)
        while index < len(self._begins):
            if end_s < self._step_end_s(index):
                self._insert(index + 1, end_s)
            self._nodes[index] &= ~nodes
            if end_s == self._step_end_s(index):
                after = index + 1
                break
            index += 1
        self._merge_one(before, after)

    def _split_begin(self, begin_s: int) -> tuple[int, int]:
        """The index of the step before the first that begins here, and of this one, made if needed.

        The very first step is split even if it begins here: that leaves one of no length.
        """
        before = 0
        for index in range(len(self._begins)):
            if self._step_end_s(index) > begin_s:
                self._insert(index + 1, begin_s)
                return before, index + 1
            if self._step_end_s(index) == begin_s:
                return before, index + 1
            before = index
        return before, len(self._begins)

    def _insert(self, index: int, begin_s: int) -> None:
        self._begins.insert(index, begin_s)
        self._nodes.insert(index, self._nodes[index - 1])
        self.records += 1

    def _merge_one(self, first: int, last: int) -> None:
        for index in range(first, min(last, len(self._begins) - 1)):
            if self._nodes[index] == self._nodes[index + 1]:
                del self._begins[index + 1], self._nodes[index + 1]
                return
