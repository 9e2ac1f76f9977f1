"""A small, exact simulator of Slurm's scheduling: the rules in plain Python, to be read first.

It follows slurmctld 22.05. What happens is ordered by (time, `Kind`, sequence number), so equal
input gives equal output everywhere:

* Jobs that end by themselves come first, then what happens to nodes and reservations,
  cancellations, submissions,
  begin times.
* A *backfill* pass runs `bf_interval_s` after the last one, or later, as soon as there is something
  new. What a pass
  does may itself be new: see `Forecast` in passes.py.
* A *main* pass over the whole queue runs each `sched_interval_s`. A submission, an end or a dropped
  dependency asks
  for one over the first `default_queue_depth` jobs, at least `batch_sched_delay_s` after the last
  of either kind. Any of them is put off to `sched_min_interval_s` after the last; then one serves
  all that were asked for meanwhile.
* The *limit check* runs each `limit_check_s` and ends all that is over its limit; unless `defer` is
  set, another main
  pass follows at once. (slurmctld checks first, but has the nodes back only after the main pass of
  that second.)
* Records of ended jobs are *purged* at the first full minute from `min_job_age_s` after their end
  on, which is news for
  backfill. So are recalculated priorities, if any pending job is not held.
* Calls from outside (`submit`, `cancel`, ...) come after everything that was due at their time.

Periods count from the simulator's start. Nothing starts between passes. Within a pass jobs come by
partition tier, priority, submission, id. The age in a priority is that at the last multiple of
`priority_calc_period_s`.

`passes.py` has the two schedulers, `backfill.py` how backfill plans, `nodes.py` which nodes are
picked, `resources.py` what is left on them, `priority.py` and `fairshare.py` the order,
`slurm_sim/dependency.py` and `limits.py` what may start at all, `reservations.py` what is set aside,
`cluster.py` the state; `slurm_sim/config.py` and `slurm_sim/jobs.py` are the input.
"""

from __future__ import annotations

import copy
import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from enum import IntEnum
from typing import TYPE_CHECKING, NoReturn, Self

from slurm_sim.config import ClusterConfig, NodeAction, NodeOutage, Partition
from slurm_sim.dependency import Dependencies, check_no_cycle, check_not_itself, parse_dependency
from slurm_sim.errors import InvalidJob, SimulationError, UnknownJob
from slurm_sim.jobs import LIMITED, JobRecord, JobSpec, Sample, State
from slurm_sim.ranges import END_S, LAST_S, MOST, listed, whole
from slurm_sim.reference.cluster import Cluster
from slurm_sim.reference.passes import backfill_pass, main_pass, most_tested

if TYPE_CHECKING:
    from slurm_sim.state import PendingJob, RunningJob, Timers

__all__ = ["Simulator", "UnknownJob"]

SECOND_US = 1_000_000
BACKFILL_PHASE_US = 400_000
"""Where in the second backfill looks for news; seen in replays on a real slurmctld."""

TICK_PHASE_US = 550_000
"""Where in the second slurmctld's background loop comes, which runs main passes and checks limits;
seen in replays. The real loop moves by some 45 ms with each save of slurmctld's state; decision
0026 says why that is not followed.
"""

PURGE_S = 60
"""How often slurmctld looks for records of ended jobs to delete (a constant there; less often than
MinJobAge).
"""

Hook = Callable[[JobRecord], None]
NO_TIME_IN_HOOKS = (
    "a function in on_start or on_end can't let time pass; let it change a fork(), or go on"
    " after it"
)


class Kind(IntEnum):
    """What happens, in the order of things within one second; but see `_order`."""

    END = 0
    NODE = 1
    RESERVATION = 2
    CANCEL = 3
    SUBMIT = 4
    BEGIN = 5
    BACKFILL = 6
    MAIN = 7
    LIMIT = 8
    PURGE = 9


_ONLY_FORESEEN = frozenset({Kind.END, Kind.NODE, Kind.CANCEL, Kind.SUBMIT})
"""What only a simulation knows that it will come to."""


class Forked:
    """What `copy` and `pickle` do with a simulation, by the core or by the reference."""

    __slots__ = ()

    def fork(self) -> Self:
        raise NotImplementedError

    def __copy__(self) -> Self:
        return self.fork()

    def __deepcopy__(self, _memo: object) -> Self:
        return self.fork()

    def __reduce_ex__(self, _protocol: object) -> NoReturn:
        raise TypeError(
            "a simulation can't be pickled; make it anew where it is needed, from its config and"
            " jobs, or within this process fork() it"
        )


class Simulator(Forked):
    """A cluster, its queue and its clock, `now_s`.

    `on_start` and `on_end` are lists of functions that get the job's record once the event that
    started or ended it is done, at the same time; they may call the simulator, but not let its time
    pass.
    """

    recalculated_us = TICK_PHASE_US
    """Where in a second priorities are recalculated."""

    def __init__(
        self, config: ClusterConfig, jobs: Iterable[JobSpec] = (), start_s: int = 0
    ) -> None:
        start_s = whole("start_s", start_s, 0, LAST_S, SimulationError)
        self._cluster = Cluster(config, start_s)
        self.config = config
        self.params = config.params
        self.start_s = self.now_s = start_s
        self.on_start: list[Hook] = []
        self.on_end: list[Hook] = []
        self._future: dict[int, JobSpec] = {}
        self._next_id = 1
        self._events: list[tuple[int, Kind, int, int]] = []
        self._sequence = 0
        self._end_of_run: dict[int, tuple[int, int]] = {}
        """Of running jobs: time and sequence number of the event that counts; others are out of
        date.
        """
        self._end_of_limit: dict[int, int] = {}
        self._suspended: dict[int, tuple[int, int | None]] = {}
        """Since when, and when the job would have ended by itself."""
        self._main_due_s: int | None = None
        self._main_wanted = self._review_wanted = False
        self._last_main_s = self._last_full_s = start_s
        self._last_pass_s = start_s - config.params.sched_min_interval_s
        self._put_off_s: int | None = None
        """When a main pass runs that was asked for too soon after the last; whether it is over the
        whole queue.
        """
        self._put_off_full = False
        self._backfill_due_s: int | None = None
        self._last_backfill_us = start_s * SECOND_US + BACKFILL_PHASE_US
        self._future_forgotten = False
        self._ended_s = deque[int]()
        """When the jobs ended whose records slurmctld still has, in order."""
        self._planned = False
        """Whether the last backfill pass left PLANNED nodes."""
        self._last_news_s = start_s - 1
        """When backfill last got something to look at."""
        self._happening: Kind | None = None
        self._checked_s = start_s - 1
        """When a limit check last ended a job; the main pass that follows waits for all that it
        ends.
        """
        self._news: list[tuple[list[Hook], JobRecord]] = []
        self._telling = False
        for index, change in enumerate(config.node_changes):
            self._push(max(change.time_s, start_s), Kind.NODE, index)
        for reservation in config.reservations:
            for time_s in (reservation.start_s, reservation.end_s):
                self._push(max(time_s, start_s), Kind.RESERVATION, 0)
        self._submit_all(jobs)

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
    ) -> Simulator:
        """Begins in the middle, with these jobs and these nodes down: see `state.py`. `jobs` are
        submitted later.

        Raises SimulationError.
        """
        from slurm_sim.state import given, put_in

        now_s, items, down = given(now_s, running, pending, down, timers)
        simulator = cls(config, (), now_s if timers is None else timers.start_s)
        put_in(simulator, now_s, items, down, timers)
        simulator._submit_all(jobs)
        return simulator

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

    def timers(self) -> Timers:
        """The phases of the passes' timers, for `from_state`."""
        from slurm_sim.state import Timers

        return Timers(
            start_s=self.start_s,
            last_main_s=self._last_main_s,
            last_full_s=self._last_full_s,
            last_pass_s=self._last_pass_s,
            put_off_s=self._put_off_s,
            put_off_full=self._put_off_full,
            last_backfill_us=self._last_backfill_us,
            main_due_s=self._main_due_s,
            backfill_due_s=self._backfill_due_s,
            main_wanted=self._main_wanted,
            review_wanted=self._review_wanted,
            planned=self._planned,
        )

    # ---- time

    def step(self, seconds: int) -> None:
        """Goes on by this many seconds."""
        self.run_until(self.now_s + whole("seconds", seconds, -END_S, END_S, SimulationError))

    def run_until(self, time_s: int) -> None:
        """Goes on until everything due up to and at this time has happened."""
        time_s = whole("time_s", time_s, 0, END_S, SimulationError)
        if time_s < self.now_s:
            raise SimulationError(
                f"can't run until {time_s}: it is {self.now_s} already; fork() before, to go back"
            )
        self._refuse_in_hook()
        while self._go_on(time_s):
            pass
        self.now_s = time_s

    def run_until_start(self, job_id: int, latest_s: int) -> int | None:
        """Goes on until the job has started, or is over, at most until `latest_s`; returns its
        start, or None.
        """
        latest_s = whole("latest_s", latest_s, 0, END_S, SimulationError)
        self._refuse_in_hook()
        while (job := self.job(job_id)).start_s is None and not job.state.is_over:
            if not self._go_on(latest_s):
                self.now_s = max(self.now_s, latest_s)
                break
        return job.start_s

    def _refuse_in_hook(self) -> None:
        if self._telling:
            raise SimulationError(NO_TIME_IN_HOOKS)

    def _go_on(self, latest_s: int) -> bool:
        """What is due next happens, if that is by then."""
        due = min(self._due(), key=self._order, default=None)
        if due is None or due[0] > latest_s:
            return False
        self.now_s, self._happening = due
        self._happen(due[1])
        self._happening = None
        self._tell()
        return True

    def run(self) -> list[JobRecord]:
        """Goes on until nothing more can happen; returns the jobs that can't start, each with its
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

    def _order(self, due: tuple[int, Kind]) -> tuple[int, float]:
        time_s, kind = due
        if kind is Kind.MAIN and time_s == self._checked_s:
            return time_s, Kind.LIMIT + 0.5
        return time_s, len(Kind) if kind is Kind.BACKFILL and self._ticks_first() else kind

    def _ticks_first(self) -> bool:
        """Whether slurmctld's background loop (main passes, limits, purges) comes before backfill
        within a second.
        """
        return self._last_backfill_us % SECOND_US > TICK_PHASE_US

    def _due(self) -> Iterator[tuple[int, Kind]]:
        if self._events:
            yield self._events[0][:2]
        if self._backfill_due_s is not None:
            yield self._backfill_due_s, Kind.BACKFILL
        may_change = bool(self._cluster.competing and self._events)
        if self.params.main:
            if self._put_off_s is not None:
                yield self._put_off_s, Kind.MAIN
            if self._main_due_s is not None:
                yield self._main_due_s, Kind.MAIN
            if self._main_wanted or may_change:
                yield self._next_full_s(), Kind.MAIN
        if self.params.backfill and self._events:
            unheld = may_change or any(not job.held for job in self._cluster.waiting.values())
            if unheld and self.params.priority_multifactor:
                yield self._recalculation_noticed_s(), Kind.BACKFILL
            if self._ended_s and self.params.min_job_age_s:
                yield max(self.now_s, self._purge_s(self._ended_s[0])), Kind.PURGE

    def _happen(self, kind: Kind) -> None:
        if kind is Kind.MAIN:
            self._main_pass()
        elif kind is Kind.BACKFILL:
            self._backfill_pass()
        elif kind is Kind.PURGE:
            while self._ended_s and self._purge_s(self._ended_s[0]) <= self.now_s:
                self._ended_s.popleft()
            self._news_for_backfill()
        else:
            _, _, sequence, job_id = heapq.heappop(self._events)
            self._job_event(kind, sequence, job_id)

    def _job_event(self, kind: Kind, sequence: int, job_id: int) -> None:
        if kind is Kind.SUBMIT:
            self._enter(job_id, self._future.pop(job_id))
        elif kind is Kind.BEGIN:
            self._main_wanted = self._review_wanted = True
        elif kind is Kind.RESERVATION:
            self._changed()
        elif kind is Kind.NODE:
            change = self.config.node_changes[job_id]
            self._change_node(change.node, change.action)
        elif kind is Kind.CANCEL:
            self._cancel(self._cluster.jobs[job_id])
        elif kind is Kind.END and self._end_of_run.get(job_id) == (self.now_s, sequence):
            job = self._cluster.running[job_id]
            killed_s = self._killed_s(job)
            if (
                killed_s is None or killed_s > self.now_s
            ):  # else the check of this second ends it, later in the second
                self._end_by_itself(job)
        elif kind is Kind.LIMIT and self._end_of_limit.get(job_id) == sequence:
            job = self._cluster.running[job_id]
            by_itself = job_id in self._end_of_run and self._end_of_run[job_id][0] == self.now_s
            self._checked_s = self._last_full_s = (
                self.now_s
            )  # a pass over the whole queue of this second is over
            self._kill(job, self._own_end(job) if by_itself else State.TIMEOUT)

    def _push(self, time_s: int, kind: Kind, job_id: int) -> int:
        self._sequence += 1
        heapq.heappush(self._events, (time_s, kind, self._sequence, job_id))
        return self._sequence

    def _tell(self) -> None:
        """Calls the hooks; what they cause in turn is told after what was there before."""
        if self._telling:
            return
        self._telling = True
        try:
            while self._news:
                hooks, job = self._news.pop(0)
                for hook in list(hooks):
                    hook(job)
        finally:
            self._telling = False

    # ---- what users and operators do

    def submit(self, spec: JobSpec) -> int:
        """Submits now, or at `spec.submit_s`; returns the job's id. Raises InvalidJob."""
        self._cluster.check(spec)
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
            self._push(submit_s, Kind.SUBMIT, job_id)
        else:
            self._enter(job_id, spec)
            self._tell()
        return job_id

    def cancel(self, job_id: int) -> None:
        """As scancel; a job that is over already is no error."""
        self._cancel(self._cluster.find(job_id))
        self._tell()

    def _cancel(self, job: JobRecord) -> None:
        if job.state in (State.RUNNING, State.SUSPENDED):
            self._kill(job, State.CANCELLED)
        elif job.state is State.PENDING:
            self._cluster.forget_pending(job)
            self._finish(job, State.CANCELLED)

    def requeue(self, job_id: int) -> None:
        """As `scontrol requeue` of a running job: it is submitted anew, with a begin time shortly
        after now.

        Raises SimulationError for one that was submitted with ``requeue=False`` (--no-requeue).
        """
        job = self._in_state(job_id, State.RUNNING)
        if not job.spec.requeue:
            raise SimulationError(
                f"job {job_id} was submitted with requeue=False; leave it, or cancel it"
            )
        self._requeue(job, State.REQUEUED)
        self._tell()

    def drop_dependency(self, job_id: int) -> None:
        """As `scontrol update JobId=... Dependency=`: the job competes from now. Idempotent."""
        job = self._cluster.find(job_id)
        if job.state is State.PENDING and job.dependencies:
            job.dependencies = Dependencies()
            self._cluster.review(job, self.now_s)
            self._changed()
            self._ask_main()

    def hold(self, job_id: int) -> None:
        """As `scontrol hold` of a pending job; its age begins anew when it is released."""
        self._cluster.hold(self._in_state(job_id, State.PENDING), self.now_s)
        self._changed()

    def release(self, job_id: int) -> None:
        """As `scontrol release` of a pending job: the next pass considers it."""
        job = self._in_state(job_id, State.PENDING)
        if job.held:
            self._cluster.release(job)
            self._changed()
            self._ask_main()

    def set_runtime_end(self, job_id: int, end_s: int) -> None:
        """The running job ends by itself at this time, unless its limit ends it before."""
        end_s = whole("end_s", end_s, 0, END_S, SimulationError)
        job = self._in_state(job_id, State.RUNNING)
        if end_s < self.now_s:
            raise SimulationError(f"job {job_id} can't end at {end_s}: it is {self.now_s} already")
        self._end_at(job.job_id, end_s)

    def forget_future(self) -> None:
        """Forgets what only a simulation knows: who will come or cancel, when nodes change, how
        long jobs really run.

        From now on nobody comes but by `submit`, all jobs run until their limits, and those that
        have a priority keep it. On a fork: what the queue of this moment tells of its starts, as
        `squeue --start` would.
        """
        self._future_forgotten = True
        self._cluster.keep_priorities()
        self._events = [event for event in self._events if event[1] not in _ONLY_FORESEEN]
        heapq.heapify(self._events)
        self._end_of_run.clear()
        self._suspended = {
            job_id: (since_s, None) for job_id, (since_s, _) in self._suspended.items()
        }

    def suspend(self, job_id: int) -> None:
        """As `scontrol suspend` of a running job. Its limit stops, and what it holds is free for
        others.

        Simplification: Slurm keeps its memory, and lets GPUs go only to some jobs.
        """
        job = self._in_state(job_id, State.RUNNING)
        end_of_run = self._end_of_run.pop(job_id, None)
        self._end_of_limit.pop(job_id, None)
        self._suspended[job.job_id] = (self.now_s, None if end_of_run is None else end_of_run[0])
        self._cluster.suspend(job, self.now_s)
        self._changed()
        self._ask_main()

    def resume(self, job_id: int) -> None:
        """As `scontrol resume`: it goes on where it was. Raises SimulationError if others have its
        nodes now.

        Simplification: Slurm itself does not look.
        """
        job = self._in_state(job_id, State.SUSPENDED)
        since_s, end_s = self._suspended[job_id]
        self._cluster.resume(job, self.now_s - since_s, self.now_s)
        del self._suspended[job_id]
        if end_s is not None:
            self._end_at(job.job_id, end_s + self.now_s - since_s)
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
        self._ask_main()

    def node_down(self, node: str) -> None:
        """The node fails: a job on it is requeued, or ends as NODE_FAIL."""
        self._change_node(node, NodeAction.DOWN)
        self._tell()

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
        return _by_id(self._cluster.waiting | self._cluster.competing)

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
        return self._cluster.node_names

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return self.config.partitions

    def is_up(self, node: str) -> bool:
        return bool(self._cluster.up & self._cluster.bit(node))

    def is_idle(self, node: str) -> bool:
        """Up, and nothing on it."""
        return bool(self._cluster.up & self._cluster.pool.idle & self._cluster.bit(node))

    def energy_j(self) -> float:
        """Joules that the nodes have drawn since the start."""
        return self._cluster.energy_j(self.now_s)

    def sample(self) -> Sample:
        """What there is to learn from at this moment (the paper's third verb): see `Sample`."""
        queued = [
            job
            for _, job in sorted(self._cluster.competing.items())
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
            *self.partitions,
            *(job.spec for job in self._cluster.jobs.values()),
        ]
        memo: dict[int, object] = {id(value): value for value in shared}
        twin = object.__new__(type(self))
        behind: dict[str, object] = {"on_start": [], "on_end": [], "_news": [], "_telling": False}
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
        partition = self._cluster.waits_in(spec)[0]
        refused = self._cluster.limits.refused(spec.user, spec.account, spec.qos, partition)
        job = self._cluster.add(job_id, spec, self.now_s)
        if spec.cancel_s is not None:
            self._push(max(spec.cancel_s, self.now_s), Kind.CANCEL, job_id)
        if refused:
            self._cluster.forget_pending(job)
            self._finish(job, State.CANCELLED)
            job.reason = refused
        else:
            self._cluster.tested_at_submission(job)
            self._queued(job)
            if job.reason == "None":  # that test tells it, too
                job.reason = self._cluster.jobs_limit_reached(job) or "None"

    def _queued(self, job: JobRecord) -> None:
        if job.begin_s is not None and job.begin_s > self.now_s:
            self._push(job.begin_s, Kind.BEGIN, job.job_id)
        self._cluster.review(job, self.now_s)
        self._changed()
        self._ask_main()

    def _start(self, job: JobRecord, nodes: int, scheduler: str) -> None:
        self._cluster.start(job, nodes, scheduler, self.now_s)
        if job.spec.runtime_s is not None and not self._future_forgotten:
            self._end_at(job.job_id, self.now_s + job.spec.runtime_s)
        self._watch_limit(job)
        for waiting in self._cluster.waiting.values():
            for item in waiting.dependencies.items:
                if item.delay_s:
                    self._push(self.now_s + item.delay_s, Kind.BEGIN, waiting.job_id)
        self._news.append((self.on_start, replace(job)))
        self._changed()

    def _end_at(self, job_id: int, end_s: int) -> None:
        self._end_of_run[job_id] = (end_s, self._push(end_s, Kind.END, job_id))

    def _watch_limit(self, job: JobRecord) -> None:
        killed_s = self._killed_s(job)
        if killed_s is not None:
            self._end_of_limit[job.job_id] = self._push(
                max(killed_s, self.now_s), Kind.LIMIT, job.job_id
            )

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
        return (
            None
            if last_s is None
            else self.start_s + _round_up(last_s - self.start_s, self.params.limit_check_s)
        )

    def _change_node(self, node: str, action: NodeAction) -> None:
        for job in self._cluster.change_node(node, action, self.now_s):
            if job.spec.requeue:
                self._requeue(job, State.NODE_FAIL)
            else:
                self._kill(job, State.NODE_FAIL)
        self._changed()
        if action is NodeAction.RESUME:
            self._ask_main()

    def _end_by_itself(self, job: JobRecord) -> None:
        state = self._own_end(job)
        self._vacate(job)
        self._finish(job, state)
        self._ask_main()

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
            self._ask_main()
        else:
            self._main_due_s = self.now_s

    def _requeue(self, job: JobRecord, state: State) -> None:
        self._vacate(job)
        self._news.append((self.on_end, replace(self._cluster.requeue(job, state, self.now_s))))
        self._queued(job)

    def _vacate(self, job: JobRecord) -> None:
        self._cluster.vacate(job, self.now_s)
        self._suspended.pop(job.job_id, None)
        self._end_of_run.pop(job.job_id, None)
        self._end_of_limit.pop(job.job_id, None)

    def _finish(self, job: JobRecord, state: State) -> None:
        self._cluster.finish(job, state, self.now_s)
        self._ended_s.append(self.now_s)
        self._news.append((self.on_end, replace(job)))
        self._changed()

    # ---- when the schedulers run

    def _changed(self) -> None:
        self._main_wanted = self._review_wanted = True
        self._news_for_backfill()

    def _review(self) -> None:
        if self._review_wanted:
            self._review_wanted = False
            for job in list(self._cluster.waiting.values()):
                self._cluster.review(job, self.now_s)

    def _ask_main(self) -> None:
        last_full_s = self.now_s - (self.now_s - self.start_s) % self.params.sched_interval_s
        if self._main_due_s is None:
            last_s = max(self._last_main_s, last_full_s)
            self._main_due_s = max(self.now_s, last_s + self.params.batch_sched_delay_s)

    def _next_full_s(self) -> int:
        done_s = max(self._last_full_s, self.now_s - 1)
        return self.start_s + _round_up(done_s + 1 - self.start_s, self.params.sched_interval_s)

    def _main_pass(self) -> None:
        full = self.now_s == self._next_full_s()
        if full or (
            self._main_due_s is not None and self._main_due_s <= self.now_s
        ):  # it is asked for now
            self._last_main_s, self._main_due_s = self.now_s, None
        if full:
            self._last_full_s, self._main_wanted = self.now_s, False
        full = full or self._put_off_full
        if self.params.sched_min_interval_s and self._puts_off(full):
            return
        news = self._cluster.note_reasons()
        self._review()
        queue = self._cluster.queue(self._priorities_s(TICK_PHASE_US))
        if main_pass(
            self._cluster,
            queue,
            self.params,
            full,
            self.now_s,
            lambda job, nodes: self._start(job, nodes, "main"),
        ):
            news = True
        if news:
            self._news_for_backfill()
        self._cluster.settle()

    def _puts_off(self, full: bool) -> bool:
        """Whether it is too soon after the last main pass."""
        if self._put_off_s is None:
            self._put_off_s = max(
                self.now_s, self._earlier_pass_s() + self.params.sched_min_interval_s
            )
        if self._put_off_s > self.now_s:
            self._put_off_full = full
            return True
        self._last_pass_s, self._put_off_s, self._put_off_full = self.now_s, None, False
        return False

    def _earlier_pass_s(self) -> int:
        """When the last main pass ran. slurmctld has one over the whole queue also where it is
        known to be in vain.
        """
        before_s = self.now_s - 1 - self.start_s
        full_s = self.now_s - 1 - before_s % self.params.sched_interval_s
        if before_s < self.params.sched_interval_s or full_s <= self._last_pass_s:
            return self._last_pass_s
        return max(full_s, self._last_pass_s + self.params.sched_min_interval_s)

    def _backfill_pass(self) -> None:
        begun_us = self.now_s * SECOND_US + self._last_backfill_us % SECOND_US
        if self._cluster.note_reasons():
            self._last_news_s = self.now_s
        self._review()
        queue = self._cluster.queue(self._priorities_s(begun_us % SECOND_US))
        cycle_us = self.params.cycle_us(
            len(queue), most_tested(queue, self.params), len(self._cluster.running)
        )
        self._last_backfill_us, self._backfill_due_s = begun_us + cycle_us, None
        forecast = backfill_pass(
            self._cluster,
            queue,
            self.params,
            self.now_s,
            lambda job, nodes: self._start(job, nodes, "backfill"),
        )
        self._cluster.settle()
        # A pass begins by taking back what the last one had planned: that is a change, too. So is,
        # once more, what changed before the pass in the second in which it ends (`_more_work`).
        in_last_second = self._last_news_s >= self._last_backfill_us // SECOND_US
        changed = forecast.moved or forecast.planned or self._planned or in_last_second
        self._planned = forecast.planned
        if changed and self._events:
            self._news_for_backfill()

    def _news_for_backfill(self) -> None:
        ticked = self._happening in (Kind.LIMIT, Kind.MAIN, Kind.PURGE)
        after_its_look = ticked and not self._ticks_first()
        self._last_news_s = self.now_s
        if not self.params.backfill:
            return
        due_s = self._next_look_s(self.now_s + after_its_look)
        self._backfill_due_s = (
            due_s if self._backfill_due_s is None else min(due_s, self._backfill_due_s)
        )

    def _purge_s(self, ended_s: int) -> int:
        """When slurmctld deletes the record of a job that ended then."""
        age_s = self.params.min_job_age_s
        return self.start_s + _round_up(
            ended_s + age_s - self.start_s, min(PURGE_S, max(10, age_s))
        )

    def _recalculation_noticed_s(self) -> int:
        """When backfill notices the first recalculation of priorities since its last pass."""
        since_s = self._last_backfill_us // SECOND_US - self.start_s
        calculated_s = self.start_s + _round_up(since_s, self.params.priority_calc_period_s)
        looked_before = self._last_backfill_us % SECOND_US < self.recalculated_us
        return max(self.now_s, self._next_look_s(calculated_s + looked_before))

    def _priorities_s(self, within_us: int) -> int:
        """As of when a pass so late within this second sees priorities."""
        return self.now_s - (within_us < self.recalculated_us)

    def _next_look_s(self, news_s: int) -> int:
        """When backfill notices: from `bf_interval_s` after its last pass on it looks each second."""
        first_us = self._last_backfill_us + self.params.bf_interval_s * SECOND_US
        return max(first_us, news_s * SECOND_US + first_us % SECOND_US) // SECOND_US


def _by_id(jobs: dict[int, JobRecord]) -> list[JobRecord]:
    return [replace(jobs[job_id]) for job_id in sorted(jobs)]


def _round_up(value: int, step: int) -> int:
    """To the next multiple; a step of 0 changes nothing."""
    return -(-value // step) * step if step else value
