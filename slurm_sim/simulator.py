"""The simulator: slurmctld's rules, run by the C++ core.

They stand in plain Python in `tests/reference`; the two agree in every start.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import fields
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from slurm_sim.admission import Admission
from slurm_sim.config import ClusterConfig, NodeOutage, Params, Partition
from slurm_sim.constants import decay_per_s, partition_parts, qos_parts
from slurm_sim.copies import NO_TIME_IN_HOOKS, Forkable
from slurm_sim.core import _core
from slurm_sim.dependency import (
    Dependencies,
    Dependency,
    check_no_cycle,
    check_not_itself,
    parse_dependency,
)
from slurm_sim.errors import InvalidJob, SimulationError, UnknownJob
from slurm_sim.jobs import JobRecord, JobSpec, Sample, State
from slurm_sim.picking import node_kinds
from slurm_sim.ranges import END_S, LAST_S, MOST, known_id, listed, whole
from slurm_sim.state import InitialState, PendingJob, RunningJob, Timers
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


class JobColumns(NamedTuple):
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

    def __init__(self, config: ClusterConfig) -> None:
        self.config = config
        self.admission = admission = Admission(config)
        self.node_names = admission.node_names
        self._partitions = {name: number for number, name in enumerate(admission.partitions)}
        self._qos = {qos.name: number for number, qos in enumerate(config.qos)}
        self._reservations = {name: number for number, name in enumerate(admission.reserved)}
        self._forms: dict[tuple[object, ...], _core.Form] = {}

    def core_config(self) -> _core.Config:
        config, admission = self.config, self.admission
        return _core.make_config(
            config,
            list(admission.masks.values()),
            node_kinds(config.nodes),
            list(admission.reserved.values()),
            list(partition_parts(config).values()),
            list(qos_parts(config).values()),
            decay_per_s(config.params),
        )

    def forms(self, spec: JobSpec) -> list[_core.Form]:
        """Where the job can run, and with what on each node: in each of its partitions."""
        if spec.partition is None or "," not in spec.partition:
            return [self.form(spec)]
        partitions = self.admission.partitions
        return [self.form(spec, partitions[name]) for name in self.admission.waits_in(spec)]

    def form(self, spec: JobSpec, partition: Partition | None = None) -> _core.Form:
        """The same, in this partition, or in the first."""
        partition = self.admission.partition_of(spec) if partition is None else partition
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
            self._forms[key] = (
                self._partitions[partition.name],
                *self.admission.request(spec, partition),
                -1 if spec.reservation is None else self._reservations[spec.reservation],
                self.admission.suitable(spec, partition),
                self.admission.listed(spec, partition),
            )
        return self._forms[key]

    def qos(self, spec: JobSpec) -> int:
        return self._qos[self.admission.qos_of(spec.qos).name]


class Simulator(Forkable):
    """A cluster, its queue and its clock, `now_s`. `on_start` and `on_end` are lists of functions that
    get the job's record after its start or end; they may call the simulator, but not let time pass.

    Jobs are given as `JobSpec`, or, many of them, as a `JobTable`. `results()` has all jobs as
    columns.
    """

    __slots__ = ("_core", "_in_hooks", "_news", "_rules", "on_end", "on_start", "start_s")

    def __init__(
        self, config: ClusterConfig, jobs: Iterable[JobSpec] | JobTable = (), start_s: int = 0
    ) -> None:
        self.start_s = start_s = whole("start_s", start_s, 0, LAST_S, SimulationError)
        self.on_start: list[Hook] = []
        self.on_end: list[Hook] = []
        self._news: list[tuple[bool, JobRecord]] = []
        self._in_hooks = False
        self._rules = _Rules(config)
        builder = _core.Builder(self._rules.core_config(), _core.make_catalogue(config), start_s)
        specs = _job_list(jobs)
        waits = _add(self._rules, builder, specs, start_s=start_s)
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
        state = InitialState.of(now_s, running, pending, down, timers)
        simulator = cls(config, (), state.start_s)
        simulator._begin(state, _job_list(jobs))
        return simulator

    def _begin(self, state: InitialState, later: Sequence[JobSpec] | JobTable) -> None:
        """Makes a new, empty simulation one that is in this state."""
        rules = self._rules
        state.check(rules.admission)
        builder = _core.Builder(
            rules.core_config(), _core.make_catalogue(rules.config), self.start_s
        )
        first = [item.spec for item in state.items]
        for spec in first:
            _add_one(rules, builder, spec, job_id=spec.job_id or 0, limit_s=spec.time_limit_s)
        taken = {spec.job_id or 0 for spec in first}
        waits = _add(rules, builder, later, start_s=state.now_s, taken=taken)
        self._core = builder.build_state(
            _Concatenation(first, later),
            now_s=state.now_s,
            items=[_placed(rules, item) for item in state.items],
            down=sorted(rules.admission.index(node) for node in state.down),
            timers=state.timers,
        )
        check_no_cycle(*waits)

    def timers(self) -> Timers:
        """The phases of the passes' timers, for `from_state`."""
        values: tuple[Any, ...] = (self.start_s, *self._core.timers())
        names = (field.name for field in fields(Timers))
        return Timers(**dict(zip(names, values, strict=True)))

    # ---- time

    def step(self, seconds: int) -> None:
        """Lets this many seconds pass."""
        self.run_until(self.now_s + whole("seconds", seconds, -END_S, END_S, SimulationError))

    def run_until(self, time_s: int) -> None:
        """Lets time pass until everything due up to and at this time has happened."""
        time_s = whole("time_s", time_s, 0, END_S, SimulationError)
        if time_s < self._core.now_s:
            raise SimulationError(
                f"can't run until {time_s}: it is {self.now_s} already; fork() before, to go back"
            )
        self._refuse_in_hook()
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        core.run_until(time_s)
        while core.news_wanted and self._call_hooks():
            core.run_until(time_s)

    def run_until_start(self, job_id: int, latest_s: int) -> int | None:
        """Lets time pass until the job has started, or is over, at most until `latest_s`; returns its
        start, or None.
        """
        latest_s = whole("latest_s", latest_s, 0, END_S, SimulationError)
        self._refuse_in_hook()
        job_id = known_id(job_id)
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        start_s = core.run_until_start(job_id, latest_s)
        while core.news_wanted and self._call_hooks():
            start_s = core.run_until_start(job_id, latest_s)
        return start_s

    def run(self) -> list[JobRecord]:
        """Lets time pass until nothing more can happen; returns the jobs that can't start, each with its
        reason.

        It ends, unless hooks submit for ever.
        """
        self._refuse_in_hook()
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        core.run()
        while core.news_wanted and self._call_hooks():
            core.run()
        return self.pending()

    def _refuse_in_hook(self) -> None:
        if self._in_hooks:
            raise SimulationError(NO_TIME_IN_HOOKS)

    def next_event_s(self) -> int | None:
        """When something is due next; None: nothing will happen any more without a call from
        outside.
        """
        return self._core.next_event_s()

    def _call_hooks(self) -> bool:
        """Whether there was news. Hooks that cause news in turn are called for it after what was
        there before.
        """
        news = self._core.take_news(self._rules.node_names)
        self._news += news
        if self._in_hooks:
            return bool(news)
        self._in_hooks = True
        try:
            while self._news:
                started, job = self._news.pop(0)
                for hook in list(self.on_start if started else self.on_end):
                    hook(job)
                self._news += self._core.take_news(self._rules.node_names)
        finally:
            self._in_hooks = False
        return bool(news)

    # ---- what users and operators do

    def submit(self, spec: JobSpec) -> int:
        """Submits now, or at `spec.submit_s`; returns the job's id. Raises InvalidJob."""
        rules = self._rules
        rules.admission.check(spec)
        dependencies = None
        if spec.dependency:
            try:
                dependencies = parse_dependency(spec.dependency)
            except InvalidJob:
                self._core.check_new(spec.submit_s, 2**62 if spec.job_id is None else spec.job_id)
                raise
        core = self._core
        core.news_wanted = bool(self.on_start or self.on_end)
        job_id = core.submit(
            spec,
            forms=rules.forms(spec),
            limit_s=rules.admission.limit_s(spec),
            memory_mib=rules.admission.memory_mib(spec),
            qos=rules.qos(spec),
            dependencies=dependencies,
        )
        if core.news_wanted:
            self._call_hooks()
        return job_id

    def _do(self, action: Callable[[], None]) -> None:
        self._core.news_wanted = bool(self.on_start or self.on_end)
        action()
        if self._core.news_wanted:
            self._call_hooks()

    def cancel(self, job_id: int) -> None:
        """As scancel; a job that is over already is no error."""
        self._do(lambda: self._core.cancel(known_id(job_id)))

    def requeue(self, job_id: int) -> None:
        """As `scontrol requeue` of a running job: it is submitted again, with a begin time
        shortly after now.

        Raises SimulationError for one that was submitted with ``requeue=False`` (--no-requeue).
        """
        self._do(lambda: self._core.requeue(known_id(job_id)))

    def drop_dependency(self, job_id: int) -> None:
        """As `scontrol update JobId=... Dependency=`: the job competes from now. Idempotent."""
        self._core.drop_dependency(known_id(job_id))

    def hold(self, job_id: int) -> None:
        """As `scontrol hold` of a pending job; its age begins again when it is released."""
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
            admission = self._rules.admission
            admission.check_resize(job.spec, nodes, admission.waits_in(job.spec))
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

    def _change_node(self, node: str, action: int) -> None:
        index = self._rules.admission.index(node)
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

    def results(self) -> JobColumns:
        """All jobs as columns, without a Python object for each."""
        return JobColumns(**self._core.results())

    @property
    def node_names(self) -> tuple[str, ...]:
        return self._rules.node_names

    @property
    def partitions(self) -> tuple[Partition, ...]:
        return self._rules.config.partitions

    def is_up(self, node: str) -> bool:
        return self._core.is_up(self._rules.admission.index(node))

    def is_idle(self, node: str) -> bool:
        """Up, and nothing on it."""
        return self._core.is_idle(self._rules.admission.index(node))

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
        twin._in_hooks = False
        return twin


def _job_list(jobs: Iterable[JobSpec] | JobTable) -> list[JobSpec] | JobTable:
    return jobs if isinstance(jobs, JobTable) else listed("jobs", jobs, JobSpec, InvalidJob)


class _Concatenation(Sequence[JobSpec]):
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
    nodes = sum(rules.admission.bit(name) for name in item.node_names)
    eligible_s = item.submitted_s if item.eligible_s is None else item.eligible_s
    return item.start_s, item.submitted_s, eligible_s, "None", nodes


Waits = tuple[dict[int, Dependencies], dict[int, list[int]]]
"""What jobs wait for, by their ids; the tasks of each array."""


def _add(
    rules: _Rules,
    builder: _core.Builder,
    jobs: Sequence[JobSpec] | JobTable,
    *,
    start_s: int,
    taken: Collection[int] = (),
) -> Waits:
    """Gives the core jobs that are submitted from `start_s` on; `taken`: ids of those that are
    there already.
    """
    if isinstance(jobs, JobTable) and not jobs.in_several_partitions:
        _add_table(rules, builder, jobs, start_s=start_s, taken=taken)
        return {}, {}
    return _add_specs(rules, builder, jobs, start_s=start_s, taken=set(taken))


def _add_one(
    rules: _Rules, builder: _core.Builder, spec: JobSpec, *, job_id: int, limit_s: int | None
) -> Dependencies | None:
    waits_for = parse_dependency(spec.dependency) if spec.dependency else None
    builder.add(
        spec,
        shapes=[builder.shape(form) for form in rules.forms(spec)],
        person=builder.person(spec.account, spec.user),
        limit_s=limit_s,
        memory_mib=rules.admission.memory_mib(spec),
        qos=rules.qos(spec),
        job_id=job_id,
        dependencies=waits_for,
    )
    return waits_for


def _add_specs(
    rules: _Rules,
    builder: _core.Builder,
    specs: Sequence[JobSpec],
    *,
    start_s: int,
    taken: set[int],
) -> Waits:
    wishes, tasks = dict[int, Dependencies](), dict[int, list[int]]()
    next_id = max(taken, default=0) + 1
    for spec in specs:
        rules.admission.check(spec)
        if spec.submit_s is not None and spec.submit_s < start_s:
            raise InvalidJob(
                f"submit_s is {spec.submit_s}, in the past (now: {start_s}); leave it out to"
                " submit now"
            )
        job_id = next_id if spec.job_id is None else spec.job_id
        if job_id < 1 or job_id in taken:
            raise InvalidJob(f"job_id {job_id} is taken or not positive; give another one, or none")
        limit_s = rules.admission.limit_s(spec)
        if waits_for := _add_one(rules, builder, spec, job_id=job_id, limit_s=limit_s):
            wishes[job_id] = waits_for
            check_not_itself(job_id, spec.dependency)
        if spec.array_job_id is not None:
            tasks.setdefault(spec.array_job_id, []).append(job_id)
        taken.add(job_id)
        next_id = max(next_id, job_id + 1)
    return wishes, tasks


def _add_table(
    rules: _Rules,
    builder: _core.Builder,
    table: JobTable,
    *,
    start_s: int,
    taken: Collection[int],
) -> None:
    """As `_add_specs`, without a Python object for each job."""
    columns = table.columns
    _check_table(table, start_s=start_s, taken=taken)
    kinds, kind = table.kinds()
    for index, spec in enumerate(kinds):
        _check_kind_of_rows(rules, table, spec, np.flatnonzero(kind == index))
    persons = [builder.person(account, user) for account, user in table.persons]
    given_s = columns["time_limit_s"]
    default_s = [_default_limit_s(rules.admission.partition_of(spec)) for spec in kinds]
    builder.add_columns(
        columns["job_id"],
        columns["submit_s"],
        columns["nodes"],
        np.where(given_s > 0, given_s, _ints(default_s)[kind]),
        columns["runtime_s"],
        _ints([builder.shape(rules.form(spec)) for spec in kinds])[kind],
        _ints(persons)[columns["person"]],
        _ints([rules.qos(spec) for spec in kinds])[kind],
        columns["cpus_per_node"],
        _ints([rules.admission.memory_mib(spec) for spec in kinds])[kind],
        columns["gpus_per_node"],
        columns["cancel_s"],
        columns["exit_code"],
    )


def _ints(values: Sequence[int]) -> Ints:
    return np.array(values, dtype=np.int64)


def _default_limit_s(partition: Partition) -> int:
    """-1: none."""
    return partition.default_time_s or partition.max_time_s or -1


def _check_table(table: JobTable, *, start_s: int, taken: Collection[int]) -> None:
    columns = table.columns
    early = np.flatnonzero(columns["submit_s"] < start_s)
    if early.size:
        raise InvalidJob(
            f"job {early[0]} of the table: submit_s is {columns['submit_s'][early[0]]}, before"
            f" {start_s}"
        )
    if taken and (twice := np.flatnonzero(np.isin(columns["job_id"], list(taken)))).size:
        raise InvalidJob(
            f"job {twice[0]} of the table: job_id {columns['job_id'][twice[0]]} is taken"
        )


def _check_kind_of_rows(
    rules: _Rules, table: JobTable, spec: JobSpec, rows: NDArray[np.intp]
) -> None:
    """Checks jobs that differ in nodes and time limit only: the extremes stand for all."""
    nodes = table.columns["nodes"][rows]
    for row in {rows[np.argmin(nodes)], rows[np.argmax(nodes)]}:
        _check_row(rules, table, int(row))
    most_s = [
        most
        for most in (
            rules.admission.partition_of(spec).max_time_s,
            rules.admission.qos_of(spec.qos).max_wall_s,
        )
        if most
    ]
    over = rows[table.columns["time_limit_s"][rows] > min(most_s)] if most_s else rows[:0]
    if over.size:
        _check_row(rules, table, int(over[0]))


def _check_row(rules: _Rules, table: JobTable, row: int) -> None:
    try:
        rules.admission.check(table[row])
    except InvalidJob as error:
        raise InvalidJob(f"job {row} of the table: {error}") from None
