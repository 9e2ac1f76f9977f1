"""Boosted trees for the logarithm of the wait, over the columns of a queue log.

Jobs of one burst wait for the same thing. One booster learns from a few of the identical jobs at a
look, another one from all; their mean errs less than either. Jobs that have not started yet count
too: without them long waits would be missing.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mirage.provision.learn.boosted import BoostedTrees
from mirage.provision.learn.boosting import Boosting, boost_means
from mirage.provision.learn.episode import Vectors
from mirage.provision.starts.queue_log import Floats, Mask, QueueLog
from slurm_sim.seconds import DAY_S

LEAST_S, MOST_S = 60.0, 30.0 * DAY_S
"""Waits differ for the trees within these."""
OF_BURSTS = Boosting(
    rounds=300, depth=6, learning_rate=0.03, leaf=1.0, rows=0.5, features=0.3, l2=1.0
)
OF_JOBS = replace(OF_BURSTS, rounds=150, learning_rate=0.06)
MOST_ALIKE = 10
"""Rows of identical jobs at one look that are learnt from."""
OPEN = 1.5
"""A wait that is not over is taken for so many times what it has lasted."""
RECENT_DAYS = 40
"""Older looks are not learnt from."""
FEWEST = 300
"""Rows that had started, of which so many are needed."""
FEWEST_PLANNED = 100
"""The same of rows with a plan: the night's check keeps poor trees out."""
ALIKE = ("req_cpus", "time_limit_sec", "req_mem_total", "req_gpus")
SEED = 1


@dataclass(frozen=True, eq=False)
class WaitTrees:
    of_bursts: BoostedTrees
    of_jobs: BoostedTrees
    by_plan: bool = False
    """Whether they give by how much the wait differs from Slurm's plan."""

    def logs(self, features: Vectors) -> Floats:
        """(n, FEATURES) -> (n,): the mean of the logarithm of the wait."""
        found = np.mean([each.predict(features)[:, 0] for each in self._both], axis=0)
        return np.asarray(found + planned_logs(features) if self.by_plan else found)

    @property
    def _both(self) -> tuple[BoostedTrees, BoostedTrees]:
        return self.of_bursts, self.of_jobs


def fit_trees(log: QueueLog, now_s: float, *, by_plan: bool = False) -> WaitTrees | None:
    """By rows of earlier looks. ``by_plan``: by those with a plan. None: too few had started."""
    if by_plan:
        log = log.rows(np.isfinite(log.planned_s))
    rows = log.rows((log.poll_s < now_s) & (log.poll_s >= now_s - RECENT_DAYS * DAY_S))
    started = rows.start_s < now_s
    if started.sum() < (FEWEST_PLANNED if by_plan else FEWEST):
        return None
    logs = log_wait(np.where(started, rows.wait_s, OPEN * (now_s - rows.poll_s)))
    few, features = thinned(rows), rows.features
    if by_plan:
        logs = logs - planned_logs(features)
    else:
        features = features[:, :-1]
    return WaitTrees(
        of_bursts=boost_means(features[few], logs[few], OF_BURSTS, SEED),
        of_jobs=boost_means(features, logs, OF_JOBS, SEED),
        by_plan=by_plan,
    )


def planned_logs(features: Vectors) -> Floats:
    """(n,): logarithm of the planned wait, as of `log_wait`."""
    return np.clip(features[:, -1].astype(np.float64), np.log(LEAST_S), np.log(MOST_S))


def log_wait(wait_s: Floats) -> Floats:
    return np.log(np.clip(wait_s, LEAST_S, MOST_S))


def thinned(log: QueueLog) -> Mask:
    """Of each burst of identical jobs some, evenly."""
    place, size = _bursts(log)
    step = np.maximum(size / MOST_ALIKE, 1.0)
    return np.asarray(np.floor(place / step) != np.floor((place - 1) / step))


def _bursts(log: QueueLog) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
    """Of each row: its place in its burst, and the burst's size."""
    import pandas

    frame = pandas.DataFrame({name: log.column(name) for name in ALIKE})
    frame["poll"], frame["account"], frame["partition"] = log.poll_s, log.accounts, log.partitions
    groups = frame.groupby(list(frame.columns), sort=False, dropna=False)
    size = groups["poll"].transform("size").to_numpy()
    return groups.cumcount().to_numpy(), size
