"""Jobs that a cluster could never run as asked: found before a simulation, with the column that is
at fault.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.admission import Admission
from slurm_sim.config import ROOT, ClusterConfig
from slurm_sim.dependency import parse_dependency
from slurm_sim.errors import InvalidJob
from slurm_sim.jobfile.jobs import MISSING, Jobs, like
from slurm_sim.jobfile.specs import specs
from slurm_sim.jobs import WHOLE, JobSpec
from slurm_sim.traces.errors import TraceError

SHAPE = (
    "nodes",
    "timelimit_s",
    "timemin_s",
    "cpus_per_node",
    "gpus_per_node",
    "mem_mib_per_node",
    "exclusive",
)
NAMES = ("partition", "qos", "constraint", "reservation")
NAMES_OF_RESERVED = ("user", "account")
CAN_BE_IGNORED = (*NAMES, "account", "dependency")
COLUMN_OF = {
    "time_limit_s": "timelimit_s",
    "time_min_s": "timemin_s",
    "memory_mib_per_node": "mem_mib_per_node",
}
"""A `JobSpec`'s fields that have another name in a table of jobs."""
WITHOUT: dict[str, dict[str, Any]] = {
    "constraint": {"constraint": ""},
    "gpus_per_node": {"gpus_per_node": 0},
    "mem_mib_per_node": {"memory_mib_per_node": 0},
    "cpus_per_node": {"cpus_per_node": 1},
    "reservation": {"reservation": None},
}
"""Columns, and what a job asks for that leaves them out: with one of these it may be possible."""


@dataclass(frozen=True)
class Impossible:
    """A job that could never run as asked."""

    row: int
    column: str
    """Ours, that is at fault."""
    why: str


def find_impossible(cluster: ClusterConfig, jobs: Jobs) -> list[Impossible]:
    """By row. Each distinct request is checked once.

    Raises TraceError for the first dependency that can't be read: a slip of the hand must not cost
    a job.
    """
    found: dict[int, Impossible] = {}

    def add(rows: NDArray[Any], column: str, why: str) -> None:
        for row in rows.tolist():
            found.setdefault(row, Impossible(row, column, why))

    for name, (least, most) in WHOLE.items():
        values = jobs.numbers(COLUMN_OF.get(name, name))
        out = (values != MISSING) & ((values < least) | (values > most))
        add(np.flatnonzero(out), COLUMN_OF.get(name, name), f"from {least} to {most:,}")
    for rows, dependency in _each_text(jobs, "dependency"):
        try:
            parse_dependency(dependency)
        except InvalidJob as error:
            if not _is_slurms(dependency):
                expected = (
                    f"a dependency that can be read ({error}); --ignore dependency leaves the"
                    " column out"
                )
                raise jobs.refuse(int(rows[0]), "dependency", expected) from None
            add(rows, "dependency", str(error))
    for rows, why in _unknown_accounts(cluster, jobs):
        add(rows, "account", why)
    checker = Admission(cluster)
    for rows, spec in _requests(
        jobs, np.array([row for row in range(len(jobs)) if row not in found], np.int64)
    ):
        try:
            checker.check(spec)
        except InvalidJob as error:
            add(rows, _column(str(error), checker, spec), str(error))
    return [found[row] for row in sorted(found)]


NOT_SIMULATED = re.compile(
    r"singleton|(aftercorr|afterburstbuffer|expand)(:\d+)+", re.ASCII | re.IGNORECASE
)
"""The other conditions of `sbatch --dependency`."""


def _is_slurms(dependency: str) -> bool:
    """Whether it can be read but for conditions that are not simulated."""
    sign = "?" if "?" in dependency else ","
    rest = sign.join(
        term for term in dependency.strip().split(sign) if not NOT_SIMULATED.fullmatch(term)
    )
    try:
        parse_dependency(rest)
    except InvalidJob:
        return False
    return True


def _unknown_accounts(cluster: ClusterConfig, jobs: Jobs) -> Iterator[tuple[NDArray[Any], str]]:
    """A cluster that lists no account takes all of them."""
    known = [item.account for item in cluster.associations if item.user is None]
    for rows, account in _each_text(jobs, "account") if known else ():
        if account and account not in (*known, ROOT):
            there = like(account, known) or f"; this cluster has {', '.join(known[:10])}"
            yield rows, f"account {account!r} does not exist{there}"


def _requests(jobs: Jobs, rows: NDArray[Any]) -> Iterator[tuple[NDArray[Any], JobSpec]]:
    """The rows of each distinct request, with one job that asks for it."""
    if not len(rows):
        return
    names = [*NAMES, *(NAMES_OF_RESERVED if "reservation" in jobs.columns else ())]
    keys = {name: jobs.columns[name][rows] for name in SHAPE if name in jobs.columns}
    keys |= {
        name: pd.factorize(jobs.columns[name][rows])[0] for name in names if name in jobs.columns
    }
    groups = pd.DataFrame(keys).groupby(list(keys), sort=False).ngroup().to_numpy()
    order = np.argsort(groups, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(groups[order])) + 1):
        yield rows[part], _spec(jobs, int(rows[part[0]]))


def _spec(jobs: Jobs, row: int) -> JobSpec:
    one = jobs.pick(np.array([row]))
    one.columns.pop("dependency", None)
    return next(specs(one))


def _each_text(jobs: Jobs, name: str) -> Iterator[tuple[NDArray[Any], str]]:
    if name not in jobs.columns:
        return
    codes, texts = pd.factorize(jobs.columns[name])
    order = np.argsort(codes, kind="stable")
    for part in np.split(order, np.flatnonzero(np.diff(codes[order])) + 1):
        yield part, str(texts[codes[part[0]]])


def _column(why: str, checker: Admission, spec: JobSpec) -> str:
    """The column that a refusal is about, from how its text begins; else the first without which
    the job fits.
    """
    for name in NAMES:
        if why.startswith(name):
            return name
    if why.startswith("time_min_s"):
        return "timemin_s"
    if " nodes asked for" not in why:
        return "timelimit_s"
    if re.search(r"; \d+ of partition ", why):
        return next(
            (name for name, change in WITHOUT.items() if _fits(checker, replace(spec, **change))),
            "nodes",
        )
    return "nodes"


def _fits(checker: Admission, spec: JobSpec) -> bool:
    try:
        checker.check(spec)
    except InvalidJob:
        return False
    return True


def refusal(jobs: Jobs, impossible: list[Impossible]) -> TraceError:
    """For raising: the first of them, how many there are, and the ways out."""
    first, own = impossible[0], jobs.own_name(impossible[0].column)
    count = (
        f"{len(impossible)} of {len(jobs)} jobs are so"
        if len(impossible) > 1
        else "the only such job"
    )
    is_range = first.why.startswith("from ")
    what = (
        f"a number {first.why}"
        if is_range
        else f"a job that this cluster could ever run ({first.why})"
    )
    expected = f"{what}; {count}; --skip-impossible leaves them out"
    if first.column in CAN_BE_IGNORED:
        expected += f", --ignore {own} the column"
    return jobs.refuse(first.row, first.column, expected)


def skipped(jobs: Jobs, impossible: list[Impossible]) -> str:
    """A note on jobs that were left out: how many for each reason, and some of their ids."""
    reasons: dict[str, list[str]] = {}
    for each in impossible:
        reasons.setdefault(each.why, []).append(str(jobs.labels[each.row]))
    parts = [
        f"{len(ids)}: {why} (job {', '.join(ids[:3])}{', ...' if len(ids) > 3 else ''})"
        for why, ids in reasons.items()
    ]
    shown = "; ".join(parts[:10]) + (
        f"; and {len(parts) - 10} more reasons" if len(parts) > 10 else ""
    )
    return f"{len(impossible)} impossible jobs left out: {shown}"
