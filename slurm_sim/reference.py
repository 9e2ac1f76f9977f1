"""A small, exact simulator of Slurm's scheduling on whole nodes: the rules in plain Python, to be read first.

It follows slurmctld 22.05 with select/linear to the second. What happens is ordered by (time, `Kind`, sequence
number), so equal input gives equal output everywhere:

* Jobs that end by themselves come first, then submissions, then begin times.
* A *backfill* pass runs `bf_interval_s` after the last one, or later, as soon as there is something new.
* The *limit check* runs each `limit_check_s` and ends what is over its limit; a main pass follows at once.
* A *main* pass over the whole queue runs each `sched_interval_s`. A submission, an end or a dropped dependency asks
  for one over the first `default_queue_depth` jobs, at least `batch_sched_delay_s` after the last of either kind.
* Calls from outside (`submit`, `cancel`, ...) come after everything that was due at their time.

Periods count from the simulator's start. Nothing starts between passes. Within a pass jobs come by partition tier,
priority, submission, id. The age in a priority is that at the last multiple of `priority_calc_period_s`.
"""

from __future__ import annotations

import copy
import heapq
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum

from slurm_sim.backfill import Outlook, Plan
from slurm_sim.dependency import Dependencies, Verdict, check_no_cycle, parse_dependency
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError, UnknownJob
from slurm_sim.model import JobRecord, JobSpec, NodeOutage, Params, Partition, State
from slurm_sim.nodes import pick_nodes
from slurm_sim.priority import Multifactor

__all__ = [
    "InvalidCluster",
    "InvalidJob",
    "JobRecord",
    "JobSpec",
    "NodeOutage",
    "Params",
    "Partition",
    "SimulationError",
    "Simulator",
    "State",
    "UnknownJob",
]

YEAR_S = 365 * 86400
"""What Slurm plans for a job without a limit."""

SECOND_US = 1_000_000
BACKFILL_PHASE_US = 400_000
"""Where in the second backfill looks at first; seen in replays on a real slurmctld."""

Hook = Callable[[JobRecord], None]


class Kind(IntEnum):
    """What happens, in the order of things within one second."""

    END = 0
    SUBMIT = 1
    BEGIN = 2
    BACKFILL = 3
    LIMIT = 4
    MAIN = 5


class Simulator:
    """A cluster and its queue.

    `on_start` and `on_end` are lists of functions that get the job's record once the event that started or ended it
    is done, at the same time; they may call the simulator.
    """

    def __init__(
        self,
        nodes: Sequence[str],
        partitions: Sequence[Partition],
        params: Params | None = None,
        jobs: Iterable[JobSpec] = (),
        start_s: int = 0,
    ) -> None:
        if start_s < 0:
            raise SimulationError(f"start_s is {start_s}; times count from 0")
        self.params = params or Params()
        self.node_names = tuple(nodes)
        self.partitions = {partition.name: partition for partition in partitions}
        self._masks = _partition_masks(self.node_names, partitions)
        self._multifactor = Multifactor(self.params, len(self.node_names), partitions)
        self.start_s = self.now_s = start_s
        self.on_start: list[Hook] = []
        self.on_end: list[Hook] = []
        self._news: list[tuple[State, JobRecord]] = []
        self._telling = False
        self._up = self._free = (1 << len(self.node_names)) - 1
        self._outages: list[NodeOutage] = []
        self._jobs: dict[int, JobRecord] = {}
        self._future: dict[int, JobSpec] = {}
        self._waiting: dict[int, JobRecord] = {}
        self._competing: dict[int, JobRecord] = {}
        self._running: dict[int, JobRecord] = {}
        self._running_of = Counter[str]()
        self._finished: list[JobRecord] = []
        self._cut_short: list[JobRecord] = []
        self._next_id = 1
        self._events: list[tuple[int, Kind, int, int]] = []
        self._sequence = 0
        self._end_event: dict[int, int] = {}
        self._limit_event: dict[int, int] = {}
        self._main_due_s: int | None = None
        self._main_wanted = self._review_wanted = False
        self._backfill_due_s: int | None = None
        self._happening: Kind | None = None
        self._last_main_s = self._last_full_s = start_s
        self._last_backfill_us = start_s * SECOND_US + BACKFILL_PHASE_US
        self._ordered: list[JobRecord] = []
        self._ordered_s: int | None = None
        self._load(list(jobs))

    # ---- time

    def step(self, seconds: int) -> None:
        """Goes on by this many seconds."""
        self.run_until(self.now_s + seconds)

    def run_until(self, time_s: int) -> None:
        """Goes on until everything due up to and at this time has happened."""
        if time_s < self.now_s:
            raise SimulationError(f"can't run until {time_s}: it is {self.now_s} already; fork() before, to go back")
        while (due := self._next()) is not None and due[0] <= time_s:
            self.now_s = due[0]
            self._happen(due[1])
            self._tell()
            self._happening = None
        self.now_s = time_s

    def run(self) -> list[JobRecord]:
        """Goes on until nothing more can happen; returns the jobs that can't start, each with its reason.

        It ends if the hooks don't submit for ever.
        """
        while (next_s := self.next_event_s()) is not None:
            self.run_until(next_s)
        return self.pending()

    def next_event_s(self) -> int | None:
        """When something is due next; None: nothing will happen any more without a call from outside."""
        due = self._next()
        return None if due is None else due[0]

    def _next(self) -> tuple[int, Kind] | None:
        return min(self._due(), default=None)

    def _due(self) -> Iterator[tuple[int, Kind]]:
        if self._events:
            yield self._events[0][:2]
        if self._main_due_s is not None:
            yield self._main_due_s, Kind.MAIN
        if self._main_wanted or (self._competing and self._events):
            yield self._next_full_s(), Kind.MAIN
        if self._backfill_due_s is not None:
            yield self._backfill_due_s, Kind.BACKFILL
        if self._competing and self._events:
            yield self._recalculated_backfill_s(), Kind.BACKFILL

    def _next_full_s(self) -> int:
        done_s = max(self._last_full_s, self.now_s - 1)
        return (
            self.start_s + ((done_s - self.start_s) // self.params.sched_interval_s + 1) * self.params.sched_interval_s
        )

    def _recalculated_backfill_s(self) -> int:
        """When backfill will have noticed the first recalculation of priorities since its last pass."""
        since_s = self._last_backfill_us // SECOND_US - self.start_s
        calculated_s = self.start_s + _round_up(since_s, self.params.priority_calc_period_s)
        return max(self.now_s, self._next_look_s(calculated_s + 1))

    def _happen(self, kind: Kind) -> None:
        self._happening = kind
        if kind is Kind.MAIN:
            self._main_pass()
        elif kind is Kind.BACKFILL:
            self._backfill_pass()
        else:
            _, _, sequence, job_id = heapq.heappop(self._events)
            self._job_event(kind, sequence, job_id)

    def _job_event(self, kind: Kind, sequence: int, job_id: int) -> None:
        if kind is Kind.SUBMIT:
            self._enter(job_id, self._future.pop(job_id))
        elif kind is Kind.BEGIN:
            self._review_wanted = self._main_wanted = True
        elif kind is Kind.END and self._end_event.get(job_id) == sequence:
            self._end_by_itself(self._running[job_id])
        elif kind is Kind.LIMIT and self._limit_event.get(job_id) == sequence:
            self._kill(self._running[job_id], State.TIMEOUT)

    def _push(self, time_s: int, kind: Kind, job_id: int) -> int:
        self._sequence += 1
        heapq.heappush(self._events, (time_s, kind, self._sequence, job_id))
        return self._sequence

    def _changed(self) -> None:
        self._main_wanted = self._review_wanted = True
        self._news_for_backfill()

    def _news_for_backfill(self) -> None:
        due_s = self._next_look_s(self.now_s + (self._happening in (Kind.LIMIT, Kind.MAIN)))
        self._backfill_due_s = due_s if self._backfill_due_s is None else min(due_s, self._backfill_due_s)

    def _next_look_s(self, news_s: int) -> int:
        """When backfill notices: `bf_interval_s` after its last pass and then each second it looks for news."""
        first_us = self._last_backfill_us + self.params.bf_interval_s * SECOND_US
        return max(first_us, news_s * SECOND_US + first_us % SECOND_US) // SECOND_US

    def _ask_main(self) -> None:
        last_full_s = self.now_s - (self.now_s - self.start_s) % self.params.sched_interval_s
        earliest_s = max(self.now_s, max(self._last_main_s, last_full_s) + self.params.batch_sched_delay_s)
        if self._main_due_s is None:
            self._main_due_s = earliest_s

    def _tell(self) -> None:
        """Calls the hooks; what they cause is told after what was there before."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._news:
                state, job = self._news.pop(0)
                for hook in list(self.on_start if state is State.RUNNING else self.on_end):
                    hook(job)
        finally:
            self._telling = False

    # ---- what a user or an operator does

    def submit(self, spec: JobSpec) -> int:
        """Submits now, or at `spec.submit_s`; returns the job's id. Raises InvalidJob."""
        submit_s = self.now_s if spec.submit_s is None else spec.submit_s
        if submit_s < self.now_s:
            raise InvalidJob(f"submit_s is {submit_s}, in the past (now: {self.now_s}); leave it out to submit now")
        job_id = self._take_id(spec)
        if submit_s > self.now_s:
            self._future[job_id] = spec
            self._push(submit_s, Kind.SUBMIT, job_id)
        else:
            self._enter(job_id, spec)
        return job_id

    def cancel(self, job_id: int) -> None:
        """As scancel: a job that is over already is no error."""
        job = self._find(job_id)
        if job.state is State.RUNNING:
            self._kill(job, State.CANCELLED)
        elif job.state is State.PENDING:
            self._forget_pending(job)
            self._finish(job, State.CANCELLED)
        self._tell()

    def requeue(self, job_id: int) -> None:
        """As `scontrol requeue` of a running job: it is submitted anew, with a begin time shortly after now."""
        job = self._find(job_id)
        if job.state is not State.RUNNING:
            raise SimulationError(f"job {job_id} is {job.state.value}; only a running job can be requeued")
        self._requeue(job, State.REQUEUED)
        self._tell()

    def drop_dependency(self, job_id: int) -> None:
        """As `scontrol update JobId=... Dependency=`: a pending job competes from now. Others are left alone."""
        job = self._find(job_id)
        if job.state is State.PENDING and job.dependencies:
            job.dependencies = Dependencies()
            self._review_job(job)
            self._changed()
            self._ask_main()

    def hold(self, job_id: int) -> None:
        """As `scontrol hold`; the job's age begins anew when it is released."""
        job = self._find_pending(job_id)
        self._forget_pending(job)
        job.held, job.eligible_s, job.priority, job.reason = True, None, 0, "JobHeldUser"
        self._waiting[job_id] = job
        self._changed()

    def release(self, job_id: int) -> None:
        """As `scontrol release`: the next pass considers the job."""
        job = self._find_pending(job_id)
        if job.held:
            job.held, job.reason = False, "None"
            job.priority = self._priority(job)
            self._changed()
            self._ask_main()

    def set_runtime_end(self, job_id: int, end_s: int) -> None:
        """The running job ends by itself at this time (unless its limit ends it before)."""
        job = self._find(job_id)
        if job.state is not State.RUNNING:
            raise SimulationError(f"job {job_id} is {job.state.value}; only a running job's end can be set")
        if end_s < self.now_s:
            raise SimulationError(f"job {job_id} can't end at {end_s}: it is {self.now_s} already")
        self._end_event[job_id] = self._push(end_s, Kind.END, job_id)

    def node_down(self, name: str) -> None:
        """The node fails: its job is requeued, or ends as NODE_FAIL."""
        bit = self._bit(name)
        if not self._up & bit:
            return
        self._up &= ~bit
        self._outages.append(NodeOutage(name, self.now_s))
        for job in [job for job in self._running.values() if job.allocated & bit]:
            if job.spec.requeue:
                self._requeue(job, State.NODE_FAIL)
            else:
                self._kill(job, State.NODE_FAIL)
        self._changed()
        self._tell()

    def node_up(self, name: str) -> None:
        """The node can be used again."""
        bit = self._bit(name)
        if self._up & bit:
            return
        self._up |= bit
        index = next(i for i, outage in enumerate(self._outages) if outage.node == name and outage.end_s is None)
        self._outages[index] = replace(self._outages[index], end_s=self.now_s)
        self._changed()
        self._ask_main()

    # ---- what there is to see

    def job(self, job_id: int) -> JobRecord:
        """A job that has been submitted. Raises UnknownJob."""
        return replace(self._find(job_id))

    def pending(self) -> list[JobRecord]:
        """By id."""
        both = {**self._waiting, **self._competing}
        return [replace(both[job_id]) for job_id in sorted(both)]

    def running(self) -> list[JobRecord]:
        """By id."""
        return [replace(self._running[job_id]) for job_id in sorted(self._running)]

    def finished(self, since_s: int | None = None) -> list[JobRecord]:
        """Jobs that are over (if since this time), in the order in which they ended."""
        first = len(self._finished)
        while first > 0 and (since_s is None or _end_of(self._finished[first - 1]) >= since_s):
            first -= 1
        return [replace(job) for job in self._finished[first:]]

    def cut_short(self) -> list[JobRecord]:
        """The runs that a requeue or a node failure ended; their jobs went back into the queue."""
        return [replace(job) for job in self._cut_short]

    def outages(self) -> list[NodeOutage]:
        """When nodes were down, by beginning."""
        return list(self._outages)

    def is_up(self, node: str) -> bool:
        return bool(self._up & self._bit(node))

    def is_idle(self, node: str) -> bool:
        """Up, and nothing on it."""
        return bool(self._up & self._free & self._bit(node))

    def fork(self) -> Simulator:
        """An exact copy that goes its own way. The hooks stay here."""
        shared = {"params", "node_names", "partitions", "_masks", "_multifactor"}
        memo: dict[int, object] = {id(job.spec): job.spec for job in self._jobs.values()}
        own = {name: value for name, value in vars(self).items() if name not in shared}
        own |= {"on_start": [], "on_end": [], "_news": [], "_telling": False}
        twin = copy.copy(self)
        vars(twin).update(copy.deepcopy(own, memo))
        return twin

    # ---- jobs come and go

    def _load(self, specs: list[JobSpec]) -> None:
        dependencies = {}
        for spec in specs:
            if spec.submit_s is not None and spec.submit_s < self.start_s:
                raise InvalidJob(f"submit_s is {spec.submit_s}, before the simulator's start ({self.start_s})")
            job_id = self._take_id(spec)
            dependencies[job_id] = parse_dependency(spec.dependency)
            self._future[job_id] = spec
            self._push(self.start_s if spec.submit_s is None else spec.submit_s, Kind.SUBMIT, job_id)
        check_no_cycle(dependencies)

    def _take_id(self, spec: JobSpec) -> int:
        self._check(spec)
        job_id = self._next_id if spec.job_id is None else spec.job_id
        if job_id in self._jobs or job_id in self._future:
            raise InvalidJob(f"job {job_id} exists already; give another job_id, or none")
        if any(item.job_id == job_id for item in parse_dependency(spec.dependency).items):
            raise InvalidJob(f"job {job_id} would wait for itself ({spec.dependency}); remove this dependency")
        self._next_id = max(self._next_id, job_id + 1)
        return job_id

    def _check(self, spec: JobSpec) -> None:
        if spec.partition is not None and spec.partition not in self.partitions:
            known = ", ".join(self.partitions)
            raise InvalidJob(f"partition {spec.partition!r} does not exist; this cluster has {known}")
        partition = self._partition_of(spec)
        for name, least in (("nodes", 1), ("time_limit_s", 1), ("runtime_s", 0), ("submit_s", 0), ("begin_s", 0)):
            value = getattr(spec, name)
            if value is not None and value < least:
                raise InvalidJob(f"{name} is {value}; give at least {least}")
        if spec.nodes > len(partition.nodes):
            raise InvalidJob(f"{spec.nodes} nodes asked for; partition {partition.name!r} has {len(partition.nodes)}")
        limit_s = spec.time_limit_s or partition.max_time_s
        if partition.max_time_s is not None and limit_s is not None and limit_s > partition.max_time_s:
            raise InvalidJob(f"limit of {limit_s} s; partition {partition.name!r} allows {partition.max_time_s} s")
        if limit_s is None and spec.runtime_s is None:
            raise InvalidJob("the job would never end; give time_limit_s or runtime_s")

    def _partition_of(self, spec: JobSpec) -> Partition:
        return self.partitions[spec.partition or next(iter(self.partitions))]

    def _enter(self, job_id: int, spec: JobSpec) -> None:
        partition = self._partition_of(spec)
        job = JobRecord(
            job_id=job_id,
            spec=spec,
            partition=partition.name,
            time_limit_s=spec.time_limit_s or partition.max_time_s,
            submit_s=self.now_s,
            dependencies=parse_dependency(spec.dependency).without_unknown(self._jobs.__contains__),
            begin_s=spec.begin_s,
            held=spec.held,
        )
        self._jobs[job_id] = job
        self._queue(job)

    def _queue(self, job: JobRecord) -> None:
        self._waiting[job.job_id] = job
        if job.begin_s is not None and job.begin_s > self.now_s:
            self._push(job.begin_s, Kind.BEGIN, job.job_id)
        self._review_job(job)
        self._changed()
        self._ask_main()

    def _review(self) -> None:
        """Lets those compete that nothing keeps back any more."""
        if self._review_wanted:
            self._review_wanted = False
            for job in list(self._waiting.values()):
                self._review_job(job)

    def _review_job(self, job: JobRecord) -> None:
        job.reason = self._kept_back_by(job) or "None"
        if job.reason == "None":
            job.dependencies = Dependencies()
            job.eligible_s = self.now_s if job.begin_s is None else max(job.begin_s, job.submit_s)
            del self._waiting[job.job_id]
            self._competing[job.job_id] = job
            self._ordered_s = None
        job.priority = self._priority(job)

    def _kept_back_by(self, job: JobRecord) -> str:
        if job.held:
            return "JobHeldUser"
        verdict = self._verdict(job.dependencies)
        if verdict is not Verdict.MET:
            return verdict.value
        return "BeginTime" if job.begin_s is not None and job.begin_s > self.now_s else ""

    def _verdict(self, dependencies: Dependencies) -> Verdict:
        others = ((item, self._jobs[item.job_id]) for item in dependencies.items)
        return dependencies.verdict(
            item.verdict(
                started=other.state is not State.PENDING,
                over=other.state.is_over,
                ok=other.state is State.COMPLETED,
            )
            for item, other in others
        )

    def _start(self, job: JobRecord, nodes: int, scheduler: str) -> None:
        self._forget_pending(job)
        self._free &= ~nodes
        job.state, job.reason, job.start_s, job.scheduler = State.RUNNING, "None", self.now_s, scheduler
        job.allocated, job.node_names = nodes, self._names(nodes)
        self._running[job.job_id] = job
        self._running_of[job.user] += 1
        if job.spec.runtime_s is not None:
            self._end_event[job.job_id] = self._push(self.now_s + job.spec.runtime_s, Kind.END, job.job_id)
        if job.limit_end_s is not None:
            killed_s = _round_up(job.limit_end_s - self.start_s, self.params.limit_check_s) + self.start_s
            self._limit_event[job.job_id] = self._push(killed_s, Kind.LIMIT, job.job_id)
        self._news.append((State.RUNNING, replace(job)))
        self._changed()

    def _end_by_itself(self, job: JobRecord) -> None:
        over_limit = job.limit_end_s is not None and self.now_s > job.limit_end_s
        ended = State.TIMEOUT if over_limit else State.FAILED if job.spec.exit_code else State.COMPLETED
        self._vacate(job)
        self._finish(job, ended)
        self._ask_main()

    def _kill(self, job: JobRecord, state: State) -> None:
        self._vacate(job)
        self._finish(job, state)
        self._main_due_s = self.now_s

    def _requeue(self, job: JobRecord, state: State) -> None:
        self._vacate(job)
        run = replace(job, state=state, end_s=self.now_s)
        self._cut_short.append(run)
        self._news.append((state, replace(run)))
        job.state, job.submit_s, job.begin_s = State.PENDING, self.now_s, self.now_s + self.params.requeue_delay_s
        job.eligible_s = job.start_s = None
        job.allocated, job.node_names, job.scheduler = 0, (), ""
        job.restarts += 1
        self._queue(job)

    def _vacate(self, job: JobRecord) -> None:
        del self._running[job.job_id]
        self._running_of[job.user] -= 1
        self._end_event.pop(job.job_id, None)
        self._limit_event.pop(job.job_id, None)
        self._free |= job.allocated

    def _finish(self, job: JobRecord, state: State) -> None:
        job.state, job.end_s, job.reason = state, self.now_s, "None"
        self._finished.append(job)
        self._news.append((state, replace(job)))
        self._changed()

    def _forget_pending(self, job: JobRecord) -> None:
        self._waiting.pop(job.job_id, None)
        if self._competing.pop(job.job_id, None):
            self._ordered_s = None

    def _find(self, job_id: int) -> JobRecord:
        if job_id not in self._jobs:
            raise UnknownJob(f"job {job_id} has not been submitted (at {self.now_s})")
        return self._jobs[job_id]

    def _find_pending(self, job_id: int) -> JobRecord:
        job = self._find(job_id)
        if job.state is not State.PENDING:
            raise SimulationError(f"job {job_id} is {job.state.value}, no longer pending execution")
        return job

    def _bit(self, node: str) -> int:
        if node not in self.node_names:
            raise SimulationError(f"node {node!r} does not exist; this cluster has {', '.join(self.node_names)}")
        return 1 << self.node_names.index(node)

    def _names(self, nodes: int) -> tuple[str, ...]:
        return tuple(name for index, name in enumerate(self.node_names) if nodes >> index & 1)

    # ---- scheduling

    def _priority(self, job: JobRecord) -> int:
        calculated_s = self.now_s - (self.now_s - self.start_s) % self.params.priority_calc_period_s
        return self._multifactor.of(job, calculated_s)

    def _in_order(self) -> list[JobRecord]:
        calculated_s = self.now_s - (self.now_s - self.start_s) % self.params.priority_calc_period_s
        if self._ordered_s != calculated_s:
            self._ordered_s = calculated_s
            for job in self._competing.values():
                job.priority = self._multifactor.of(job, calculated_s)
            self._ordered = sorted(self._competing.values(), key=self._rank)
        return self._ordered

    def _rank(self, job: JobRecord) -> tuple[int, int, int, int]:
        return -self.partitions[job.partition].priority_tier, -job.priority, job.submit_s, job.job_id

    def _at_user_limit(self, job: JobRecord) -> bool:
        limit = self.params.max_jobs_per_user
        if limit is None or self._running_of[job.user] < limit:
            return False
        job.reason = "QOSMaxJobsPerUserLimit"
        return True

    def _main_pass(self) -> None:
        """Starts jobs in strict order; one that does not fit stops its partition and keeps the partition's nodes."""
        full = self.now_s == self._next_full_s()
        self._last_main_s, self._main_due_s = self.now_s, None
        if full:
            self._last_full_s, self._main_wanted = self.now_s, False
        self._review()
        stopped: set[str] = set()
        nodes = self._up
        for job in self._in_order()[: None if full else self.params.default_queue_depth + 1]:
            if self._at_user_limit(job):
                continue
            if job.partition in stopped:
                job.reason = "Priority"
                self._news_for_backfill()
                continue
            available = nodes & self._free & self._masks[job.partition]
            if available.bit_count() >= job.nodes:
                self._start(job, pick_nodes(available, job.nodes), "main")
            else:
                job.reason = "Resources"
                stopped.add(job.partition)
                nodes &= ~self._masks[job.partition]

    def _backfill_pass(self) -> None:
        """Starts what delays no reservation; each tested job that can't start gets one.

        Reservations don't outlive the pass, so it ends after the last job that could start now.
        """
        begun_us = self.now_s * SECOND_US + self._last_backfill_us % SECOND_US
        self._last_backfill_us, self._backfill_due_s = begun_us + self.params.bf_cycle_us, None
        self._review()
        queue = self._in_order()
        plan = Plan(self.now_s, self.params.bf_window_s, self.params.bf_resolution_s, self._up)
        outlook = self._outlook()
        count = len(queue)
        for index, job in enumerate(queue):
            while count > index and not self._could_start(queue[count - 1]):
                count -= 1
            if index >= count or plan.tested >= self.params.bf_max_job_test:
                break
            if not self._at_user_limit(job):
                self._backfill(job, plan, outlook)
        if len(self._competing) > 1 and self._events:
            self._news_for_backfill()

    def _backfill(self, job: JobRecord, plan: Plan, outlook: Outlook) -> None:
        limit_s = job.time_limit_s or YEAR_S
        place = plan.earliest(outlook, self._up & self._masks[job.partition], job.nodes, limit_s)
        if place is None:
            return
        if place.start_s > self.now_s:
            plan.reserve(place, limit_s)
            return
        self._start(job, place.nodes, "backfill")
        outlook.started(self.now_s + limit_s, place.nodes)

    def _could_start(self, job: JobRecord) -> bool:
        return (self._up & self._free & self._masks[job.partition]).bit_count() >= job.nodes

    def _outlook(self) -> Outlook:
        running = sorted(self._running.values(), key=lambda job: job.job_id)
        ends = ((job.limit_end_s or self.now_s + YEAR_S, job.allocated) for job in running)
        return Outlook(self.now_s, self._free, ends)


def _partition_masks(nodes: Sequence[str], partitions: Sequence[Partition]) -> dict[str, int]:
    bits = {name: 1 << index for index, name in enumerate(nodes)}
    if not bits or len(bits) < len(nodes):
        raise InvalidCluster("give at least one node, and each of them once")
    masks: dict[str, int] = {}
    for partition in partitions:
        unknown = [name for name in partition.nodes if name not in bits]
        if unknown or not partition.nodes:
            raise InvalidCluster(f"partition {partition.name!r} needs nodes of this cluster; unknown: {unknown}")
        if partition.name in masks:
            raise InvalidCluster(f"partition {partition.name!r} is given twice")
        masks[partition.name] = sum(bits[name] for name in set(partition.nodes))
    if not masks:
        raise InvalidCluster("give at least one partition")
    return masks


def _round_up(value: int, step: int) -> int:
    return value if step == 0 else -(-value // step) * step


def _end_of(job: JobRecord) -> int:
    return job.end_s or 0
