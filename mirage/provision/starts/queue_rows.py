"""Jobs with what stands before them in the queue: what forecasts learn from, and are asked with.

The columns are those of the published queue log of Graham (mila-iqia/slurm-queue-time-pred): jobs,
cores, memory, hours and GPUs that are queued (``q``) or running (``r``) with a higher priority, in
all, in the job's partition (``p``), of its account (``a``), and of both (``p_a``). Needs no numpy:
`mirage when` is to be fast.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mirage.domain import Job, Snapshot
from mirage.reasons import BEFORE_ELIGIBLE, kind_of
from slurm_sim.seconds import HOUR_S

Row = dict[str, float]

AMOUNTS = ("jobs", "cores", "mem", "core_hours", "gpus", "gpu_hours")
SCOPES = ("", "p_", "a_", "p_a_")
AHEAD = tuple(
    f"{state}_{scope}{amount}_above"
    for state in ("q", "r")
    for scope in SCOPES
    for amount in AMOUNTS
)
"""Names of the columns of what is ahead."""
OWN = (
    "req_cpus",
    "req_mem_total",
    "req_mem_per_cpu",
    "req_gpus",
    "req_nodes",
    "time_limit_sec",
)
"""Of the job itself; memory in MiB. Not its priority: that counts only beside the others'."""
UNLIMITED_S = 30 * 24 * HOUR_S
"""What a job without a time limit counts as."""

Sums = list[float]


def rows_of(
    snapshot: Snapshot, wanted: Callable[[Job], bool], added: Sequence[Job] = ()
) -> Iterator[tuple[Job, Row]]:
    """Of the wanted jobs, the highest priority first. ``added``: jobs that are not in the queue."""
    jobs = [job for job in (*snapshot.jobs, *added) if job.state.has_nodes or competes(job)]
    jobs.sort(key=lambda job: (-job.priority, job.job_id, job.array_task))
    sums: dict[tuple[str, str, str], Sums] = {}
    nothing = [0.0] * len(AMOUNTS)
    for job in jobs:
        keys = _keys(job)
        if wanted(job):
            before = [
                value
                for state in "qr"
                for key in keys
                for value in sums.get((state, *key), nothing)
            ]
            yield job, _own(job) | dict(zip(AHEAD, before, strict=True))
        amounts = _amounts(job, snapshot.at_s)
        state = "r" if job.state.has_nodes else "q"
        for key in keys:
            mine = sums.setdefault((state, *key), nothing.copy())
            for place, amount in enumerate(amounts):
                mine[place] += amount


def competes(job: Job) -> bool:
    """Whether it is in the queue, also one that a limit keeps back."""
    return (
        job.is_pending and not job.has_zero_priority and kind_of(job.reason) not in BEFORE_ELIGIBLE
    )


def first_partition(job: Job) -> str:
    return job.partition.partition(",")[0]


def cores_of(job: Job) -> int:
    """Of a job for which Slurm shows none, as a shape without -n and -c: one a node."""
    return job.cpus or job.nodes


def _keys(job: Job) -> tuple[tuple[str, str], ...]:
    """In the order of `SCOPES`."""
    partition = first_partition(job)
    return (
        ("", ""),
        (partition, ""),
        ("", job.account or job.user),
        (partition, job.account or job.user),
    )


def _limit_s(job: Job) -> int:
    return UNLIMITED_S if job.time_limit_s is None else job.time_limit_s


def _amounts(job: Job, now_s: int) -> tuple[float, ...]:
    """In the order of `AMOUNTS`; of a running job what is left until its limit."""
    left_s = _limit_s(job)
    if job.state.has_nodes and job.start_s is not None:
        left_s = max(0, job.start_s + left_s - now_s)
    cores, hours = cores_of(job), left_s / HOUR_S
    return (1, cores, job.memory_mib, cores * hours, job.gpus, job.gpus * hours)


def _own(job: Job) -> Row:
    values = (
        cores_of(job),
        job.memory_mib,
        job.memory_mib / cores_of(job),
        job.gpus,
        job.nodes,
        _limit_s(job),
    )
    return dict(zip(OWN, map(float, values), strict=True))
