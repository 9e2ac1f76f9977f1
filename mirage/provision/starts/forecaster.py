"""When a job would start, by the best source that there is: the one function that all verbs ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mirage.domain import Job, Snapshot
from mirage.provision.starts.forecast import JobShape, StartForecast
from mirage.provision.starts.like_jobs import forecast_from_like_jobs, recent_waits


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """What is known of a cluster at one instant."""

    snapshot: Snapshot
    user: str
    """Who asks, and would submit."""
    records: Sequence[Job] = ()
    """Of accounting, of the last days (`like_jobs.RECENT_S`)."""


def forecast_shape(shape: JobShape, view: QueueView) -> StartForecast | None:
    """For a job of this shape that enters the queue now. None: nothing is known of its pool."""
    first_id = max((job.job_id for job in view.snapshot.jobs), default=0) + 1
    return forecast_job(shape.job(first_id, view.user, view.snapshot.at_s), view)


def forecast_job(job: Job, view: QueueView) -> StartForecast | None:
    """The same of a job in the queue."""
    samples = recent_waits(view.records, view.snapshot, job)
    return forecast_from_like_jobs(job, samples, view.snapshot)
