"""Rounds on measured speeds: the rule, what Pollux learns of a job, and its small search."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.elastic.baselines import run_slot
from mirage.elastic.evaluation import ElasticEvaluationPlan, evaluate
from mirage.elastic.measured.goodput import JobProfile, fit_model, grad_s, step_s, sync_s
from mirage.elastic.measured.pollux import applications
from mirage.elastic.measured.schedulers import RoundAllocator, ascend
from mirage.elastic.measured.search import Candidates, SmallPollux
from mirage.elastic.measured.world import (
    PolluxConfig,
    PolluxJobs,
    PolluxWorld,
    drawn_workload,
    pollux_config,
    published_workload,
)
from mirage.elastic.report import headline
from mirage.elastic.settings import read_setting
from mirage.errors import InputError


def played(scheduler: RoundAllocator, config: PolluxConfig, sequence: PolluxJobs) -> PolluxWorld:
    """The world when all jobs have ended."""
    world = PolluxWorld(config, [sequence])
    scheduler.reset(world)
    while not world.over.all():
        run_slot(world, scheduler)
    return world


def test_the_ascent_takes_the_best_gain_a_gpu_and_no_more_than_there_is():
    numbers = np.arange(65)
    linear, concave = numbers * 1.0, np.sqrt(numbers) * 4
    late = np.where(numbers >= 8, 40.0, 0.0)  # nothing below eight GPUs, then 5 a GPU
    values = np.stack([linear, concave, late])[None]
    given = ascend(values, np.array([[64, 64, 64]]), 20)
    # The last comes first by its gain of 5 a GPU; the root gains more than 1 a GPU up to 4.
    assert given.tolist() == [[8, 4, 8]]
    assert ascend(values, np.array([[64, 64, 64]]), 7)[0].tolist() == [3, 4, 0]
    assert ascend(values, np.array([[2, 3, 0]]), 20)[0].tolist() == [2, 3, 0]


def test_pollux_fits_the_step_time_that_it_saw():
    true = np.array([0.05, 0.002, 0.08, 0.01, 0.02, 0.004, 1.5])
    gpus = np.array([1, 2, 4, 8, 12, 2, 4, 16, 1, 8])
    several = np.array([0, 0, 0, 1, 1, 1, 1, 1, 0, 1], dtype=bool)
    samples = np.array([16, 32, 64, 16, 32, 64, 24, 48, 64, 96])
    pass_s = grad_s(true, samples.astype(float))
    total_s = step_s(true, pass_s, sync_s(true, several, gpus))
    model = fit_model(several, gpus, samples, np.stack([total_s, total_s - pass_s], axis=1))
    again = step_s(model, grad_s(model, samples * 1.0), sync_s(model, several, gpus))
    assert again == pytest.approx(total_s, rel=0.1)


def test_pollux_explores_at_most_twice_what_a_job_ran_on():
    profile = JobProfile(app=applications()["cifar10"])
    assert profile.most_gpus == 1
    cut = profile.cut(several=False, gpus=1)
    seconds = profile.app.seconds((1,), np.array([cut.samples]))[0]
    profile.observe(1, 1, cut, seconds, epoch=0)
    assert profile.most_gpus == 2
    speedup = profile.speedups(fair=1)
    assert speedup[0, 1] == pytest.approx(1)
    assert speedup[0, 2] > 1.2
    assert not speedup[:, 3:].any()


def test_the_search_never_breaks_the_rules():
    rng = np.random.default_rng(5)
    speedups = np.broadcast_to(np.sqrt(np.arange(65.0)), (6, 2, 65))
    search = Candidates(
        speedups=speedups,
        most=np.array([1, 2, 4, 8, 8, 8]),
        now=np.zeros((6, 4), dtype=int),
        restart=np.ones(6),
        gpus_per_node=4,
        rng=rng,
    )
    pool = search.search(rng.integers(0, 5, size=(5, 6, 4)), size=30, generations=30)
    assert (pool.sum(axis=1) <= 4).all()
    assert (pool.sum(axis=2) <= search.most).all()
    spread = (np.count_nonzero(pool, axis=2) > 1)[..., None] & (pool > 0)
    assert spread.sum(axis=1).max() <= 1
    fitness = search.fitness(pool)
    assert (np.diff(fitness) <= 0).all()
    assert pool[0].sum(axis=1).min() >= 1


def test_the_small_pollux_finishes_its_jobs():
    config = pollux_config(servers=4)
    sequence = drawn_workload(config, np.random.default_rng(6), jobs=12)
    world = played(SmallPollux(size=12, generations=5), config, sequence)
    assert (world.completion_slots() >= world.bound_slots() - 1).all()


def test_drawn_workloads_are_new_and_like_the_published_ones():
    config = pollux_config()
    drawn = drawn_workload(config, np.random.default_rng(7))
    other = drawn_workload(config, np.random.default_rng(8))
    assert len(drawn) == len(published_workload(1, config)) == 160
    assert drawn.submitted_s.tolist() != other.submitted_s.tolist()
    assert drawn.submitted_s.max() < 8 * 3600
    many = [drawn_workload(config, np.random.default_rng(seed)) for seed in range(20)]
    cifar10 = [nth for nth, (name, _) in enumerate(config.batches) if name == "cifar10"]
    share = np.mean([np.isin(each.type_index, cifar10).mean() for each in many])
    assert 0.33 < share < 0.45


def test_schedulers_of_the_setting_are_compared():
    setting = read_setting("pollux")
    short = [drawn_workload(setting.world, np.random.default_rng(seed), jobs=6) for seed in (1, 2)]
    setting = replace(setting, test=short)
    found = evaluate(
        ElasticEvaluationPlan(setting=setting, models={}, against=("greedy-rule",), sequences=9)
    )
    assert found.record["sequences"] == 2
    assert list(found.record["schedulers"]) == ["greedy-rule", "tiresias"]
    assert "has the shortest mean completion time" in headline(found)
    with pytest.raises(
        InputError, match="no scheduler 'nobody'; there are tiresias, optimus-pollux"
    ):
        setting.scheduler("nobody", seed=1)
