"""Speeds, job sequences and slots of the elastic clusters, and the schedulers without learning."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.elastic.baselines import BASELINES, baseline, run_slot
from mirage.elastic.even_places import place_evenly
from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.rollout import roll_out
from mirage.elastic.speed import JobType, TaskDemand, dl2_types
from mirage.elastic.workload import ElasticJobs, ElasticWorkload, draw
from mirage.elastic.world import ElasticConfig, ElasticWorld, TaskKind
from mirage.errors import InputError

TYPES = dl2_types()


def linear(name: str = "linear", *, best: int = 4, gpus: int = 1, ps: bool = True) -> JobType:
    """One step a second for each worker and PS pair up to ``best``; less beyond."""
    number = np.arange(9)
    speed = np.where(number <= best, number, best * 0.9).astype(float)
    table = np.minimum(speed[:, None], speed[None, :]) if ps else speed[None, :]
    return JobType(
        name=name,
        steps_per_s=table,
        batches_per_epoch=100,
        worker=TaskDemand(gpus=gpus, cpus=1),
        ps=TaskDemand(gpus=0, cpus=1) if ps else None,
    )


def jobs(*of: tuple[int, int, float]) -> ElasticJobs:
    """Jobs from (arrival slot, type, epochs)."""
    arrival, kind, epochs = (np.array(column) for column in zip(*of, strict=True))
    return ElasticJobs(
        arrival_slot=arrival,
        type_index=kind,
        epochs=epochs.astype(float),
        estimate=epochs.astype(float),
    )


def small(*types: JobType, **options: object) -> ElasticConfig:
    """Two servers of two GPUs; a job trains 1 epoch a slot for each pair of tasks."""
    chosen = types or (linear(),)
    return ElasticConfig(
        types=chosen, **{"servers": 2, "slot_s": 100.0, "most_workers": 8, "most_ps": 8} | options
    )


def give(world: ElasticWorld, *tasks: tuple[int, TaskKind]) -> list[bool]:
    """One slot's tasks in a world of one cluster; what was done."""
    world.begin_slot()
    return [bool(world.add(np.array([job]), np.array([kind]))[0]) for job, kind in tasks]


def test_the_papers_eight_types_are_never_asked_beyond_the_measurements():
    assert [kind.name for kind in TYPES][:2] == ["resnet-50", "vgg-16"]
    for kind in TYPES:
        ps, workers = np.nonzero(kind.steps_per_s)
        assert (ps + workers).max() == 24
        assert ps.min() == workers.min() == 1
    resnet = TYPES[0].steps_per_s
    assert resnet[1, 1] == pytest.approx(1 / (0.00394 * 32 + 0.4178 + 0.4213 + 0.0074))
    with pytest.raises(InputError, match="2 to 24 were measured"):
        dl2_types(most_tasks=30)


def test_a_slot_trains_by_the_table_and_ends_within_it():
    world = ElasticWorld(small(), [jobs((0, 0, 3.0), (1, 0, 1.0))])
    assert give(world, (0, TaskKind.BUNDLE), (0, TaskKind.WORKER), (0, TaskKind.PS)) == [True] * 3
    assert world.end_slot() == pytest.approx(2 / 3)
    assert world.trained[0].tolist() == [2, 0]
    give(world, (0, TaskKind.BUNDLE), (0, TaskKind.BUNDLE), (1, TaskKind.BUNDLE))
    world.end_slot()
    assert world.finish[0].tolist() == [1.5, 2.0]
    assert world.over.all()
    assert world.completion_slots()[0].tolist() == [1.5, 1.0]
    assert world.bound_slots()[0].tolist() == [0.75, 0.25]


def test_what_does_not_fit_or_is_not_allowed_is_not_done():
    world = ElasticWorld(small(), [jobs((0, 0, 50.0), (3, 0, 1.0))])
    tasks = [(0, TaskKind.WORKER)] * 5 + [
        (1, TaskKind.WORKER),
        (0, TaskKind.BUNDLE),
        (0, TaskKind.PS),
    ]
    assert give(world, *tasks) == [True] * 4 + [False, False, False, True]
    assert (world.free_gpus.sum(), world.free_cpus.sum()) == (0, 11)
    crowded = ElasticWorld(small(cpus_per_server=1), [jobs((0, 0, 50.0))])
    assert give(crowded, (0, TaskKind.BUNDLE), (0, TaskKind.PS)) == [True, False]
    full = ElasticWorld(small(cpus_per_server=1, servers=1), [jobs((0, 0, 50.0))])
    assert give(full, (0, TaskKind.BUNDLE), (0, TaskKind.WORKER)) == [False, True]


def test_all_reduce_jobs_have_no_parameter_servers():
    kind = JobType(
        name="bert",
        steps_per_s=np.array([[0, 1.0, 1.8, 2.4, 3.0]]),
        batches_per_epoch=100,
        worker=TaskDemand(gpus=1, cpus=1),
        ps=None,
    )
    world = ElasticWorld(small(kind, most_ps=0), [jobs((0, 0, 9.0))])
    assert give(world, (0, TaskKind.PS), (0, TaskKind.BUNDLE), (0, TaskKind.WORKER)) == [
        False,
        False,
        True,
    ]
    world.end_slot()
    assert world.trained[0, 0] == pytest.approx(1.0)


def test_balanced_placement_spreads_and_own_servers_come_first_without():
    for placement, free in (("balanced", [1, 1]), ("own-first", [0, 2])):
        world = ElasticWorld(small(placement=placement), [jobs((0, 0, 9.0))])
        give(world, (0, TaskKind.WORKER), (0, TaskKind.WORKER))
        assert sorted(world.free_gpus[0].tolist()) == free


def test_a_job_goes_to_its_own_servers_then_to_empty_ones():
    world = ElasticWorld(small(servers=3), [jobs((0, 0, 9.0), (0, 0, 9.0), (0, 0, 9.0))])
    workers = [(job, TaskKind.WORKER) for job in (0, 1, 0, 1, 2)]
    assert give(world, *workers) == [True] * 5
    assert world.is_on[0].sum(axis=1).tolist() == [1, 1, 1]
    assert world.neighbours[0].tolist() == [0, 0, 0]
    assert give(world, (0, TaskKind.WORKER)) == [True]
    world.begin_slot()
    assert give(world, *[(job, TaskKind.WORKER) for job in (0, 0, 1, 2, 0)]) == [True] * 5
    assert world.neighbours[0].max() == 1


def test_optimus_places_each_job_on_the_fewest_servers_the_smallest_first():
    config = small(linear(best=3), servers=4, cpus_per_server=4, placement="balanced")
    world = ElasticWorld(config, [jobs((0, 0, 9.0), (0, 0, 2.0))])
    tasks = [(0, TaskKind.BUNDLE)] * 3 + [(1, TaskKind.BUNDLE)]
    assert give(world, *tasks) == [True] * 4
    assert world.is_on[0].sum(axis=1).tolist() != [2, 1]
    place_evenly(world)
    assert world.is_on[0].sum(axis=1).tolist() == [2, 1]
    assert world.free_gpus[0].sum() == 4
    assert world.neighbours[0].tolist() == [0, 0]


def test_neighbours_scaling_and_capacity_cost_what_they_say():
    world = ElasticWorld(small(interference=0.25, servers=1), [jobs((0, 0, 9.0), (0, 0, 9.0))])
    give(world, (0, TaskKind.BUNDLE), (1, TaskKind.BUNDLE))
    world.end_slot()
    assert world.trained[0] == pytest.approx([0.75, 0.75])
    world = ElasticWorld(small(scaling_s=10.0), [jobs((0, 0, 9.0))])
    for tasks in ([(0, TaskKind.BUNDLE)], [(0, TaskKind.BUNDLE)] * 2):
        give(world, *tasks)
        world.end_slot()
    assert world.trained[0, 0] == pytest.approx(1 + 2 * 0.8)  # two tasks more stop it for 20 s
    world = ElasticWorld(small(capacity=lambda slot: 1 if slot == 0 else 2), [jobs((0, 0, 99.0))])
    assert give(world, *[(0, TaskKind.WORKER)] * 3) == [True, True, False]
    world.end_slot()
    assert give(world, *[(0, TaskKind.WORKER)] * 5) == [True] * 4 + [False]


def test_speeds_vary_around_the_table():
    world = ElasticWorld(small(variation=0.2), [jobs((0, 0, 1e6))] * 200, seed=3)
    world.begin_slot()
    world.add(np.zeros(200, dtype=int), np.full(200, TaskKind.BUNDLE))
    world.end_slot()
    trained = world.trained[:, 0]
    assert 0.8 <= trained.min() < 0.85 < 1.15 < trained.max() <= 1.2
    assert trained.mean() == pytest.approx(1, abs=0.03)


def test_drawn_jobs_have_the_papers_lengths():
    workload = ElasticWorkload(types=TYPES, jobs=4000, jobs_per_slot=20, epoch_error=0.25)
    drawn = draw(workload, np.random.default_rng(2))
    rate = np.array([kind.steps_per_s[2, 2] / kind.batches_per_epoch for kind in TYPES])
    minutes = drawn.epochs / rate[drawn.type_index] / 60
    assert minutes.mean() == pytest.approx(147, rel=0.1)
    assert 0.5 < (minutes > 60).mean() < 0.65
    off = drawn.epochs / drawn.estimate
    assert (off.min(), off.max()) == pytest.approx((0.75, 1.25), abs=0.01)
    assert drawn.arrival_slot.max() == pytest.approx(4000 / 20, rel=0.25)


@pytest.mark.parametrize("name", BASELINES)
@pytest.mark.parametrize("options", [{}, {"variation": 0.3, "interference": 0.1, "scaling_s": 5.0}])
def test_every_baseline_finishes_and_none_beats_the_bound(name, options):
    workload = ElasticWorkload(
        types=TYPES, jobs=5, jobs_per_slot=1.0, epoch_error=0.2 if options else 0
    )
    sequences = [draw(workload, np.random.default_rng(seed)) for seed in (1, 2)]
    config = ElasticConfig(types=TYPES, servers=4, **options)
    found = roll_out(baseline(name), config, sequences)
    assert found.finished.tolist() == [1, 1]
    if not options:
        assert (found.mean_jct_slots >= found.bound_slots - 1e-9).all()


def slot_of(name: str, config: ElasticConfig, sequence: ElasticJobs) -> tuple[list[int], list[int]]:
    """Workers and PSs by job in the first slot."""
    world = ElasticWorld(config, [sequence])
    scheduler = baseline(name)
    scheduler.reset(world)
    run_slot(world, scheduler)
    return world.workers[0].tolist(), world.ps[0].tolist()


def test_what_the_baselines_give_first():
    config = small(linear(best=3))
    both = jobs((0, 0, 9.0), (0, 0, 2.0))
    assert slot_of("drf", config, both) == ([2, 2], [2, 2])
    assert slot_of("fifo", config, both) == ([3, 1], [3, 1])
    assert slot_of("srtf", config, both) == ([1, 3], [1, 3])
    assert slot_of("fifo-published", config, both) == ([4, 0], [4, 0])
    # Tetris prefers the short job; the published sign the long one.
    assert slot_of("tetris", config, both)[0] == [1, 3]
    assert slot_of("tetris-published", config, both)[0] == [4, 0]
    # A short job gains more of equation 1 by each pair of tasks.
    assert slot_of("greedy", config, both) == ([1, 3], [1, 3])
    # Optimus: the remaining time falls most for who has most left.
    assert slot_of("optimus-oracle", config, both)[0] == [3, 1]


def test_greedy_finds_a_gain_that_takes_two_tasks():
    table = np.zeros((2, 4))
    table[1] = [0, 1.0, 0.9, 3.0]
    kind = JobType(
        name="stairs",
        steps_per_s=table,
        batches_per_epoch=100,
        worker=TaskDemand(gpus=1, cpus=1),
        ps=TaskDemand(gpus=0, cpus=1),
    )
    config = small(kind, most_workers=3, most_ps=1)
    assert slot_of("greedy", config, jobs((0, 0, 9.0))) == ([3], [1])
    assert slot_of("optimus-oracle", config, jobs((0, 0, 9.0))) == ([1], [1])


def test_speeds_are_learnt_from_the_shapes_that_were_seen():
    config = ElasticConfig(types=TYPES[:1], servers=40)
    world = ElasticWorld(config, [jobs((0, 0, 1e6))])
    estimates = SpeedEstimates(seed=1, every_slots=1)
    estimates.reset(world)
    shapes = [(1, 1), (4, 2), (2, 8), (8, 3), (5, 5), (3, 11)]
    for workers, ps in shapes:
        give(world, *[(0, TaskKind.WORKER)] * workers, *[(0, TaskKind.PS)] * ps)
        world.end_slot()
        estimates.observe(give_nothing(world))
    workers, ps = (np.array([[number]]) for number in (6, 10))
    assert estimates.speed_of(workers, ps) == pytest.approx(world.speed_of(workers, ps), rel=0.02)


def give_nothing(world: ElasticWorld) -> ElasticWorld:
    """The world as a scheduler sees it when the next slot begins."""
    world.begin_slot()
    return world


@given(seed=st.integers(0, 10_000), placement=st.sampled_from(["balanced", "own-first"]))
@settings(max_examples=40, deadline=None)
def test_no_server_ever_gives_more_than_it_has(seed, placement):
    rng = np.random.default_rng(seed)
    config = ElasticConfig(types=TYPES, servers=3, placement=placement)
    workload = ElasticWorkload(types=TYPES, jobs=6, jobs_per_slot=3.0)
    world = ElasticWorld(config, [draw(workload, rng) for _ in range(3)])
    for _ in range(5):
        world.begin_slot()
        for _ in range(30):
            job, kind = rng.integers(-1, 6, 3), rng.integers(0, 3, 3)
            before = world.allowed().copy()
            done = world.add(job, kind)
            rows = np.nonzero(job >= 0)[0]
            assert (done[rows] == before[rows, job[rows], kind[rows]]).all()
        assert world.free_gpus.min() >= 0
        assert world.free_cpus.min() >= 0
        gpus, cpus = world.tasks_demand(world.workers, world.ps)
        assert (gpus.sum(axis=1) + world.free_gpus.sum(axis=1) == world.total_gpus).all()
        assert (cpus.sum(axis=1) + world.free_cpus.sum(axis=1) == world.total_cpus).all()
        world.end_slot()


def table(*rows: list[float]) -> JobType:
    return JobType(
        name="t",
        steps_per_s=np.array(rows),
        batches_per_epoch=1,
        worker=TaskDemand(gpus=1, cpus=1),
        ps=None,
    )


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda: table([0.0, float("nan")]), "job type t: the speed at 1 workers and 0 PSs is nan"),
        (lambda: table([0.0, -1.0]), "is -1.0: give steps a second"),
        (lambda: table([0.0, 0.0]), "no speed above 0"),
        (lambda: jobs((0, 0, 0.0)), "job 0: epochs is 0.0; give a number above 0"),
        (lambda: jobs((1, 0, 1.0), (0, 0, 1.0)), "in the order of their arrival"),
        (lambda: ElasticWorld(small(), [jobs((0, 3, 1.0))]), "a job's type must be 0 to 0"),
        (lambda: small(linear(gpus=3)), "a worker needs 3 GPUs and 1 CPUs; a server has 2 and 8"),
        (lambda: small(variation=1.0), r"variation must be in \[0, 1\)"),
        (lambda: ElasticWorkload(types=TYPES, median_s=0), "median_s must be above 0"),
        (lambda: ElasticWorkload(types=()), "no job types"),
    ],
)
def test_wrong_input_is_refused(bad, message):
    with pytest.raises(InputError, match=message):
        bad()
