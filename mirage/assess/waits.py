"""Who waits how long for what, from a job history."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.seconds import HOUR_S
from slurm_sim.traces import Trace
from slurm_sim.traces.inference import Inference, node_curve
from slurm_sim.traces.usage import busy_nodes, steps
from slurm_sim.traces.users import at_limit, user_codes

SIZES = (1, 2, 4, 8, 16, 32, 64)
"""Classes of nodes: each from its number to below the next."""
SHORT_S = 600
"""A wait below this is not looked into."""
UNLIKE = 1.5
"""Mean waits that differ by this factor are called calmer or busier."""
PARTS = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Moments of a wait at which nodes are counted."""
CAUSES = {
    "dependency": "another job had to end first",
    "array throttle": "an array's own limit of tasks",
    "user limit": "the user's running jobs were at the limit",
    "nodes": "fewer nodes were idle than the waiting jobs needed",
    "other": "nodes enough for all waiting jobs were idle: a reservation or another limit",
}
"""Why a job waited, and what that means."""


@dataclass(frozen=True, kw_only=True)
class WaitRow:
    """Waits of a group of jobs, in seconds."""

    name: str
    jobs: int
    mean_s: float
    p50_s: float
    p90_s: float


@dataclass(frozen=True, kw_only=True)
class WaitFigures:
    """Waits from submission to start, of jobs that ran."""

    all_jobs: WaitRow
    by_size: tuple[WaitRow, ...]
    by_hour: tuple[WaitRow, ...]
    """By hour of the day of the submission, in the site's time zone."""
    by_partition: tuple[WaitRow, ...]
    hours_by_cause: dict[str, float]
    """`CAUSES` -> hours that jobs waited for it, all jobs together."""

    @property
    def contention(self) -> float | None:
        """Share of the hours waited that is due to too few idle nodes; None: no wait was long enough
        to be looked into.
        """
        if not any(hours for cause, hours in self.hours_by_cause.items() if cause != "dependency"):
            return None
        return self.hours_by_cause["nodes"] / sum(self.hours_by_cause.values())


@dataclass(frozen=True, kw_only=True)
class SizeWaits:
    """Simulated waits of a chain's successors beside those of the recorded jobs of this size."""

    nodes: int
    simulated_h: float
    """Of a successor that a dependency alone lets in, mean."""
    judged_jobs: int
    judged_h: float | None
    """Mean of the jobs that were submitted while simulated chains ran; None: there were none."""
    history_h: float | None
    """Mean of all jobs that training and simulation read."""

    @property
    def spell(self) -> str:
        """How the simulated days compare with the history: ``calmer``, ``busier`` or empty."""
        if self.judged_h is None or self.history_h is None:
            return ""
        if max(self.judged_h, self.history_h) * HOUR_S < SHORT_S:
            return ""
        if self.judged_h * UNLIKE < self.history_h:
            return "calmer"
        return "busier" if self.judged_h > UNLIKE * self.history_h else ""


def size_waits(
    trace: Trace, partition: str, begins_s: Sequence[int], lasts_s: int, wait_h: Mapping[int, float]
) -> tuple[SizeWaits, ...]:
    """``wait_h``: nodes -> simulated wait. ``begins_s``, ``lasts_s``: when simulated chains ran. A wait
    counts from when the job was eligible.
    """
    waited_h = np.maximum(trace.queued_s, 0) / HOUR_S
    counts = trace.ran & np.isfinite(waited_h) & (trace.text("partition") == partition)
    submit, sizes = trace.column("submit"), _size_class(trace)
    judged = np.zeros(len(trace), dtype=np.bool_)
    for begin_s in begins_s:
        judged |= (submit >= begin_s) & (submit < begin_s + lasts_s)

    def mean(chosen: NDArray[np.bool_]) -> float | None:
        return float(waited_h[chosen].mean()) if chosen.any() else None

    rows = []
    for nodes, simulated_h in wait_h.items():
        alike = counts & (sizes == np.searchsorted(SIZES, nodes, side="right") - 1)
        rows.append(
            SizeWaits(
                nodes=nodes,
                simulated_h=simulated_h,
                judged_jobs=int((alike & judged).sum()),
                judged_h=mean(alike & judged),
                history_h=mean(alike),
            )
        )
    return tuple(rows)


def waits_of(trace: Trace, inferred: Inference, timezone: str) -> WaitFigures:
    """``timezone``: of the hours of the day. Needs a job that ran."""
    chosen = trace.ran & ~np.isnan(trace.column("start"))
    table = pd.DataFrame(
        {
            "wait": np.maximum(trace.wait_s, 0),
            "size": _size_class(trace),
            "hour": _hour(trace, timezone),
            "partition": trace.text("partition"),
        }
    )[chosen]
    partitions = table.groupby("partition")["wait"].size().sort_values(ascending=False)
    return WaitFigures(
        all_jobs=_row("all", table["wait"]),
        by_size=tuple(
            _row(_size_name(number), table["wait"][table["size"] == number])
            for number in sorted(table["size"].unique())
        ),
        by_hour=tuple(
            _row(f"{hour:02d}", table["wait"][table["hour"] == hour])
            for hour in sorted(table["hour"].unique())
        ),
        by_partition=tuple(
            _row(str(name), table["wait"][table["partition"] == name]) for name in partitions.index
        ),
        hours_by_cause=_hours_by_cause(trace, inferred, chosen),
    )


def _row(name: str, wait: pd.Series) -> WaitRow:
    p50, p90 = np.quantile(wait, [0.5, 0.9])
    return WaitRow(
        name=name, jobs=len(wait), mean_s=float(wait.mean()), p50_s=float(p50), p90_s=float(p90)
    )


def _size_class(trace: Trace) -> NDArray[np.int64]:
    """Index into `SIZES`."""
    return np.maximum(np.searchsorted(SIZES, trace.column("nodes"), side="right") - 1, 0)


def _size_name(number: int) -> str:
    first = SIZES[number]
    if number + 1 == len(SIZES):
        return f"{first} and more"
    last = SIZES[number + 1] - 1
    return str(first) if first == last else f"{first} to {last}"


def _hour(trace: Trace, timezone: str) -> NDArray[np.int64]:
    stamps = pd.to_datetime(trace.jobs["submit"], unit="s", utc=True).dt.tz_convert(timezone)
    return np.asarray(stamps.dt.hour.to_numpy(), dtype=np.int64)


def _hours_by_cause(
    trace: Trace, inferred: Inference, chosen: NDArray[np.bool_]
) -> dict[str, float]:
    """A job's time before it was eligible counts for a dependency, the rest for what held it."""
    queued_s = np.where(chosen, np.nan_to_num(np.maximum(trace.queued_s, 0)), 0)
    held_s = np.where(chosen, np.maximum(np.nan_to_num(trace.wait_s) - queued_s, 0), 0)
    limit = inferred.max_jobs_per_user
    conditions = {
        "dependency": inferred.chains.predecessor >= 0,
        "array throttle": inferred.group >= 0,
        "user limit": at_limit(trace, user_codes(trace), limit) if limit else chosen & False,
    }
    if not inferred.chains_are_used:
        del conditions["dependency"]
    hours = dict.fromkeys(CAUSES, 0.0)
    hours["dependency"] = float(held_s.sum()) / HOUR_S
    left = queued_s >= SHORT_S
    for name, holds in conditions.items():
        hours[name] += float(queued_s[left & holds].sum()) / HOUR_S
        left &= ~holds
    share = _short_of_nodes(trace, inferred, left)
    hours["nodes"] = float(queued_s[left] @ share) / HOUR_S
    hours["other"] = float(queued_s[left] @ (1 - share)) / HOUR_S
    return hours


def _short_of_nodes(
    trace: Trace, inferred: Inference, waited: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Share of the wait in which the idle nodes were too few for all that waited; a value for each
    job of ``waited``.
    """
    if not waited.any():
        return np.zeros(0)
    start = trace.column("start")[waited]
    begin = start - trace.queued_s[waited]
    demand = steps(begin, start, trace.column("nodes")[waited])
    size, busy = node_curve(inferred.nodes), busy_nodes(trace)
    moments = [begin + part * (start - begin) for part in PARTS]
    short = [size.at(at) - busy.at(at) < demand.at(at) for at in moments]
    return np.asarray(np.mean(short, axis=0), dtype=np.float64)
