"""A recorded schedule: what a site's scheduler gave to each job in each slot, as a teacher.

One file of JSON lines. A line for each job, then a line for each slot that a job is there:

    {"sequence": 0, "job": 3, "type": "vgg-16", "arrival_slot": 2, "epochs": 9.5, "estimate": 10}
    {"sequence": 0, "slot": 2, "job": 3, "workers": 2, "ps": 1, "trained": 0.0}

Jobs of a sequence are numbered from 0 in the order of their arrival. `epochs` are those that the
job needed, `estimate` its owner's. `trained` are epochs done before the slot. A job that is there
without tasks has a line with zeros.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirage.elastic.baselines import Allocator, run_slot
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import STOP, Bools, ElasticConfig, ElasticWorld, Floats, Ints, TaskKind
from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json


@dataclass(frozen=True, kw_only=True)
class ScheduleLog:
    """T slots of B sequences of K jobs."""

    sequences: Sequence[ElasticJobs]
    there: Bools
    """[T, B, K]."""
    workers: Ints
    """[T, B, K]."""
    ps: Ints
    trained: Floats
    """Epochs done before the slot, [T, B, K]."""


def record_schedule(
    scheduler: Allocator, config: ElasticConfig, sequences: Sequence[ElasticJobs], *, seed: int
) -> ScheduleLog:
    """Runs all sequences and writes down what the scheduler gives."""
    world = config.open(sequences, seed=seed)
    scheduler.reset(world)
    rows: list[tuple[Bools, Floats]] = []
    tasks: list[tuple[Ints, Ints]] = []
    while not world.over.all():
        rows.append((world.active & ~world.over[:, None], world.trained.copy()))
        run_slot(world, scheduler)
        tasks.append((world.workers.copy(), world.ps.copy()))
    return ScheduleLog(
        sequences=sequences,
        there=np.stack([there for there, _ in rows]),
        workers=np.stack([workers for workers, _ in tasks]),
        ps=np.stack([ps for _, ps in tasks]),
        trained=np.stack([trained for _, trained in rows]),
    )


def write_log(path: Path, log: ScheduleLog, types: Sequence[str]) -> None:
    """Writes the file."""
    lines: list[dict[str, Any]] = []
    for nth, jobs in enumerate(log.sequences):
        for job in range(len(jobs)):
            about = {
                "type": types[jobs.type_index[job]],
                "arrival_slot": int(jobs.arrival_slot[job]),
            }
            numbers = {"epochs": float(jobs.epochs[job]), "estimate": float(jobs.estimate[job])}
            lines.append({"sequence": nth, "job": job, **about, **numbers})
    for slot, nth, job in np.argwhere(log.there).tolist():
        at = slot, nth, job
        tasks = {"workers": int(log.workers[at]), "ps": int(log.ps[at])}
        where = {"sequence": nth, "slot": slot, "job": job}
        lines.append({**where, **tasks, "trained": float(log.trained[at])})
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")


def read_log(path: Path, types: Sequence[str]) -> ScheduleLog:
    """Raises InputError, with the line that is wrong."""
    jobs: dict[tuple[int, int], Mapping[str, Any]] = {}
    rows: dict[tuple[int, int, int], tuple[int, int, float]] = {}
    try:
        lines = read_text(path).splitlines()
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}).") from error
    for number, line in enumerate(lines, 1):
        try:
            record = parse_json(line)
            key = int(record["sequence"]), int(record["job"])
            if "slot" in record:
                tasks = int(record["workers"]), int(record["ps"])
                rows[int(record["slot"]), *key] = (*tasks, float(record["trained"]))
            else:
                jobs[key] = record | {"type": types.index(record["type"])}
        except (ValueError, KeyError, TypeError) as error:
            raise InputError(f"{path}, line {number}: {error}. See docs/elastic.md.") from error
    if not rows:
        raise InputError(f"{path}: there is no slot in it. See docs/elastic.md.")
    return _joined(path, _sequences(path, jobs), rows)


def _sequences(path: Path, jobs: Mapping[tuple[int, int], Mapping[str, Any]]) -> list[ElasticJobs]:
    count = 1 + max((sequence for sequence, _ in jobs), default=-1)
    each = 1 + max((job for _, job in jobs), default=-1)
    if sorted(jobs) != [(nth, job) for nth in range(count) for job in range(each)]:
        raise InputError(f"{path}: give all sequences the same jobs, numbered from 0 without gaps.")

    def column(nth: int, name: str) -> Iterable[Any]:
        return [jobs[nth, job][name] for job in range(each)]

    try:
        return [
            ElasticJobs(
                arrival_slot=np.array(column(nth, "arrival_slot"), dtype=np.int64),
                type_index=np.array(column(nth, "type"), dtype=np.int64),
                epochs=np.array(column(nth, "epochs"), dtype=np.float64),
                estimate=np.array(column(nth, "estimate"), dtype=np.float64),
            )
            for nth in range(count)
        ]
    except (KeyError, ValueError, InputError) as error:
        raise InputError(f"{path}: {error}. See docs/elastic.md.") from error


def _joined(
    path: Path,
    sequences: list[ElasticJobs],
    rows: Mapping[tuple[int, int, int], tuple[int, int, float]],
) -> ScheduleLog:
    shape = (1 + max(slot for slot, _, _ in rows), len(sequences), len(sequences[0]))
    there = np.zeros(shape, dtype=bool)
    workers, ps = np.zeros(shape, dtype=np.int64), np.zeros(shape, dtype=np.int64)
    trained = np.zeros(shape)
    for at, (has_workers, has_ps, done) in rows.items():
        if min(at) < 0 or at[1] >= shape[1] or at[2] >= shape[2]:
            raise InputError(f"{path}: slot {at[0]}: sequence {at[1]} has no job {at[2]}.")
        there[at], workers[at], ps[at], trained[at] = True, has_workers, has_ps, done
    return ScheduleLog(sequences=sequences, there=there, workers=workers, ps=ps, trained=trained)


@dataclass(kw_only=True)
class LogTeacher:
    """Gives in each slot what the log says. See `Allocator`.

    A log has no order within a slot, so all jobs that lack tasks are equally good next ones. In
    another order than the scheduler's, the last few tasks may not fit.
    """

    log: ScheduleLog
    name: str = "log"

    def reset(self, world: ElasticWorld) -> None:
        """See `Allocator`."""

    def begin_slot(self, world: ElasticWorld) -> None:
        """Brings the world to the log's state: who is there, and what each has trained."""
        slots = len(self.log.there)
        slot = min(world.slot, slots - 1)
        there = self.log.there[slot] & (world.slot < slots)
        world.trained = np.where(there, self.log.trained[slot], world.trained)
        came = world.arrival <= world.slot
        world.finish = np.where(came & ~there, np.fmin(world.finish, world.slot), np.nan)
        world.limit_to(None)
        self._workers, self._ps = self.log.workers[slot], self.log.ps[slot]

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """See `Allocator`."""
        lacking, kind = self.best(world)
        job = lacking.argmax(axis=1)
        rows = np.arange(world.clusters)
        return np.where(lacking[rows, job], job, STOP), kind[rows, job]

    def best(self, world: ElasticWorld) -> tuple[Bools, Ints]:
        """Jobs that lack tasks that fit, and the `TaskKind` that each would get, [B, K]."""
        worker, ps = world.workers < self._workers, world.ps < self._ps
        kind = np.where(
            worker & ps, TaskKind.BUNDLE, np.where(worker, TaskKind.WORKER, TaskKind.PS)
        )
        fits = np.take_along_axis(world.allowed(), kind[..., None], axis=2)[..., 0]
        return (worker | ps) & fits, kind
