"""Actor-critic: a value network V says how much better an action was than expected.

The TD error of a step (Sutton and Barto, section 13.5; DL2, section 4.3) is

    delta_t = r_t + discount * V(s_t+1) - V(s_t),        V(s_t+1) = 0 at an episode's end.

It is an unbiased advantage if V is right. Generalized advantage estimation (Schulman et al. 2016)
sums later errors too, A_t = sum over k of (discount * trace)^k delta_t+k: trace 0 is the TD error,
trace 1 the return less V(s_t), and between them bias is traded for variance.

Arrays have a row a step and a column an environment: (T, N). An environment that goes on after an
episode's end begins a new one in its next row.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from mirage.rl.reinforce import entropy_loss, reinforce_loss
from mirage.rl.targets import td_targets


class Advantages(NamedTuple):
    advantage: Tensor
    """(T, N): of the action that was taken."""
    value_target: Tensor
    """(T, N): what V(s_t) should become: advantage + V(s_t)."""


def td_errors(
    rewards: Tensor, values: Tensor, next_values: Tensor, terminated: Tensor, discount: float
) -> Tensor:
    """delta_t, elementwise: of rewards, V(s_t), V(s_t+1), and whether the episode ended there."""
    return td_targets(rewards, next_values, terminated, discount) - values


def estimate_advantages(
    errors: Tensor, values: Tensor, ended: Tensor, *, discount: float, trace: float = 0.0
) -> Advantages:
    """Advantages and value targets of TD errors (T, N), without gradients.

    ``ended``: (T, N), whether an episode stops at this step, be it over or cut short; no sum goes
    beyond. ``trace``: lambda of GAE, from 0 (the TD error alone) to 1.
    """
    advantage = torch.zeros_like(errors)
    following = torch.zeros_like(errors[0])
    for step in range(len(errors) - 1, -1, -1):
        following = errors[step] + discount * trace * following * ~ended[step]
        advantage[step] = following
    advantage = advantage.detach()
    return Advantages(advantage, advantage + values.detach())


def actor_critic_loss(
    log_probs: Tensor,
    entropies: Tensor,
    values: Tensor,
    found: Advantages,
    *,
    entropy_weight: float = 0.0,
    value_weight: float = 0.5,
) -> Tensor:
    """Mean over all steps of -A log pi(a|s) - entropy_weight * H + value_weight * (target - V)^2.

    ``log_probs``, ``entropies``, ``values``: of the networks now, with gradients, one a step, in
    the shape of ``found``.
    """
    count = log_probs.numel()
    policy = reinforce_loss(log_probs, found.advantage / count)
    bonus = entropy_loss(entropies, entropy_weight / count)
    return policy + bonus + value_weight * value_loss(values, found)


def value_loss(values: Tensor, found: Advantages) -> Tensor:
    """Mean square distance of the values from their targets."""
    return torch.nn.functional.mse_loss(values, found.value_target)
