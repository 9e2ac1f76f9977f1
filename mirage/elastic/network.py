"""Networks over batches of jobs: the paper's policy with 3J + 1 actions and a value (Figure 6)."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import cast

from torch import Tensor, nn

from mirage.elastic.critic import JobsCritic
from mirage.elastic.observation import KINDS


class FlatNetwork(nn.Module):
    """Fully connected layers with ReLU; the last is linear."""

    def __init__(self, features: int, places: int, hidden: Sequence[int], outputs: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in pairwise([features * places, *hidden]):
            layers += [nn.Linear(before, after), nn.ReLU()]
        self.layers = nn.Sequential(*layers, nn.Linear(hidden[-1], outputs))

    def forward(self, state: Tensor, _there: Tensor) -> Tensor:
        """[n, J, F] -> [n, outputs]."""
        return cast(Tensor, self.layers(state.flatten(1)))


class Networks(nn.Module):
    """Policy and value, which share nothing but their shape."""

    def __init__(self, policy: nn.Module, value: nn.Module) -> None:
        super().__init__()
        self.policy, self.value = policy, value

    def logits(self, state: Tensor, there: Tensor) -> Tensor:
        """[n, 3 J + 1]."""
        return cast(Tensor, self.policy(state, there))

    def values(self, state: Tensor, there: Tensor) -> Tensor:
        """V(s), [n]."""
        return cast(Tensor, self.value(state, there)).squeeze(-1)


def flat_networks(features: int, places: int, hidden: Sequence[int]) -> Networks:
    """The paper's policy with a value network that is a sum over jobs, untrained."""
    return Networks(FlatNetwork(features, places, hidden, KINDS * places + 1), JobsCritic(features))
