"""Nodes and jobs, and how they change. When they change is `reference.py`'s business."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from slurm_sim.dependency import Dependency, Verdict, parse_dependency
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError, UnknownJob
from slurm_sim.model import JobRecord, JobSpec, NodeOutage, Params, Partition, State
from slurm_sim.priority import Multifactor


class Cluster:
    """What slurmctld keeps in memory. Sets of nodes are bits of an int, the first node the lowest bit."""

    def __init__(
        self, node_names: Sequence[str], partitions: Sequence[Partition], params: Params, start_s: int
    ) -> None:
        self.node_names = tuple(node_names)
        self.partitions = {partition.name: partition for partition in partitions}
        self.masks = _partition_masks(self.node_names, partitions)
        self.up = self.free = (1 << len(self.node_names)) - 1
        """Nodes that can be used, and nodes without a job."""
        self.outages: list[NodeOutage] = []
        self.jobs: dict[int, JobRecord] = {}
        self.waiting: dict[int, JobRecord] = {}
        """Pending, and kept back by something other than a lack of nodes."""
        self.competing: dict[int, JobRecord] = {}
        self.running: dict[int, JobRecord] = {}
        self.finished: list[JobRecord] = []
        self.cut_short: list[JobRecord] = []
        self._params = params
        self._start_s = start_s
        self._multifactor = Multifactor(params, len(self.node_names), partitions)
        self._running_of = Counter[str]()
        self._queue: list[JobRecord] = []
        self._queue_of_s: int | None = None

    # ---- input

    def check(self, spec: JobSpec) -> None:
        """Raises InvalidJob for one that could never run here as asked."""
        partition = self.partition_of(spec)
        for name, least in (("nodes", 1), ("time_limit_s", 1), ("runtime_s", 0), ("submit_s", 0), ("begin_s", 0)):
            value = getattr(spec, name)
            if value is not None and value < least:
                raise InvalidJob(f"{name} is {value}; give at least {least}")
        if spec.nodes > len(partition.nodes):
            raise InvalidJob(f"{spec.nodes} nodes asked for; partition {partition.name!r} has {len(partition.nodes)}")
        limit_s = spec.time_limit_s or partition.max_time_s
        if partition.max_time_s is not None and limit_s is not None and limit_s > partition.max_time_s:
            raise InvalidJob(f"limit of {limit_s} s; partition {partition.name!r} allows {partition.max_time_s} s")

    def partition_of(self, spec: JobSpec) -> Partition:
        """The one asked for, or the first."""
        name = spec.partition or next(iter(self.partitions))
        if name not in self.partitions:
            raise InvalidJob(f"partition {name!r} does not exist; this cluster has {', '.join(self.partitions)}")
        return self.partitions[name]

    def find(self, job_id: int) -> JobRecord:
        if job_id not in self.jobs:
            raise UnknownJob(f"job {job_id} has not been submitted yet; look at pending(), running(), finished()")
        return self.jobs[job_id]

    def bit(self, node: str) -> int:
        if node not in self.node_names:
            raise SimulationError(f"node {node!r} does not exist; this cluster has {', '.join(self.node_names)}")
        return 1 << self.node_names.index(node)

    # ---- pending jobs

    def add(self, job_id: int, spec: JobSpec, now_s: int) -> JobRecord:
        """A job is submitted."""
        partition = self.partition_of(spec)
        job = JobRecord(
            job_id=job_id,
            spec=spec,
            partition=partition.name,
            time_limit_s=spec.time_limit_s or partition.max_time_s,
            submit_s=now_s,
            dependencies=parse_dependency(spec.dependency).known(self.jobs.__contains__),
            begin_s=spec.begin_s,
            held=spec.held,
        )
        self.jobs[job_id] = self.waiting[job_id] = job
        return job

    def review(self, job: JobRecord, now_s: int) -> None:
        """Lets a waiting job compete if nothing keeps it back any more."""
        job.reason = self._kept_back_by(job, now_s)
        if not job.reason:
            job.reason = "None"
            job.eligible_s = now_s if job.begin_s is None else max(job.begin_s, job.submit_s)
            self.competing[job.job_id] = self.waiting.pop(job.job_id)
            self._queue_of_s = None
        job.priority = self._multifactor.of(job, self._calculated_s(now_s))

    def _kept_back_by(self, job: JobRecord, now_s: int) -> str:
        if job.held:
            return "JobHeldUser"
        job.dependencies, verdict = job.dependencies.review(self._verdict)
        if verdict is not Verdict.MET:
            return str(verdict.value)
        return "BeginTime" if job.begin_s is not None and job.begin_s > now_s else ""

    def _verdict(self, dependency: Dependency) -> Verdict:
        state = self.jobs[dependency.job_id].state
        return dependency.verdict(started=state is not State.PENDING, over=state.is_over, ok=state is State.COMPLETED)

    def hold(self, job: JobRecord, now_s: int) -> None:
        self.forget_pending(job)
        self.waiting[job.job_id] = job
        job.held, job.eligible_s, job.priority, job.reason = True, None, 0, "JobHeldUser"
        if job.begin_s is not None and job.begin_s <= now_s:
            job.begin_s = None

    def forget_pending(self, job: JobRecord) -> None:
        self.waiting.pop(job.job_id, None)
        if self.competing.pop(job.job_id, None):
            self._queue_of_s = None

    def queue(self, now_s: int) -> list[JobRecord]:
        """The competing jobs in order; priorities are refreshed each PriorityCalcPeriod."""
        calculated_s = self._calculated_s(now_s)
        if self._queue_of_s != calculated_s:
            self._queue_of_s = calculated_s
            for job in (*self.competing.values(), *self.waiting.values()):
                job.priority = self._multifactor.of(job, calculated_s)
            self._queue = sorted(self.competing.values(), key=self._rank)
        return self._queue

    def _calculated_s(self, now_s: int) -> int:
        return now_s - (now_s - self._start_s) % self._params.priority_calc_period_s

    def _rank(self, job: JobRecord) -> tuple[int, int, int, int]:
        return -self.partitions[job.partition].priority_tier, -job.priority, job.submit_s, job.job_id

    def at_user_limit(self, job: JobRecord) -> bool:
        limit = self._params.max_jobs_per_user
        return limit is not None and self._running_of[job.user] >= limit

    def available(self, job: JobRecord) -> int:
        """The nodes of its partition that are up and free."""
        return self.up & self.free & self.masks[job.partition]

    # ---- running jobs

    def start(self, job: JobRecord, nodes: int, scheduler: str, now_s: int) -> None:
        self.forget_pending(job)
        self.free &= ~nodes
        self.running[job.job_id] = job
        self._running_of[job.user] += 1
        job.state, job.reason, job.start_s, job.scheduler = State.RUNNING, "None", now_s, scheduler
        job.allocated = nodes
        job.node_names = tuple(name for index, name in enumerate(self.node_names) if nodes >> index & 1)

    def vacate(self, job: JobRecord) -> None:
        """A running job gives its nodes back; `finish` or `requeue` must follow."""
        del self.running[job.job_id]
        self._running_of[job.user] -= 1
        self.free |= job.allocated

    def finish(self, job: JobRecord, state: State, now_s: int) -> None:
        job.state, job.end_s, job.reason = state, now_s, "None"
        self.finished.append(job)

    def requeue(self, job: JobRecord, state: State, now_s: int) -> JobRecord:
        """Puts it back into the queue; returns the record of the run that ended so."""
        run = replace(job, state=state, end_s=now_s)
        self.cut_short.append(run)
        job.state, job.submit_s, job.begin_s = State.PENDING, now_s, now_s + self._params.requeue_delay_s
        job.eligible_s = job.start_s = None
        job.allocated, job.node_names, job.scheduler = 0, (), ""
        job.restarts += 1
        self.waiting[job.job_id] = job
        return run

    # ---- nodes

    def down(self, node: str, now_s: int) -> list[JobRecord]:
        """Takes the node out; returns the jobs that were on it."""
        bit = self.bit(node)
        if self.up & bit:
            self.up &= ~bit
            self.outages.append(NodeOutage(node, now_s))
        return [job for job in self.running.values() if job.allocated & bit]

    def back(self, node: str, now_s: int) -> None:
        """The node can be used again."""
        bit = self.bit(node)
        if not self.up & bit:
            self.up |= bit
            last = max(index for index, outage in enumerate(self.outages) if outage.node == node)
            self.outages[last] = replace(self.outages[last], end_s=now_s)


def _partition_masks(nodes: Sequence[str], partitions: Sequence[Partition]) -> dict[str, int]:
    bits = {name: 1 << index for index, name in enumerate(nodes)}
    if not bits or len(bits) < len(nodes):
        raise InvalidCluster("nodes: give at least one, and each of them once")
    if not partitions or len({partition.name for partition in partitions}) < len(partitions):
        raise InvalidCluster("partitions: give at least one, and each name once")
    return {partition.name: _mask(partition, bits) for partition in partitions}


def _mask(partition: Partition, bits: dict[str, int]) -> int:
    unknown = [name for name in partition.nodes if name not in bits]
    if unknown or not partition.nodes or len(set(partition.nodes)) < len(partition.nodes):
        detail = f"unknown: {', '.join(unknown)}" if unknown else "give at least one, and each of them once"
        raise InvalidCluster(f"nodes of partition {partition.name!r}: {detail}")
    return sum(bits[name] for name in partition.nodes)
