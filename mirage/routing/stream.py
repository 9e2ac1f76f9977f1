"""Streams of jobs on the simulator: several partitions with Slurm's own queue and backfill, and a
rule that routes.

The rule names the partitions of each job as it is submitted, as `sbatch -p A100,V100` does; servers
and order are Slurm's business. Of several partitions a job runs in the first one where it can start.
How long it runs depends on the partition (`StreamJob.runtime_in`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mirage.routing.agent import Agent, no_agents
from mirage.routing.arrivals import StreamJob, fitting
from mirage.routing.decide import Table, decide
from mirage.routing.flavors import Demand, PartitionKind
from mirage.routing.state import PartitionState
from slurm_sim import ClusterConfig, JobRecord, JobSpec, NodeSpec, Params, Partition, Simulator
from slurm_sim.config import SelectType
from slurm_sim.seconds import DAY_S, HOUR_S

SEEN_AHEAD = 40


@dataclass(frozen=True, kw_only=True)
class Arriving:
    """What a rule is asked: all partitions now, and the job."""

    states: tuple[PartitionState, ...]
    work_s: tuple[float, ...]
    """Of each partition: GPU-seconds that its jobs may still take, by their limits, a GPU."""
    demand: Demand
    now_s: int
    names: frozenset[str]
    """The partitions that it may go to."""

    def without(self, name: str) -> Arriving:
        """The same, but it may not go to this partition."""
        return replace(self, names=self.names - {name})

    @property
    def fitting(self) -> list[tuple[int, PartitionState]]:
        """The partitions that have a flavour for the job, with their numbers."""
        return [
            (index, state)
            for index, state in enumerate(self.states)
            if state.kind.name in self.names and state.kind.flavor_of(self.demand) is not None
        ]


StreamRule = Callable[[Arriving], str]
"""Names a partition, or several with commas."""


@dataclass(frozen=True, kw_only=True)
class StreamOutcome:
    """A stream's jobs and what they took."""

    wait_s: tuple[int, ...]
    """By arrival."""
    completion_s: tuple[int, ...]
    """Wait and run."""
    utilization: float
    """GPU-seconds used of those there were until the last job ended."""
    gpu_h: float
    """GPU-hours used: fewer where jobs run on faster GPUs."""
    span_h: float
    """From the first submission to the last end."""
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
                features=(f"{kind.name}-{number + 1}",),
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
    partitions = tuple(
        Partition(name, tuple(node.name for node in each)) for name, each in nodes.items()
    )
    params = Params(
        select_type=SelectType.CONS_TRES,
        memory_is_consumable=True,
        priority_multifactor=False,
        bf_window_s=14 * DAY_S,
    )
    return ClusterConfig(every, partitions, params)


class Stream:
    """A stream under way."""

    def __init__(self, kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob]) -> None:
        self.kinds, self.jobs = tuple(kinds), jobs
        self._by_name = {kind.name: kind for kind in kinds}
        self._same_speed = all(kind.speeds == (1.0,) * len(kind.speeds) for kind in kinds)
        self._sim = Simulator(cluster_of(kinds))
        self._ids: list[int] = []
        self._of: dict[int, StreamJob] = {}
        self._flavors: dict[int, dict[str, int]] = {}
        """Of each job, in the partitions that it was submitted to."""
        self._watch()

    def _watch(self) -> None:
        """From now on a job that starts ends after what it takes where it runs."""
        if not self._same_speed:
            self._sim.on_start.append(self._set_end)

    def _set_end(self, job: JobRecord) -> None:
        runtime_s = self._of[job.job_id].runtime_in(self._by_name[job.partition])
        self._sim.set_runtime_end(job.job_id, (job.start_s or 0) + runtime_s)

    def fork(self) -> Stream:
        """A copy that goes its own way from here."""
        twin = object.__new__(Stream)
        twin.__dict__.update(self.__dict__)
        twin._sim, twin._ids = self._sim.fork(), list(self._ids)
        twin._of, twin._flavors = dict(self._of), dict(self._flavors)
        twin._watch()
        return twin

    def arrive(self, job: StreamJob) -> Arriving:
        """Lets time pass until a job is submitted."""
        self._sim.run_until(job.submit_s)
        states = {kind.name: PartitionState.empty(kind) for kind in self.kinds}
        gpu_s = dict.fromkeys(states, 0.0)
        self._add_running(states, gpu_s)
        self._add_pending(states, gpu_s)
        return Arriving(
            states=tuple(states.values()),
            work_s=tuple(gpu_s[kind.name] / (kind.servers * kind.gpus) for kind in self.kinds),
            demand=job.demand,
            now_s=self._sim.now_s,
            names=frozenset(states),
        )

    def _add_running(self, states: Mapping[str, PartitionState], gpu_s: dict[str, float]) -> None:
        servers = {server.name: server for state in states.values() for server in state.servers}
        for job in self._sim.running():
            server, demand = servers[job.node_names[0]], self._of[job.job_id].demand
            gpus, cpus, memory_mib = server.free
            server.free = (gpus - demand.gpus, cpus - demand.cpus, memory_mib - demand.memory_mib)
            end_s = job.limit_end_s or 0
            server.next_end_s = min(server.next_end_s or end_s, end_s)
            server.last_end_s = max(server.last_end_s, end_s)
            gpu_s[job.partition] += demand.gpus * max(end_s - self._sim.now_s, 0)

    def _add_pending(self, states: Mapping[str, PartitionState], gpu_s: dict[str, float]) -> None:
        for job in self._sim.pending():
            demand, flavors = self._of[job.job_id].demand, self._flavors[job.job_id]
            limit_s = demand.limit_s or 0
            for name, flavor in flavors.items():
                states[name].wait(flavor, limit_s // len(flavors))
                gpu_s[name] += demand.gpus * limit_s / len(flavors)

    def submit(
        self, job: StreamJob, partitions: str, submit_s: int | None = None, server: str = ""
    ) -> None:
        """``partitions``: with commas. ``submit_s`` None: now. ``server``: the only one that it may
        have.
        """
        spec = replace(_spec(job, partitions), submit_s=submit_s, constraint=server)
        job_id = self._sim.submit(spec)
        self._ids.append(job_id)
        self._of[job_id] = job
        flavors = {
            name: self._by_name[name].flavor_of(job.demand) for name in partitions.split(",")
        }
        self._flavors[job_id] = {
            name: flavor for name, flavor in flavors.items() if flavor is not None
        }

    @property
    def count(self) -> int:
        """Jobs that were submitted."""
        return len(self._ids)

    def ahead(self, coming: Sequence[StreamJob]) -> Stream:
        """A copy in which these arrive too, each submitted to all partitions that it fits in; its
        jobs are those and all that are not over.
        """
        twin = self.fork()
        twin._ids = [job.job_id for job in (*self._sim.running(), *self._sim.pending())]
        for job in coming:
            twin.submit(job, all_partitions(self.kinds, job.demand), job.submit_s)
        return twin

    def total_s(self) -> int:
        """Runs until all jobs are over; the sum of their completion times."""
        self._sim.run()
        return sum((job.end_s or 0) - job.submit_s for job in map(self._sim.job, self._ids))

    def best_known(self, job: StreamJob, coming: Sequence[StreamJob]) -> str:
        """The choice with which the jobs up to the coming ones are over soonest in all, with all
        run times known.
        """
        ahead = self.ahead(coming)

        def total_s(partitions: str) -> int:
            tried = ahead.fork()
            tried.submit(job, partitions)
            return tried.total_s()

        return min(choices_of(self.kinds, job.demand), key=total_s)

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
        span_s = max(ends) - min(submits)
        return StreamOutcome(
            wait_s=tuple(start - submit for start, submit in zip(starts, submits, strict=True)),
            completion_s=tuple(end - submit for end, submit in zip(ends, submits, strict=True)),
            utilization=used / (gpus * span_s),
            gpu_h=used / HOUR_S,
            span_h=span_s / HOUR_S,
            energy_kwh=self._sim.energy_j() / 3.6e6,
            hourly=tuple(self._at(over, at_s) for at_s in range(min(submits), max(ends), HOUR_S)),
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


def all_partitions(kinds: Sequence[PartitionKind], demand: Demand) -> str:
    """All that the job fits in, in their order, with commas."""
    return ",".join(kind.name for kind in fitting(kinds, demand))


def choices_of(kinds: Sequence[PartitionKind], demand: Demand) -> list[str]:
    """All partitions that the job fits in together, then each alone."""
    names = [kind.name for kind in fitting(kinds, demand)]
    return [",".join(names), *(names if len(names) > 1 else ())]


def _spec(job: StreamJob, partitions: str) -> JobSpec:
    demand = job.demand
    return JobSpec(
        1,
        time_limit_s=demand.limit_s,
        runtime_s=job.runtime_s,
        partition=partitions,
        cpus_per_node=demand.cpus,
        memory_mib_per_node=demand.memory_mib,
        gpus_per_node=demand.gpus,
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
        for index, state in asked.fitting
        if not any(state.queued)
        and any(_fits(asked.demand, server.free) for server in state.servers)
    ]


def _fits(demand: Demand, free: tuple[int, int, int]) -> bool:
    return demand.gpus <= free[0] and demand.cpus <= free[1] and demand.memory_mib <= free[2]


def first_fit(asked: Arriving) -> str:
    """The first partition in which it could start now, else the first."""
    return (_with_room(asked) or asked.fitting)[0][1].kind.name


def least_loaded(asked: Arriving) -> str:
    """The partition with the least work a GPU, running and waiting."""
    return min(asked.fitting, key=lambda item: asked.work_s[item[0]])[1].kind.name


def best_fit(asked: Arriving) -> str:
    """Where a server with room has the fewest free GPUs; if none has room, the least loaded
    partition.
    """
    found = _with_room(asked)
    if not found:
        return least_loaded(asked)
    return min(found, key=lambda item: _fewest_free(item[1], asked.demand))[1].kind.name


def _fewest_free(state: PartitionState, demand: Demand) -> int:
    return min(server.free[0] for server in state.servers if _fits(demand, server.free))


def random_partition(random: np.random.Generator) -> StreamRule:
    """A partition drawn evenly."""

    def rule(asked: Arriving) -> str:
        states = asked.fitting
        return states[int(random.integers(len(states)))][1].kind.name

    return rule


def everywhere(asked: Arriving) -> str:
    """Slurm's own submission to all partitions."""
    return ",".join(state.kind.name for _, state in asked.fitting)


def agents_rule(agents: Sequence[Agent]) -> StreamRule:
    """The plugin's decision with these agents."""

    def rule(asked: Arriving) -> str:
        choice = decide(Table(asked.now_s, 0, asked.states), agents, asked.demand, asked.names)
        assert choice is not None, "a stream's jobs fit in some partition"
        return choice.names

    return rule


def room_rule(asked: Arriving) -> str:
    """The plugin's decision without agents: best fit where there is room, else all partitions."""
    return agents_rule(no_agents([state.kind for state in asked.states]))(asked)
