"""Rules that a forecast of waits must beat: each a page long, and fitted each day as the forecaster.

All give p10, p50 and p90 in seconds, (n, 3); NaN where a rule says nothing.
"""

from __future__ import annotations

import numpy as np

from mirage.provision.learn.boosting import Boosting, boost_means
from mirage.provision.starts.queue_log import Floats, QueueLog
from mirage.provision.starts.wait_trees import log_wait
from slurm_sim.seconds import DAY_S

SHOWN = (0.1, 0.5, 0.9)
ALIKE_DAYS = 14
"""Like jobs are those of so many days."""
ALIKE = (
    ("account", "req_cpus", "time_limit_sec"),
    ("account", "req_cpus"),
    ("account",),
    ("req_cpus", "time_limit_sec"),
    (),
)
"""What like jobs share; the next where there are fewer than `FEWEST`."""
FEWEST = 5
POINT = Boosting(rounds=80, depth=6, learning_rate=0.1, leaf=1.0, rows=1.0, features=1.0, l2=1.0)


def like_jobs_s(past: QueueLog, today: QueueLog, now_s: float) -> Floats:
    """By the quantiles of the waits of like jobs."""
    past = past.rows(past.poll_s >= now_s - ALIKE_DAYS * DAY_S)
    found = np.full((len(today), len(SHOWN)), np.nan)
    for names in ALIKE:
        law = _laws(past, names)
        open_rows = np.flatnonzero(np.isnan(found[:, 1]))
        for row, key in zip(open_rows, _keys(today.rows(open_rows), names), strict=True):
            found[row] = law.get(key, found[row])
    return found


def _laws(past: QueueLog, names: tuple[str, ...]) -> dict[tuple[object, ...], Floats]:
    waits: dict[tuple[object, ...], list[float]] = {}
    for key, wait_s in zip(_keys(past, names), past.wait_s.tolist(), strict=True):
        waits.setdefault(key, []).append(wait_s)
    return {key: np.quantile(them, SHOWN) for key, them in waits.items() if len(them) >= FEWEST}


def _keys(log: QueueLog, names: tuple[str, ...]) -> list[tuple[object, ...]]:
    columns = [
        log.accounts.tolist() if name == "account" else log.column(name).tolist() for name in names
    ]
    return list(zip(*columns, strict=True)) if columns else [()] * len(log)


def boosted_point_s(past: QueueLog, today: QueueLog, seed: int) -> Floats:
    """80 trees of depth 6 for the mean of the logarithm: one value, no range."""
    trees = boost_means(past.features, log_wait(past.wait_s), POINT, seed)
    found = np.full((len(today), len(SHOWN)), np.nan)
    found[:, 1] = np.exp(trees.predict(today.features)[:, 0])
    return found


def plan_constants_s(past: QueueLog, today: QueueLog) -> Floats:
    """Slurm's own plan times three constants: quantiles of what the wait was to the plan."""
    known = past.rows(np.isfinite(past.planned_s))
    if len(known) < FEWEST:
        return np.full((len(today), len(SHOWN)), np.nan)
    ratios = log_wait(known.wait_s) - log_wait(known.planned_s - known.poll_s)
    planned = log_wait(today.planned_s - today.poll_s)[:, None]
    return np.asarray(np.exp(planned + np.quantile(ratios, SHOWN)))
