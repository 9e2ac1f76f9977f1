"""How fast a job trains: steps a second as a function of workers and parameter servers (PSs).

Speeds are tables. A shape that nobody measured has speed 0 and can't be allocated, so that no
scheduler earns from an extrapolation.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt

from mirage.errors import InputError

Floats = npt.NDArray[np.float64]
MOST_DL2_TASKS = 24
"""Workers and PSs of a job together in the measurements behind `dl2.csv`."""


@dataclass(frozen=True, kw_only=True)
class TaskDemand:
    """What a task takes of its server."""

    gpus: int
    cpus: int


@dataclass(frozen=True, kw_only=True)
class JobType:
    """A kind of training job."""

    name: str
    steps_per_s: Floats
    """[P + 1, W + 1]: by PSs and workers; 0 where it can't run or was not measured."""
    batches_per_epoch: int
    worker: TaskDemand
    ps: TaskDemand | None
    """None: all-reduce, without parameter servers; the table then has one row."""

    def __post_init__(self) -> None:
        check_table(self.name, self.steps_per_s)
        if self.batches_per_epoch < 1:
            raise InputError(f"job type {self.name}: {self.batches_per_epoch} batches an epoch")

    @property
    def best_steps_per_s(self) -> float:
        """At its best shape, alone on an unlimited cluster."""
        return float(self.steps_per_s.max())


def check_table(name: str, steps_per_s: Floats) -> None:
    """Raises InputError for a table with NaN, negative numbers or nothing but zeros."""
    if steps_per_s.ndim != 2:
        raise InputError(f"job type {name}: the speeds must be a table of PSs and workers")
    wrong = ~(np.isfinite(steps_per_s) & (steps_per_s >= 0))
    if wrong.any():
        ps, workers = np.argwhere(wrong)[0]
        raise InputError(
            f"job type {name}: the speed at {workers} workers and {ps} PSs is"
            f" {steps_per_s[ps, workers]}: give steps a second, or 0 where it was not measured"
        )
    if not steps_per_s.any():
        raise InputError(f"job type {name}: no speed above 0")


@dataclass(frozen=True, kw_only=True)
class SyncModel:
    """Optimus's model of a synchronous step: T = a B/w + b + c w/p + d w + e p, seconds."""

    total_batch: float
    a: float
    b: float
    c: float
    d: float
    e: float

    def steps_per_s(self, ps: Floats, workers: Floats) -> Floats:
        """For at least one worker and one PS."""
        step_s: Floats = (
            self.a * self.total_batch / workers
            + self.b
            + self.c * workers / ps
            + self.d * workers
            + self.e * ps
        )
        return 1 / step_s

    def table(self, most_tasks: int) -> Floats:
        """[P + 1, W + 1] with at most ``most_tasks`` workers and PSs together."""
        ps, workers = np.mgrid[0:most_tasks, 0:most_tasks].astype(np.float64)
        allowed = (ps >= 1) & (workers >= 1) & (ps + workers <= most_tasks)
        speeds = self.steps_per_s(np.maximum(ps, 1), np.maximum(workers, 1))
        return np.where(allowed, speeds, 0.0)


def dl2_types(*, most_tasks: int = MOST_DL2_TASKS) -> tuple[JobType, ...]:
    """The eight types of Table 1 (`data/README.md`)."""
    if not 2 <= most_tasks <= MOST_DL2_TASKS:
        raise InputError(f"most_tasks {most_tasks}: 2 to {MOST_DL2_TASKS} were measured")
    found = []
    for row in _rows("dl2.csv"):
        model = SyncModel(
            **{name: float(row[name]) for name in ("total_batch", "a", "b", "c", "d", "e")}
        )
        found.append(
            JobType(
                name=row["model"],
                steps_per_s=model.table(most_tasks),
                batches_per_epoch=int(row["batches_per_epoch"]),
                worker=TaskDemand(gpus=int(row["worker_gpus"]), cpus=int(row["worker_cpus"])),
                ps=TaskDemand(gpus=0, cpus=int(row["ps_cpus"])),
            )
        )
    return tuple(found)


def _rows(name: str) -> Iterable[Mapping[str, str]]:
    text = resources.files("mirage.elastic").joinpath("data", name).read_text()
    return csv.DictReader(text.splitlines())
