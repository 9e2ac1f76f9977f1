"""How many nodes a cluster had over time, as far as its log shows: a step function over the
envelope of busy nodes.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from slurm_sim.traces.table import Trace
from slurm_sim.traces.usage import Steps, busy_nodes, steps

Floats = NDArray[np.float64]
HOUR = 3600
HELD_S = 600
"""A level counts if it was reached for this long within an hour: seconds of overlap between two
jobs don't.
"""
TAU = 0.95
"""While jobs wait, a full cluster may still show a few nodes less than it has (wide jobs that don't
fit).
"""
OVER = 50.0
"""An hour above the supposed node count costs this much more than one below it: nodes can't be
invented.
"""
WAITED_S = 2 * HOUR
"""Only jobs that waited this long in all count as a queue."""
WAITING = 3
"""So many users (jobs, where a log has no users) must wait."""
STEP_COST = 24.0
"""A change of the node count has to explain so much: 480 idle node-hours while jobs wait, or half
an hour of one node above the count.
"""


@dataclass(frozen=True)
class NodeStep:
    """From ``time`` on the cluster had at least ``nodes`` nodes."""

    time: int
    nodes: int
    contended_h: float
    """Hours of this step in which jobs waited, so that busy nodes show the cluster's size. 0: only
    a lower bound.
    """
    at_level_h: float
    """Hours of them with at least this many nodes busy, less 2 %."""


def infer_nodes(trace: Trace, step_cost: float = STEP_COST) -> tuple[NodeStep, ...]:
    """The step function that costs least over hours: pinball loss against the hour's level where
    jobs waited, only excess above it where none did, and a price for each step (Viterbi over all
    levels).

    Limits: nodes that nobody used don't exist for it; an outage of days looks like a smaller
    cluster; while nothing waits only growth can be seen.
    """
    busy = busy_nodes(trace)
    if len(busy.times) < 2:
        return ()
    edges = np.arange(np.floor(busy.times[0] / HOUR), np.ceil(busy.times[-1] / HOUR) + 1) * HOUR
    levels = hourly_levels(busy, edges)
    waiting = _contended(trace, busy, edges)
    path = _cheapest_path(levels, waiting, step_cost)
    return _describe(path, levels, waiting, edges, busy)


def hourly_levels(curve: Steps, edges: Floats) -> Floats:
    """The greatest value held for at least `HELD_S` in all within each hour, shape (edges - 1,)."""
    times = np.union1d(
        curve.times[(curve.times >= edges[0]) & (curve.times < edges[-1])], edges[:-1]
    )
    durations, values = np.diff(np.append(times, edges[-1])), curve.at(times)
    hour = np.searchsorted(edges, times, side="right") - 1
    order = np.lexsort((-values, hour))
    hour, values, durations = hour[order], values[order], durations[order]
    before = np.cumsum(durations) - durations
    first = np.searchsorted(hour, np.arange(len(edges) - 1))
    reached = before + durations - before[first][hour]
    held = np.flatnonzero(reached >= HELD_S)
    hours, index = np.unique(hour[held], return_index=True)
    levels = np.zeros(len(edges) - 1)
    levels[hours] = values[held[index]]
    return levels


def _contended(trace: Trace, busy: Steps, edges: Floats) -> NDArray[np.bool_]:
    """Hours in which small jobs of several users wait throughout: a queue for nodes, not one user's
    limit or chain.
    """
    small = trace.column("nodes") <= max(1.0, 0.02 * busy.values.max())
    chosen = np.flatnonzero(small & (np.nan_to_num(trace.queued_s) >= WAITED_S))
    if not len(chosen):
        return np.zeros(len(edges) - 1, dtype=np.bool_)
    begin, end = (trace.column("start") - trace.queued_s)[chosen], trace.column("start")[chosen]
    user = trace.text("user")[chosen]
    if (user != "").any():
        begin, end = _per_user(user, begin, end)
    queue = steps(begin, end, np.ones(len(begin)))
    least = np.array([queue.at(edges[:-1] + share * HOUR) for share in (0.0, 0.25, 0.5, 0.75)]).min(
        axis=0
    )
    return np.asarray(least >= WAITING, dtype=np.bool_)


def _per_user(user: NDArray[np.object_], begin: Floats, end: Floats) -> tuple[Floats, Floats]:
    """Each user's intervals, merged where they overlap."""
    _, code = np.unique(user.astype(str), return_inverse=True)
    order = np.lexsort((begin, code))
    code, begin, end = code[order], begin[order], end[order]
    base = begin.min()
    span = (
        float(end.max() - base) + 1.0
    )  # one user after the other on one axis, so that one running maximum serves all
    begin, end = begin - base + code * span, end - base + code * span
    reached = np.maximum.accumulate(end)
    new = np.concatenate([[True], begin[1:] > reached[:-1]])
    last = np.concatenate([np.flatnonzero(new)[1:] - 1, [len(begin) - 1]])
    shift = code[new] * span - base
    return begin[new] - shift, reached[last] - shift


def _cheapest_path(
    levels: Floats, waiting: NDArray[np.bool_], step_cost: float
) -> NDArray[np.int64]:
    candidates = np.unique(levels)
    cost = np.empty(len(candidates))
    best = np.zeros(len(candidates))
    came_from = np.empty((len(levels), len(candidates)), dtype=np.int32)
    stay = np.arange(len(candidates))
    for hour, level in enumerate(levels):
        gap = candidates - level
        cost = np.where(gap < 0, -gap * OVER, (gap * (1 - TAU) if waiting[hour] else 0.0))
        cheapest = int(np.argmin(best))
        switch = best[cheapest] + step_cost < best
        came_from[hour] = np.where(switch, cheapest, stay)
        best = np.where(switch, best[cheapest] + step_cost, best) + cost
    path = np.empty(len(levels), dtype=np.int64)
    state = int(np.argmin(best))
    for hour in range(len(levels) - 1, -1, -1):
        path[hour] = candidates[state]
        state = int(came_from[hour, state])
    return path


def _describe(
    path: NDArray[np.int64], levels: Floats, waiting: NDArray[np.bool_], edges: Floats, busy: Steps
) -> tuple[NodeStep, ...]:
    changes = np.concatenate([[0], np.flatnonzero(np.diff(path)) + 1, [len(path)]])
    found: list[NodeStep] = []
    for low, high in pairwise(changes.tolist()):
        nodes = int(path[low])
        if nodes == 0:
            continue
        contended = waiting[low:high]
        at_level = (contended & (levels[low:high] >= 0.98 * nodes)).sum()
        time = _exact(float(edges[low]), int(path[low - 1]) if low else nodes, nodes, busy)
        if found and time <= found[-1].time:
            time = max(int(edges[low]), found[-1].time + 1)
        found.append(NodeStep(time, nodes, float(contended.sum()), float(at_level)))
    return tuple(found)


def _exact(hour: float, before: int, after: int, busy: Steps) -> int:
    """When, within three hours: growth at the first second above the old level, loss after the last
    above the new.
    """
    low, high = np.searchsorted(busy.times, [hour - 3 * HOUR, hour + 3 * HOUR])
    times, values = busy.times[low:high], busy.values[low:high]
    if after > before:
        above = times[(values > before) & (np.append(np.diff(times), HELD_S) >= 60)]
        return int(above[np.argmin(np.abs(above - hour))]) if len(above) else int(hour)
    above = times[1:][values[:-1] > after]
    return int(above[-1]) if len(above) else int(hour)
