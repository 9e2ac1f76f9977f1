"""Supervised training reaches the toy queue's best policy, and its options do what they say."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from mirage.errors import InputError
from mirage.provision.learn import training
from mirage.provision.learn.foundation import FORECAST, SHARE, Network
from mirage.provision.learn.model import States
from mirage.provision.learn.points import Points, prepare
from mirage.provision.learn.pretrain import (
    Lesson,
    PretrainOptions,
    SupervisedLearner,
    best_from_here,
    new_model,
    train_supervised,
)
from mirage.provision.learn.scaling import Scaling
from mirage.provision.learn.training import Draw, Judge
from mirage.rl.fit import Progress
from mirage.state.variables import PAIR
from tests.learners import (
    ALL_TASTES,
    PRETRAIN,
    SHORT,
    SMALL,
    TEST,
    TOY,
    TRAIN,
    VALIDATION,
    choice,
    lateness_h,
    regret,
)

CPU = torch.device("cpu")


def test_a_transformer_reaches_the_best_policy() -> None:
    model = train_supervised(TRAIN, VALIDATION, PRETRAIN)
    assert model.name == "transformer"
    assert regret(model, 0.5) < 0.1
    assert abs(lateness_h(model, 0.5)) < 0.5


def test_a_forecast_tells_it_what_the_matrix_does_not() -> None:
    queue = replace(TOY, jitter=2000.0, predicts=True)  # nothing to be seen for noise
    train, validation, test = (
        [queue.episode(i) for i in part]
        for part in (range(128), range(1000, 1032), range(2000, 2150))
    )
    told, untold = (
        train_supervised(
            train, validation, replace(PRETRAIN, shape=replace(SMALL, forecast_input=is_told))
        )
        for is_told in (True, False)
    )
    assert regret(told, 0.5, test) < 0.1
    assert regret(untold, 0.5, test) > 0.3


def test_one_model_serves_users_of_both_tastes() -> None:
    model = train_supervised(TRAIN, VALIDATION, replace(ALL_TASTES, rounds=28))
    assert max(regret(model, share) for share in (0.5, 0.8)) < 0.12
    choices = {share: [choice(model, episode, share) for episode in TEST] for share in (0.2, 0.8)}
    assert np.mean(choices[0.2]) > np.mean(choices[0.8]) + 2  # who minds overlap more waits longer


@pytest.mark.long
def test_hindsight_makes_it_release_too_late() -> None:
    model = train_supervised(TRAIN, VALIDATION, replace(PRETRAIN, share=0.8, wait="hindsight"))
    assert lateness_h(model, 0.8) > 0.2


@pytest.mark.parametrize(
    "gate",
    ["balanced", *(pytest.param(gate, marks=pytest.mark.long) for gate in ("dense", "top1"))],
)
def test_a_mixture_of_experts_reaches_the_best_policy(gate: str) -> None:
    stages: list[str] = []
    options = replace(
        PRETRAIN, shape=replace(SMALL, experts=2, gate=gate), expert_rounds=5, rounds=10
    )
    model = train_supervised(
        TRAIN, VALIDATION, options, progress=lambda told: stages.append(told.stage)
    )
    assert model.name == "moe"
    assert regret(model, 0.5) < 0.15
    assert stages == ["expert 1"] * 5 + ["expert 2"] * 5 + ["pretrain"] * 10
    first, second = (model.network.foundation.experts[i].embedding.weight for i in (0, 1))
    assert not torch.allclose(first, second, atol=1e-2)


def test_each_expert_learns_from_its_own_time_slice(monkeypatch: pytest.MonkeyPatch) -> None:
    slices: list[list[int]] = []
    init = Draw.__init__

    def noted(self: Draw, train: list, *others: object) -> None:
        slices.append([episode.begin_s for episode in train])
        init(self, train, *others)  # type: ignore[arg-type]

    monkeypatch.setattr(Draw, "__init__", noted)
    options = replace(
        SHORT, shape=replace(SMALL, experts=3, gate="dense"), expert_rounds=1, rounds=1
    )
    train_supervised(TRAIN[::-1], VALIDATION, options)
    *parts, everything = slices
    assert [len(part) for part in parts] == [43, 43, 42]
    assert max(parts[0]) < min(parts[1])
    assert max(parts[1]) < min(parts[2])
    assert sorted(everything) == sorted(begin_s for part in parts for begin_s in part)


@pytest.mark.parametrize(("stray", "memory"), [(None, 1), (3, 6)])
def test_a_v_head_gets_the_memory_that_serves_it_best_on_validation(
    monkeypatch: pytest.MonkeyPatch, stray: int | None, memory: int
) -> None:
    """Values that are right, or but for one point that says release far too early."""

    def scores(
        _network: object, points: Points, shares: np.ndarray, _head: str, slots: np.ndarray
    ) -> np.ndarray:
        said = np.zeros((len(points.never), shares.shape[1], 2))
        costs_h = points.costs_h(shares)
        for first, last in zip(points.first, points.last_decision, strict=True):
            best = costs_h[first : last + 2].argmin(axis=0)
            said[first : last + 1, :, 0] = np.where(
                np.arange(last + 1 - first)[:, None] >= best, 100, -1
            )
            if stray is not None:
                said[first + stray, :, 0] = 0.5
        return said[slots]

    monkeypatch.setattr(training, "scores", scores)
    tastes = replace(PRETRAIN, share=None).tastes
    scaling = Scaling.fit(episode.rows for episode in TRAIN)
    judge = Judge(VALIDATION, scaling, tastes, torch.device("cpu"), most=99, memory=None)
    network = Network(SMALL)
    best_h, found = judge.best(network, "value")
    assert found == memory
    alone_h = Judge(VALIDATION, scaling, tastes, torch.device("cpu"), most=99)(network, "value")
    assert judge(network, "value") == best_h
    assert best_h < alone_h if stray else best_h == alone_h


def test_the_memory_that_was_asked_for_is_kept() -> None:
    assert train_supervised(TRAIN, VALIDATION, replace(SHORT, memory=5)).traits.memory == 5
    assert train_supervised(TRAIN, VALIDATION, replace(SHORT, memory=1)).traits.memory == 1


def test_the_same_seed_gives_the_same_model_and_another_another() -> None:
    options = replace(SHORT, shape=replace(SMALL, dropout=0.2))
    before = torch.random.get_rng_state()
    one, same, other = (
        train_supervised(TRAIN, VALIDATION, options, seed=seed) for seed in (1, 1, 2)
    )
    assert torch.equal(before, torch.random.get_rng_state())
    states = States.of(VALIDATION[0])
    assert np.array_equal(one.assess(states).cost_now_s, same.assess(states).cost_now_s)
    assert not np.allclose(one.assess(states).cost_now_s, other.assess(states).cost_now_s)


@pytest.mark.parametrize(
    "change",
    [
        {"probes": 7},
        {"moment": "start"},
        {"wait": "hindsight"},
        {"shape": replace(SMALL, patch=12)},
    ],
)
def test_ablations_run(change: dict[str, object]) -> None:
    told: list[Progress] = []
    train_supervised(TRAIN[:20], VALIDATION[:9], replace(SHORT, **change), progress=told.append)  # type: ignore[arg-type]
    assert len(told) == 2
    assert all(np.isfinite([item.loss, item.score, item.best]).all() for item in told)


def fit(options: PretrainOptions) -> tuple[SupervisedLearner, Points, np.ndarray]:
    model = new_model(TRAIN, options, 0)
    generator = np.random.default_rng(0)
    points = Points(prepare(TRAIN[:5], model.scaling), CPU)
    shares = np.full((5, 1), 0.5)
    return (
        SupervisedLearner(
            network=model.network,
            draw=Draw(TRAIN, model.scaling, generator),
            options=options,
            rounds=1,
            generator=generator,
            device=CPU,
        ),
        points,
        shares,
    )


def test_labels_are_the_rewards_of_submitting_and_of_the_later_point_that_looks_best() -> None:
    trainer, points, shares = fit(PRETRAIN)
    labels = trainer._labels(points, shares, points.decisions)[:, 0] * float(
        trainer.network.scale_h
    )
    costs_h = points.costs_h(shares)[:, 0]
    q = trainer.network.values(
        points.states(points.decisions), points.asked(shares, points.decisions)
    ).q[:, 0]
    said = np.full((len(costs_h), 2), np.nan)
    said[points.decisions] = q.detach().numpy()
    for slot, (submit, wait) in zip(points.decisions, labels, strict=True):
        last = points.last_decision[points.episode[slot]]
        rewards = [*said[slot + 1 : last + 1, 0], said[last, 1]]
        assert submit == pytest.approx(-costs_h[slot])
        assert wait == pytest.approx(-costs_h[slot + 1 + int(np.argmax(rewards))])


def test_hindsight_is_the_least_cost_still_possible() -> None:
    _, points, shares = fit(PRETRAIN)
    costs_h = points.costs_h(shares)
    stops = points.stops(best_from_here(points, costs_h))[:, 0]
    for begin, end in zip(points.first, points.last_decision + 2, strict=True):
        for slot in range(begin, end):
            assert costs_h[stops[slot], 0] == costs_h[slot:end, 0].min()


def test_with_probes_only_the_probes_are_learnt_and_known() -> None:
    trainer, points, shares = fit(replace(PRETRAIN, probes=7))
    slots = trainer._choose(points)
    assert np.array_equal(slots, points.evenly(7))
    known = np.isfinite(trainer._predicted_h(points, shares, slots)[:, 0])
    assert np.array_equal(np.flatnonzero(known & ~points.never), slots)


def test_no_more_than_so_many_states_of_an_episode() -> None:
    trainer, points, _ = fit(replace(PRETRAIN, per_episode=10))
    slots = trainer._choose(points)
    assert (np.bincount(points.episode[slots]) == 10).all()
    assert len(set(slots.tolist())) == len(slots)


def test_the_wrong_moment_shows_the_successors_start_with_the_pair_as_it_was() -> None:
    trainer, points, shares = fit(replace(PRETRAIN, moment="start"))
    slots = points.decisions[points.at_start[points.decisions] > points.decisions][:10]
    told = np.random.default_rng(0).normal(size=(len(points.never), 2)).astype(np.float32)
    points._forecast = told
    lesson = Lesson.of(points, shares, slots, np.zeros((len(slots), 1, 2)))
    (wrong, asked), right = trainer._inputs(points, lesson), points.states(slots)
    at_start = points.states(points.at_start[slots])
    others = [column for column in range(40) if not PAIR.start <= column < PAIR.stop]
    assert torch.equal(wrong[:, :, others], at_start[:, :, others])
    assert torch.equal(wrong[:, 0, PAIR], right[:, -1, PAIR])
    assert torch.equal(asked[:, 0, FORECAST], torch.from_numpy(told[points.at_start[slots]]))
    assert torch.equal(asked[:, :, SHARE], points.asked(shares, slots)[:, :, SHARE])


def test_ctrl_c_keeps_the_best_so_far() -> None:
    def press(told: Progress) -> None:
        if told.round == 2:
            raise KeyboardInterrupt

    model = train_supervised(TRAIN, VALIDATION, replace(SHORT, rounds=50), progress=press)
    assert model.serving.interrupted
    assert np.isfinite(model.assess(States.of(VALIDATION[0])).cost_now_s).all()


def test_bad_input_is_refused() -> None:
    with pytest.raises(InputError, match="validation"):
        train_supervised(TRAIN, [], SHORT)
    with pytest.raises(InputError, match="no training rows"):
        train_supervised([], VALIDATION, SHORT)
    with pytest.raises(InputError, match="too few"):
        train_supervised(
            TRAIN[:2], VALIDATION, replace(SHORT, shape=replace(SMALL, experts=3, gate="dense"))
        )
    with pytest.raises(InputError, match="probes"):
        replace(SHORT, probes=1)
    with pytest.raises(InputError, match="device"):
        replace(SHORT, device="abacus")
