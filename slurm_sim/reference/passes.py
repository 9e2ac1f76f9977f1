"""Slurm's two schedulers: which of the queued jobs start now (`sched_config.html`: main and
backfill).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from slurm_sim.config import Params, SelectType
from slurm_sim.jobs import LIMITED, JobRecord, State
from slurm_sim.reference.backfill import Outlook, Plan, Wish
from slurm_sim.reference.cluster import Cluster, Turn

Start = Callable[[JobRecord, int], None]
"""Starts the job on these nodes."""


def _in_turn(queue: Sequence[Turn]) -> Iterator[JobRecord]:
    """Each job, in the partition of its turn, unless it has started in another one."""
    for job, partition, priority in queue:
        if job.state is State.PENDING:
            job.partition, job.priority = partition, priority
            yield job


def main_pass(
    cluster: Cluster, queue: Sequence[Turn], params: Params, full: bool, now_s: int, start: Start
) -> bool:
    """Starts jobs in strict order, of the first default_queue_depth, or of all in a `full` pass.

    One that does not fit stops its partition, and keeps all of the partition's nodes from the jobs
    after it; in a reservation it stops that. A limit, or the lack of nodes that are not reserved,
    stops only the job itself. Returns whether there is news for backfill: jobs that were passed
    over, or could not run if no other job ran.
    """
    kept, stopped, rejected = 0, set[tuple[str, str]](), set[tuple[int, str]]()
    news, tested, started, of_partition = False, 0, 0, Counter[str]()

    def stop(job: JobRecord) -> None:
        nonlocal kept
        stopped.add(_gate(job))
        if job.spec.reservation is None:
            kept |= cluster.masks[job.partition]

    depth = None if full else params.default_queue_depth
    for job in _in_turn(queue):
        if params.sched_max_job_start is not None and started >= params.sched_max_job_start:
            break
        array = _array(job)
        if array in rejected:
            continue
        if array is not None and cluster.throttled(job):
            job.reason = "JobArrayTaskLimit"
            rejected.add(array)
            continue
        of_partition[job.partition] += 1
        if (
            params.partition_job_depth is not None
            and of_partition[job.partition] > params.partition_job_depth
        ):
            if job.reason == "None":
                job.reason, news = "Priority", True
            if array is not None:
                rejected.add(array)
            continue
        tested += 1
        # Slurm counts before it compares, so it looks at one job more than the depth.
        if depth is not None and tested > depth + 1:
            break
        reservation = job.spec.reservation
        if _gate(job) in stopped:
            news = True
            if job.reason in ("None", "Resources"):
                job.reason = "Priority"
        elif reason := _known_limit(cluster, job):
            job.reason = reason
        elif _is_out_of_reach(cluster, job, kept):
            job.reason, news = "Resources", True
            stop(job)
        elif reason := cluster.jobs_limit_reached(job):
            job.reason = reason
        else:
            nodes, reason = _fitting(cluster, job, kept, now_s)
            seen = nodes or cluster.possible(job)
            cluster.note_test(job, seen if cluster.is_linear else nodes)
            job.reason = cluster.limit_reached(job, seen, starts=bool(nodes)) or reason
            if not job.reason:
                start(job, nodes)
                started += 1
                continue
            if job.reason == "ReqNodeNotAvail":
                news = True
            elif job.reason == "Resources" and (
                reservation is not None or not _has_no_claim(job, params, now_s)
            ):
                stop(job)
        if array is not None:
            rejected.add(array)
    return news


def _known_limit(cluster: Cluster, job: JobRecord) -> str:
    """The limit of jobs that it waits for, if it is known to wait for one.

    Then slurmctld looks at that first (`acct_policy_job_runnable_state`), and the job stops nobody.
    """
    known = job.reason.endswith(LIMITED) and job.reason != "JobArrayTaskLimit"
    return cluster.jobs_limit_reached(job) if known else ""


def _array(job: JobRecord) -> tuple[int, str] | None:
    """Its array, in the partition of its turn: if one task is rejected there, so are the others."""
    return None if job.spec.array_job_id is None else (job.spec.array_job_id, job.partition)


def _gate(job: JobRecord) -> tuple[str, str]:
    """What a job stops that does not fit."""
    reservation = job.spec.reservation
    return ("partition", job.partition) if reservation is None else ("reservation", reservation)


def _is_out_of_reach(cluster: Cluster, job: JobRecord, kept: int) -> bool:
    """Whether the nodes of its partition that are up and not kept for others are too few."""
    return (cluster.masks[job.partition] & cluster.up & ~kept).bit_count() < job.nodes


def _has_no_claim(job: JobRecord, params: Params, now_s: int) -> bool:
    """Whether it may start now but have no nodes kept for it: bf_min_age_reserve,
    bf_min_prio_reserve.
    """
    if params.priority_multifactor and job.priority < params.bf_min_prio_reserve:
        return True
    return job.eligible_s is not None and now_s - job.eligible_s < params.bf_min_age_reserve_s


def _fitting(cluster: Cluster, job: JobRecord, kept: int, now_s: int) -> tuple[int, str]:
    """The nodes on which it could start now, or why there are none."""
    wish = cluster.wish(job)
    open_to_it = wish.usable & ~cluster.calendar.taken(
        wish.reservation, now_s, now_s + wish.limit_s
    )
    if wish.reservation is not None and not cluster.calendar.is_open(wish.reservation, now_s):
        open_to_it = 0
    nodes = cluster.pool.hosts(wish.request) & wish.able & open_to_it & ~kept
    starts = nodes.bit_count() >= wish.needed
    cluster.pick.attempt(
        cluster.listed(job.spec, cluster.partitions[job.partition]), wish.preferred
    )
    cluster.pick.tested(nodes if starts else wish.able & ~kept, wish.request)
    if starts:
        return cluster.pick(nodes, wish.needed, cluster.pool, wish.request, starts=True), ""
    return 0, _missing(cluster, wish, open_to_it, kept)


def _missing(cluster: Cluster, wish: Wish, open_to_it: int, kept: int) -> str:
    """Why a job that could run in its partition does not start: the errors of slurmctld's
    select_nodes, as reasons.

    Whether the nodes have the GPUs it sees only as it tests them, not as it looks for busy ones.
    """
    if not open_to_it:
        return "Reservation"
    candidates = open_to_it & ~kept
    vacant = cluster.pool.idle if wish.request.whole else cluster.pool.shared
    too_few = (candidates & wish.able).bit_count() < wish.needed
    return "ReqNodeNotAvail" if too_few and not candidates & ~vacant else "Resources"


class Forecast(NamedTuple):
    """What a backfill pass changed in slurmctld's eyes, besides the jobs that it started."""

    moved: bool
    """An expected start was set (last_job_update)."""
    planned: bool
    """There are PLANNED nodes now (last_node_update)."""


def backfill_pass(
    cluster: Cluster, queue: Sequence[Turn], params: Params, now_s: int, start: Start
) -> Forecast:
    """Starts what delays no reservation; each tested job that can't start now gets one on the nodes
    it would have.

    Reservations don't outlive the pass.
    """
    plan = Plan(now_s, params.bf_window_s, params.bf_resolution_s, cluster.up)
    _attempt(cluster, queue, plan, params, now_s, start)
    return Forecast(plan.moved, bool(plan.planned & cluster.pool.idle))


def _attempt(
    cluster: Cluster, queue: Sequence[Turn], plan: Plan, params: Params, now_s: int, start: Start
) -> None:
    tasks = _Tasks(params)
    outlook = _outlook(cluster, params, now_s)
    for job in _in_turn(queue):
        if plan.tested >= params.bf_max_job_test:
            return
        if cluster.throttled(job):
            job.reason = "JobArrayTaskLimit"
            tasks.reject(job)
        elif tasks.has_given_up(job):
            continue
        elif reason := cluster.jobs_limit_reached(job):
            job.reason = reason
            tasks.reject(job)
        elif tasks.counts(job) and not _place(cluster, job, plan, outlook, tasks, start):
            return


def most_tested(queue: Sequence[Turn], params: Params) -> int:
    """How many of these jobs a backfill pass tests at most, as far as counts tell."""
    found, most = Counter[tuple[str, ...]](), dict[tuple[str, ...], int]()
    for job in _in_turn(queue):
        limits = {what: limit for what, limit in _counted(job, params).items() if limit is not None}
        found.update(limits.keys())
        most |= limits
    kinds = Counter[str]()
    for what, jobs in found.items():
        kinds[what[0]] += min(jobs, most[what])
    return min(len(queue), params.bf_max_job_test, *kinds.values())


def _counted(job: JobRecord, params: Params) -> dict[tuple[str, ...], int | None]:
    """What a pass counts the job as, and how many of each it looks at."""
    return {
        ("partition", job.partition): params.bf_max_job_part,
        ("user in partition", job.user, job.partition): params.bf_max_job_user_part,
        ("association", job.spec.account, job.user): params.bf_max_job_assoc,
        ("user", job.user): params.bf_max_job_user if params.bf_max_job_assoc is None else None,
    }


class _Tasks:
    """How many jobs a pass has looked at, by user, partition and so on, and which arrays it has
    given up.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self._looked_at = Counter[tuple[str, ...]]()
        self._reserved = Counter[tuple[int, str]]()
        self._reserved_in = Counter[str]()
        self._rejected = set[tuple[int, str]]()
        self._expected_s: dict[int, int] = {}
        self.started = 0

    def reject(self, job: JobRecord) -> None:
        """No further task of this array is looked at."""
        if (array := _array(job)) is not None:
            self._rejected.add(array)

    def has_given_up(self, job: JobRecord) -> bool:
        return _array(job) in self._rejected

    def may_reserve(self, job: JobRecord, now_s: int) -> bool:
        """Whether nodes may be kept for the job, if it can't start now."""
        most = self.params.bf_job_part_count_reserve
        allowed = most is None or self._reserved_in[job.partition] < most
        has_one = self.params.bf_one_resv_per_job and job.job_id in self._expected_s
        return allowed and not has_one and not _has_no_claim(job, self.params, now_s)

    def expects(self, job: JobRecord, start_s: int) -> bool:
        """Notes when a job is expected to start, perhaps too late for a reservation; whether that
        is earlier than in its partitions before.
        """
        earlier_s = self._expected_s.get(job.job_id)
        is_first = earlier_s is None or start_s < earlier_s
        if is_first:
            self._expected_s[job.job_id] = start_s
        return is_first

    def reserve(self, job: JobRecord) -> None:
        self._reserved_in[job.partition] += 1
        if (array := _array(job)) is not None:
            self._reserved[array] += 1
            if self._reserved[array] >= self.params.bf_max_job_array_resv:
                self._rejected.add(array)

    def counts(self, job: JobRecord) -> bool:
        """Whether the limits bf_max_job_* allow the job to be looked at; if so, it counts."""
        counted = _counted(job, self.params)
        if any(
            most is not None and self._looked_at[what] >= most for what, most in counted.items()
        ):
            return False
        self._looked_at.update(counted.keys())
        return True


def _place(
    cluster: Cluster, job: JobRecord, plan: Plan, outlook: Outlook, tasks: _Tasks, start: Start
) -> bool:
    """Starts the job or reserves nodes for it. Returns whether the pass goes on."""
    wish = cluster.wish(job)
    if wish.reservation is not None and not cluster.calendar.is_open(
        wish.reservation, outlook.now_s
    ):
        tasks.reject(job)
        return True
    only_now = not tasks.may_reserve(job, outlook.now_s)
    place = plan.earliest(outlook, cluster.calendar, wish, cluster.pick, only_now=only_now)
    cluster.note_test(job, plan.last_test)
    if place is None or (place.start_s > outlook.now_s and plan.is_beyond(place.start_s)):
        if place is not None:
            tasks.expects(job, place.start_s)
        tasks.reject(job)
        return True
    starts = place.start_s == outlook.now_s
    if reason := cluster.limit_reached(job, place.nodes, starts=starts, planned=not starts):
        job.reason = reason
        tasks.reject(job)
        return True
    full = plan.records >= tasks.params.node_space_size
    if place.start_s > outlook.now_s:
        if tasks.expects(job, place.start_s):
            plan.planned |= place.nodes
        if full:
            return False
        plan.reserve(place.start_s, place.start_s + wish.limit_s, place.nodes)
        tasks.reserve(job)
        return True
    start(job, place.nodes)
    outlook.started(cluster.held(job, outlook.now_s))
    if wish.request.whole and tasks.params.select_type is SelectType.CONS_TRES and not full:
        # Slurm marks whole nodes in its plan when such a job starts; select/linear does not know
        # the mark.
        plan.reserve(0, outlook.now_s + wish.limit_s, place.nodes)
    tasks.started += 1
    return tasks.params.bf_max_job_start is None or tasks.started < tasks.params.bf_max_job_start


def _outlook(cluster: Cluster, params: Params, now_s: int) -> Outlook:
    running = sorted(cluster.running.values(), key=lambda job: job.job_id)
    return Outlook(now_s, cluster.pool, (cluster.held(job, now_s) for job in running), params)
