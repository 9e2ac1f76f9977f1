"""Episodes of a scheduler, and what they were worth (section 6.3)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirage.elastic.baselines import Allocator, run_slot
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import ElasticConfig, Floats


@dataclass(frozen=True, kw_only=True)
class ElasticRollout:
    """One episode for each sequence; arrays of one entry a sequence, [B]."""

    scheduler: str
    mean_jct_slots: Floats
    """Mean time from arrival to end of the sequence's jobs, slots and fractions."""
    p95_jct_slots: Floats
    """The time within which 95 % of the sequence's jobs ended."""
    makespan_slots: Floats
    total_reward: Floats
    """Sum of equation 1 over the slots."""
    finished: Floats
    """Share of the jobs that ended."""
    bound_slots: Floats
    """Mean of each job alone at its best shape: no scheduler can do better."""
    slots: int
    """Slots until the last sequence was over."""


def roll_out(
    scheduler: Allocator, config: ElasticConfig, sequences: Sequence[ElasticJobs], *, seed: int = 0
) -> ElasticRollout:
    """Runs all sequences side by side."""
    world = config.open(sequences, seed=seed)
    scheduler.reset(world)
    total = np.zeros(world.clusters)
    while not world.over.all():
        total += run_slot(world, scheduler)
    completion_slots = world.completion_slots()
    return ElasticRollout(
        scheduler=scheduler.name,
        mean_jct_slots=completion_slots.mean(axis=1),
        p95_jct_slots=np.percentile(completion_slots, 95, axis=1),
        makespan_slots=np.nan_to_num(world.finish, nan=world.slot).max(axis=1),
        total_reward=total,
        finished=(~np.isnan(world.finish)).mean(axis=1),
        bound_slots=world.bound_slots().mean(axis=1),
        slots=world.slot,
    )
