"""REINFORCE: its gradient is that of the expected return, and it learns a toy's best policy."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from mirage.rl.fit import descend
from mirage.rl.policy import entropy, log_policy, log_prob_of, sample_actions
from mirage.rl.reinforce import (
    MovingMean,
    discounted_returns,
    entropy_loss,
    others_baseline,
    reinforce_loss,
    step_baseline,
)

STEPS = 3
EPISODES = torch.tensor(list(product((0, 1), repeat=STEPS)))
"""(8, 3): every sequence of two actions."""
REWARDS = np.random.default_rng(3).normal(size=(8, STEPS))


def chances(logits: torch.Tensor) -> torch.Tensor:
    """(8,): of each sequence, with a policy for each step."""
    logs = logits.log_softmax(-1).expand(8, STEPS, 2)
    return log_prob_of(logs, EPISODES).sum(dim=1).exp()


@pytest.mark.parametrize("baseline", [0.0, 7.0])
def test_the_gradient_is_that_of_the_expected_return(baseline: float) -> None:
    """Every episode, weighted by its chance: no sampling. A step's rewards depend on the actions
    until then alone, as in any environment.
    """
    rewards = np.array([[REWARDS[int(episode[: k + 1] @ [4, 2, 1][: k + 1]), k] for k in range(3)]
                        for episode in EPISODES.numpy()])  # fmt: skip
    logits = torch.tensor([[0.5, -0.5], [0.2, 0.1], [-1.0, 0.3]], requires_grad=True)
    returns = torch.from_numpy(discounted_returns(rewards, 1.0)).float()
    exact = torch.autograd.grad((chances(logits) * returns[:, 0]).sum(), logits)[0]
    logs = log_prob_of(logits.log_softmax(-1).expand(8, STEPS, 2), EPISODES)
    advantages = (returns - baseline) * chances(logits)[:, None]
    estimate = torch.autograd.grad(reinforce_loss(logs, advantages), logits)[0]
    assert torch.allclose(-estimate, exact, atol=1e-5)
    assert exact.abs().max() > 0.05


def match_bits(baseline: str, updates: int = 60) -> float:
    """Chance of the right action after training; its reward comes at the end, far above 0."""
    generator, torch_generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    logits = torch.zeros(6, 2, requires_grad=True)
    optimizer = torch.optim.SGD([logits], lr=0.5)
    right, moving = torch.tensor([0, 1, 1, 0, 1, 0]), MovingMean(0.9)
    for _ in range(updates):
        logs = log_policy(logits).expand(16, 6, 2)
        actions = sample_actions(logs, torch_generator)
        rewards = np.zeros((16, 6))
        rewards[:, -1] = 100 + (actions == right).sum(dim=1).numpy()
        rewards[:, 0] = generator.normal(size=16)
        returns = discounted_returns(rewards, 1.0)
        if baseline == "steps":
            returns = returns - step_baseline(returns)
        elif baseline == "others":
            returns = returns - others_baseline(returns)
        elif baseline == "moving":
            returns = returns - moving.add(float(returns.mean()))
        advantages = torch.from_numpy(returns / 16).float()
        descend(optimizer, reinforce_loss(log_prob_of(logs, actions), advantages))
    return float(log_prob_of(log_policy(logits), right).exp().min().detach())


@pytest.mark.parametrize("baseline", ["steps", "others", "moving"])
def test_with_a_baseline_it_learns_and_without_it_does_not(baseline: str) -> None:
    assert match_bits(baseline) > 0.9
    assert match_bits("none") < 0.5


def test_returns_by_hand() -> None:
    returns = discounted_returns(np.array([[1.0, 2.0, 4.0], [0.0, 8.0, 0.0]]), 0.5)
    assert returns.tolist() == [[3.0, 4.0, 4.0], [4.0, 8.0, 0.0]]


def test_baselines_by_hand() -> None:
    returns = np.array([[1.0, 10.0], [2.0, 10.0], [6.0, 40.0]])
    assert step_baseline(returns).tolist() == [3.0, 20.0]
    assert others_baseline(returns).tolist() == [[4.0, 25.0], [3.5, 25.0], [1.5, 10.0]]
    moving = MovingMean(0.5)
    assert [moving.add(value) for value in (4.0, 8.0, 0.0)] == [4.0, 4.0, 6.0]
    assert moving.value == 3.0


def test_the_entropy_bonus_makes_a_policy_less_certain() -> None:
    logits = torch.tensor([2.0, 0.0, -1.0], requires_grad=True)
    before = float(entropy(log_policy(logits)))
    optimizer = torch.optim.SGD([logits], lr=1.0)
    for _ in range(200):
        descend(optimizer, entropy_loss(entropy(log_policy(logits)), 0.5))
    assert before < float(entropy(log_policy(logits))) == pytest.approx(np.log(3), abs=1e-3)


def test_an_impossible_action_without_advantage_adds_nothing() -> None:
    logs = torch.tensor([-1.0, -torch.inf], requires_grad=True)
    loss = reinforce_loss(logs, torch.tensor([2.0, 0.0]))
    assert loss.item() == 2.0
    assert torch.autograd.grad(loss, logs)[0].tolist() == [-2.0, 0.0]
