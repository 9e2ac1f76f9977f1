"""`results.json` and `report.html` of an evaluation: figures 4 and 5, and who had which GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mirage.figures.charts import (
    LABELS,
    Curve,
    curve_chart,
    curve_style,
    curve_swatch,
    dot_chart,
    plane,
)
from mirage.figures.estimate import Estimate
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
from mirage.figures.svg import WIDTH, Scale, chart, rect, text, ticks
from mirage.placement.simulated.evaluation import verdict

Json = Mapping[str, Any]
PAGE, RESULTS = "report.html", "results.json"
_GANTT_LEFT, _GANTT_GPU = 30.0, 6.0
_COLOURS = 12


def save(results: Json, folder: Path) -> list[Path]:
    """Writes both files, whole; returns them. Raises MirageError."""
    texts = {PAGE: page(results), RESULTS: json.dumps(results, indent=1) + "\n"}
    return write_texts(folder, texts)


def page(results: Json) -> str:
    """The whole of `report.html`."""
    agent = results["agent"]
    setting = results["setting"]
    load = f"load {setting['load']:g}" if setting["load"] else "one job a step, an overload"
    sections = [Section("compared", "Schedulers compared", [*_compared(results)])]
    if results["curve"]:
        sections.append(Section("learning", "Learning", [*_learning(results)]))
    sections.append(Section("gantt", "Who had which GPU", [*_gantts(results)]))
    sections.append(Section("made", "How this was made", [*_made(results)]))
    return render(
        ReportPage(
            title=verdict(results, agent),
            lead=(
                f"{results['sequences']} test sequences of {setting['jobs']} jobs on"
                f" {setting['gpus']} GPUs, {load}; the same for every scheduler."
            ),
            tiles=[*_tiles(results["schedulers"][agent])],
            sections=sections,
            footer=Markup(
                "Made by <code>mirage place evaluate</code>. The same figures for programs:"
                " <code>results.json</code>."
            ),
        )
    )


def _tiles(row: Json) -> Iterator[Tile]:
    yield Tile("mean slowdown (eq. 17)", _interval(row, "mean_slowdown"))
    yield Tile("mean reward (eq. 16)", _interval(row, "mean_reward"))
    yield Tile("jobs that ended, share", f"{row['finished']:.3f}")
    yield Tile("a decision, ms", f"{row['decision_ms']:.2f}")


def _interval(row: Json, key: str) -> str:
    low, high = row[f"{key}_95"]
    return Markup("{}<small>{} to {}</small>").format(_shown(row[key]), _shown(low), _shown(high))


def _shown(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.2f}"


def _compared(results: Json) -> Iterator[Part]:
    rows = results["schedulers"]
    head = ("scheduler", "mean slowdown", "to the best", "mean reward", "ended", "ms a decision")
    cells = [
        (
            name,
            _interval(row, "mean_slowdown"),
            _interval(row, "slowdown_to_best"),
            _interval(row, "mean_reward"),
            f"{row['finished']:.3f}",
            f"{row['decision_ms']:.2f}",
        )
        for name, row in rows.items()
    ]
    yield DataTable("Mean over the sequences, with 95 % intervals", head, [("", cells)], "inline")
    estimates = [
        (name, Estimate(row["mean_slowdown"], *row["mean_slowdown_95"]))
        for name, row in rows.items()
    ]
    most = max(estimate.greatest for _, estimate in estimates)
    scale = Scale(0, most, LABELS + 6, WIDTH - 50)
    picture = dot_chart(
        estimates,
        title="Mean slowdown",
        show=_shown,
        scale=scale,
        marks=ticks(most),
        headline=results["agent"],
    )
    yield Pictures([Picture("Mean slowdown", "lower is better", picture)], are_wide=True)


_FIGURES = {
    "paper": (
        ("sequences", "training sequences"),
        ("mean reward, 1000 (eq. 16)", {"validation": "test_reward", "training": "train_reward"}),
        ("mean slowdown (eq. 17)", {"validation": "test_slowdown", "training": "train_slowdown"}),
    ),
}
"""Of each method: the axis across, then each picture's words and curves."""
_STYLES = {"validation": 4, "training": 1}


def _learning(results: Json) -> Iterator[Part]:
    yield Paragraph(
        "The paper's figures 4 and 5: the agent while it learns. The other schedulers are levels, if"
        " it learned in the setting that is evaluated here."
        " Validation: sequences apart from the training's, without chance in the actions. Training:"
        " the episodes that it learns from, with chance; they may be shorter."
    )
    yield Legend([(curve_swatch(curve_style(n)), name) for name, n in _STYLES.items()])
    method = "paper"
    (key, across), *figures = _FIGURES[method]
    pictures = []
    for words, parts in figures:
        figure = words.partition(" (")[0].partition(",")[0].replace(" ", "_")
        unit = 1000 if "1000" in words else 1
        curves = [
            Curve(
                name=name,
                style=curve_style(_STYLES[name]),
                points=[(point[key], point[column] / unit) for point in results["curve"]],
            )
            for name, column in parts.items()
        ]
        levels = [
            (name, row[figure] / unit)
            for name, row in results["schedulers"].items()
            if name in results["levels"] and figure in row
        ]
        ends = [Curve(name=name, style="", points=[(0.0, value)]) for name, value in levels]
        axes = plane([*curves, *ends], across_words=across, up_words=words, from_zero=False)
        picture = curve_chart(curves, axes, title=words, levels=levels)
        pictures.append(Picture(words[0].upper() + words[1:], "", picture))
    yield Pictures(pictures, are_wide=True)


def _gantts(results: Json) -> Iterator[Part]:
    yield Paragraph(
        "The first time steps of the first test sequence: a row is a GPU, a colour a job. Colours"
        " repeat; white is a free GPU."
    )
    yield Pictures(
        [
            Picture(name, "time steps to the right", _gantt(name, steps))
            for name, steps in results["gantt"].items()
        ],
        are_wide=True,
    )


def _gantt(name: str, steps: Sequence[Sequence[int]]) -> Markup:
    """Stretches of the same job on a GPU are one bar."""
    gpus = len(steps[0])
    high = max(2.0, min(_GANTT_GPU, 240 // gpus))
    across = Scale(0, len(steps), _GANTT_LEFT, WIDTH - 8)
    parts = [
        text(_GANTT_LEFT - 4, high * gpu + 8, str(gpu), "tick", "end")
        for gpu in range(0, gpus, max(4, gpus // 8))
    ]
    for gpu in range(gpus):
        begin = 0
        for step in range(1, len(steps) + 1):
            if step < len(steps) and steps[step][gpu] == steps[begin][gpu]:
                continue
            job = steps[begin][gpu]
            if job >= 0:
                left, right = across(begin), across(step)
                style = f"bar {curve_style(job % _COLOURS)}"
                parts.append(rect(left, high * gpu, right - left, high - 0.6, style, f"job {job}"))
            begin = step
    bottom = high * gpus
    for tick in ticks(len(steps), 6):
        parts.append(text(across(tick), bottom + 14, f"{tick:g}", "tick", "middle"))
    return chart(bottom + 18, name, f"{gpus} GPUs over {len(steps)} time steps", parts)


def _made(results: Json) -> Iterator[Part]:
    provenance = results["provenance"]
    yield Paragraph(Markup("<code>{}</code>").format(provenance["command"]))
    yield origin_table(
        provenance, [(name, str(value)) for name, value in results["setting"].items()]
    )
