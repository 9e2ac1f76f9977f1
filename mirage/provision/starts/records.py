"""What look-ahead needs to know of a cluster's habits, from its accounting records of some weeks.

A folder of `futures` has it from a longer history; this serves where there is only a description
of the cluster.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from mirage.domain import Job, JobState
from mirage.errors import InputError
from mirage.provision.learn.arrivals import Arrivals
from mirage.provision.learn.episode import Ints
from mirage.provision.learn.futures import Futures
from mirage.provision.learn.runtimes import fit_runtimes
from slurm_sim.config import ClusterConfig

FEWEST = 50
"""Jobs that ran, of which so many are needed."""


def futures_of(records: Sequence[Job], cluster: ClusterConfig, now_s: int) -> Futures:
    """From the jobs that became eligible before ``now_s``, in partitions that the cluster has.

    Raises InputError for too few.
    """
    names = [partition.name for partition in cluster.partitions]
    known = sorted(
        (job for job in records if _is_usable(job, names, now_s)), key=lambda job: _at_s(job)
    )
    ran = [job for job in known if _runtime_s(job) > 0]
    if len(ran) < FEWEST:
        raise InputError(
            f"{len(ran)} recorded jobs with a time limit have ended; look-ahead needs {FEWEST}."
        )
    runtimes = fit_runtimes(
        [job.user for job in ran],
        _column(job.nodes for job in ran),
        _column(job.time_limit_s or 0 for job in ran),
        _column(_runtime_s(job) for job in ran),
        _column(job.submit_s for job in ran),
    )
    return Futures(
        replace(cluster, node_changes=()), runtimes, _arrivals(known, names), tuple(names)
    )


def _arrivals(jobs: Sequence[Job], partitions: list[str]) -> Arrivals:
    users = np.unique([job.user for job in jobs], return_inverse=True)[1]
    return Arrivals(
        at_s=_column(_at_s(job) for job in jobs),
        nodes=_column(job.nodes for job in jobs),
        limit_s=_column(job.time_limit_s or -1 for job in jobs),
        runtime_s=_column(_runtime_s(job) for job in jobs),
        cancel_after_s=_column(_patience_s(job) for job in jobs),
        user=users.astype(np.int64),
        partition=_column(partitions.index(job.partition) for job in jobs),
    )


def _is_usable(job: Job, partitions: list[str], now_s: int) -> bool:
    return (
        job.eligible_s is not None
        and job.eligible_s < now_s
        and job.partition in partitions
        and job.time_limit_s is not None
    )


def _at_s(job: Job) -> int:
    return job.submit_s if job.eligible_s is None else job.eligible_s


def _runtime_s(job: Job) -> int:
    """-1: it has not ended, or never ran; as an arrival it then runs until its limit."""
    if job.start_s is None or job.end_s is None or job.end_s <= job.start_s:
        return -1
    return job.end_s - job.start_s


def _patience_s(job: Job) -> int:
    """How long it queued before its owner cancelled it; -1: it was not cancelled there."""
    was_cancelled = job.state is JobState.CANCELLED and job.end_s is not None
    never_ran = job.start_s is None or job.start_s == job.end_s
    return max(0, (job.end_s or 0) - _at_s(job)) if was_cancelled and never_ran else -1


def _column(values: object) -> Ints:
    return np.array(list(values), dtype=np.int64)  # type: ignore[call-overload]
