"""`mirage evaluate chains`: policies on whole chains."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING

from rich.markup import escape
from rich.table import Table

from mirage.cli.evaluate_options import (
    add_every,
    add_history,
    add_methods,
    add_output,
    add_shape,
    add_start,
    duration,
    plan_of,
)
from mirage.cli.learning import TerminalReporter, add_minutes, budget_s
from mirage.cli.table import console
from mirage.domain import Mode
from slurm_sim.cli.arguments import positive, whole_number

if TYPE_CHECKING:
    # the simulator takes a second to import: only once the arguments are right
    from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_history(parser, "folder of model folders, DIR/METHOD (default: the one of --cluster)")
    _add_chains(parser.add_argument_group("chains"))
    _add_others(parser.add_argument_group("waits of other users"))
    _add_comparison(parser.add_argument_group("comparison"))
    add_output(
        parser,
        "report.html, results.json and chains.csv",
        "the submissions and of the resamples of the intervals",
    )


def _add_chains(group: argparse._ArgumentGroup) -> None:
    add_start(group, "begin of the first span")
    add_every(group, "span of each submission, which is drawn in it, as 4h (default: 2d)")
    group.add_argument(
        "--begins",
        type=positive,
        metavar="N",
        help="number of submissions; at each a chain of every size, mode and method (default: 8)",
    )
    group.add_argument(
        "--lasts",
        type=duration,
        metavar="D",
        help="time for which each chain is watched (default: 14d)",
    )
    add_shape(group, "nodes of each chain's links (default: 1,2,8,16)", "time limit of each link")
    group.add_argument(
        "--modes", type=_modes, metavar="M[,M]", help="modes of the chains (default: train,service)"
    )


def _add_others(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--others",
        type=_counts,
        metavar="N[,N]",
        help=(
            "numbers of chains beside which the waits of other users are judged, or none (default:"
            " 0,3,10)"
        ),
    )
    group.add_argument(
        "--others-nodes", type=positive, metavar="K", help="nodes of these chains (default: 2)"
    )
    group.add_argument(
        "--others-bound",
        type=positive,
        metavar="N",
        help="bound on competing links (acting.most_ahead) whose effect is judged (default: 1)",
    )


def _add_comparison(group: argparse._ArgumentGroup) -> None:
    about = (
        "methods: default, timer, avg, recent-quantile, trained ones by name, LABEL=FOLDER of a"
        " model, lead:3h, after:40h, ahead:3:20h; reactive and oracle are always included"
    )
    add_methods(group, about)
    add_minutes(group, "all submissions (default: 120)")


def _modes(text: str) -> tuple[Mode, ...]:
    try:
        return tuple(dict.fromkeys(Mode(word.strip()) for word in text.split(",")))
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected train, service or both, got {text!r}"
        ) from error


def _counts(text: str) -> tuple[int, ...]:
    if text.strip() == "none":
        return ()
    counts = sorted({whole_number(word.strip()) for word in text.split(",")})
    if counts[0] < 0:
        raise argparse.ArgumentTypeError(f"expected numbers from 0, got {text!r}")
    return tuple(counts)


def run(args: argparse.Namespace) -> int:
    plan = _plan(args)
    from mirage.provision.chains.evaluation import evaluate_chains
    from mirage.provision.chains.report import page, sentence
    from mirage.provision.chains.results import record, write

    with TerminalReporter() as reporter:
        found = evaluate_chains(plan, reporter)
    result = record(plan, found)
    write(plan.out, found, result, page(plan, found))
    if args.json:
        names = ("schema", "kind", "headline", "setup", "summary", "others_wait")
        shown = {"out": str(plan.out)} | {name: result[name] for name in names}
        print(json.dumps(shown, indent=1))
        return 0
    _show(plan, found)
    console.print(f"[bold]{escape(sentence(plan, found))}.[/]")
    console.print(f"{escape(str(plan.out))}: report.html, results.json, chains.csv")
    return 0


def _plan(args: argparse.Namespace) -> ChainPlan:
    from mirage.provision.chains.evaluation import ChainPlan

    given = plan_of(args, "minutes")
    if (most_s := budget_s(args)) is not None:
        given["at_most_s"] = int(most_s)
    return ChainPlan(**given)


def _show(plan: ChainPlan, found: ChainsEvaluation) -> None:
    from mirage.provision.chains.report import COLUMNS, MODES
    from mirage.provision.evaluation.report.words import nodes_words

    for nodes in found.nodes:
        for mode in plan.modes:
            columns = COLUMNS[mode.value]
            table = _table(f"{MODES[mode.value].capitalize()} on {nodes_words(nodes)}")
            for column in columns:
                table.add_column(column.head, justify="right")
            for method in found.methods:
                row = found.figures.row(nodes, mode.value, method.name)
                table.add_row(escape(method.name), *(column.plain(row) for column in columns))
            console.print(table)
    if found.figures.others_wait:
        console.print(_others(found))


def _others(found: ChainsEvaluation) -> Table:
    from mirage.figures.words import hours

    table = _table("Waits of other users' jobs")
    for name in ("mode", "bound", "mean", "p95"):
        table.add_column(name, justify="right")
    for row in found.figures.others_wait:
        cells = (
            (f"{row.chains} chains, {escape(row.method)}", row.mode, str(row.most_ahead))
            if row.chains
            else ("no chains", "", "")
        )
        table.add_row(*cells, hours(row.mean_h.value), hours(row.p95_h))
    return table


def _table(title: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold", title=title, title_justify="left")
    table.add_column("method")
    return table
