"""What a simulated cluster is made of. Times and durations are integer seconds, memory is MiB,
power is watts.

Slurm's names are kept (`slurm.conf(5)`), with the unit added: ``bf_window_s`` is
SchedulerParameters' ``bf_window``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from enum import Enum

from slurm_sim.errors import InvalidCluster
from slurm_sim.ranges import (
    LAST_S,
    LONGEST_S,
    MOST,
    MOST_NODES,
    MOST_OF_PARTITION,
    MOST_WEIGHT,
    amount,
    whole,
)
from slurm_sim.seconds import DAY_S

YEAR_S = 365 * DAY_S
"""What Slurm plans for a job without a limit, and how long one may exceed its limit with
OverTimeLimit=UNLIMITED.
"""
ROOT = "root"
"""The account above all others."""

Ranges = Mapping[str, tuple[int, int]]
"""Fields that are whole numbers: from, to."""


def _ranges(least: int, most: int, names: str) -> Ranges:
    return dict.fromkeys(names.split(), (least, most))


_OF_PARAMS = {
    **_ranges(
        1,
        LONGEST_S,
        "sched_interval_s bf_interval_s bf_window_s bf_resolution_s bf_window_linear_s",
    ),
    **_ranges(1, LONGEST_S, "priority_max_age_s priority_calc_period_s"),
    **_ranges(
        0, LONGEST_S, "batch_sched_delay_s limit_check_s kill_wait_s requeue_delay_s min_job_age_s"
    ),
    **_ranges(
        0,
        LONGEST_S,
        "bf_min_age_reserve_s priority_decay_half_life_s bf_cycle_us sched_min_interval_s",
    ),
    **_ranges(
        1, MOST, "default_queue_depth partition_job_depth sched_max_job_start bf_node_space_size"
    ),
    **_ranges(
        1,
        MOST,
        "bf_max_job_test bf_max_job_user bf_max_job_part bf_max_job_user_part bf_max_job_assoc",
    ),
    **_ranges(
        1, MOST, "threads_per_core bf_max_job_start bf_max_job_array_resv bf_job_part_count_reserve"
    ),
    **_ranges(
        0, MOST_WEIGHT, "priority_weight_age priority_weight_job_size priority_weight_partition"
    ),
    **_ranges(0, MOST_WEIGHT, "priority_weight_qos priority_weight_fairshare bf_min_prio_reserve"),
    **_ranges(0, YEAR_S, "over_time_limit_s"),
    **_ranges(1, MOST, "default_memory_per_cpu_mib default_memory_per_node_mib"),
}
_OF_NODE = {
    **_ranges(1, MOST, "cpus"),
    **_ranges(0, MOST, "memory_mib gpus"),
    **_ranges(0, MOST_WEIGHT, "weight"),
}
_OF_PARTITION = {
    **_ranges(1, LONGEST_S, "max_time_s default_time_s"),
    **_ranges(0, YEAR_S, "over_time_limit_s"),
    **_ranges(1, MOST, "default_memory_per_cpu_mib default_memory_per_node_mib"),
    **_ranges(1, MOST, "min_nodes max_nodes"),
    **_ranges(0, MOST_OF_PARTITION, "priority_tier priority_job_factor"),
}
_OF_QOS = {
    **_ranges(0, MOST_WEIGHT, "priority"),
    **_ranges(
        0, MOST, "max_jobs_per_user max_submit_jobs_per_user max_nodes_per_user max_cpus_per_user"
    ),
    **_ranges(0, MOST, "max_gpus_per_user grp_jobs grp_nodes grp_cpus grp_gpus"),
    **_ranges(0, MOST, "max_jobs_per_account max_submit_jobs_per_account max_nodes_per_account"),
    **_ranges(0, MOST, "max_cpus_per_account max_gpus_per_account"),
    **_ranges(1, LONGEST_S, "max_wall_s"),
}
_BILLING = (
    "billing_weight_cpus",
    "billing_weight_memory",
    "billing_weight_nodes",
    "billing_weight_gpus",
)
_OF_ASSOCIATION = _ranges(0, MOST, "shares max_jobs grp_jobs grp_nodes grp_cpus grp_gpus")
_TIMES = _ranges(-LAST_S, LAST_S, "start_s end_s time_s")


def _check(where: str, item: object, ranges: Ranges) -> None:
    """Raises InvalidCluster. None is right where it is the default; numbers of numpy become
    Python's.
    """
    for known in fields(item):  # type: ignore[arg-type]
        value = getattr(item, known.name)
        if isinstance(known.default, bool) and not isinstance(value, bool):
            raise InvalidCluster(f"{where}.{known.name} is {value!r}; give True or False")
        if known.name not in ranges or (value is None and known.default is None):
            continue
        least, most = ranges[known.name]
        object.__setattr__(
            item, known.name, whole(f"{where}.{known.name}", value, least, most, InvalidCluster)
        )


def _check_amounts(where: str, item: object, names: Iterable[str], most: int) -> None:
    """Of fields that may have a fraction. Raises InvalidCluster."""
    for name in names:
        object.__setattr__(
            item, name, amount(f"{where}.{name}", getattr(item, name), most, InvalidCluster)
        )


WEIGHTS_OF_TRES = (
    "priority_weight_cpus",
    "priority_weight_memory",
    "priority_weight_nodes",
    "priority_weight_gpus",
)
"""PriorityWeightTRES, in the order in which slurmctld adds them up."""


class SelectType(str, Enum):
    """How nodes are given to jobs (SelectType)."""

    LINEAR = "select/linear"
    """Whole nodes."""
    CONS_TRES = "select/cons_tres"
    """CPUs, GPUs and, if `Params.memory_is_consumable`, memory; whole nodes to jobs and partitions
    that say so.
    """


class NodeAction(str, Enum):
    """What happens to a node (`scontrol update NodeName=... State=`)."""

    DOWN = "DOWN"
    """It fails: jobs on it are requeued, or end as NODE_FAIL."""
    DRAIN = "DRAIN"
    """It takes no new jobs; those on it run on."""
    RESUME = "RESUME"
    """It can be used again."""


@dataclass(frozen=True)
class Params:
    """The scheduler's parameters, with Slurm's defaults (22.05), but for the priority's weights."""

    select_type: SelectType = SelectType.LINEAR
    memory_is_consumable: bool = False
    """SelectTypeParameters=CR_*_Memory. Ignored by select/linear."""
    default_memory_per_cpu_mib: int | None = None
    """DefMemPerCPU, DefMemPerNode (one of them): what a job gets that names no memory; None: all of
    its nodes'.
    """
    default_memory_per_node_mib: int | None = None
    threads_per_core: int = 1
    """ThreadsPerCore, of all nodes: a job gets whole cores, its CPUs on each node rounded up to a
    multiple. Ignored by select/linear.
    """
    idle_threads_count: bool = True
    """Whether a job counts with all CPUs of its cores (SelectTypeParameters=CR_Core*) or with those
    that it asks for (CR_CPU*): in its limits, size and billing.
    """
    main: bool = True
    """Whether there are main passes; not with sched_interval=-1."""
    sched_interval_s: int = 60
    """Between main passes over the whole queue."""
    batch_sched_delay_s: int = 3
    """At least this long from any main pass to one that a submission or a job's end asked for."""
    sched_min_interval_s: int = 0
    """At least this long from any main pass to the next, whoever asks for it. Slurm has
    microseconds, by default 2.
    """
    default_queue_depth: int = 100
    """Jobs that such a pass looks at."""
    partition_job_depth: int | None = None
    """Jobs of one partition that a main pass looks at."""
    sched_max_job_start: int | None = None
    """Jobs that a main pass starts."""
    defer: bool = False
    """After a job that was killed, too, a main pass keeps to batch_sched_delay."""
    backfill: bool = True
    """SchedulerType=sched/backfill; otherwise sched/builtin."""
    bf_interval_s: int = 30
    bf_window_s: int = DAY_S
    bf_resolution_s: int = 60
    bf_window_linear_s: int | None = None
    """With select/cons_tres: what the time grows by within which running jobs end as one; None: it
    doubles.
    """
    bf_one_resv_per_job: bool = False
    """Backfill reserves nodes for a job in one of its partitions only, the first in which it
    expects it to start.
    """
    bf_busy_nodes: bool = False
    """With select/cons_tres: who is expected to start later is planned on nodes that have a job
    now, if possible.
    """
    bf_max_job_test: int = 500
    bf_max_job_user: int | None = None
    """Jobs of one user that a pass tests."""
    bf_max_job_part: int | None = None
    """Jobs of one partition that a pass tests."""
    bf_max_job_user_part: int | None = None
    """Jobs of one user in one partition that a pass tests."""
    bf_max_job_assoc: int | None = None
    """Jobs of one user in one account that a pass tests; then `bf_max_job_user` does not count."""
    bf_max_job_start: int | None = None
    """Jobs that a pass starts."""
    bf_job_part_count_reserve: int | None = None
    """Jobs of one partition for which a pass reserves nodes; those after them can only start now.
    """
    bf_min_age_reserve_s: int = 0
    """A job that has been eligible for less can only start now: a pass reserves no nodes for it,
    and in a main pass it does not stop its partition.
    """
    bf_min_prio_reserve: int = 0
    """The same for a job of a lower priority; with priority/multifactor only."""
    bf_max_job_array_resv: int = 20
    """Tasks of one array for which a pass reserves nodes."""
    bf_node_space_size: int | None = None
    """Steps in time of a pass's plan, merged ones too, after which it ends; None: as
    bf_max_job_test.
    """
    bf_cycle_us: int | None = None
    """How long a backfill pass takes (`sdiag(1)`, Mean cycle, in the same unit); the next comes
    bf_interval after its end, so over a day it shifts the passes by seconds. None:
    `typical_cycle_us`.
    """
    time_min_extends: bool = False
    """A job with --time-min that backfill starts has its nodes until they are kept for others, as
    with Slurm 26.05; otherwise for exactly its --time-min, as with 22.05 and 24.11.
    """
    priority_multifactor: bool = True
    """PriorityType=priority/multifactor; otherwise priority/basic: first come, first served."""
    priority_weight_age: int = 10000
    priority_max_age_s: int = 7 * DAY_S
    priority_weight_job_size: int = 1000
    priority_favor_small: bool = False
    priority_weight_partition: int = 0
    priority_weight_qos: int = 0
    priority_weight_fairshare: int = 0
    priority_weight_cpus: float = 0.0
    """PriorityWeightTRES=cpu=, mem=, node=, gres/gpu=: times what the job asks for of what its
    partition has.
    """
    priority_weight_memory: float = 0.0
    priority_weight_nodes: float = 0.0
    priority_weight_gpus: float = 0.0
    small_relative_to_time: bool = False
    """PriorityFlags=SMALL_RELATIVE_TO_TIME: the size factor is of CPUs by minutes of the job's
    limit.
    """
    no_normal_part: bool = False
    """PriorityFlags=NO_NORMAL_PART: PriorityJobFactor as it is, not relative to the largest; the
    next two are alike.
    """
    no_normal_qos: bool = False
    no_normal_tres: bool = False
    max_tres: bool = False
    """PriorityFlags=MAX_TRES: see `Partition.billing_weight_cpus`."""
    priority_decay_half_life_s: int = 7 * DAY_S
    """PriorityDecayHalfLife; 0: usage never decays."""
    priority_calc_period_s: int = 300
    accrue_always: bool = False
    """PriorityFlags=ACCRUE_ALWAYS: age counts from submission, also while a dependency keeps the
    job back.
    """
    incr_only: bool = False
    """PriorityFlags=INCR_ONLY: a recalculation does not lower the priority of a job in the queue.
    """
    limit_check_s: int = 30
    """slurmctld looks for jobs over their limit this often (a constant there), so a killed job runs
    its limit plus up to 29 s. 0: killed exactly at the limit.
    """
    over_time_limit_s: int = 0
    """OverTimeLimit: a job is killed so long after its limit; `YEAR_S`: UNLIMITED."""
    kill_wait_s: int = 30
    """KillWait; select/cons_tres plans with it, and OverTimeLimit, for jobs that are over their
    limit already.
    """
    min_job_age_s: int = 300
    """MinJobAge: after it slurmctld deletes the record of an ended job, which makes backfill look
    again. 0: never.
    """
    requeue_delay_s: int = 121
    """A requeued job gets this begin time: the credential's lifetime and a second."""

    def __post_init__(self) -> None:
        _check("Params", self, _OF_PARAMS)
        _one_default_memory("Params", self)
        _check_amounts("Params", self, WEIGHTS_OF_TRES, MOST_WEIGHT)
        object.__setattr__(
            self, "select_type", _member("Params.select_type", self.select_type, SelectType)
        )

    def cycle_us(self, queued: int, tested: int, running: int) -> int:
        """Microseconds that a pass takes that finds `queued` jobs and tests at most `tested`."""
        return (
            typical_cycle_us(queued, tested, running)
            if self.bf_cycle_us is None
            else self.bf_cycle_us
        )

    def of_cores(self, cpus: int) -> int:
        """CPUs of the fewest whole cores that have this many."""
        return -(-cpus // self.threads_per_core) * self.threads_per_core

    def counted_cpus(self, cpus: int) -> int:
        """CPUs with which a job counts that asks for this many on a node, and not for all of it."""
        return self.of_cores(cpus) if self.idle_threads_count else cpus

    @property
    def node_space_size(self) -> int:
        return self.bf_max_job_test if self.bf_node_space_size is None else self.bf_node_space_size


def typical_cycle_us(queued: int, tested: int, running: int) -> int:
    """About how many microseconds a backfill pass took on the machine of the recorded replays.

    A curve through block means, set by eye; single passes scatter widely, and the machine matters
    (`sdiag(1)`).
    """
    return tested * (9000 + 400 * running + 5 * tested * running) // 1000 + queued - tested


@dataclass(frozen=True)
class NodeSpec:
    """A compute node (NodeName line). CPUs, memory and GPUs only count under select/cons_tres."""

    name: str
    cpus: int = 1
    memory_mib: int = 1
    """RealMemory."""
    gpus: int = 0
    """Gres=gpu:N."""
    weight: int = 1
    """Nodes of a lower weight are used first."""
    features: tuple[str, ...] = ()
    idle_w: float = 0.0
    busy_w: float = 0.0
    """Power with at least one job on it."""

    def __post_init__(self) -> None:
        _check(f"node {self.name!r}", self, _OF_NODE)
        _check_amounts(f"node {self.name!r}", self, ("idle_w", "busy_w"), MOST)


def named_nodes(names: Iterable[str], **each: object) -> tuple[NodeSpec, ...]:
    """Equal nodes of these names; keywords go to each `NodeSpec`."""
    return tuple(NodeSpec(name, **each) for name in names)  # type: ignore[arg-type]


def make_nodes(count: int, prefix: str = "n", **each: object) -> tuple[NodeSpec, ...]:
    """Nodes ``n1``, ``n2``, ...; keywords go to each `NodeSpec`."""
    return named_nodes((f"{prefix}{number}" for number in range(1, count + 1)), **each)


@dataclass(frozen=True)
class Partition:
    """A set of nodes with rules (PartitionName line); partitions may share nodes."""

    name: str
    nodes: tuple[str, ...]
    max_time_s: int | None = None
    """MaxTime; None: UNLIMITED."""
    default_time_s: int | None = None
    """DefaultTime; None: MaxTime."""
    min_nodes: int = 1
    max_nodes: int | None = None
    priority_tier: int = 1
    """Jobs of a higher tier come first whatever their priority."""
    priority_job_factor: int = 1
    """Relative to the largest among all partitions, times `Params.priority_weight_partition`."""
    over_time_limit_s: int | None = None
    """OverTimeLimit; None: `Params.over_time_limit_s`."""
    default_memory_per_cpu_mib: int | None = None
    """DefMemPerCPU, DefMemPerNode (one of them); None: what `Params` say."""
    default_memory_per_node_mib: int | None = None
    billing_weight_cpus: float = 1.0
    """TRESBillingWeights, of what a job holds: what it is billed for each second, which becomes
    usage for fair share. By default that is its CPUs; with `Params.max_tres` the largest of these
    four, otherwise their sum.
    """
    billing_weight_memory: float = 0.0
    """For each MiB, if memory is consumable."""
    billing_weight_nodes: float = 0.0
    billing_weight_gpus: float = 0.0
    exclusive: bool = False
    """OverSubscribe=EXCLUSIVE: whole nodes, also under select/cons_tres."""
    qos: str | None = None
    """Partition QOS: its limits hold for every job here, before those of the job's own."""

    def __post_init__(self) -> None:
        _check(f"partition {self.name!r}", self, _OF_PARTITION)
        _one_default_memory(f"partition {self.name!r}", self)
        _check_amounts(f"partition {self.name!r}", self, _BILLING, MOST_WEIGHT)
        for name, limit in (("min_nodes", "max_nodes"), ("default_time_s", "max_time_s")):
            value, most = getattr(self, name), getattr(self, limit)
            if value is not None and most is not None and value > most:
                raise InvalidCluster(
                    f"partition {self.name!r}.{name} is {value}; give at most its {limit}, {most}"
                )


@dataclass(frozen=True)
class Qos:
    """A quality of service and its limits (`sacctmgr(1)`); None: no limit."""

    name: str
    priority: int = 0
    max_jobs_per_user: int | None = None
    """MaxJobsPU: running at once."""
    max_submit_jobs_per_user: int | None = None
    """MaxSubmitPU: pending and running. A submission above it is refused."""
    max_nodes_per_user: int | None = None
    """MaxTRESPU=node=, cpu=, gres/gpu=: held by running jobs of one user."""
    max_cpus_per_user: int | None = None
    max_gpus_per_user: int | None = None
    max_jobs_per_account: int | None = None
    """MaxJobsPA, MaxSubmitPA, MaxTRESPA: the same, of all users of an account, those of accounts
    below it apart.
    """
    max_submit_jobs_per_account: int | None = None
    max_nodes_per_account: int | None = None
    max_cpus_per_account: int | None = None
    max_gpus_per_account: int | None = None
    grp_jobs: int | None = None
    """GrpJobs: running at once in the whole QOS."""
    grp_nodes: int | None = None
    grp_cpus: int | None = None
    grp_gpus: int | None = None
    max_wall_s: int | None = None
    """MaxWall: a job's limit."""
    usage_factor: float = 1.0
    """UsageFactor: so often its jobs' usage counts for fair share."""

    def __post_init__(self) -> None:
        _check(f"qos {self.name!r}", self, _OF_QOS)
        _check_amounts(f"qos {self.name!r}", self, ("usage_factor",), MOST_WEIGHT)


@dataclass(frozen=True)
class Association:
    """An account, or a user in one, with its shares and limits (`sacctmgr(1)`).

    A user or account that is listed nowhere has one share: an account under root, a user in its
    job's account.
    """

    account: str
    user: str | None = None
    """None: this is the account itself."""
    parent: str = ROOT
    """The account above an account."""
    shares: int = 1
    """Fairshare (RawShares)."""
    max_jobs: int | None = None
    """MaxJobs: running at once; of an account: of each of its users that sets none. A QOS's limit
    goes before it.
    """
    grp_jobs: int | None = None
    """GrpJobs, GrpTRES=node=, cpu=, gres/gpu=: what it and all below it may run at once, or hold.
    Where a QOS of the job sets the same limit, that one alone counts.
    """
    grp_nodes: int | None = None
    grp_cpus: int | None = None
    grp_gpus: int | None = None

    def __post_init__(self) -> None:
        whose = "" if self.user is None else f", user {self.user!r}"
        _check(f"account {self.account!r}{whose}", self, _OF_ASSOCIATION)


@dataclass(frozen=True)
class Reservation:
    """Nodes set aside for some users for some time (`scontrol create reservation`); with no users:
    maintenance.
    """

    name: str
    start_s: int
    end_s: int
    nodes: tuple[str, ...]
    users: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _check(f"reservation {self.name!r}", self, _TIMES)
        if self.end_s <= self.start_s:
            raise InvalidCluster(
                f"reservation {self.name!r} ends at {self.end_s}, not after its start"
                f" {self.start_s}"
            )


@dataclass(frozen=True)
class NodeChange:
    """A node fails, is drained or comes back, at a known time."""

    time_s: int
    node: str
    action: NodeAction

    def __post_init__(self) -> None:
        where = f"change of node {self.node!r}"
        _check(where, self, _TIMES)
        object.__setattr__(self, "action", _member(f"{where}.action", self.action, NodeAction))


@dataclass(frozen=True)
class NodeOutage:
    """A time during which a node could not be used; ``end_s`` None: still."""

    node: str
    start_s: int
    end_s: int | None = None


@dataclass(frozen=True)
class ClusterConfig:
    """A cluster as its administrator describes it. Raises InvalidCluster where parts contradict
    each other.
    """

    nodes: tuple[NodeSpec, ...]
    partitions: tuple[Partition, ...]
    """The first is the default."""
    params: Params = field(default_factory=Params)
    qos: tuple[Qos, ...] = (Qos("normal"),)
    """The first is that of jobs that name none."""
    associations: tuple[Association, ...] = ()
    reservations: tuple[Reservation, ...] = ()
    node_changes: tuple[NodeChange, ...] = ()
    name: str = "cluster"
    scheduler_is_assumed: bool = field(default=False, repr=False)
    """``params`` were not read from a site: a job history does not show them
    (`slurm_sim.traces.guess`).
    """

    def __post_init__(self) -> None:
        if len(self.nodes) > MOST_NODES:
            raise InvalidCluster(f"{len(self.nodes):,} nodes; give at most {MOST_NODES:,}")
        names = _each_once("nodes", (node.name for node in self.nodes))
        _each_once("partitions", (partition.name for partition in self.partitions))
        qos = _each_once("qos", (item.name for item in self.qos))
        for partition in self.partitions:
            _known(
                f"nodes of partition {partition.name!r}",
                _each_once(partition.name, partition.nodes),
                names,
            )
            if partition.qos is not None:
                _known(f"qos of partition {partition.name!r}", {partition.qos}, qos)
        if self.params.select_type is SelectType.CONS_TRES:
            threads = self.params.threads_per_core
            if part := next((node for node in self.nodes if node.cpus % threads), None):
                raise InvalidCluster(
                    f"node {part.name!r}: cpus is {part.cpus}; give a multiple of threads_per_core,"
                    f" {threads}"
                )
        if self.reservations:
            _each_once("reservations", (item.name for item in self.reservations))
        if self.associations:
            whose = (
                f"account {item.account}" + (f", user {item.user}" if item.user else "")
                for item in self.associations
            )
            _each_once("associations", whose)
        for reservation in self.reservations:
            _known(f"nodes of reservation {reservation.name!r}", set(reservation.nodes), names)
        _known("node_changes", {change.node for change in self.node_changes}, names)

    @property
    def counts_memory(self) -> bool:
        return self.params.memory_is_consumable and self.params.select_type is not SelectType.LINEAR

    @property
    def has_default_memory(self) -> bool:
        """Whether jobs that name no memory get less than all of it, at least in some partition."""
        named = ("default_memory_per_cpu_mib", "default_memory_per_node_mib")
        return any(
            getattr(item, name) is not None
            for item in (self.params, *self.partitions)
            for name in named
        )

    def without_memory(self) -> ClusterConfig:
        """The same, for jobs of whose memory nothing is known: it is not counted."""
        return replace(self, params=replace(self.params, memory_is_consumable=False))


def whole_nodes(
    count: int, params: Params | None = None, max_time_s: int | None = None
) -> ClusterConfig:
    """A cluster of equal nodes in one partition, ``batch``."""
    nodes = make_nodes(count)
    partition = Partition("batch", tuple(node.name for node in nodes), max_time_s)
    return ClusterConfig(nodes, (partition,), params or Params())


def _member(where: str, value: object, kind: type[Enum]) -> Enum:
    """Also from its value in words: ``"DOWN"``."""
    try:
        return kind(value)
    except ValueError:
        known = " or ".join(str(member.value) for member in kind)
        raise InvalidCluster(f"{where} is {value!r}; give {known}") from None


def _one_default_memory(where: str, item: Params | Partition) -> None:
    if item.default_memory_per_cpu_mib is not None and item.default_memory_per_node_mib is not None:
        raise InvalidCluster(
            f"{where}: give default_memory_per_cpu_mib or default_memory_per_node_mib, not both"
        )


def _each_once(what: str, names: Iterable[str]) -> set[str]:
    listed = list(names)
    if not listed:
        raise InvalidCluster(f"{what}: give at least one")
    if twice := next((name for name, count in Counter(listed).items() if count > 1), None):
        raise InvalidCluster(f"{what}: {twice!r} is there more than once; give each of them once")
    return set(listed)


def _known(what: str, names: set[str], known: set[str]) -> None:
    if unknown := sorted(names - known):
        raise InvalidCluster(f"{what}: unknown: {', '.join(unknown)}")
