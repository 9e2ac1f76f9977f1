"""Streams of jobs on the simulator: several partitions with Slurm's own queue and backfill, and a
rule that routes.

The rule names the partitions of each job as it is submitted, as `sbatch -p A100,V100` does; servers
and order are Slurm's business: priority/multifactor, with fair share among the jobs' users. Of several
partitions a job runs in the first one where it can start. How long it runs depends on the partition
(`StreamJob.runtime_in`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from mirage.routing.agent import Agent
from mirage.routing.arrivals import StreamJob, fitting
from mirage.routing.decide import Table, decide
from mirage.routing.flavors import Demand, PartitionKind
from mirage.routing.state import PartitionState
from slurm_sim import ClusterConfig, JobRecord, JobSpec, NodeSpec, Params, Partition, Simulator
from slurm_sim.config import SelectType
from slurm_sim.seconds import DAY_S

SEEN_AHEAD = 40
BOUND_S = 600
LOOK_S = 14 * DAY_S
"""So far ahead Slurm's plan is looked at: `bf_window`."""


@dataclass(frozen=True, kw_only=True)
class Arriving:
    """What a rule is asked: all partitions now, and the job."""

    states: tuple[PartitionState, ...]
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
Nice = Callable[[Demand], int]
"""A job's `--nice`."""


@dataclass(frozen=True, kw_only=True)
class StreamOutcome:
    """A stream's jobs and what they took."""

    wait_s: tuple[int, ...]
    """By arrival."""
    completion_s: tuple[int, ...]
    """Wait and run."""
    slowdown_mean: float
    """Of wait and run to the run, which counts as `BOUND_S` at least (Feitelson's bounded
    slowdown).
    """
    utilization: float
    """GPU-seconds used of those there were until the last job ended."""
    energy_kwh: float


def cluster_of(kinds: Sequence[PartitionKind]) -> ClusterConfig:
    """Servers shared by GPUs, CPUs and memory, and backfill over two weeks. Priorities have the weights
    of the example on Slurm's page priority_multifactor.html.
    """
    nodes = {kind.name: _nodes(kind) for kind in kinds}
    every = tuple(node for each in nodes.values() for node in each)
    partitions = tuple(
        Partition(
            kind.name,
            tuple(node.name for node in nodes[kind.name]),
            max_time_s=max(flavor.limit_s for flavor in kind.flavors if flavor.servers == 1),
            billing_weight_cpus=0.0,
            billing_weight_gpus=1.0,
        )
        for kind in kinds
    )
    params = Params(
        select_type=SelectType.CONS_TRES,
        memory_is_consumable=True,
        bf_window_s=LOOK_S,
        priority_weight_age=1000,
        priority_max_age_s=14 * DAY_S,
        priority_weight_fairshare=10000,
        priority_decay_half_life_s=14 * DAY_S,
        priority_weight_job_size=1000,
    )
    return ClusterConfig(every, partitions, params)


def _nodes(kind: PartitionKind) -> tuple[NodeSpec, ...]:
    return tuple(
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


class Stream:
    """A stream under way."""

    def __init__(
        self, kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob], nice: Nice | None = None
    ) -> None:
        self.kinds, self.jobs, self._nice = tuple(kinds), jobs, nice
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
        self._add_running(states)
        self._add_pending(states)
        return Arriving(
            states=tuple(states.values()),
            demand=job.demand,
            now_s=self._sim.now_s,
            names=frozenset(states),
        )

    def _add_running(self, states: Mapping[str, PartitionState]) -> None:
        servers = {server.name: server for state in states.values() for server in state.servers}
        for job in self._sim.running():
            server, demand = servers[job.node_names[0]], self._of[job.job_id].demand
            gpus, cpus, memory_mib = server.free
            server.free = (gpus - demand.gpus, cpus - demand.cpus, memory_mib - demand.memory_mib)
            end_s = job.limit_end_s or 0
            server.next_end_s = min(server.next_end_s or end_s, end_s)
            server.last_end_s = max(server.last_end_s, end_s)

    def _add_pending(self, states: Mapping[str, PartitionState]) -> None:
        for job in self._sim.pending():
            demand, flavors = self._of[job.job_id].demand, self._flavors[job.job_id]
            for name, flavor in flavors.items():
                states[name].wait(flavor, (demand.limit_s or 0) // len(flavors))

    def with_forecasts(self, asked: Arriving, job: StreamJob) -> Arriving:
        """With the job's wait in each partition by Slurm's own plan, in which all jobs run until
        their limits and nobody else comes.
        """
        plan = self._sim.fork()
        plan.forget_future()
        for _, state in asked.fitting:
            flavor = state.kind.flavor_of(job.demand)
            assert flavor is not None
            if not state.may_start(flavor):
                spec = replace(self._spec(job, state.kind.name), runtime_s=None)
                state.waits_s[flavor] = planned_wait_s(plan.fork(), spec)
        return asked

    def submit(self, job: StreamJob, partitions: str, submit_s: int | None = None) -> None:
        """``partitions``: with commas. ``submit_s`` None: now."""
        job_id = self._sim.submit(replace(self._spec(job, partitions), submit_s=submit_s))
        self._ids.append(job_id)
        self._of[job_id] = job
        flavors = {
            name: self._by_name[name].flavor_of(job.demand) for name in partitions.split(",")
        }
        self._flavors[job_id] = {
            name: flavor for name, flavor in flavors.items() if flavor is not None
        }

    def _spec(self, job: StreamJob, partitions: str) -> JobSpec:
        demand = job.demand
        return JobSpec(
            1,
            time_limit_s=demand.limit_s,
            runtime_s=job.runtime_s,
            user=job.user,
            partition=partitions,
            cpus_per_node=demand.cpus,
            memory_mib_per_node=demand.memory_mib,
            gpus_per_node=demand.gpus,
            nice=self._nice(demand) if self._nice else 0,
        )

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
        slowdowns = [
            max(end - submit, BOUND_S) / max(end - start, BOUND_S)
            for submit, start, end in zip(submits, starts, ends, strict=True)
        ]
        return StreamOutcome(
            wait_s=tuple(start - submit for start, submit in zip(starts, submits, strict=True)),
            completion_s=tuple(end - submit for end, submit in zip(ends, submits, strict=True)),
            slowdown_mean=sum(slowdowns) / len(slowdowns),
            utilization=used / (gpus * span_s),
            energy_kwh=self._sim.energy_j() / 3.6e6,
        )


def planned_wait_s(plan: Simulator, spec: JobSpec) -> int:
    """When this job would start if it were submitted now, at most `LOOK_S` ahead."""
    now_s = plan.now_s
    start_s = plan.run_until_start(plan.submit(spec), now_s + LOOK_S)
    return LOOK_S if start_s is None else max(start_s - now_s, 0)


def all_partitions(kinds: Sequence[PartitionKind], demand: Demand) -> str:
    """All that the job fits in, in their order, with commas."""
    return ",".join(kind.name for kind in fitting(kinds, demand))


def choices_of(kinds: Sequence[PartitionKind], demand: Demand) -> list[str]:
    """All partitions that the job fits in together, then each alone."""
    names = [kind.name for kind in fitting(kinds, demand)]
    return [",".join(names), *(names if len(names) > 1 else ())]


def route_stream(
    kinds: Sequence[PartitionKind],
    jobs: Sequence[StreamJob],
    rule: StreamRule,
    nice: Nice | None = None,
) -> StreamOutcome:
    """A stream that a rule routes; ``nice``: of each job (default: none)."""
    stream = Stream(kinds, jobs, nice)
    for job in jobs:
        asked = stream.arrive(job)
        if getattr(rule, "sees_forecasts", False):
            asked = stream.with_forecasts(asked, job)
        stream.submit(job, rule(asked))
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


def one_partition(asked: Arriving) -> str:
    """The first partition that it fits in: the default one of a job that names none."""
    return asked.fitting[0][1].kind.name


def every_partition(asked: Arriving) -> str:
    """As Slurm's plugin `all_partitions` does: also those that it does not fit in."""
    return ",".join(state.kind.name for state in asked.states)


def everywhere(asked: Arriving) -> str:
    """`-p A,B`: all that it fits in."""
    return ",".join(state.kind.name for _, state in asked.fitting)


def by_gpu_minutes(demand: Demand) -> int:
    """`--nice`: the limit in minutes times the GPUs."""
    return (demand.limit_s or 0) // 60 * demand.gpus


@dataclass(frozen=True)
class AgentsRule:
    """The plugin's decision with these agents."""

    agents: tuple[Agent, ...]
    sees_forecasts: bool = True

    def __call__(self, asked: Arriving) -> str:
        table = Table(asked.now_s, 0, asked.states)
        choice = decide(table, self.agents, asked.demand, asked.names)
        assert choice is not None, "a stream's jobs fit in some partition"
        return choice.names


def agents_rule(agents: Sequence[Agent]) -> AgentsRule:
    return AgentsRule(tuple(agents))
