"""A trained agent, evaluated in plain Python: the reference for the plugin, which must choose the
same.

Both add up in the same order (an output begins with its bias, then takes the inputs in turn; inputs
that are zero are left out), in doubles, with products and sums rounded one by one, and only with
ReLU between the layers. So they agree to the last bit, whatever the machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import isfinite

from mirage.errors import InputError
from mirage.routing.flavors import PartitionKind
from mirage.routing.state import BLOCK, OF_JOB, Variant, width

MOST_PRODUCTS = 6000
"""Of a decision, all agents together: with cold caches about 0.2 ms in slurmctld."""


def check_products(each: Sequence[int], variant: Variant) -> None:
    """``each``: of each partition's agent. Raises InputError: slurmctld, which waits for a decision,
    would wait too long.
    """
    products = sum(each)
    if variant is Variant.CHOICE:  # asked again among the rest after one has kept the job off
        products = products * (len(each) + 1) // 2
    if products > MOST_PRODUCTS:
        raise InputError(
            f"agents with {products} products a decision, at most {MOST_PRODUCTS}, since slurmctld"
            " waits for them; train with `--lesson streams`, whose agents don't grow with the"
            " servers, or for fewer partitions (docs/routing.md)."
        )


@dataclass(frozen=True)
class Layer:
    """``weights[i][j]``: from input i to output j."""

    weights: tuple[tuple[float, ...], ...]
    bias: tuple[float, ...]

    def apply(self, inputs: Sequence[float]) -> list[float]:
        sums = list(self.bias)
        for value, row in zip(inputs, self.weights, strict=True):
            if value != 0:
                for index, weight in enumerate(row):
                    sums[index] += weight * value
        return sums


@dataclass(frozen=True)
class Agent:
    """One partition's network. Its values are comparable with those of agents that were trained with
    it.
    """

    kind: PartitionKind
    variant: Variant
    layers: tuple[Layer, ...]

    def __post_init__(self) -> None:
        """Raises InputError for layers that don't fit together or the partition, and for NaN and
        infinity.
        """
        sizes = [self._inputs(), *(len(layer.bias) for layer in self.layers)]
        for layer, inputs in zip(self.layers, sizes, strict=False):
            shape = (len(layer.weights), {len(row) for row in layer.weights})
            if shape != (inputs, {len(layer.bias)}):
                raise InputError(
                    f"agent of {self.kind.name}: a layer takes {len(layer.weights)} inputs, not"
                    f" {inputs}."
                )
            if not all(isfinite(value) for row in (*layer.weights, layer.bias) for value in row):
                raise InputError(
                    f"agent of {self.kind.name}: a weight is not a finite number; train it again."
                )
        values = 1 if self.variant is Variant.CHOICE else self.kind.actions.count
        if not self.layers or sizes[-1] != values:
            raise InputError(f"agent of {self.kind.name}: {sizes[-1]} values, not {values}.")

    def _inputs(self) -> int:
        if self.variant is not Variant.CHOICE or not self.layers:
            return width(self.kind, self.variant)
        partitions = max((len(self.layers[0].weights) - OF_JOB) // BLOCK, 1)
        return width(self.kind, self.variant, partitions)

    def check_team(self, partitions: int) -> None:
        """Raises InputError for one that was trained with another number of partitions."""
        inputs = width(self.kind, self.variant, partitions)
        if len(self.layers[0].weights) != inputs:
            raise InputError(
                f"agent of {self.kind.name}: it was not trained with {partitions} partitions."
            )

    @property
    def products(self) -> int:
        """Multiplications of an evaluation, at most."""
        return sum(len(layer.weights) * len(layer.bias) for layer in self.layers)

    def values(self, inputs: Sequence[float]) -> list[float]:
        """(actions,): from features (width,)."""
        seen = list(inputs)
        for layer in self.layers[:-1]:
            seen = [value if value > 0 else 0.0 for value in layer.apply(seen)]
        return self.layers[-1].apply(seen)
