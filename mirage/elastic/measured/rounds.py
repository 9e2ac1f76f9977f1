"""The rule for rounds: all GPUs of a round at once, by what each job's next ones are worth.

The paper's policy adds one task after the other, from none, in each slot. With 64 GPUs in rounds of
a minute, and a restart for each job that is placed again, noise would move every job. Here the
steepest ascent gives the GPUs by these values:

    value_j(n) = s_j(n)^power * left_j^-haste * (1 - keep_j, where n changes)
    keep_j     = keep * best_j^-1/2

with s_j(n) the job's speed on n GPUs over that on one, left_j its hours left on one, and best_j
those at its best shape: a restart costs a short job more.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.elastic.measured.schedulers import RoundAllocator, ascend
from mirage.elastic.measured.world import MOST_GPUS, PolluxWorld
from mirage.elastic.world import Floats, Ints

LEAST_LEFT_S = 30.0
MOST_KEEP = 0.9


@dataclass(frozen=True, kw_only=True)
class Weights:
    """Chosen on workloads 1 to 4 and others like them."""

    power: float = 0.75
    haste: float = 0.5
    keep: float = 0.04


@dataclass(kw_only=True)
class RuleRounds(RoundAllocator):
    """Knows the step times and the work left. See the head of this file."""

    name: str = "greedy-rule"
    tunes: bool = True
    packs: bool = True

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        speeds = world.speeds_by_gpus()
        speedup = np.maximum.accumulate(speeds, axis=2) / np.maximum(speeds[..., 1:2], 1e-12)
        give_by_value(world, speedup, np.maximum(world.left_alone_s(), LEAST_LEFT_S) / 3600)


def give_by_value(
    world: PolluxWorld, speedup: Floats, left_h: Floats, weights: Weights | None = None
) -> None:
    """Gives the round's GPUs. ``speedup``: [B, K, MOST_GPUS + 1]; ``left_h``: on one GPU, [B, K]."""
    weights = weights or Weights()
    best_h = left_h / np.maximum(speedup.max(axis=2), 1e-12)
    keep = np.minimum(weights.keep / np.sqrt(best_h), MOST_KEEP)[..., None]
    value = speedup**weights.power * (left_h**-weights.haste)[..., None]
    same = np.arange(MOST_GPUS + 1) == world.last_workers[..., None]
    value = np.where(same, value, value * (1 - keep))
    running: Ints = np.where(world.active & ~world.over[:, None], world.most_gpus, 0)
    world.give(ascend(value, running, world.total_gpus))
