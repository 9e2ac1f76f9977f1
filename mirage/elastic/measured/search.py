"""Pollux's scheduler: a genetic search for the placement with the best fitness (section 4.2).

Fitness is the power mean (p = -1) of the jobs' speedups by their fitted goodput, with the penalty for
a restart. The public code runs 100 generations of 100 placements in each round; here both are fewer
and the search keeps what it has found from round to round, as there. Two jobs on several nodes
never share a node.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.measured.measuring import MeasuringRounds
from mirage.elastic.measured.world import PolluxWorld
from mirage.elastic.world import ElasticWorld, Floats, Ints

RESET, CLEAR, CLEAR_SHARE = 0.1, 0.1, 0.1
"""Probabilities of a mutation: a job goes back to where it is; some of its nodes are cleared."""


@dataclass(kw_only=True)
class Candidates:
    """One cluster's search in one round; placements are [P, J, S]."""

    speedups: Floats
    """[J, 2, 65]: see `JobProfile.speedups`."""
    most: Ints
    """[J]: GPUs of a job."""
    now: Ints
    """[J, S]."""
    restart: Floats
    """[J]: factor of a job that moves."""
    gpus_per_node: int
    rng: np.random.Generator

    def search(self, found: Ints, size: int, generations: int) -> Ints:
        """The best placements first, [size, J, S], from earlier ones [P, J, S]."""
        pool = self._repair(np.concatenate([self.now[None], found]))
        pool = pool[np.argsort(-self.fitness(pool), kind="stable")][:size]
        for _ in range(generations):
            pairs = self.rng.integers(len(pool), size=(size, 2)).min(axis=1)
            others = self.rng.integers(len(pool), size=size)
            cut = self.rng.integers(len(self.most) + 1, size=(size, 1, 1))
            take = np.arange(len(self.most))[None, :, None] < cut
            children = np.where(take, pool[pairs], pool[others])
            children = self._repair(self._mutate(children))
            pool = np.unique(np.concatenate([pool, children]), axis=0)
            pool = pool[np.argsort(-self.fitness(pool), kind="stable")][:size]
        return pool

    def fitness(self, pool: Ints) -> Floats:
        """[P]: higher is better."""
        several = (np.count_nonzero(pool, axis=2) > 1).astype(np.int64)
        speedup = self.speedups[np.arange(len(self.most)), several, pool.sum(axis=2)]
        moved = (pool != self.now).any(axis=2)
        speedup = np.where(moved, speedup * self.restart, speedup)
        mean: Floats = 1 / (1 / (speedup + 1e-3)).mean(axis=1)
        return mean

    def _mutate(self, pool: Ints) -> Ints:
        rng = self.rng
        reset = rng.random(pool.shape[:2]) < RESET
        pool = np.where(reset[..., None], self.now, pool)
        clear = (rng.random(pool.shape[:2]) < CLEAR)[..., None]
        pool = np.where(clear & (rng.random(pool.shape) < CLEAR_SHARE), 0, pool)
        room = (pool.sum(axis=1) < self.gpus_per_node)[:, None, :]
        first = room / np.maximum(room.sum(axis=2, keepdims=True), 1)
        used = (pool > 0) & room
        second = used / np.maximum(used.sum(axis=2, keepdims=True), 1)
        grows = rng.random(pool.shape) < first + second - first * second
        grown: Ints = np.where(grows, rng.integers(pool, self.gpus_per_node + 1), pool)
        return grown

    def _repair(self, pool: Ints) -> Ints:
        """Makes placements possible: network, most GPUs of a job, GPUs of a node."""
        spread = np.count_nonzero(pool, axis=2) > 1
        shared = ((pool > 0) & spread[..., None]).cumsum(axis=1) > 1
        pool = np.where(shared & spread[..., None], 0, pool)
        order = np.argsort(self.rng.random(pool.shape), axis=2)
        mixed = np.take_along_axis(pool, order, axis=2)
        mixed = np.diff(np.minimum(mixed.cumsum(axis=2), self.most[:, None]), axis=2, prepend=0)
        pool = np.take_along_axis(mixed, np.argsort(order, axis=2), axis=2)
        possible: Ints = np.diff(
            np.minimum(pool.cumsum(axis=1), self.gpus_per_node), axis=1, prepend=0
        )
        return possible


@dataclass(kw_only=True)
class SmallPollux(MeasuringRounds):
    """Pollux with a smaller search. It knows neither speeds nor remaining work: it measures."""

    name: str = "pollux-small"
    size: int = 40
    """Placements in the search."""
    generations: int = 20
    seed: int = 0
    _found: dict[int, tuple[Ints, Ints]] = field(default_factory=dict, init=False)

    def reset(self, world: ElasticWorld) -> None:
        """Forgets all jobs."""
        super().reset(world)
        self._rng = np.random.default_rng(self.seed)
        self._found = {}

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        place = np.zeros_like(world.place)
        for cluster, active in enumerate(world.active):
            jobs = np.nonzero(active)[0]
            if len(jobs):
                self.measure(world, cluster, jobs)
                place[cluster, jobs] = self._search(world, cluster, jobs)
                self.choose_batches(world, cluster, jobs, place[cluster, jobs])
        world.give_places(place)

    def _search(self, world: PolluxWorld, cluster: int, jobs: Ints) -> Ints:
        """[J, S]."""
        order = np.lexsort((world.submitted_s[cluster, jobs], world.attained_gpu_s[cluster, jobs]))
        jobs = jobs[order]
        profiles = [self.profiles[cluster, job] for job in jobs.tolist()]
        fair = -(-world.total_gpus // len(jobs))
        restarts = np.maximum(world.placements[cluster, jobs] - 1, 0)
        age = world.now_s - world.submitted_s[cluster, jobs]
        delay = 30.0
        candidates = Candidates(
            speedups=np.stack([profile.speedups(fair) for profile in profiles]),
            most=np.array([profile.most_gpus for profile in profiles]),
            now=world.place[cluster, jobs],
            restart=np.maximum(age - restarts * delay, 0.0) / (age + delay),
            gpus_per_node=world.config.gpus_per_server,
            rng=self._rng,
        )
        pool = candidates.search(self._earlier(world, cluster, jobs), self.size, self.generations)
        self._found[cluster] = (jobs, pool)
        best: Ints = np.zeros_like(pool[0])
        best[order] = pool[0]
        return best

    def _earlier(self, world: PolluxWorld, cluster: int, jobs: Ints) -> Ints:
        """The last round's placements, with new jobs in and ended ones out."""
        if cluster not in self._found:
            return np.asarray(world.place[cluster, jobs][None], dtype=np.int64)
        before, pool = self._found[cluster]
        wide = np.zeros((len(pool), world.arrival.shape[1], world.config.servers), dtype=np.int64)
        wide[:, before] = pool
        return np.asarray(wide[:, jobs], dtype=np.int64)
