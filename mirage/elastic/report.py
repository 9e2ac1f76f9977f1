"""`results.json` and `report.html` of an evaluation."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

from mirage.elastic.evaluation import ElasticResult, estimate
from mirage.figures.charts import bar_chart
from mirage.figures.estimate import Estimate
from mirage.figures.page import (
    Cells,
    DataTable,
    Paragraph,
    Part,
    Picture,
    Pictures,
    ReportPage,
    Section,
    Tile,
    estimate_cell,
    origin_table,
    render,
)
from mirage.figures.words import NOTHING


def write_report(folder: Path, result: ElasticResult, more: Sequence[Section] = ()) -> None:
    """Both files. ``more``: sections after the comparison, such as figures of trainings."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(result.record, indent=1) + "\n"
    page = render(report_page(result, more))
    (folder / "results.json").write_text(text, encoding="utf-8")
    (folder / "report.html").write_text(page, encoding="utf-8")


def report_page(result: ElasticResult, more: Sequence[Section] = ()) -> ReportPage:
    """The page of an evaluation."""
    record = result.record
    origin = record["provenance"]
    facts = [("command", origin["command"]), ("setting", record["setting"])]
    return ReportPage(
        title=headline(result),
        lead=(
            f"{record['sequences']} sequences of {record['jobs']} jobs that no training saw."
            f" Setting {record['setting']}: {record['summary']}."
        ),
        tiles=[
            Tile(name, f"{row['mean_jct_slots']:.2f} slots")
            for name, row in list(record["schedulers"].items())[:4]
        ],
        sections=[
            Section("comparison", "Completion time", _comparison(result)),
            *more,
            Section("origin", "Origin", [origin_table(origin, facts)]),
        ],
        footer="mirage elastic evaluate",
    )


def headline(result: ElasticResult) -> str:
    """What came out, in a sentence."""
    rows = result.record["schedulers"]
    if not result.models:
        best = min(rows, key=lambda name: float(rows[name]["mean_jct_slots"]))
        return f"{best} has the shortest mean completion time"
    name = result.models[0]
    reference = result.record["reference"]
    ratio = rows[name]["ratio_to"][reference]["value"]
    word = "shorter" if ratio <= 1 else "longer"
    return f"{name}: completion time {abs(1 - ratio):.1%} {word} than {reference}'s"


def _comparison(result: ElasticResult) -> list[Part]:
    rows = [(name, estimate(found.mean_jct_slots)) for name, found in result.rollouts.items()]
    headline_name = result.models[0] if result.models else ""
    chart = bar_chart(
        [*rows, ("lower bound", Estimate(float(result.bound_slots.mean())))],
        title="Mean completion time, slots",
        show="{:.2f}".format,
        headline=headline_name,
    )
    return [
        Pictures(
            [
                Picture(
                    "Figure 9: average job completion time",
                    "Slots; whiskers are 95 % intervals over sequences.",
                    chart,
                )
            ]
        ),
        _table(result),
        Paragraph(
            "Lower bound: each job alone at its best shape, without disturbance. A difference below"
            " 0 with an interval below 0 means that the first is better."
        ),
    ]


def _table(result: ElasticResult) -> DataTable:
    model = result.models[0] if result.models else ""
    reference = result.record["reference"]
    rows: list[Cells] = []
    for name, row in result.record["schedulers"].items():
        found = result.rollouts[name]
        cells = [name, estimate_cell(estimate(found.mean_jct_slots), "{:.2f}".format)]
        cells += [f"{row['p95_jct_slots']:.2f}", f"{row['finished']:.0%}"]
        ratio = row["ratio_to"].get(reference)
        cells.append(f"{ratio['value']:.3f}" if ratio else NOTHING)
        difference = row["difference_to"].get(model)
        cells.append(
            estimate_cell(_estimate(difference), "{:+.2f}".format) if difference else NOTHING
        )
        rows.append(cells)
    words = ("completion, slots", "95 % of jobs within", "finished")
    head = ("scheduler", *words, f"ratio to {reference}", f"less {model}")
    return DataTable("Schedulers on the same sequences", head, [("", rows)], "inline")


def _estimate(record: dict[str, object]) -> Estimate:
    interval = record["interval"]
    low, high = interval if isinstance(interval, list) else (None, None)
    return Estimate(float(str(record["value"])), low, high)
