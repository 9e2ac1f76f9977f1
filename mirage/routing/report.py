"""The files of an evaluation: `results.json`, and the page `report.html`."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from mirage.figures.charts import Curve, curve_chart, curve_style, curve_swatch, plane
from mirage.figures.output import write_texts
from mirage.figures.page import (
    DataTable,
    Legend,
    Paragraph,
    Part,
    Picture,
    Pictures,
    ReportPage,
    Section,
    Tile,
    origin_table,
    render,
)

Json = dict[str, Any]
PAGE, RESULTS = "report.html", "results.json"
SMOOTH = 50
"""Episodes that a learning curve's point is the mean of."""
_PAPER = {
    "utilization": "utilization",
    "utilization_least": "least utilization",
    "run_h": "hours until the full job",
    "inefficient_kwh": "inefficient, kWh",
    "inefficient_kwh_as_paper": "as the paper sums, kWh",
}
_HOURLY = {"utilization": "GPUs in use, share", "power_kw": "power of all servers, kW"}
_STREAMS = {
    "completion_mean_h": "completion, h",
    "completion_p95_h": "p95, h",
    "wait_max_h": "longest wait, h",
    "utilization": "utilization",
    "energy_kwh": "energy, kWh",
    "completion_to_all": "completion to -p A,B's",
    "energy_to_all": "energy to -p A,B's",
}


def save(results: Json, folder: Path) -> list[Path]:
    """Writes both files, whole; returns them. ``results`` has its `provenance`. Raises MirageError."""
    texts = {PAGE: page(results), RESULTS: json.dumps(results, indent=1) + "\n"}
    return write_texts(folder, texts)


def page(results: Json) -> str:
    """The whole of `report.html`."""
    plan, streams = results["plan"], results["streams"]
    sections = [
        Section(f"paper-{number}", f"{name}: the paper's episodes", [*_paper(part, plan)])
        for number, (name, part) in enumerate(results["paper"].items())
    ]
    sections += [
        Section(f"streams-{name}", f"Streams: {name}", [*_stream(part, plan)])
        for name, part in streams.items()
    ]
    sections.append(Section("made", "How this was made", [*_made(results["provenance"])]))
    busiest = "history" if "history" in streams else next(iter(streams))
    return render(
        ReportPage(
            title=_agents_verdict(streams[busiest]).partition(" (")[0] + f" on streams: {busiest}",
            lead=(
                f"{plan['streams']} streams of each kind, the same for every rule, and the paper's"
                f" episodes: {plan['episodes']} of training, {plan['judged']} others to evaluate."
            ),
            tiles=[*_tiles(streams[busiest])],
            sections=sections,
            footer=Markup(
                "Made by <code>mirage route evaluate</code>. The same figures for programs:"
                " <code>results.json</code>."
            ),
        )
    )


def _tiles(rules: Json) -> Iterator[Tile]:
    agents = rules["agents"]
    ratio = Markup("{:.3f}<small>{:.3f} to {:.3f}</small>").format(*agents["completion_to_all"])
    yield Tile("agents' mean completion, by -p A,B's", ratio)
    yield Tile("mean completion of the agents, hours", _shown(agents["completion_mean_h"]))
    yield Tile("GPUs in use, share", _shown(agents["utilization"]))
    yield Tile("energy, kWh", _shown(agents["energy_kwh"]))


def _paper(part: Json, plan: Json) -> Iterator[Part]:
    learning = part["learning"]
    yield Paragraph(_against_naive(part["rules"]))
    yield _table(f"Mean of {plan['judged']} episodes", part["rules"], _PAPER)
    curves = []
    for index, (rule, values) in enumerate(learning.items()):
        points = smoothed(values)
        begin = len(values) - len(points) + 1
        curves.append(
            Curve(name=rule, style=curve_style(index), points=[*enumerate(points, begin)])
        )
    best = part["rules"]["best possible"]["utilization"]
    axes = plane(
        curves, across_words="episode of training", up_words="utilization", from_zero=False
    )
    within = axes.up.low <= best <= axes.up.high
    levels = [("best possible", best)] if within else []
    picture = curve_chart(curves, axes, title="Learning curves", levels=levels)
    yield _legend(learning)
    small = f"utilization, mean of {SMOOTH} episodes"
    yield Pictures([Picture("Learning", small, picture)], are_wide=True)


def _stream(rules: Json, plan: Json) -> Iterator[Part]:
    yield Paragraph(_agents_verdict(rules))
    yield _table(f"{plan['streams']} streams, the same for every rule", rules, _STREAMS)
    yield _legend(rules)
    pictures = []
    for key, words in _HOURLY.items():
        curves = [
            Curve(name=rule, style=curve_style(index), points=[*enumerate(each["hourly"][key])])
            for index, (rule, each) in enumerate(rules.items())
        ]
        axes = plane(curves, across_words="hours since the first submission", up_words=words)
        picture = curve_chart(curves, axes, title=words)
        pictures.append(Picture(words[0].upper() + words[1:], "mean of the streams", picture))
    yield Pictures(pictures, are_wide=True)


def _legend(rules: Json) -> Legend:
    return Legend([(curve_swatch(curve_style(n)), rule) for n, rule in enumerate(rules)])


def _table(caption: str, rows: Json, columns: dict[str, str]) -> DataTable:
    cells = [(name, *(_shown(row[key]) for key in columns)) for name, row in rows.items()]
    return DataTable(caption, ("rule", *columns.values()), [("", cells)])


def _made(provenance: Json) -> Iterator[Part]:
    yield Paragraph(Markup("<code>{}</code>").format(provenance["command"]))
    history = provenance.get("trace", {}).get("file", "none")
    split = "; ".join(f"{name}: {words}" for name, words in provenance["split"].items())
    yield origin_table(provenance, [("job history", history), ("split", split)])


def _shown(value: float | list[float]) -> str:
    if isinstance(value, list):
        return "{:.3f} ({:.3f} to {:.3f})".format(*value)
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
    _, low, high = rows["agents"]["completion_to_all"]
    if high < 1:
        words = "shorter than"
    elif low > 1:
        words = "longer than"
    else:
        words = "not distinguishable from"
    return (
        f"Agents' mean completion is {words} that of `-p A,B` (95 % interval of the ratio: {low:.3f} to"
        f" {high:.3f})."
    )


def smoothed(curve: Sequence[float]) -> list[float]:
    """Means of `SMOOTH` consecutive values (of all, if there are fewer)."""
    size = min(SMOOTH, len(curve))
    means: list[float] = np.convolve(curve, np.ones(size) / size, mode="valid").tolist()
    return means
