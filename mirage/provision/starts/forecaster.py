"""When a job would start, by the best source that there is: the one function that all verbs ask."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING

from mirage.domain import Job, Snapshot
from mirage.provision.starts.at_once import at_once
from mirage.provision.starts.forecast import JobShape, StartForecast
from mirage.provision.starts.queue_rows import Row, competes, first_partition, rows_of
from mirage.provision.starts.slurms_plan import (
    LIKE,
    PLAN,
    TREES,
    TREES_AND_PLAN,
    forecast_from_plan,
)

if TYPE_CHECKING:  # numpy takes a fifth of a second to import
    from mirage.provision.starts.walk import NightlyWaits

_ALIKE = {
    TREES: "stood alike in this queue",
    TREES_AND_PLAN: "had such a plan of Slurm in such a queue",
    PLAN: "had such a plan of Slurm",
}
LATER_S = 600
"""A plan so far away says that free nodes are not for this job."""
LATEST = 5
"""So many of the latest jobs say which priority a new one gets."""


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """What is known of a cluster at one instant."""

    snapshot: Snapshot
    user: str
    """Who asks, and would submit."""
    ask_records: Callable[[], Sequence[Job]] = tuple
    """Of accounting, of the last days (`like_jobs.RECENT_S`); asked where like jobs answer."""
    learned: NightlyWaits | None = None
    """What the service learnt of this site's waits."""

    @cached_property
    def records(self) -> Sequence[Job]:
        return self.ask_records()


def forecast_shape(shape: JobShape, view: QueueView) -> StartForecast | None:
    """For a job of this shape that enters the queue now. None: nothing is known of its pool."""
    return forecast_job(new_job(shape, view), view)


def new_job(shape: JobShape, view: QueueView) -> Job:
    """As it would stand in the queue if it were submitted now."""
    first_id = max((job.job_id for job in view.snapshot.jobs), default=0) + 1
    job = shape.job(first_id, view.user, view.snapshot.at_s)
    return replace(job, priority=fresh_priority(job, view.snapshot))


def forecast_job(job: Job, view: QueueView) -> StartForecast | None:
    """The same of a job in the queue, or of one that is not there yet."""
    if job.is_queueing and (found := at_once(job, view.snapshot)):
        return _refuted(job, view.snapshot) or found
    night = view.learned and view.learned.for_job(has_plan=_has_queues_plan(job, view.snapshot))
    if night and night.rule != LIKE:
        return _as_learnt(job, view, night)
    from mirage.provision.starts.like_jobs import (
        AT_LEAST,
        forecast_from_like_jobs,
        recent_waits,
    )

    samples = recent_waits(view.records, view.snapshot, job)
    planned = forecast_from_plan(job, view.snapshot) if len(samples) < AT_LEAST else None
    found = planned or forecast_from_like_jobs(job, samples, view.snapshot)
    if night and found:
        return replace(found, reason=f"{found.reason}; {night.words}")
    return found


def _refuted(job: Job, snapshot: Snapshot) -> StartForecast | None:
    """By Slurm's plan of a new job (`sbatch --test-only`), which knows features, GPUs and limits. That of
    a job in the queue may be older than the free nodes.
    """
    if job.planned_s is None or job.planned_s - snapshot.at_s <= LATER_S:
        return None
    if _has_queues_plan(job, snapshot):
        return None
    found = forecast_from_plan(job, snapshot)
    why = "nodes are free, but by Slurm's own plan not for this job; it takes all limits for run times"
    return found and replace(found, reason=why)


def _has_queues_plan(job: Job, snapshot: Snapshot) -> bool:
    """Whether its plan is that of squeue, as in the log. `sbatch --test-only` counts nobody who waits."""
    is_queued = any(job.job_id == other.job_id for other in snapshot.jobs)
    return is_queued and job.planned_s is not None


def row_of(job: Job, snapshot: Snapshot) -> Row:
    """What stands before a job: the columns of a queue log."""
    added = () if any(each is job for each in snapshot.jobs) else (job,)
    return next(row for _, row in rows_of(snapshot, lambda each: each is job, added))


def fresh_priority(job: Job, snapshot: Snapshot) -> int:
    """What a job that enters the queue now would get: as the latest of its user, else of its
    account, else of all. 0: nobody has a priority.
    """
    known = [each for each in snapshot.jobs if each.priority]
    own = [each for each in known if each.user == job.user]
    same = [each for each in own if first_partition(each) == first_partition(job)]
    shared = [each for each in known if job.account and each.account == job.account]
    latest = sorted(same or own or shared or known, key=lambda each: each.submit_s)[-LATEST:]
    values = sorted(each.priority for each in latest)
    return values[len(values) // 2] if values else 0


def _as_learnt(job: Job, view: QueueView, night: NightlyWaits) -> StartForecast:
    import numpy as np

    from mirage.provision.starts.queue_log import FEATURES, planned_log, time_features
    from mirage.provision.starts.walk import LEVELS

    now_s = view.snapshot.at_s
    if not competes(job):  # as if it entered the queue now
        priority = job.priority or fresh_priority(job, view.snapshot)
        job = replace(
            job, reason="Priority", has_zero_priority=False, eligible_s=now_s, priority=priority
        )
    since_s = job.submit_s if job.eligible_s is None else job.eligible_s
    values = row_of(job, view.snapshot) | time_features(now_s, job.submit_s, since_s)
    planned_s = None if night is view.learned else job.planned_s
    values["planned_log"] = np.nan if planned_s is None else planned_log(planned_s - now_s)
    row = np.array([[values[name] for name in FEATURES]], dtype=np.float32)
    law = dict(zip(LEVELS, np.exp(night.logs(row)[0]).tolist(), strict=True))
    method = night.rule
    if night is not view.learned and method != PLAN:
        method = TREES_AND_PLAN
    reason = f"so by what jobs waited that {_ALIKE[method]}; {night.words}"
    if night.has_drifted:
        reason += ", and the range is wider since the last days were missed"
    return StartForecast(
        wait_s=(law[0.1], law[0.5], law[0.9]),
        method=method,
        reason=reason,
        law=tuple(law.items()),
    )
