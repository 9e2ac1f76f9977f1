"""A simulation that begins in the middle: jobs that run already, jobs that have waited for a while.

What a cluster tells of itself (`squeue`, `sinfo`) is enough for this, but for what slurmctld keeps
to itself: the phases of its timers (`Timers`; without them, all periods begin now), users' past
usage (all users begin with none, so fair-share factors are equal), and of jobs that are over,
whether they were successful.

The records are for `Simulator.from_state`; `put_in` is what the reference does with them.
"""

from __future__ import annotations

import heapq
from collections.abc import Collection, Iterable
from dataclasses import dataclass

from slurm_sim.config import NodeOutage
from slurm_sim.dependency import check_not_itself, parse_dependency
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import LIMITED, JobRecord, JobSpec
from slurm_sim.ranges import LAST_S, check_kind, listed, whole
from slurm_sim.reference.cluster import Cluster
from slurm_sim.reference.simulator import Kind, Simulator

REASONS = (
    *(
        "None",
        "Resources",
        "Priority",
        "Reservation",
        "ReqNodeNotAvail",
        "Dependency",
        "DependencyNeverSatisfied",
        "BeginTime",
    ),
    *(
        "JobHeldUser",
        "JobArrayTaskLimit",
        "QOSGrpJobsLimit",
        "QOSMaxJobsPerUserLimit",
        "QOSGrpCpuLimit",
    ),
    *(
        "QOSGrpNodeLimit",
        "QOSGrpGRES",
        "QOSMaxCpuPerUserLimit",
        "QOSMaxNodePerUserLimit",
        "QOSMaxGRESPerUser",
    ),
    *(
        "AssocMaxJobsLimit",
        "AssocGrpJobsLimit",
        "AssocGrpCpuLimit",
        "AssocGrpNodeLimit",
        "AssocGrpGRES",
    ),
    *(
        "QOSMaxSubmitJobPerUserLimit",
        "MaxJobsPerAccount",
        "MaxCpuPerAccount",
        "MaxNodePerAccount",
        "MaxGRESPerAccount",
    ),
    "MaxSubmitJobsPerAccount",
)
"""The reasons that the simulator gives."""


@dataclass(frozen=True)
class RunningJob:
    """A job that holds nodes. `spec.job_id` is needed; `spec.time_limit_s` None is no limit (not
    the default one).
    """

    spec: JobSpec
    start_s: int
    node_names: tuple[str, ...]
    submit_s: int | None = None
    """None: as it started."""
    eligible_s: int | None = None
    """None: as it was submitted."""

    @property
    def submitted_s(self) -> int:
        return self.start_s if self.submit_s is None else self.submit_s


@dataclass(frozen=True)
class PendingJob:
    """A job in the queue. What keeps it back is in its `spec`: a dependency, a hold, a begin time."""

    spec: JobSpec
    submit_s: int
    eligible_s: int | None = None
    """Since when it competes for nodes; None: something keeps it back, or the next pass finds that
    nothing does.

    With a dependency, a hold or a begin time after now in its `spec`, only None is right.
    """
    reason: str = "None"
    """Slurm's, as last set by a pass; one that the simulator does not have becomes a limit of its
    own, or None.
    """

    @property
    def submitted_s(self) -> int:
        return self.submit_s

    @property
    def known_reason(self) -> str:
        """As the simulator would have it."""
        if self.reason in REASONS:
            return self.reason
        return "QOSMaxJobsPerUserLimit" if self.reason.endswith(LIMITED) else "None"


@dataclass(frozen=True)
class Timers:
    """What the times of slurmctld's passes depend on. Only a simulation can tell them:
    `Simulator.timers`.
    """

    start_s: int
    """Periods count from here."""
    last_main_s: int
    last_full_s: int
    last_pass_s: int
    """When the last main pass ran, which was asked for at `last_main_s`."""
    put_off_s: int | None
    """When one runs that sched_min_interval puts off, and whether that is one over the whole queue.
    """
    put_off_full: bool
    last_backfill_us: int
    main_due_s: int | None
    backfill_due_s: int | None
    main_wanted: bool
    review_wanted: bool
    planned: bool
    """Whether nodes are PLANNED; the next backfill pass takes that back, which makes it run once
    more.
    """


Items = list[RunningJob | PendingJob]


def given(
    now_s: int,
    running: Iterable[RunningJob],
    pending: Iterable[PendingJob],
    down: Iterable[str],
    timers: Timers | None,
) -> tuple[int, Items, list[str]]:
    """What `Simulator.from_state` is given: the time, the jobs in the order in which they come into
    the simulation, and the nodes that are down. Raises SimulationError for anything else.
    """
    now_s = whole("now_s", now_s, 0, LAST_S, SimulationError)
    if timers is not None:
        check_kind("timers", timers, Timers, SimulationError)
    items: Items = [
        *listed("running", running, RunningJob, SimulationError),
        *listed("pending", pending, PendingJob, SimulationError),
    ]
    for item in items:
        check_kind("spec", item.spec, JobSpec, SimulationError)
    names = list(dict.fromkeys(listed("down", down, str, SimulationError)))
    return now_s, sorted(items, key=lambda item: item.spec.job_id or 0), names


def put_in(
    simulator: Simulator,
    now_s: int,
    items: Items,
    down: Collection[str],
    timers: Timers | None,
) -> None:
    """Makes a new, empty simulation (begun at `timers.start_s`) one that is in this state."""
    if now_s < simulator.now_s:
        raise SimulationError(
            f"now_s is {now_s}, before the start of the timers' periods, {simulator.now_s}"
        )
    simulator.now_s = now_s
    simulator._events = [event for event in simulator._events if event[0] > now_s]
    heapq.heapify(simulator._events)
    check_state(simulator._cluster, now_s, items)
    _take_down(simulator, down)
    simulator._cluster.start_meter(now_s)
    simulator._cluster.priorities.come_before(item.spec.priority for item in items)
    records = {item.spec.job_id: _enter(simulator, item) for item in items}
    for item in items:
        if isinstance(item, RunningJob):
            _run(simulator, records[item.spec.job_id], item)
    for item in items:
        if isinstance(item, PendingJob):
            _queue(simulator, records[item.spec.job_id], item)
    simulator._cluster.note_reasons()
    if timers is None:
        simulator._changed()
        simulator._ask_main()
        return
    simulator._last_main_s, simulator._last_full_s = timers.last_main_s, timers.last_full_s
    simulator._last_pass_s = timers.last_pass_s
    simulator._put_off_s, simulator._put_off_full = timers.put_off_s, timers.put_off_full
    simulator._last_backfill_us = timers.last_backfill_us
    simulator._main_due_s, simulator._backfill_due_s = timers.main_due_s, timers.backfill_due_s
    simulator._main_wanted, simulator._review_wanted = timers.main_wanted, timers.review_wanted
    simulator._planned = timers.planned
    simulator._last_news_s = simulator.now_s


def check_state(cluster: Cluster, now_s: int, items: Iterable[RunningJob | PendingJob]) -> None:
    """Raises SimulationError for jobs that can't be in a state at this time, or name what the
    cluster does not have.
    """
    seen = set[int]()
    for item in items:
        job_id = item.spec.job_id
        if job_id is None or job_id in seen:
            raise SimulationError(f"job_id {job_id}: each job of a state needs an id of its own")
        seen.add(job_id)
        cluster.partition_of(item.spec)
        cluster.limits.qos_of(item.spec.qos)
        cluster.calendar.nodes(item.spec.reservation)
        needed = "submit_s" if isinstance(item, PendingJob) else "start_s"
        for name in ("submit_s", "eligible_s", "start_s"):
            time_s = getattr(item, name, None)
            if time_s is not None or name == needed:
                whole(f"job {job_id}: {name}", time_s, -LAST_S, LAST_S, SimulationError)
        since_s = item.submit_s if isinstance(item, PendingJob) else item.start_s
        if since_s > now_s:
            raise SimulationError(
                f"job {job_id} was submitted or started at {since_s}, after now, {now_s}"
            )
        if isinstance(item, PendingJob):
            check_not_itself(job_id, item.spec.dependency)
            _check_eligible(item, now_s)
            continue
        names = listed(f"job {job_id}: node_names", item.node_names, str, SimulationError)
        if len(names) != item.spec.nodes or len(set(names)) != item.spec.nodes:
            raise SimulationError(
                f"job {job_id} has {item.spec.nodes} nodes, but {item.node_names} are named; name"
                " each of them once"
            )


def _check_eligible(item: PendingJob, now_s: int) -> None:
    spec, kept_by = item.spec, None
    if spec.dependency:
        kept_by = f"dependency {spec.dependency!r}"
    elif spec.held:
        kept_by = "hold"
    elif spec.begin_s is not None and spec.begin_s > now_s:
        kept_by = f"begin_s {spec.begin_s}"
    if item.eligible_s is not None and kept_by:
        raise SimulationError(
            f"job {spec.job_id} competes since {item.eligible_s}, so its {kept_by} is over: leave"
            " out one of the two"
        )


def _take_down(simulator: Simulator, down: Collection[str]) -> None:
    cluster = simulator._cluster
    for node in sorted(down, key=cluster.bit):
        cluster.up &= ~cluster.bit(node)
        cluster.outages.append(NodeOutage(node, simulator.now_s))


def _enter(simulator: Simulator, item: RunningJob | PendingJob) -> JobRecord:
    """As a job that has just been submitted, its dependencies still open."""
    job_id = simulator._take_id(item.spec)
    simulator._cluster.fairshare.add(item.spec.account, item.spec.user)
    record = simulator._cluster.add(job_id, item.spec, item.submitted_s)
    record.time_limit_s = item.spec.time_limit_s
    if item.spec.cancel_s is not None:
        simulator._push(max(item.spec.cancel_s, simulator.now_s), Kind.CANCEL, job_id)
    return record


def _run(simulator: Simulator, record: JobRecord, item: RunningJob) -> None:
    cluster, now_s = simulator._cluster, simulator.now_s
    nodes = sum(cluster.bit(name) for name in item.node_names)
    free = cluster.pool.hosts(cluster.request(record.spec, cluster.partition_of(record.spec)))
    if nodes & ~free:
        raise SimulationError(
            f"job {record.job_id}: not all of {', '.join(item.node_names)} have room for it"
        )
    cluster.start(record, nodes, "", now_s)
    record.start_s = item.start_s
    record.eligible_s = record.accrues_s = (
        record.submit_s if item.eligible_s is None else item.eligible_s
    )
    if item.spec.runtime_s is not None:
        simulator._end_at(record.job_id, max(item.start_s + item.spec.runtime_s, now_s))
    simulator._watch_limit(record)


def _queue(simulator: Simulator, record: JobRecord, item: PendingJob) -> None:
    cluster, now_s = simulator._cluster, simulator.now_s
    known = {*cluster.jobs, *cluster.arrays}
    record.dependencies = parse_dependency(item.spec.dependency).known(
        lambda job_id: job_id in known
    )
    record.reason = item.known_reason
    if item.spec.begin_s is not None and item.spec.begin_s > now_s:
        simulator._push(item.spec.begin_s, Kind.BEGIN, record.job_id)
    for needed in record.dependencies.items:
        other = cluster.jobs.get(needed.job_id)
        if needed.delay_s and other is not None and other.start_s is not None:
            simulator._push(max(now_s, other.start_s + needed.delay_s), Kind.BEGIN, record.job_id)
    if item.eligible_s is not None:
        record.eligible_s = record.accrues_s = item.eligible_s
        cluster.competing[record.job_id] = cluster.waiting.pop(record.job_id)
    if not record.held:
        cluster.note_test(record, cluster.possible(record))  # as it was when it was submitted
    cluster.reorder()
