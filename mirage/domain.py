"""The records that every part of Mirage speaks in.

All are frozen. Units are in the names: ``*_s`` are integer seconds (points in time are Unix
seconds, UTC), sizes are nodes. Slurm's words are used for Slurm's things.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from functools import cached_property
from typing import Any, NamedTuple

from mirage.reasons import COMPETING, kind_of


class JobState(str, Enum):
    """Slurm's job states (`squeue(1)`, JOB STATE CODES); UNKNOWN for a state of a release that we
    don't know.
    """

    BOOT_FAIL = "BOOT_FAIL"
    CANCELLED = "CANCELLED"
    COMPLETED = "COMPLETED"
    COMPLETING = "COMPLETING"
    CONFIGURING = "CONFIGURING"
    DEADLINE = "DEADLINE"
    FAILED = "FAILED"
    NODE_FAIL = "NODE_FAIL"
    OUT_OF_MEMORY = "OUT_OF_MEMORY"
    PENDING = "PENDING"
    PREEMPTED = "PREEMPTED"
    REQUEUED = "REQUEUED"
    RESIZING = "RESIZING"
    REVOKED = "REVOKED"
    RUNNING = "RUNNING"
    SIGNALING = "SIGNALING"
    SPECIAL_EXIT = "SPECIAL_EXIT"
    STAGE_OUT = "STAGE_OUT"
    STOPPED = "STOPPED"
    SUSPENDED = "SUSPENDED"
    TIMEOUT = "TIMEOUT"
    UNKNOWN = "UNKNOWN"

    @property
    def has_nodes(self) -> bool:
        """True while the job holds its allocation."""
        return self in _HAS_NODES

    @property
    def is_over(self) -> bool:
        """True once the job has ended for good (a requeued job is PENDING again, not over)."""
        return self in _OVER


_HAS_NODES = frozenset(
    {
        JobState.COMPLETING,
        JobState.CONFIGURING,
        JobState.RESIZING,
        JobState.RUNNING,
        JobState.SIGNALING,
        JobState.STAGE_OUT,
        JobState.STOPPED,
        JobState.SUSPENDED,
    }
)
_OVER = frozenset(
    {
        JobState.BOOT_FAIL,
        JobState.CANCELLED,
        JobState.COMPLETED,
        JobState.DEADLINE,
        JobState.FAILED,
        JobState.NODE_FAIL,
        JobState.OUT_OF_MEMORY,
        JobState.PREEMPTED,
        JobState.REVOKED,
        JobState.TIMEOUT,
    }
)


_WAITING = frozenset({JobState.PENDING, JobState.REQUEUED, JobState.SPECIAL_EXIT})
_HELD_BY_OWNER = frozenset({"JobHeldUser", "job requeued in held state"})
"""The second is what 22.05 to 26.05 say after `scontrol requeuehold`."""


MAX_NAME = 80
"""Characters of a job's name that are kept; Slurm takes 1024."""

USED_UP_EXIT = 75
"""Exit code of a last link's job that left at its own signal without a sign that the work is done
(EX_TEMPFAIL of sysexits.h): so Slurm's records say it to everybody.
"""

SIGNAL_SLACK_S = 60
"""sbatch(1), --signal: "the signal may be sent up to 60 seconds earlier than specified"."""


def expected_limit_s(time_limit_s: int | None, lead_s: int) -> int | None:
    """For how long a job is expected to run: its time limit, or until its own signal may come.
    None: no limit.

    ``lead_s``: how long before the limit Slurm sends the signal (`sbatch --signal`); 0: it sends
    none.
    """
    if time_limit_s is None or not lead_s:
        return time_limit_s
    return max(0, time_limit_s - lead_s - SIGNAL_SLACK_S)


def queues_for_nodes(reason: str) -> bool:
    """Whether a pending job with this reason competes for nodes, rather than being kept back by a
    rule.
    """
    return kind_of(reason) in COMPETING


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """One job (or one array task), as the queue or the accounting records show it."""

    job_id: int
    user: str
    partition: str
    """Partition; while pending it may be a comma-separated list."""
    state: JobState
    nodes: int
    submit_s: int
    time_limit_s: int | None = None
    """None: UNLIMITED."""
    reason: str = ""
    """Slurm's reason of a pending job; accounting records have none."""
    eligible_s: int | None = None
    """When it began to compete; None while a dependency, hold or begin time keeps it back."""
    begin_s: int | None = None
    """The begin time that its owner gave it (`sbatch --begin`), while that is still to come."""
    start_s: int | None = None
    """When it started; None while pending."""
    planned_s: int | None = field(default=None, compare=False)
    """When Slurm plans to start a pending job (squeue's StartTime, by backfill); None: no plan yet."""
    end_s: int | None = None
    """When it ended; None while it has not."""
    dependency: str = ""
    """As Slurm prints it, `afterany:123(unfulfilled)`; empty: none."""
    priority: int = 0
    gpus: int = 0
    """GPUs of the whole job."""
    cpus: int = 0
    memory_mib: int = 0
    """Of the whole job; 0 where Slurm does not say."""
    exit_code: int = 0
    comment: str = ""
    """The owner's comment; Mirage's tag stands here (`mirage.chain.tag`)."""
    name: str = ""
    """The owner's, of printable characters, `MAX_NAME` at most; accounting records have none."""
    node_names: tuple[str, ...] = ()
    """Which nodes it has; from accounting, also those it had. Empty where that is not known."""
    account: str = ""
    """Which pays for it; empty where that is not known (accounting records, sites without
    accounts).
    """
    array_task: str = ""
    """Index in its job array; empty: no array. Tasks that Slurm has not split off yet all have the
    array's job id.
    """
    has_zero_priority: bool = False
    """Slurm shows it with priority 0: it is held, whatever its reason says."""
    lead_s: int = 0
    """Of a link: how long before its time limit Slurm signals it to leave, as its chain's tag says;
    0: it does not.
    """
    time_min_s: int = 0
    """Of a pending link: to how long backfill may shorten its time limit (`sbatch --time-min`), as
    its tag says; 0: it may not. A link that runs has the limit it got.
    """
    usual_run_s: int | None = None
    """Of a link: how long its chain's earlier links ran by themselves (`RunLaw.median_s`), where
    that is shorter than its limit; None: not known, or not shorter.
    """

    @property
    def is_pending(self) -> bool:
        return self.state in _WAITING

    @property
    def is_queueing(self) -> bool:
        """Pending and competing for nodes."""
        return self.is_pending and not self.has_zero_priority and queues_for_nodes(self.reason)

    @property
    def is_held(self) -> bool:
        """Pending, and its owner or an operator holds it for the owner: `scontrol release` is the
        owner's to run.
        """
        return self.is_pending and self.reason in _HELD_BY_OWNER

    @property
    def wait_s(self) -> int | None:
        """Start - Eligible: the wait that Slurm's scheduler caused. None before the start."""
        if self.start_s is None or self.eligible_s is None:
            return None
        return max(0, self.start_s - self.eligible_s)

    @property
    def limit_end_s(self) -> int | None:
        """When its time limit ends it; None if it is not running or has no limit."""
        if self.start_s is None or self.time_limit_s is None:
            return None
        return self.start_s + self.time_limit_s

    @property
    def expected_limit_s(self) -> int | None:
        """For how long it is expected to run: by its limit, its signal (`expected_limit_s`) and
        what its chain's earlier links did. None: no limit.
        """
        limit_s = expected_limit_s(self.time_limit_s, self.lead_s)
        if limit_s is None or self.usual_run_s is None:
            return limit_s
        return min(limit_s, self.usual_run_s)

    @property
    def expected_end_s(self) -> int | None:
        """When it is expected to end, at which policies aim; None if it is not running or has no
        limit.
        """
        limit_s = self.expected_limit_s
        return None if self.start_s is None or limit_s is None else self.start_s + limit_s


@dataclass(frozen=True, slots=True, kw_only=True)
class Oddity:
    """A field of a job that users control, with a value that Mirage can't use as Slurm prints it."""

    job_id: int
    user: str
    field: str
    """Slurm's name of it."""
    text: str
    """What Slurm prints there, cut to some 80 characters."""
    is_set_apart: bool
    """True: the job can't be read and is left out. False: the number is replaced by the largest
    that can be meant.
    """

    def __str__(self) -> str:
        what = (
            "is left out"
            if self.is_set_apart
            else "is read with the largest number that can be meant"
        )
        return f"job {self.job_id} of {self.user} {what}: its {self.field} is {self.text}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterNode:
    """One node. ``up``: Slurm can use it (not down, drained, failing, in maintenance). ``idle``: up
    and empty.
    """

    name: str
    partitions: tuple[str, ...]
    up: bool
    idle: bool
    state: str = ""


@dataclass(frozen=True, slots=True)
class NodeEvent:
    """A time during which a node was down or drained (`sacctmgr show event`). ``end_s`` None:
    still.
    """

    node: str
    start_s: int
    end_s: int | None


@dataclass(frozen=True, kw_only=True)
class Snapshot:
    """The cluster at one instant: every job in the queue and every node, read together once a
    cycle.
    """

    at_s: int
    jobs: tuple[Job, ...]
    nodes: tuple[ClusterNode, ...]
    oddities: tuple[Oddity, ...] = ()
    """Jobs that are left out, or that ask for more than can be meant."""

    @cached_property
    def memo(self) -> dict[type, Any]:
        """What was worked out from this snapshot, by its class, so that no chain does it again."""
        return {}

    @cached_property
    def present(self) -> frozenset[int]:
        """The ids of all jobs in the queue, also of those that can't be read."""
        return frozenset(self.by_id) | {oddity.job_id for oddity in self.oddities}

    @cached_property
    def by_id(self) -> Mapping[int, Job]:
        return {job.job_id: job for job in self.jobs}

    @cached_property
    def pools(self) -> Mapping[str, str]:
        """Partition -> pool. Partitions that share a node compete: they are one pool, named after
        its first member.
        """
        pool: dict[str, str] = {}
        for node in self.nodes:
            for partition in node.partitions:
                pool.setdefault(partition, partition)
            roots = sorted({_root(pool, p) for p in node.partitions})
            for root in roots[1:]:
                pool[root] = roots[0]
        return {partition: _root(pool, partition) for partition in pool}

    @cached_property
    def sharing(self) -> Mapping[str, frozenset[str]]:
        """Partition -> the partitions that share a node with it, itself included."""
        found: dict[str, set[str]] = {}
        for node in self.nodes:
            for partition in node.partitions:
                found.setdefault(partition, set()).update(node.partitions)
        return {partition: frozenset(others) for partition, others in found.items()}

    def pool_of(self, partition: str) -> str:
        """The pool of a job's partition (the first one, if it asks for several)."""
        first = partition.split(",", 1)[0]
        return self.pools.get(first, first)


def _root(pool: Mapping[str, str], partition: str) -> str:
    while pool[partition] != partition:
        partition = pool[partition]
    return partition


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """What of the site's configuration changes Mirage's behaviour (`scontrol show config`)."""

    version: str
    cluster: str = ""
    accrue_always: bool = False
    """PriorityFlags=ACCRUE_ALWAYS: a dependent job's age counts from its submission."""
    parameters: Mapping[str, str] = field(default_factory=dict)
    """Everything `scontrol show config` printed."""


class Mode(str, Enum):
    """How the successor takes over: `train` (checkpoint, end, resume) or `service` (healthy, then
    stop the old one).
    """

    TRAIN = "train"
    SERVICE = "service"


HANDOVER_S = 600
"""What a handover costs a training chain until that is known: saving, ending, starting again."""


UPTIME = 0.999
"""The share of the time that a service is to be up where its owner names none."""


def assumed_handover_s(limit_s: int | None) -> int:
    """What a handover is taken to cost until that is known: at most a tenth of a link of this limit."""
    return HANDOVER_S if limit_s is None else min(HANDOVER_S, limit_s // 10)


@dataclass(frozen=True, slots=True)
class Penalties:
    """The user's coefficients of the paper's reward (section 4.5): cost of a second of
    interruption, of overlap.
    """

    interruption: float = 1.0
    overlap: float = 1.0


def wanted_uptime(mode: Mode, penalties: Penalties, named: float | None) -> float | None:
    """A service's target, a share, of which its owner may have ``named`` one. None: a training
    chain, or a service whose owner weighs by penalties.
    """
    if mode is Mode.TRAIN or penalties != Penalties():
        return None
    return UPTIME if named is None else named


@dataclass(frozen=True, slots=True)
class RunLaw:
    """A distribution of a link's run time, with finitely many values."""

    runs_s: tuple[int, ...]
    """Ascending; the last is the link's limit, less the lead of its signal."""
    shares: tuple[float, ...]
    """Of each; they add up to 1."""
    early: int = 0
    """Earlier links of the chain that ended by themselves before that."""

    def after(self, age_s: int) -> RunLaw:
        """Of a link that has run for so long: what is shorter is out of the question."""
        left = [pair for pair in zip(self.runs_s, self.shares, strict=True) if pair[0] > age_s]
        whole = sum(share for _, share in left)
        if whole <= 0:
            return RunLaw(self.runs_s[-1:], (1.0,), self.early)
        runs_s = tuple(run_s for run_s, _ in left)
        return RunLaw(runs_s, tuple(share / whole for _, share in left), self.early)

    @property
    def median_s(self) -> int:
        """The shortest run that at least half of the links do not exceed."""
        below = 0.0
        for run_s, share in zip(self.runs_s, self.shares, strict=True):
            below += share
            if below >= 0.5 - 1e-9:
                return run_s
        return self.runs_s[-1]


class ChainState(str, Enum):
    ACTIVE = "active"
    PAUSED = "paused"
    """Its owner holds its next link in the queue (`mirage pause`)."""
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"
    USED_UP = "used-up"
    """All its links have run and Slurm ended the last one, so the work may be unfinished."""
    UNKNOWN = "unknown"
    """Its jobs are gone, and there is no accounting that could say how they ended."""

    @property
    def is_over(self) -> bool:
        return self not in (ChainState.ACTIVE, ChainState.PAUSED)

    @property
    def is_bad(self) -> bool:
        """It ended, and not as its owner wanted."""
        return self in (ChainState.FAILED, ChainState.USED_UP, ChainState.UNKNOWN)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chain:
    """Consecutive jobs of one user that do one piece of work. Identified by (user, chain_id)."""

    chain_id: str
    user: str
    segments: int
    """How many links it has at most."""
    length: str = ""
    """What its links may use in all (`mirage.chain.length`)."""
    mode: Mode = Mode.TRAIN
    penalties: Penalties = Penalties()
    state: ChainState = ChainState.ACTIVE
    reason: str = ""
    """Why it is over."""
    created_s: int = 0
    updated_s: int = 0
    name: str = ""
    """What its jobs are called in Slurm; empty: no cycle saw one in the queue."""
    uptime: float | None = None
    """The share of the time that a service is to be up; None: its owner did not say."""
    handover_s: int | None = None
    """What a handover costs, or of a service its start-up, as its jobs say; None: not known."""
    service: str | None = None
    """The service of several replicas that it is one of; None: it is none of several."""
    replica: int | None = None
    """Which one, from 1."""

    @property
    def start_up_s(self) -> int | None:
        """Of a service: from a link's start until it is ready, 0 where that is not known. None: a
        training chain.
        """
        return (self.handover_s or 0) if self.mode is Mode.SERVICE else None


class Run(NamedTuple):
    """One time that a link's job ran, after which Slurm requeued it. Fields as a link's; the store
    has them in this order.
    """

    submit_s: int
    eligible_s: int | None
    start_s: int
    end_s: int
    state: JobState
    """As accounting has it: REQUEUED, PREEMPTED, NODE_FAIL."""
    exit_code: int = 0
    ready_s: int | None = None
    down_s: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Link:
    """One job of a chain, as last seen. Of a job that Slurm has requeued: its last run that counts
    (`chain/runs.py`); `runs` has those before.
    """

    chain_id: str
    user: str
    segment: int
    """1-based."""
    job_id: int
    predecessor_id: int | None
    state: JobState
    partition: str
    nodes: int
    time_limit_s: int | None
    submit_s: int
    eligible_s: int | None = None
    start_s: int | None = None
    end_s: int | None = None
    ready_s: int | None = None
    """When this run of a service became ready, by its own word; 0: not yet, or never. None: it does
    not tell (and so do all others).
    """
    down_s: int = 0
    """For how long since then this run did not serve: its server died, and was started again."""
    exit_code: int = 0
    released_s: int | None = None
    """When this service let it into the queue; None: it did not."""
    lead_s: int = 0
    """How long before its time limit Slurm signals it to leave; 0: it does not."""
    reason: str = ""
    """Slurm's reason while it is pending (`squeue(1)`, JOB REASON CODES); empty: none given, or not
    known.
    """
    dependency: str = ""
    """As Slurm prints it, while it is pending; empty: none, or not known."""
    begin_s: int | None = None
    """The begin time that its owner gave it, while that is still to come."""
    was_held: bool = False
    """Its owner was seen to hold it in the queue (`mirage pause`), so that it could not start before
    ``eligible_s``.
    """
    runs: tuple[Run, ...] = ()
    """Earlier runs, oldest first."""

    @property
    def each_run(self) -> list[Link]:
        """All runs, oldest first, each as a link of its own; the last may not have begun."""
        if not self.runs:
            return [self]
        runs = [replace(self, runs=(), **run._asdict()) for run in self.runs]
        runs.append(replace(self, runs=()))
        return [runs[0], *(replace(run, released_s=None) for run in runs[1:])]

    @property
    def has_started(self) -> bool:
        return self.start_s is not None or bool(self.runs)

    @property
    def is_over(self) -> bool:
        """True once it has ended for good. Its job may still wait in the queue: it was requeued
        after a later link had taken over.
        """
        return self.state.is_over or (self.state is JobState.REQUEUED and self.end_s is not None)

    @property
    def is_waiting(self) -> bool:
        """It is to start, or to start again."""
        return self.state in _WAITING and not self.is_over

    @property
    def expected_end_s(self) -> int | None:
        """When it is or was expected to end, by its limit or its signal; None: not started, or no
        limit.
        """
        limit_s = expected_limit_s(self.time_limit_s, self.lead_s)
        return None if self.start_s is None or limit_s is None else self.start_s + limit_s


class ActingMode(str, Enum):
    """What a service may do with its decisions (docs/service.md)."""

    OBSERVE = "observe"
    """Decides and writes down."""
    ADVISE = "advise"
    """Tells the chain's owner too, in `mirage status`."""
    ENFORCE = "enforce"
    """Carries them out."""


class Action(str, Enum):
    WAIT = "wait"
    RELEASE = "release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a policy said about one pair at one instant, and on what grounds."""

    at_s: int
    chain_id: str
    user: str
    predecessor_id: int
    successor_id: int
    policy: str
    action: Action
    reason: str
    """One sentence for people."""
    inputs_hash: str
    """SHA-256 of everything the policy was given."""
    remaining_s: int | None = None
    """Until the predecessor's expected end, by its limit or its signal; None: it has not started,
    or has no limit.
    """
    wait_p10_s: float | None = None
    wait_p50_s: float | None = None
    wait_p90_s: float | None = None
    expected_interruption_s: float | None = None
    """Of releasing now."""
    expected_overlap_s: float | None = None
    gain: float | None = None
    """Of releasing now over waiting, as the policy's model says at this moment alone, in its own
    unit; for models that decide by the mean of several.
    """


class ReleaseOutcome(str, Enum):
    """How a release ended."""

    RELEASED = "released"
    ALREADY = "already released"
    NOT_DONE = "not done"
    """The job was not as expected any more, so nothing was done to it."""
    REFUSED = "refused"
    """Slurm said no."""
    UNKNOWN = "unknown"
    """Slurm could not be asked; looked at again in the next cycle."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Intent:
    """Written before Mirage acts, closed with an outcome after. One without an outcome was cut
    short by a crash.
    """

    intent_id: int
    decision: Decision
    created_s: int
    outcome: ReleaseOutcome | None = None
    detail: str = ""
    finished_s: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitSample:
    """A job that started: what it asked for and how long it waited (Start - Eligible)."""

    job_id: int
    partition: str
    nodes: int
    time_limit_s: int | None
    start_s: int
    wait_s: int
