"""What a log hides and a simulation needs: dependencies, running limits, the node count over time,
array throttles.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.ranges import MOST_NODES
from slurm_sim.traces.capacity import NodeStep, infer_nodes
from slurm_sim.traces.chains import MIN_TRUST, Chains, dependency_text, infer_chains
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.table import Trace, make_trace
from slurm_sim.traces.usage import Steps, busy_nodes
from slurm_sim.traces.users import UserLimit, infer_limit, running_at, user_codes

MIN_TASKS = 8
MIN_HELD = 0.8
WAIT_S = 600.0
YEAR_S = 365 * 86400
MOST_YEARS = 20
"""Between a job and the middle one: a log of so long is none of one cluster."""


@dataclass(frozen=True)
class ArrayThrottle:
    """A group of equal jobs submitted together of which a limited number ever ran at once."""

    group: str
    """The array's id, or the first job's id for jobs submitted in one second."""
    tasks: int
    throttle: int
    handed_over: float
    """Share of its waiting tasks that started within a minute of another task's end."""
    idle: float
    """Share of them that waited while nodes enough were idle."""


@dataclass(frozen=True)
class Inference:
    """Everything inferred, with its evidence. Estimates: docs/workloads.md says what each can't see."""

    chains: Chains
    limit: UserLimit | None
    nodes: tuple[NodeStep, ...]
    throttles: tuple[ArrayThrottle, ...]
    group: NDArray[np.int64]
    """Which of ``throttles`` a job is under, -1: none; shape (jobs,)."""

    @property
    def chains_are_used(self) -> bool:
        """Whether most links are more than chance."""
        return self.chains.trust >= MIN_TRUST

    @property
    def max_jobs_per_user(self) -> int | None:
        return self.limit.jobs if self.limit else None

    @property
    def node_steps(self) -> list[tuple[int, int]]:
        """[(time, nodes)]."""
        return [(step.time, step.nodes) for step in self.nodes]

    def as_dict(self) -> dict[str, Any]:
        """For JSON (docs/workloads.md)."""
        chains = self.chains
        return {
            "chains": {
                "links": chains.links,
                "handovers": chains.handovers,
                "by_chance": chains.by_chance,
                "trust": chains.trust,
                "used": self.chains_are_used,
                "longest": chains.lengths()[:10].tolist(),
                "chains": len(chains.lengths()),
            },
            "user_limit": _known(asdict(self.limit)) if self.limit else None,
            "nodes": [asdict(step) for step in self.nodes],
            "array_throttles": [asdict(each) for each in self.throttles],
        }


def _known(record: dict[str, Any]) -> dict[str, Any]:
    """None for NaN, which JSON doesn't have."""
    return {name: None if value != value else value for name, value in record.items()}


def infer(trace: Trace) -> Inference:
    """All of it for a cleaned trace; a second or two for 400,000 jobs.

    Raises TraceError for a job that no cluster could run, or of another time than the others: it
    takes a step an hour.
    """
    _refuse_impossible(trace)
    nodes = infer_nodes(trace)
    curve = node_curve(nodes)
    limit = infer_limit(trace, curve)
    chains = infer_chains(trace, curve, limit.jobs if limit else None)
    throttles, group = infer_throttles(trace, curve)
    return Inference(chains, limit, nodes, throttles, group)


IMPOSSIBLE = ("nodes", "submit", "start", "end")
"""Columns in which one wrong digit makes a job that no cluster can have run. A step of `infer` takes
an hour of the log, so one wrong year would take minutes.
"""


def impossible(trace: Trace, column: str) -> NDArray[np.bool_]:
    """Jobs whose value in a column of `IMPOSSIBLE` can't be, [J]."""
    values = trace.column(column)
    if column == "nodes":
        return np.asarray(values > MOST_NODES)
    middle = _middle_s(trace)
    return np.asarray(np.abs(np.nan_to_num(values, nan=middle) - middle) > MOST_YEARS * YEAR_S)


def _middle_s(trace: Trace) -> float:
    return float(np.median(trace.column("submit"))) if len(trace) else 0.0


def expected_instead(trace: Trace, column: str) -> str:
    """In words, of a column of `IMPOSSIBLE`."""
    if column == "nodes":
        return f"at most {MOST_NODES:,}, which is more than any cluster has"
    when = datetime.fromtimestamp(_middle_s(trace), UTC)
    return f"a time within {MOST_YEARS} years of the log's middle, {when:%Y-%m-%d}"


def _refuse_impossible(trace: Trace) -> None:
    for name in IMPOSSIBLE:
        mask = impossible(trace, name)
        if mask.any():
            row = int(mask.argmax())
            count = int(mask.sum())
            what = "its line" if count == 1 else f"its line and {count - 1} more like it"
            raise TraceError(
                trace.source,
                f"{expected_instead(trace, name)} (job {trace.text('job_id')[row]});"
                f" remove {what}, or correct the value",
                found=str(int(trace.column(name)[row])),
                line=trace.line(row),
                field=name,
            )


def node_curve(nodes: tuple[NodeStep, ...]) -> Steps:
    """The steps as a function of time; 0 before the first."""
    if not nodes:
        return Steps(np.array([0.0]), np.array([0.0]))
    return Steps(
        np.array([s.time for s in nodes], float), np.array([s.nodes for s in nodes], float)
    )


def with_dependencies(trace: Trace, inferred: Inference) -> Trace:
    """The trace with ``dependency`` and ``array_throttle`` filled in where the log has nothing.

    Dependencies only if most links are more than chance (`chains.MIN_TRUST`).
    """
    jobs = trace.jobs.copy()
    old = jobs["dependency"] if "dependency" in jobs.columns else pd.Series("", index=jobs.index)
    if inferred.chains_are_used:
        jobs["dependency"] = old.where(old != "", dependency_text(trace, inferred.chains))
    if inferred.throttles:
        of_group = np.array([each.throttle for each in inferred.throttles], float)
        known = trace.column("array_throttle")
        guess = np.where(inferred.group >= 0, of_group[np.maximum(inferred.group, 0)], np.nan)
        jobs["array_throttle"] = np.where(np.isnan(known), guess, known)
    return make_trace(jobs, trace.source)


def array_groups(trace: Trace) -> tuple[NDArray[np.int64], NDArray[np.object_]]:
    """A number a group (-1: none) and the groups' names: arrays (ids like 5_3), else equal jobs of
    one second.
    """
    ids = trace.jobs["job_id"].astype(str)
    array = pd.Series(trace.array_ids).astype("Int64").astype("string")
    parts = ["user", "partition", "submit", "nodes", "timelimit_s"]
    alike = trace.jobs.groupby(parts, sort=False, dropna=False).ngroup().to_numpy()
    array_code, names = pd.factorize(array)
    code = np.where(array_code >= 0, array_code, len(names) + alike)
    first = np.zeros(int(code.max()) + 1, dtype=np.int64)
    first[code[::-1]] = np.arange(len(code))[::-1]
    groups = ids.to_numpy(object)[first]
    groups[: len(names)] = names
    large = np.bincount(code)[code] >= MIN_TASKS
    return np.where(large, code, -1), groups


def infer_throttles(
    trace: Trace, nodes: Steps
) -> tuple[tuple[ArrayThrottle, ...], NDArray[np.int64]]:
    """Groups whose waiting tasks started as others of the group ended, at the group's peak, while
    nodes were idle.

    Limits: a user's running limit looks the same for a user with one array; groups of equal jobs
    are taken for arrays where the log has no array ids; nothing is said of groups that the
    cluster's load held back.
    """
    codes, names = array_groups(trace)
    none = np.full(len(trace), -1)
    if (codes < 0).all() or np.isnan(trace.column("start")).all():
        return (), none
    start, end = trace.column("start"), trace.column("end")
    running = running_at(trace, codes, start, after=True)
    ran = trace.ran & (codes >= 0) & ~np.isnan(start)
    size = int(codes.max()) + 1
    peak = np.zeros(size, dtype=np.int64)
    np.maximum.at(peak, codes[ran], running[ran])
    waited = ran & (np.nan_to_num(trace.queued_s) > WAIT_S)
    full = waited & (running == peak[np.maximum(codes, 0)])
    handed = full & (_seconds_since_end(codes, start, end, ran) <= 60)
    idle = nodes.at(start - 61) - busy_nodes(trace).at(start - 61) >= trace.column("nodes")
    count = {
        name: np.bincount(codes[mask], minlength=size)
        for name, mask in _masks(ran, waited, handed, idle).items()
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        share, free = count["handed"] / count["waited"], count["idle"] / count["waited"]
    tasks = count["ran"]
    enough = (tasks >= MIN_TASKS) & (peak * 2 <= tasks) & (count["waited"] >= 4)
    chosen = np.flatnonzero(enough & (share >= MIN_HELD) & (free >= MIN_HELD))
    place = np.full(size + 1, -1)
    place[chosen] = np.arange(len(chosen))
    throttles = tuple(
        ArrayThrottle(str(names[g]), int(tasks[g]), int(peak[g]), float(share[g]), float(free[g]))
        for g in chosen
    )
    return throttles, place[codes]


def _masks(
    ran: NDArray[np.bool_],
    waited: NDArray[np.bool_],
    handed: NDArray[np.bool_],
    idle: NDArray[np.bool_],
) -> Any:
    return {"ran": ran, "waited": waited, "handed": handed, "idle": idle & waited}


def _seconds_since_end(
    codes: NDArray[np.int64],
    start: NDArray[np.float64],
    end: NDArray[np.float64],
    ran: NDArray[np.bool_],
) -> NDArray[np.float64]:
    """From the last end in the job's group to its start; infinite if there was none."""
    known = ran & ~np.isnan(end)
    if not known.any():
        return np.full(len(codes), np.inf)
    base = np.nanmin(start)
    span = float(np.nanmax(np.where(np.isnan(end), start, end)) - base) + 2.0
    keys = np.sort(codes[known] * span + (end[known] - base))
    wanted = codes * span + (np.nan_to_num(start, nan=base) - base)
    place = np.searchsorted(keys, wanted, side="right") - 1
    gap = wanted - keys[np.maximum(place, 0)]
    return np.where((place >= 0) & (gap < span / 2), gap, np.inf)


__all__ = [
    "IMPOSSIBLE",
    "ArrayThrottle",
    "Inference",
    "expected_instead",
    "impossible",
    "infer",
    "infer_throttles",
    "node_curve",
    "user_codes",
    "with_dependencies",
]
