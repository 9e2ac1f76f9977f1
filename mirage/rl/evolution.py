"""Evolution strategies (Salimans et al. 2017): a gradient from whole runs, without credit to single
decisions.

A generation tries weights on either side of the present ones, in antithetic pairs. What each run
cost is all that counts; the difference of a pair, over the root mean square of all differences, weighs
the noise that the pair tried.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from mirage.rl.fit import linear

Floats = NDArray[np.float64]
Costs = Callable[[list[Floats]], Floats]
"""For each weight tensor the tried ones, (2 * pairs, ...) -> what each of them cost, (2 * pairs,)."""


@dataclass(frozen=True, kw_only=True)
class Evolution:
    """Of some weights, which it moves in place."""

    weights: Sequence[Tensor]
    pairs: int
    spread: float
    """Standard deviation of what is added to each weight; falls to half."""
    rate: float
    """Length of a step in units of `spread`; falls to a third."""
    random: np.random.Generator

    def generation(self, part: float, costs: Costs) -> float:
        """Tries weights, and takes a step to lower costs; ``part`` of the training is done, 0 to 1.
        Returns the mean cost of all weights tried.
        """
        spread = linear(self.spread, self.spread / 2, part)
        now = [each.detach().numpy().astype(np.float64) for each in self.weights]
        noise = [self.random.standard_normal((self.pairs, *each.shape)) for each in now]
        found = costs(
            [
                each + spread * np.concatenate([off, -off])
                for each, off in zip(now, noise, strict=True)
            ]
        )
        gains = found[self.pairs :] - found[: self.pairs]
        gains = gains / max(float(np.sqrt((gains**2).mean())), 1e-12)
        step = spread * linear(self.rate, self.rate / 3, part)
        with torch.no_grad():
            for weight, off in zip(self.weights, noise, strict=True):
                change = np.tensordot(gains, off, axes=1) / self.pairs
                weight.add_(torch.from_numpy(change.astype(np.float32)), alpha=step)
        return float(found.mean())
