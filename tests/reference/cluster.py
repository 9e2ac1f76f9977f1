"""Nodes and jobs, and how they change. When they change is `simulator.py`'s business."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from slurm_sim.admission import Admission, NodeRequest, bits
from slurm_sim.config import YEAR_S, ClusterConfig, NodeAction, NodeOutage
from slurm_sim.dependency import parse_dependency
from slurm_sim.errors import SimulationError, UnknownJob
from slurm_sim.jobs import JobRecord, JobSpec, State
from slurm_sim.picking import Picker
from slurm_sim.ranges import known_id
from slurm_sim.resources import FreeResources
from tests.reference.backfill import Holding, Wish
from tests.reference.energy import EnergyMeter
from tests.reference.fairshare import FairShare
from tests.reference.limits import Claimant, LimitCounters, Use
from tests.reference.priority import Priorities
from tests.reference.queue import JobQueue
from tests.reference.reservations import Calendar


class ClusterState:
    """What slurmctld keeps in memory. Sets of nodes are bits of an int, the first node the lowest
    bit.
    """

    def __init__(self, config: ClusterConfig, start_s: int) -> None:
        self.admission = admission = Admission(config)
        self.is_linear = admission.is_linear
        self.up = admission.every_node
        """Nodes that take jobs: neither down nor drained."""
        self.pool, self._empty = FreeResources(config.nodes), FreeResources(config.nodes)
        self.pick = Picker(config.params.select_type, config.nodes)
        self.calendar = Calendar(config.reservations, admission.reserved)
        self.limits = LimitCounters(admission)
        self.fairshare = FairShare(config.params, config.associations, start_s)
        self.priorities = Priorities(admission, self.fairshare)
        self.jobs: dict[int, JobRecord] = {}
        self.arrays: dict[int, list[JobRecord]] = {}
        self.queue = JobQueue(admission, self.priorities, self.jobs, self.arrays, start_s=start_s)
        self.running: dict[int, JobRecord] = {}
        self.suspended: dict[int, JobRecord] = {}
        self.finished: list[JobRecord] = []
        self.cut_short: list[JobRecord] = []
        self.outages: list[NodeOutage] = []
        self.meter = EnergyMeter(config.nodes, start_s)
        self.meter.reset(self.pool.idle, self.up, start_s)
        self._params = config.params
        self._tasks_running = Counter[int]()

    def find(self, job_id: int) -> JobRecord:
        """Raises UnknownJob."""
        job_id = known_id(job_id)
        if job_id not in self.jobs:
            raise UnknownJob(
                f"job {job_id} has not been submitted yet; look at pending(), running(), finished()"
            )
        return self.jobs[job_id]

    def is_known(self, job_id: int) -> bool:
        """Whether a job or an array of this id was submitted."""
        return job_id in self.jobs or job_id in self.arrays

    # ---- what a job needs

    def request(self, job: JobRecord) -> NodeRequest:
        """What it takes on each node, in its partition."""
        return self.admission.request(job.spec, self.admission.partitions[job.partition])

    def listed(self, job: JobRecord) -> int:
        """Nodes of its partition on which slurmctld tries to start it."""
        return self.admission.listed(job.spec, self.admission.partitions[job.partition])

    def suitable(self, job: JobRecord) -> int:
        """Nodes of its partition on which it could run if they were empty."""
        return self.admission.suitable(job.spec, self.admission.partitions[job.partition])

    def wish(self, job: JobRecord) -> Wish:
        """What the schedulers look for, on nodes that take jobs."""
        return Wish(
            usable=self.up & self.listed(job),
            able=self.up & self.suitable(job),
            needed=job.nodes,
            request=self.request(job),
            limit_s=job.time_limit_s or YEAR_S,
            asked_s=job.time_limit_s or YEAR_S,
            reservation=job.spec.reservation,
            preferred=self.limits.preferred(_claimant(job)),
        )

    def tested_at_submission(self, job: JobRecord) -> None:
        """slurmctld sees whether a new job could ever run."""
        if job.held or self.jobs_limit_reached(job):
            return
        wish = self.wish(job)
        self.pick.attempt(self.listed(job), wish.preferred)
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
            nodes = self.suitable(job)
        # A live cluster's queue may have jobs for which there are too few.
        if nodes.bit_count() <= wish.needed:
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
        return self.limits.reached(_claimant(job), use)

    def jobs_limit_reached(self, job: JobRecord) -> str:
        """The same, of limits that count jobs, which slurmctld looks at before it looks for nodes."""
        return self.limits.jobs_reached(_claimant(job))

    def _use(self, job: JobRecord, nodes: int) -> Use:
        request = self.request(job)
        counted = request._replace(cpus=self._params.counted_cpus(job.spec.cpus_per_node))
        return Use(
            nodes=nodes.bit_count(),
            cpus=self.pool.cpus(nodes, counted),
            gpus=self.pool.gpus(nodes, request),
            where=nodes,
        )

    def throttled(self, job: JobRecord) -> bool:
        """Whether its array's throttle lets no further task run; backfill plans more
        than may run.
        """
        array, throttle = job.spec.array_job_id, job.spec.array_throttle
        return array is not None and throttle is not None and self._tasks_running[array] >= throttle

    # ---- pending jobs

    def add(self, job_id: int, spec: JobSpec, now_s: int) -> JobRecord:
        """A job is submitted."""
        choices = self.admission.waits_in(spec)
        job = JobRecord(
            job_id=job_id,
            spec=spec,
            partition=choices[0],
            time_limit_s=self.admission.limit_s(spec),
            submit_s=now_s,
            dependencies=parse_dependency(spec.dependency).known(self.is_known),
            nodes=spec.nodes,
            begin_s=spec.begin_s,
            held=spec.held,
        )
        self.jobs[job_id] = job
        self.queue.add(job, choices)
        if spec.array_job_id is not None:
            self.arrays.setdefault(spec.array_job_id, []).append(job)
        self.limits.count_submitted(_claimant(job), 1)
        self.priorities.give(job)
        return job

    def refusal(self, spec: JobSpec) -> str:
        """The limit for which a submission is refused; empty: it is not."""
        partition = self.admission.waits_in(spec)[0]
        return self.limits.refusal(Claimant(spec.user, spec.account, spec.qos, partition))

    # ---- running jobs

    def holding(self, job: JobRecord, now_s: int) -> Holding:
        """What backfill expects of a running job."""
        start_s = now_s if job.start_s is None else job.start_s
        limit_s = job.time_limit_s or YEAR_S
        end_s, over_s = start_s + limit_s + job.suspended_s, self.over_time_limit_s(job)
        overdue_s = (
            now_s + limit_s if over_s == YEAR_S else end_s + self._params.kill_wait_s + over_s
        )
        return Holding(end_s, job.allocated, self.request(job), overdue_s)

    def over_time_limit_s(self, job: JobRecord) -> int:
        """How long after its limit it is killed."""
        of_partition = self.admission.partitions[job.partition].over_time_limit_s
        return self._params.over_time_limit_s if of_partition is None else of_partition

    def start(self, job: JobRecord, nodes: int, scheduler: str, now_s: int) -> None:
        self.queue.remove(job)
        self.running[job.job_id] = job
        job.state, job.reason, job.start_s, job.scheduler = State.RUNNING, "None", now_s, scheduler
        self._occupy(job, nodes, now_s)
        if job.spec.array_job_id is not None:
            self._tasks_running[job.spec.array_job_id] += 1

    def _occupy(self, job: JobRecord, nodes: int, now_s: int) -> None:
        job.allocated = nodes
        job.node_names = tuple(self.admission.node_names[index] for index in bits(nodes))
        self._take(job, now_s)
        self._count(job, now_s, 1)

    def _take(self, job: JobRecord, now_s: int) -> None:
        self.pool.take(job.allocated, self.request(job))
        self.meter.change(self.pool.idle, self.up, now_s)

    def _give(self, job: JobRecord, now_s: int) -> None:
        self.pool.give(job.allocated, self.request(job))
        self.meter.change(self.pool.idle, self.up, now_s)

    def _count(self, job: JobRecord, now_s: int, sign: int) -> None:
        use = self._use(job, job.allocated)
        self.limits.count(_claimant(job), use, sign)
        if sign < 0:
            self.fairshare.stop(job.job_id, now_s)
            return
        self.fairshare.start(
            job.job_id,
            job.spec.account,
            job.user,
            billing=self._billing(job, use),
            usage_factor=self.admission.qos_of(job.spec.qos).usage_factor,
            now_s=now_s,
        )

    def _billing(self, job: JobRecord, use: Use) -> float:
        """What it is billed for each second (TRESBillingWeights, `assoc_mgr_tres_weighted`)."""
        partition = self.admission.partitions[job.partition]
        memory_mib = self.admission.memory_mib(job.spec) if self._params.memory_is_consumable else 0
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
        request = self.request(job)
        if job.allocated & ~(self.pool.hosts(request) & self.up):
            names = ", ".join(job.node_names)
            raise SimulationError(
                f"job {job.job_id} can't be resumed: other jobs, or nobody, can use {names} now"
            )
        self.running[job.job_id] = self.suspended.pop(job.job_id)
        job.state, job.suspended_s = State.RUNNING, job.suspended_s + suspended_s
        self._take(job, now_s)

    def resize(self, job: JobRecord, nodes: int, now_s: int) -> None:
        """A running job keeps its first nodes, or gets more; a pending one asks for this many."""
        if job.state is State.PENDING:
            self.admission.check_resize(job.spec, nodes, self.queue.choices(job))
            job.nodes = nodes
            self.priorities.forget(job)
            self.queue.reorder()
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
        first = self.queue.forget(job)
        self.limits.count_submitted(_claimant(job)._replace(partition=first), -1)

    def requeue(self, job: JobRecord, state: State, now_s: int) -> JobRecord:
        """Puts it back into the queue; returns the record of the run that ended so."""
        run = replace(job, state=state, end_s=now_s)
        self.cut_short.append(run)
        job.state, job.submit_s = State.PENDING, now_s
        job.begin_s = now_s + self._params.requeue_delay_s
        job.eligible_s = job.accrues_s = job.start_s = None
        job.allocated, job.node_names, job.scheduler, job.suspended_s = 0, (), "", 0
        job.restarts += 1
        self.queue.put_back(job)
        return run

    # ---- nodes

    def change_node(self, node: str, action: NodeAction, now_s: int) -> list[JobRecord]:
        """Takes the node out or back in; returns the jobs that this ends."""
        bit = self.admission.bit(node)
        if action is NodeAction.RESUME:
            self._put_up(node, bit, now_s)
        elif self.up & bit:
            self.take_out(node, now_s)
        self.meter.change(self.pool.idle, self.up, now_s)
        if action is not NodeAction.DOWN:
            return []
        there = (*self.running.values(), *self.suspended.values())
        return [job for job in there if job.allocated & bit]

    def take_out(self, node: str, now_s: int) -> None:
        """The node takes no jobs from now on."""
        self.up &= ~self.admission.bit(node)
        self.outages.append(NodeOutage(node, now_s))

    def _put_up(self, node: str, bit: int, now_s: int) -> None:
        if not self.up & bit:
            self.up |= bit
            last = max(index for index, outage in enumerate(self.outages) if outage.node == node)
            self.outages[last] = replace(self.outages[last], end_s=now_s)


def _claimant(job: JobRecord) -> Claimant:
    return Claimant(job.user, job.spec.account, job.spec.qos, job.partition)
