"""An agent's network and settings, whatever it learns from, and what a training gives back.

All values begin at 0, as in the paper. The paper gives neither network nor settings.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

from torch import nn

from mirage.rl.fit import linear
from mirage.rl.options import Count, Fraction, MethodOptions, Rate
from mirage.routing.agent import Agent, Layer
from mirage.routing.flavors import PartitionKind
from mirage.routing.state import Variant, width


@dataclass(frozen=True, kw_only=True)
class AgentOptions(MethodOptions):
    """Defaults train an agent on 1000 of the paper's episodes in about ten seconds on one core."""

    hidden: tuple[Count, ...] = (24, 12)
    """Small, because slurmctld waits while the plugin evaluates them."""
    rate: Rate = 1e-3
    """Adam's."""
    discount: Fraction = 0.9
    """From one decision to the next."""
    batch: Count = 64
    memory: Count = 20_000
    """Decisions that are remembered."""
    sync: Count = 200
    """Updates between copies to the target network."""
    epsilon_end: Fraction = 0.02
    explore: Fraction = 0.5
    """Part of the training over which epsilon falls from 1 to `epsilon_end`."""

    def epsilon(self, part: float) -> float:
        """The chance of a random decision at this part, 0 to 1, of the training."""
        return linear(1.0, self.epsilon_end, min(part / max(self.explore, 1e-9), 1.0))

    @property
    def plain(self) -> dict[str, Any]:
        """For a recipe."""
        return asdict(self) | {"hidden": list(self.hidden)}


@dataclass(frozen=True, kw_only=True)
class TrainedAgents:
    """Agents, in the partitions' order, what they were trained on, and the settings."""

    agents: tuple[Agent, ...]
    lesson: str
    facts: dict[str, Any]


def layer_sizes(
    kind: PartitionKind, variant: Variant, hidden: Sequence[int], partitions: int = 1
) -> list[int]:
    """Inputs, hidden layers, values; ``partitions``: how many there are."""
    values = 1 if variant is Variant.CHOICE else kind.actions.count
    return [width(kind, variant, partitions), *hidden, values]


def make_network(
    kind: PartitionKind, variant: Variant, hidden: Sequence[int], partitions: int = 1
) -> nn.Sequential:
    """Linear layers with ReLU between them; the last one's weights are 0."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(layer_sizes(kind, variant, hidden, partitions)):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    last = layers[-2]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers[:-1])


def to_agent(kind: PartitionKind, variant: Variant, network: nn.Sequential) -> Agent:
    """The network in plain Python, float32 weights as exact doubles."""
    linears = [layer for layer in network if isinstance(layer, nn.Linear)]
    return Agent(kind, variant, tuple(_layer(layer) for layer in linears))


def _layer(linear_layer: nn.Linear) -> Layer:
    rows = linear_layer.weight.detach().double().T.tolist()
    bias = linear_layer.bias.detach().double().tolist()
    return Layer(tuple(tuple(row) for row in rows), tuple(bias))
