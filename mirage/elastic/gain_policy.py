"""Greedy's gains, weighed by a small network: what the policy `gain` sees and how it decides.

Each possible task of each job has a score; the highest positive one is given:

    score = gain * exp(u) * (1 + m)

``gain`` is greedy's: equation 1's gain over the dominant share that the task takes. The network
says u and m from `FEATURES` numbers about the task. With weights of zero it is greedy. Negative
scores stop the slot: a task that costs neighbours more than it gains is not given.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.observation import KINDS, batch_of, pick
from mirage.elastic.world import STOP, ElasticWorld, Floats, Ints, TaskKind, estimated_left

FEATURES = 13
_OWN, _HARM = 8, 9
"""Those that placement changes, beside what greedy knows."""
_MOST_COST = 20.0
"""Costs in units of the gain are cut there."""
Singles = npt.NDArray[np.float32]


class GainNetwork(nn.Module):
    """u and m of a task: linear in its features, plus a hidden layer that starts without effect."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.linear = nn.Parameter(torch.zeros(FEATURES, 2))
        self.into = nn.Parameter(torch.randn(FEATURES, hidden) / FEATURES**0.5)
        self.out = nn.Parameter(torch.zeros(hidden, 2))

    def forward(self, features: Tensor) -> Tensor:
        """[..., F] -> [..., 2]."""
        return features @ self.linear + torch.tanh(features @ self.into) @ self.out


@dataclass(kw_only=True)
class GainWeights:
    """Of C networks, the c-th for the c-th copy of the sequences: [C, F, 2], [C, F, H], [C, H, 2]."""

    linear: Singles
    into: Singles
    out: Singles

    @classmethod
    def of(cls, network: GainNetwork) -> GainWeights:
        """Those of one network."""
        parts = (network.linear, network.into, network.out)
        linear, into, out = (np.asarray(each.detach().numpy())[None] for each in parts)
        return cls(linear=linear, into=into, out=out)

    def apply(self, features: Singles) -> tuple[Singles, Singles]:
        """u and m, [B, J, 3] each, of [B, J, 3, F]."""
        rows = features.reshape(len(self.linear), -1, FEATURES)
        found = rows @ self.linear + np.tanh(rows @ self.into) @ self.out
        found = found.reshape(*features.shape[:-1], 2)
        return found[..., 0], found[..., 1]


@dataclass(kw_only=True)
class GainAllocator:
    """See `Allocator` and the top of this file."""

    weights: GainWeights
    estimates: SpeedEstimates | None
    """None: speeds are known."""
    name: str = "gain"
    _jobs: Ints = field(init=False)
    """[B, J]: the active ones; -1: none."""

    def reset(self, world: ElasticWorld) -> None:
        """See `Allocator`."""
        if self.estimates:
            self.estimates.reset(world)

    def begin_slot(self, world: ElasticWorld) -> None:
        """Takes in the speeds of the slot before, and what does not change within a slot."""
        if self.estimates:
            self.estimates.observe(world)
        active = (world.active & ~world.over[:, None]).sum(axis=1)
        places = max(int(active.max(initial=1)), 1)
        self._jobs = batch_of(world, places, np.zeros(world.clusters, dtype=np.int64))
        self._there = self._jobs >= 0
        self._rows = np.arange(world.clusters)[:, None]
        self._columns = np.maximum(self._jobs, 0)
        self._of_size = [
            [same[self._rows, self._columns] for same, _ in world.next_servers(task)]
            for task in (TaskKind.WORKER, TaskKind.PS)
        ]
        self._speeds = _SpeedLookup(world, self.estimates, self._jobs)
        shape = (*self._jobs.shape, KINDS)
        self._features = np.zeros((*shape, FEATURES), dtype=np.float32)
        self._fill_constant(world, active)
        self._now = np.zeros(self._jobs.shape)
        self._after, self._pair_after = np.zeros(shape), np.zeros(shape)
        self._share, self._pair_share = np.ones(shape), np.ones(shape)
        self._refresh(world, *np.nonzero(self._there))
        self._seen_tasks = self._tasks(world)

    def _tasks(self, world: ElasticWorld) -> Ints:
        """Tasks of the jobs of the batch, [B, J]. Another scheduler may add some too."""
        tasks: Ints = (world.workers + world.ps)[self._rows, self._columns]
        return tasks

    def _fill_constant(self, world: ElasticWorld, active: Ints) -> None:
        best, features = self._speeds.best, self._features
        total = pick(world.estimate, self._jobs) / best
        self._weight = 1 / total
        left = pick(estimated_left(world), self._jobs) / best
        features[..., 0] = 1
        features[..., 1] = np.log(total)[..., None]
        features[..., 2] = np.log(left)[..., None]
        features[..., TaskKind.PS, 5] = 1
        features[..., TaskKind.BUNDLE, 6] = 1
        crowd = np.log(np.maximum(active, 1) / world.config.servers)
        features[..., 11] = crowd[:, None, None]

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """See `Allocator`."""
        score = self._scores(world).reshape(world.clusters, -1)
        best = score.argmax(axis=1)
        rows = np.arange(world.clusters)
        found = score[rows, best] > 0
        place, kind = np.divmod(best, KINDS)
        return np.where(found, self._jobs[rows, place], STOP), kind

    def _scores(self, world: ElasticWorld) -> Floats:
        """[B, J, 3]; 0 or less for what is not given."""
        tasks = self._tasks(world)
        self._refresh(world, *np.nonzero(tasks != self._seen_tasks))
        self._seen_tasks = tasks
        allowed = world.allowed()[self._rows, self._columns] & self._there[..., None]
        gain, value = self._gains(world)
        self._fill_costs(world, gain)
        u, m = self.weights.apply(self._features)
        score = value * self._weight[..., None] * np.exp(u) * (1 + m)
        # A job without tasks waits for a place, never for its neighbours' sake.
        idle = self._features[..., 4] > 0
        score = np.where(idle, np.maximum(score, 1e-9 * value), score)
        return np.where(allowed & (value > 1e-9), score, 0.0)

    def _gains(self, world: ElasticWorld) -> tuple[Floats, Floats]:
        """Gain of relative speed for a task, and over its share; of one task or two: the better."""
        gain = self._after - self._now[..., None]
        value = gain / self._share
        pair_gain = self._pair_after - self._now[..., None]
        two = np.zeros(gain.shape, dtype=bool)
        for kind in (TaskKind.WORKER, TaskKind.PS):
            two[..., kind] = world.two_fit(kind)[self._rows, self._columns]
        pair_value = np.where(two, pair_gain / self._pair_share, -np.inf)
        better = pair_value > value
        return np.where(better, pair_gain / 2, gain), np.where(better, pair_value, value)

    def _refresh(self, world: ElasticWorld, rows: Ints, places: Ints) -> None:
        """What depends on these jobs' numbers of tasks."""
        job = self._jobs[rows, places]
        workers, ps = world.workers[rows, job], world.ps[rows, job]
        at = self._speeds.at
        self._now[rows, places] = now = at(rows, places, workers, ps)
        before = world.dominant_share_at(rows, job, workers, ps)
        least = 1 / (4 * max(world.total_cpus, world.total_gpus))
        for kind, more_workers, more_ps in ((0, 1, 0), (1, 0, 1), (2, 1, 1)):
            self._after[rows, places, kind] = at(rows, places, workers + more_workers, ps + more_ps)
            after = world.dominant_share_at(rows, job, workers + more_workers, ps + more_ps)
            share = np.maximum(after - before, least)
            self._share[rows, places, kind] = share
            self._features[rows, places, kind, 3] = np.log(share * world.config.servers * 2)
        for kind, more_workers, more_ps in ((0, 2, 0), (1, 0, 2)):
            self._pair_after[rows, places, kind] = at(
                rows, places, workers + more_workers, ps + more_ps
            )
            after = world.dominant_share_at(rows, job, workers + more_workers, ps + more_ps)
            self._pair_share[rows, places, kind] = np.maximum(after - before, least)
        self._features[rows, places, :, 4] = (workers + ps == 0)[:, None]
        self._features[rows, places, :, 7] = now[:, None]

    def _fill_costs(self, world: ElasticWorld, gain: Floats) -> None:
        """What the job and its neighbours lose by sharing a server, over the gain."""
        now, jobs = self._now, self._columns
        neighbours = world.neighbours[self._rows, jobs]
        own, harm = np.zeros(gain.shape), np.zeros(gain.shape)
        for task in (TaskKind.WORKER, TaskKind.PS):
            for mine, (_, server) in zip(
                self._of_size[task], world.next_servers(task), strict=True
            ):
                on = world.is_on[self._rows, jobs, server[:, None]] & self._there
                count = np.take_along_axis(world.jobs_on, server[:, None], axis=1)
                hurt = (now * (on & (count > neighbours))).sum(axis=1, keepdims=True)
                own[..., task] = np.where(mine, np.maximum(neighbours, count - on), own[..., task])
                harm[..., task] = np.where(mine, np.where(on, 0, hurt), harm[..., task])
        own[..., TaskKind.BUNDLE] = own[..., :2].max(axis=-1)
        harm[..., TaskKind.BUNDLE] = harm[..., :2].sum(axis=-1)
        scale = 1 / np.maximum(gain, 1e-3)
        own = ((now[..., None] + gain) * own - (now * neighbours)[..., None]) * scale
        self._features[..., _OWN] = np.clip(own, 0, _MOST_COST) / 2
        self._features[..., _HARM] = np.minimum(harm * scale, _MOST_COST) / 2
        self._features[..., 10] = np.minimum(0.05 * scale, 5.0)
        free = world.free_cpus.sum(axis=1) / max(world.total_cpus, 1)
        self._features[..., 12] = free[:, None, None]


class _SpeedLookup:
    """Speeds of the jobs of a batch, relative to each one's best shape."""

    def __init__(self, world: ElasticWorld, estimates: SpeedEstimates | None, jobs: Ints) -> None:
        self._most = world.config.most_workers, world.config.most_ps
        kinds = pick(world.type_index, jobs)
        if estimates:
            types = len(world.config.types)
            tables = estimates.tables
            kinds = kinds + types * np.arange(world.clusters)[:, None]
        else:
            tables = world.speed_table
        self._flat = tables.reshape(-1)
        self._columns, self._size = tables.shape[-1], tables.shape[-1] * tables.shape[-2]
        self._first = kinds * self._size
        best = tables.reshape(-1, self._size).max(axis=1)[kinds]
        self.best = np.maximum(best, 1e-12)

    def at(self, rows: Ints, places: Ints, workers: Ints, ps: Ints) -> Floats:
        """[n]; 0 beyond what is allowed."""
        most_workers, most_ps = self._most
        inside = (workers <= most_workers) & (ps <= most_ps)
        where = np.minimum(ps, most_ps) * self._columns + np.minimum(workers, most_workers)
        found = self._flat[self._first[rows, places] + where]
        speed: Floats = np.where(inside, found, 0.0) / self.best[rows, places]
        return speed


@dataclass(kw_only=True)
class NeighbourGreedy(GainAllocator):
    """Knows all: speeds, and what neighbours cost. Steepest ascent of the time that jobs lose.

    Not a scheduler that a site could have: a mark of what the policy `gain` may come to.
    """

    def __init__(self) -> None:
        super().__init__(
            name="greedy-neighbours", weights=GainWeights.of(GainNetwork(1)), estimates=None
        )

    def reset(self, world: ElasticWorld) -> None:
        """Sets the weights that the world's own interference calls for."""
        super().reset(world)
        linear = np.zeros((1, FEATURES, 2), dtype=np.float32)
        linear[0, 1, 0] = 1  # cancels equation 1's weight: all jobs' relative speeds count alike
        linear[0, (_OWN, _HARM), 1] = -2 * world.config.interference
        self.weights.linear = linear
