"""Jobs as the set policy sees them: a type is its speeds, measured or known, not a number.

So types that training never saw need nothing new. Speeds are those of `SpeedEstimates`, fitted
online to what was measured, or the world's own where a setting says that they are known.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.baselines import estimated_left
from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.observation import EMPTY, SLOTS_SCALE, pick
from mirage.elastic.world import ElasticWorld, Floats, Ints

MOVES = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2), (4, 0))
"""Workers and PSs that are tried: three actions, and what lies beyond a first task's small gain."""
FEATURES = 31


@dataclass(kw_only=True)
class SpeedEncoder:
    """Speeds, remaining time, tasks, and what each action would gain. See `Encoder`."""

    estimates: SpeedEstimates | None
    """None: speeds are known."""
    name: str = "speeds"
    _ratio: Floats = field(init=False)
    """Measured over predicted speed in the slot before, [B, K]; 1 where nothing ran."""

    def size(self, _types: int) -> int:
        """See `Encoder`."""
        return FEATURES

    def reset(self, world: ElasticWorld) -> None:
        """See `Encoder`."""
        if self.estimates:
            self.estimates.reset(world)
        self._ratio = np.ones(world.arrival.shape)

    def begin_slot(self, world: ElasticWorld) -> None:
        """Takes in the speeds of the slot before."""
        if self.estimates:
            self.estimates.observe(world)
        source = self.estimates or world
        predicted = source.speed_of(world.last_workers, world.last_ps)
        ran = (world.last_epochs > 0) & (predicted > 0) & np.isnan(world.finish)
        now = np.divide(world.last_epochs, predicted, out=np.ones_like(predicted), where=ran)
        # Half of the older ratio stays: one slot is noisy.
        self._ratio = np.where(ran, 0.5 * self._ratio + 0.5 * np.minimum(now, 2.0), self._ratio)

    def encode(self, world: ElasticWorld, jobs: Ints) -> Floats:
        """See `Encoder`."""
        there = jobs >= 0
        speeds = _Speeds(world, self.estimates, jobs)
        numbers = [*self._job(world, jobs, speeds), *_gains(world, jobs, speeds), *_cluster(world)]
        shape = jobs.shape
        state = np.stack([np.broadcast_to(each, shape) for each in numbers], axis=-1)
        return np.where(there[..., None], state, 0.0).astype(np.float32)

    def _job(self, world: ElasticWorld, jobs: Ints, speeds: _Speeds) -> list[Floats]:
        config = world.config
        ran = pick(world.ran_slots, jobs)
        left = pick(estimated_left(world), jobs)
        return [
            (ran == 0) + 0.0,
            np.log1p(ran) / 3,
            left / pick(world.estimate, jobs),
            np.log(left / speeds.best / SLOTS_SCALE + 0.01) / 3,
            speeds.workers / config.most_workers,
            speeds.ps / max(config.most_ps, 1),
            pick(world.dominant_share(), jobs) * 4,
            speeds.now / speeds.best,
            pick(self._ratio, jobs),
            pick(world.last_workers, jobs) / config.most_workers,
            pick(world.last_ps, jobs) / max(config.most_ps, 1),
            pick(world.has_ps + 0.0, jobs),
            pick(world.share_of(np.ones_like(world.ps), np.zeros_like(world.ps)), jobs) * 20,
        ]


@dataclass
class _Speeds:
    """Of the jobs of a batch, [B, J] each, epochs a slot."""

    world: ElasticWorld
    estimates: SpeedEstimates | None
    jobs: Ints

    def __post_init__(self) -> None:
        world = self.world
        self.workers, self.ps = pick(world.workers, self.jobs), pick(world.ps, self.jobs)
        self.kind = pick(world.type_index, self.jobs)
        self.rows = np.arange(world.clusters)[:, None]
        self.now = self.at(self.workers, self.ps)
        if self.estimates:
            best = self.estimates.tables.max(axis=(2, 3))[self.rows, self.kind]
        else:
            best = world.speed_table.max(axis=(1, 2))[self.kind]
        self.best = np.maximum(best, 1e-12)

    def at(self, workers: Ints, ps: Ints) -> Floats:
        """At these numbers of tasks; 0 beyond what is allowed."""
        most_workers, most_ps = self.world.config.most_workers, self.world.config.most_ps
        inside = (workers <= most_workers) & (ps <= most_ps)
        place = np.minimum(ps, most_ps), np.minimum(workers, most_workers)
        if self.estimates:
            found = self.estimates.tables[self.rows, self.kind, *place]
        else:
            found = self.world.speed_table[self.kind, *place]
        return np.where(inside, found, 0.0)


def _gains(world: ElasticWorld, jobs: Ints, speeds: _Speeds) -> list[Floats]:
    """Of each move: the gain of speed over the best, and, for the first three, that of equation 1
    over the share that it takes, as a logarithm relative to the batch's best one.
    """
    allowed = np.take_along_axis(world.allowed(), np.maximum(jobs, 0)[..., None], axis=1)
    allowed = allowed & (jobs != EMPTY)[..., None]
    relative, scores = [], []
    for nth, (more_workers, more_ps) in enumerate(MOVES):
        gain = (speeds.at(speeds.workers + more_workers, speeds.ps + more_ps) - speeds.now) / (
            speeds.best
        )
        relative.append(np.clip(gain, -1, 1) / max(more_workers, more_ps))
        if nth < allowed.shape[2]:
            share = pick(
                world.share_of(
                    np.full_like(world.workers, more_workers), np.full_like(world.ps, more_ps)
                ),
                jobs,
            )
            score = gain * speeds.best / pick(world.estimate, jobs) / np.maximum(share, 1e-6)
            scores.append(np.where(allowed[..., nth], np.maximum(score, 0.0), 0.0))
    top = np.maximum(np.max(scores, axis=(0, 2))[:, None], 1e-12)
    logs = [np.log(np.maximum(score / top, np.exp(-5))) / 5 for score in scores]
    return [*relative, *logs, *np.moveaxis(allowed + 0.0, 2, 0)]


def _cluster(world: ElasticWorld) -> list[Floats]:
    """Of each cluster, [B, 1]: what is free, and how many jobs there are."""
    config = world.config
    count = world.active.sum(axis=1)
    gpus = world.free_gpus.sum(axis=1) / max(world.total_gpus, 1)
    cpus = world.free_cpus.sum(axis=1) / max(world.total_cpus, 1)
    unused = (world.free_cpus == config.cpus_per_server) & (
        world.free_gpus == config.gpus_per_server
    )
    idle = (world.workers + world.ps == 0) & world.active
    values = [
        gpus,
        cpus,
        np.log1p(count) / 3,
        np.minimum(count / max(world.total_gpus, 1), 3.0),
        unused.mean(axis=1),
        idle.sum(axis=1) / np.maximum(count, 1),
    ]
    return [each[:, None] for each in values]
