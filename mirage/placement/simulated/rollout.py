"""Episodes of a scheduler, and what they were worth (section 5.2)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from mirage.placement.simulated.baselines import Placer
from mirage.placement.simulated.jobs import PlacementJobs
from mirage.placement.simulated.world import PlacementConfig, PlacementWorld
from mirage.placement.topology import Floats


@dataclass(frozen=True, kw_only=True)
class PlacementRollout:
    """One episode for each sequence; arrays of one entry a sequence, [B]."""

    scheduler: str
    first_return: Floats
    """G_1 with a discount of 1: the sum of all rewards (equation 16 is its mean)."""
    mean_slowdown: Floats
    """Mean of equation 17 over the jobs that arrive; unfinished ones count to T_max."""
    finished: Floats
    """Share of the jobs that ended in time."""
    steps: int
    """Time steps until the last sequence was over."""
    decision_ms: float
    """Mean time of a decision for one cluster, milliseconds."""


def roll_out(
    scheduler: Placer, config: PlacementConfig, sequences: Sequence[PlacementJobs]
) -> PlacementRollout:
    """Runs all sequences side by side. Baselines that keep what they give have no penalty for too
    few GPUs (section 5.3).
    """
    world = PlacementWorld(replace(config, leave_slots=scheduler.leaves_slots), sequences)
    scheduler.reset(world)
    total = np.zeros(world.clusters)
    spent_s, decisions = 0.0, 0
    while not world.over.all():
        decisions += int((~world.over).sum())
        began = time.perf_counter()
        actions = scheduler.decide(world)
        spent_s += time.perf_counter() - began
        total += world.step(actions)
    return PlacementRollout(
        scheduler=scheduler.name,
        first_return=total,
        mean_slowdown=np.nanmean(world.slowdowns(), axis=1),
        finished=(world.finish_step >= 0).mean(axis=1),
        steps=world.time,
        decision_ms=1000 * spent_s / max(decisions, 1),
    )
