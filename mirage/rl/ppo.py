"""Proximal policy optimisation (Schulman et al. 2017, equation 7): several steps on one batch.

    maximise  min(ratio * A, clip(ratio, 1 - reach, 1 + reach) * A),   ratio = pi(a|s) / pi_old(a|s)

pi_old acted. Where a step would leave the reach in the direction that the advantage asks for, its
gradient is 0: so a batch can be used several times without the policy running away from its data.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor


def ppo_loss(
    log_probs: Tensor, old_log_probs: Tensor, advantages: Tensor, reach: float = 0.2
) -> Tensor:
    """Mean of the clipped objective, negated; all of one shape, gradients through ``log_probs``
    alone.
    """
    advantages = advantages.detach()
    ratio = (log_probs - old_log_probs.detach()).exp()
    clipped = ratio.clamp(1 - reach, 1 + reach)
    return -torch.min(ratio * advantages, clipped * advantages).mean()


def normalised(advantages: Tensor) -> Tensor:
    """Advantages with mean 0 and deviation 1, so that one learning rate fits all rewards' units."""
    centred = advantages - advantages.mean()
    return centred / centred.std().clamp_min(1e-8)


def minibatches(
    count: int, size: int, passes: int, generator: np.random.Generator
) -> Iterator[NDArray[np.int64]]:
    """Indices below ``count`` in shuffled parts of at most ``size``; each comes once a pass."""
    for _ in range(passes):
        order = generator.permutation(count)
        yield from (order[begin : begin + size] for begin in range(0, count, size))
