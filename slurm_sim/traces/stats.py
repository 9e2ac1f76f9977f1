"""Figures of a job history: waits, load, sizes, limits, users. Every one is over jobs that ran,
unless it says so.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.traces.table import Trace
from slurm_sim.traces.usage import Steps, busy_nodes

Floats = NDArray[np.float64]
Figures = dict[str, Any]
HOUR = 3600.0
SCHEMA = 1


def trace_stats(
    trace: Trace, timezone: str = "UTC", nodes: int | None = None, top: int = 10
) -> Figures:
    """All figures, ready for JSON (docs/traces.md). ``timezone``: of months; ``nodes``: the
    cluster's, for its load.
    """
    ran = trace.ran
    started = ran & ~np.isnan(trace.column("start"))
    busy = busy_nodes(trace) if started.any() else None
    return {
        "schema": SCHEMA,
        "jobs": len(trace),
        "ran": int(ran.sum()),
        "first_submit": int(trace.column("submit").min()),
        "last_submit": int(trace.column("submit").max()),
        "timezone": timezone,
        "wait": wait_figures(trace, started),
        "run": _run_figures(trace, ran),
        "sizes": _sizes(trace, ran),
        "limits": _limits(trace, ran),
        "load": _load(trace, busy, nodes),
        "states": _counts(trace.text("state")),
        "partitions": _counts(trace.text("partition")),
        "users": _users(trace, ran, top),
        "months": _months(trace, started, busy, timezone),
    }


def wait_figures(trace: Trace, chosen: NDArray[np.bool_]) -> Figures:
    """Waits (start - submit) in seconds; ``node_hours_mean_s`` weighs a job by the node-hours it
    used.
    """
    wait = trace.wait_s[chosen]
    if not len(wait):
        return {"jobs": 0}
    weight = (trace.column("nodes") * trace.run_s)[chosen]
    p50, p90, p99 = np.quantile(wait, [0.5, 0.9, 0.99])
    return {
        "jobs": len(wait),
        "mean_s": float(wait.mean()),
        "p50_s": float(p50),
        "p90_s": float(p90),
        "p99_s": float(p99),
        "max_s": float(wait.max()),
        "over_2h": float((wait > 2 * HOUR).mean()),
        "over_12h": float((wait > 12 * HOUR).mean()),
        "node_hours_mean_s": float(wait @ weight / weight.sum()) if weight.sum() else 0.0,
    }


def _run_figures(trace: Trace, ran: NDArray[np.bool_]) -> Figures:
    run, limit = trace.run_s[ran], trace.column("timelimit_s")[ran]
    limited = limit > 0
    ratio = run[limited] / limit[limited]
    return {
        "mean_s": _mean(run),
        "p50_s": _quantile(run, 0.5),
        "p90_s": _quantile(run, 0.9),
        "run_over_limit_p50": _quantile(ratio, 0.5),
        "run_over_limit_mean": _mean(ratio),
        "over_limit": float((ratio > 1).mean()) if len(ratio) else 0.0,
    }


def _sizes(trace: Trace, ran: NDArray[np.bool_]) -> Figures:
    nodes, hours = trace.column("nodes")[ran], (trace.column("nodes") * trace.run_s)[ran] / HOUR
    used = hours.sum()
    return {
        "mean": _mean(nodes),
        "max": int(nodes.max(initial=0)),
        "single_node_jobs": float((nodes == 1).mean()) if len(nodes) else 0.0,
        "multi_node_share_of_node_hours": float(hours[nodes > 1].sum() / used) if used else 0.0,
        "most_common": _common(nodes),
    }


def _limits(trace: Trace, ran: NDArray[np.bool_]) -> Figures:
    limit = trace.column("timelimit_s")[ran]
    return {
        "p50_s": _quantile(limit, 0.5),
        "mean_s": _mean(limit),
        "unknown": int(np.isnan(limit).sum()),
        "most_common": _common(limit),
    }


def _load(trace: Trace, busy: Steps | None, nodes: int | None) -> Figures:
    submit = trace.column("submit")
    span = float(submit.max() - submit.min())
    offered = float(np.nansum(trace.column("nodes") * trace.run_s))
    figures: Figures = {
        "node_hours": offered / HOUR,
        "offered_mean_nodes": offered / span if span else 0.0,
    }
    if busy is not None:
        first, last = float(submit.min()), float(submit.max())
        figures |= {
            "busy_mean": busy.mean(first, last),
            "busy_p99": busy.quantile(0.99, first, last) if span else 0.0,
            "busy_max": busy.peak(first, last + 1),
        }
    if nodes:
        figures |= {"nodes": nodes, "offered_load": figures["offered_mean_nodes"] / nodes}
        if busy is not None:
            figures["utilisation"] = figures["busy_mean"] / nodes
    return figures


def _users(trace: Trace, ran: NDArray[np.bool_], top: int) -> Figures:
    user = trace.text("user")
    hours = np.where(ran, np.nan_to_num(trace.column("nodes") * trace.run_s) / HOUR, 0.0)
    table = pd.DataFrame({"user": user, "hours": hours, "wait": trace.wait_s})[ran & (user != "")]
    grouped = table.groupby("user", sort=True).agg(
        jobs=("hours", "size"), hours=("hours", "sum"), wait=("wait", "mean")
    )
    grouped = grouped.sort_values("hours", ascending=False, kind="stable")
    total = float(hours.sum()) or 1.0
    return {
        "count": len(grouped),
        "top10_share_of_node_hours": float(grouped["hours"].iloc[:10].sum()) / total,
        "top": [
            {
                "user": str(name),
                "jobs": int(row.jobs),
                "node_hours": float(row.hours),
                "mean_wait_s": None if np.isnan(row.wait) else float(row.wait),
            }
            for name, row in zip(grouped.index[:top], grouped.iloc[:top].itertuples(), strict=True)
        ],
    }


def _months(
    trace: Trace, started: NDArray[np.bool_], busy: Steps | None, timezone: str
) -> list[Figures]:
    """A row a calendar month of submission; busy nodes are over the whole month."""
    zone = ZoneInfo(timezone)
    stamps = pd.to_datetime(trace.jobs["submit"], unit="s", utc=True).dt.tz_convert(zone)
    month_of = (stamps.dt.year * 12 + stamps.dt.month - 1).to_numpy()
    rows = []
    for month in np.unique(month_of[started]) if started.any() else []:
        year, index = divmod(int(month), 12)
        first = datetime(year, index + 1, 1, tzinfo=zone).timestamp()
        last = datetime(year + (index == 11), (index + 1) % 12 + 1, 1, tzinfo=zone).timestamp()
        figures: Figures = {"month": f"{year:04d}-{index + 1:02d}"}
        figures |= wait_figures(trace, started & (month_of == month))
        if busy is not None:
            figures |= {
                "busy_mean": busy.mean(first, last),
                "busy_p99": busy.quantile(0.99, first, last),
                "busy_max": busy.peak(first, last),
            }
        rows.append(figures)
    return rows


def _counts(texts: NDArray[np.object_]) -> dict[str, int]:
    return {str(name): int(count) for name, count in pd.Series(texts).value_counts().items()}


def _common(values: Floats, most: int = 10) -> list[list[float]]:
    """[value, share of jobs], most common first."""
    counts = pd.Series(values).dropna().value_counts(normalize=True)
    return [[float(value), float(share)] for value, share in counts.iloc[:most].items()]


def _mean(values: Floats) -> float | None:
    known = values[~np.isnan(values)]
    return float(known.mean()) if len(known) else None


def _quantile(values: Floats, share: float) -> float | None:
    known = values[~np.isnan(values)]
    return float(np.quantile(known, share)) if len(known) else None
