"""Jobs and a cluster made ready for the simulator: what could never run, what waits in a circle, where time begins."""

from __future__ import annotations

from collections.abc import Container, Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.cli.jobs import MISSING, Ints, Jobs
from slurm_sim.cluster import Cluster
from slurm_sim.config import ClusterConfig
from slurm_sim.dependency import MINUTE_S, Dependencies, Dependency, check_no_cycle, parse_dependency
from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import JobSpec
from slurm_sim.traces.errors import TraceError

FIELDS = {"partition": "partition", "qos": "qos", "reservation": "reservation", "constraint": "constraint"}
"""How the texts of InvalidJob begin, and the field that this is about; the rest is about nodes or the limit."""
SHAPE = ("nodes", "timelimit_s", "cpus_per_node", "gpus_per_node", "mem_mib_per_node", "exclusive")
NAMES = ("partition", "qos", "constraint", "reservation")
NAMES_OF_RESERVED = ("user", "account")


@dataclass(frozen=True)
class Impossible:
    """A job that could never run as asked."""

    row: int
    field: str
    found: object
    why: str


@dataclass(frozen=True)
class Ready:
    """Input of the simulator, whose own time begins at 0 with slurmctld's start."""

    cluster: ClusterConfig
    jobs: Jobs
    """``job_id`` is as slurmctld would number them; the file's own are the labels."""
    shift_s: int
    """What to add to the file's times to get the simulator's."""
    circular: dict[int, str]
    """Rows of jobs that wait for each other, and how: they are kept back for ever."""


def prepare(cluster: ClusterConfig, jobs: Jobs, started_s: int, skip_impossible: bool) -> tuple[Ready, list[str]]:
    """Checks all jobs; returns what to simulate and what the user should know.

    Raises TraceError for the first job that could never run, unless those are to be left out.
    """
    notes = list(jobs.notes)
    if not len(jobs):
        raise TraceError(jobs.source, "at least one job", found="none")
    if started_s > int(jobs.numbers("submit_s").min()):
        row = int(jobs.numbers("submit_s").argmin())
        expected = f"a time from slurmctld's start on (--slurmctld-started-s, {started_s})"
        raise jobs.refuse(row, "submit_s", expected, jobs.numbers("submit_s")[row])
    impossible = find_impossible(cluster, jobs)
    if impossible and not skip_impossible:
        raise _refusal(jobs, impossible)
    if impossible:
        notes.append(_skipped(jobs, impossible))
        keep = np.ones(len(jobs), bool)
        keep[[each.row for each in impossible]] = False
        jobs = jobs.pick(keep)
    if not len(jobs):
        raise TraceError(jobs.source, "at least one job that this cluster can run", found="none")
    circular = _circles(jobs)
    notes += _remarks(jobs, circular)
    return Ready(_shifted(cluster, -started_s), renumbered(jobs), -started_s, circular), notes


# --- jobs that could never run ---------------------------------------------------------------------------------------


def find_impossible(cluster: ClusterConfig, jobs: Jobs) -> list[Impossible]:
    """By row. Each distinct request is checked once."""
    nodes, limits = jobs.numbers("nodes"), jobs.numbers("timelimit_s")
    found = {}
    for row in np.flatnonzero(nodes < 1):
        found[int(row)] = Impossible(int(row), "nodes", nodes[row], "a job needs at least 1 node")
    for row in np.flatnonzero(limits == 0):
        found[int(row)] = Impossible(int(row), "timelimit", 0, "a limit of 0 is none: give at least a minute")
    for rows, dependency in _each_text(jobs, "dependency"):
        try:
            parse_dependency(dependency)
        except InvalidJob as error:
            found |= {int(each): Impossible(int(each), "dependency", dependency, str(error)) for each in rows}
    checker = Cluster(cluster, 0)
    for rows, spec in _requests(
        jobs, np.array(sorted(set(range(len(jobs))) - set(found)) if found else range(len(jobs)))
    ):
        try:
            checker.check(spec)
        except InvalidJob as error:
            field = _field(str(error))
            value = getattr(spec, {"timelimit": "time_limit_s"}.get(field, field))
            found |= {int(row): Impossible(int(row), field, value, str(error)) for row in rows}
    return [found[row] for row in sorted(found)]


def _requests(jobs: Jobs, rows: NDArray[Any]) -> Iterator[tuple[NDArray[Any], JobSpec]]:
    """The rows of each distinct request, with one job that asks for it."""
    if not len(rows):
        return
    names = [*NAMES, *(NAMES_OF_RESERVED if "reservation" in jobs.columns else ())]
    keys = {name: jobs.columns[name][rows] for name in SHAPE if name in jobs.columns}
    keys |= {name: pd.factorize(jobs.columns[name][rows])[0] for name in names if name in jobs.columns}
    groups = pd.DataFrame(keys).groupby(list(keys), sort=False).ngroup().to_numpy()
    order = np.argsort(groups, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        yield rows[part], _spec(jobs, int(rows[part[0]]))


def _spec(jobs: Jobs, row: int) -> JobSpec:
    one = jobs.pick(np.array([row]))
    return replace(next(specs(one, 0, {})), dependency="")


def _each_text(jobs: Jobs, name: str) -> Iterator[tuple[NDArray[Any], str]]:
    if name not in jobs.columns:
        return
    codes, texts = pd.factorize(jobs.columns[name])
    order = np.argsort(codes, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield part, str(texts[codes[part[0]]])


def _field(text: str) -> str:
    for word, field in FIELDS.items():
        if text.startswith(word):
            return field
    return "nodes" if " nodes asked for" in text else "timelimit"


def _refusal(jobs: Jobs, impossible: list[Impossible]) -> TraceError:
    first = impossible[0]
    count = f"{len(impossible)} of {len(jobs)} jobs are so" if len(impossible) > 1 else "the only such job"
    expected = f"a job that this cluster could ever run ({first.why}); {count}; --skip-impossible leaves them out"
    return jobs.refuse(first.row, first.field, expected, first.found)


def _skipped(jobs: Jobs, impossible: list[Impossible]) -> str:
    reasons: dict[str, list[str]] = {}
    for each in impossible:
        reasons.setdefault(each.why, []).append(str(jobs.labels[each.row]))
    parts = [
        f"{len(ids)}: {why} (job {', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''})" for why, ids in reasons.items()
    ]
    shown = "; ".join(parts[:10]) + (f"; and {len(parts) - 10} more reasons" if len(parts) > 10 else "")
    return f"{len(impossible)} impossible jobs left out: {shown}"


# --- remarks ---------------------------------------------------------------------------------------------------------


def _remarks(jobs: Jobs, circular: Container[int]) -> list[str]:
    notes = []
    limits, runs = jobs.numbers("timelimit_s"), jobs.numbers("runtime_s")
    if over := int(((limits > 0) & (runs > limits)).sum()):
        notes.append(f"{over} jobs would run longer than their limit: they are killed at it")
    if unknown := int(((runs < 0) & (jobs.numbers("cancel_s") < 0)).sum()):
        notes.append(f"{unknown} jobs have no run time: they run until their limit")
    if met := _met_at_once(jobs, circular):
        notes.append(
            f"{met} dependencies are on jobs that are not submitted before: fulfilled at once, as slurmctld does"
        )
    return notes


def _dependencies(jobs: Jobs) -> dict[int, Dependencies]:
    """By row, of those that have any."""
    texts = jobs.texts("dependency")
    return {int(row): parse_dependency(texts[row]) for row in np.flatnonzero(texts != "")}


def _met_at_once(jobs: Jobs, circular: Container[int]) -> int:
    wishes = {row: wish for row, wish in _dependencies(jobs).items() if row not in circular}
    if not wishes:
        return 0
    submit_s = jobs.numbers("submit_s")
    since = {int(array): int(at) for array, at in zip(jobs.numbers("array_job_id")[::-1], submit_s[::-1], strict=True)}
    since |= dict(zip(jobs.numbers("job_id").tolist(), submit_s.tolist(), strict=True))
    return sum(
        since.get(item.job_id, submit_s[row] + 1) > submit_s[row] for row, wish in wishes.items() for item in wish.items
    )


def _circles(jobs: Jobs) -> dict[int, str]:
    """Rows of jobs that wait for each other, each with the circle that was found."""
    row_of = {int(job_id): row for row, job_id in enumerate(jobs.numbers("job_id").tolist())}
    open_ = {int(jobs.numbers("job_id")[row]): wish for row, wish in _dependencies(jobs).items()}
    circular: dict[int, str] = {}
    while True:
        try:
            check_no_cycle(open_)
        except InvalidJob as error:
            circle = str(error).partition(": ")[2].partition(";")[0]
            for job_id in {int(name) for name in circle.split(" -> ")}:
                circular[row_of[job_id]] = circle
                del open_[job_id]
        else:
            return circular


# --- for the simulator -----------------------------------------------------------------------------------------------


def renumbered(jobs: Jobs) -> Jobs:
    """With ids as slurmctld gives them, by submission: of jobs of equal priority the one submitted first goes first.

    Those of one second come in the file's order. Dependencies and arrays follow.
    """
    given, size = jobs.numbers("job_id"), len(jobs)
    new = np.empty(size, np.int64)
    new[np.argsort(jobs.numbers("submit_s"), kind="stable")] = np.arange(1, size + 1)
    columns = {**jobs.columns, "job_id": new}
    new_of = (
        dict(zip(given.tolist(), new.tolist(), strict=True)) if {"dependency", "array_job_id"} & set(columns) else {}
    )
    if "array_job_id" in columns:
        for array in np.unique(columns["array_job_id"]).tolist():
            new_of.setdefault(array, len(new_of) + 1)
        new_of[MISSING] = MISSING
        columns["array_job_id"] = np.array([new_of[array] for array in columns["array_job_id"].tolist()], np.int64)
    if "dependency" in columns:
        nobody = 2 * size + 1
        columns["dependency"] = columns["dependency"].copy()
        for row, wish in _dependencies(jobs).items():
            items = (replace(item, job_id=new_of.get(item.job_id, nobody)) for item in wish.items)
            columns["dependency"][row] = ("?" if wish.any_of else ",").join(map(_as_typed, items))
    return replace(jobs, columns=columns)


def _as_typed(item: Dependency) -> str:
    delay = f"+{item.delay_s // MINUTE_S}" if item.delay_s else ""
    return f"{item.kind}:{item.job_id}{delay}"


def _shifted(cluster: ClusterConfig, shift_s: int) -> ClusterConfig:
    """With the cluster's times as the simulator's; what was over before it begins happens at its beginning."""
    changes = tuple(replace(each, time_s=max(0, each.time_s + shift_s)) for each in cluster.node_changes)
    reservations = tuple(
        replace(each, start_s=max(0, each.start_s + shift_s), end_s=max(1, each.end_s + shift_s))
        for each in cluster.reservations
        if each.users or each.end_s + shift_s > 0
    )
    return replace(cluster, node_changes=changes, reservations=reservations)


def specs(jobs: Jobs, shift_s: int, circular: dict[int, str]) -> Iterator[JobSpec]:
    """The jobs one by one, for a simulator that takes no columns."""

    def numbers(name: str, otherwise: int | None = None, shift: int = 0) -> list[int | None]:
        given: Ints = jobs.numbers(name)
        shifted = np.where(given == MISSING, MISSING, np.maximum(given + shift, 0))
        return [otherwise if value == MISSING else value for value in shifted.tolist()]

    def texts(name: str, otherwise: str | None) -> list[str | None]:
        return [text or otherwise for text in jobs.texts(name).tolist()]

    columns = {
        "nodes": numbers("nodes"),
        "time_limit_s": numbers("timelimit_s"),
        "runtime_s": numbers("runtime_s"),
        "user": texts("user", "user"),
        "partition": texts("partition", None),
        "submit_s": numbers("submit_s", shift=shift_s),
        "job_id": numbers("job_id"),
        "dependency": texts("dependency", ""),
        "begin_s": numbers("begin_s", shift=shift_s),
        "held": [bool(value) for value in numbers("held", 0)],
        "requeue": [bool(value) for value in numbers("requeue", 1)],
        "exit_code": numbers("exit_code", 0),
        "cpus_per_node": numbers("cpus_per_node", 1),
        "memory_mib_per_node": numbers("mem_mib_per_node", 0),
        "gpus_per_node": numbers("gpus_per_node", 0),
        "exclusive": [bool(value) for value in numbers("exclusive", 0)],
        "account": texts("account", "root"),
        "qos": texts("qos", None),
        "constraint": texts("constraint", ""),
        "reservation": texts("reservation", None),
        "priority": numbers("priority"),
        "array_job_id": numbers("array_job_id"),
        "array_throttle": numbers("array_throttle"),
        "cancel_s": numbers("cancel_s", shift=shift_s),
    }
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        given: dict[str, Any] = dict(zip(columns, values, strict=True))
        if row in circular:
            given |= {"held": True, "dependency": ""}
        yield JobSpec(**given)
