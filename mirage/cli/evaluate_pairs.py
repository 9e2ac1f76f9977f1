"""`mirage evaluate pairs`: every method on the same pairs of jobs."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from mirage.cli.evaluate_options import (
    add_every,
    add_history,
    add_methods,
    add_output,
    add_shape,
    add_start,
    plan_of,
)
from mirage.cli.learning import TerminalReporter, add_warm_up
from mirage.cli.table import console
from mirage.domain import Penalties
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    # pandas and the simulator take a second to import: only once the arguments are right
    from mirage.provision.evaluation import EvaluationPlan, EvaluationResult
    from mirage.provision.evaluation.comparison import Comparison

LOADS = ("heavy", "medium", "light")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser, "folder of model folders, DIR/METHOD (default: the one of --cluster)")
    _add_pairs(parser.add_argument_group("pairs of jobs"))
    _add_comparison(parser.add_argument_group("comparison"))
    add_output(
        parser, "report.html, results.json and episodes.csv", "the resamples of the intervals"
    )


def _add_pairs(group: argparse._ArgumentGroup) -> None:
    add_start(group, "first submission")
    add_every(group, "time between submissions, as 4h (default: 4h)")
    group.add_argument(
        "--episodes",
        required=True,
        type=positive,
        metavar="N",
        help="number of submissions; at each a pair of every size",
    )
    add_shape(
        group, "nodes of both jobs (default: 1)", "time limit of both jobs, which run until it"
    )
    add_warm_up(group)


def _add_comparison(group: argparse._ArgumentGroup) -> None:
    about = (
        "methods: timer, avg, recent-quantile, trained ones by name, or LABEL=FOLDER of a"
        " model; reactive and oracle are always included"
    )
    add_methods(group, about, required=True)
    group.add_argument(
        "--penalties",
        type=_penalties,
        metavar="I:O[,I:O]",
        help="weights of interruption and overlap (default: 1:1,4:1)",
    )


def _penalties(text: str) -> tuple[Penalties, ...]:
    return tuple(dict.fromkeys(_ratio(word.strip()) for word in text.split(",")))


def _ratio(text: str) -> Penalties:
    try:
        interruption, overlap = (float(part) for part in text.split(":"))
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a ratio like 4:1, got {text!r}") from error
    if not (0 <= interruption < 1e6 and 0 <= overlap < 1e6 and interruption + overlap > 0):
        raise argparse.ArgumentTypeError(f"expected two numbers from 0, not both 0, got {text!r}")
    return Penalties(interruption, overlap)


def run(args: argparse.Namespace) -> int:
    plan = _plan(args)
    from mirage.provision.evaluation import evaluate

    with TerminalReporter() as reporter:
        result = evaluate(plan, reporter)
    if args.json:
        _print_json(plan, result)
    else:
        _show(plan, result.comparison)
    return 0


def _plan(args: argparse.Namespace) -> EvaluationPlan:
    from mirage.provision.evaluation import EvaluationPlan
    from mirage.provision.learn.background import WarmUp

    return EvaluationPlan(warm_up=WarmUp(args.warm_up), **plan_of(args, "warm_up"))


def _print_json(plan: EvaluationPlan, result: EvaluationResult) -> None:
    names = ("schema", "headline", "situations", "dropped", "summary", "differences")
    shown = {"out": str(plan.out)} | {name: result.record[name] for name in names}
    print(json.dumps(shown, indent=1))


def _show(plan: EvaluationPlan, comparison: Comparison) -> None:
    from mirage.provision.evaluation.report.words import headline, left_out

    for group in comparison.groups:
        for penalties in plan.penalties:
            console.print(_table(comparison, group.nodes, penalties))
    for words in left_out(comparison.dropped):
        console.print(escape(words))
    console.print(f"[bold]{escape(headline(comparison))}.[/]")
    console.print(f"{escape(str(plan.out))}: report.html, results.json, episodes.csv")


def _table(comparison: Comparison, nodes: int, penalties: Penalties) -> Table:
    from mirage.provision.evaluation.metrics import ratio_text
    from mirage.provision.evaluation.report.words import nodes_words

    title = (
        f"{nodes_words(nodes)}, penalties {ratio_text(penalties)}; interruption / overlap: means"
    )
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("method")
    there = [load for load in LOADS if comparison.row(nodes, load, penalties, "oracle")]
    for load in there:
        for name in (load, "under 10 min", "regret"):
            table.add_column(name, justify="right")
    for method in comparison.methods:
        rows = [comparison.row(nodes, load, penalties, method.name) for load in there]
        table.add_row(
            escape(method.name), *(cell for row in rows if row is not None for cell in _cells(row))
        )
    return table


def _cells(row: Any) -> tuple[str, str, str]:
    from mirage.figures.words import hours, percent

    show: Callable[[float], str] = percent
    regret = "-" if row.regret is None else show(row.regret.value)
    return (
        f"{hours(row.interruption_h.value)} / {hours(row.overlap_h.value)}",
        show(row.under_10_min.value),
        regret,
    )
