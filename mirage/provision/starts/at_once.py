"""Where free nodes are enough, and nobody else waits for any. Needs no numpy."""

from __future__ import annotations

from mirage.domain import Job, Snapshot
from mirage.figures.words import several
from mirage.provision.starts.forecast import StartForecast
from mirage.reasons import BEFORE_ELIGIBLE, kind_of

AT_ONCE_S = 60.0
"""p90 of a job that starts with the scheduler's next passes."""


def at_once(job: Job, snapshot: Snapshot) -> StartForecast | None:
    """None: it has to wait."""
    idle = _idle_for(job, snapshot)
    if not idle:
        return None
    return StartForecast(
        wait_s=(0.0, 0.0, AT_ONCE_S),
        method="like jobs",
        reason=f"{several(idle, 'node is', 'nodes are')} free, and no job waits for them",
    )


def _idle_for(job: Job, snapshot: Snapshot) -> int:
    """Free nodes, if they are enough and nobody else waits for any; otherwise 0."""
    pool = snapshot.pool_of(job.partition)
    if any(
        other.job_id != job.job_id
        and other.is_pending
        and not other.has_zero_priority
        and kind_of(other.reason) not in BEFORE_ELIGIBLE
        and snapshot.pool_of(other.partition) == pool
        for other in snapshot.jobs
    ):
        return 0
    names = set(job.partition.split(","))
    idle = sum(node.idle and not names.isdisjoint(node.partitions) for node in snapshot.nodes)
    return idle if idle >= job.nodes else 0
