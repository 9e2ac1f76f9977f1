"""A job history for one cluster: what users asked for, how their jobs behaved, and when they ran in
the log.

`read_log` is the gate for wrong input: what comes through can be simulated.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from slurm_sim.config import ClusterConfig
from slurm_sim.jobfile.impossible import find_impossible
from slurm_sim.jobfile.jobs import MISSING, Jobs, jobs_of
from slurm_sim.jobfile.prepare import prepare
from slurm_sim.jobfile.specs import specs
from slurm_sim.jobs import JobSpec
from slurm_sim.table import JobTable
from slurm_sim.traces import Trace, TraceError
from slurm_sim.traces.cleaning import Rules, clean

Ints = NDArray[np.int64]
MOST_IMPOSSIBLE = 0.5
"""With a greater share of jobs that this cluster could never run, it is another cluster's trace."""
NAMES = ("user", "account", "partition", "qos")
PLAIN = frozenset(
    {
        *("job_id", "submit_s", "nodes", "timelimit_s", "runtime_s", *NAMES),
        *("cpus_per_node", "mem_mib_per_node", "gpus_per_node", "exit_code", "cancel_s"),
    }
)
"""Columns that a `JobTable` has; jobs with others, like dependencies, are handed over one by one,
which is slower.
"""
LOGGED = frozenset({"start_s", "end_s", "eligible_s"})
"""Columns that say what became of a job in the log; no simulation sees them."""


@dataclass(frozen=True)
class JobLog:
    """Jobs by submission; times are Unix seconds.

    Every job has a partition, a QOS and an account, and its partition's limit if it gives none.
    """

    source: str
    columns: dict[str, Any]
    """As those of `slurm_sim.jobfile.jobs.Jobs`, and those of `LOGGED`; (jobs,) each. Numbers are int64
    with `MISSING` (-1) for what is not known.
    """
    notes: tuple[str, ...] = ()
    """What was left out or supposed, for people."""

    def __len__(self) -> int:
        return len(self.columns["submit_s"])

    def column(self, name: str) -> Ints:
        """Numbers, (jobs,); all `MISSING` if the log has none."""
        column: Ints | None = self.columns.get(name)
        return np.full(len(self), MISSING, dtype=np.int64) if column is None else column

    @property
    def first_s(self) -> int:
        """The first submission."""
        return int(self.columns["submit_s"][0])

    @property
    def last_s(self) -> int:
        """The last submission: nobody knows what came after."""
        return int(self.columns["submit_s"][-1])

    @cached_property
    def ends_s(self) -> dict[int, int | None]:
        """When each job ended in the log, by id; None: unknown."""
        ends_s = [None if end_s == MISSING else end_s for end_s in self.column("end_s").tolist()]
        return dict(zip(self.columns["job_id"].tolist(), ends_s, strict=True))

    def pick(self, rows: NDArray[Any]) -> JobLog:
        """The jobs of a mask or of row numbers."""
        return replace(self, columns={name: column[rows] for name, column in self.columns.items()})

    def between(self, from_s: int, until_s: int) -> JobLog:
        """Jobs submitted from `from_s` to `until_s`, both included. Views, no copies."""
        first, last = np.searchsorted(self.columns["submit_s"], (from_s, until_s + 1))
        return replace(
            self, columns={name: column[first:last] for name, column in self.columns.items()}
        )

    def changed(self, **columns: Any) -> JobLog:
        """With these columns instead."""
        return replace(self, columns={**self.columns, **columns})

    def specs(self, without: Collection[str] = ()) -> list[JobSpec]:
        """One by one, for the simulator; as if the columns `without` were not there."""
        columns = {name: column for name, column in self.columns.items() if name not in without}
        return list(specs(Jobs(self.source, columns, self.columns["job_id"], lambda _: None)))

    def submissions(self) -> JobTable | list[JobSpec]:
        """For the simulator, in the fastest form that has all that is known of them."""
        return self._table() if set(self.columns) <= PLAIN | LOGGED else self.specs()

    def _table(self) -> JobTable:
        def numbers(name: str, otherwise: int) -> Ints:
            values = self.column(name)
            return np.where(values == MISSING, otherwise, values)

        columns = self.columns
        return JobTable(
            *(columns[name] for name in ("submit_s", "nodes", "timelimit_s", "runtime_s")),
            job_id=columns["job_id"],
            cpus_per_node=numbers("cpus_per_node", 1),
            memory_mib_per_node=numbers("mem_mib_per_node", 0),
            gpus_per_node=numbers("gpus_per_node", 0),
            exit_code=numbers("exit_code", 0),
            cancel_s=self.column("cancel_s"),
            **{name: _shared(columns[name]) for name in NAMES},
        )

    def checksum(self) -> str:
        """SHA-256 of all jobs: equal logs have equal ones."""
        digest = hashlib.sha256()
        for name, column in sorted(self.columns.items()):
            digest.update(f"{name} {len(column)}\n".encode())
            digest.update(
                "\n".join(column).encode() if column.dtype.kind in "OU" else column.tobytes()
            )
        return digest.hexdigest()


def _shared(names: NDArray[np.str_]) -> Any:
    """The one name where all are equal: a table takes that in a tenth of the time."""
    return str(names[0]) if len(names) and (names == names[0]).all() else names


def read_log(trace: Trace, cluster: ClusterConfig) -> JobLog:
    """The trace's jobs as this cluster would get them: cleaned (docs/traces.md), numbered by
    submission.

    Jobs that it could never run are left out, and noted. Raises InputError: no jobs, not sorted, no
    limits, or most jobs are not for this cluster.
    """
    _check(trace, cluster)
    cleaned, report = clean(trace, Rules(nodes=len(cluster.nodes)))
    if not len(cleaned):
        raise InputError(
            f"{trace.source}: no job is left after cleaning; look at it with `mirage trace stats`."
        )
    found = [
        f"{item.rule}: {item.jobs} {item.action}, {item.detail}"
        for item in report.findings
        if item.jobs
    ]
    log = log_of(cleaned, cluster)
    return replace(log, notes=(*found, *log.notes))


def log_of(trace: Trace, cluster: ClusterConfig) -> JobLog:
    """The same of a trace that is clean: an imported or a generated one. Raises InputError."""
    jobs = _jobs(trace)
    try:
        ready, notes = prepare(cluster, jobs, 0, skip_impossible=True)
    except TraceError as error:
        raise InputError(_not_its_trace(jobs, cluster, str(error))) from error
    if len(ready.jobs) < (1 - MOST_IMPOSSIBLE) * len(jobs):
        raise InputError(_not_its_trace(jobs, cluster, notes[0]))
    columns = _named(ready.jobs, cluster)
    columns["timelimit_s"] = _limits_s(ready.jobs, columns["partition"], cluster)
    if cluster.counts_memory and not ready.cluster.counts_memory:
        # Nothing is known of their memory; jobs that name none would get all of their nodes'
        # (decision 0022).
        columns["mem_mib_per_node"] = np.ones(len(ready.jobs), np.int64)
    if ready.circular:
        columns |= _held(ready.jobs, list(ready.circular))
    return JobLog(trace.source, {**ready.jobs.columns, **columns}, tuple(notes))


def _check(trace: Trace, cluster: ClusterConfig) -> None:
    if not len(trace):
        raise InputError(
            f"{trace.source}: no jobs; give a trace with at least one (docs/traces.md)."
        )
    submit_s = trace.column("submit")
    if (late := np.flatnonzero(np.diff(submit_s) < 0)).size:
        raise InputError(
            f"{trace.source}: job {trace.text('job_id')[late[0] + 1]} was submitted before the one"
            " above it; sort the jobs by submission, or read them with `mirage trace import`,"
            " which does."
        )
    bounded = any(
        partition.max_time_s or partition.default_time_s for partition in cluster.partitions
    )
    if not bounded and not (trace.column("timelimit_s") > 0).any():
        raise InputError(
            f"{trace.source}: no job has a time limit (timelimit_s), and cluster {cluster.name!r}"
            " sets none; without limits there is no backfill to simulate. Give the column, or"
            " max_time in the cluster's file."
        )


def _jobs(trace: Trace) -> Jobs:
    """As `jobs_of`, with the log's times. Jobs cancelled in the queue hold no nodes if they start
    here before that.
    """
    jobs = jobs_of(trace)
    ran, runtime_s = trace.ran, jobs.columns["runtime_s"]
    columns = {name: _filled(trace.column(name.removesuffix("_s"))) for name in sorted(LOGGED)}
    never_ran = ~ran & (columns["end_s"] != MISSING)
    columns["runtime_s"] = np.where(never_ran & (runtime_s == MISSING), 0, runtime_s)
    return replace(jobs, columns={**jobs.columns, **columns})


def _filled(values: NDArray[np.float64]) -> Ints:
    return np.where(np.isnan(values), MISSING, values).astype(np.int64)


def _not_its_trace(jobs: Jobs, cluster: ClusterConfig, otherwise: str) -> str:
    impossible = find_impossible(cluster, jobs)
    if not impossible:
        return otherwise
    first = impossible[0]
    return (
        f"{jobs.source}: cluster {cluster.name!r} could never run {len(impossible)} of {len(jobs)}"
        f" jobs (job {jobs.labels[first.row]}: {first.why}); give the cluster that the trace is of."
    )


def _named(jobs: Jobs, cluster: ClusterConfig) -> dict[str, Any]:
    """Names for the jobs that give none: Slurm's defaults."""
    default = {
        "user": "user",
        "account": "root",
        "partition": cluster.partitions[0].name,
        "qos": cluster.qos[0].name,
    }
    texts = {name: jobs.texts(name) for name in NAMES}
    return {
        name: np.where(values == "", default[name], values).astype(np.str_)
        for name, values in texts.items()
    }


def _limits_s(jobs: Jobs, partition: NDArray[np.str_], cluster: ClusterConfig) -> Ints:
    """A job that gives no limit gets its partition's DefaultTime, else MaxTime; `MISSING`: there is
    none.
    """
    of_partition = {
        item.name: item.default_time_s or item.max_time_s or MISSING for item in cluster.partitions
    }
    given_s = jobs.numbers("timelimit_s")
    names, index = np.unique(partition, return_inverse=True)
    default_s = np.array([of_partition[str(name)] for name in names], dtype=np.int64)[index]
    return np.where(given_s > 0, given_s, default_s)


def _held(jobs: Jobs, rows: list[int]) -> dict[str, Any]:
    """Jobs that wait for each other in a circle never start: they are held instead."""
    held, dependency = np.zeros(len(jobs), dtype=np.int64), jobs.texts("dependency").copy()
    held[rows], dependency[rows] = 1, ""
    return {"held": held, "dependency": dependency}
