"""How fast an elastic job trains at shapes that it has not had: measurements beside a prior.

Optimus's model of a synchronous step (`mirage.elastic.fitting`) is fitted by non-negative least
squares on relative errors. What is believed beforehand counts as a few weak measurements.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls

from mirage.elastic.fitting import step_terms
from mirage.elastic.speed import Floats, SyncModel, dl2_types

PRIOR_WEIGHT = 0.1
"""Of a believed shape, against 1 of a measured one."""
_USUAL = SyncModel(total_batch=1.0, a=0.9, b=0.06, c=0.01, d=0.002, e=0.002)
"""Where nothing is known. It is hopeful, so that larger shapes are tried and measured."""


@dataclass(frozen=True, kw_only=True)
class Measurement:
    """Steps a second in a slot of one shape."""

    workers: int
    servers: int
    steps_per_s: float


def speed_table(
    measured: Sequence[Measurement], *, most_workers: int, most_servers: int, like: str = ""
) -> Floats:
    """Steps a second as is believed, [P + 1, W + 1]; 0 without a worker or a PS.

    ``like``: a job type whose speeds are the prior; its scale does not count once there is a
    measurement.
    """
    servers, workers = np.mgrid[1 : most_servers + 1, 1 : most_workers + 1].astype(np.float64)
    step_s = 1 / _prior(servers, workers, like)
    terms = step_terms(servers.ravel(), workers.ravel())
    if measured:
        step_s = step_s * _scale(measured, like)
    weights = np.full(step_s.size, PRIOR_WEIGHT / step_s.size**0.5)
    rows, times = [terms], [step_s.ravel()]
    if measured:
        seen = np.array([(each.servers, each.workers) for each in measured], dtype=np.float64)
        rows.append(step_terms(seen[:, 0], seen[:, 1]))
        times.append(np.array([1 / each.steps_per_s for each in measured]))
        weights = np.concatenate([weights, np.ones(len(measured))])
    time_s = np.concatenate(times)
    found, _ = nnls(np.concatenate(rows) * (weights / time_s)[:, None], weights)
    table = np.zeros((most_servers + 1, most_workers + 1))
    table[1:, 1:] = 1 / np.maximum(terms @ found, 1e-9).reshape(step_s.shape)
    return table


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
