"""The jobs of `real_waits.py`, by a seed, with every kind of option that names resources."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

from slurm_sim.seconds import HOUR_S
from tests.slurm.site import ALICE, BOB, CAROL

NODES, CPUS = 20, 4
LIMITS_MIN = (30, 60, 120, 180, 240)


@dataclass(frozen=True, kw_only=True)
class PlannedJob:
    submit_s: int
    user: str
    options: tuple[str, ...]
    cpus: int
    """Of the whole job."""
    run_s: int


KINDS: tuple[tuple[int, tuple[str, ...]], ...] = (
    (2, ("-p", "fast", "-n2", "--gres=gpu:1")),
    (4, ("-p", "slow", "-c4", "--gpus=2")),
    (2, ("-p", "fast,slow", "-n2", "--mem=2000")),
    (8, ("-p", "gpu", "-N2", "--exclusive")),
    (1, ("-p", "gpu", "-n1", "--qos=few")),
    (4, ("-p", "gpu", "-C", "v100", "-n4", "--gres=gpu:2")),
    (2, ("-p", "slow", "-n2", "--array=0-1")),
    (12, ("-p", "fast", "-N3", "--ntasks-per-node=4")),
    (2, ("-p", "gpu", "-n2", "--mem-per-cpu=1000", "--time-min=20")),
)
"""CPUs and options."""


def jobs_of(count: int, load: float, seed: int) -> list[PlannedJob]:
    """So many jobs that ask for ``load`` of all CPUs: twice as much in the first half of a day as in
    the second.
    """
    rng = random.Random(seed)
    at_s, found = 0.0, list[PlannedJob]()
    for _ in range(count):
        job = _job(int(at_s), rng)
        found.append(job)
        is_day = at_s % (24 * HOUR_S) < 12 * HOUR_S
        due = load * NODES * CPUS * (4 / 3 if is_day else 2 / 3)
        at_s += job.cpus * job.run_s / due
    times = sorted(job.submit_s + rng.uniform(0, 1800) for job in found)
    return [replace(job, submit_s=int(at_s)) for job, at_s in zip(found, times, strict=True)]


def _job(at_s: int, rng: random.Random) -> PlannedJob:
    (cpus, options), limit_min = rng.choice(KINDS), rng.choice(LIMITS_MIN)
    run_s = int(limit_min * 60 * rng.uniform(0.2, 1.0))
    return PlannedJob(
        submit_s=at_s,
        user=rng.choices([ALICE, BOB, CAROL], [5, 3, 2])[0],
        options=(*options, f"-t{limit_min}"),
        cpus=cpus * (2 if "--array=0-1" in options else 1),
        run_s=run_s,
    )


LINES = (
    "PartitionName=gpu Nodes=ALL Default=YES MaxTime=1-0",
    "PartitionName=fast Nodes=n[1-10] MaxTime=1-0",
    "PartitionName=slow Nodes=n[11-20] MaxTime=1-0",
    "DefMemPerCPU=500",
    "SelectTypeParameters=CR_Core_Memory",
)
"""Of slurm.conf."""
FEATURES = {"n[1-10]": "a100", "n[11-20]": "v100"}
"""Which tell the GPU types apart."""
