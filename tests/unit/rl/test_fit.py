"""Training keeps the best weights, stops in time, and says how it went."""

from __future__ import annotations

import math

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from mirage.errors import InputError
from mirage.rl.fit import (
    BestWeights,
    FitResult,
    Progress,
    Stop,
    apply_gradients,
    backward,
    cosine,
    descend,
    fit,
    linear,
    pick_device,
    seeded,
    set_rate,
)


class Number(nn.Module):
    """One weight, which counts rounds."""

    def __init__(self) -> None:
        super().__init__()
        self.value = nn.Parameter(torch.zeros(()))

    def train_round(self, done: int) -> float:
        with torch.no_grad():
            self.value.fill_(done + 1)
        return 10.0 * done


def scores(network: Number, by_round: dict[int, float]) -> float:
    return by_round[int(network.value)]


def test_the_best_weights_are_left() -> None:
    network, seen = Number(), list[Progress]()
    by_round = {1: 3.0, 2: 1.0, 3: 2.0}
    result = fit(
        network,
        network.train_round,
        Stop(rounds=3),
        score=lambda: scores(network, by_round),
        stage="toy",
        progress=seen.append,
    )
    assert result == FitResult(3, 1.0, interrupted=False)
    assert network.value == 2
    assert seen == [
        Progress("toy", 1, 3, 0.0, 3.0, 3.0),
        Progress("toy", 2, 3, 10.0, 1.0, 1.0),
        Progress("toy", 3, 3, 20.0, 2.0, 1.0),
    ]


def test_it_stops_when_the_score_gets_no_better() -> None:
    network = Number()
    by_round = {0: 9.0, 1: 2.0, 2: 2.0, 3: math.nan, 4: 3.0, 5: 1.0}
    stop = Stop(rounds=50, patience=2)
    result = fit(network, network.train_round, stop, score=lambda: scores(network, by_round))
    assert result == FitResult(4, 2.0, interrupted=False)
    assert network.value == 1


def test_the_weights_given_count_if_asked() -> None:
    for first, left in ((True, 0), (False, 1)):
        network = Number()
        fit(
            network,
            network.train_round,
            Stop(rounds=2),
            score=lambda network=network: scores(network, {0: 1.0, 1: 2.0, 2: 3.0}),  # type: ignore[misc]
            score_first=first,
        )
        assert network.value == left


def test_only_some_rounds_are_scored() -> None:
    network, seen = Number(), list[Progress]()
    fit(
        network,
        network.train_round,
        Stop(rounds=4, patience=0),
        score=lambda: -network.value.item(),
        is_scored=lambda done: done % 2 == 0,
        progress=seen.append,
    )
    assert [item.score for item in seen if not math.isnan(item.score)] == [-2.0, -4.0]
    assert seen[0].best == math.inf


def test_without_a_score_the_last_weights_stay_and_time_ends_it() -> None:
    network = Number()
    assert fit(network, network.train_round, Stop(rounds=3)).score == math.inf
    assert network.value == 3
    assert fit(network, network.train_round, Stop(rounds=10**6, most_s=0)).rounds == 1


def test_ctrl_c_keeps_the_best_so_far_or_is_ctrl_c() -> None:
    network = Number()

    def press(progress: Progress) -> None:
        if progress.round == 3:
            raise KeyboardInterrupt

    stop, by_round = Stop(rounds=9), {1: 1.0, 2: 2.0, 3: 3.0}
    result = fit(
        network,
        network.train_round,
        stop,
        score=lambda: scores(network, by_round),
        progress=press,
    )
    assert result == FitResult(3, 1.0, interrupted=True)
    assert network.value == 1
    with pytest.raises(KeyboardInterrupt):
        fit(network, network.train_round, stop, progress=press)


def test_other_errors_are_not_swallowed() -> None:
    network = Number()

    def fail(done: int) -> float:
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fit(network, fail, Stop(rounds=1), score=lambda: 1.0, score_first=True)


def test_best_weights_are_a_copy() -> None:
    network = Number()
    best = BestWeights(network)
    assert best.is_empty
    assert not best.offer(math.nan)
    assert best.offer(2.0)
    network.train_round(6)
    assert not best.offer(2.0)
    best.restore()
    assert network.value == 0


def test_schedules() -> None:
    assert [linear(1.0, 0.2, part) for part in (0, 0.5, 1)] == pytest.approx([1, 0.6, 0.2])
    assert [cosine(1.0, 0.2, part) for part in (0, 0.5, 1)] == pytest.approx([1, 0.6, 0.2])
    assert cosine(1.0, 0.0, 0.25) > linear(1.0, 0.0, 0.25)


def test_a_step_goes_down_and_no_farther_than_its_norm() -> None:
    weight = torch.zeros(1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    descend(optimizer, 10 * (weight - 1).square().sum(), most_norm=0.5)
    assert weight.item() == pytest.approx(0.5)
    set_rate(optimizer, 0.01)
    descend(optimizer, (weight - 1).square().sum())
    assert weight.item() == pytest.approx(0.51)
    optimizer.zero_grad()
    for _ in range(2):  # gradients of two parts of a batch add up
        backward((weight - 1).square().sum())
    apply_gradients(optimizer)
    assert weight.item() == pytest.approx(0.51 + 2 * 0.01 * 0.98)


def test_seeds_repeat_and_leave_the_callers_numbers_alone() -> None:
    before = torch.random.get_rng_state()
    drawn = []
    for seed in (1, 1, 2):
        with seeded(seed) as generator:
            drawn.append((float(torch.rand(())), float(generator.random())))
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(before, torch.random.get_rng_state())


def test_a_device_that_is_not_there_is_one_clear_error() -> None:
    assert pick_device("cpu") == torch.device("cpu")
    with pytest.raises(InputError, match="device 'abacus' can't be used"):
        pick_device("abacus")
