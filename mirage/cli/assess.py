"""`mirage assess`: whether Mirage is worth it at this site, from its job history to one page."""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from mirage.cli.learning import (
    TerminalReporter,
    add_count,
    add_minutes,
    add_out,
    add_partition,
    add_seed,
    add_workers,
    budget_s,
)
from mirage.cli.table import console
from mirage.errors import InputError

if TYPE_CHECKING:  # pandas and the simulator take a second to import
    from mirage.assess.assessment import SiteAssessment
    from mirage.assess.plan import AssessmentPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input (default: Slurm's own commands)")
    group.add_argument(
        "--sacct", type=Path, metavar="FILE", help="output of `sacct -X -P -D` with its header"
    )
    group.add_argument(
        "--slurm-conf",
        type=Path,
        metavar="FILE",
        help="slurm.conf of the site, or a cluster's .toml (docs/clusters.md)",
    )
    add_count(group, "--days", 180, "days of accounting records that Slurm is asked for")
    group.add_argument(
        "--timezone",
        metavar="ZONE",
        help="zone of times without one and of the hours of the day (default: UTC)",
    )
    add_partition(group, "the one with most node-hours")
    group = parser.add_argument_group("simulation")
    group.add_argument(
        "--quick", action="store_true", help="a result in minutes, from fewer simulated chains"
    )
    add_minutes(group, "all of it (default: 3 with --quick, else 30)")
    add_workers(group)
    add_seed(group, "everything that is drawn")
    group = parser.add_argument_group("output")
    add_out(group, "folder of assessment.html, assessment.json, model and configuration")
    group.add_argument(
        "--anonymise",
        action="store_true",
        help="page and JSON without names of users, partitions and files",
    )
    group.add_argument("--json", action="store_true", help="output as JSON (docs/assess.md)")


def run(args: argparse.Namespace) -> int:
    from mirage.assess.assessment import CONFIG, assess
    from mirage.assess.page import PAGE, anonymous, write
    from mirage.assess.verdict import headline, sentences

    if args.out.exists() and not args.out.is_dir():
        raise InputError(f"--out {args.out}: is a file; give a folder.")
    started_s, plan = time.time(), _plan(args)
    with _AssessReporter() as reporter:
        found = assess(plan, reporter)
    origin = _origin(args, found, started_s)
    if args.anonymise:
        found = anonymous(found)
    result = write(plan, found, origin)
    if args.json:
        print(json.dumps(result, indent=1, default=str))
        return 0
    console.print(f"[bold]{escape(headline(found))}.[/]")
    for text in sentences(found):
        console.print(escape(text))
    console.print(escape(f"Page: {plan.out / PAGE}"))
    console.print(escape(f"Next: mirage daemon --config {plan.out / CONFIG}, which only observes"))
    return 0


class _AssessReporter(TerminalReporter):
    """Each step reads the same input: a caution is said once. What an unknown scheduler means is
    said in the result.
    """

    def __init__(self) -> None:
        super().__init__()
        self._said: set[str] = set()

    def caution(self, text: str) -> None:
        from slurm_sim.traces.guess import WHY_IT_MATTERS

        if text not in self._said and WHY_IT_MATTERS not in text:
            super().caution(text)
        self._said.add(text)


def _plan(args: argparse.Namespace) -> AssessmentPlan:
    from mirage.assess.history import HistorySource
    from mirage.assess.plan import QUICK, THOROUGH, AssessmentPlan

    effort = QUICK if args.quick else THOROUGH
    if (most_s := budget_s(args)) is not None:
        effort = replace(effort, at_most_s=int(most_s))
    return AssessmentPlan(
        source=HistorySource(
            sacct=args.sacct,
            slurm_conf=args.slurm_conf,
            days=args.days,
            timezone=args.timezone,
        ),
        out=args.out,
        effort=effort,
        partition=args.partition,
        seed=args.seed,
        workers=args.workers,
    )


def _origin(args: argparse.Namespace, found: SiteAssessment, started_s: float) -> dict[str, Any]:
    from mirage.assess.history import TRACE
    from mirage.figures.provenance import file_record, provenance

    return provenance(
        ["mirage", "assess"] if args.anonymise else ["mirage", *sys.argv[1:]],
        inputs={"trace": file_record(args.out / TRACE, jobs=found.facts.jobs)},
        split={"judged": found.chains.origin["split"] if found.chains else {}},
        seed=args.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )
