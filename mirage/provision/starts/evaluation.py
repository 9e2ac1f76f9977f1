"""`mirage evaluate waits`: forecasts of starts judged on a part of a job history."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from markupsafe import Markup

from mirage.errors import InputError
from mirage.figures.charts import bar_chart
from mirage.figures.output import write_texts
from mirage.figures.page import (
    DataTable,
    Notes,
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
from mirage.figures.provenance import file_record, provenance
from mirage.figures.words import NOTHING, day, hours, number, percent
from mirage.provision.learn.futures import read
from mirage.provision.learn.inputs import Inputs, read_inputs
from mirage.provision.learn.reporter import SILENT, Reporter
from mirage.provision.learn.times import iso
from mirage.provision.starts.daily import daily_waits_s, latest_regression
from mirage.provision.starts.replay import Replay, StartCase
from mirage.provision.starts.score import (
    LONG_S,
    PUBLISHED,
    Score,
    calibration_of,
    scores,
)
from slurm_sim.seconds import DAY_S, HOUR_S

SCHEMA = 1
RESULTS, PAGE = "results.json", "report.html"
APART_S = 2 * DAY_S
"""Between the past that calibrates and the jobs that are judged."""
GOALS = {"covered": (0.75, 0.85), "middle half": (0.5, 2.0)}


@dataclass(frozen=True, kw_only=True)
class WaitsPlan:
    """Which jobs are asked about. Times are Unix seconds."""

    trace: Path
    """The job history (docs/traces.md)."""
    cluster: Path
    """Its cluster: .toml, otherwise a slurm.conf (docs/clusters.md)."""
    out: Path
    """Folder of `results.json` and `report.html`."""
    start_s: int
    end_s: int
    """Jobs submitted between these are judged."""
    past_s: int
    """From here until two days before ``start_s`` forecasts are calibrated."""
    jobs: int = 100
    """That are judged, drawn uniformly; for the past twice as many."""
    futures: int = 16
    """Of look-ahead for each job."""
    habits: Path | None = None
    """Of look-ahead: a folder of `mirage.provision.learn.futures`; None: it is left out."""
    partition: str | None = None
    seed: int = 1

    def command(self) -> list[str]:
        """The command line that gives the same figures."""
        times = {"--start": self.start_s, "--end": self.end_s, "--past": self.past_s}
        words = {
            "--trace": self.trace,
            "--cluster": self.cluster,
            **{name: _time(at_s) for name, at_s in times.items()},
            "--jobs": self.jobs,
            "--futures": self.futures if self.habits else None,
            "--models": self.habits,
            "--partition": self.partition,
            "--seed": self.seed,
            "--out": self.out,
        }
        given = [item for item in words.items() if item[1] is not None]
        return ["mirage", "evaluate", "waits", *(str(part) for item in given for part in item)]


def _time(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass(frozen=True, kw_only=True)
class WaitsEvaluation:
    scores: tuple[Score, ...]
    record: dict[str, Any]
    """As in results.json."""


def evaluate_waits(plan: WaitsPlan, reporter: Reporter = SILENT) -> WaitsEvaluation:
    """Writes both files. Raises InputError, MirageError."""
    started_s = time.time()
    inputs = read_inputs(plan.trace, plan.cluster, plan.partition, reporter)
    _check(plan, inputs)
    replay = Replay(
        background=inputs.background,
        partition=inputs.partition,
        futures=read(plan.habits) if plan.habits else None,
        count=plan.futures,
        seed=plan.seed,
    )
    total = 3 * plan.jobs

    def told(before: int) -> Callable[[int], None]:
        return lambda done: reporter.episodes("jobs asked about", before + done, total)

    past = replay.cases(plan.past_s, plan.start_s - APART_S, 2 * plan.jobs, told(0))
    judged = replay.cases(plan.start_s, plan.end_s, plan.jobs, told(2 * plan.jobs))
    reporter.episodes("jobs asked about", total, total)
    if not judged:
        raise InputError("no job of these times has started; give another --start or --end.")
    found = _found(plan, past, judged)
    found.record["provenance"] = provenance(
        plan.command(),
        inputs={
            "trace": file_record(plan.trace, jobs=len(inputs.background.log)),
            "cluster": file_record(plan.cluster),
        },
        split={
            "past_s": (plan.past_s, plan.start_s - APART_S),
            "evaluated_s": (plan.start_s, plan.end_s),
        },
        seed=plan.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    ) | {"notes": inputs.notes}
    _write(plan, found)
    return found


def _check(plan: WaitsPlan, inputs: Inputs) -> None:
    """Raises InputError."""
    if plan.out.exists() and not plan.out.is_dir():
        raise InputError(f"--out {plan.out}: is a file; give a folder.")
    log = inputs.background.log
    if not plan.past_s < plan.start_s - APART_S or not plan.start_s < plan.end_s:
        raise InputError(
            "expected --past more than two days before --start, and --start before --end."
        )
    if plan.end_s > log.last_s:
        raise InputError(f"--end {iso(plan.end_s)}: {log.source} ends at {iso(log.last_s)}.")


def _found(plan: WaitsPlan, past: list[StartCase], judged: list[StartCase]) -> WaitsEvaluation:
    calibration, cases = calibration_of(past), [*past, *judged]
    regression = latest_regression(cases)
    found = scores(judged, calibration, daily_waits_s(cases)[len(past) :], plan.seed)
    return WaitsEvaluation(
        scores=tuple(found),
        record={
            "schema": SCHEMA,
            "kind": "waits",
            "setup": {
                "start": plan.start_s,
                "end": plan.end_s,
                "past": plan.past_s,
                "jobs": len(judged),
                "past_jobs": len(past),
                "futures": plan.futures if plan.habits else 0,
                "seed": plan.seed,
            },
            "calibration": {"levels": calibration.levels, "jobs": calibration.cases},
            "regression": regression.as_json() if regression else None,
            "mean_wait_h": float(np.mean([case.wait_s for case in judged])) / HOUR_S,
            "scores": [score.as_dict() for score in found],
        },
    )


def _write(plan: WaitsPlan, found: WaitsEvaluation) -> None:
    texts = {
        PAGE: page(plan, found),
        RESULTS: json.dumps(found.record, indent=1, allow_nan=False) + "\n",
    }
    write_texts(plan.out, texts)


def sentence(found: WaitsEvaluation) -> str:
    """What came out, of the first method."""
    first = found.scores[0]
    middle = "" if first.ratio_quartiles is None else _middle_half(first)
    return f"{first.method}: {percent(first.covered.value)} of the waits from p10 to p90" + (
        f", the middle half of the medians {middle} times the wait" if middle else ""
    )


def _middle_half(score: Score) -> str:
    low, _, high = score.ratio_quartiles or (0.0, 0.0, 0.0)
    return f"{low:.2f} to {high:.2f}"


def page(plan: WaitsPlan, found: WaitsEvaluation) -> str:
    """The whole of `report.html`."""
    origin, first = found.record["provenance"], found.scores[0]
    facts = [("command", origin["command"]), ("job history", origin["trace"]["file"])]
    return render(
        ReportPage(
            title=sentence(found),
            lead=(
                f"{first.jobs} jobs submitted from {day(plan.start_s)} to {day(plan.end_s)}, each"
                " asked about a second before it came. Forecasts know only what was known then;"
                " they are fitted to earlier jobs. The mean wait is"
                f" {hours(found.record['mean_wait_h'])}."
            ),
            tiles=[
                Tile("of waits from p10 to p90", estimate_cell(first.covered, percent)),
                Tile("middle half of median over wait", _middle_half(first)),
            ],
            sections=[
                Section("scores", "Scores", [*_scores(found)]),
                Section("limits", "Limits of these data", [_limits()]),
                Section("made", "How this was made", [origin_table(origin, facts)]),
            ],
            footer=Markup(
                "Made by <code>mirage evaluate waits</code>. The same figures for programs:"
                " <code>results.json</code>."
            ),
        )
    )


def _scores(found: WaitsEvaluation) -> Iterator[Part]:
    low, high = PUBLISHED
    chart = bar_chart(
        [(score.method, score.error_h) for score in found.scores],
        title="Median error of p50, hours",
        show=number,
        headline=found.scores[0].method,
    )
    small = f"Of jobs that waited {LONG_S // 60} minutes or longer."
    yield Pictures([Picture("Median error of p50, hours", small, chart)])
    rows = [
        (
            score.method,
            estimate_cell(score.covered, percent),
            estimate_cell(score.covered_in_doubt, percent),
            _middle_half(score) if score.ratio_quartiles else NOTHING,
            NOTHING if score.as_published is None else percent(score.as_published),
            hours(score.error_h),
        )
        for score in found.scores
    ]
    head = ("method", "covered", "in doubt", "middle half", "as published", "median error")
    yield DataTable("All methods on the same jobs", head, [("", rows)], "inline")
    yield Paragraph(
        "Covered: waits from p10 to p90 (one value for methods without a range). In doubt: the same"
        f" of jobs whose p90 is {LONG_S // 60} minutes or longer. Middle half: quartiles of the"
        f" median over the wait. As published: share of these ratios from {low} to {high}, where"
        " half of the published predictor's are. The bound knows all run times, but not who comes."
    )


def _limits() -> Part:
    return Notes(
        [
            "The waits are those of one simulation of the history, in which other users do not"
            " react.",
            "Jobs of the same days share a queue: intervals are of blocks of three days, so they"
            " are rough.",
        ]
    )
