"""Speeds as a scheduler may know them: Optimus's model, fitted to what was measured.

Source: Peng et al., "Optimus", EuroSys 2018, section 3.2: a few short runs at random numbers
of workers and PSs, then all that is seen in service; non-negative least squares.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from scipy.optimize import lsq_linear

from mirage.elastic.world import Bools, ElasticWorld, Floats, Ints

SAMPLES = 8
"""Short runs of each job type before its first job."""
MOST_SEEN = 200
"""Measurements of a type that are kept; the newest."""


@dataclass(kw_only=True)
class SpeedEstimates:
    """One model for each job type and cluster, fitted again as measurements come."""

    seed: int = 0
    every_slots: int = 5
    """Slots between two fits."""
    _seen: dict[tuple[int, int], list[tuple[int, int, float]]] = field(
        init=False, default_factory=dict
    )

    def reset(self, world: ElasticWorld) -> None:
        """Measures each type at `SAMPLES` random shapes, with the world's noise."""
        rng = np.random.default_rng(self.seed)
        self._seen = {}
        self._types = world.type_index
        types = len(world.config.types)
        self.tables = np.zeros((world.clusters, *world.speed_table.shape))
        """Estimated epochs a slot by cluster, type, PSs and workers."""
        self._shapes = [_allowed_shapes(table) for table in world.speed_table]
        for cluster in range(world.clusters):
            for kind in range(types):
                self._seen[cluster, kind] = self._short_runs(world, kind, rng)
                self._fit(cluster, kind)

    def _short_runs(
        self, world: ElasticWorld, kind: int, rng: np.random.Generator
    ) -> list[tuple[int, int, float]]:
        table = world.speed_table[kind]
        pool = np.argwhere(table)
        chosen = rng.integers(len(pool), size=SAMPLES)
        noise = 1 + world.config.variation * rng.uniform(-1, 1, SAMPLES)
        shapes = [pool[nth] for nth in chosen]
        return [
            (int(ps), int(workers), float(table[ps, workers] * factor))
            for (ps, workers), factor in zip(shapes, noise, strict=True)
        ]

    def observe(self, world: ElasticWorld) -> None:
        """Takes in the epochs of the slot before; fits each `every_slots` slots."""
        ended = world.trained >= world.epochs
        for cluster, job in np.argwhere((world.last_epochs > 0) & ~ended):
            key = int(cluster), int(world.type_index[cluster, job])
            shape = int(world.last_ps[cluster, job]), int(world.last_workers[cluster, job])
            seen = self._seen[key]
            seen.append((*shape, float(world.last_epochs[cluster, job])))
            del seen[:-MOST_SEEN]
        if world.slot % self.every_slots == 0:
            for cluster, kind in self._seen:
                self._fit(cluster, kind)

    def _fit(self, cluster: int, kind: int) -> None:
        ps, workers, epochs = np.array(self._seen[cluster, kind]).T
        slot_time = 1 / np.maximum(epochs, 1e-12)
        terms = step_terms(ps, workers)
        # Relative errors count, so that fast shapes matter as much as slow ones.
        weights = non_negative(terms / slot_time[:, None], np.ones(len(slot_time)))
        known, all_terms = self._shapes[kind]
        self.tables[cluster, kind][known] = 1 / np.maximum(all_terms @ weights, 1e-12)

    def speed_of(self, workers: Ints, ps: Ints) -> Floats:
        """Estimated epochs a slot, [B, K]; 0 for shapes that are not allowed."""
        inside = (workers < self.tables.shape[3]) & (ps < self.tables.shape[2])
        rows = np.arange(len(workers))[:, None]
        table = self.tables[
            rows,
            self._types,
            np.minimum(ps, self.tables.shape[2] - 1),
            np.minimum(workers, self.tables.shape[3] - 1),
        ]
        return np.where(inside, table, 0.0)


def non_negative(rows: Floats, target: Floats) -> Floats:
    """The least squares solution without negative numbers, [n], of ``rows`` [m, n], ``target`` [m].

    SciPy's `nnls` raises where it does not converge; this gives the best point that it found.
    """
    found = lsq_linear(rows, target, bounds=(0.0, np.inf), method="bvls", max_iter=100)
    return np.asarray(found.x, dtype=np.float64)


def _allowed_shapes(table: Floats) -> tuple[Bools, Floats]:
    """Which shapes of a type have a speed, [P + 1, W + 1], and their terms, [n, 5]."""
    known = table > 0
    ps, workers = np.nonzero(known)
    return known, step_terms(ps.astype(float), workers.astype(float))


def step_terms(ps: Floats, workers: Floats) -> Floats:
    """1/w, 1, w/p, w, p; without PSs the third and fifth are 0."""
    ratio = np.divide(workers, ps, out=np.zeros_like(workers), where=ps > 0)
    return np.stack([1 / np.maximum(workers, 1), np.ones_like(workers), ratio, workers, ps], axis=1)
