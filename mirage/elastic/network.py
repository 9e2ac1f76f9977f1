"""Networks over batches of jobs: the paper's policy with 3J + 1 actions and a value (Figure 6), fully
connected, with a place for each of J jobs; and attention over jobs, for the policy for rounds
(Vaswani et al. 2017; Zaheer et al. 2017): J has no bound, and the order of jobs does not matter.
"""

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


class SetBody(nn.Module):
    """Tokens of jobs after layers of attention among them."""

    def __init__(self, features: int, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.into = nn.Sequential(nn.Linear(features, width), nn.ReLU(), nn.Linear(width, width))
        self.layers = nn.ModuleList(SetLayer(width, heads) for _ in range(layers))
        self.after = nn.LayerNorm(width)

    def forward(self, state: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """[n, J, F], which places have a job [n, J] -> tokens [n, J, width], their mean."""
        tokens = self.into(state)
        for layer in self.layers:
            tokens = layer(tokens, there)
        tokens = self.after(tokens)
        weight = there.unsqueeze(-1).float()
        mean = (tokens * weight).sum(dim=1) / weight.sum(dim=1).clamp_min(1.0)
        return tokens, mean


class SetLayer(nn.Module):
    """Attention, then two linear layers on each token; both added to what comes in."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.before_attention, self.before_linear = nn.LayerNorm(width), nn.LayerNorm(width)
        self.project, self.join = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.linear = nn.Sequential(nn.Linear(width, 2 * width), nn.ReLU())
        self.out = nn.Linear(2 * width, width)

    def forward(self, tokens: Tensor, there: Tensor) -> Tensor:
        """[n, J, width] -> the same shape."""
        n, places, width = tokens.shape
        parts = self.project(self.before_attention(tokens))
        query, key, value = parts.view(n, places, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mask = there[:, None, None, :]
        mixed = nn.functional.scaled_dot_product_attention(query, key, value, attn_mask=mask)
        tokens = tokens + self.join(mixed.transpose(1, 2).reshape(n, places, width))
        return cast(Tensor, tokens + self.out(self.linear(self.before_linear(tokens))))


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
