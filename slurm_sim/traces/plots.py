"""Pictures of a job history. Made without pyplot: no shared state, no display."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.dates import AutoDateLocator, ConciseDateFormatter
from matplotlib.figure import Figure

from slurm_sim.traces.output import output_file
from slurm_sim.traces.stats import Figures
from slurm_sim.traces.table import Trace
from slurm_sim.traces.usage import Steps, busy_nodes

HOUR = 3600.0
Axes = Any


def save_plots(
    trace: Trace, figures: Figures, folder: Path, nodes: int | None = None
) -> list[Path]:
    """Writes waits.png, load.png, sizes.png, arrivals.png, users.png into a folder that exists;
    returns their paths.
    """
    made = []
    draws: dict[str, Callable[[Axes, Axes], None]] = {
        "arrivals": lambda left, right: _arrivals(trace, figures["timezone"], left, right),
        "sizes": lambda left, right: _sizes(trace, left, right),
    }
    if figures["wait"]["jobs"]:
        draws["waits"] = lambda left, right: _waits(trace, figures, left, right)
        draws["load"] = lambda left, right: _load(trace, nodes, left, right)
    if figures["users"]["count"]:
        draws["users"] = lambda left, right: _users(trace, left, right)
    for name, draw in draws.items():
        figure = Figure(figsize=(11, 4), layout="constrained")
        FigureCanvasAgg(figure)
        draw(*figure.subplots(1, 2))
        path = folder / f"{name}.png"
        with output_file(path) as temporary:
            figure.savefig(temporary, format="png", dpi=110, metadata={"Software": None})
        made.append(path)
    return made


def _waits(trace: Trace, figures: Figures, left: Axes, right: Axes) -> None:
    wait = np.sort(trace.wait_s[trace.ran & ~np.isnan(trace.wait_s)])
    left.step(np.maximum(wait, 1) / HOUR, np.arange(1, len(wait) + 1) / len(wait))
    left.set(
        xscale="log",
        xlabel="wait (h)",
        ylabel="share of jobs that waited at most this",
        ylim=(0, 1),
    )
    for hours in (2, 12):
        left.axvline(hours, color="grey", linewidth=0.8, linestyle=":")
    months = figures["months"]
    names = [month["month"] for month in months]
    for key, label in (("over_2h", "over 2 h"), ("over_12h", "over 12 h")):
        right.plot(names, [100 * month[key] for month in months], marker="o", label=label)
    right.set(ylabel="jobs (%)", title="share of waits, by month of submission")
    right.tick_params(axis="x", rotation=60)
    right.legend()


def _load(trace: Trace, nodes: int | None, left: Axes, right: Axes) -> None:
    busy = busy_nodes(trace)
    submit = trace.column("submit")
    edges = np.arange(submit.min(), submit.max() + HOUR, HOUR)
    hourly = hourly_means(busy, edges)
    left.plot(_dates(edges[:-1]), hourly, linewidth=0.5)
    left.set(ylabel="busy nodes (hourly mean)", ylim=(0, None))
    locator = AutoDateLocator()  # type: ignore[no-untyped-call]
    left.xaxis.set_major_locator(locator)
    left.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]
    if nodes:
        left.axhline(nodes, color="grey", linewidth=0.8, linestyle=":")
    durations, values = busy.between(float(submit.min()), float(submit.max()))
    order = np.argsort(-values)
    right.plot(100 * np.cumsum(durations[order]) / (durations.sum() or 1.0), values[order])
    right.set(xlabel="time (%)", ylabel="at least this many nodes busy", ylim=(0, None))


def hourly_means(curve: Steps, edges: Any) -> Any:
    """Means of the step function between consecutive edges, shape (edges - 1,)."""
    total = np.interp(edges, curve.times, curve.integral())
    return np.diff(total) / np.diff(edges)


def _dates(seconds: Any) -> Any:
    return seconds.astype("datetime64[s]")


def _sizes(trace: Trace, left: Axes, right: Axes) -> None:
    nodes, hours = trace.column("nodes"), np.nan_to_num(trace.column("nodes") * trace.run_s) / HOUR
    bins = 2.0 ** np.arange(0, np.ceil(np.log2(max(nodes.max(), 2))) + 2) - 0.5
    for weight, label in ((np.ones(len(nodes)), "jobs"), (hours, "node-hours")):
        share, _ = np.histogram(nodes, bins, weights=weight)
        left.plot(bins[:-1] + 0.5, 100 * share / max(weight.sum(), 1e-9), marker="o", label=label)
    left.set(xscale="log", xlabel="nodes of a job, at least", ylabel="share (%)", ylim=(0, None))
    left.legend()
    ratio = (trace.run_s / trace.column("timelimit_s"))[trace.ran]
    right.hist(np.clip(ratio[np.isfinite(ratio)], 0, 1.1), bins=55)
    right.set(xlabel="run time / limit", ylabel="jobs")


def _arrivals(trace: Trace, timezone: str, left: Axes, right: Axes) -> None:
    import pandas as pd

    stamps = pd.to_datetime(trace.jobs["submit"], unit="s", utc=True).dt.tz_convert(timezone)
    hour = (stamps.dt.day_of_week * 24 + stamps.dt.hour).to_numpy()
    weeks = max(
        (trace.column("submit").max() - trace.column("submit").min()) / (7 * 86400), 1 / 168
    )
    left.plot(np.arange(168) / 24, np.bincount(hour, minlength=168) / weeks)
    left.set(
        xlabel=f"day of the week (Monday 0, {timezone})",
        ylabel="submissions per hour",
        ylim=(0, None),
    )
    limit = trace.column("timelimit_s")
    limit = limit[np.nan_to_num(limit) > 0]
    right.hist(np.log10(limit / HOUR), bins=50)
    right.set(xlabel="log10(time limit / h)", ylabel="jobs")


def _users(trace: Trace, left: Axes, right: Axes) -> None:
    user = trace.text("user")
    _, index = np.unique(user.astype(str), return_inverse=True)
    hours = np.nan_to_num(trace.column("nodes") * trace.run_s) / HOUR
    for axes, weight, label in ((left, np.ones(len(user)), "jobs"), (right, hours, "node-hours")):
        total = np.sort(np.bincount(index, weights=weight))[::-1]
        axes.plot(np.arange(1, len(total) + 1), 100 * np.cumsum(total) / max(total.sum(), 1e-9))
        axes.set(
            xscale="log", xlabel="busiest users", ylabel=f"share of all {label} (%)", ylim=(0, 100)
        )
