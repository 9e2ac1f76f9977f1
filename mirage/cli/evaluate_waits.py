"""`mirage evaluate waits`: forecasts of starts, as `mirage when` gives them, on queue logs."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from mirage.cli.learning import TerminalReporter, add_out, instant
from mirage.cli.table import console

if TYPE_CHECKING:  # pandas takes a second to import
    from mirage.provision.starts.queue_scores import WaitScore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--queue-log",
        dest="logs",
        nargs="+",
        action="extend",
        required=True,
        type=Path,
        metavar="FILE",
        help="queue logs: the service's own, or files of the same columns (docs/traces.md)",
    )
    for name, about in (("start", "begin"), ("end", "end")):
        parser.add_argument(
            f"--{name}",
            type=instant,
            metavar="TIME",
            help=f"{about} of the looks that are judged, as 2023-02-01, UTC (default: the log's)",
        )
    parser.add_argument("--days", action="store_true", help="a row for each day as well")
    add_out(parser.add_argument_group("output"), "folder of report.html and results.json")
    parser.add_argument(
        "--json", action="store_true", help="print the figures as JSON (docs/evaluation.md)"
    )


def run(args: argparse.Namespace) -> int:
    from mirage.provision.starts.evaluation import WaitsPlan, evaluate_waits, sentence

    plan = WaitsPlan(logs=tuple(args.logs), out=args.out, start_s=args.start, end_s=args.end)
    with TerminalReporter() as reporter:
        evaluation = evaluate_waits(plan, reporter)
    if args.json:
        print(json.dumps({"out": str(plan.out)} | evaluation.record, indent=1))
        return 0
    found = evaluation.found
    console.print(_table([("", score) for score in found.scores]))
    if args.days:
        console.print(_table([(day, score) for day, scores in found.days for score in scores]))
    console.print(f"[bold]{escape(sentence(found))}.[/]")
    console.print(f"{escape(str(plan.out))}: report.html, results.json")
    return 0


def _table(rows: list[tuple[str, WaitScore]]) -> Table:
    from mirage.provision.starts.evaluation import HEAD, cells

    table = Table(box=None, pad_edge=False, header_style="bold")
    has_days = any(day for day, _ in rows)
    for name in (("day",) if has_days else ()) + ("method",):
        table.add_column(name)
    for name in ("jobs", *HEAD):
        table.add_column(name, justify="right")
    for day, score in rows:
        first = (day,) if has_days else ()
        table.add_row(*first, escape(score.method), str(score.jobs), *cells(score))
    return table
