"""How fast an elastic job trains at shapes that it has not had: measurements beside a prior.

Optimus's model of a synchronous step (`mirage.elastic.fitting`) is fitted by non-negative least
squares on relative errors, with two terms more of what sizes really do: a batch is shared out in
whole micro-shards, and the network between nodes is slower than that within one. What is believed
beforehand counts as a few weak measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirage.elastic.fitting import non_negative, step_terms
from mirage.elastic.speed import Floats, SyncModel, dl2_types

PRIOR_WEIGHT = 0.1
"""Of all that is believed beforehand together, against 1 of a measured slot."""
LEAST_ERROR = 0.05
"""Share by which a slot's speed is off at least, whatever few measurements say."""
_USUAL = SyncModel(total_batch=1.0, a=0.9, b=0.06, c=0.01, d=0.002, e=0.002)
"""Where nothing is known. It is hopeful, so that larger shapes are tried and measured."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Steps a second in a slot of one shape."""

    workers: int
    servers: int
    steps_per_s: float


@dataclass(frozen=True, kw_only=True)
class SpeedShape:
    """What is known of a job's speed before it runs."""

    most_workers: int
    most_servers: int
    like: str = ""
    """A job type whose speeds are the prior; its scale does not count once there is a measurement."""
    shards: int = 0
    """Micro-shards of a batch; 0: it is divided evenly."""
    on_a_node: int = 0
    """Workers that a node holds; 0: not known."""

    def terms(self, servers: Floats, workers: Floats) -> Floats:
        """Of the step time, [n, 6]; the first is the largest share of a batch."""
        found = step_terms(servers, workers)
        if self.shards:
            found[:, 0] = np.ceil(self.shards / workers) / self.shards
        several = (workers > self.on_a_node) & (self.on_a_node > 0)
        return np.concatenate([found, several[:, None] + 0.0], axis=1)


@dataclass(frozen=True, kw_only=True)
class SpeedBelief:
    """Both [P + 1, W + 1]; 0 without a worker or a PS."""

    steps_per_s: Floats
    error: Floats
    """Standard deviation as a share of the speed."""


def believed_speeds(measured: Sequence[Measurement], shape: SpeedShape) -> SpeedBelief:
    """What is believed after these measurements."""
    servers, workers = np.mgrid[1 : shape.most_servers + 1, 1 : shape.most_workers + 1] + 0.0
    terms = shape.terms(servers.ravel(), workers.ravel())
    step_s = (1 / _prior(servers, workers, shape.like)).ravel()
    weights = np.full(step_s.size, PRIOR_WEIGHT / step_s.size**0.5)
    rows = terms
    if measured:
        seen = np.array([(each.servers, each.workers) for each in measured], dtype=np.float64)
        rows = np.concatenate([terms, shape.terms(seen[:, 0], seen[:, 1])])
        times = np.array([1 / each.steps_per_s for each in measured])
        step_s = np.concatenate([step_s * _scale(measured, shape.like), times])
        weights = np.concatenate([weights, np.ones(len(measured))])
    rows = rows * (weights / step_s)[:, None]
    found = non_negative(rows, weights)
    off = (rows @ found - weights)[len(terms) :]
    noise = max(float(np.sqrt((off**2).mean())) if measured else 0.0, LEAST_ERROR)
    spread = noise**2 * np.linalg.pinv(rows.T @ rows)
    believed_s = np.maximum(terms @ found, 1e-9)
    error = np.sqrt(np.maximum(np.einsum("nt,tu,nu->n", terms, spread, terms), 0)) / believed_s
    table, errors = np.zeros((2, shape.most_servers + 1, shape.most_workers + 1))
    table[1:, 1:] = (1 / believed_s).reshape(servers.shape)
    errors[1:, 1:] = error.reshape(servers.shape)
    return SpeedBelief(steps_per_s=table, error=errors)


def _prior(servers: Floats, workers: Floats, like: str) -> Floats:
    for kind in dl2_types():
        if kind.name == like:
            rows, columns = kind.steps_per_s.shape
            found = kind.steps_per_s[
                np.minimum(servers, rows - 1).astype(int),
                np.minimum(workers, columns - 1).astype(int),
            ]
            # Shapes that nobody measured are believed to be no better than the best known one.
            return np.where(found > 0, found, kind.best_steps_per_s)
    return _USUAL.steps_per_s(servers, workers)


def _scale(measured: Sequence[Measurement], like: str) -> float:
    """Measured over believed seconds of a step."""
    ratios = [
        _prior(np.array([float(it.servers)]), np.array([float(it.workers)]), like)[0]
        / it.steps_per_s
        for it in measured
    ]
    return float(np.median(ratios))
