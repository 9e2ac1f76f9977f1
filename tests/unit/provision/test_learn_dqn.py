"""Deep Q-learning: reaches the toy queue's best policy; replay, targets and exploration are what
they say.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from mirage.errors import InputError
from mirage.provision.learn.dqn import (
    DqnLearner,
    DqnOptions,
    EpisodeRollout,
    RolloutStates,
    train_dqn,
)
from mirage.provision.learn.episode import Ints
from mirage.provision.learn.model import States
from mirage.provision.learn.points import Points, prepare
from mirage.provision.learn.pretrain import new_model, train_supervised
from mirage.provision.learn.scaling import Scaling
from mirage.provision.learn.training import Draw, mean_release
from mirage.rl.fit import Progress
from tests.learners import ALL_TASTES, FRESH, PRETRAIN, SHORT, SMALL, TRAIN, VALIDATION, regret
from tests.toy import Toy

CPU = torch.device("cpu")
OPTIONS = DqnOptions(
    pretrain=replace(PRETRAIN, rounds=3),
    rounds=24,
    episodes=16,
    updates=30,
    batch=32,
    rate=3e-3,
    ahead=12,
    sync=30,
)
BRIEF = replace(OPTIONS, pretrain=SHORT, rounds=2, episodes=3, updates=3)


def learner(options: DqnOptions = OPTIONS) -> DqnLearner:
    begun = new_model(TRAIN, options.pretrain, 0)
    generator = np.random.default_rng(0)
    return DqnLearner(
        network=begun.network,
        draw=Draw(TRAIN, begun.scaling, generator),
        options=options,
        generator=generator,
        device=CPU,
    )


def test_it_reaches_the_best_policy_from_a_weak_pretraining() -> None:
    base = train_supervised(TRAIN, VALIDATION, OPTIONS.pretrain)
    model = train_dqn(TRAIN, VALIDATION, OPTIONS, fresh=FRESH, base=base)
    assert model.name == "transformer-dqn"
    assert regret(model, 0.5) < 0.1 < regret(base, 0.5)


@pytest.mark.long
def test_equation_4_to_the_letter_learns_without_pretraining() -> None:
    options = replace(OPTIONS, pretrained=False, ahead=1, epsilon=1.0)
    assert regret(train_dqn(TRAIN, VALIDATION, options, fresh=FRESH), 0.5) < 0.25


def test_replay_off_and_pretraining_off_run() -> None:
    for change in (
        {"replay": False},
        {"pretrained": False},
        {"pretrain": replace(SHORT, share=None)},
    ):
        told: list[Progress] = []
        train_dqn(TRAIN, VALIDATION, replace(BRIEF, **change), fresh=FRESH, progress=told.append)  # type: ignore[arg-type]
        online = [item for item in told if item.stage == "dqn"]
        assert len(online) == 2
        assert all(np.isfinite([item.loss, item.score]).all() for item in online)


def test_a_mixture_of_experts_goes_on_too() -> None:
    moe = replace(SHORT, shape=replace(SMALL, experts=2, gate="top1"), expert_rounds=1)
    model = train_dqn(TRAIN, VALIDATION, replace(BRIEF, pretrain=moe), fresh=FRESH)
    assert model.name == "moe-dqn"


def test_the_same_seed_gives_the_same_model() -> None:
    one, same = (train_dqn(TRAIN, VALIDATION, BRIEF, fresh=FRESH, seed=4) for _ in range(2))
    states = States.of(VALIDATION[0])
    assert np.array_equal(one.assess(states).cost_now_s, same.assess(states).cost_now_s)


def test_the_base_is_left_as_it_was_and_the_best_online_round_is_kept() -> None:
    base = train_supervised(TRAIN, VALIDATION, BRIEF.pretrain)
    before = base.network.value.weight.clone()
    told: list[Progress] = []
    model = train_dqn(TRAIN, VALIDATION, BRIEF, fresh=FRESH, base=base, progress=told.append)
    assert torch.equal(base.network.value.weight, before)
    assert {item.stage for item in told} == {"dqn"}
    assert told[-1].best == min(item.score for item in told)
    assert 0 < model.distance(base) < 1
    assert base.distance(base) == 0


def rollouts(ahead: int = 12) -> tuple[DqnLearner, list[EpisodeRollout], RolloutStates]:
    one = learner(replace(OPTIONS, ahead=ahead, pretrain=ALL_TASTES))
    lived = one.play(one.draw(6), one.epsilon(0))
    for rollout in lived:  # a policy of chance: the untrained one may never release
        rollout.release[:-1] = one.generator.random((len(rollout.release) - 1, 2)) < 0.1
    return one, lived, RolloutStates(lived, CPU)


def targets(one: DqnLearner, replay: RolloutStates, slots: Ints) -> torch.Tensor:
    return one._targets(replay.points, one._lesson(replay, slots))


@pytest.mark.parametrize("ahead", [1, 5, 99])
def test_targets_are_the_bellman_equations(ahead: int) -> None:
    one, lived, replay = rollouts(ahead)
    found = targets(one, replay, replay.points.decisions).numpy() * float(one.network.scale_h)
    state_values = one._target.network.values(
        replay.points.states(replay.points.decisions),
        replay.points.asked(replay.shares, replay.points.decisions),
    )
    best_h = state_values.q.max(-1).values.detach().numpy() * float(one.network.scale_h)
    position = 0
    for rollout in lived:
        costs_h = rollout.shares * rollout.episode.interruption_h[:, None]
        costs_h = costs_h + (1 - rollout.shares) * rollout.episode.overlap_h[:, None]
        points = len(costs_h) - 1
        for k in range(points):
            for j in range(2):
                submit, wait = found[position + k, j]
                assert submit == pytest.approx(-costs_h[k, j], abs=1e-4)
                until = next((i for i in range(k + 1, points) if rollout.release[i, j]), points)
                reached = k + ahead
                is_over = until < reached or reached >= points
                expected = -costs_h[until, j] if is_over else best_h[position + reached, j]
                assert wait == pytest.approx(expected, abs=1e-4)
        position += points


@pytest.mark.parametrize("outcomes", ["present", "stored"])
def test_old_decisions_count_only_where_outcomes_are_stored(outcomes: str) -> None:
    one = learner(replace(OPTIONS, outcomes=outcomes, ahead=99))  # type: ignore[arg-type]
    lived = one.play(one.draw(6), 0.0)
    for rollout in lived:
        rollout.release[:] = True  # an older policy released at once
    with torch.no_grad():
        one.network.value.weight.zero_()  # the present one never does
    one._memory.extend(lived)
    replay = RolloutStates(one._replayed(), CPU)
    first = replay.points.first
    wait = targets(one, replay, first)[:, 0, 1].numpy() * float(one.network.scale_h)
    rewards_h = replay.rewards_h
    at = replay.points.last_decision + 1 if outcomes == "present" else first + 1
    assert wait == pytest.approx(rewards_h(at)[:, 0], abs=1e-4)
    every_state = len(replay.visited) == len(replay.points.decisions)
    assert every_state == (outcomes == "present")


def test_it_is_trained_with_the_memory_that_it_is_served_with() -> None:
    base = train_supervised(TRAIN, VALIDATION, BRIEF.pretrain)
    base = replace(base, serving=replace(base.serving, memory=6))
    assert train_dqn(TRAIN, VALIDATION, BRIEF, fresh=FRESH, base=base).serving.memory == 6
    points = Points(prepare([Toy(limit_h=2).episode(0)], Scaling.fit([TRAIN[0].rows])), CPU)
    gains = np.arange(len(points.decisions)) - 5.5
    expected = [gains[max(0, k - 5) : k + 1].mean() > 0 for k in range(len(gains))]
    assert mean_release(points, gains[:, None], 6)[:, 0].tolist() == expected
    assert expected != (gains > 0).tolist()


def test_a_discount_makes_later_rewards_smaller() -> None:
    one, _, replay = rollouts(99)
    slots = replay.points.first
    plain = targets(one, replay, slots)[..., 1]
    one.options = replace(one.options, discount=0.9)
    future = replay.after(slots, 99)
    assert torch.allclose(
        targets(one, replay, slots)[..., 1],
        plain * torch.tensor(0.9**future.waits).float(),
        atol=1e-5,
    )


def test_epsilon_falls_and_is_the_share_of_episodes_that_explore() -> None:
    options = replace(OPTIONS, epsilon=1.0, epsilon_end=0.0, rounds=3, updates=1, episodes=200)
    one = learner(options)
    with torch.no_grad():  # a policy that never releases
        one.network.value.weight.zero_()
    ends = []
    for done, expected in enumerate((1.0, 0.5, 0.0)):
        assert one.epsilon(done) == pytest.approx(expected)
        lived = one.play(one.draw(200), one.epsilon(done))
        ends.append(np.mean([rollout.visited.sum() for rollout in lived]) / len(lived[0].visited))
    assert ends == pytest.approx([0.5, 0.75, 1.0], abs=0.08)


def test_the_target_network_follows_only_every_so_many_steps() -> None:
    one = learner(replace(OPTIONS, sync=4, updates=3))
    before = one._target.network.value.weight.clone()
    one.round(0)
    assert torch.equal(one._target.network.value.weight, before)
    one.round(1)
    assert not torch.equal(one._target.network.value.weight, before)


def test_the_memory_mixes_episodes_and_forgets_the_oldest() -> None:
    one = learner(replace(OPTIONS, memory=8, episodes=3))
    for done in range(4):
        one.round(done)
    assert len(one._memory) == 8
    replay = RolloutStates(one._memory, CPU)
    batch = one._batches(replay.visited)[0]
    assert len(set(replay.points.episode[batch].tolist())) > 4
    assert np.isin(batch, replay.visited).all()


def test_without_replay_each_rounds_states_come_once_in_the_order_of_time() -> None:
    one = learner(replace(OPTIONS, replay=False, episodes=3, updates=99))
    one.round(0)
    one.round(1)
    replay = RolloutStates(one._memory, CPU)
    assert len(one._memory) == 3
    assert np.array_equal(np.concatenate(one._batches(replay.visited)), replay.visited)


def test_ctrl_c_in_either_phase_keeps_what_there_is() -> None:
    for stage in ("pretrain", "dqn"):

        def press(told: Progress, stage: str = stage) -> None:
            if told.stage == stage:
                raise KeyboardInterrupt

        model = train_dqn(TRAIN, VALIDATION, BRIEF, fresh=FRESH, progress=press)
        assert model.name == "transformer-dqn"
        assert model.serving.interrupted


def test_bad_input_is_refused() -> None:
    base = new_model(TRAIN, SHORT, 0)
    with pytest.raises(InputError, match="another shape"):
        train_dqn(TRAIN, VALIDATION, replace(BRIEF, pretrain=ALL_TASTES), base=base)
    for wrong in ({"ahead": 0}, {"epsilon": 2.0}, {"discount": -0.1}):
        with pytest.raises(InputError, match=next(iter(wrong))):
            DqnOptions(**wrong)  # type: ignore[arg-type]
