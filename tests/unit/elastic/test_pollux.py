"""Measured speeds, and Pollux's comparison against what its public simulator gave."""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np
import pytest

from mirage.elastic.baselines import run_slot
from mirage.elastic.measured.pollux import applications, packed, read_rows
from mirage.elastic.measured.schedulers import GreedyRounds, PolluxOptimus, Tiresias
from mirage.elastic.measured.world import (
    GPUS_PER_NODE,
    PolluxConfig,
    PolluxWorld,
    pollux_config,
    pollux_jobs,
    published_workload,
    take,
)
from mirage.elastic.rollout import roll_out
from mirage.elastic.speed import dl2_types
from mirage.elastic.workload import ElasticJobs, ElasticWorkload, draw
from mirage.elastic.world import ElasticConfig
from mirage.errors import InputError

ORIGINAL = Path(__file__).parents[4] / "shared" / "data" / "pollux"


def rows(*jobs: tuple[int, str, int, int]) -> list[dict[str, str]]:
    """Jobs of (submitted_s, application, GPUs, batch)."""
    return [
        {
            "name": f"{app}-{nth}",
            "submitted_s": str(at),
            "application": app,
            "gpus": str(gpus),
            "batch": str(batch),
        }
        for nth, (at, app, gpus, batch) in enumerate(jobs)
    ]


def world_of(config: PolluxConfig, *jobs: tuple[int, str, int, int]) -> PolluxWorld:
    return PolluxWorld(config, [pollux_jobs(rows(*jobs), config)])


def play(world: PolluxWorld, *rounds: list[int]) -> None:
    for gpus in rounds:
        world.begin_slot()
        world.give(np.array([gpus]))
        world.end_slot()


@pytest.mark.parametrize(
    ("scheduler", "workload", "mean_s"),
    [(Tiresias(), 6, 3469.69375), (Tiresias(), 1, 2473.65), (PolluxOptimus(), 6, 5301.875)],
)
def test_the_world_gives_the_published_simulators_results_to_the_digit(scheduler, workload, mean_s):
    config = pollux_config()
    found = roll_out(scheduler, config, [published_workload(workload, config)])
    assert found.mean_jct_slots[0] * config.slot_s == pytest.approx(mean_s, abs=1e-6)
    assert found.finished[0] == 1
    assert found.mean_jct_slots[0] > found.bound_slots[0]


def test_a_measured_placement_matters():
    app = applications()["imagenet"]
    one, two, four = (
        app.seconds(place, np.array([20]))[0, 0] for place in ((4,), (2, 2), (1,) * 4)
    )
    assert (one, two, four) == pytest.approx((0.161, 0.383, 0.334), abs=1e-3)
    assert app.seconds((4, 2), np.array([20])) == pytest.approx(app.seconds((2, 4), np.array([20])))
    # Two nodes of 3 and 5 GPUs do not exist; between measured sizes it is interpolated.
    assert 0.2 < app.seconds(packed(24), np.array([40]))[0, 0] < 1.0
    with pytest.raises(InputError, match="must be 200 to 12800"):
        app.gain(np.array([100]))


def test_a_tuned_batch_is_at_least_as_good_as_the_users():
    for name, batch, gpus in (("cifar10", 2048, 2), ("deepspeech2", 640, 3), ("yolov3", 64, 4)):
        app = applications()[name]
        tuned = app.tuned_goodput(packed(gpus))
        users = app.goodput(packed(gpus), app.cut(batch, gpus))
        assert (tuned >= users * 0.97).all()  # candidates are 50 steps apart
        assert (tuned / users).mean() > 1.02


def test_who_is_placed_again_stands_still_and_who_keeps_its_gpus_does_not():
    world = world_of(pollux_config(), (10, "cifar10", 4, 2048), (50, "yolov3", 1, 64))
    play(world, [0, 0], [4, 0])
    first = world.progress[0, 0]
    play(world, [4, 1])
    assert world.progress[0, 0] - first == pytest.approx(2 * first, rel=0.1)
    play(world, [6, 1])
    assert world.placements[0].tolist() == [2, 1]
    assert np.nonzero(world.place[0, 1])[0].tolist() == [1]
    assert world.attained_gpu_s[0, 0] == 4 * 120 + 6 * 60
    play(world, [0, 1])
    assert not world.place[0, 0].any()


def test_jobs_on_one_network_slow_each_other():
    jobs = [(0, "cifar10", 4, 2048)] * 2
    spread = np.zeros((1, 2, 16), dtype=int)
    spread[0, 0, :2] = 2
    spread[0, 1, 1:3] = 2
    done = []
    for interference in (0.0, 0.5):
        world = world_of(pollux_config(interference=interference), *jobs)
        world.begin_slot()
        world.give_places(spread)
        world.end_slot()
        done.append(world.progress[0].copy())
    assert done[1] == pytest.approx(done[0] / 2)


def test_gpus_are_taken_as_the_rule_says():
    for rule, expected in ((False, ([1, 0, 2], [4, 3, 1])), (True, ([1, 0, 2], [4, 3, 1]))):
        free = np.array([3, 4, 2])
        assert take(free, 8, packed=rule) == expected
        assert free.tolist() == [0, 0, 1]
    assert take(np.array([4, 2, 3]), 2, packed=True) == ([1], [2])
    assert take(np.array([4, 2, 3]), 2, packed=False) == ([0], [2])


def test_a_steady_greedy_moves_jobs_less():
    config = pollux_config()
    jobs = rows(*[(60 * nth, "cifar10", 4, 2048) for nth in range(12)], (900, "bert", 8, 384))
    sequence = pollux_jobs(jobs, config)
    moves = {}
    for keep in (0.0, 0.1):
        world = PolluxWorld(config, [sequence])
        scheduler = GreedyRounds(keep=keep)
        scheduler.reset(world)
        while not world.over.all():
            run_slot(world, scheduler)
            assert (world.place.sum(axis=1) <= GPUS_PER_NODE).all()
        moves[keep] = world.placements.sum()
    assert moves[0.1] < moves[0.0]


def dl2_jobs() -> ElasticJobs:
    return draw(ElasticWorkload(types=dl2_types(), jobs=2), np.random.default_rng(1))


def other_world() -> None:
    roll_out(Tiresias(), ElasticConfig(types=dl2_types()), [dl2_jobs()])


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (other_world, "scheduler 'tiresias' needs setting pollux"),
        (lambda: pollux_config().open([dl2_jobs()]), "must be those of a Pollux workload"),
        (lambda: published_workload(9, pollux_config()), "workload 9: there are 1 to 8"),
        (lambda: world_of(pollux_config(), (0, "gpt", 1, 8)), "unknown application or batch size"),
        (lambda: world_of(pollux_config(), (0, "ncf", 1, 8)), "unknown application or batch size"),
        (lambda: play(world_of(pollux_config(), (0, "ncf", 1, 32768)), [2]), "more GPUs than"),
        (lambda: pollux_config(restart_s=-1.0), "restart_s must not be negative"),
    ],
)
def test_wrong_input_is_refused(bad, message):
    with pytest.raises(InputError, match=message):
        bad()


@pytest.mark.skipif(not ORIGINAL.is_dir(), reason="the originals are not here")
def test_the_packages_tables_are_the_originals():
    with (ORIGINAL / "imagenet" / "placements.csv").open() as file:
        original = [float(row["step_time"]) for row in csv.DictReader(file)]
    ours = [
        float(row["step_s"])
        for row in read_rows("pollux", "steps.csv")
        if row["application"] == "imagenet" and row["placement"]
    ]
    assert ours == pytest.approx(original, rel=1e-8)
    workloads = read_rows("pollux", "workloads.csv")
    for nth in range(1, 9):
        with (ORIGINAL / "workloads" / f"workload-{nth}.csv").open() as file:
            expected = [
                (row["name"], row["time"], row["batch_size"]) for row in csv.DictReader(file)
            ]
        mine = [row for row in workloads if row["workload"] == str(nth)]
        assert [(row["name"], row["submitted_s"], row["batch"]) for row in mine] == expected
