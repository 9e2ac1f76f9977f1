"""The set policy for rounds, its training, and the small Pollux."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch

from mirage.elastic.baselines import run_slot
from mirage.elastic.evaluation import ElasticEvaluationPlan, evaluate
from mirage.elastic.learn.rounds import RoundsEvolutionOptions, RoundsLearner, RoundsOptions
from mirage.elastic.learn.training import ElasticPlan, save_result, train
from mirage.elastic.measured.goodput import JobProfile, fit_model, grad_s, step_s, sync_s
from mirage.elastic.measured.pollux import applications
from mirage.elastic.measured.rounds import (
    LinearRounds,
    RuleRounds,
    SetRounds,
    ValueNetwork,
    features,
    view,
)
from mirage.elastic.measured.schedulers import RoundAllocator, ascend, mean_completion_s
from mirage.elastic.measured.search import Candidates, SmallPollux
from mirage.elastic.measured.world import (
    PolluxConfig,
    PolluxJobs,
    PolluxWorld,
    drawn_workload,
    pollux_config,
    published_workload,
)
from mirage.elastic.model import load_model
from mirage.elastic.report import headline
from mirage.elastic.settings import read_setting
from mirage.errors import InputError
from mirage.rl.fit import seeded


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


def test_an_untrained_network_is_the_rule():
    config = pollux_config()
    sequence = drawn_workload(config, np.random.default_rng(1), jobs=20)
    with seeded(1):
        network = ValueNetwork(16, 1, 2)
    by_rule = played(RuleRounds(), config, sequence)
    by_network = played(SetRounds(network=network), config, sequence)
    assert by_rule.finish_s.tolist() == by_network.finish_s.tolist()


def test_features_do_not_depend_on_the_order_of_jobs_and_are_finite():
    config = pollux_config()
    sequence = drawn_workload(config, np.random.default_rng(2), jobs=30)
    world = PolluxWorld(config, [sequence, sequence])
    rule = RuleRounds()
    rule.reset(world)
    for _ in range(120):
        run_slot(world, rule)
    world.begin_slot()
    seen = view(world)
    state = features(world, seen)
    assert np.isfinite(state).all()
    assert np.abs(state).max() < 10
    network = ValueNetwork(16, 1, 2)
    torch.nn.init.normal_(network.out.weight)
    order = torch.randperm(state.shape[1])
    there = torch.from_numpy(seen.there)
    first = network(torch.from_numpy(state), there)
    mixed = network(torch.from_numpy(state)[:, order], there[:, order])
    assert torch.allclose(first[:, order], mixed, atol=1e-5)


def test_evolution_trains_the_linear_part_alone_and_can_be_repeated():
    config = pollux_config(servers=2)
    workload = drawn_workload(config, np.random.default_rng(5), jobs=8)

    def trained() -> ValueNetwork:
        network = ValueNetwork(8, 1, 2)
        evolution = RoundsEvolutionOptions(pairs=2, spread=0.5)
        options = RoundsOptions(iterations=1, workloads=1, evolution=evolution)
        learner = RoundsLearner(network, config, lambda count: [workload] * count, options, seed=3)
        assert learner.train_round(0) > 0
        return network

    network, again = trained(), trained()
    weights = network.linear.weight.detach()
    assert weights.abs().sum() > 0
    assert torch.equal(weights, again.linear.weight)
    assert not network.out.weight.any()
    shown = np.repeat(weights.numpy().T[None].astype(np.float64), 2, axis=0)
    shown[1] = 0
    both = mean_completion_s(LinearRounds(weights=shown), config, [workload] * 2)
    alone = mean_completion_s(SetRounds(network=network), config, [workload])
    rule = mean_completion_s(RuleRounds(), config, [workload])
    assert both == pytest.approx([alone[0], rule[0]])
    assert alone[0] != rule[0]


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


def test_the_setting_trains_a_model_that_is_read_again_and_compared(tmp_path):
    setting = read_setting("pollux")
    short = [drawn_workload(setting.world, np.random.default_rng(seed), jobs=6) for seed in (1, 2)]
    setting = replace(setting, test=short, draw=partial(drawn_workload, setting.world, jobs=6))
    options = RoundsOptions(iterations=1, workloads=1, width=8, validation=1, score_every=1)
    plan = ElasticPlan(
        setting=setting, method="set-rounds", teacher="greedy-rule", options=options, seed=3
    )
    save_result(tmp_path / "m", train(plan))
    assert "Untrained it was greedy-rule." in (tmp_path / "m" / "card.md").read_text()
    model = load_model(tmp_path / "m")
    found = evaluate(
        ElasticEvaluationPlan(
            setting=setting, models={"m": (tmp_path / "m", model)}, against=("greedy",), sequences=9
        )
    )
    assert found.record["sequences"] == 2
    assert list(found.record["schedulers"]) == ["m", "greedy", "tiresias"]
    assert set(found.record["schedulers"]["m"]["ratio_to"]) == {"tiresias"}
    assert "than tiresias's" in headline(found)
    with pytest.raises(InputError, match="set-rounds is for setting pollux"):
        model.check(read_setting("small"), tmp_path / "m")
    with pytest.raises(
        InputError, match="no scheduler 'nobody'; there are tiresias, optimus-pollux"
    ):
        setting.scheduler("nobody", seed=1)
