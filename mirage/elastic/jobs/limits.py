"""How many tasks a user may still submit: MaxJobs, MaxSubmitJobs, and the user's own cap."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from mirage.domain import Snapshot
from mirage.elastic.jobs.plan import SubmitAllowance
from mirage.slurm.survey import JobLimits

NO_LIMIT = 10**6


@dataclass(frozen=True, kw_only=True)
class JobCounts:
    """What Slurm allows a user; `NO_LIMIT` where it does not say."""

    max_jobs: int = NO_LIMIT
    """Running at once."""
    max_submit: int = NO_LIMIT
    """Pending and running."""


def counts_of(user: str, associations: Iterable[JobLimits], qos: Iterable[JobLimits]) -> JobCounts:
    """The least of a user's associations, and of a QOS if it is the only one.

    Which QOS a job gets is not known beforehand: a limit that this misses shows as a refusal.
    """
    rows = [limits for limits in associations if limits.user == user]
    qualities = list(qos)
    rows += qualities if len(qualities) == 1 else []
    return JobCounts(
        max_jobs=min(
            (each.max_jobs for each in rows if each.max_jobs is not None), default=NO_LIMIT
        ),
        max_submit=min(
            (each.max_submit for each in rows if each.max_submit is not None), default=NO_LIMIT
        ),
    )


def allowance(
    snapshot: Snapshot, user: str, counts: JobCounts, most_gpus: int | None, gpus: int
) -> SubmitAllowance:
    """What may be submitted now. ``gpus``: of all elastic tasks that are there."""
    mine = sum(job.user == user for job in snapshot.jobs)
    return SubmitAllowance(
        tasks=max(counts.max_submit - mine, 0),
        extras=max(min(counts.max_submit, counts.max_jobs) - mine, 0),
        gpus=NO_LIMIT if most_gpus is None else max(most_gpus - gpus, 0),
    )
