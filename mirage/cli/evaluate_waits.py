"""`mirage evaluate waits`: forecasts of starts, as `mirage when` gives them."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from mirage.cli.evaluate_options import add_history, add_output, add_start, plan_of
from mirage.cli.learning import TerminalReporter, instant
from mirage.cli.table import console
from mirage.errors import InputError
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:  # the simulator takes a second to import
    from mirage.provision.starts.evaluation import WaitsEvaluation, WaitsPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser, "folder of `mirage train --method futures` (default: no simulated futures)")
    _add_jobs(parser.add_argument_group("jobs"))
    add_output(
        parser,
        "report.html and results.json",
        "the drawn jobs and of the resamples of the intervals",
    )


def _add_jobs(group: argparse._ArgumentGroup) -> None:
    add_start(group, "begin of the submissions that are judged")
    group.add_argument(
        "--end",
        required=True,
        type=instant,
        metavar="TIME",
        help="end of the submissions that are judged",
    )
    group.add_argument(
        "--past",
        required=True,
        type=instant,
        metavar="TIME",
        help="begin of the submissions that calibrate, until two days before --start",
    )
    group.add_argument(
        "--jobs",
        type=positive,
        metavar="N",
        help="number of jobs that are judged; twice as many calibrate (default: 100)",
    )
    group.add_argument(
        "--futures",
        type=positive,
        metavar="N",
        help="number of futures to simulate for a forecast (default: 16)",
    )


def run(args: argparse.Namespace) -> int:
    plan = _plan(args)
    from mirage.provision.starts.evaluation import evaluate_waits, sentence

    with TerminalReporter() as reporter:
        found = evaluate_waits(plan, reporter)
    if args.json:
        print(json.dumps({"out": str(plan.out)} | found.record, indent=1))
        return 0
    console.print(_table(found))
    console.print(f"[bold]{escape(sentence(found))}.[/]")
    console.print(f"{escape(str(plan.out))}: report.html, results.json")
    return 0


def _plan(args: argparse.Namespace) -> WaitsPlan:
    from mirage.provision.learn.futures import folder_in
    from mirage.provision.starts.evaluation import WaitsPlan

    if args.futures and args.models is None:
        raise InputError("--futures needs --models, the folder that the futures are drawn from.")
    habits = None if args.models is None else folder_in(args.models)
    return WaitsPlan(habits=habits, **plan_of(args, "models"))


def _table(found: WaitsEvaluation) -> Table:
    from mirage.figures.words import hours, percent

    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("method")
    for name in ("covered", "in doubt", "middle half", "as published", "median error"):
        table.add_column(name, justify="right")
    for score in found.scores:
        low, _, high = score.ratio_quartiles or (0.0, 0.0, 0.0)
        doubt = score.covered_in_doubt
        table.add_row(
            escape(score.method),
            percent(score.covered.value),
            percent(doubt.value) if doubt else "-",
            f"{low:.2f} to {high:.2f}",
            percent(score.as_published or 0),
            hours(score.error_h),
        )
    return table
