"""The forecast of a job's start, as a range, and the job that stands for a shape."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from mirage.chain.durations import format_duration
from mirage.domain import Job, JobState
from mirage.errors import InputError, system_says
from mirage.figures.words import several
from mirage.provision.learn.episode import Floats
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

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
    """What it comes from: `trees`, `like jobs`, `look-ahead`."""
    reason: str
    """One sentence for people."""


@dataclass(frozen=True)
class QuantileCalibration:
    """Which quantiles of a method's own law were p10, p50 and p90 of the waits that came.

    Conformal prediction on ranks (Chernozhukov, Wuethrich, Zhu: Distributional conformal
    prediction, 2021): a law that was exceeded by 25 % of the waits at its p90 is asked for a higher
    quantile. It holds for waits that are exchangeable with those it was made of.
    """

    levels: tuple[float, float, float] = LEVELS
    cases: int = field(default=0)
    """How many waits it was made of; 0: none, the law is taken as it is."""

    @classmethod
    def of(cls, ranks: Floats, fewest: int = 20) -> QuantileCalibration:
        """From the rank of each past wait in its own forecast, (n,), 0 to 1."""
        if len(ranks) < fewest:
            return cls()
        low, middle, high = (
            float(level) for level in np.quantile(ranks, LEVELS, method="median_unbiased")
        )
        return cls((low, middle, high), len(ranks))


AS_IT_IS = QuantileCalibration()
WAITS_RESULT = "results.json of mirage evaluate waits"
"""What holds a calibration, in words."""


def read_calibration(path: Path) -> QuantileCalibration:
    """From results.json of `mirage evaluate waits`. Raises InputError."""
    try:
        found = parse_json(read_text(path))["calibration"]
        levels, cases = found["levels"], int(found["jobs"])
        low, middle, high = (float(level) for level in levels)
    except OSError as error:
        raise InputError(f"{system_says(error)}; give {WAITS_RESULT}.") from error
    except (ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: no calibration of look-ahead; give {WAITS_RESULT}.") from error
    if not 0 <= low <= middle <= high <= 1:
        raise InputError(f"{path}: levels {levels} are no rising shares from 0 to 1.")
    return QuantileCalibration((low, middle, high), cases)


def _limit(seconds: int | None) -> str:
    return "an unlimited time" if seconds is None else format_duration(seconds)


def held(job: Job, priority: int) -> Job:
    """The job kept back, until a simulation releases it."""
    return replace(job, reason="JobHeldUser", eligible_s=None, priority=priority)
