"""Rebuilding 24 hours from accounting gives, bit for bit, what live snapshots would have given."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace

import numpy as np
import pytest

from mirage.domain import ClusterNode, Job, JobState, NodeEvent, Snapshot
from mirage.state.encoder import HistoryStep, JobPair, encode, vector
from mirage.state.history import History, encode_step
from mirage.state.rebuild import rebuild

STEP = 600
LENGTH = 144
TICK = 60
BEGIN = 1_700_000_400  # a multiple of the step
NOW = BEGIN + 30 * 3600
PLACES = {f"g{i}": ("gpu", "debug") for i in range(10)} | {f"c{i}": ("cpu",) for i in range(3)}
POOLS = ("cpu", "debug")


@dataclass
class World:
    """A small cluster that lives in ticks: what it is goes to snapshots, what happened goes to the
    records.

    Neither is made from the other. cpu nodes take two jobs, the others one; all times are multiples
    of the tick, so that jobs often become eligible, start or end at the very instant of a step.
    """

    rng: random.Random
    now: int = BEGIN
    pending: dict[int, Job] = field(default_factory=dict)
    running: dict[int, Job] = field(default_factory=dict)
    ends: dict[int, int] = field(default_factory=dict)
    places: dict[int, list[str]] = field(default_factory=dict)
    down: dict[str, int] = field(default_factory=dict)
    drained: dict[str, int] = field(default_factory=dict)
    records: list[Job] = field(default_factory=list)
    events: list[NodeEvent] = field(default_factory=list)
    last_id: int = 100

    def tick(self) -> None:
        self.now += TICK
        for job_id in [job_id for job_id, end in self.ends.items() if end == self.now]:
            self.end(job_id, JobState.COMPLETED)
        self.change_nodes()
        self.let_go()
        if self.rng.random() < 0.13:
            self.submit()
        if self.pending and self.rng.random() < 0.02:
            job = self.pending.pop(self.rng.choice(list(self.pending)))
            self.records.append(replace(job, state=JobState.CANCELLED, reason="", end_s=self.now))
        self.schedule()

    def submit(self) -> None:
        self.last_id += 1
        kind = self.rng.random()
        job = Job(
            job_id=self.last_id,
            user="u",
            partition=self.rng.choice(["gpu", "gpu", "debug", "cpu"]),
            state=JobState.PENDING,
            nodes=self.rng.choice([1, 1, 1, 1, 1, 2, 2, 3, 4]),
            submit_s=self.now,
            time_limit_s=self.rng.choice([None, 600, 3600, 7200, 48 * 3600]),
        )
        if kind < 0.1:
            job = replace(
                job,
                reason="Dependency",
                dependency=f"afterany:{self.rng.randint(100, self.last_id)}",
            )
        elif kind < 0.2:
            job = replace(job, reason="JobHeldUser")
        elif kind < 0.3:
            job = replace(
                job, reason="BeginTime", eligible_s=self.now + TICK * self.rng.randint(1, 30)
            )
        else:
            job = replace(job, reason="None", eligible_s=self.now)
        self.pending[job.job_id] = job

    def let_go(self) -> None:
        for job_id, job in self.pending.items():
            if job.eligible_s is None and self.rng.random() < 0.02:
                self.pending[job_id] = replace(
                    job, reason="None", eligible_s=self.now, dependency=""
                )
            elif (
                job.reason == "BeginTime"
                and job.eligible_s is not None
                and job.eligible_s <= self.now
            ):
                self.pending[job_id] = replace(job, reason="None")

    def schedule(self) -> None:
        roomy = [name for name in PLACES if self.has_room(name)]
        for job in list(self.pending.values()):
            if not job.is_queueing or job.eligible_s is None or job.eligible_s > self.now:
                continue
            free = [name for name in PLACES if job.partition in PLACES[name] and name in roomy]
            if len(free) < job.nodes:
                self.pending[job.job_id] = replace(job, reason="Resources")
                continue
            del self.pending[job.job_id]
            self.running[job.job_id] = replace(
                job, state=JobState.RUNNING, reason="None", start_s=self.now
            )
            self.places[job.job_id] = self.rng.sample(free, job.nodes)
            roomy = [name for name in roomy if self.has_room(name)]
            self.ends[job.job_id] = self.now + TICK * self.rng.choice([1, 2, 10, 30, 100, 250])

    def has_room(self, name: str) -> bool:
        load = sum(name in places for places in self.places.values())
        return self.is_up(name) and load < (2 if name[0] == "c" else 1)

    def is_up(self, name: str) -> bool:
        return name not in self.down and name not in self.drained

    def end(self, job_id: int, state: JobState) -> None:
        job = self.running.pop(job_id)
        names = tuple(self.places.pop(job_id))
        del self.ends[job_id]
        self.records.append(replace(job, state=state, reason="", end_s=self.now, node_names=names))
        if state is JobState.REQUEUED:
            self.pending[job_id] = replace(
                job,
                state=JobState.PENDING,
                reason="BeginTime",
                submit_s=self.now,
                eligible_s=self.now + 120,
                start_s=None,
            )

    def change_nodes(self) -> None:
        for since in (self.down, self.drained):
            for name in [name for name in since if self.rng.random() < 0.01]:
                self.events.append(NodeEvent(name, since.pop(name), self.now))
        if self.rng.random() < 0.005 and self.is_up(name := self.rng.choice(list(PLACES))):
            self.drained[name] = self.now
        if self.rng.random() < 0.005 and self.is_up(name := self.rng.choice(list(PLACES))):
            self.down[name] = self.now
            for job_id in [job_id for job_id, places in self.places.items() if name in places]:
                self.end(job_id, self.rng.choice([JobState.REQUEUED, JobState.NODE_FAIL]))

    def snapshot(self) -> Snapshot:
        busy = {name for places in self.places.values() for name in places}
        nodes = (
            ClusterNode(
                name=n, partitions=p, up=self.is_up(n), idle=self.is_up(n) and n not in busy
            )
            for n, p in PLACES.items()
        )
        jobs = [*self.running.values(), *self.pending.values()]
        self.rng.shuffle(jobs)
        return Snapshot(at_s=self.now, jobs=tuple(jobs), nodes=tuple(nodes))

    def accounting(self) -> list[Job]:
        running = [
            replace(job, node_names=tuple(self.places[job.job_id])) for job in self.running.values()
        ]
        pending = [
            replace(job, reason="") for job in self.pending.values() if self.rng.random() < 0.5
        ]
        runaway = Job(
            job_id=7,
            user="u",
            partition="gpu",
            state=JobState.RUNNING,
            nodes=3,
            submit_s=BEGIN,
            time_limit_s=60,
            eligible_s=BEGIN,
            start_s=BEGIN,
        )
        return self.rng.sample(
            everything := [*self.records, *running, *pending, runaway], len(everything)
        )

    def node_events(self) -> list[NodeEvent]:
        return [
            *self.events,
            *(NodeEvent(n, s, None) for n, s in [*self.down.items(), *self.drained.items()]),
        ]


def live(world: World) -> list[Snapshot]:
    """Runs the world until NOW; its snapshots at the instants of the last 24 hours."""
    snapshots = []
    while world.now < NOW:
        world.tick()
        if world.now > NOW - LENGTH * STEP and (NOW - world.now) % STEP == 0:
            snapshots.append(world.snapshot())
    return snapshots


def history(pool: str, steps: list[HistoryStep]) -> History:
    kept = History(pool, STEP, LENGTH)
    for step in steps:
        kept.add(step)
    return kept


@pytest.mark.parametrize("seed", range(6))
def test_rebuilt_matrices_equal_live_ones_bit_for_bit(seed: int) -> None:
    world = World(random.Random(seed))
    snapshots = live(world)
    records = world.accounting()
    now = snapshots[-1]
    jobs = [*now.jobs, *records]
    pairs = [JobPair(*world.rng.sample(jobs, 2)) for _ in range(40)]
    for pool in POOLS:
        steps = [encode(snapshot, pool) for snapshot in snapshots]
        rebuilt = rebuild(records, world.node_events(), now, pool, STEP, LENGTH)
        assert [step.at_s for step in rebuilt] == [step.at_s for step in steps]
        expected = history(pool, steps).matrices(pairs, NOW)
        assert np.array_equal(history(pool, rebuilt).matrices(pairs, NOW), expected)


def test_the_world_has_what_makes_it_hard() -> None:
    world = World(random.Random(1))
    snapshots = live(world)
    ids = [record.job_id for record in world.records]
    instants = {snapshot.at_s for snapshot in snapshots}
    assert len(ids) > len(set(ids)), "requeued jobs"
    assert {record.state for record in world.records} >= {
        JobState.CANCELLED,
        JobState.NODE_FAIL,
        JobState.REQUEUED,
    }
    assert all(
        instants & {getattr(r, name) for r in world.records}
        for name in ("eligible_s", "start_s", "end_s")
    )
    assert max(len(encode(snapshot, "debug").queued) for snapshot in snapshots) > 10
    anybody = JobPair(*world.rng.sample([*world.records], 2))
    rows = history("debug", [encode(snapshot, "debug") for snapshot in snapshots]).matrix(
        anybody, NOW
    )
    assert np.ptp(rows[:, :32], axis=0).all(), "every percentile changes"
    assert np.ptp(rows[:, 38:], axis=0).all(), "nodes idle and up change"


def test_a_row_of_the_matrix_is_what_the_policy_saw_at_that_time() -> None:
    """The predecessor as it is known now and as it was known then give the same row."""
    world = World(random.Random(1))
    snapshots = live(world)
    once = {job.job_id for job in world.running.values()} - {
        record.job_id for record in world.records
    }
    rebuilt = history(
        "debug",
        rebuild(world.accounting(), world.node_events(), snapshots[-1], "debug", STEP, LENGTH),
    )
    successor = Job(
        job_id=1,
        user="u",
        partition="gpu",
        state=JobState.PENDING,
        nodes=3,
        submit_s=BEGIN,
        time_limit_s=3600,
    )
    checked = 0
    for predecessor in (
        job for job in snapshots[-1].jobs if job.job_id in once and job.partition != "cpu"
    ):
        matrix = rebuilt.matrix(JobPair(predecessor, successor), NOW)
        for row, snapshot in zip(matrix, snapshots, strict=True):
            if then := snapshot.by_id.get(predecessor.job_id):
                assert np.array_equal(
                    row, vector(encode(snapshot, "debug"), JobPair(then, successor))
                )
                checked += 1
    assert checked > 50


NODES = (
    ClusterNode(name="n1", partitions=("gpu",), up=True, idle=True),
    ClusterNode(name="n2", partitions=("gpu",), up=True, idle=True),
    ClusterNode(name="n3", partitions=("gpu",), up=False, idle=False),
)


def past(
    *records: Job,
    jobs: tuple[Job, ...] = (),
    events: tuple[NodeEvent, ...] = (),
    nodes: tuple[ClusterNode, ...] = NODES,
) -> list[HistoryStep]:
    """Three rebuilt steps before the present one: at NOW - 1800, - 1200, - 600."""
    return rebuild(records, events, Snapshot(at_s=NOW, jobs=jobs, nodes=nodes), "gpu", STEP, 4)[:-1]


def ran(start_s: int, end_s: int | None, /, **changes: object) -> Job:
    state = JobState.RUNNING if end_s is None else JobState.COMPLETED
    times = {"eligible_s": start_s, "start_s": start_s, "end_s": end_s}
    return replace(
        Job(
            job_id=1,
            user="u",
            partition="gpu",
            state=state,
            nodes=2,
            submit_s=start_s - 5,
            time_limit_s=60,
        ),
        **(times | changes),
    )  # type: ignore[arg-type]


def test_the_last_step_is_the_snapshots_own() -> None:
    snapshot = Snapshot(at_s=NOW, jobs=(ran(NOW - 9, None),), nodes=NODES)
    assert encode_step(rebuild([], [], snapshot, "gpu")[-1]) == encode_step(encode(snapshot, "gpu"))


def test_jobs_without_node_names_are_counted() -> None:
    assert [step.idle_nodes for step in past(ran(NOW - 1200, NOW - 600))] == [2, 0, 2]
    assert [step.idle_nodes for step in past(ran(NOW - 1200, NOW - 600, nodes=9))] == [2, 0, 2]


def test_a_running_job_unknown_to_accounting_comes_from_the_snapshot() -> None:
    assert [len(step.running) for step in past(jobs=(ran(NOW - 1200, None),))] == [0, 1, 1]


def test_a_job_that_ended_as_the_snapshot_was_taken_is_there_once() -> None:
    steps = past(ran(NOW - 1200, NOW), jobs=(ran(NOW - 1200, None, state=JobState.COMPLETING),))
    assert [len(step.running) for step in steps] == [0, 1, 1]


def test_a_job_that_cannot_complete_has_ended_all_the_same() -> None:
    stuck = ran(NOW - 99_000, None, state=JobState.COMPLETING)
    assert [len(step.running) for step in past(ran(NOW - 99_000, NOW - 90_000), jobs=(stuck,))] == [
        0,
        0,
        0,
    ]


def test_a_record_left_open_is_not_a_running_job() -> None:
    assert [len(step.running) for step in past(ran(NOW - 1200, None))] == [0, 0, 0]


def test_a_job_that_a_limit_keeps_back_now_was_not_queued_before() -> None:
    waits = ran(NOW - 1200, None, state=JobState.PENDING, start_s=None)
    assert [len(step.queued) for step in past(jobs=(waits,))] == [0, 1, 1]
    limited = replace(waits, reason="QOSMaxJobsPerUserLimit")
    assert [len(step.queued) for step in past(jobs=(limited,))] == [0, 0, 0]


@pytest.mark.parametrize(
    ("event", "up"),
    [
        (NodeEvent("n1", NOW - 1200, NOW - 600), [2, 1, 2]),
        (NodeEvent("n1", NOW - 1200, None), [2, 2, 2]),  # left open, but the node is up
        (NodeEvent("n3", NOW - 1200, None), [3, 2, 2]),
        (NodeEvent("n3", NOW - 1200, NOW + 5), [3, 2, 2]),  # it came back after the snapshot
        (NodeEvent("n3", NOW - 1800, NOW - 1200), [2, 2, 2]),  # down now for no known reason
        (NodeEvent("other", NOW - 1200, None), [2, 2, 2]),
    ],
)
def test_nodes_up_follow_events_and_the_present(event: NodeEvent, up: list[int]) -> None:
    assert [step.up_nodes for step in past(events=(event,))] == up
