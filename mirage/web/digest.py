"""The queue of one snapshot, summed up for the page. Pure; made once a cycle, by whoever asks
first.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from mirage.daemon.tick import tagged_jobs
from mirage.domain import ClusterNode, Job, Snapshot
from mirage.elastic.jobs.queue import QueuedElasticJob, queued_elastic_jobs
from mirage.provision.starts.forecast import JobShape
from mirage.provision.starts.forecaster import QueueView, forecast_shape
from slurm_sim.seconds import HOUR_S

if TYPE_CHECKING:  # numpy takes its time to import
    from mirage.provision.starts.walk import NightlyWaits

NEW_JOB_S = 4 * HOUR_S
"""Time limit of the new job of which the page tells."""


@dataclass(frozen=True, kw_only=True)
class PartitionRow:
    """A job that asks for several partitions counts in each."""

    name: str
    nodes: int
    up: int
    idle: int
    running: int
    queueing: int
    """Pending, and competing for nodes,"""
    queueing_nodes: int
    """so many of them;"""
    kept_back: int
    """pending for another reason: dependency, hold, begin time, a limit."""
    longest_s: int | None
    """Of those that queue, the longest wait so far."""
    typical_s: float | None
    """Median wait of the jobs that run."""
    new_job_s: tuple[float, float] | None
    """p10 and p90 of the wait of a new job of one node and `NEW_JOB_S`; None: nothing is known."""


@dataclass(frozen=True, kw_only=True)
class Digest:
    at_s: int
    nodes: int
    up: int
    idle: int
    running: int
    pending: int
    chains: int
    """That have a job in the queue."""
    partitions: tuple[PartitionRow, ...]
    jobs_of: Mapping[str | None, Sequence[Job]]
    """A user's jobs that are not over (None: all), running ones first, then by priority."""
    elastic_jobs: tuple[QueuedElasticJob, ...]
    """Those with a task in the queue, of all users."""
    _priorities: Mapping[str, Sequence[int]]
    """By partition, of the jobs that queue, ascending."""

    def ahead(self, job: Job) -> int | None:
        """How many jobs of its (first) partition queue with a higher priority; None: it does not
        queue.
        """
        if not job.is_queueing:
            return None
        ranked = self._priorities.get(_partitions(job)[0], ())
        return len(ranked) - bisect_right(ranked, job.priority)

    def elastic(self, user: str | None) -> list[QueuedElasticJob]:
        """Of a user; None: of all."""
        return [job for job in self.elastic_jobs if user in (None, job.user)]

    def jobs(self, user: str | None) -> Sequence[Job]:
        """Of a user; None: of all."""
        return self.jobs_of.get(user, ())


def digest(snapshot: Snapshot, learned: NightlyWaits | None = None) -> Digest:
    """``learned``: what the nights learnt of waits; None: the waits of the jobs that run count."""
    jobs: dict[str, list[Job]] = defaultdict(list)
    jobs_of: dict[str | None, list[Job]] = defaultdict(list)
    for job in sorted(snapshot.jobs, key=_rank):
        jobs_of[None].append(job)
        for partition in _partitions(job):
            jobs[partition].append(job)
        jobs_of[job.user].append(job)
    nodes: dict[str, list[ClusterNode]] = defaultdict(list)
    for node in snapshot.nodes:
        for partition in node.partitions:
            nodes[partition].append(node)
    view = QueueView(snapshot=snapshot, user="", learned=learned)
    rows = [_row(name, nodes[name], jobs[name], view) for name in sorted({*nodes, *jobs})]
    return Digest(
        at_s=snapshot.at_s,
        nodes=len(snapshot.nodes),
        up=sum(node.up for node in snapshot.nodes),
        idle=sum(node.idle for node in snapshot.nodes),
        running=sum(job.state.has_nodes for job in snapshot.jobs),
        pending=sum(job.is_pending for job in snapshot.jobs),
        chains=len({(job.user, tag.chain_id) for job, tag in tagged_jobs(snapshot)}),
        partitions=tuple(rows),
        jobs_of=jobs_of,
        elastic_jobs=queued_elastic_jobs(snapshot.jobs),
        _priorities={
            name: sorted(job.priority for job in own if job.is_queueing)
            for name, own in jobs.items()
        },
    )


def _row(
    name: str, nodes: Sequence[ClusterNode], jobs: Sequence[Job], view: QueueView
) -> PartitionRow:
    now_s = view.snapshot.at_s
    shape = JobShape(nodes=1, time_limit_s=NEW_JOB_S, partition=name)
    forecast = forecast_shape(shape, view) if nodes else None
    queueing = [job for job in jobs if job.is_queueing]
    waited = [now_s - job.eligible_s for job in queueing if job.eligible_s is not None]
    waits = [job.wait_s for job in jobs if job.state.has_nodes and job.wait_s is not None]
    return PartitionRow(
        name=name,
        nodes=len(nodes),
        up=_count(node.up for node in nodes),
        idle=_count(node.idle for node in nodes),
        running=_count(job.state.has_nodes for job in jobs),
        queueing=len(queueing),
        queueing_nodes=sum(job.nodes for job in queueing),
        kept_back=_count(job.is_pending for job in jobs) - len(queueing),
        longest_s=max(waited, default=None),
        typical_s=median(waits) if waits else None,
        new_job_s=(forecast.wait_s[0], forecast.wait_s[2]) if forecast else None,
    )


def _count(facts: Iterable[bool]) -> int:
    return sum(facts)


def _partitions(job: Job) -> list[str]:
    return job.partition.split(",")


def _rank(job: Job) -> tuple[bool, bool, int, int]:
    return not job.state.has_nodes, not job.is_queueing, -job.priority, job.job_id
