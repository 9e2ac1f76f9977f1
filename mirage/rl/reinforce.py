"""REINFORCE (Williams 1992): climb the gradient of the expected return by sampled episodes.

    gradient = mean over episodes of the sum over steps of (G_t - b_t) grad log pi(a_t | s_t)

G_t is the discounted return from step t on, b_t a baseline: any number that does not depend on a_t
leaves the expectation as it is and can make its variance much smaller. Episodes hold for the policy
that acted in them; after an update they can't be used again.

Arrays of returns have a row an episode and a column a step: (E, T). Rewards after an episode's end
are 0.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

Floats = NDArray[np.float64]


def discounted_returns(rewards: Floats, discount: float) -> Floats:
    """(E, T): G_t = sum over k >= t of discount^(k - t) r_k, of rewards (E, T)."""
    returns = np.array(rewards, dtype=np.float64)
    for step in range(returns.shape[1] - 2, -1, -1):
        returns[:, step] += discount * returns[:, step + 1]
    return returns


def step_baseline(returns: Floats) -> Floats:
    """(T,): the mean return of each step over episodes that saw the same input (E, T).

    DeepRM's baseline, and RL-TAPS's, equation 9: all episodes count at all steps, with 0 after
    their end.
    """
    mean: Floats = returns.mean(axis=0)
    return mean


def others_baseline(returns: Floats) -> Floats:
    """Of each of E >= 2 episodes, (E, ...), the mean of the *others*: it is free of their own
    actions (Kool et al. 2019, leave-one-out), so the gradient has no bias.
    """
    mean: Floats = (returns.sum(axis=0) - returns) / (len(returns) - 1)
    return mean


class MovingMean:
    """A baseline for one episode at a time: the exponential moving mean of what was added.

    Begins at the first value, so that it has no bias towards 0.
    """

    def __init__(self, decay: float = 0.99) -> None:
        """``decay``: weight of the past, from 0 to below 1."""
        self.decay = decay
        self.value: float | None = None

    def add(self, returns: float) -> float:
        """Returns the mean *before* this value (itself if it is the first), then takes it in."""
        before = returns if self.value is None else self.value
        self.value = self.decay * before + (1 - self.decay) * returns
        return before


def reinforce_loss(log_probs: Tensor, advantages: Tensor) -> Tensor:
    """-sum of advantage * log pi(a | s): its gradient is REINFORCE's, negated.

    Same shapes; the caller has divided the advantages by the number of episodes. No gradient flows
    through the advantages. A log-probability of -inf may only stand where the advantage is 0.
    """
    weights = advantages.detach()
    used = log_probs.masked_fill(weights == 0, 0.0)
    return -(weights * used).sum()


def entropy_loss(entropies: Tensor, weights: Tensor | float) -> Tensor:
    """-sum of weight * H(pi(. | s)): added to a loss it keeps the policy from deciding too early.

    ``weights``: the bonus's weight, divided as the advantages are; 0 for steps after the end.
    """
    return -(weights * entropies).sum()
