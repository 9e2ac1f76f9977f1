"""`mirage evaluate waits`: forecasts of starts judged on queue logs."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from mirage.errors import InputError
from mirage.figures.output import write_texts
from mirage.figures.page import (
    DataTable,
    Notes,
    Paragraph,
    Part,
    ReportPage,
    Section,
    Tile,
    origin_table,
    render,
)
from mirage.figures.provenance import file_record, provenance
from mirage.figures.words import NOTHING, percent
from mirage.provision.learn.reporter import SILENT, Reporter
from mirage.provision.learn.times import iso
from mirage.provision.starts.queue_log import read_queue_log
from mirage.provision.starts.queue_scores import PUBLISHED, WaitScore, WaitsFound, score_log
from mirage.provision.starts.wait_trees import SEED
from slurm_sim.seconds import DAY_S

SCHEMA = 2
RESULTS, PAGE = "results.json", "report.html"
HEAD = ("within 2", "within 3", "as published", "middle half", "covered", "p90/p10", "CPU s")


@dataclass(frozen=True, kw_only=True)
class WaitsPlan:
    """Which looks are judged. Times are Unix seconds."""

    logs: tuple[Path, ...]
    """Queue logs (docs/traces.md)."""
    out: Path
    """Folder of `results.json` and `report.html`."""
    start_s: int | None = None
    """Looks from here on are judged; None: all of which enough is known."""
    end_s: int | None = None

    def command(self) -> list[str]:
        """The command line that gives the same figures."""
        times = {"--start": self.start_s, "--end": self.end_s}
        given = [(name, iso(at_s)) for name, at_s in times.items() if at_s is not None]
        words = [("--queue-log", str(path)) for path in self.logs] + given
        pairs = [word for pair in (*words, ("--out", str(self.out))) for word in pair]
        return ["mirage", "evaluate", "waits", *pairs]


@dataclass(frozen=True, kw_only=True)
class WaitsEvaluation:
    found: WaitsFound
    record: dict[str, Any]
    """As in results.json."""


def evaluate_waits(plan: WaitsPlan, reporter: Reporter = SILENT) -> WaitsEvaluation:
    """Writes both files. Raises InputError, MirageError."""
    started_s = time.time()
    if plan.out.exists() and not plan.out.is_dir():
        raise InputError(f"--out {plan.out}: is a file; give a folder.")
    log = read_queue_log(plan.logs)
    first_s, last_s = float(log.poll_s[0]), float(log.poll_s[-1])
    begin_s = first_s if plan.start_s is None else plan.start_s
    end_s = last_s + 1 if plan.end_s is None else plan.end_s
    days = max(1, round((min(end_s, last_s) - max(begin_s, first_s)) / DAY_S))
    found = score_log(log, begin_s, end_s, lambda done: reporter.episodes("days", done, days))
    if not found.scores:
        raise InputError(
            f"no look from {iso(int(begin_s))} to {iso(int(end_s))} has a forecast: too few jobs had"
            f" started before. The log is of {iso(int(first_s))} to {iso(int(last_s))}."
        )
    record = {"schema": SCHEMA, "kind": "waits", "rows": len(log)} | found.as_dict()
    record["provenance"] = provenance(
        plan.command(),
        inputs={f"log{number}": file_record(path) for number, path in enumerate(plan.logs, 1)},
        split={"evaluated_s": (begin_s, end_s)},
        seed=SEED,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )
    evaluation = WaitsEvaluation(found=found, record=record)
    texts = {
        PAGE: page(evaluation),
        RESULTS: json.dumps(record, indent=1, allow_nan=False) + "\n",
    }
    write_texts(plan.out, texts)
    return evaluation


def sentence(found: WaitsFound) -> str:
    """What came out, of the first method."""
    first = found.scores[0]
    covered = "" if first.covered is None else f", {percent(first.covered)} from p10 to p90"
    return (
        f"{first.method}: {percent(first.within_2)} of the medians within a factor of 2 of the"
        f" wait, {percent(first.within_3)} of 3{covered}"
    )


def cells(score: WaitScore) -> tuple[str, ...]:
    """In the order of `HEAD`."""
    low, high = score.middle_half
    return (
        f"{score.within_2:.2f}",
        f"{score.within_3:.2f}",
        f"{score.as_published:.2f}",
        f"{low:.2f} to {high:.2f}",
        NOTHING if score.covered is None else percent(score.covered),
        NOTHING if score.width is None else f"{score.width:.0f}",
        f"{score.cpu_s:.0f}",
    )


def page(evaluation: WaitsEvaluation) -> str:
    """The whole of `report.html`."""
    found, origin = evaluation.found, evaluation.record["provenance"]
    first = found.scores[0]
    facts = [("command", origin["command"]), ("rows", str(evaluation.record["rows"]))]
    return render(
        ReportPage(
            title=sentence(found),
            lead=(
                f"{first.jobs} jobs of {len(found.days)} days, each asked about as it stood in the"
                " queue. Each day's forecasts are fitted to rows of earlier looks whose job had"
                " started by then."
            ),
            tiles=[
                Tile("within a factor of 2", f"{first.within_2:.2f}"),
                Tile("within a factor of 3", f"{first.within_3:.2f}"),
                Tile("covered", NOTHING if first.covered is None else percent(first.covered)),
            ],
            sections=[
                Section("scores", "Scores", _tables(found)),
                Section("limits", "Limits of these data", [_limits()]),
                Section("made", "How this was made", [origin_table(origin, facts)]),
            ],
            footer=Markup(
                "Made by <code>mirage evaluate waits</code>. The same figures for programs:"
                " <code>results.json</code>."
            ),
        )
    )


def _tables(found: WaitsFound) -> Sequence[Part]:
    low, high = PUBLISHED
    rows = [(score.method, *cells(score)) for score in found.scores]
    days = [(day, str(scores[0].jobs), *cells(scores[0])[:-1]) for day, scores in found.days]
    return [
        DataTable("All methods on the same jobs", ("method", *HEAD), [("", rows)], "inline"),
        DataTable(
            f"{found.scores[0].method}, by day", ("day", "jobs", *HEAD[:-1]), [("", days)], "inline"
        ),
        Paragraph(
            "Shares are of p50 over the wait. Covered: waits from p10 to p90. p90/p10: the median"
            f" width. As published: share of ratios from {low} to {high}, where half of the"
            " published predictor's are."
        ),
    ]


def _limits() -> Part:
    return Notes(
        [
            "Jobs of one burst wait for the same, so a day has far fewer independent waits than jobs.",
            "A log may leave out jobs that never started.",
        ]
    )
