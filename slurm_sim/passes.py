"""Slurm's two schedulers: which of the queued jobs start now (`sched_config.html`: main and backfill)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from typing import NamedTuple

from slurm_sim.backfill import Outlook, Plan
from slurm_sim.cluster import Cluster
from slurm_sim.config import Params, SelectType
from slurm_sim.jobs import JobRecord

Start = Callable[[JobRecord, int], None]
"""Starts the job on these nodes."""


def main_pass(cluster: Cluster, queue: Sequence[JobRecord], depth: int | None, now_s: int, start: Start) -> bool:
    """Starts jobs in strict order, of the first `depth` (None: of all).

    One that does not fit stops its partition, and keeps all of the partition's nodes from the jobs after it; in a
    reservation it stops that. A limit stops only the job itself. Returns whether jobs were passed over.
    """
    kept, stopped, rejected = 0, set[tuple[str, str]](), set[int]()
    passed_over, tested = False, 0
    for job in queue:
        array = job.spec.array_job_id
        if array in rejected:
            continue
        if cluster.throttled(job):
            job.reason = "JobArrayTaskLimit"
            rejected.add(array or 0)
            continue
        tested += 1
        # Slurm counts before it compares, so it looks at one job more than the depth.
        if depth is not None and tested > depth + 1:
            break
        reservation = job.spec.reservation
        gate = ("partition", job.partition) if reservation is None else ("reservation", reservation)
        if gate in stopped:
            passed_over = True
            if job.reason in ("None", "Resources"):
                job.reason = "Priority"
        elif reason := cluster.limit_reached(job):
            job.reason = reason
        elif nodes := _fitting(cluster, job, kept, now_s):
            start(job, nodes)
            continue
        elif job.reason != "Reservation":
            stopped.add(gate)
            if reservation is None:
                kept |= cluster.masks[job.partition]
        if array is not None:
            rejected.add(array)
    return passed_over


def _fitting(cluster: Cluster, job: JobRecord, kept: int, now_s: int) -> int:
    """The nodes on which it starts now; none: its reason says why."""
    wish = cluster.wish(job)
    open_to_it = wish.usable & ~cluster.calendar.taken(wish.reservation, now_s, now_s + wish.limit_s)
    if wish.reservation is not None and not cluster.calendar.is_open(wish.reservation, now_s):
        open_to_it = 0
    nodes = cluster.pool.hosts(wish.request) & open_to_it & ~kept
    if nodes.bit_count() >= wish.needed:
        return cluster.pick(nodes, wish.needed, cluster.pool, wish.request, starts=True)
    reserved = wish.usable.bit_count() >= wish.needed > open_to_it.bit_count()
    job.reason = "Reservation" if reserved else "Resources"
    return 0


class Forecast(NamedTuple):
    """What a backfill pass changed in slurmctld's eyes, besides the jobs that it started."""

    moved: bool
    """An expected start was set (last_job_update)."""
    planned: bool
    """There are PLANNED nodes now (last_node_update)."""


def backfill_pass(cluster: Cluster, queue: Sequence[JobRecord], params: Params, now_s: int, start: Start) -> Forecast:
    """Starts what delays no reservation; each tested job that can't start now gets one on the nodes it would have.

    Reservations don't outlive the pass.
    """
    plan = Plan(now_s, params.bf_window_s, params.bf_resolution_s, cluster.up)
    _attempt(cluster, queue, plan, params, now_s, start)
    return Forecast(plan.moved, bool(plan.planned & cluster.pool.idle))


def _attempt(
    cluster: Cluster, queue: Sequence[JobRecord], plan: Plan, params: Params, now_s: int, start: Start
) -> None:
    tasks = _Tasks(params)
    outlook = _outlook(cluster, params, now_s)
    for job in queue:
        if plan.tested >= params.bf_max_job_test:
            return
        if cluster.throttled(job, tasks.reserved_of(job)):
            job.reason = "JobArrayTaskLimit"
            tasks.reject(job)
        elif tasks.counts(job):
            if reason := cluster.limit_reached(job):
                job.reason = reason
                tasks.reject(job)
            elif not _place(cluster, job, plan, outlook, tasks, start):
                return


class _Tasks:
    """How many jobs a pass has looked at, by user, partition and array, and which arrays it has given up."""

    def __init__(self, params: Params) -> None:
        self.params = params
        self._of_user = Counter[str]()
        self._of_partition = Counter[str]()
        self._reserved = Counter[int]()
        self._rejected = set[int]()
        self.started = 0

    def reserved_of(self, job: JobRecord) -> int:
        return self._reserved[job.spec.array_job_id or 0]

    def reject(self, job: JobRecord) -> None:
        """No further task of this array is looked at."""
        if job.spec.array_job_id is not None:
            self._rejected.add(job.spec.array_job_id)

    def reserve(self, job: JobRecord) -> None:
        array = job.spec.array_job_id
        if array is not None:
            self._reserved[array] += 1
            if self._reserved[array] >= self.params.bf_max_job_array_resv:
                self._rejected.add(array)

    def counts(self, job: JobRecord) -> bool:
        """Whether the job is looked at: its array is not given up, bf_max_job_part and bf_max_job_user allow it."""
        if job.spec.array_job_id in self._rejected:
            return False
        of_partition, of_user = self.params.bf_max_job_part, self.params.bf_max_job_user
        if of_partition is not None and self._of_partition[job.partition] >= of_partition:
            return False
        if of_user is not None and self._of_user[job.user] >= of_user:
            return False
        self._of_partition[job.partition] += 1
        self._of_user[job.user] += 1
        return True


def _place(cluster: Cluster, job: JobRecord, plan: Plan, outlook: Outlook, tasks: _Tasks, start: Start) -> bool:
    """Starts the job or reserves nodes for it. Returns whether the pass goes on."""
    wish = cluster.wish(job)
    if wish.reservation is not None and not cluster.calendar.is_open(wish.reservation, outlook.now_s):
        tasks.reject(job)
        return True
    place = plan.earliest(outlook, cluster.calendar, wish, cluster.pick)
    if place is None or (place.start_s > outlook.now_s and plan.is_beyond(place.start_s)):
        tasks.reject(job)
        return True
    full = plan.records >= tasks.params.node_space_size
    if place.start_s > outlook.now_s:
        plan.planned |= place.nodes
        if full:
            return False
        plan.reserve(place.start_s, place.start_s + wish.limit_s, place.nodes)
        tasks.reserve(job)
        return True
    start(job, place.nodes)
    outlook.started(cluster.held(job, outlook.now_s))
    if wish.request.whole and tasks.params.select_type is SelectType.CONS_TRES and not full:
        # Slurm marks whole nodes in its plan when such a job starts; select/linear does not know the mark.
        plan.reserve(0, outlook.now_s + wish.limit_s, place.nodes)
    tasks.started += 1
    return tasks.params.bf_max_job_start is None or tasks.started < tasks.params.bf_max_job_start


def _outlook(cluster: Cluster, params: Params, now_s: int) -> Outlook:
    running = sorted(cluster.running.values(), key=lambda job: job.job_id)
    return Outlook(now_s, cluster.pool, (cluster.held(job, now_s) for job in running), params)
