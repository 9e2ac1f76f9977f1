"""Q-learning finds the exact values of a toy; its target network, mask and discount each matter."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import Tensor

from mirage.rl.fit import descend
from mirage.rl.replay import Column, ReplayMemory
from mirage.rl.targets import TargetNetwork, best_values, td_targets, values_of
from tests.unit.rl.toys import Corridor, one_hot, table

TOY = Corridor()
IMPOSSIBLE = 2


def memory_of_random_steps(generator: np.random.Generator) -> ReplayMemory:
    memory = ReplayMemory(
        500,
        {
            "state": Column(dtype=np.int64),
            "action": Column(dtype=np.int64),
            "reward": Column(),
            "after": Column(dtype=np.int64),
            "over": Column(dtype=np.bool_),
        },
    )
    state = 0
    for _ in range(700):
        action = int(generator.integers(2))
        reward, after, over = TOY.step(state, action)
        memory.add(state=state, action=action, reward=reward, after=after, over=over)
        state = int(generator.integers(TOY.length)) if over else after
    return memory


def learn(bootstrap: Callable[[Tensor], Tensor] = lambda later: later) -> np.ndarray:
    """Q-values (length, 2) after some hundred updates from random behaviour."""
    generator = np.random.default_rng(0)
    memory = memory_of_random_steps(generator)
    network = table(TOY.length, 3)
    with torch.no_grad():
        network.weight[IMPOSSIBLE] = 10.0  # would be every state's best value, were it possible
    target = TargetNetwork(network, every=20)
    possible = torch.tensor([True, True, False])
    optimizer = torch.optim.SGD(network.parameters(), lr=1.0)
    for _ in range(600):
        batch = memory.tensors(memory.sample(64, generator))
        q = values_of(network(one_hot(batch["state"], TOY.length)), batch["action"])
        later = best_values(target.network(one_hot(batch["after"], TOY.length)), possible)
        wanted = td_targets(batch["reward"], bootstrap(later), batch["over"], TOY.discount)
        descend(optimizer, torch.nn.functional.mse_loss(q, wanted))
        target.count_step()
    found: np.ndarray = network.weight.T.detach().numpy()[:, :2]
    return found


def test_q_learning_finds_the_exact_values() -> None:
    assert np.allclose(learn(), TOY.best_values, atol=0.02)


def test_without_bootstrap_it_would_stop_at_once() -> None:
    found = learn(bootstrap=torch.zeros_like)
    assert (found[:-1].argmax(axis=1) == 0).all()
    assert (TOY.best_values.argmax(axis=1) == 1).all()


def test_the_target_network_follows_every_so_many_steps() -> None:
    network = table(2, 2)
    target = TargetNetwork(network, every=3)
    with torch.no_grad():
        network.weight.fill_(5.0)
    for expected in (0.0, 0.0, 5.0):
        target.count_step()
        assert target.network.weight[0, 0] == expected
    assert not target.network.weight.requires_grad
    assert network.weight.requires_grad


def test_targets_by_hand() -> None:
    reward, later = torch.tensor([1.0, 1.0, -2.0]), torch.tensor([10.0, torch.nan, 4.0])
    found = td_targets(reward, later, torch.tensor([False, True, False]), 0.5)
    assert found.tolist() == [6.0, 1.0, 0.0]


def test_the_best_of_nothing_is_minus_infinity() -> None:
    q = torch.tensor([[1.0, 2.0], [3.0, 9.0], [4.0, 5.0]])
    possible = torch.tensor([[True, True], [True, False], [False, False]])
    assert best_values(q, possible).tolist() == [2.0, 3.0, -torch.inf]
