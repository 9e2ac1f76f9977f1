"""The picture of `slurm-sim compare`: queue and busy nodes over time, and waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure

from slurm_sim.results import Floats, Results, level
from slurm_sim.seconds import HOUR_S

COLOURS = ("tab:blue", "tab:orange")
POINTS = 20_000
"""More than that are thinned out evenly."""


def save_picture(
    a: Results, b: Results, nodes: tuple[Floats, Floats], names: tuple[str, str], path: Path
) -> None:
    """Four panels as PNG; a and b have the same jobs in the same order; `nodes`: of each job, in a
    and in b.
    """
    figure = Figure(figsize=(12, 8), layout="constrained")
    FigureCanvasAgg(figure)
    (queue, busy), (waits, scatter) = figure.subplots(2, 2)
    begin_s = float(np.nanmin(np.concatenate([a.column("submit_s"), b.column("submit_s")])))
    for result, count, name, colour in zip((a, b), nodes, names, COLOURS, strict=True):
        submit, start, end = (result.column(each) for each in ("submit_s", "start_s", "end_s"))
        _steps(queue, level(submit, start, np.ones(len(result))), begin_s, name, colour)
        _steps(busy, level(start, end, count), begin_s, name, colour)
        wait_h = np.sort((start - submit)[np.isfinite(start)]) / HOUR_S
        waits.step(
            *_thinned(wait_h, np.arange(1, len(wait_h) + 1) / max(1, len(wait_h))),
            label=name,
            color=colour,
        )
    wait_a, wait_b = (
        (each.column("start_s") - each.column("submit_s")) / HOUR_S for each in (a, b)
    )
    scatter.plot(*_thinned(wait_a, wait_b), ".", markersize=3, color="black", alpha=0.4)
    most = float(np.nanmax(np.concatenate([wait_a, wait_b]), initial=0.0))
    scatter.plot([0, most], [0, most], color="tab:red", linewidth=0.8)
    _label(queue, "Jobs waiting", "hours since the first submission", "jobs")
    _label(busy, "Nodes busy", "hours since the first submission", "nodes")
    _label(waits, "Waits", "wait (h)", "share of jobs that waited no longer")
    _label(scatter, "Each job's wait", f"{names[0]}: wait (h)", f"{names[1]}: wait (h)")
    queue.legend()
    figure.savefig(path, format="png", dpi=110, metadata={"Software": ""})


def _steps(axes: Any, steps: tuple[Floats, Floats], begin_s: float, name: str, colour: str) -> None:
    times, levels = _thinned(*steps)
    axes.step(
        (times - begin_s) / HOUR_S,
        levels,
        where="post",
        label=name,
        color=colour,
        linewidth=0.9,
        alpha=0.8,
    )


def _label(axes: Any, title: str, x: str, y: str) -> None:
    axes.set(title=title, xlabel=x, ylabel=y)
    axes.grid(alpha=0.3)


def _thinned(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    step = max(1, len(x) // POINTS)
    return x[::step], y[::step]
