"""Results of an evaluation as files: results.json, report.md, learning.png, hours.png."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from mirage.errors import MirageError

Json = dict[str, Any]
SMOOTH = 50
"""Episodes that a learning curve's point is the mean of."""
_PAPER = {
    "utilization": "utilization",
    "whole_utilization": "over the whole run",
    "run_h": "run, h",
    "inefficient_kwh": "inefficient, kWh",
    "inefficient_kwh_as_paper": "as the paper sums, kWh",
}
_STREAMS = {
    "completion_mean_h": "completion, h",
    "completion_p95_h": "p95, h",
    "wait_max_h": "longest wait, h",
    "utilization": "utilization",
    "energy_kwh": "energy, kWh",
    "completion_to_best_fit": "completion to best-fit's",
}


def save(results: Json, folder: Path) -> list[Path]:
    """Writes the files, each in one step; returns them. Raises MirageError."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        texts = {
            "results.json": json.dumps(results, indent=1) + "\n",
            "report.md": markdown(results),
        }
        for name, text in texts.items():
            fresh = folder / f".{name}"
            fresh.write_text(text, encoding="utf-8")
            fresh.replace(folder / name)
        drawings = {
            "learning.png": (_draw_learning, "paper"),
            "hours.png": (_draw_hours, "streams"),
        }
        for name, (draw, part) in drawings.items():
            fresh = folder / f".{name}"
            draw(results[part], fresh)
            fresh.replace(folder / name)
    except OSError as error:
        raise MirageError(f"{folder}: can't be written ({error.strerror}).") from error
    return [folder / name for name in (*texts, *drawings)]


def markdown(results: Json) -> str:
    """Tables: the paper's experiments by partition, and streams by kind."""
    plan = results["plan"]
    lines = ["# Routing", "", f"Seed {results['seed']}; {results['machine']}.", ""]
    for name, part in results["paper"].items():
        lines += [f"## {name}: the paper's episodes", ""]
        lines += [f"{plan['episodes']} episodes of training, mean of {plan['judged']} others.", ""]
        lines += [*_table(part["rules"], _PAPER), "", _against_naive(part["rules"]), ""]
    for name, part in results["streams"].items():
        lines += [f"## Streams: {name}", "", f"{plan['streams']} streams, the same for all.", ""]
        lines += [*_table(part, _STREAMS), "", _agents_verdict(part), ""]
    return "\n".join(lines)


def _table(rows: dict[str, Json], columns: dict[str, str]) -> list[str]:
    head = f"| rule | {' | '.join(columns.values())} |"
    body = [
        f"| {name} | {' | '.join(_shown(row[key]) for key in columns)} |"
        for name, row in rows.items()
    ]
    return [head, f"| --- |{' --- |' * len(columns)}", *body]


def _shown(value: float) -> str:
    return (
        f"{value:.3f}"
        if abs(value) < 10
        else f"{value:,.0f}"
        if abs(value) >= 1000
        else f"{value:.1f}"
    )


def _against_naive(rows: dict[str, Json]) -> str:
    naive, ours = rows["naive"], rows["agent (ours)"]
    run, wasted = (100 * (ours[key] / naive[key] - 1) for key in ("run_h", "inefficient_kwh"))
    reached = ours["utilization"] > rows["best-fit"]["utilization"]
    verdict = "better than" if reached else "not better than"
    return (
        f"Agent (ours) to naive: run {run:+.1f} %, inefficient power {wasted:+.1f} %; {verdict}"
        " best-fit by utilization. The best possible placement bounds what any agent can reach."
    )


def _agents_verdict(rows: dict[str, Json]) -> str:
    low, high = rows["agents"]["completion_to_best_fit_95"]
    if high < 1:
        words = "shorter than"
    elif low > 1:
        words = "longer than"
    else:
        words = "not distinguishable from"
    return (
        f"Agents' mean completion is {words} best-fit's (95 % interval of the ratio: {low:.3f} to"
        f" {high:.3f})."
    )


def _draw_learning(paper: Json, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(
        1, len(paper), figsize=(6 * len(paper), 4), sharey=True, squeeze=False
    )
    for axis, (name, part) in zip(axes[0], paper.items(), strict=True):
        for rule, curve in part["learning"].items():
            points = smoothed(curve)
            axis.plot(range(len(curve) - len(points) + 1, len(curve) + 1), points, label=rule)
        best = part["rules"]["best possible"]["utilization"]
        axis.axhline(best, color="grey", linestyle=":", label="best possible (judged)")
        axis.set(title=name, xlabel="episode", ylabel=f"utilization, mean of {SMOOTH}")
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="png", dpi=110)
    pyplot.close(figure)


def _draw_hours(streams: Json, path: Path) -> None:
    """Utilization and power over a stream's time, a column a kind of stream."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    shown = {"utilization": "GPUs in use, share", "power_kw": "power of all servers, kW"}
    figure, axes = pyplot.subplots(
        2, len(streams), figsize=(6 * len(streams), 6), sharex="col", squeeze=False
    )
    for column, (name, rules) in enumerate(streams.items()):
        for row, (key, label) in enumerate(shown.items()):
            for rule, figures in rules.items():
                axes[row][column].plot(figures["hourly"][key], label=rule, linewidth=1)
            axes[row][column].set(ylabel=label, ylim=(0, None))
        axes[0][column].set_title(f"{name}, mean of the streams")
        axes[1][column].set_xlabel("hours since the first submission")
    axes[0][-1].legend(fontsize=8)
    figure.tight_layout()
    figure.savefig(path, format="png", dpi=110)
    pyplot.close(figure)


def smoothed(curve: Sequence[float]) -> list[float]:
    """Means of `SMOOTH` consecutive values (of all, if there are fewer)."""
    size = min(SMOOTH, len(curve))
    means: list[float] = np.convolve(curve, np.ones(size) / size, mode="valid").tolist()
    return means
