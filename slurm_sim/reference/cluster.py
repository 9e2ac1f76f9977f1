"""Nodes and jobs, and how they change. When they change is `simulator.py`'s business."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from slurm_sim.config import (
    YEAR_S,
    ClusterConfig,
    NodeAction,
    NodeOutage,
    Params,
    Partition,
    SelectType,
)
from slurm_sim.dependency import Dependency, Verdict, parse_dependency
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError, UnknownJob
from slurm_sim.jobs import JobRecord, JobSpec, State
from slurm_sim.ranges import check_kind, known_id
from slurm_sim.reference.backfill import Held, Wish
from slurm_sim.reference.fairshare import FairShare
from slurm_sim.reference.limits import Limits, Use
from slurm_sim.reference.nodes import Picker
from slurm_sim.reference.priority import Priorities
from slurm_sim.reference.reservations import Calendar
from slurm_sim.reference.resources import MemoryByCpu, Pool, Request, bits

PASSES_OWN = ("None", "Priority", "Resources")
"""Reasons that passes give all the time, and nobody notes."""
MOST_CHOICES = 63
"""Partitions of one job."""


class Turn(NamedTuple):
    """In a pass: of a job, in one of its partitions."""

    job: JobRecord
    partition: str
    priority: int
    """As of this partition."""


class Cluster:
    """What slurmctld keeps in memory. Sets of nodes are bits of an int, the first node the lowest
    bit.
    """

    def __init__(self, config: ClusterConfig, start_s: int) -> None:
        check_kind("config", config, ClusterConfig, InvalidCluster)
        self.node_names = tuple(node.name for node in config.nodes)
        self.partitions = {partition.name: partition for partition in config.partitions}
        self._index = {name: index for index, name in enumerate(self.node_names)}
        self.masks = {
            partition.name: self._mask(partition.nodes) for partition in config.partitions
        }
        self.up = (1 << len(self.node_names)) - 1
        """Nodes that take jobs: neither down nor drained."""
        self.pool, self._empty = Pool(config.nodes), Pool(config.nodes)
        self.limits = Limits(config.qos, config.partitions, config.associations)
        self.fairshare = FairShare(config.params, config.associations, start_s)
        self.calendar = Calendar(config.reservations, self.bit)
        self.pick = Picker(config.params.select_type, config.nodes)
        self.outages: list[NodeOutage] = []
        self.jobs: dict[int, JobRecord] = {}
        self.arrays: dict[int, list[JobRecord]] = {}
        self.waiting: dict[int, JobRecord] = {}
        """Pending, and kept back by something other than a lack of nodes."""
        self.competing: dict[int, JobRecord] = {}
        self.running: dict[int, JobRecord] = {}
        self.suspended: dict[int, JobRecord] = {}
        self.finished: list[JobRecord] = []
        self.cut_short: list[JobRecord] = []
        self._config = config
        self._params = config.params
        self.is_linear = config.params.select_type is SelectType.LINEAR
        self._start_s = start_s
        self.priorities = Priorities(config, self.limits, self.fairshare, self.memory_mib)
        self._tasks_running = Counter[int]()
        self._suitable_for: dict[tuple[str, Request, str, str | None], int] = {}
        self._draws_power = any(node.idle_w or node.busy_w for node in config.nodes)
        self._queue: list[Turn] = []
        self._noted: dict[int, str] = {}
        """The reason that was last noted of a job."""
        self._choices: dict[int, tuple[str, ...]] = {}
        """Of jobs in several partitions: those, in the order in which they ask for them."""
        self._queue_of_s: int | None = None
        self._calculated_s = start_s
        self.start_meter(start_s)

    # ---- input

    def check(self, spec: JobSpec) -> None:
        """Raises InvalidJob for one that could never run here as asked: of several partitions, in
        none.
        """
        check_kind("job", spec, JobSpec, InvalidJob)
        qos = self.limits.qos_of(spec.qos)
        if spec.reservation is not None:
            self.calendar.check(spec.reservation, spec.user)
        self.choices(spec)
        limit_s = self._limit_s(spec, self.partition_of(spec))
        if qos.max_wall_s is not None and (limit_s is None or limit_s > qos.max_wall_s):
            asked = "no limit" if limit_s is None else f"limit of {limit_s} s"
            raise InvalidJob(f"{asked}; qos {qos.name!r} allows {qos.max_wall_s} s")

    def _check_size(self, spec: JobSpec, partition: Partition) -> None:
        most = len(partition.nodes) if partition.max_nodes is None else partition.max_nodes
        if spec.nodes > len(partition.nodes):
            raise InvalidJob(
                f"{spec.nodes} nodes asked for; partition {partition.name!r} has"
                f" {len(partition.nodes)}"
            )
        if not partition.min_nodes <= spec.nodes <= most:
            raise InvalidJob(
                f"{spec.nodes} nodes asked for; partition {partition.name!r} allows"
                f" {partition.min_nodes} to {most}"
            )
        able = self._suitable(spec, partition).bit_count()
        if able < spec.nodes:
            by_default = (
                " by default" if self.memory_mib(spec) and not spec.memory_mib_per_node else ""
            )
            raise InvalidJob(
                f"{spec.nodes} nodes asked for; {able} of partition {partition.name!r} have"
                f" {spec.cpus_per_node} CPUs, {self.memory_mib(spec)} MiB{by_default},"
                f" {spec.gpus_per_node} GPUs"
                + (f", {spec.constraint}" if spec.constraint else "")
                + (f" in reservation {spec.reservation!r}" if spec.reservation else "")
            )

    def _check_time(self, spec: JobSpec, partition: Partition) -> None:
        limit_s = self._limit_s(spec, self.partition_of(spec))
        if (
            partition.max_time_s is not None
            and limit_s is not None
            and limit_s > partition.max_time_s
        ):
            raise InvalidJob(
                f"limit of {limit_s} s; partition {partition.name!r} allows"
                f" {partition.max_time_s} s"
            )

    def partition_of(self, spec: JobSpec) -> Partition:
        """The first one asked for, or of all."""
        return self._asked(spec)[0]

    def _asked(self, spec: JobSpec) -> list[Partition]:
        names = spec.partition.split(",") if spec.partition else [next(iter(self.partitions))]
        if len(names) > MOST_CHOICES:
            raise InvalidJob(f"{len(names)} partitions asked for; give at most {MOST_CHOICES}")
        for name in names:
            if name not in self.partitions:
                raise InvalidJob(
                    f"partition {name!r} does not exist; this cluster has"
                    f" {', '.join(self.partitions)}"
                )
        return [self.partitions[name] for name in dict.fromkeys(names)]

    def choices(self, spec: JobSpec) -> tuple[str, ...]:
        """Partitions in which it may run, of those that it asks for. Raises InvalidJob if there is
        none.
        """
        refused = list[InvalidJob]()
        fitting = list[str]()
        for partition in self._asked(spec):
            try:
                self._check_size(spec, partition)
                self._check_time(spec, partition)
                fitting.append(partition.name)
            except InvalidJob as error:
                refused.append(error)
        if not fitting:
            raise refused[0]
        return tuple(fitting)

    def waits_in(self, spec: JobSpec) -> tuple[str, ...]:
        """The same; of a live cluster's queue, which may have jobs for which there are too few
        nodes, all.
        """
        try:
            return self.choices(spec)
        except InvalidJob:
            return tuple(partition.name for partition in self._asked(spec))

    @staticmethod
    def _limit_s(spec: JobSpec, partition: Partition) -> int | None:
        return spec.time_limit_s or partition.default_time_s or partition.max_time_s

    def find(self, job_id: int) -> JobRecord:
        job_id = known_id(job_id)
        if job_id not in self.jobs:
            raise UnknownJob(
                f"job {job_id} has not been submitted yet; look at pending(), running(), finished()"
            )
        return self.jobs[job_id]

    def bit(self, node: str) -> int:
        if not isinstance(node, str) or node not in self._index:
            raise SimulationError(
                f"node {node!r} does not exist; this cluster has {', '.join(self.node_names)}"
            )
        return 1 << self._index[node]

    def _mask(self, names: tuple[str, ...]) -> int:
        return sum(1 << self._index[name] for name in names)

    # ---- what a job needs

    def request(self, spec: JobSpec, partition: Partition) -> Request:
        """What it takes on each node: all of it with select/linear, or if it or its partition is
        exclusive.
        """
        if self.is_linear:
            return Request(0, 0, 0, whole=True)
        memory_mib = (self.memory_mib(spec) or None) if self._params.memory_is_consumable else 0
        whole = spec.exclusive or partition.exclusive
        cpus = self._params.of_cores(spec.cpus_per_node)
        return Request(cpus, memory_mib, spec.gpus_per_node, whole, self._memory_by_cpu(spec))

    def _memory_by_cpu(self, spec: JobSpec) -> MemoryByCpu | None:
        each_mib = self._default_memory(spec).default_memory_per_cpu_mib
        if spec.memory_mib_per_node or each_mib is None or not self._params.memory_is_consumable:
            return None
        return MemoryByCpu(each_mib, self._params.counted_cpus(1), spec.cpus_per_node)

    def memory_mib(self, spec: JobSpec) -> int:
        """What it asks for on each node, or by default (its first partition's); 0: nothing."""
        if spec.memory_mib_per_node:
            return spec.memory_mib_per_node
        default = self._default_memory(spec)
        if default.default_memory_per_cpu_mib is not None:
            return default.default_memory_per_cpu_mib * self._params.counted_cpus(
                spec.cpus_per_node
            )
        return default.default_memory_per_node_mib or 0

    def _default_memory(self, spec: JobSpec) -> Partition | Params:
        """Whose default it gets that names no memory: that of the first partition it asks for, if
        it has one.
        """
        own = self.partition_of(spec)
        has_own = (
            own.default_memory_per_cpu_mib is not None
            or own.default_memory_per_node_mib is not None
        )
        return own if has_own else self._params

    def _suitable(self, spec: JobSpec, partition: Partition) -> int:
        """Nodes on which it could ever run."""
        request = self.request(spec, partition)
        key = (partition.name, request, spec.constraint, spec.reservation)
        if key not in self._suitable_for:
            able = (
                self.masks[partition.name]
                & self.pool.capable(request)
                & self._featured(spec.constraint)
            )
            reserved = self.calendar.nodes(spec.reservation)
            self._suitable_for[key] = able if reserved is None else able & reserved
        return self._suitable_for[key]

    def _featured(self, constraint: str) -> int:
        every = (1 << len(self.node_names)) - 1
        if not constraint:
            return every
        if not re.fullmatch(r"[\w.-]+(&[\w.-]+)*|[\w.-]+(\|[\w.-]+)*", constraint, re.ASCII):
            raise InvalidJob(
                f"constraint {constraint!r} is not a&b&... or a|b|...; no brackets, counts or"
                " mixtures"
            )
        any_of = "|" in constraint
        wanted = set(re.split(r"[&|]", constraint))
        return sum(
            1 << index
            for index, node in enumerate(self._config.nodes)
            if (wanted & set(node.features) if any_of else wanted <= set(node.features))
        )

    def wish(self, job: JobRecord) -> Wish:
        """What the schedulers look for, on nodes that take jobs."""
        partition = self.partitions[job.partition]
        usable, able = (
            self.up & self.listed(job.spec, partition),
            self.up & self._suitable(job.spec, partition),
        )
        request = self.request(job.spec, partition)
        preferred = self.limits.preferred(job.user, job.spec.account, job.spec.qos, job.partition)
        return Wish(
            usable,
            able,
            job.nodes,
            request,
            job.time_limit_s or YEAR_S,
            job.spec.reservation,
            preferred,
        )

    def listed(self, spec: JobSpec, partition: Partition) -> int:
        """Nodes on which slurmctld tries to start such a job; it looks at GPUs later
        (`_build_node_list`).
        """
        return self._suitable(replace(spec, gpus_per_node=0), partition)

    def tested_at_submission(self, job: JobRecord) -> None:
        """slurmctld sees whether a new job could ever run."""
        if job.held or self.jobs_limit_reached(job):
            return
        wish = self.wish(job)
        self.pick.attempt(self.listed(job.spec, self.partitions[job.partition]), wish.preferred)
        open_to_it = wish.able & (self.pool.idle if wish.request.whole else self.pool.shared)
        starts = open_to_it.bit_count() >= wish.needed
        self.pick.tested(open_to_it if starts else wish.able, wish.request)
        if self.is_linear:
            picked = (
                self.pick(open_to_it, wish.needed, self._empty, wish.request, starts=True)
                if starts
                else 0
            )
            self.note_test(job, picked or self.possible(job))

    def note_test(self, job: JobRecord, nodes: int) -> None:
        """A test of a job has picked these nodes (none, or too few: it failed).

        With select/cons_tres, a test of whether it could ever run tells slurmctld nothing
        (SELECT_MODE_TEST_ONLY).
        """
        if nodes.bit_count() == job.nodes:
            self.priorities.tested[job.job_id] = self._use(job, nodes).cpus

    def possible(self, job: JobRecord) -> int:
        """Nodes that slurmctld sees for a job that can't start now: as if no other job ran
        (SELECT_MODE_TEST_ONLY).
        """
        wish = self.wish(job)
        nodes = wish.able
        if nodes.bit_count() < wish.needed:
            nodes = self._suitable(job.spec, self.partitions[job.partition])
        if (
            nodes.bit_count() <= wish.needed
        ):  # a live cluster's queue may have jobs for which there are too few
            return nodes
        starts = not self.is_linear  # which forgets weights here
        return self.pick(nodes, wish.needed, self._empty, wish.request, starts=starts)

    def limit_reached(
        self, job: JobRecord, nodes: int, *, starts: bool, planned: bool = False
    ) -> str:
        """The reason for which a limit keeps it from these nodes; empty: none does.

        Whole nodes count with all their CPUs and GPUs, but if backfill plans them, with the GPUs
        asked for. Nodes that a limit counts already do not count again if the job `starts`
        (`_get_unique_job_node_cnt`).
        """
        use = self._use(job, nodes)
        if planned:
            use = use._replace(gpus=job.nodes * job.spec.gpus_per_node)
        if not starts:
            use = use._replace(where=0)
        return self.limits.reached(job.user, job.spec.account, job.spec.qos, job.partition, use)

    def jobs_limit_reached(self, job: JobRecord) -> str:
        """The same, of limits that count jobs, which slurmctld looks at before it looks for nodes."""
        return self.limits.jobs_reached(job.user, job.spec.account, job.spec.qos, job.partition)

    def _use(self, job: JobRecord, nodes: int) -> Use:
        request = self.request(job.spec, self.partitions[job.partition])
        counted = request._replace(cpus=self._params.counted_cpus(job.spec.cpus_per_node))
        return Use(
            nodes.bit_count(), self.pool.cpus(nodes, counted), self.pool.gpus(nodes, request), nodes
        )

    def throttled(self, job: JobRecord) -> bool:
        """Whether so many of its array's tasks run that this one has to wait; backfill plans more
        than may run.
        """
        array, throttle = job.spec.array_job_id, job.spec.array_throttle
        return array is not None and throttle is not None and self._tasks_running[array] >= throttle

    # ---- pending jobs

    def add(self, job_id: int, spec: JobSpec, now_s: int) -> JobRecord:
        """A job is submitted."""
        choices = self.waits_in(spec)
        job = JobRecord(
            job_id=job_id,
            spec=spec,
            partition=choices[0],
            time_limit_s=self._limit_s(spec, self.partition_of(spec)),
            submit_s=now_s,
            dependencies=parse_dependency(spec.dependency).known(self._is_known),
            nodes=spec.nodes,
            begin_s=spec.begin_s,
            held=spec.held,
        )
        self.jobs[job_id] = self.waiting[job_id] = job
        if len(choices) > 1:
            self._choices[job_id] = choices
        if spec.array_job_id is not None:
            self.arrays.setdefault(spec.array_job_id, []).append(job)
        self.limits.count_submitted(job.user, spec.account, spec.qos, choices[0], 1)
        self.priorities.give(job)
        return job

    def _is_known(self, job_id: int) -> bool:
        return job_id in self.jobs or job_id in self.arrays

    def review(self, job: JobRecord, now_s: int) -> None:
        """Lets a waiting job compete if nothing keeps it back any more."""
        job.reason = self._kept_back_by(job, now_s)
        if not job.reason:
            job.reason = "None"
            job.eligible_s = now_s if job.begin_s is None else max(job.begin_s, job.submit_s)
            job.accrues_s = job.eligible_s if job.accrues_s is None else job.accrues_s
            self.competing[job.job_id] = self.waiting.pop(job.job_id)
            self._queue_of_s = None
        job.priority = self._recalculated(
            job, self._calculated(now_s - 1)
        )  # which comes later in its second

    def _kept_back_by(self, job: JobRecord, now_s: int) -> str:
        if job.held:
            return "JobHeldUser"
        job.dependencies, verdict = job.dependencies.review(
            lambda dependency: self._verdict(dependency, now_s)
        )
        if verdict is not Verdict.MET:
            return str(verdict.value)
        return "BeginTime" if job.begin_s is not None and job.begin_s > now_s else ""

    def _verdict(self, dependency: Dependency, now_s: int) -> Verdict:
        jobs = self.arrays.get(dependency.job_id) or [self.jobs[dependency.job_id]]
        started = all(_has_started(job, now_s - dependency.delay_s) for job in jobs)
        over = all(job.state.is_over for job in jobs)
        return dependency.verdict(
            started=started, over=over, ok=all(job.state is State.COMPLETED for job in jobs)
        )

    def note_reasons(self) -> bool:
        """As a pass begins: whether a pending job has a reason that is none of a pass's own, and
        was not noted before.

        slurmctld notes it to tell slurmdbd (`build_job_queue`: state_reason_prev_db), and counts it
        as a change.
        """
        pending = self.waiting | self.competing
        reasons = {
            job_id: job.reason for job_id, job in pending.items() if job.reason not in PASSES_OWN
        }
        news = any(self._noted.get(job_id) != reason for job_id, reason in reasons.items())
        self._noted |= reasons
        return news

    def hold(self, job: JobRecord, now_s: int) -> None:
        self.forget_pending(job)
        self.waiting[job.job_id] = job
        job.held, job.eligible_s, job.priority, job.reason = True, None, 0, "JobHeldUser"
        if job.begin_s is not None and job.begin_s <= now_s:
            job.begin_s = None

    def release(self, job: JobRecord) -> None:
        job.held, job.reason = False, "None"
        self.priorities.give(job)

    def forget_pending(self, job: JobRecord) -> None:
        self.waiting.pop(job.job_id, None)
        if self.competing.pop(job.job_id, None):
            self._queue_of_s = None

    def queue(self, seen_s: int) -> list[Turn]:
        """The competing jobs in order; priorities are refreshed each PriorityCalcPeriod, as seen by
        this time.

        A job in several partitions has a turn in each.
        """
        calculated_s = self._calculated(seen_s)
        self.priorities.calculate(calculated_s)
        if self._queue_of_s != calculated_s:
            self._queue_of_s = calculated_s
            for job in (*self.competing.values(), *self.waiting.values()):
                job.priority = self._recalculated(job, calculated_s)
            turns = [
                turn for job in self.competing.values() for turn in self._turns(job, calculated_s)
            ]
            self._queue = sorted(turns, key=self._rank)
        return self._queue

    def _recalculated(self, job: JobRecord, calculated_s: int) -> int:
        in_several = job.job_id in self._choices
        return (self.priorities.of if in_several else self.priorities.recalculated)(
            job, calculated_s
        )

    def _turns(self, job: JobRecord, calculated_s: int) -> Iterator[Turn]:
        choices = self._choices.get(job.job_id)
        if choices is None:
            yield Turn(job, job.partition, job.priority)
            return
        for partition in choices:
            job.partition = partition
            yield Turn(job, partition, self.priorities.of(job, calculated_s))
        job.partition = choices[0]

    def settle(self) -> None:
        """After a pass: jobs in several partitions show the first again."""
        for job, partition, priority in self._queue if self._choices else ():
            if job.state is State.PENDING and partition == self._choices.get(job.job_id, ("",))[0]:
                job.partition, job.priority = partition, priority

    def keep_priorities(self) -> None:
        """From now on the priority of whoever has one stays as it is; in several partitions it is
        that of the first.
        """
        self.priorities.kept = True
        if self._choices:
            self.reorder()

    def reorder(self) -> None:
        """What the order depends on has changed."""
        self._queue_of_s = None

    def _calculated(self, seen_s: int) -> int:
        """When priorities were last calculated, as far as anything has seen it."""
        period_s = self._params.priority_calc_period_s
        self._calculated_s = max(self._calculated_s, seen_s - (seen_s - self._start_s) % period_s)
        return self._calculated_s

    def _rank(self, turn: Turn) -> tuple[bool, int, int, int, int]:
        """Jobs in a reservation come first."""
        job = turn.job
        return (
            job.spec.reservation is None,
            -self.partitions[turn.partition].priority_tier,
            -turn.priority,
            job.submit_s,
            job.job_id,
        )

    # ---- running jobs

    def held(self, job: JobRecord, now_s: int) -> Held:
        """What backfill expects of a running job."""
        start_s = now_s if job.start_s is None else job.start_s
        limit_s = job.time_limit_s or YEAR_S
        end_s, over_s = start_s + limit_s + job.suspended_s, self.over_time_limit_s(job)
        overdue_s = (
            now_s + limit_s if over_s == YEAR_S else end_s + self._params.kill_wait_s + over_s
        )
        return Held(
            end_s, job.allocated, self.request(job.spec, self.partitions[job.partition]), overdue_s
        )

    def over_time_limit_s(self, job: JobRecord) -> int:
        """How long after its limit it is killed."""
        of_partition = self.partitions[job.partition].over_time_limit_s
        return self._params.over_time_limit_s if of_partition is None else of_partition

    def start(self, job: JobRecord, nodes: int, scheduler: str, now_s: int) -> None:
        self.forget_pending(job)
        self.running[job.job_id] = job
        job.state, job.reason, job.start_s, job.scheduler = State.RUNNING, "None", now_s, scheduler
        self._occupy(job, nodes, now_s)
        if job.spec.array_job_id is not None:
            self._tasks_running[job.spec.array_job_id] += 1

    def _occupy(self, job: JobRecord, nodes: int, now_s: int) -> None:
        job.allocated = nodes
        job.node_names = tuple(self.node_names[index] for index in bits(nodes))
        self._take(job, now_s)
        self._count(job, now_s, 1)

    def _take(self, job: JobRecord, now_s: int) -> None:
        self._account_energy(now_s)
        self.pool.take(job.allocated, self.request(job.spec, self.partitions[job.partition]))
        self._power_w = self._power()

    def _give(self, job: JobRecord, now_s: int) -> None:
        self._account_energy(now_s)
        self.pool.give(job.allocated, self.request(job.spec, self.partitions[job.partition]))
        self._power_w = self._power()

    def _count(self, job: JobRecord, now_s: int, sign: int) -> None:
        use = self._use(job, job.allocated)
        self.limits.count(job.user, job.spec.account, job.spec.qos, job.partition, use, sign)
        if sign > 0:
            factor = self.limits.qos_of(job.spec.qos).usage_factor
            self.fairshare.start(
                job.job_id, job.spec.account, job.user, self._billing(job, use), factor, now_s
            )
        else:
            self.fairshare.stop(job.job_id, now_s)

    def _billing(self, job: JobRecord, use: Use) -> float:
        """What it is billed for each second (TRESBillingWeights, `assoc_mgr_tres_weighted`)."""
        partition = self.partitions[job.partition]
        memory_mib = self.memory_mib(job.spec) if self._params.memory_is_consumable else 0
        amounts = (
            use.cpus * partition.billing_weight_cpus,
            use.nodes * memory_mib * partition.billing_weight_memory,
            use.nodes * partition.billing_weight_nodes,
            use.gpus * partition.billing_weight_gpus,
        )
        return max(amounts) if self._params.max_tres else sum(amounts)

    def vacate(self, job: JobRecord, now_s: int) -> None:
        """A running or suspended job gives its nodes back; `finish` or `requeue` must follow."""
        if self.suspended.pop(job.job_id, None) is None:
            del self.running[job.job_id]
            self._give(job, now_s)
        self._count(job, now_s, -1)
        if job.spec.array_job_id is not None:
            self._tasks_running[job.spec.array_job_id] -= 1

    def suspend(self, job: JobRecord, now_s: int) -> None:
        self.suspended[job.job_id] = self.running.pop(job.job_id)
        job.state = State.SUSPENDED
        self._give(job, now_s)

    def resume(self, job: JobRecord, suspended_s: int, now_s: int) -> None:
        request = self.request(job.spec, self.partitions[job.partition])
        if job.allocated & ~(self.pool.hosts(request) & self.up):
            names = ", ".join(job.node_names)
            raise SimulationError(
                f"job {job.job_id} can't be resumed: other jobs, or nobody, can use {names} now"
            )
        self.running[job.job_id] = self.suspended.pop(job.job_id)
        job.state, job.suspended_s = State.RUNNING, job.suspended_s + suspended_s
        self._take(job, now_s)

    def resize(self, job: JobRecord, nodes: int, now_s: int) -> None:
        """A running job keeps its first nodes, or gets more; a pending one asks for so many."""
        if job.state is State.PENDING:
            for name in self._choices.get(job.job_id, (job.partition,)):
                self._check_size(replace(job.spec, nodes=nodes), self.partitions[name])
            job.nodes = nodes
            self.priorities.forget(job)
            self.reorder()
            return
        kept = sum(1 << index for index in list(bits(job.allocated))[:nodes])
        if nodes > job.nodes:
            kept |= self._more(job, nodes - job.nodes, now_s)
        self._give(job, now_s)
        self._count(job, now_s, -1)
        job.nodes = nodes
        self._occupy(job, kept, now_s)

    def _more(self, job: JobRecord, count: int, now_s: int) -> int:
        wish = self.wish(job)
        taken = self.calendar.taken(wish.reservation, now_s, job.limit_end_s or now_s + YEAR_S)
        free = self.pool.hosts(wish.request) & wish.able & ~taken & ~job.allocated
        if free.bit_count() < count:
            raise SimulationError(
                f"job {job.job_id} can't get {count} more nodes: {free.bit_count()} are free for it"
            )
        self.pick.attempt(free, wish.preferred)
        return self.pick(free, count, self.pool, wish.request, starts=True)

    def finish(self, job: JobRecord, state: State, now_s: int) -> None:
        job.state, job.end_s, job.reason = state, now_s, "None"
        self.finished.append(job)
        first = self._choices.pop(job.job_id, (job.partition,))[0]
        self.limits.count_submitted(job.user, job.spec.account, job.spec.qos, first, -1)

    def requeue(self, job: JobRecord, state: State, now_s: int) -> JobRecord:
        """Puts it back into the queue; returns the record of the run that ended so."""
        run = replace(job, state=state, end_s=now_s)
        self.cut_short.append(run)
        job.state, job.submit_s, job.begin_s = (
            State.PENDING,
            now_s,
            now_s + self._params.requeue_delay_s,
        )
        job.eligible_s = job.accrues_s = job.start_s = None
        job.allocated, job.node_names, job.scheduler, job.suspended_s = 0, (), "", 0
        job.restarts += 1
        job.partition = self._choices.get(job.job_id, (job.partition,))[0]
        self.priorities.forget(job)
        self.waiting[job.job_id] = job
        return run

    # ---- nodes

    def change_node(self, node: str, action: NodeAction, now_s: int) -> list[JobRecord]:
        """Takes the node out or back in; returns the jobs that this ends."""
        bit = self.bit(node)
        self._account_energy(now_s)
        if action is NodeAction.RESUME:
            self._back(node, bit, now_s)
        elif self.up & bit:
            self.up &= ~bit
            self.outages.append(NodeOutage(node, now_s))
        self._power_w = self._power()
        if action is not NodeAction.DOWN:
            return []
        there = (*self.running.values(), *self.suspended.values())
        return [job for job in there if job.allocated & bit]

    def _back(self, node: str, bit: int, now_s: int) -> None:
        if not self.up & bit:
            self.up |= bit
            last = max(index for index, outage in enumerate(self.outages) if outage.node == node)
            self.outages[last] = replace(self.outages[last], end_s=now_s)

    # ---- energy

    def energy_j(self, now_s: int) -> float:
        """Joules since the start: busy nodes draw `busy_w`, idle ones that take jobs `idle_w`,
        others nothing.
        """
        self._account_energy(now_s)
        return self._energy_j

    def start_meter(self, now_s: int) -> None:
        """Energy counts from now."""
        self._energy_j, self._energy_of_s, self._power_w = 0.0, now_s, self._power()

    def _account_energy(self, now_s: int) -> None:
        self._energy_j += self._power_w * (now_s - self._energy_of_s)
        self._energy_of_s = now_s

    def _power(self) -> float:
        power_w = 0.0
        for index, node in enumerate(self._config.nodes if self._draws_power else ()):
            if not self.pool.idle >> index & 1:
                power_w += node.busy_w
            elif self.up >> index & 1:
                power_w += node.idle_w
        return power_w


def _has_started(job: JobRecord, by_s: int) -> bool:
    return job.state.is_over or (job.start_s is not None and job.start_s <= by_s)
