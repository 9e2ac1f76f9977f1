"""Who chains jobs today, and how: found in a job history."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.seconds import HOUR_S
from slurm_sim.traces import Trace
from slurm_sim.traces.inference import Inference

Ints = NDArray[np.int64]
SHORTEST = 3
"""Jobs in a series, from which on it counts as a chain."""
EQUAL = ["user", "partition", "nodes", "timelimit_s"]
"""What the jobs of a chain have in common."""
HELD_S = 60
"""A job that became eligible later than this after its submission was held. slurmctld lets it go
within this after the end of the job that it waited for.
"""
SUBMITTED_S = 120
"""A script that submits its successor does so within this of its own start or end."""
LATEST_S = 600
"""A successor of a person's own hand is submitted this long after the end at most."""
LEAST_RUN_H = 12
"""That a chain's jobs run together: shorter series are a person's tries, not cut work."""
FULL = 0.9
"""A job that ran for this part of its limit was cut off by it, or nearly."""
WAYS = {
    "dependencies": "sbatch --dependency",
    "arrays": "sbatch --array with %1",
    "resubmission": "the script, or its user, submits the next job",
}
"""How chains are made today."""


@dataclass(frozen=True, kw_only=True)
class Habit:
    """The chains that are made in one way."""

    way: str
    chains: int
    jobs: int
    users: int
    node_hours: float
    """That their jobs ran."""
    interrupted_h: float
    """Between the end of a job and the start of the next, all chains together."""
    wall_h: float
    """From the first start of each chain to its last end, all chains together."""

    @property
    def interrupted(self) -> float:
        """Share of the wall clock."""
        return self.interrupted_h / self.wall_h if self.wall_h else 0.0


@dataclass(frozen=True, kw_only=True)
class Habits:
    by_way: tuple[Habit, ...]
    nodes: dict[int, float]
    """Nodes of a chain's jobs -> node-hours of all chains of this size."""
    by_user: dict[str, float]
    """User -> hours that the user's chains were interrupted, most first."""

    @property
    def chains(self) -> int:
        return sum(habit.chains for habit in self.by_way)

    @property
    def interrupted_h(self) -> float:
        return sum(habit.interrupted_h for habit in self.by_way)

    @property
    def wall_h(self) -> float:
        return sum(habit.wall_h for habit in self.by_way)


def habits_of(trace: Trace, inferred: Inference) -> Habits:
    """Chains of three jobs or more that ran for half a day. An estimate: a log has no word for one.

    Dependencies are those that the log names, shows by when a job became eligible, or lets infer.
    Arrays are those of which one task runs at a time. A series by resubmission: jobs of one user,
    partition, size and limit, of which never two run at once; each is submitted while the one
    before runs, or soon after; most fill their limit, or are submitted by a script.
    """
    count = len(trace)
    used = np.zeros(count, dtype=np.bool_)
    series: dict[str, list[Ints]] = {}
    for way, successor_of in (
        ("arrays", _arrays(trace, inferred)),
        ("dependencies", _dependencies(trace, inferred)),
    ):
        series[way] = _long(trace, _series(np.where(used, -1, successor_of)))
        used[np.concatenate([*series[way], np.zeros(0, dtype=np.int64)])] = True
    series["resubmission"] = _long(trace, _series(_resubmissions(trace, used)))
    return Habits(
        by_way=tuple(_habit(trace, way, found) for way, found in series.items()),
        nodes=_nodes(trace, series),
        by_user=_by_user(trace, series),
    )


def _dependencies(trace: Trace, inferred: Inference) -> Ints:
    """The predecessor's row of each job, -1: none; shape (jobs,)."""
    found = np.full(len(trace), -1, dtype=np.int64)
    if inferred.chains_are_used:
        found = inferred.chains.predecessor.copy()
    released = _released(trace)
    found = np.where(released >= 0, released, found)
    if "dependency" in trace.jobs.columns:
        rows = {str(job): row for row, job in enumerate(trace.text("job_id"))}
        named = (
            trace.jobs["dependency"].astype(str).str.extract(r"^after(?:any|ok|notok):(\w+)$")[0]
        )
        known = named.map(rows)
        has = known.notna().to_numpy()
        found[has] = known[has].to_numpy(dtype=np.int64)
    return found


def _released(trace: Trace) -> Ints:
    """Held jobs that became eligible as an equal job of the same user ended: that job; (jobs,)."""
    found = np.full(len(trace), -1, dtype=np.int64)
    if "eligible" not in trace.jobs.columns:
        return found
    eligible, end = trace.column("eligible"), trace.column("end")
    code = trace.jobs.groupby(EQUAL, sort=False, dropna=False).ngroup().to_numpy()
    user = trace.text("user")
    ended = np.flatnonzero(trace.ran & ~np.isnan(end))
    held = np.flatnonzero(trace.ran & (user != "") & (eligible - trace.column("submit") > HELD_S))
    if not len(ended) or not len(held):
        return found
    base = float(np.min(end[ended]))
    span = float(max(np.max(end[ended]), np.max(eligible[held])) - base) + 2 * HELD_S
    order = ended[np.argsort(code[ended] * span + end[ended] - base, kind="stable")]
    keys = code[order] * span + end[order] - base
    wanted = code[held] * span + eligible[held] - base + 1
    before = order[np.maximum(np.searchsorted(keys, wanted, side="right") - 1, 0)]
    gap = eligible[held] - end[before]
    is_it = (code[before] == code[held]) & (gap >= -1) & (gap <= HELD_S) & (before != held)
    found[held[is_it]] = before[is_it]
    return found


def _arrays(trace: Trace, inferred: Inference) -> Ints:
    """Tasks of an array with %1 in the order of their starts."""
    found = np.full(len(trace), -1, dtype=np.int64)
    one = np.array([each.throttle == 1 for each in inferred.throttles], dtype=np.bool_)
    under = inferred.group >= 0
    chosen = trace.column("array_throttle") == 1
    if len(one):
        chosen |= under & one[np.maximum(inferred.group, 0)]
    rows = np.flatnonzero(chosen & trace.ran & ~np.isnan(trace.column("start")))
    group = np.where(under, inferred.group, len(one) + np.nan_to_num(trace.array_ids)).astype(
        np.int64
    )
    order = rows[np.lexsort((trace.column("start")[rows], group[rows]))]
    same = group[order[1:]] == group[order[:-1]]
    found[order[1:][same]] = order[:-1][same]
    return found


def _resubmissions(trace: Trace, used: NDArray[np.bool_]) -> Ints:
    """The job before each in its series; shape (jobs,)."""
    found = np.full(len(trace), -1, dtype=np.int64)
    user, start, end = trace.text("user"), trace.column("start"), trace.column("end")
    rows = np.flatnonzero(trace.ran & ~used & (user != "") & ~np.isnan(start) & ~np.isnan(end))
    code = trace.jobs.groupby(EQUAL, sort=False, dropna=False).ngroup().to_numpy()
    order = rows[np.lexsort((start[rows], code[rows]))]
    before, after = order[:-1], order[1:]
    # The latest end so far in the group: whoever starts before it overlaps with some job.
    latest = pd.Series(end[order]).groupby(code[order]).cummax().to_numpy()[:-1]
    submit = trace.column("submit")
    follows = (
        (code[before] == code[after])
        & (start[after] >= latest)
        & (submit[after] >= start[before] - 1)
        & (submit[after] <= end[before] + LATEST_S)
    )
    ran_full = trace.run_s[before] >= FULL * trace.column("timelimit_s")[before]
    by_script = (
        np.minimum(np.abs(submit[after] - start[before]), np.abs(submit[after] - end[before]))
        <= SUBMITTED_S
    )
    found[after[follows]] = before[follows]
    evident = np.zeros(len(trace), dtype=np.bool_)
    evident[after] = ran_full | by_script
    for chain in _series(found):
        if evident[chain[1:]].mean() < 0.5:
            found[chain] = -1
    return found


def _series(predecessor: Ints) -> list[Ints]:
    """Rows of each chain of at least `SHORTEST` jobs, in order."""
    successor = np.full(len(predecessor), -1, dtype=np.int64)
    linked = np.flatnonzero(predecessor >= 0)
    successor[predecessor[linked][::-1]] = linked[::-1]  # of several successors, the first
    has_predecessor = successor[np.maximum(predecessor, 0)] == np.arange(len(predecessor))
    first = np.flatnonzero((successor >= 0) & ~(has_predecessor & (predecessor >= 0)))
    chains = []
    for row in first.tolist():
        chain = [row]
        while (row := int(successor[row])) >= 0 and row != chain[0]:
            chain.append(row)
        if len(chain) >= SHORTEST:
            chains.append(np.array(chain))
    return chains


def _long(trace: Trace, series: list[Ints]) -> list[Ints]:
    """Those whose jobs ran long enough together."""
    run_h = np.nan_to_num(trace.run_s) / HOUR_S
    return [chain for chain in series if run_h[chain].sum() >= LEAST_RUN_H]


def _habit(trace: Trace, way: str, series: list[Ints]) -> Habit:
    rows = np.concatenate([*series, np.zeros(0, dtype=np.int64)])
    hours = _node_hours(trace)
    return Habit(
        way=way,
        chains=len(series),
        jobs=len(rows),
        users=len(set(trace.text("user")[rows])),
        node_hours=float(hours[rows].sum()),
        interrupted_h=sum(_interrupted_h(trace, chain) for chain in series),
        wall_h=sum(_wall_h(trace, chain) for chain in series),
    )


def _node_hours(trace: Trace) -> NDArray[np.float64]:
    return np.nan_to_num(trace.column("nodes") * trace.run_s) / HOUR_S


def _interrupted_h(trace: Trace, chain: Ints) -> float:
    start, end = trace.column("start"), trace.column("end")
    gaps = start[chain[1:]] - end[chain[:-1]]
    return float(np.nansum(np.maximum(gaps, 0))) / HOUR_S


def _wall_h(trace: Trace, chain: Ints) -> float:
    span = np.nanmax(trace.column("end")[chain]) - np.nanmin(trace.column("start")[chain])
    return float(span) / HOUR_S


def _nodes(trace: Trace, series: dict[str, list[Ints]]) -> dict[int, float]:
    hours: dict[int, float] = {}
    node_hours = _node_hours(trace)
    for chain in (chain for found in series.values() for chain in found):
        nodes = int(np.median(trace.column("nodes")[chain]))
        hours[nodes] = hours.get(nodes, 0.0) + float(node_hours[chain].sum())
    return dict(sorted(hours.items()))


def _by_user(trace: Trace, series: dict[str, list[Ints]]) -> dict[str, float]:
    hours: dict[str, float] = {}
    for chain in (chain for found in series.values() for chain in found):
        user = str(trace.text("user")[chain[0]])
        hours[user] = hours.get(user, 0.0) + _interrupted_h(trace, chain)
    return dict(sorted(hours.items(), key=lambda item: -item[1]))
