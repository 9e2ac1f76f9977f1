"""When a job would start, by the best source that there is: the one function that all verbs ask."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from mirage.domain import Job, Snapshot
from mirage.provision.starts.at_once import at_once
from mirage.provision.starts.forecast import JobShape, StartForecast
from mirage.provision.starts.queue_rows import Row, competes, first_partition, rows_of
from mirage.provision.starts.slurms_plan import TREES_AND_PLAN, forecast_from_plan

if TYPE_CHECKING:  # numpy takes a fifth of a second to import
    from mirage.provision.starts.walk import NightlyWaits

LATEST = 5
"""So many of the latest jobs say which priority a new one gets."""


@dataclass(frozen=True, kw_only=True)
class QueueView:
    """What is known of a cluster at one instant."""

    snapshot: Snapshot
    user: str
    """Who asks, and would submit."""
    records: Sequence[Job] = ()
    """Of accounting, of the last days (`like_jobs.RECENT_S`)."""
    learned: NightlyWaits | None = None
    """What the service learnt of this site's waits."""


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
        return found
    if view.learned is not None:
        return _by_trees(job, view, view.learned)
    from mirage.provision.starts.like_jobs import (
        AT_LEAST,
        forecast_from_like_jobs,
        recent_waits,
    )

    samples = recent_waits(view.records, view.snapshot, job)
    planned = forecast_from_plan(job, view.snapshot) if len(samples) < AT_LEAST else None
    return planned or forecast_from_like_jobs(job, samples, view.snapshot)


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


def _by_trees(job: Job, view: QueueView, learned: NightlyWaits) -> StartForecast:
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
    values["planned_log"] = np.nan if job.planned_s is None else planned_log(job.planned_s - now_s)
    by_plan = learned.planned if job.planned_s is not None else None
    learned = by_plan or learned
    row = np.array([[values[name] for name in FEATURES]], dtype=np.float32)
    law = dict(zip(LEVELS, np.exp(learned.logs(row)[0]).tolist(), strict=True))
    alike = "had such a plan of Slurm in such a queue" if by_plan else "stood alike in this queue"
    reason = f"so by what jobs waited that {alike}; the range is checked on {learned.judged} waits"
    if learned.has_drifted:
        reason += ", and wider since the last days were missed"
    return StartForecast(
        wait_s=(law[0.1], law[0.5], law[0.9]),
        method=TREES_AND_PLAN if by_plan else "trees",
        reason=reason,
        law=tuple(law.items()),
    )
