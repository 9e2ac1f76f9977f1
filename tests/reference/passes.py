"""Slurm's two schedulers: which of the queued jobs start now (`sched_config.html`: main and
backfill).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from slurm_sim.config import Params, SelectType
from slurm_sim.jobs import LIMITED, JobRecord, State
from slurm_sim.seconds import MINUTE_S
from tests.reference.backfill import BackfillPlan, Outlook, Placement, Wish
from tests.reference.cluster import ClusterState
from tests.reference.queue import QueueEntry

Start = Callable[[JobRecord, int], None]
"""Starts the job on these nodes."""


def _in_turn(queue: Sequence[QueueEntry]) -> Iterator[JobRecord]:
    """Each job, in the partition of its turn, unless it has started in another one."""
    for job, partition, priority in queue:
        if job.state is State.PENDING:
            job.partition, job.priority = partition, priority
            yield job


def main_pass(
    cluster: ClusterState, queue: Sequence[QueueEntry], *, full: bool, now_s: int, start: Start
) -> bool:
    """Starts jobs in strict order, of the first default_queue_depth, or of all in a `full` pass.

    One that does not fit stops its partition, and keeps all of the partition's nodes from the jobs
    after it; in a reservation it stops that. A limit, or the lack of nodes that are not reserved,
    stops only the job itself. Returns whether there is news for backfill: jobs that were passed
    over, or could not run if no other job ran.
    """
    return _MainPass(cluster, full=full, now_s=now_s, start=start).run(queue)


class _MainPass:
    """One pass: what it has tried and stopped so far."""

    def __init__(self, cluster: ClusterState, *, full: bool, now_s: int, start: Start) -> None:
        self.cluster = cluster
        self.params = cluster.admission.params
        self.now_s = now_s
        self.start = start
        self.depth = None if full else self.params.default_queue_depth
        self.kept = 0
        """Nodes that stopped partitions keep from the jobs after them."""
        self.stopped = set[tuple[str, str]]()
        self.rejected = set[tuple[int, str]]()
        """Arrays of which no further task is looked at."""
        self.news = False
        self.tests = self.starts = 0
        self.of_partition = Counter[str]()

    def run(self, queue: Sequence[QueueEntry]) -> bool:
        most = self.params.sched_max_job_start
        for job in _in_turn(queue):
            if most is not None and self.starts >= most:
                break
            if self._skips(job):
                continue
            self.tests += 1
            # Slurm counts before it compares, so it looks at one job more than the depth.
            if self.depth is not None and self.tests > self.depth + 1:
                break
            if not self._tries(job):
                self._reject(job)
        return self.news

    def _reject(self, job: JobRecord) -> None:
        if (array := _array(job)) is not None:
            self.rejected.add(array)

    def _skips(self, job: JobRecord) -> bool:
        """Whether the pass does not even count the job as tested."""
        if _array(job) in self.rejected:
            return True
        if self.cluster.throttled(job):
            job.reason = "JobArrayTaskLimit"
            self._reject(job)
            return True
        self.of_partition[job.partition] += 1
        most = self.params.partition_job_depth
        if most is None or self.of_partition[job.partition] <= most:
            return False
        if job.reason == "None":
            job.reason, self.news = "Priority", True
        self._reject(job)
        return True

    def _tries(self, job: JobRecord) -> bool:
        """Starts the job, or gives the reason why not; whether it has started."""
        cluster = self.cluster
        if _gate(job) in self.stopped:
            # Backfill may still start it, so it has to look again.
            self.news = True
            if job.reason in ("None", "Resources"):
                job.reason = "Priority"
        elif reason := _known_limit(cluster, job):
            job.reason = reason
        elif _is_out_of_reach(cluster, job, self.kept):
            # slurmctld sees this by counting, before limits: so the job stops its partition even
            # if a limit would have kept it back alone.
            job.reason, self.news = "Resources", True
            self._stop(job)
        elif reason := cluster.jobs_limit_reached(job):
            job.reason = reason
        else:
            return self._tests_nodes(job)
        return False

    def _tests_nodes(self, job: JobRecord) -> bool:
        cluster = self.cluster
        nodes, reason = _fitting(cluster, job, self.kept, self.now_s)
        # A limit of resources counts the nodes of the test, also of one that only asks whether the
        # job could ever run.
        seen = nodes or cluster.possible(job)
        cluster.note_test(job, seen if cluster.is_linear else nodes)
        job.reason = cluster.limit_reached(job, seen, starts=bool(nodes)) or reason
        if not job.reason:
            self.start(job, nodes)
            self.starts += 1
            return True
        if job.reason == "ReqNodeNotAvail":
            self.news = True
        elif job.reason == "Resources" and (
            job.spec.reservation is not None or not _has_no_claim(job, self.params, self.now_s)
        ):
            self._stop(job)
        return False

    def _stop(self, job: JobRecord) -> None:
        """No job after it starts in its partition, or in its reservation."""
        self.stopped.add(_gate(job))
        # A reservation's nodes are kept by the calendar, so only a partition's need to be kept here.
        if job.spec.reservation is None:
            self.kept |= self.cluster.admission.masks[job.partition]


def _known_limit(cluster: ClusterState, job: JobRecord) -> str:
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


def _is_out_of_reach(cluster: ClusterState, job: JobRecord, kept: int) -> bool:
    """Whether the nodes of its partition that are up and not kept for others are too few."""
    return (cluster.admission.masks[job.partition] & cluster.up & ~kept).bit_count() < job.nodes


def _has_no_claim(job: JobRecord, params: Params, now_s: int) -> bool:
    """Whether it may start now but have no nodes kept for it: bf_min_age_reserve,
    bf_min_prio_reserve.
    """
    if params.priority_multifactor and job.priority < params.bf_min_prio_reserve:
        return True
    return job.eligible_s is not None and now_s - job.eligible_s < params.bf_min_age_reserve_s


def _fitting(cluster: ClusterState, job: JobRecord, kept: int, now_s: int) -> tuple[int, str]:
    """The nodes on which it could start now, or why there are none."""
    wish = cluster.wish(job)
    open_to_it = wish.usable & ~cluster.calendar.taken(
        wish.reservation, now_s, now_s + wish.limit_s
    )
    if wish.reservation is not None and not cluster.calendar.is_open(wish.reservation, now_s):
        open_to_it = 0
    nodes = cluster.pool.hosts(wish.request) & wish.able & open_to_it & ~kept
    starts = nodes.bit_count() >= wish.needed
    cluster.pick.attempt(cluster.listed(job), wish.preferred)
    cluster.pick.tested(nodes if starts else wish.able & ~kept, wish.request)
    if starts:
        return cluster.pick(nodes, wish.needed, cluster.pool, wish.request, starts=True), ""
    return 0, _missing(cluster, wish, open_to_it, kept)


def _missing(cluster: ClusterState, wish: Wish, open_to_it: int, kept: int) -> str:
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
    cluster: ClusterState, queue: Sequence[QueueEntry], *, now_s: int, start: Start
) -> Forecast:
    """Starts what delays no reservation; each tested job that can't start now gets one on the nodes
    it would have.

    Reservations don't outlive the pass.
    """
    plan = _BackfillPass(cluster, now_s=now_s, start=start).run(queue)
    return Forecast(plan.moved, bool(plan.planned & cluster.pool.idle))


def most_tested(queue: Sequence[QueueEntry], params: Params) -> int:
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


class _Tally:
    """How many jobs a pass has looked at, by user, partition and so on, and which arrays it has
    given up.
    """

    def __init__(self, params: Params) -> None:
        self.params = params
        self.starts = 0
        self._looks = Counter[tuple[str, ...]]()
        self._reservations = Counter[tuple[int, str]]()
        """Of tasks, by array."""
        self._reservations_in = Counter[str]()
        self._rejected = set[tuple[int, str]]()
        self._expected_s: dict[int, int] = {}

    def reject(self, job: JobRecord) -> None:
        """No further task of this array is looked at."""
        if (array := _array(job)) is not None:
            self._rejected.add(array)

    def has_given_up(self, job: JobRecord) -> bool:
        return _array(job) in self._rejected

    def may_reserve(self, job: JobRecord, now_s: int) -> bool:
        """Whether nodes may be kept for the job, if it can't start now."""
        most = self.params.bf_job_part_count_reserve
        allowed = most is None or self._reservations_in[job.partition] < most
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
        """Nodes are kept for the job."""
        self._reservations_in[job.partition] += 1
        if (array := _array(job)) is not None:
            self._reservations[array] += 1
            if self._reservations[array] >= self.params.bf_max_job_array_resv:
                self._rejected.add(array)

    def counts(self, job: JobRecord) -> bool:
        """Whether the limits bf_max_job_* allow the job to be looked at; if so, it counts."""
        limits = _counted(job, self.params)
        if any(most is not None and self._looks[what] >= most for what, most in limits.items()):
            return False
        self._looks.update(limits.keys())
        return True


class _BackfillPass:
    """One pass: its plan, and what it has looked at so far."""

    def __init__(self, cluster: ClusterState, *, now_s: int, start: Start) -> None:
        self.cluster = cluster
        self.params = params = cluster.admission.params
        self.now_s = now_s
        self.start = start
        self.plan = BackfillPlan(now_s, params.bf_window_s, params.bf_resolution_s, cluster.up)
        self.tally = _Tally(params)
        running = sorted(cluster.running.values(), key=lambda job: job.job_id)
        holdings = (cluster.holding(job, now_s) for job in running)
        self.outlook = Outlook(now_s, cluster.pool, holdings, params)

    def run(self, queue: Sequence[QueueEntry]) -> BackfillPlan:
        for job in _in_turn(queue):
            if self.plan.tests >= self.params.bf_max_job_test:
                break
            if self.cluster.throttled(job):
                job.reason = "JobArrayTaskLimit"
                self.tally.reject(job)
            elif self.tally.has_given_up(job):
                continue
            elif reason := self.cluster.jobs_limit_reached(job):
                job.reason = reason
                self.tally.reject(job)
            elif self.tally.counts(job) and not self._place(job):
                break
        return self.plan

    def _place(self, job: JobRecord) -> bool:
        """Starts the job or reserves nodes for it. Returns whether the pass looks at more jobs."""
        cluster, tally = self.cluster, self.tally
        wish = cluster.wish(job)
        wish = wish._replace(limit_s=cluster.admission.least_limit_s(job.spec, job.time_limit_s))
        if wish.reservation is not None and not cluster.calendar.is_open(
            wish.reservation, self.now_s
        ):
            tally.reject(job)
            return True
        place = self.plan.earliest(
            self.outlook,
            cluster.calendar,
            wish,
            cluster.pick,
            only_now=not tally.may_reserve(job, self.now_s),
        )
        cluster.note_test(job, self.plan.last_test)
        if place is None or (place.start_s > self.now_s and self.plan.is_beyond(place.start_s)):
            if place is not None:
                tally.expects(job, place.start_s)
            tally.reject(job)
            return True
        starts = place.start_s == self.now_s
        # Only now: a job over a limit of resources counts as tested, and its place as looked for.
        if reason := cluster.limit_reached(job, place.nodes, starts=starts, planned=not starts):
            job.reason = reason
            tally.reject(job)
            return True
        return (self._start if starts else self._reserve)(job, wish, place)

    @property
    def _is_full(self) -> bool:
        """Whether slurmctld's table has no room for further reservations."""
        return self.plan.records >= self.params.node_space_size

    def _reserve(self, job: JobRecord, wish: Wish, place: Placement) -> bool:
        """Keeps nodes for the job; without room in the table for that, the pass is over."""
        # Of a job in several partitions the earliest start counts; others don't make nodes PLANNED.
        if self.tally.expects(job, place.start_s):
            self.plan.planned |= place.nodes
        if self._is_full:
            return False
        self.plan.reserve(place.start_s, place.start_s + wish.limit_s, place.nodes)
        self.tally.reserve(job)
        return True

    def _start(self, job: JobRecord, wish: Wish, place: Placement) -> bool:
        """Starts the job; after bf_max_job_start of them the pass is over."""
        was_full = self._is_full
        limit_s = self._limit_s(wish, place.nodes)
        if job.spec.time_min_s is not None:
            job.time_limit_s = limit_s
        self.start(job, place.nodes)
        self.outlook.add(self.cluster.holding(job, self.now_s))
        is_cons_tres = self.params.select_type is SelectType.CONS_TRES
        if wish.request.whole and is_cons_tres and not was_full:
            # Slurm marks whole nodes in its plan when such a job starts; select/linear does not
            # know the mark.
            self.plan.reserve(0, self.now_s + limit_s, place.nodes)
        self.tally.starts += 1
        most = self.params.bf_max_job_start
        return most is None or self.tally.starts < most

    def _limit_s(self, wish: Wish, nodes: int) -> int:
        """The time limit with which the job starts on these nodes (`_reset_job_time_limit`,
        `job_time_adj_resv`).
        """
        if not self.params.time_min_extends or wish.limit_s == wish.asked_s:
            return wish.limit_s
        end_s = self.now_s + wish.asked_s
        conflicts_s = (
            self.plan.first_conflict_s(nodes, end_s),
            self.cluster.calendar.first_conflict_s(wish.reservation, nodes, self.now_s, end_s),
        )
        kept_s = [conflict_s - self.now_s for conflict_s in conflicts_s if conflict_s is not None]
        whole_s = [each_s - each_s % MINUTE_S for each_s in kept_s]
        return max(wish.limit_s, min((wish.asked_s, *whole_s)))
