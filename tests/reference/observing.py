"""The 40 variables of `mirage.provision.env.observation`, counted in Python: the core's yardstick."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from mirage.provision.env.observation import WIDTH, Pool, Vectors, pair_columns
from mirage.state.variables import NODES, PAIR, PERCENTILES, QUEUED, RUNNING, capped_limit_s
from slurm_sim.jobs import LIMITED, JobRecord
from tests.reference.simulator import ReferenceSimulator

_MOST_S = 2**31 - 1


def observe(simulation: ReferenceSimulator, pool: Pool, pair: tuple[int, int] | None) -> Vectors:
    """The row, (40,), of this moment. `pair`: ids of predecessor and successor, which the queue's
    columns leave out; None: there is no pair yet, and its columns are 0.
    """
    now_s = simulation.now_s
    simulation.run_until(now_s)  # what a call of this moment made due
    queued = [job for job in simulation.pending() if _counts(job, pool, pair) and _is_queued(job)]
    running = [job for job in simulation.running() if _counts(job, pool, pair)]
    row = np.zeros(WIDTH)
    row[QUEUED] = _summary(queued, [now_s - (job.eligible_s or 0) for job in queued])
    row[RUNNING] = _summary(running, [now_s - (job.start_s or 0) for job in running])
    if pair is not None:
        row[PAIR] = pair_columns(simulation.job(pair[0]), simulation.job(pair[1]), now_s)
    row[NODES] = (
        sum(simulation.is_idle(node) for node in pool.nodes),
        sum(simulation.is_up(node) for node in pool.nodes),
    )
    return row.astype(np.float32)


def _counts(job: JobRecord, pool: Pool, pair: tuple[int, int] | None) -> bool:
    return job.partition in pool.partitions and (pair is None or job.job_id not in pair)


def _is_queued(job: JobRecord) -> bool:
    return job.eligible_s is not None and not job.reason.endswith(LIMITED)


def _summary(jobs: Sequence[JobRecord], seconds: Sequence[int]) -> NDArray[np.float64]:
    """Count, then the percentiles of nodes, seconds and limits."""
    if not jobs:
        return np.zeros(1 + 3 * len(PERCENTILES))
    rows = [
        [job.nodes for job in jobs],
        seconds,
        [capped_limit_s(job.time_limit_s) for job in jobs],
    ]
    percentiles = np.percentile(np.clip(rows, 0, _MOST_S), PERCENTILES, axis=1)
    return np.concatenate([[len(jobs)], percentiles.T.ravel()])
