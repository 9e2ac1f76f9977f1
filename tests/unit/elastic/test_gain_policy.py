"""The policy `gain`: what it starts as, what it sees of neighbours, and how it learns."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from mirage.elastic.baselines import baseline, run_slot
from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.gain_policy import (
    FEATURES,
    GainAllocator,
    GainNetwork,
    GainWeights,
    NeighbourGreedy,
)
from mirage.elastic.learn.evolution import EvolutionOptions, completion_with_rest
from mirage.elastic.learn.supervised import Recorder
from mirage.elastic.learn.training import ElasticPlan, default_teacher, save_result, train
from mirage.elastic.model import load_model
from mirage.elastic.observation import PaperEncoder
from mirage.elastic.rollout import roll_out
from mirage.elastic.settings import Part, read_setting
from mirage.elastic.world import ElasticWorld, TaskKind
from mirage.errors import InputError

CROWDED = """\
base = "small"
[world]
servers = 5
interference = 0.25
[workload]
jobs = 10
mean_s = 6000
median_s = 4800
"""


@pytest.fixture
def crowded(tmp_path):
    path = tmp_path / "crowded.toml"
    path.write_text(CROWDED)
    return read_setting(str(path))


def allocator(network: GainNetwork, estimates: SpeedEstimates | None = None) -> GainAllocator:
    return GainAllocator(weights=GainWeights.of(network), estimates=estimates)


def test_it_sees_tasks_that_another_scheduler_gave(crowded):
    recorder = Recorder(teacher=NeighbourGreedy(), encoder=PaperEncoder(), places=6)
    assert len(recorder.record(crowded.world, crowded.sequences(Part.TEST, 1, 2), seed=5))
    world = ElasticWorld(crowded.world, crowded.sequences(Part.TEST, 1, 1))
    world.slot = int(world.arrival.max())
    world.begin_slot()
    rule, late = NeighbourGreedy(), NeighbourGreedy()
    for each in (rule, late):
        each.reset(world)
    rule.begin_slot(world)
    rule.choose(world)
    for _ in range(3):
        world.add(np.array([1]), np.array([TaskKind.BUNDLE]))
    late.begin_slot(world)
    assert [each.tolist() for each in rule.choose(world)] == [
        each.tolist() for each in late.choose(world)
    ]


@pytest.mark.parametrize("learnt", [False, True])
def test_untrained_it_is_greedy(crowded, learnt):
    sequences = crowded.sequences(Part.TEST, 1, 4)
    name = "greedy-learnt" if learnt else "greedy"
    estimates = SpeedEstimates(seed=0) if learnt else None
    rule = roll_out(baseline(name), crowded.world, sequences, seed=5)
    found = roll_out(allocator(GainNetwork(4), estimates), crowded.world, sequences, seed=5)
    np.testing.assert_allclose(found.mean_jct_slots, rule.mean_jct_slots, rtol=1e-12)


def test_neighbours_are_the_other_jobs_on_the_fullest_server(crowded):
    world = ElasticWorld(crowded.world, crowded.sequences(Part.TEST, 1, 3))
    world.slot = int(world.arrival.max())
    world.begin_slot()
    rng = np.random.default_rng(0)
    rows = np.arange(3)
    for _ in range(40):
        job, kind = rng.integers(10, size=3), rng.integers(3, size=3)
        before = world.is_on.copy()
        (same, server), *_ = world.next_servers(TaskKind.PS)
        assert same.all(), "all PSs have one size"
        done = world.add(job, np.where(kind == 2, 1, kind))
        of_ps = rows[done & (kind > 0)]
        assert world.is_on[of_ps, job[of_ps], server[of_ps]].all()
        assert (world.is_on >= before).all()
    assert (world.jobs_on == world.is_on.sum(axis=1)).all()
    others = np.where(world.is_on, world.jobs_on[:, None, :] - 1, 0).max(axis=2)
    assert others.max() > 1
    assert (world.neighbours == others).all()


def test_who_knows_what_neighbours_cost_is_faster_than_greedy(crowded):
    sequences = crowded.sequences(Part.TEST, 1, 6)
    greedy = roll_out(baseline("greedy"), crowded.world, sequences).mean_jct_slots.mean()
    knows = roll_out(NeighbourGreedy(), crowded.world, sequences).mean_jct_slots.mean()
    assert knows < 0.93 * greedy


def test_copies_of_a_sequence_have_the_same_chance_and_their_own_weights(crowded):
    world = ElasticWorld(crowded.world, crowded.sequences(Part.TEST, 1, 2), seed=3, copies=3)
    linear = np.zeros((3, FEATURES, 2), dtype=np.float32)
    linear[2, 8:10, 1] = -0.5
    into, out = np.zeros((3, FEATURES, 1), np.float32), np.zeros((3, 1, 2), np.float32)
    policy = GainAllocator(
        weights=GainWeights(linear=linear, into=into, out=out), estimates=SpeedEstimates(seed=0)
    )
    policy.reset(world)
    for _ in range(12):
        run_slot(world, policy)
    first, second, third = completion_with_rest(world).reshape(3, 2)
    assert first.tolist() == second.tolist()
    assert first.mean() > third.mean()


def test_what_is_left_counts_as_alone_at_the_best_shape(crowded):
    world = ElasticWorld(crowded.world, crowded.sequences(Part.TEST, 1, 2))
    np.testing.assert_allclose(completion_with_rest(world), world.bound_slots().mean(axis=1))


def test_evolution_learns_to_keep_away_from_neighbours(crowded, tmp_path):
    setting = replace(crowded, knows_speeds=True)
    options = EvolutionOptions(
        hidden=2, generations=8, pairs=6, sequences=4, slots=16, validation=4, score_every=8
    )
    plan = ElasticPlan(
        setting=setting,
        method="gain",
        teacher=default_teacher("gain", setting),
        options=options,
    )
    result = train(plan)
    save_result(tmp_path / "m", result)
    model = load_model(tmp_path / "m")
    sequences = setting.sequences(Part.TEST, 9, 8)
    learnt = roll_out(model.allocator(), setting.world, sequences, seed=2).mean_jct_slots
    greedy = roll_out(baseline("greedy"), setting.world, sequences, seed=2).mean_jct_slots
    assert learnt.mean() < 0.97 * greedy.mean()
    state, kept = result.model.networks.state_dict(), model.networks.state_dict()
    assert all(torch.equal(kept[name], state[name]) for name in state)


def test_a_card_says_that_the_training_was_interrupted(crowded, tmp_path):
    def interrupt(row):
        if row.round == 2:
            raise KeyboardInterrupt

    options = EvolutionOptions(
        hidden=2, generations=8, pairs=2, sequences=2, slots=4, validation=2, score_every=1
    )
    result = train(
        ElasticPlan(
            setting=crowded,
            method="gain",
            options=options,
            teacher=default_teacher("gain", crowded),
        ),
        interrupt,
    )
    assert result.interrupted
    save_result(tmp_path / "m", result)
    assert "Its training was interrupted" in (tmp_path / "m" / "card.md").read_text()


@pytest.mark.parametrize(
    ("name", "setting_name", "share"),
    [("elastic-small", "small", 0.95), ("elastic-known", "small-known", 0.995)],
)
def test_a_shipped_policy_beats_greedy_with_known_speeds(name, setting_name, share):
    setting = read_setting(setting_name)
    sequences = setting.sequences(Part.TEST, 7, 3)
    shipped = load_model(Path(__file__).resolve().parents[3] / "models" / name)
    found = roll_out(shipped.allocator(), setting.world, sequences, seed=7).mean_jct_slots
    greedy = roll_out(baseline("greedy"), setting.world, sequences, seed=7).mean_jct_slots
    assert found.mean() < share * greedy.mean()


def test_gain_takes_no_other_teacher(crowded):
    plan = ElasticPlan(setting=crowded, method="gain", teacher="drf", options=EvolutionOptions())
    with pytest.raises(InputError, match="starts as greedy-learnt"):
        train(plan)
