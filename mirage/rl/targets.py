"""Q-learning with a target network (Mnih et al. 2015): what Q-values should become.

    Q(s, a) -> r + discount * max over the possible a' of Q'(s', a')

Q' is a copy of the network that follows it every so many steps. Several steps may lie between s and
s': then r is their discounted sum and the discount its power (n-step returns).
"""

from __future__ import annotations

from copy import deepcopy
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

N = TypeVar("N", bound=nn.Module)


class TargetNetwork(Generic[N]):
    """A copy of a network for the targets, in evaluation mode and without gradients."""

    def __init__(self, network: N, every: int) -> None:
        """``every``: gradient steps between copies."""
        self._network, self._every, self._steps = network, every, 0
        self.network: N = deepcopy(network).eval().requires_grad_(False)

    def count_step(self) -> None:
        """Call it after each gradient step: every so many of them the weights are copied."""
        self._steps += 1
        if self._steps % self._every == 0:
            self.network.load_state_dict(self._network.state_dict())


def best_values(q: Tensor, possible: Tensor) -> Tensor:
    """(n,): the highest of each row of Q-values (n, actions) among the possible actions; -inf where
    none is possible.
    """
    return q.masked_fill(~possible, -torch.inf).amax(dim=-1)


def td_targets(reward: Tensor, later: Tensor, over: Tensor, discount: float) -> Tensor:
    """r + discount * later, elementwise; r alone where the episode is over.

    ``later``: the value of the state reached, of any number where ``over``. ``discount``: of all
    steps in between together.
    """
    return reward + discount * torch.where(over, torch.zeros_like(later), later)


def values_of(q: Tensor, actions: Tensor) -> Tensor:
    """(n,): of Q-values (n, actions), those of the actions (n,) that were taken."""
    return q.gather(-1, actions.unsqueeze(-1)).squeeze(-1)
