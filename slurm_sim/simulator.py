"""The simulator: the rules of `slurm_sim.reference`, run by the C++ core; the two agree exactly.

Where the core is missing (no compiler at installation), `slurm_sim.Simulator` is the reference
itself: slower by a factor of 150 to some thousand, with a warning.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from slurm_sim.config import ClusterConfig, NodeOutage, Params, Partition
from slurm_sim.core import _core
from slurm_sim.dependency import Dependencies, Dependency, check_no_cycle, parse_dependency
from slurm_sim.errors import InvalidJob, SimulationError, UnknownJob
from slurm_sim.jobs import JobRecord, JobSpec, Sample, State
from slurm_sim.ranges import END_S, LAST_S, MOST, known_id, listed, whole
from slurm_sim.reference.cluster import Cluster
from slurm_sim.reference.nodes import kinds
from slurm_sim.reference.simulator import NO_TIME_IN_HOOKS, Forked
from slurm_sim.state import PendingJob, RunningJob, Timers, check_state, given
from slurm_sim.table import JobTable

Hook = Callable[[JobRecord], None]
_STATES = list(State)
_PENDING, _RUNNING, _SUSPENDED = (
    _STATES.index(s) for s in (State.PENDING, State.RUNNING, State.SUSPENDED)
)
_DOWN, _DRAIN, _RESUME = 0, 1, 2

_core.set_types(
    JobRecord, Dependencies, Dependency, _STATES, [SimulationError, UnknownJob, InvalidJob]
)

Ints = NDArray[np.int64]


class Results(NamedTuple):
    """All jobs as columns, in the order in which they were given. -1: none, or not yet."""

    job_id: Ints
    submit_s: Ints
    eligible_s: Ints
    start_s: Ints
    end_s: Ints
    state: NDArray[np.int8]
    """Index into `list(State)`; -1: not submitted yet."""
    nodes: Ints
    restarts: Ints
    scheduler: NDArray[np.int8]
    """0: not started, 1: main, 2: backfill."""


class _Rules:
    """What does not change while the simulation runs; forks share it."""

    def __init__(self, config: ClusterConfig, start_s: int) -> None:
        self.config = config
        self.cluster = Cluster(config, start_s)
        """The reference's, for its checks of input; no job ever enters it."""
        self.node_names = self.cluster.node_names
        self.index = {name: number for number, name in enumerate(self.node_names)}
        self.partition_index = {
            partition.name: number for number, partition in enumerate(config.partitions)
        }
        self.qos_index = {qos.name: number for number, qos in enumerate(config.qos)}
        self.reservation_index = {
            item.name: number for number, item in enumerate(config.reservations)
        }
        self._forms: dict[tuple[object, ...], _core.Form] = {}

    def core_config(self) -> _core.Config:
        config, cluster, parts = self.config, self.cluster, self.cluster.priorities
        reserved = [
            sum(1 << self.index[name] for name in set(item.nodes)) for item in config.reservations
        ]
        return _core.make_config(
            config,
            [cluster.masks[partition.name] for partition in config.partitions],
            kinds(config.nodes),
            reserved,
            [parts._partition_part[partition.name] for partition in config.partitions],
            [parts._qos_part[qos.name] for qos in config.qos],
            cluster.fairshare._decay,
        )

    def forms(self, spec: JobSpec) -> list[_core.Form]:
        """Where the job can run, and with what on each node: in each of its partitions."""
        if spec.partition is None or "," not in spec.partition:
            return [self.form(spec)]
        return [
            self.form(spec, self.cluster.partitions[name]) for name in self.cluster.waits_in(spec)
        ]

    def form(self, spec: JobSpec, partition: Partition | None = None) -> _core.Form:
        """The same, in this partition, or in the first."""
        partition = self.cluster.partition_of(spec) if partition is None else partition
        key = (
            spec.partition,
            partition.name,
            spec.cpus_per_node,
            spec.memory_mib_per_node,
            spec.gpus_per_node,
            spec.exclusive,
            spec.constraint,
            spec.reservation,
        )
        if key not in self._forms:
            request = self.cluster.request(spec, partition)
            reservation = (
                -1 if spec.reservation is None else self.reservation_index[spec.reservation]
            )
            suitable = self.cluster._suitable(spec, partition)
            listed = self.cluster.listed(spec, partition)
            self._forms[key] = (
                self.partition_index[partition.name],
                *request,
                reservation,
                suitable,
                listed,
            )
        return self._forms[key]

    def limit_s(self, spec: JobSpec) -> int | None:
        return self.cluster._limit_s(spec, self.cluster.partition_of(spec))

    def qos(self, spec: JobSpec) -> int:
        return self.qos_index[self.cluster.limits.qos_of(spec.qos).name]


class Simulator(Forked):
    """A cluster, its queue and its clock, `now_s`: see `slurm_sim.reference`, whose methods these
    are.

    Jobs are given as `JobSpec`, or, many of them, as a `JobTable`. `results()` has all jobs as
    columns.
    """

    __slots__ = ("_core", "_news", "_rules", "_telling", "on_end", "on_start", "start_s")

    def __init__(
        self, config: ClusterConfig, jobs: Iterable[JobSpec] | JobTable = (), start_s: int = 0
    ) -> None:
        self.start_s = start_s = whole("start_s", start_s, 0, LAST_S, SimulationError)
        self.on_start: list[Hook] = []
        self.on_end: list[Hook] = []
        self._news: list[tuple[bool, JobRecord]] = []
        self._telling = False
        self._rules = _Rules(config, start_s)
        builder = _core.Builder(self._rules.core_config(), _core.make_catalogue(config), start_s)
        specs = _given_jobs(jobs)
        waits = _add(self._rules, builder, specs, start_s)
        self._core = builder.build(specs)
        check_no_cycle(*waits)

    @classmethod
    def from_state(
        cls,
        config: ClusterConfig,
        now_s: int,
        running: Sequence[RunningJob] = (),
        pending: Sequence[PendingJob] = (),
        down: Collection[str] = (),
        timers: Timers | None = None,
        jobs: Iterable[JobSpec] | JobTable = (),
    ) -> Simulator:
        """Begins in the middle, with these jobs and these nodes down: see `state.py`. `jobs` are
        submitted later.

        Raises SimulationError.
        """
        now_s, items, down = given(now_s, running, pending, down, timers)
        simulator = cls(config, (), now_s if timers is None else timers.start_s)
        if now_s < simulator.start_s:
            raise SimulationError(
                f"now_s is {now_s}, before the start of the timers' periods, {simulator.start_s}"
            )
        check_state(simulator._rules.cluster, now_s, items)
        simulator._begin(now_s, items, down, timers, _given_jobs(jobs))
        return simulator

    def _begin(
        self,
        now_s: int,
        items: Sequence[RunningJob | PendingJob],
        down: Collection[str],
        timers: Timers | None,
        later: Sequence[JobSpec] | JobTable,
    ) -> None:
        rules = self._rules
        builder = _core.Builder(
            rules.core_config(), _core.make_catalogue(rules.config), self.start_s
        )
        first = [item.spec for item in items]
        for spec in first:
            _add_one(rules, builder, spec, spec.job_id or 0, spec.time_limit_s)
        taken = {spec.job_id or 0 for spec in first}
        waits = _add(rules, builder, later, now_s, taken)
        nodes_down = sorted(self._node(node) for node in down)
        states = [_placed(rules, item) for item in items]
        self._core = builder.build_state(_Joined(first, later), now_s, states, nodes_down, timers)
        check_no_cycle(*waits)

    def timers(self) -> Timers:
        """The phases of the passes' timers, for `from_state`."""
        return Timers(self.start_s, *self._core.timers())

    # ---- time

    def step(self, seconds: int) -> None:
        """Goes on by this many seconds."""
        self.run_until(self.now_s + whole("seconds", seconds, -END_S, END_S, SimulationError))

    def run_until(self, time_s: int) -> None:
        """Goes on until everything due up to and at this time has happened."""
        time_s = whole("time_s", time_s, 0, END_S, SimulationError)
        if time_s < self._core.now_s:
            raise SimulationError(
                f"can't run until {time_s}: it is {self.now_s} already; fork() before, to go back"
            )
        self._refuse_in_hook()
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        core.run_until(time_s)
        while core.news_wanted and self._tell():
            core.run_until(time_s)

    def run_until_start(self, job_id: int, latest_s: int) -> int | None:
        """Goes on until the job has started, or is over, at most until `latest_s`; returns its
        start, or None.
        """
        latest_s = whole("latest_s", latest_s, 0, END_S, SimulationError)
        self._refuse_in_hook()
        job_id = known_id(job_id)
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        start_s = core.run_until_start(job_id, latest_s)
        while core.news_wanted and self._tell():
            start_s = core.run_until_start(job_id, latest_s)
        return start_s

    def run(self) -> list[JobRecord]:
        """Goes on until nothing more can happen; returns the jobs that can't start, each with its
        reason.

        It ends, unless hooks submit for ever.
        """
        self._refuse_in_hook()
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        core.run()
        while core.news_wanted and self._tell():
            core.run()
        return self.pending()

    def _refuse_in_hook(self) -> None:
        if self._telling:
            raise SimulationError(NO_TIME_IN_HOOKS)

    def next_event_s(self) -> int | None:
        """When something is due next; None: nothing will happen any more without a call from
        outside.
        """
        return self._core.next_event_s()

    def _tell(self) -> bool:
        """Calls the hooks; what they cause in turn is told after what was there before. Whether
        there was news.
        """
        news = self._core.take_news(self._rules.node_names)
        self._news += news
        if self._telling:
            return bool(news)
        self._telling = True
        try:
            while self._news:
                started, job = self._news.pop(0)
                for hook in list(self.on_start if started else self.on_end):
                    hook(job)
                self._news += self._core.take_news(self._rules.node_names)
        finally:
            self._telling = False
        return bool(news)

    # ---- what users and operators do

    def submit(self, spec: JobSpec) -> int:
        """Submits now, or at `spec.submit_s`; returns the job's id. Raises InvalidJob."""
        rules = self._rules
        rules.cluster.check(spec)
        dependencies = None
        if spec.dependency:
            try:
                dependencies = parse_dependency(spec.dependency)
            except InvalidJob:
                self._core.check_new(spec.submit_s, 2**62 if spec.job_id is None else spec.job_id)
                raise
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        memory_mib = rules.cluster.memory_mib(spec)
        job_id = core.submit(
            spec, rules.forms(spec), rules.limit_s(spec), memory_mib, rules.qos(spec), dependencies
        )
        if core.news_wanted:
            self._tell()
        return job_id

    def _do(self, action: Callable[[], None]) -> None:
        self._core.news_wanted = bool(self.on_start or self.on_end)
        action()
        if self._core.news_wanted:
            self._tell()

    def cancel(self, job_id: int) -> None:
        """As scancel; a job that is over already is no error."""
        self._do(lambda: self._core.cancel(known_id(job_id)))

    def requeue(self, job_id: int) -> None:
        """As `scontrol requeue` of a running job: it is submitted anew, with a begin time shortly
        after now.

        Raises SimulationError for one that was submitted with ``requeue=False`` (--no-requeue).
        """
        self._do(lambda: self._core.requeue(known_id(job_id)))

    def drop_dependency(self, job_id: int) -> None:
        """As `scontrol update JobId=... Dependency=`: the job competes from now. Idempotent."""
        self._core.drop_dependency(known_id(job_id))

    def hold(self, job_id: int) -> None:
        """As `scontrol hold` of a pending job; its age begins anew when it is released."""
        self._core.hold(known_id(job_id))

    def release(self, job_id: int) -> None:
        """As `scontrol release` of a pending job: the next pass considers it."""
        self._core.release(known_id(job_id))

    def set_runtime_end(self, job_id: int, end_s: int) -> None:
        """The running job ends by itself at this time, unless its limit ends it before."""
        end_s = whole("end_s", end_s, 0, END_S, SimulationError)
        self._core.set_runtime_end(known_id(job_id), end_s)

    def forget_future(self) -> None:
        """Forgets what only a simulation knows: who will come or cancel, when nodes change, how
        long jobs really run.

        From now on nobody comes but by `submit`, all jobs run until their limits, and those that
        have a priority keep it. On a fork: what the queue of this moment tells of its starts, as
        `squeue --start` would.
        """
        self._core.forget_future()

    def suspend(self, job_id: int) -> None:
        """As `scontrol suspend` of a running job. Its limit stops, and what it holds is free for
        others.
        """
        self._core.suspend(known_id(job_id))

    def resume(self, job_id: int) -> None:
        """As `scontrol resume`: it goes on where it was. Raises SimulationError if others have its
        nodes now.
        """
        self._core.resume(known_id(job_id))

    def resize(self, job_id: int, nodes: int) -> None:
        """As `scontrol update JobId=... NumNodes=`. A running job keeps its first nodes, or gets
        free ones now.
        """
        nodes = whole("nodes", nodes, 1, MOST, SimulationError)
        job_id = known_id(job_id)
        self._core.check_resizable(job_id)
        job = self.job(job_id)
        if job.state is State.PENDING:
            cluster = self._rules.cluster
            for name in cluster.waits_in(job.spec):
                cluster._check_size(replace(job.spec, nodes=nodes), cluster.partitions[name])
        self._core.resize(job_id, nodes)

    def node_down(self, node: str) -> None:
        """The node fails: a job on it is requeued, or ends as NODE_FAIL."""
        self._change_node(node, _DOWN)

    def node_drain(self, node: str) -> None:
        """The node takes no new jobs; those on it run on."""
        self._change_node(node, _DRAIN)

    def node_up(self, node: str) -> None:
        """The node can be used again."""
        self._change_node(node, _RESUME)

    def _node(self, node: str) -> int:
        self._rules.cluster.bit(node)
        return self._rules.index[node]

    def _change_node(self, node: str, action: int) -> None:
        index = self._node(node)
        self._do(lambda: self._core.change_node(index, action))

    # ---- what there is to see

    @property
    def config(self) -> ClusterConfig:
        return self._rules.config

    @property
    def params(self) -> Params:
        return self._rules.config.params

    @property
    def now_s(self) -> int:
        return self._core.now_s

    def job(self, job_id: int) -> JobRecord:
        """A job that has been submitted. Raises UnknownJob."""
        return self._core.job(known_id(job_id), self._rules.node_names)

    def pending(self) -> list[JobRecord]:
        """By id."""
        return self._core.in_state(_PENDING, self._rules.node_names)

    def running(self) -> list[JobRecord]:
        """By id."""
        return self._core.in_state(_RUNNING, self._rules.node_names)

    def suspended(self) -> list[JobRecord]:
        """By id."""
        return self._core.in_state(_SUSPENDED, self._rules.node_names)

    def finished(self, since_s: int = 0) -> list[JobRecord]:
        """Jobs that ended at this time or later, in that order."""
        since_s = whole("since_s", since_s, -END_S, END_S, SimulationError)
        return self._core.finished(since_s, self._rules.node_names)

    def cut_short(self) -> list[JobRecord]:
        """The runs that a requeue or a node failure ended; their jobs went back into the queue."""
        return self._core.cut_short(self._rules.node_names)

    def outages(self) -> list[NodeOutage]:
        """When nodes were down or drained, by beginning."""
        names = self._rules.node_names
        return [
            NodeOutage(names[node], start_s, end_s) for node, start_s, end_s in self._core.outages()
        ]

    def results(self) -> Results:
        """All jobs as columns, without a Python object for each."""
        return Results(**self._core.results())

    @property
    def node_names(self) -> tuple[str, ...]:
        return self._rules.node_names

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return self._rules.config.partitions

    def is_up(self, node: str) -> bool:
        return self._core.is_up(self._node(node))

    def is_idle(self, node: str) -> bool:
        """Up, and nothing on it."""
        return self._core.is_idle(self._node(node))

    def energy_j(self) -> float:
        """Joules that the nodes have drawn since the start."""
        return self._core.energy_j()

    def sample(self) -> Sample:
        """What there is to learn from at this moment (the paper's third verb): see `Sample`."""
        return Sample(self.now_s, *self._core.sample())

    def fork(self) -> Self:
        """An exact copy that goes its own way from here. The hooks stay behind. `copy` and
        `deepcopy` do this.
        """
        twin = object.__new__(type(self))
        twin._core = self._core.fork()
        twin._rules = self._rules
        twin.start_s = self.start_s
        twin.on_start = []
        twin.on_end = []
        twin._news = []
        twin._telling = False
        return twin


def _given_jobs(jobs: Iterable[JobSpec] | JobTable) -> list[JobSpec] | JobTable:
    return jobs if isinstance(jobs, JobTable) else listed("jobs", jobs, JobSpec, InvalidJob)


class _Joined(Sequence[JobSpec]):
    """One list after the other."""

    def __init__(self, first: Sequence[JobSpec], later: Sequence[JobSpec] | JobTable) -> None:
        self._first, self._later = first, later

    def __len__(self) -> int:
        return len(self._first) + len(self._later)

    def __getitem__(self, index: int) -> JobSpec:  # type: ignore[override]
        return (
            self._first[index]
            if index < len(self._first)
            else self._later[index - len(self._first)]
        )


def _placed(rules: _Rules, item: RunningJob | PendingJob) -> _core.Placed:
    """A job of a state, as the core takes it."""
    if isinstance(item, PendingJob):
        return None, item.submit_s, item.eligible_s, item.known_reason, 0
    nodes = sum(rules.cluster.bit(name) for name in item.node_names)
    eligible_s = item.submitted_s if item.eligible_s is None else item.eligible_s
    return item.start_s, item.submitted_s, eligible_s, "None", nodes


Waits = tuple[dict[int, Dependencies], dict[int, list[int]]]
"""What jobs wait for, by their ids; the tasks of each array."""


def _add(
    rules: _Rules,
    builder: _core.Builder,
    jobs: Sequence[JobSpec] | JobTable,
    start_s: int,
    taken: Collection[int] = (),
) -> Waits:
    """Gives the core jobs that are submitted from `start_s` on; `taken`: ids of those that are
    there already.
    """
    if isinstance(jobs, JobTable) and not jobs.in_several_partitions:
        _add_table(rules, builder, jobs, start_s, taken)
        return {}, {}
    return _add_specs(rules, builder, jobs, start_s, taken)


def _add_one(
    rules: _Rules, builder: _core.Builder, spec: JobSpec, job_id: int, limit_s: int | None
) -> Dependencies | None:
    waits_for = parse_dependency(spec.dependency) if spec.dependency else None
    shapes, person = (
        [builder.shape(form) for form in rules.forms(spec)],
        builder.person(spec.account, spec.user),
    )
    builder.add(
        spec,
        shapes,
        person,
        limit_s,
        rules.cluster.memory_mib(spec),
        rules.qos(spec),
        job_id,
        waits_for,
    )
    return waits_for


def _add_specs(
    rules: _Rules,
    builder: _core.Builder,
    specs: Sequence[JobSpec],
    start_s: int,
    known: Collection[int],
) -> Waits:
    wishes, tasks = dict[int, Dependencies](), dict[int, list[int]]()
    taken = set(known)
    next_id = max(taken, default=0) + 1
    for spec in specs:
        rules.cluster.check(spec)
        if spec.submit_s is not None and spec.submit_s < start_s:
            raise InvalidJob(
                f"submit_s is {spec.submit_s}, in the past (now: {start_s}); leave it out to"
                " submit now"
            )
        job_id = next_id if spec.job_id is None else spec.job_id
        if job_id < 1 or job_id in taken:
            raise InvalidJob(f"job_id {job_id} is taken or not positive; give another one, or none")
        if waits_for := _add_one(rules, builder, spec, job_id, rules.limit_s(spec)):
            wishes[job_id] = waits_for
            if any(item.job_id == job_id for item in waits_for.items):
                raise InvalidJob(
                    f"job {job_id} would wait for itself ({spec.dependency}); remove this"
                    " dependency"
                )
        if spec.array_job_id is not None:
            tasks.setdefault(spec.array_job_id, []).append(job_id)
        taken.add(job_id)
        next_id = max(next_id, job_id + 1)
    return wishes, tasks


def _add_table(
    rules: _Rules, builder: _core.Builder, table: JobTable, start_s: int, known: Collection[int]
) -> None:
    """As `_add_specs`, without a Python object for each job."""
    columns = table.columns
    early = np.flatnonzero(columns["submit_s"] < start_s)
    if early.size:
        raise InvalidJob(
            f"job {early[0]} of the table: submit_s is {columns['submit_s'][early[0]]}, before"
            f" {start_s}"
        )
    if known and (taken := np.flatnonzero(np.isin(columns["job_id"], list(known)))).size:
        raise InvalidJob(
            f"job {taken[0]} of the table: job_id {columns['job_id'][taken[0]]} is taken"
        )
    kinds, kind = table.kinds()
    shapes, limits_s, memory_mib, qos = [], [], [], []
    for index, spec in enumerate(kinds):
        rows = np.flatnonzero(kind == index)
        for row in {
            rows[np.argmin(columns["nodes"][rows])],
            rows[np.argmax(columns["nodes"][rows])],
        }:
            _check_row(rules, table, int(row))
        shapes.append(builder.shape(rules.form(spec)))
        partition = rules.cluster.partition_of(spec)
        limits_s.append(partition.default_time_s or partition.max_time_s or -1)
        memory_mib.append(rules.cluster.memory_mib(spec))
        qos.append(rules.qos(spec))
        most_s = [
            most
            for most in (partition.max_time_s, rules.cluster.limits.qos_of(spec.qos).max_wall_s)
            if most
        ]
        over = rows[columns["time_limit_s"][rows] > min(most_s)] if most_s else rows[:0]
        if over.size:
            _check_row(rules, table, int(over[0]))
    persons = np.array(
        [builder.person(account, user) for account, user in table.persons], dtype=np.int64
    )
    given_s = columns["time_limit_s"]
    builder.add_columns(
        columns["job_id"],
        columns["submit_s"],
        columns["nodes"],
        np.where(given_s > 0, given_s, np.array(limits_s, dtype=np.int64)[kind]),
        columns["runtime_s"],
        np.array(shapes, dtype=np.int64)[kind],
        persons[columns["person"]],
        np.array(qos, dtype=np.int64)[kind],
        columns["cpus_per_node"],
        np.array(memory_mib, dtype=np.int64)[kind],
        columns["gpus_per_node"],
        columns["cancel_s"],
        columns["exit_code"],
    )


def _check_row(rules: _Rules, table: JobTable, row: int) -> None:
    try:
        rules.cluster.check(table[row])
    except InvalidJob as error:
        raise InvalidJob(f"job {row} of the table: {error}") from None
