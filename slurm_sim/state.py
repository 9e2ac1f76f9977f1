"""A simulation that begins in the middle: jobs that run already, jobs that have waited for a while.

What a cluster tells of itself (`squeue`, `sinfo`) is enough for this, but for what slurmctld keeps
to itself: the phases of its timers (`Timers`; without them, all periods begin now), users' past
usage (all users begin with none, so fair-share factors are equal), and of jobs that are over,
whether they were successful.

The records are for `Simulator.from_state`, of either engine.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from slurm_sim.admission import Admission
from slurm_sim.dependency import check_not_itself
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import LIMITED, JobSpec
from slurm_sim.ranges import LAST_S, check_kind, listed, whole

REASONS = (
    "None",
    "Resources",
    "Priority",
    "Reservation",
    "ReqNodeNotAvail",
    "Dependency",
    "DependencyNeverSatisfied",
    "BeginTime",
    "JobHeldUser",
    "JobArrayTaskLimit",
    "QOSGrpJobsLimit",
    "QOSMaxJobsPerUserLimit",
    "QOSGrpCpuLimit",
    "QOSGrpNodeLimit",
    "QOSGrpGRES",
    "QOSMaxCpuPerUserLimit",
    "QOSMaxNodePerUserLimit",
    "QOSMaxGRESPerUser",
    "AssocMaxJobsLimit",
    "AssocGrpJobsLimit",
    "AssocGrpCpuLimit",
    "AssocGrpNodeLimit",
    "AssocGrpGRES",
    "QOSMaxSubmitJobPerUserLimit",
    "MaxJobsPerAccount",
    "MaxCpuPerAccount",
    "MaxNodePerAccount",
    "MaxGRESPerAccount",
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


@dataclass(kw_only=True)
class Timers:
    """What the times of slurmctld's passes depend on, but for when it forgets jobs that are over. Only
    a simulation can tell them: `Simulator.timers`.
    """

    start_s: int
    """When the periods begin."""
    last_main_s: int
    """When a main pass was last due."""
    last_full_s: int
    """When a main pass over the whole queue was last due."""
    last_pass_s: int
    """When a main pass last ran: later than it was due, if sched_min_interval put it off."""
    put_off_s: int | None = None
    """When a main pass runs that sched_min_interval puts off."""
    put_off_full: bool = False
    """Whether that pass is one over the whole queue."""
    last_backfill_us: int
    """When the last backfill pass ended."""
    main_due_s: int | None = None
    """When a main pass over the head of the queue is due."""
    backfill_due_s: int | None = None
    main_wanted: bool = False
    """Whether the next main pass over the whole queue may find something to do."""
    review_wanted: bool = False
    """Whether the next pass looks again at what keeps jobs back."""
    planned: bool = False
    """Whether nodes are PLANNED; the next backfill pass takes that back, which makes it run once
    more.
    """


@dataclass(frozen=True, kw_only=True)
class InitialState:
    """What `Simulator.from_state` is given, apart from the cluster and later submissions."""

    now_s: int
    items: tuple[RunningJob | PendingJob, ...]
    """In the order in which they come into the simulation: by id."""
    down: tuple[str, ...]
    timers: Timers | None

    @classmethod
    def of(
        cls,
        now_s: int,
        running: Iterable[RunningJob],
        pending: Iterable[PendingJob],
        down: Iterable[str],
        timers: Timers | None,
    ) -> InitialState:
        """Raises SimulationError for values of other types."""
        now_s = whole("now_s", now_s, 0, LAST_S, SimulationError)
        if timers is not None:
            check_kind("timers", timers, Timers, SimulationError)
        items: list[RunningJob | PendingJob] = [
            *listed("running", running, RunningJob, SimulationError),
            *listed("pending", pending, PendingJob, SimulationError),
        ]
        for item in items:
            check_kind("spec", item.spec, JobSpec, SimulationError)
        items.sort(key=lambda item: item.spec.job_id or 0)
        names = dict.fromkeys(listed("down", down, str, SimulationError))
        return cls(now_s=now_s, items=tuple(items), down=tuple(names), timers=timers)

    @property
    def start_s(self) -> int:
        """When the periods of the timers begin."""
        return self.now_s if self.timers is None else self.timers.start_s

    def check(self, admission: Admission) -> None:
        """Raises SimulationError for jobs that can't be in a state at this time, or name what the
        cluster does not have.
        """
        if self.now_s < self.start_s:
            raise SimulationError(
                f"now_s is {self.now_s}, before the start of the timers' periods, {self.start_s}"
            )
        seen = set[int]()
        for item in self.items:
            job_id = item.spec.job_id
            if job_id is None or job_id in seen:
                raise SimulationError(
                    f"job_id {job_id}: each job of a state needs an id of its own"
                )
            seen.add(job_id)
            admission.partition_of(item.spec)
            admission.qos_of(item.spec.qos)
            admission.reservation_of(item.spec)
            _check_times(item, self.now_s)
            if isinstance(item, PendingJob):
                check_not_itself(job_id, item.spec.dependency)
                _check_eligible(item, self.now_s)
            else:
                _check_nodes(item)


def _check_times(item: RunningJob | PendingJob, now_s: int) -> None:
    job_id = item.spec.job_id
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


def _check_nodes(item: RunningJob) -> None:
    job_id = item.spec.job_id
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
