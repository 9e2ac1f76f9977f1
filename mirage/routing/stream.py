"""Streams of jobs on the simulator: several partitions with Slurm's own queue and backfill, and a
rule that routes.

The rule names a partition for each job as it is submitted; servers and order are Slurm's business.
`EVERYWHERE` stands for `sbatch -p A100,V100`: a partition of all servers, which for jobs of one
server is the same, as Slurm then starts a job wherever it can first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mirage.routing.arrivals import StreamJob
from mirage.routing.flavors import Demand, PartitionKind
from mirage.routing.state import PartitionState
from slurm_sim import ClusterConfig, JobRecord, JobSpec, NodeSpec, Params, Partition, Simulator
from slurm_sim.config import SelectType
from slurm_sim.seconds import DAY_S, HOUR_S

EVERYWHERE = "everywhere"
SEEN_AHEAD = 40


@dataclass(frozen=True)
class Arriving:
    """What a rule is asked: all partitions now, and the job."""

    states: tuple[PartitionState, ...]
    work_s: tuple[float, ...]
    """Of each partition: GPU-seconds that its jobs may still take, by their limits, a GPU."""
    demand: Demand
    now_s: int


StreamRule = Callable[[Arriving], str]
"""Names a partition."""


@dataclass(frozen=True)
class StreamOutcome:
    """A stream's jobs and what they took."""

    wait_s: tuple[int, ...]
    """By arrival."""
    completion_s: tuple[int, ...]
    """Wait and run."""
    utilization: float
    """GPU-seconds used of those there were until the last job ended."""
    energy_kwh: float
    hourly: tuple[Hour, ...]
    """From the first submission to the last end."""


class Hour(NamedTuple):
    """What is seen at a full hour of a stream."""

    utilization: float
    """GPUs in use, of all."""
    power_kw: float
    """Of all servers: those with a job take `busy_w`, the others `idle_w`."""


def cluster_of(kinds: Sequence[PartitionKind]) -> ClusterConfig:
    """Servers shared by GPUs, CPUs and memory; first come, first served, with backfill over two
    weeks.
    """
    nodes = {
        kind.name: tuple(
            NodeSpec(
                f"{kind.name}-{number + 1}",
                cpus=kind.cpus,
                memory_mib=kind.memory_mib,
                gpus=kind.gpus,
                idle_w=kind.idle_w,
                busy_w=kind.busy_w,
            )
            for number in range(kind.servers)
        )
        for kind in kinds
    }
    every = tuple(node for each in nodes.values() for node in each)
    partitions = [
        Partition(name, tuple(node.name for node in each)) for name, each in nodes.items()
    ]
    params = Params(
        select_type=SelectType.CONS_TRES,
        memory_is_consumable=True,
        priority_multifactor=False,
        bf_window_s=14 * DAY_S,
    )
    return ClusterConfig(
        every, (*partitions, Partition(EVERYWHERE, tuple(node.name for node in every))), params
    )


class Stream:
    """A stream under way."""

    def __init__(self, kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob]) -> None:
        self.kinds, self.jobs = tuple(kinds), jobs
        self._sim = Simulator(cluster_of(kinds))
        self._ids: list[int] = []

    def arrive(self, job: StreamJob) -> Arriving:
        """Lets time pass until a job is submitted."""
        self._sim.run_until(job.submit_s)
        running, pending = self._sim.running(), self._sim.pending()
        states = tuple(self._state(kind, running, pending) for kind in self.kinds)
        work_s = tuple(self._work_s(kind, running, pending) for kind in self.kinds)
        return Arriving(states, work_s, job.demand, self._sim.now_s)

    def _state(
        self, kind: PartitionKind, running: Sequence[JobRecord], pending: Sequence[JobRecord]
    ) -> PartitionState:
        state = PartitionState.empty(kind)
        by_name = {server.name: server for server in state.servers}
        for job in running:
            server = by_name.get(job.node_names[0])
            if server is not None:
                spec, end_s = job.spec, job.limit_end_s or 0
                taken = (spec.gpus_per_node, spec.cpus_per_node, spec.memory_mib_per_node)
                server.free = (
                    server.free[0] - taken[0],
                    server.free[1] - taken[1],
                    server.free[2] - taken[2],
                )
                server.next_end_s = min(server.next_end_s or end_s, end_s)
                server.last_end_s = max(server.last_end_s, end_s)
        for job in pending:
            flavor = (
                kind.flavor_of(_demand(job)) if job.partition in (kind.name, EVERYWHERE) else None
            )
            if flavor is not None:
                state.wait(flavor, job.time_limit_s or 0)
        return state

    def _work_s(
        self, kind: PartitionKind, running: Sequence[JobRecord], pending: Sequence[JobRecord]
    ) -> float:
        now_s = self._sim.now_s
        gpu_s = sum(
            job.spec.gpus_per_node * max((job.limit_end_s or 0) - now_s, 0)
            for job in running
            if job.partition == kind.name
        )
        gpu_s += sum(
            j.spec.gpus_per_node * (j.time_limit_s or 0)
            for j in pending
            if j.partition == kind.name
        )
        return gpu_s / (kind.servers * kind.gpus)

    def submit(self, job: StreamJob, partition: str) -> None:
        self._ids.append(self._sim.submit(_spec(job, partition)))

    def best_known(self, job: StreamJob, coming: Sequence[StreamJob]) -> str:
        """Where the waiting jobs, this one and the coming ones start earliest in all, with all run
        times known.

        The coming ones are submitted everywhere, which a fork of the simulator tries with this one
        in each partition.
        """
        ahead = self._sim.fork()
        waiting = [each.job_id for each in ahead.pending()]
        waiting += [
            ahead.submit(replace(_spec(each, EVERYWHERE), submit_s=each.submit_s))
            for each in coming
        ]

        def starts_s(kind: PartitionKind) -> int:
            tried = ahead.fork()
            mine = tried.submit(_spec(job, kind.name))
            tried.run()
            return sum(tried.job(job_id).start_s or 0 for job_id in (mine, *waiting))

        return min(self.kinds, key=starts_s).name

    def finish(self) -> StreamOutcome:
        """Runs until all jobs are over."""
        self._sim.run()
        over = [self._sim.job(job_id) for job_id in self._ids]
        starts, ends = [job.start_s or 0 for job in over], [job.end_s or 0 for job in over]
        submits = [job.submit_s for job in over]
        gpus = sum(kind.servers * kind.gpus for kind in self.kinds)
        used = sum(
            job.spec.gpus_per_node * (end - start)
            for job, start, end in zip(over, starts, ends, strict=True)
        )
        return StreamOutcome(
            tuple(start - submit for start, submit in zip(starts, submits, strict=True)),
            tuple(end - submit for end, submit in zip(ends, submits, strict=True)),
            used / (gpus * (max(ends) - min(submits))),
            self._sim.energy_j() / 3.6e6,
            tuple(self._at(over, at_s) for at_s in range(min(submits), max(ends), HOUR_S)),
        )

    def _at(self, over: Sequence[JobRecord], at_s: int) -> Hour:
        running = [job for job in over if (job.start_s or 0) <= at_s < (job.end_s or 0)]
        busy = {name for job in running for name in job.node_names}
        servers = [
            (kind, f"{kind.name}-{number + 1}")
            for kind in self.kinds
            for number in range(kind.servers)
        ]
        power_w = sum(kind.busy_w if name in busy else kind.idle_w for kind, name in servers)
        gpus = sum(kind.gpus for kind, _ in servers)
        return Hour(sum(job.spec.gpus_per_node for job in running) / gpus, power_w / 1000)


def _spec(job: StreamJob, partition: str) -> JobSpec:
    demand = job.demand
    return JobSpec(
        1,
        time_limit_s=demand.limit_s,
        runtime_s=job.runtime_s,
        partition=partition,
        cpus_per_node=demand.cpus,
        memory_mib_per_node=demand.memory_mib,
        gpus_per_node=demand.gpus,
    )


def _demand(job: JobRecord) -> Demand:
    spec = job.spec
    return Demand(
        spec.gpus_per_node, spec.cpus_per_node, spec.memory_mib_per_node, job.time_limit_s
    )


def route_stream(
    kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob], rule: StreamRule
) -> StreamOutcome:
    """A stream that a rule routes."""
    stream = Stream(kinds, jobs)
    for job in jobs:
        stream.submit(job, rule(stream.arrive(job)))
    return stream.finish()


def route_knowing(kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob]) -> StreamOutcome:
    """A stream routed by trying out each choice with run times and the next arrivals known: what
    could be gained.

    No true bound: it looks `SEEN_AHEAD` jobs ahead, and at one choice at a time.
    """
    stream = Stream(kinds, jobs)
    for number, job in enumerate(jobs):
        stream.arrive(job)
        stream.submit(job, stream.best_known(job, jobs[number + 1 : number + 1 + SEEN_AHEAD]))
    return stream.finish()


# --- rules
# -----------------------------------------------------------------------------------------------------------


def _with_room(asked: Arriving) -> list[tuple[int, PartitionState]]:
    """Partitions in which the job could start now: room on a server, and nobody waiting."""
    return [
        (index, state)
        for index, state in enumerate(asked.states)
        if not any(state.queued)
        and any(_fits(asked.demand, server.free) for server in state.servers)
    ]


def _fits(demand: Demand, free: tuple[int, int, int]) -> bool:
    return demand.gpus <= free[0] and demand.cpus <= free[1] and demand.memory_mib <= free[2]


def first_fit(asked: Arriving) -> str:
    """The first partition in which it could start now, else the first."""
    found = _with_room(asked)
    return (found[0][1] if found else asked.states[0]).kind.name


def least_loaded(asked: Arriving) -> str:
    """The partition with the least work a GPU, running and waiting."""
    return asked.states[int(np.argmin(asked.work_s))].kind.name


def best_fit(asked: Arriving) -> str:
    """Where a server with room has the fewest free GPUs; if none has room, the least loaded
    partition.
    """
    found = _with_room(asked)
    if not found:
        return least_loaded(asked)
    return min(found, key=lambda item: _tightest(item[1], asked.demand))[1].kind.name


def _tightest(state: PartitionState, demand: Demand) -> int:
    return min(server.free[0] for server in state.servers if _fits(demand, server.free))


def random_partition(random: np.random.Generator) -> StreamRule:
    """A partition drawn evenly."""
    return lambda asked: asked.states[int(random.integers(len(asked.states)))].kind.name


def everywhere(asked: Arriving) -> str:  # noqa: ARG001 - a rule's signature
    """Slurm's own submission to all partitions."""
    return EVERYWHERE
