"""The simulator behind the commands: jobs as columns in, what became of them as columns out."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

import slurm_sim
from slurm_sim.clusters.values import compress_hosts
from slurm_sim.jobfile.jobs import MISSING, Ints, Jobs
from slurm_sim.jobfile.prepare import SimulationInput
from slurm_sim.jobfile.specs import specs
from slurm_sim.jobs import JobRecord, State
from slurm_sim.table import JobTable

SLICES = 500
"""Pieces into which a run is cut, so that it can show progress and be interrupted; they change no
result.
"""
SCHEDULERS = np.array(["", "main", "backfill"], object)
STATES = np.array([*(state.value for state in State), ""], object)
PLAIN = {
    *(
        "job_id",
        "submit_s",
        "nodes",
        "timelimit_s",
        "runtime_s",
        "user",
        "account",
        "partition",
        "qos",
    ),
    *("cpus_per_node", "mem_mib_per_node", "gpus_per_node", "exclusive", "exit_code", "cancel_s"),
}
"""Columns that a `JobTable` has; jobs with others are handed over one by one."""

Progress = Callable[[float], None]
"""Gets the share of the submissions that are over."""


@dataclass
class RunOutcome:
    """What became of each job, by row; times as in the file, `MISSING` where there is none."""

    start_s: Ints
    end_s: Ints
    eligible_s: Ints
    state: NDArray[np.object_]
    """Empty: not submitted yet."""
    scheduler: NDArray[np.object_]
    """main or backfill; empty: it did not start."""
    reason: NDArray[np.object_]
    """Why a job is pending, or was refused."""


def make(ready: SimulationInput) -> slurm_sim.Simulator:
    """A simulator with all jobs submitted. Raises SimulationError."""
    if set(ready.jobs.columns) <= PLAIN:
        return slurm_sim.Simulator(ready.cluster, _table(ready))
    return slurm_sim.Simulator(ready.cluster, specs(ready.jobs, ready.shift_s, ready.circular))


def _table(ready: SimulationInput) -> JobTable:
    jobs, cluster = ready.jobs, ready.cluster
    cancel_s = jobs.numbers("cancel_s")
    return JobTable(
        jobs.numbers("submit_s") + ready.shift_s,
        jobs.numbers("nodes"),
        jobs.numbers("timelimit_s"),
        jobs.numbers("runtime_s"),
        job_id=jobs.numbers("job_id"),
        user=_names(jobs, "user", "user"),
        account=_names(jobs, "account", "root"),
        partition=_names(jobs, "partition", cluster.partitions[0].name),
        qos=_names(jobs, "qos", cluster.qos[0].name),
        cpus_per_node=_or(jobs, "cpus_per_node", 1),
        memory_mib_per_node=_or(jobs, "mem_mib_per_node", 0),
        gpus_per_node=_or(jobs, "gpus_per_node", 0),
        exclusive=_or(jobs, "exclusive", 0),
        exit_code=_or(jobs, "exit_code", 0),
        cancel_s=np.where(cancel_s == MISSING, MISSING, np.maximum(cancel_s + ready.shift_s, 0)),
    )


def _names(jobs: Jobs, name: str, otherwise: str) -> Any:
    if name not in jobs.columns:
        return otherwise
    texts = jobs.texts(name)
    return np.where(texts == "", otherwise, texts)


def _or(jobs: Jobs, name: str, otherwise: int) -> Ints:
    values = jobs.numbers(name)
    return np.where(values == MISSING, otherwise, values)


def run(
    simulator: slurm_sim.Simulator,
    ready: SimulationInput,
    until_s: int | None = None,
    progress: Progress | None = None,
) -> None:
    """Lets time pass until nothing can happen any more, or until this time of the file."""
    stop_s = None if until_s is None else max(until_s + ready.shift_s, simulator.now_s)
    last_s = int(ready.jobs.numbers("submit_s").max()) + ready.shift_s
    slice_s = max(1, last_s // SLICES)
    while (due_s := simulator.next_event_s()) is not None and (stop_s is None or due_s <= stop_s):
        to_s = max(due_s, simulator.now_s + slice_s)
        simulator.run_until(to_s if stop_s is None else min(to_s, stop_s))
        if progress is not None:
            progress(min(1.0, simulator.now_s / max(1, last_s)))
    if stop_s is not None:
        simulator.run_until(stop_s)


def outcome(simulator: slurm_sim.Simulator, ready: SimulationInput) -> RunOutcome:
    """What is known of the jobs now."""
    found = _from_columns(simulator)
    rows = dict(zip(ready.jobs.numbers("job_id").tolist(), range(len(ready.jobs)), strict=True))
    limits = (
        (qos.max_submit_jobs_per_user, qos.max_submit_jobs_per_account) for qos in ready.cluster.qos
    )
    refuses = any(limit is not None for each in limits for limit in each)
    for record in (*simulator.pending(), *(simulator.finished() if refuses else ())):
        if record.reason != "None" or not record.state.is_over:
            found.reason[rows[record.job_id]] = record.reason
    for row, circle in ready.circular.items():
        if found.reason[row]:
            found.reason[row] = f"DependencyCycle {circle}"
    for column in (found.start_s, found.end_s, found.eligible_s):
        column[column != MISSING] -= ready.shift_s
    return found


def _from_columns(simulator: slurm_sim.Simulator) -> RunOutcome:
    got = simulator.results()
    reason = np.full(len(got.start_s), "", object)
    return RunOutcome(
        start_s=got.start_s.copy(),
        end_s=got.end_s.copy(),
        eligible_s=got.eligible_s.copy(),
        state=STATES[got.state],
        scheduler=SCHEDULERS[got.scheduler],
        reason=reason,
    )


def records(simulator: slurm_sim.Simulator) -> list[JobRecord]:
    """All jobs that have been submitted."""
    return [
        *simulator.finished(),
        *simulator.running(),
        *simulator.suspended(),
        *simulator.pending(),
    ]


def partitions(
    simulator: slurm_sim.Simulator, ready: SimulationInput, found: RunOutcome
) -> NDArray[np.object_]:
    """Where each job ran, by row; what it asks for, if it did not."""
    texts = ready.jobs.texts("partition")
    names = np.where(texts == "", ready.cluster.partitions[0].name, texts)
    in_several = np.array(["," in name for name in names], dtype=bool)
    job_ids = ready.jobs.numbers("job_id")
    for row in np.flatnonzero(in_several & (found.start_s != MISSING)):
        names[row] = simulator.job(int(job_ids[row])).partition
    return names


def node_lists(simulator: slurm_sim.Simulator, ready: SimulationInput) -> NDArray[np.object_]:
    """The nodes that each job has or had, as squeue prints them (``n[1-4]``), by row."""
    rows = dict(zip(ready.jobs.numbers("job_id").tolist(), range(len(ready.jobs)), strict=True))
    known: dict[tuple[str, ...], str] = {}
    found = np.full(len(rows), "", object)
    for record in records(simulator):
        names = record.node_names
        if names not in known:
            known[names] = compress_hosts(names)
        found[rows[record.job_id]] = known[names]
    return found
