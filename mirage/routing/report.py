"""An evaluation's `results.json`, and its tables as text."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mirage.figures.output import write_texts

Json = dict[str, Any]
RESULTS = "results.json"
PAPER = {
    "utilization": "utilization",
    "run_h": "hours until the full job",
    "inefficient_kwh": "inefficient, kWh",
    "inefficient_kwh_as_paper": "as the paper sums, kWh",
}
STREAMS = {
    "completion_mean_h": "completion, h",
    "completion_to_all": "to `-p A,B`",
    "wait_mean_h": "wait, h",
    "wait_max_h": "longest wait, h",
    "slowdown_to_all": "slowdown to `-p A,B`",
    "utilization": "utilization",
    "energy_to_all": "energy to `-p A,B`",
}


def save(results: Json, folder: Path) -> list[Path]:
    """Writes it whole, with its `provenance`; returns its path. Raises MirageError."""
    return write_texts(folder, {RESULTS: json.dumps(results, indent=1) + "\n"})


def tables(results: Json) -> Iterator[str]:
    """Markdown: one table a partition of the paper's episodes, and one a kind of streams."""
    for name, rows in results["paper"].items():
        yield table(f"The paper's episodes: {name}", rows, PAPER)
    for name, rows in results["streams"].items():
        yield table(f"Streams: {name}", rows, STREAMS)


def table(title: str, rows: Json, columns: dict[str, str]) -> str:
    lines = [
        title,
        "",
        f"| rule | {' | '.join(columns.values())} |",
        "| --- " * (len(columns) + 1) + "|",
    ]
    for rule, row in rows.items():
        lines.append(f"| {rule} | {' | '.join(_shown(row[key]) for key in columns)} |")
        if len(row.get("seeds", ())) > 1:
            lines.append(f"| each seed | | {', '.join(f'{each:.3f}' for each in row['seeds'])} |")
    return "\n".join(lines) + "\n"


def _shown(value: float | list[float]) -> str:
    if isinstance(value, list):
        return "{:.3f} ({:.3f} to {:.3f})".format(*value)
    return (
        f"{value:.3f}" if abs(value) < 10 else f"{value:,.0f}" if value >= 1000 else f"{value:.1f}"
    )
