"""Sequences of training jobs (section 6.2), and the choices that its text leaves open.

| what the text lacks | here | why |
| --- | --- | --- |
| arrivals (Figure 8 is a picture) | Poisson; the rate follows a day, `1 + 0.8 sin` | a working day |
| length of jobs | lognormal, mean 147 min, median 75 min at `request` | its mean; half over 1 h |
| shape at which lengths hold | 2 workers, 2 PSs | users' own shapes are not published |
| demands of tasks | those of the authors' code | in the text's ranges |
| the first bundle | not given for free | section 4.1 has no such rule |
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from mirage.elastic.speed import JobType
from mirage.errors import InputError
from slurm_sim.seconds import DAY_S

Ints = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class ElasticWorkload:
    """How jobs are drawn."""

    types: Sequence[JobType]
    jobs: int = 30
    """Jobs in a sequence."""
    jobs_per_slot: float = 0.5
    """Mean arrivals in a time slot."""
    slot_s: float = 1200.0
    """Seconds of a time slot; section 6.2's is 20 minutes."""
    mean_s: float = 147 * 60.0
    """Mean length at `request`, seconds (section 6.2)."""
    median_s: float = 75 * 60.0
    request: tuple[int, int] = (2, 2)
    """Workers and PSs at which the lengths hold; PSs count for types that have them."""
    day_swing: float = 0.8
    """How far the arrival rate swings around its mean in a day, as a share."""
    epoch_error: float = 0.0
    """Owners' estimates of epochs are off by at most this share, either way (Figure 14)."""

    def __post_init__(self) -> None:
        if not self.types:
            raise InputError("workload: no job types")
        if self.jobs < 1 or not self.jobs_per_slot > 0 or not self.slot_s > 0:
            raise InputError("workload: jobs, jobs_per_slot and slot_s must be above 0")
        if not 0 < self.median_s <= self.mean_s:
            raise InputError("workload: median_s must be above 0 and at most mean_s")
        if not 0 <= self.day_swing <= 1 or not 0 <= self.epoch_error < 1:
            raise InputError("workload: day_swing must be in [0, 1], epoch_error in [0, 1)")


@dataclass(frozen=True, kw_only=True)
class ElasticJobs:
    """Jobs in the order of their arrival, one entry a job, [K]."""

    arrival_slot: Ints
    type_index: Ints
    epochs: Floats
    """Epochs that the job really needs."""
    estimate: Floats
    """Epochs by its owner's word."""

    def __len__(self) -> int:
        return len(self.arrival_slot)

    def __post_init__(self) -> None:
        if not len(self.arrival_slot):
            raise InputError("jobs: the sequence is empty")
        for name in ("epochs", "estimate"):
            values = getattr(self, name)
            if not (np.isfinite(values) & (values > 0)).all():
                nth = int(np.argmin(np.isfinite(values) & (values > 0)))
                raise InputError(f"job {nth}: {name} is {values[nth]}; give a number above 0")
        if (np.diff(self.arrival_slot) < 0).any() or self.arrival_slot[0] < 0:
            raise InputError("jobs: must be in the order of their arrival, from slot 0 on")


def draw(workload: ElasticWorkload, rng: np.random.Generator) -> ElasticJobs:
    """One sequence of jobs."""
    kinds = rng.integers(len(workload.types), size=workload.jobs)
    sigma = math.sqrt(2 * math.log(workload.mean_s / workload.median_s))
    length_s = workload.median_s * np.exp(sigma * rng.standard_normal(workload.jobs))
    rate = np.array([_epochs_per_s(kind, workload.request) for kind in workload.types])
    epochs = np.maximum(length_s * rate[kinds], 0.05)
    error = workload.epoch_error * rng.uniform(-1, 1, workload.jobs)
    return ElasticJobs(
        arrival_slot=_arrivals(workload, rng),
        type_index=kinds,
        epochs=epochs,
        estimate=epochs / (1 + error),
    )


def _epochs_per_s(kind: JobType, request: tuple[int, int]) -> float:
    workers, ps = request
    rows, columns = kind.steps_per_s.shape
    speed = kind.steps_per_s[min(ps, rows - 1), min(workers, columns - 1)]
    if not speed > 0:
        raise InputError(f"job type {kind.name}: no speed at {workers} workers and {ps} PSs")
    return float(speed) / kind.batches_per_epoch


def _arrivals(workload: ElasticWorkload, rng: np.random.Generator) -> Ints:
    slots: list[int] = []
    slot, phase = 0, rng.uniform(0, 2 * math.pi)
    per_slot = 2 * math.pi * workload.slot_s / DAY_S
    while len(slots) < workload.jobs:
        rate = workload.jobs_per_slot * (1 + workload.day_swing * math.sin(phase + slot * per_slot))
        slots += [slot] * int(rng.poisson(max(rate, 0.0)))
        slot += 1
    found = np.array(slots[: workload.jobs])
    return np.asarray(found - found[0], dtype=np.int64)
