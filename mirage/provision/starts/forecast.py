"""The forecast of a job's start, as a range, and the job that stands for a shape."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise

from mirage.chain.durations import format_duration
from mirage.domain import Job, JobState
from mirage.figures.words import several

LEVELS = (0.1, 0.5, 0.9)
"""Of the p10, p50 and p90 that are shown."""


@dataclass(frozen=True, kw_only=True)
class JobShape:
    """What a job asks for."""

    nodes: int
    time_limit_s: int | None
    """None: UNLIMITED."""
    partition: str
    """Several are separated by commas."""
    time_min_s: int = 0
    """To how long backfill may shorten the limit (`sbatch --time-min`); 0: it may not."""
    cpus: int = 0
    """Of the whole job, as GPUs and memory; 0: not given."""
    gpus: int = 0
    gpu_type: str = ""
    memory_mib: int = 0
    account: str = ""
    qos: str = ""
    constraint: str = ""
    """Features that its nodes must have."""
    tasks: int = 1
    """Of a job array."""

    def __str__(self) -> str:
        nodes = f"{self.nodes} node{'s' * (self.nodes != 1)}"
        return f"{nodes} for {_limit(self.time_limit_s)} in {self.partition}"

    def instead_of(self, other: JobShape) -> str:
        """What is less than in the other, for people."""
        if self.nodes != other.nodes:
            return f"{several(self.nodes, 'node')} instead of {other.nodes}"
        return f"{_limit(self.time_limit_s)} instead of {_limit(other.time_limit_s)}"

    def job(self, job_id: int, user: str, now_s: int) -> Job:
        """A job of this shape that enters the queue now."""
        return Job(
            job_id=job_id,
            user=user,
            partition=self.partition,
            state=JobState.PENDING,
            nodes=self.nodes,
            submit_s=now_s,
            time_limit_s=self.time_limit_s,
            eligible_s=now_s,
            cpus=self.cpus,
            gpus=self.gpus,
            memory_mib=self.memory_mib,
            account=self.account,
        )


@dataclass(frozen=True, kw_only=True)
class StartForecast:
    """How long from now until the job starts."""

    wait_s: tuple[float, float, float]
    """p10, p50, p90; seconds."""
    method: str
    """What it comes from: `trees`, `trees and Slurm's plan`, `like jobs`, `Slurm's plan`."""
    reason: str
    """One sentence for people."""
    law: tuple[tuple[float, float], ...] = ()
    """More of the distribution: levels, rising, and their waits; empty: p10, p50 and p90."""

    def chance_within(self, wait_s: float) -> float:
        """Probability that it starts within so long, 0 to 1: between the levels by the logarithm of
        the wait, beyond the last ones by the slope before.
        """
        law = self.law or tuple(zip(LEVELS, self.wait_s, strict=True))
        points = [(math.log(max(each_s, 1.0)), level) for level, each_s in law]
        at = math.log(max(wait_s, 1.0))
        pairs = list(pairwise(points))
        first, second = next((pair for pair in pairs if at <= pair[1][0]), pairs[-1])
        if second[0] <= first[0]:
            return second[1] if at >= second[0] else first[1]
        share = (at - first[0]) / (second[0] - first[0])
        return min(max(first[1] + share * (second[1] - first[1]), 0.01), 0.99)


def _limit(seconds: int | None) -> str:
    return "an unlimited time" if seconds is None else format_duration(seconds)
