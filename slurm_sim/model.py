"""What a simulated cluster is made of: parameters, partitions, jobs. Times and durations are integer seconds.

Slurm's names are kept (`slurm.conf(5)`), with the unit added: ``bf_window_s`` is SchedulerParameters' ``bf_window``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from slurm_sim.dependency import Dependencies
from slurm_sim.errors import InvalidCluster


class State(str, Enum):
    """A job's state, in Slurm's words (`squeue(1)`, JOB STATE CODES)."""

    PENDING = "PENDING"
    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    TIMEOUT = "TIMEOUT"
    CANCELLED = "CANCELLED"
    NODE_FAIL = "NODE_FAIL"
    REQUEUED = "REQUEUED"
    """Only in `Simulator.cut_short()`: this run ended, the job is pending again."""

    @property
    def is_over(self) -> bool:
        return self not in (State.PENDING, State.RUNNING)


@dataclass(frozen=True)
class Params:
    """The scheduler's parameters, with Slurm's defaults (22.05)."""

    sched_interval_s: int = 60
    """Between main passes over the whole queue."""
    batch_sched_delay_s: int = 3
    """At least this long from any main pass to one that a submission or a job's end asked for."""
    default_queue_depth: int = 100
    """Jobs that such a pass looks at."""
    bf_interval_s: int = 30
    bf_window_s: int = 86400
    bf_resolution_s: int = 60
    bf_max_job_test: int = 500
    bf_cycle_us: int = 0
    """How long a backfill pass takes (`sdiag(1)`, Mean cycle, in the same unit); the next comes bf_interval after its
    end, so over a day it shifts the passes by seconds."""
    priority_weight_age: int = 10000
    priority_max_age_s: int = 7 * 86400
    priority_weight_job_size: int = 1000
    priority_favor_small: bool = False
    priority_weight_partition: int = 0
    priority_calc_period_s: int = 300
    accrue_always: bool = False
    """PriorityFlags=ACCRUE_ALWAYS: age counts from submission, also while a dependency keeps the job back."""
    max_jobs_per_user: int | None = None
    """MaxJobsPerUser of the QOS: how many jobs a user may have running."""
    limit_check_s: int = 30
    """slurmctld looks for jobs over their limit this often (a constant there), so a killed job runs its limit plus up
    to 29 s. 0: killed exactly at the limit."""
    requeue_delay_s: int = 121
    """A requeued job gets this begin time: the credential's lifetime and a second."""

    def __post_init__(self) -> None:
        positive = ("sched_interval_s", "bf_interval_s", "bf_window_s", "bf_resolution_s", "bf_max_job_test")
        for name in (*positive, "priority_max_age_s", "priority_calc_period_s", "default_queue_depth"):
            if getattr(self, name) < 1:
                raise InvalidCluster(f"Params.{name} is {getattr(self, name)}; give at least 1")
        for name in ("batch_sched_delay_s", "bf_cycle_us", "limit_check_s", "requeue_delay_s"):
            if getattr(self, name) < 0:
                raise InvalidCluster(f"Params.{name} is {getattr(self, name)}; give 0 or more")
        if self.max_jobs_per_user is not None and self.max_jobs_per_user < 1:
            raise InvalidCluster(f"Params.max_jobs_per_user is {self.max_jobs_per_user}; give at least 1, or None")


@dataclass(frozen=True)
class Partition:
    """A set of nodes with rules; partitions may share nodes."""

    name: str
    nodes: tuple[str, ...]
    max_time_s: int | None = None
    """MaxTime; None: UNLIMITED."""
    priority_tier: int = 1
    """Jobs of a higher tier come first whatever their priority."""
    priority_job_factor: int = 1
    """Relative to the largest among all partitions, times `Params.priority_weight_partition`."""


@dataclass(frozen=True)
class JobSpec:
    """What a user asks for, and how the job will behave."""

    nodes: int
    time_limit_s: int | None = None
    """None: the partition's MaxTime."""
    runtime_s: int | None = None
    """After which it ends by itself; None: only its limit, or a call, ends it."""
    user: str = "user"
    partition: str | None = None
    """None: the cluster's first partition."""
    submit_s: int | None = None
    """None: now."""
    job_id: int | None = None
    """None: the next free one."""
    dependency: str = ""
    """As for `sbatch --dependency`: ``afterany:1:2,afterok:3``."""
    begin_s: int | None = None
    """Not before this time."""
    held: bool = False
    requeue: bool = True
    """Whether a node failure requeues it; otherwise it ends as NODE_FAIL."""
    exit_code: int = 0
    """What it returns if it ends by itself; not 0: FAILED."""
    comment: str = ""


@dataclass(slots=True)
class JobRecord:
    """A job as slurmctld shows it. The simulator hands out copies: changing one changes nothing."""

    job_id: int
    spec: JobSpec
    partition: str
    time_limit_s: int | None
    submit_s: int
    dependencies: Dependencies
    """What it still waits for; empty once fulfilled or dropped."""
    begin_s: int | None = None
    held: bool = False
    state: State = State.PENDING
    reason: str = "None"
    """Why it is pending, in Slurm's words."""
    priority: int = 0
    eligible_s: int | None = None
    """Since when it competes for nodes; None while a dependency, a hold or a begin time keeps it back."""
    start_s: int | None = None
    end_s: int | None = None
    allocated: int = 0
    """The nodes it has, or had, as bits."""
    node_names: tuple[str, ...] = ()
    scheduler: str = ""
    """Which pass started it: main or backfill."""
    restarts: int = 0

    @property
    def nodes(self) -> int:
        return self.spec.nodes

    @property
    def user(self) -> str:
        return self.spec.user

    @property
    def dependency(self) -> str:
        """As squeue prints it: ``afterany:17(unfulfilled)``."""
        return str(self.dependencies)

    @property
    def exit_code(self) -> int:
        return self.spec.exit_code if self.state in (State.COMPLETED, State.FAILED) else 0

    @property
    def limit_end_s(self) -> int | None:
        """When its limit is reached; None: not started, or no limit."""
        if self.start_s is None or self.time_limit_s is None:
            return None
        return self.start_s + self.time_limit_s


@dataclass(frozen=True, slots=True)
class NodeOutage:
    """A time during which a node was down; ``end_s`` None: still."""

    node: str
    start_s: int
    end_s: int | None = None
