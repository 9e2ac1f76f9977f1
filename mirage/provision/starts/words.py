"""What stands before a job, and why Slurm keeps it waiting, in words. No user's name is in them."""

from __future__ import annotations

import re

from mirage.domain import Job, Snapshot
from mirage.figures.words import several
from mirage.provision.starts.queue_rows import competes, first_partition
from mirage.reasons import ReasonKind, kind_of

_KINDS = {
    ReasonKind.HELD: "it is held: `scontrol release` lets it go",
    ReasonKind.DEPENDENCY: "it waits for the jobs that it depends on",
    ReasonKind.BEGIN: "its begin time has not come",
    ReasonKind.THROTTLE: "its array may not have more tasks running at once",
    ReasonKind.RESOURCE: "it waits for something beside nodes, such as licences",
    ReasonKind.CANNOT_RUN: "as it is no free node would start it",
}
_NODES = {
    "Priority": "jobs of higher priority come first",
    "Resources": "it is the next, and waits for nodes to come free",
    "ReqNodeNotAvail": "nodes that it needs are down, drained or reserved",
}
_WHAT = (
    ("Cpu|CPU", "CPUs"),
    ("GRES", "GPUs"),
    ("Jobs|Job(?!Limit)", "running jobs"),
    ("Node", "nodes"),
    ("Mem", "memory"),
    ("Submit", "jobs in the queue"),
    ("Wall|Time", "time limit"),
)
_SCOPES = (
    ("PerUser", "each user"),
    ("PerAccount", "each account"),
    ("AssocGrp", "the account"),
    ("QOSGrp", "the QOS"),
    ("PerJob", "each job"),
)


def ahead_words(job: Job, snapshot: Snapshot) -> str:
    """Jobs, cores and GPUs before it in its partitions: queued with a higher priority, and running."""
    names = set(job.partition.split(","))
    others = [
        other
        for other in snapshot.jobs
        if not names.isdisjoint(other.partition.split(",")) and other is not job
    ]
    before = [
        other
        for other in others
        if competes(other) and (-other.priority, other.job_id) < (-job.priority, job.job_id)
    ]
    running = [other for other in others if other.state.has_nodes]
    where = first_partition(job) if len(names) == 1 else "its partitions"
    own = sum(other.user == job.user for other in before)
    mine = f" ({own} of them yours)" if own else ""
    if not before:
        return f"no job is before it in {where}; {_running(running)} there"
    waits = "waits" if len(before) == 1 else "wait"
    return f"{_amount(before)} {waits} before it in {where}{mine}; {_running(running)} there"


def _running(jobs: list[Job]) -> str:
    return f"{_amount(jobs)} {'runs' if len(jobs) == 1 else 'run'}" if jobs else "no job runs"


def _amount(jobs: list[Job]) -> str:
    cores, gpus = sum(job.cpus for job in jobs), sum(job.gpus for job in jobs)
    parts = [several(cores, "core")] if cores else [several(sum(job.nodes for job in jobs), "node")]
    if gpus:
        parts.append(several(gpus, "GPU"))
    return f"{several(len(jobs), 'job')} with {' and '.join(parts)}"


def reason_words(reason: str) -> str:
    """What Slurm's reason means; empty: no reason."""
    name = re.split(r"[,: ]", reason, maxsplit=1)[0]
    kind = kind_of(reason)
    if not reason:
        return ""
    if kind is ReasonKind.LIMIT:
        return _limit_words(name)
    if kind is ReasonKind.NODES:
        return _NODES.get(name, "it waits for nodes")
    return _KINDS[kind]


def _limit_words(name: str) -> str:
    what = next((words for shape, words in _WHAT if re.search(shape, name)), "use")
    whose = next((words for shape, words in _SCOPES if shape in name), "the user's association")
    return f"a limit is reached: {what} of {whose}"
