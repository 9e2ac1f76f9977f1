"""A small, exact simulator of Slurm's scheduling: the rules in plain Python, to be read first.

It follows slurmctld 22.05. What happens is ordered by (time, `EventKind`, sequence number), so equal
input gives equal output everywhere:

* Jobs that end by themselves come first, then what happens to nodes and reservations,
  cancellations, submissions, begin times.
* A *backfill* pass runs `bf_interval_s` after the last one, or later, as soon as there is something
  new. What a pass does may itself be new: see `Forecast` in passes.py.
* A *main* pass over the whole queue runs each `sched_interval_s`. A submission, an end or a dropped
  dependency asks for one over the first `default_queue_depth` jobs, at least `batch_sched_delay_s`
  after the last of either kind. Any of them is put off to `sched_min_interval_s` after the last;
  then one serves all that were asked for meanwhile.
* The *limit check* runs each `limit_check_s` and ends all that is over its limit; unless `defer` is
  set, another main pass follows at once. (slurmctld checks first, but has the nodes back only after
  the main pass of that second.)
* Records of ended jobs are *purged* at the first full minute from `min_job_age_s` after their end
  on, which is news for backfill. So are recalculated priorities, if any pending job is not held.
* Calls from outside (`submit`, `cancel`, ...) come after everything that was due at their time.

Periods count from the simulator's start. Nothing starts between passes. Within a pass jobs come by
partition tier, priority, submission, id. The age in a priority is that at the last multiple of
`priority_calc_period_s`.

`clock.py` has the times of passes and checks, `events.py` what is known to happen, `queue.py` the
pending jobs and their order, `passes.py` the two schedulers, `backfill.py` how backfill plans,
`nodes.py` which nodes are picked, `resources.py` what is left on them, `priority.py` and
`fairshare.py` priorities, `limits.py` and `reservations.py` what may start at all, `cluster.py` the
nodes and running jobs. `slurm_sim/admission.py` says which jobs a cluster accepts and what they
need, `slurm_sim/dependency.py` what they wait for; `slurm_sim/config.py`, `slurm_sim/jobs.py` and
`slurm_sim/state.py` are the input.
"""

from __future__ import annotations

import copy
from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Self

from slurm_sim.config import ClusterConfig, NodeAction, NodeOutage, Params, Partition
from slurm_sim.copies import NO_TIME_IN_HOOKS, Forkable
from slurm_sim.dependency import Dependencies, check_no_cycle, check_not_itself, parse_dependency
from slurm_sim.errors import InvalidJob, SimulationError
from slurm_sim.jobs import LIMITED, JobRecord, JobSpec, Sample, State
from slurm_sim.ranges import END_S, LAST_S, MOST, listed, whole
from slurm_sim.state import InitialState, PendingJob, RunningJob, Timers
from tests.reference.clock import SECOND_US, PassClock
from tests.reference.cluster import ClusterState
from tests.reference.events import EventKind, Events
from tests.reference.passes import backfill_pass, main_pass, most_tested

Hook = Callable[[JobRecord], None]
_UNKNOWN_TO_SLURM = frozenset({EventKind.END, EventKind.NODE, EventKind.CANCEL, EventKind.SUBMIT})
"""What only a simulation knows that it will come to."""


class ReferenceSimulator(Forkable):
    """A cluster, its queue and its clock, `now_s`.

    `on_start` and `on_end` are lists of functions that get the job's record once the event that
    started or ended it is done, at the same time; they may call the simulator, but not let its time
    pass.
    """

    def __init__(
        self, config: ClusterConfig, jobs: Iterable[JobSpec] = (), start_s: int = 0
    ) -> None:
        start_s = whole("start_s", start_s, 0, LAST_S, SimulationError)
        self._cluster = ClusterState(config, start_s)
        self._admission = self._cluster.admission
        self._queue = self._cluster.queue
        self._events = self._make_events()
        self._clock = self._make_clock(config.params, start_s)
        self.config = config
        self.params = config.params
        self.start_s = self.now_s = start_s
        self.on_start: list[Hook] = []
        self.on_end: list[Hook] = []
        self._future: dict[int, JobSpec] = {}
        self._next_id = 1
        self._suspensions: dict[int, tuple[int, int | None]] = {}
        """Since when, and when the job would have ended by itself."""
        self._future_forgotten = False
        self._happening: EventKind | None = None
        self._news: list[tuple[list[Hook], JobRecord]] = []
        self._in_hooks = False
        for index, change in enumerate(config.node_changes):
            self._push(max(change.time_s, start_s), EventKind.NODE, index)
        for reservation in config.reservations:
            for time_s in (reservation.start_s, reservation.end_s):
                self._push(max(time_s, start_s), EventKind.RESERVATION, 0)
        self._submit_all(jobs)

    def _make_events(self) -> Events:
        """A simulation that is held to a replay's moments has others."""
        return Events()

    def _make_clock(self, params: Params, start_s: int) -> PassClock:
        """A simulation that is held to a replay's moments has another."""
        return PassClock(params, start_s)

    def _submit_all(self, jobs: Iterable[JobSpec]) -> None:
        specs = listed("jobs", jobs, JobSpec, InvalidJob)
        for spec in specs:  # fair share knows all users before the first job enters
            self._cluster.fairshare.add(spec.account, spec.user)
        wishes, tasks = dict[int, Dependencies](), dict[int, list[int]]()
        for spec in specs:
            job_id = self.submit(spec)
            wishes[job_id] = parse_dependency(spec.dependency)
            if spec.array_job_id is not None:
                tasks.setdefault(spec.array_job_id, []).append(job_id)
        check_no_cycle(wishes, tasks)

    # ---- a beginning in the middle

    @classmethod
    def from_state(
        cls,
        config: ClusterConfig,
        now_s: int,
        running: Sequence[RunningJob] = (),
        pending: Sequence[PendingJob] = (),
        down: Collection[str] = (),
        timers: Timers | None = None,
        jobs: Iterable[JobSpec] = (),
    ) -> Self:
        """Begins in the middle, with these jobs and these nodes down: see `state.py`. `jobs` are
        submitted later.

        Raises SimulationError.
        """
        state = InitialState.of(now_s, running, pending, down, timers)
        simulator = cls(config, (), state.start_s)
        simulator._begin(state)
        simulator._submit_all(jobs)
        return simulator

    def _begin(self, state: InitialState) -> None:
        """Makes a new, empty simulation one that is in this state."""
        state.check(self._admission)
        cluster, self.now_s = self._cluster, state.now_s
        self._events.drop_until(self.now_s)
        for node in sorted(state.down, key=self._admission.bit):
            cluster.take_out(node, self.now_s)
        cluster.meter.reset(cluster.pool.idle, cluster.up, self.now_s)
        cluster.priorities.come_before(item.spec.priority for item in state.items)
        records = [(item, self._begin_job(item)) for item in state.items]
        for item, record in records:
            if isinstance(item, RunningJob):
                self._begin_running(record, item)
        for item, record in records:
            if isinstance(item, PendingJob):
                self._begin_pending(record, item)
        self._queue.note_reasons()
        if state.timers is None:
            self._changed()
            self._clock.ask_main(self.now_s)
        else:
            self._clock.restore(state.timers, self.now_s)

    def _begin_job(self, item: RunningJob | PendingJob) -> JobRecord:
        """As a job that has just been submitted, its dependencies still open."""
        job_id = self._take_id(item.spec)
        self._cluster.fairshare.add(item.spec.account, item.spec.user)
        record = self._cluster.add(job_id, item.spec, item.submitted_s)
        record.time_limit_s = item.spec.time_limit_s
        if item.spec.cancel_s is not None:
            self._push(max(item.spec.cancel_s, self.now_s), EventKind.CANCEL, job_id)
        return record

    def _begin_running(self, record: JobRecord, item: RunningJob) -> None:
        nodes = sum(self._admission.bit(name) for name in item.node_names)
        if nodes & ~self._cluster.pool.hosts(self._cluster.request(record)):
            raise SimulationError(
                f"job {record.job_id}: not all of {', '.join(item.node_names)} have room for it"
            )
        self._cluster.start(record, nodes, "", self.now_s)
        record.start_s = item.start_s
        since_s = record.submit_s if item.eligible_s is None else item.eligible_s
        record.eligible_s = record.accrues_s = since_s
        if item.spec.runtime_s is not None:
            end_s = max(item.start_s + item.spec.runtime_s, self.now_s)
            self._events.end_run(record.job_id, end_s)
        self._watch_limit(record)

    def _begin_pending(self, record: JobRecord, item: PendingJob) -> None:
        job_id, begin_s = record.job_id, item.spec.begin_s
        record.dependencies = parse_dependency(item.spec.dependency).known(self._cluster.is_known)
        record.reason = item.known_reason
        if begin_s is not None and begin_s > self.now_s:
            self._push(begin_s, EventKind.BEGIN, job_id)
        for needed in record.dependencies.items:
            other = self._cluster.jobs.get(needed.job_id)
            if needed.delay_s and other is not None and other.start_s is not None:
                self._push(max(self.now_s, other.start_s + needed.delay_s), EventKind.BEGIN, job_id)
        if item.eligible_s is not None:
            record.eligible_s = record.accrues_s = item.eligible_s
            self._queue.compete(record)
        if not record.held:  # slurmctld tested it when it was submitted
            self._cluster.note_test(record, self._cluster.possible(record))
        self._queue.reorder()

    def timers(self) -> Timers:
        """The phases of the passes' timers, for `from_state`."""
        return replace(self._clock.timers)

    # ---- time

    def step(self, seconds: int) -> None:
        """Lets this many seconds pass."""
        self.run_until(self.now_s + whole("seconds", seconds, -END_S, END_S, SimulationError))

    def run_until(self, time_s: int) -> None:
        """Lets time pass until everything due up to and at this time has happened."""
        time_s = whole("time_s", time_s, 0, END_S, SimulationError)
        if time_s < self.now_s:
            raise SimulationError(
                f"can't run until {time_s}: it is {self.now_s} already; fork() before, to go back"
            )
        self._refuse_in_hook()
        while self._happens_by(time_s):
            pass
        self.now_s = time_s

    def run_until_start(self, job_id: int, latest_s: int) -> int | None:
        """Lets time pass until the job has started, or is over, at most until `latest_s`; returns its
        start, or None.
        """
        latest_s = whole("latest_s", latest_s, 0, END_S, SimulationError)
        self._refuse_in_hook()
        while (job := self.job(job_id)).start_s is None and not job.state.is_over:
            if not self._happens_by(latest_s):
                self.now_s = max(self.now_s, latest_s)
                break
        return job.start_s

    def _refuse_in_hook(self) -> None:
        if self._in_hooks:
            raise SimulationError(NO_TIME_IN_HOOKS)

    def _happens_by(self, latest_s: int) -> bool:
        """What is due next happens, if that is by then."""
        due = min(self._due(), key=self._clock.order, default=None)
        if due is None or due[0] > latest_s:
            return False
        self.now_s, self._happening = due
        self._happen(due[1])
        self._happening = None
        self._call_hooks()
        return True

    def run(self) -> list[JobRecord]:
        """Lets time pass until nothing more can happen; returns the jobs that can't start, each with its
        reason.

        It ends, unless hooks submit for ever.
        """
        while (next_s := self.next_event_s()) is not None:
            self.run_until(next_s)
        return self.pending()

    def next_event_s(self) -> int | None:
        """When something is due next; None: nothing will happen any more without a call from
        outside.
        """
        return min((time_s for time_s, _ in self._due()), default=None)

    def _due(self) -> Iterator[tuple[int, EventKind]]:
        if self._events:
            yield self._events.first()
        may_change = bool(self._queue.competing and self._events)
        yield from self._clock.due_passes(self.now_s, may_change=may_change)
        if self.params.backfill and self._events:
            unheld = may_change or any(not job.held for job in self._queue.waiting.values())
            yield from self._clock.due_news(self.now_s, unheld=unheld)

    def _happen(self, kind: EventKind) -> None:
        if kind is EventKind.MAIN:
            self._main_pass()
        elif kind is EventKind.BACKFILL:
            self._backfill_pass()
        elif kind is EventKind.PURGE:
            self._clock.purge(self.now_s)
            self._clock.note_news(self.now_s, self._happening)
        else:
            self._job_event(kind, *self._events.pop())

    def _job_event(self, kind: EventKind, sequence: int, number: int) -> None:
        """`number`: the job's id, or of a change of a node its index."""
        if kind is EventKind.SUBMIT:
            self._enter(number, self._future.pop(number))
        elif kind is EventKind.BEGIN:
            self._clock.timers.main_wanted = self._clock.timers.review_wanted = True
        elif kind is EventKind.RESERVATION:
            self._changed()
        elif kind is EventKind.NODE:
            change = self.config.node_changes[number]
            self._change_node(change.node, change.action)
        elif kind is EventKind.CANCEL:
            self._cancel(self._cluster.jobs[number])
        elif kind is EventKind.END and self._events.ends_run(number, self.now_s, sequence):
            job = self._cluster.running[number]
            killed_s = self._killed_s(job)
            # Otherwise the check of this second ends it, later in the second.
            if killed_s is None or killed_s > self.now_s:
                self._end_by_itself(job)
        elif kind is EventKind.LIMIT and self._events.ends_limit(number, sequence):
            self._check_limit(self._cluster.running[number])

    def _check_limit(self, job: JobRecord) -> None:
        by_itself = self._events.run_end_s(job.job_id) == self.now_s
        self._clock.note_limit_check(self.now_s)
        self._kill(job, self._own_end(job) if by_itself else State.TIMEOUT)

    def _push(self, time_s: int, kind: EventKind, number: int) -> None:
        self._events.push(time_s, kind, number)

    def _call_hooks(self) -> None:
        """Hooks that cause news in turn are called for it after what was there before."""
        if self._in_hooks:
            return
        self._in_hooks = True
        try:
            while self._news:
                hooks, job = self._news.pop(0)
                for hook in list(hooks):
                    hook(job)
        finally:
            self._in_hooks = False

    # ---- what users and operators do

    def submit(self, spec: JobSpec) -> int:
        """Submits now, or at `spec.submit_s`; returns the job's id. Raises InvalidJob."""
        self._admission.check(spec)
        submit_s = self.now_s if spec.submit_s is None else spec.submit_s
        if submit_s < self.now_s:
            raise InvalidJob(
                f"submit_s is {submit_s}, in the past (now: {self.now_s}); leave it out to"
                " submit now"
            )
        job_id = self._take_id(spec)
        self._cluster.fairshare.add(spec.account, spec.user)
        if submit_s > self.now_s:
            self._future[job_id] = spec
            self._push(submit_s, EventKind.SUBMIT, job_id)
        else:
            self._enter(job_id, spec)
            self._call_hooks()
        return job_id

    def cancel(self, job_id: int) -> None:
        """As scancel; a job that is over already is no error."""
        self._cancel(self._cluster.find(job_id))
        self._call_hooks()

    def _cancel(self, job: JobRecord) -> None:
        if job.state in (State.RUNNING, State.SUSPENDED):
            self._kill(job, State.CANCELLED)
        elif job.state is State.PENDING:
            self._queue.remove(job)
            self._finish(job, State.CANCELLED)

    def requeue(self, job_id: int) -> None:
        """As `scontrol requeue` of a running job: it is submitted again, with a begin time
        shortly after now.

        Raises SimulationError for one that was submitted with ``requeue=False`` (--no-requeue).
        """
        job = self._in_state(job_id, State.RUNNING)
        if not job.spec.requeue:
            raise SimulationError(
                f"job {job_id} was submitted with requeue=False; leave it, or cancel it"
            )
        self._requeue(job, State.REQUEUED)
        self._call_hooks()

    def drop_dependency(self, job_id: int) -> None:
        """As `scontrol update JobId=... Dependency=`: the job competes from now. Idempotent."""
        job = self._cluster.find(job_id)
        if job.state is State.PENDING and job.dependencies:
            job.dependencies = Dependencies()
            self._queue.review(job, self.now_s)
            self._changed()
            self._clock.ask_main(self.now_s)

    def hold(self, job_id: int) -> None:
        """As `scontrol hold` of a pending job; its age still counts from when it was first eligible."""
        self._queue.hold(self._in_state(job_id, State.PENDING), self.now_s)
        self._changed()

    def release(self, job_id: int) -> None:
        """As `scontrol release` of a pending job: the next pass considers it."""
        job = self._in_state(job_id, State.PENDING)
        if job.held:
            self._queue.release(job)
            self._changed()
            self._clock.ask_main(self.now_s)

    def set_runtime_end(self, job_id: int, end_s: int) -> None:
        """The running job ends by itself at this time, unless its limit ends it before."""
        end_s = whole("end_s", end_s, 0, END_S, SimulationError)
        job = self._in_state(job_id, State.RUNNING)
        if end_s < self.now_s:
            raise SimulationError(f"job {job_id} can't end at {end_s}: it is {self.now_s} already")
        self._events.end_run(job.job_id, end_s)

    def forget_future(self) -> None:
        """Forgets what only a simulation knows: who will come or cancel, when nodes change, how
        long jobs really run.

        From now on nobody comes but by `submit`, all jobs run until their limits, and those that
        have a priority keep it. On a fork: what the queue of this moment tells of its starts, as
        `squeue --start` would.
        """
        self._future_forgotten = True
        self._queue.keep_priorities()
        self._events.drop_kinds(_UNKNOWN_TO_SLURM)
        self._events.forget_run_ends()
        self._suspensions = {
            job_id: (since_s, None) for job_id, (since_s, _) in self._suspensions.items()
        }

    def suspend(self, job_id: int) -> None:
        """As `scontrol suspend` of a running job. Its limit stops, and what it holds is free for
        others.

        Simplification: Slurm keeps its memory, and lets GPUs go only to some jobs.
        """
        job = self._in_state(job_id, State.RUNNING)
        self._suspensions[job.job_id] = (self.now_s, self._events.run_end_s(job.job_id))
        self._events.forget_ends(job.job_id)
        self._cluster.suspend(job, self.now_s)
        self._changed()
        self._clock.ask_main(self.now_s)

    def resume(self, job_id: int) -> None:
        """As `scontrol resume`: it goes on where it was. Raises SimulationError if others have its
        nodes now.

        Simplification: Slurm itself does not look.
        """
        job = self._in_state(job_id, State.SUSPENDED)
        since_s, end_s = self._suspensions[job_id]
        self._cluster.resume(job, self.now_s - since_s, self.now_s)
        del self._suspensions[job_id]
        if end_s is not None:
            self._events.end_run(job.job_id, end_s + self.now_s - since_s)
        self._watch_limit(job)
        self._changed()

    def resize(self, job_id: int, nodes: int) -> None:
        """As `scontrol update JobId=... NumNodes=`. A running job keeps its first nodes, or gets
        free ones now.

        Raises SimulationError if there are not enough. Slurm lets a running job grow through a
        second job only (``--dependency=expand``); this is both in one step.
        """
        nodes = whole("nodes", nodes, 1, MOST, SimulationError)
        job = self._cluster.find(job_id)
        if job.state not in (State.PENDING, State.RUNNING):
            raise SimulationError(
                f"job {job_id} is {job.state.value}; this needs one that is PENDING or RUNNING"
            )
        self._cluster.resize(job, nodes, self.now_s)
        self._changed()
        self._clock.ask_main(self.now_s)

    def node_down(self, node: str) -> None:
        """The node fails: a job on it is requeued, or ends as NODE_FAIL."""
        self._change_node(node, NodeAction.DOWN)
        self._call_hooks()

    def node_drain(self, node: str) -> None:
        """The node takes no new jobs; those on it run on."""
        self._change_node(node, NodeAction.DRAIN)

    def node_up(self, node: str) -> None:
        """The node can be used again."""
        self._change_node(node, NodeAction.RESUME)

    # ---- what there is to see

    def job(self, job_id: int) -> JobRecord:
        """A job that has been submitted. Raises UnknownJob."""
        return replace(self._cluster.find(job_id))

    def pending(self) -> list[JobRecord]:
        """By id."""
        return _by_id(self._queue.waiting | self._queue.competing)

    def running(self) -> list[JobRecord]:
        """By id."""
        return _by_id(self._cluster.running)

    def suspended(self) -> list[JobRecord]:
        """By id."""
        return _by_id(self._cluster.suspended)

    def finished(self, since_s: int = 0) -> list[JobRecord]:
        """Jobs that ended at this time or later, in that order."""
        since_s = whole("since_s", since_s, -END_S, END_S, SimulationError)
        jobs = self._cluster.finished
        return [
            replace(job)
            for job in jobs[bisect_left(jobs, since_s, key=lambda job: job.end_s or 0) :]
        ]

    def cut_short(self) -> list[JobRecord]:
        """The runs that a requeue or a node failure ended; their jobs went back into the queue."""
        return [replace(job) for job in self._cluster.cut_short]

    def outages(self) -> list[NodeOutage]:
        """When nodes were down or drained, by beginning."""
        return list(self._cluster.outages)

    @property
    def node_names(self) -> tuple[str, ...]:
        return self._admission.node_names

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return self.config.partitions

    def is_up(self, node: str) -> bool:
        return bool(self._cluster.up & self._admission.bit(node))

    def is_idle(self, node: str) -> bool:
        """Up, and nothing on it."""
        return bool(self._cluster.up & self._cluster.pool.idle & self._admission.bit(node))

    def energy_j(self) -> float:
        """Joules that the nodes have drawn since the start."""
        return self._cluster.meter.read_j(self.now_s)

    def sample(self) -> Sample:
        """What there is to learn from at this moment (the paper's third verb): see `Sample`."""
        queued = [
            job
            for _, job in sorted(self._queue.competing.items())
            if not job.reason.endswith(LIMITED)
        ]
        running = [job for _, job in sorted(self._cluster.running.items())]
        return Sample(
            time_s=self.now_s,
            queued_nodes=[job.nodes for job in queued],
            queued_age_s=[self.now_s - (job.eligible_s or 0) for job in queued],
            queued_limit_s=[-1 if job.time_limit_s is None else job.time_limit_s for job in queued],
            running_nodes=[job.nodes for job in running],
            running_elapsed_s=[self.now_s - (job.start_s or 0) for job in running],
            running_limit_s=[
                -1 if job.time_limit_s is None else job.time_limit_s for job in running
            ],
            idle_nodes=(self._cluster.up & self._cluster.pool.idle).bit_count(),
            up_nodes=self._cluster.up.bit_count(),
        )

    def fork(self) -> Self:
        """An exact copy that goes its own way from here. The hooks stay behind. `copy` and
        `deepcopy` do this.
        """
        shared = [
            self.config,
            self.params,
            self._admission,
            *self.partitions,
            *(job.spec for job in self._cluster.jobs.values()),
        ]
        memo: dict[int, object] = {id(value): value for value in shared}
        twin = object.__new__(type(self))
        behind: dict[str, object] = {"on_start": [], "on_end": [], "_news": [], "_in_hooks": False}
        twin.__dict__ = copy.deepcopy(self.__dict__ | behind, memo)
        return twin

    # ---- what happens

    def _take_id(self, spec: JobSpec) -> int:
        job_id = self._next_id if spec.job_id is None else spec.job_id
        if job_id < 1 or job_id in self._cluster.jobs or job_id in self._future:
            raise InvalidJob(f"job_id {job_id} is taken or not positive; give another one, or none")
        check_not_itself(job_id, spec.dependency)
        self._next_id = max(self._next_id, job_id + 1)
        return job_id

    def _in_state(self, job_id: int, state: State) -> JobRecord:
        job = self._cluster.find(job_id)
        if job.state is not state:
            raise SimulationError(
                f"job {job_id} is {job.state.value}; this needs one that is {state.value}"
            )
        return job

    def _enter(self, job_id: int, spec: JobSpec) -> None:
        refusal = self._cluster.refusal(spec)
        job = self._cluster.add(job_id, spec, self.now_s)
        if spec.cancel_s is not None:
            self._push(max(spec.cancel_s, self.now_s), EventKind.CANCEL, job_id)
        if refusal:
            self._queue.remove(job)
            self._finish(job, State.CANCELLED)
            job.reason = refusal
        else:
            self._cluster.tested_at_submission(job)
            self._queued(job)
            if job.reason == "None":  # that test tells it, too
                job.reason = self._cluster.jobs_limit_reached(job) or "None"

    def _queued(self, job: JobRecord) -> None:
        if job.begin_s is not None and job.begin_s > self.now_s:
            self._push(job.begin_s, EventKind.BEGIN, job.job_id)
        self._queue.review(job, self.now_s)
        self._changed()
        self._clock.ask_main(self.now_s)

    def _start(self, job: JobRecord, nodes: int, scheduler: str) -> None:
        self._cluster.start(job, nodes, scheduler, self.now_s)
        if job.spec.runtime_s is not None and not self._future_forgotten:
            self._events.end_run(job.job_id, self.now_s + job.spec.runtime_s)
        self._watch_limit(job)
        for waiting in self._queue.waiting.values():
            for item in waiting.dependencies.items:
                if item.delay_s:
                    self._push(self.now_s + item.delay_s, EventKind.BEGIN, waiting.job_id)
        self._news.append((self.on_start, replace(job)))
        self._changed()

    def _watch_limit(self, job: JobRecord) -> None:
        killed_s = self._killed_s(job)
        if killed_s is not None:
            self._events.end_limit(job.job_id, max(killed_s, self.now_s))

    def _killed_s(self, job: JobRecord) -> int | None:
        """The first check from its limit's end and OverTimeLimit on, or after its reservation's
        (ResvOverRun=0).
        """
        last_s = (
            None
            if job.limit_end_s is None
            else job.limit_end_s + self._cluster.over_time_limit_s(job)
        )
        if job.spec.reservation is not None:
            closed_s = self._cluster.calendar.end_s(job.spec.reservation) + 1
            last_s = closed_s if last_s is None else min(last_s, closed_s)
        return None if last_s is None else self._clock.limit_check_s(last_s)

    def _change_node(self, node: str, action: NodeAction) -> None:
        for job in self._cluster.change_node(node, action, self.now_s):
            if job.spec.requeue:
                self._requeue(job, State.NODE_FAIL)
            else:
                self._kill(job, State.NODE_FAIL)
        self._changed()
        if action is NodeAction.RESUME:
            self._clock.ask_main(self.now_s)

    def _end_by_itself(self, job: JobRecord) -> None:
        state = self._own_end(job)
        self._vacate(job)
        self._finish(job, state)
        self._clock.ask_main(self.now_s)

    def _own_end(self, job: JobRecord) -> State:
        """The state of a job that ends by itself now."""
        if (
            job.limit_end_s is not None
            and self.now_s > job.limit_end_s + self._cluster.over_time_limit_s(job)
        ):
            return State.TIMEOUT
        return State.FAILED if job.spec.exit_code else State.COMPLETED

    def _kill(self, job: JobRecord, state: State) -> None:
        self._vacate(job)
        self._finish(job, state)
        if self.params.defer:
            self._clock.ask_main(self.now_s)
        else:
            self._clock.ask_main_at_once(self.now_s)

    def _requeue(self, job: JobRecord, state: State) -> None:
        self._vacate(job)
        self._news.append((self.on_end, replace(self._cluster.requeue(job, state, self.now_s))))
        self._queued(job)

    def _vacate(self, job: JobRecord) -> None:
        self._cluster.vacate(job, self.now_s)
        self._suspensions.pop(job.job_id, None)
        self._events.forget_ends(job.job_id)

    def _finish(self, job: JobRecord, state: State) -> None:
        self._cluster.finish(job, state, self.now_s)
        self._clock.note_end(self.now_s)
        self._news.append((self.on_end, replace(job)))
        self._changed()

    def _changed(self) -> None:
        self._clock.change(self.now_s, self._happening)

    # ---- passes

    def _review(self) -> None:
        if self._clock.wants_review():
            for job in list(self._queue.waiting.values()):
                self._queue.review(job, self.now_s)

    def _main_pass(self) -> None:
        full = self._clock.begin_main(self.now_s)
        if full is None:
            return
        news = self._queue.note_reasons()
        self._review()
        passed_over = main_pass(
            self._cluster,
            self._queue.entries(self._clock.priorities_s(self.now_s)),
            full=full,
            now_s=self.now_s,
            start=lambda job, nodes: self._start(job, nodes, "main"),
        )
        if news or passed_over:
            self._clock.note_news(self.now_s, self._happening)
        self._queue.show_first_choices()

    def _backfill_pass(self) -> None:
        clock = self._clock
        begun_us = clock.begin_backfill_us(self.now_s)
        if self._queue.note_reasons():
            clock.note_reasons(self.now_s)
        self._review()
        queue = self._queue.entries(clock.priorities_s(self.now_s, begun_us % SECOND_US))
        cycle_us = self.params.cycle_us(
            len(queue), most_tested(queue, self.params), len(self._cluster.running)
        )
        clock.end_backfill(begun_us + cycle_us)
        forecast = backfill_pass(
            self._cluster,
            queue,
            now_s=self.now_s,
            start=lambda job, nodes: self._start(job, nodes, "backfill"),
        )
        self._queue.show_first_choices()
        changed = clock.is_changed_by_backfill(moved=forecast.moved, planned=forecast.planned)
        if changed and self._events:
            clock.note_news(self.now_s, self._happening)


def _by_id(jobs: dict[int, JobRecord]) -> list[JobRecord]:
    return [replace(jobs[job_id]) for job_id in sorted(jobs)]
