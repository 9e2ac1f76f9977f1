"""Busy nodes over time, as a step function."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_sim.traces.table import Trace

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Steps:
    """``values[i]`` from ``times[i]`` (included) to ``times[i + 1]``; 0 before the first; both of
    shape (steps,).
    """

    times: Floats
    values: Floats

    def at(self, times: Floats) -> Floats:
        """The values at these times, of their shape."""
        if not len(self.times):
            return np.zeros(np.shape(times))
        index = np.searchsorted(self.times, times, side="right") - 1
        return np.where(index >= 0, self.values[np.maximum(index, 0)], 0.0)

    def between(self, start: float, end: float) -> tuple[Floats, Floats]:
        """Durations and values of the pieces in [start, end)."""
        low, high = np.searchsorted(self.times, [start, end], side="right")
        edges = np.concatenate([[start], self.times[low:high], [end]])
        return np.diff(edges), self.at(edges[:-1])

    def mean(self, start: float, end: float) -> float:
        durations, values = self.between(start, end)
        return float(durations @ values / (end - start)) if end > start else 0.0

    def quantile(self, share: float, start: float, end: float) -> float:
        """The smallest value that is not exceeded for ``share`` of the time."""
        durations, values = self.between(start, end)
        order = np.argsort(values, kind="stable")
        reached = np.cumsum(durations[order])
        return float(values[order[np.searchsorted(reached, share * reached[-1])]])

    def peak(self, start: float, end: float) -> float:
        durations, values = self.between(start, end)
        return float(values[durations > 0].max(initial=0))

    def integral(self) -> Floats:
        """The integral up to each of ``times``, shape (steps,)."""
        return np.concatenate([[0.0], np.cumsum(np.diff(self.times) * self.values[:-1])])


def steps(begin: Floats, end: Floats, amount: Floats) -> Steps:
    """The sum of ``amount`` over intervals [begin, end); an end comes before a begin of the same
    second.
    """
    times = np.concatenate([begin, end])
    change = np.concatenate([amount, -amount])
    moments, index = np.unique(times, return_inverse=True)
    return Steps(moments, np.cumsum(np.bincount(index, weights=change, minlength=len(moments))))


def busy_nodes(trace: Trace) -> Steps:
    """Nodes with a job, over time; jobs whose end is unknown count until the last known instant of
    the log.
    """
    start, end = trace.column("start"), trace.column("end")
    if np.isnan(start).all():
        return Steps(np.zeros(0), np.zeros(0))
    last = np.nanmax(np.concatenate([start, end, trace.column("submit")]))
    end = np.where(np.isnan(end), last, end)
    held = ~np.isnan(start) & (end > start)
    return steps(start[held], end[held], trace.column("nodes")[held])
