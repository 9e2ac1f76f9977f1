"""A live cluster's snapshot -> a simulator in the same state, to look ahead from it.

What a snapshot does not tell has to be given, or is assumed: see `simulator_from` and
docs/environments.md.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from mirage.domain import Job, JobState, Snapshot
from mirage.errors import InputError
from mirage.slurm.limits import LIMITS, ReachedLimits
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, SelectType
from slurm_sim.dependency import parse_dependency
from slurm_sim.errors import InvalidJob, SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.state import PendingJob, RunningJob, Timers

_DONE = frozenset({JobState.COMPLETING, JobState.STAGE_OUT})
"""Their work is over: their nodes come free at once."""
_MARK = re.compile(r"\(\w+\)")


@dataclass(frozen=True, kw_only=True)
class Known:
    """What is known beyond the snapshot, by job id. Whatever is left out is assumed as said."""

    runtimes: Mapping[int, int] = field(default_factory=dict)
    """Seconds from start to end, for running and for pending jobs; otherwise a job runs until its
    expected end.
    """
    node_names: Mapping[int, Sequence[str]] = field(default_factory=dict)
    """Of running jobs, where the snapshot has none; otherwise any nodes of its partition in use."""
    begins_s: Mapping[int, int] = field(default_factory=dict)
    """Begin times of jobs that are not eligible yet; otherwise those that wait for one stay in the
    queue.
    """
    specs: Mapping[int, JobSpec] = field(default_factory=dict)
    """QOS, account, `--exclusive` and the like, which only matter with limits, fair-share and
    shared nodes; otherwise a job has the snapshot's nodes, GPUs, CPUs and memory, the same on each
    node, and else the defaults of `JobSpec`.
    """
    priorities: bool = True
    """Whether competing jobs keep the priority that Slurm gave them: right for their order among
    each other, however Slurm came by it, but they age no more. If not, the simulator computes it.
    """
    timers: Timers | None = None
    """Of slurmctld's passes; otherwise all periods begin now. Only a simulated cluster can tell."""


def simulator_from(
    snapshot: Snapshot, cluster: ClusterConfig, known: Known | None = None
) -> Simulator:
    """A simulator at `snapshot.at_s`: running jobs with their true starts and limits, pending ones
    with their times.

    A snapshot tells which nodes are up. What the cluster's timetable (`node_changes`) says of later
    nobody knows, so it is forgotten; reservations stay, as a site announces them.

    Held jobs stay so; those that wait for a limit come in as the jobs that reach it end
    (`mirage.slurm.limits`); a dependency on a job of the snapshot is fulfilled by its end. Array
    tasks that Slurm has not split off yet share an id: all but the first get new ones. Raises
    InputError if jobs or nodes do not belong to this cluster.
    """
    known = known or Known()
    if cluster.node_changes:
        cluster = replace(cluster, node_changes=())
    names = {node.name for node in cluster.nodes}
    if strange := sorted(node.name for node in snapshot.nodes if node.name not in names):
        raise InputError(
            f"The cluster's configuration has no node {strange[0]!r}; give that of the cluster it"
            " is in."
        )
    try:
        return _simulator(snapshot, cluster, known)
    except SimulationError:
        # Some sites let jobs share CPUs and memory (OverSubscribe), which the simulator does not:
        # there nodes and GPUs alone are counted.
        crowded = replace(snapshot, jobs=tuple(replace(job, cpus=0) for job in snapshot.jobs))
    try:
        return _simulator(crowded, cluster.without_memory(), known)
    except SimulationError as error:
        raise InputError(
            f"The snapshot does not fit the cluster's configuration: {error}."
        ) from error


def _simulator(snapshot: Snapshot, cluster: ClusterConfig, known: Known) -> Simulator:
    running, pending = [], []
    nodes = _Nodes(snapshot, cluster, known)
    jobs = tuple(_own_ids(snapshot.jobs))
    limits = ReachedLimits.of(
        jobs, cluster, {job_id: spec.qos for job_id, spec in known.specs.items()}
    )
    known = replace(known, specs=_with_limits(jobs, cluster, known, limits))
    cluster = limits.cluster
    for job in jobs:
        if job.start_s is not None and job.state.has_nodes:
            running.append(_running(job, snapshot.at_s, nodes.of(job), cluster, known))
        elif job.is_pending:
            pending.append(_pending(job, cluster, known))
    down = [node.name for node in snapshot.nodes if not node.up]
    return Simulator.from_state(cluster, snapshot.at_s, running, pending, down, known.timers)


def _with_limits(
    jobs: Iterable[Job], cluster: ClusterConfig, known: Known, limits: ReachedLimits
) -> dict[int, JobSpec]:
    """The specs that are known, and those of all jobs that count in a limit that is reached."""
    specs = dict(known.specs)
    for job in jobs:
        if (name := limits.qos_of(job)) is not None:
            specs[job.job_id] = replace(specs.get(job.job_id) or _spec_of(job, cluster), qos=name)
    return specs


class _Nodes:
    """Which nodes running jobs have."""

    def __init__(self, snapshot: Snapshot, cluster: ClusterConfig, known: Known) -> None:
        self._known = known
        self._partitions = {partition.name: partition.nodes for partition in cluster.partitions}
        named = {name for job in snapshot.jobs for name in self._named(job)}
        self._in_use = [
            node.name for node in snapshot.nodes if not node.idle and node.name not in named
        ]
        """Nodes that may belong to jobs without names: those in use before those that are down."""
        up = {node.name for node in snapshot.nodes if node.up}
        self._in_use.sort(key=lambda name: name not in up)
        self._whole = cluster.params.select_type is SelectType.LINEAR
        self._guesses: Counter[str] = Counter()

    def _named(self, job: Job) -> Sequence[str]:
        return (
            job.node_names or self._known.node_names.get(job.job_id, ())
            if job.state.has_nodes
            else ()
        )

    def of(self, job: Job) -> tuple[str, ...]:
        if named := self._named(job):
            return tuple(named)
        there = self._partitions.get(_partition(job, self._partitions), ())
        chosen = sorted(
            (name for name in self._in_use if name in there), key=self._guesses.__getitem__
        )[: job.nodes]
        if len(chosen) < job.nodes:
            raise InputError(
                f"Job {job.job_id} has {job.nodes} nodes; only {len(chosen)} in use could be its"
                " own."
            )
        self._guesses.update(chosen)
        if self._whole:
            self._in_use = [name for name in self._in_use if name not in chosen]
        return tuple(chosen)


def _own_ids(jobs: Iterable[Job]) -> Iterator[Job]:
    jobs = sorted(jobs, key=lambda job: (job.job_id, len(job.array_task), job.array_task))
    seen, free_id = set[int](), max((job.job_id for job in jobs), default=0) + 1
    for job in jobs:
        if job.job_id in seen:
            job, free_id = replace(job, job_id=free_id), free_id + 1
        seen.add(job.job_id)
        yield job


def _partition(job: Job, known: Iterable[str]) -> str:
    """Those that it asks for, or the one that it runs in."""
    names = set(known)
    if unknown := next((name for name in job.partition.split(",") if name not in names), None):
        raise InputError(
            f"Job {job.job_id} is in partition {unknown!r}, which the cluster's configuration does"
            " not have."
        )
    return job.partition


def _spec(job: Job, cluster: ClusterConfig, known: Known) -> JobSpec:
    return replace(
        known.specs.get(job.job_id) or _spec_of(job, cluster),
        nodes=job.nodes,
        time_limit_s=job.time_limit_s,
        time_min_s=_time_min_s(job),
        runtime_s=known.runtimes.get(job.job_id, _expected_run_s(job)),
        user=job.user,
        partition=_partition(job, (partition.name for partition in cluster.partitions)),
        submit_s=None,
        job_id=job.job_id,
        dependency="",
        begin_s=None,
        held=False,
        comment=job.comment,
    )


def _time_min_s(job: Job) -> int | None:
    """Not above its limit, which its owner may have lowered since."""
    if not job.time_min_s:
        return None
    return job.time_min_s if job.time_limit_s is None else min(job.time_min_s, job.time_limit_s)


def _expected_run_s(job: Job) -> int | None:
    """None: until its limit."""
    is_early = job.lead_s or job.usual_run_s is not None
    return job.expected_limit_s if is_early else None


def _spec_of(job: Job, cluster: ClusterConfig) -> JobSpec:
    """The same on each node, and no more than the largest node has: it does run there."""
    gpus, cpus, memory_mib = (
        -(-count // max(1, job.nodes)) for count in (job.gpus, job.cpus, job.memory_mib)
    )
    most_cpus = max(node.cpus for node in cluster.nodes)
    most_mib = max(node.memory_mib for node in cluster.nodes)
    return JobSpec(
        job.nodes,
        gpus_per_node=gpus,
        cpus_per_node=min(max(cpus, 1), most_cpus),
        memory_mib_per_node=min(memory_mib, most_mib),
    )


def _running(
    job: Job, now_s: int, node_names: tuple[str, ...], cluster: ClusterConfig, known: Known
) -> RunningJob:
    start_s = now_s if job.start_s is None else job.start_s
    spec = _spec(job, cluster, known)
    if job.state in _DONE:
        spec = replace(spec, runtime_s=now_s - start_s)
    return RunningJob(spec, start_s, node_names, job.submit_s, job.eligible_s)


def _pending(job: Job, cluster: ClusterConfig, known: Known) -> PendingJob:
    # Slurm gives one to jobs with a dependency too, and 0 to those that are held: they get theirs
    # as they are released.
    priority = (job.priority or None) if known.priorities else None
    spec, reason = replace(_spec(job, cluster, known), priority=priority), job.reason or "None"
    waits_for_limit = job.reason in LIMITS and not job.has_zero_priority
    if waits_for_limit or (job.eligible_s is not None and job.is_queueing):
        return PendingJob(spec, job.submit_s, job.eligible_s, reason)
    dependency, begin_s = _dependency(job), known.begins_s.get(job.job_id)
    is_free = not job.dependency and (
        not job.reason or (job.reason == "BeginTime" and begin_s is not None)
    )
    kept = replace(spec, dependency=dependency, begin_s=begin_s, held=not (dependency or is_free))
    return PendingJob(kept, job.submit_s, None, reason)


def _dependency(job: Job) -> str:
    """As for sbatch; empty if there is none, it can't be fulfilled any more, or is of a kind the
    simulator lacks.
    """
    if job.reason != "Dependency":
        return ""
    text = _MARK.sub("", job.dependency)
    try:
        parse_dependency(text)
    except InvalidJob:
        return ""
    return text
