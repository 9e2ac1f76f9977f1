"""Slurm's two schedulers: which of the queued jobs start now (`sched_config(5)`: main and backfill)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from slurm_sim.backfill import Outlook, Plan
from slurm_sim.cluster import Cluster
from slurm_sim.model import JobRecord, Params
from slurm_sim.nodes import pick_nodes

YEAR_S = 365 * 86400
"""What Slurm plans for a job without a limit."""

Start = Callable[[JobRecord, int], None]
"""Starts the job on these nodes."""


def main_pass(cluster: Cluster, queue: Sequence[JobRecord], start: Start) -> bool:
    """Starts jobs in strict order. One that does not fit stops its partition, and keeps all of the partition's nodes
    from the jobs after it. Returns whether jobs were passed over for that.
    """
    kept, stopped = 0, set[str]()
    passed_over = False
    for job in queue:
        if cluster.at_user_limit(job):
            job.reason = "QOSMaxJobsPerUserLimit"
        elif job.partition in stopped:
            job.reason, passed_over = "Priority", True
        elif (nodes := cluster.available(job) & ~kept).bit_count() >= job.nodes:
            start(job, pick_nodes(nodes, job.nodes))
        else:
            job.reason = "Resources"
            stopped.add(job.partition)
            kept |= cluster.masks[job.partition]
    return passed_over


def backfill_pass(cluster: Cluster, queue: Sequence[JobRecord], params: Params, now_s: int, start: Start) -> None:
    """Starts what delays no reservation; each tested job that can't start now gets one on the nodes it would have.

    Reservations don't outlive the pass, so it ends after the last job that could start now.
    """
    plan = Plan(now_s, params.bf_window_s, params.bf_resolution_s, cluster.up)
    outlook = _outlook(cluster, now_s)
    count = len(queue)
    for index, job in enumerate(queue):
        while count > index and cluster.available(queue[count - 1]).bit_count() < queue[count - 1].nodes:
            count -= 1
        if index >= count or plan.tested >= params.bf_max_job_test:
            return
        if cluster.at_user_limit(job):
            job.reason = "QOSMaxJobsPerUserLimit"
        else:
            _place(cluster, job, plan, outlook, start)


def _place(cluster: Cluster, job: JobRecord, plan: Plan, outlook: Outlook, start: Start) -> None:
    limit_s = job.time_limit_s or YEAR_S
    place = plan.earliest(outlook, cluster.up & cluster.masks[job.partition], job.nodes, limit_s)
    if place is None:
        return
    if place.start_s > outlook.now_s:
        plan.reserve(place, limit_s)
        return
    start(job, place.nodes)
    outlook.started(outlook.now_s + limit_s, place.nodes)


def _outlook(cluster: Cluster, now_s: int) -> Outlook:
    running = sorted(cluster.running.values(), key=lambda job: job.job_id)
    return Outlook(now_s, cluster.free, ((_expected_end_s(job, now_s), job.allocated) for job in running))


def _expected_end_s(job: JobRecord, now_s: int) -> int:
    start_s = now_s if job.start_s is None else job.start_s
    return start_s + (job.time_limit_s or YEAR_S)
