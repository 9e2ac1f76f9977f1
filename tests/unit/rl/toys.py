"""Toys whose best policy and values are known exactly."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

STOP, GO = 0, 1


@dataclass(frozen=True)
class Corridor:
    """States 0 to length - 1 in a row. STOP ends the episode with a small reward; GO leads to the
    next state without one, and from the last state to the exit, which has a large one.

    With a discount near 1 the best policy always goes: the way out of a state is worth more than
    stopping there, though no step but the last pays.
    """

    length: int = 5
    small: float = 0.3
    large: float = 1.0
    discount: float = 0.9

    def step(self, state: int, action: int) -> tuple[float, int, bool]:
        """(reward, next state, whether the episode is over)."""
        if action == STOP:
            return self.small, 0, True
        if state == self.length - 1:
            return self.large, 0, True
        return 0.0, state + 1, False

    @property
    def best_values(self) -> np.ndarray:
        """(length, 2): Q of the best policy by state and action."""
        go = self.discount ** np.arange(self.length - 1, -1, -1) * self.large
        return np.stack([np.full(self.length, self.small), go], axis=1)


def one_hot(states: np.ndarray | list[int], length: int) -> Tensor:
    return torch.nn.functional.one_hot(torch.as_tensor(states), length).float()


def table(length: int, outputs: int) -> nn.Linear:
    """A network that is a table: a weight for each state and output, all 0 at first."""
    network = nn.Linear(length, outputs, bias=False)
    nn.init.zeros_(network.weight)
    return network
