"""`mirage evaluate`: every method on the same pairs of jobs, whole chains, or forecasts of
starts; tables, `results.json`, `report.html`.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from mirage.cli import evaluate_chains, evaluate_waits
from mirage.cli.evaluate_chains import duration
from mirage.cli.learning import (
    WARM_UPS,
    TerminalReporter,
    add_inputs,
    add_out,
    add_partition,
    add_warm_up,
    add_workers,
    instant,
    sizes,
    words_of,
)
from mirage.cli.table import console
from mirage.domain import Penalties
from mirage.errors import InputError
from slurm_sim.cli.arguments import positive, whole_number

if TYPE_CHECKING:
    # pandas and the simulator take a second to import: only once the arguments are right
    from mirage.provision.evaluation import EvaluationPlan, EvaluationResult
    from mirage.provision.evaluation.comparison import Comparison

LOADS = ("heavy", "medium", "light")


PAIRS = ("episodes", "penalties")
JOBS = ("every", "nodes", "limit", "methods")
"""Options of whatever simulates jobs of its own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    kind = parser.add_mutually_exclusive_group()
    kind.add_argument(
        "--chains", action="store_true", help="whole chains in place of pairs of jobs"
    )
    kind.add_argument(
        "--waits", action="store_true", help="forecasts of starts (mirage when) in place of pairs"
    )
    _add_input(parser.add_argument_group("input"))
    _add_jobs(parser.add_argument_group("simulated jobs"))
    _add_comparison(parser.add_argument_group("comparison"))
    _add_pairs(parser.add_argument_group("pairs of jobs"))
    evaluate_chains.add_arguments(parser.add_argument_group("whole chains (--chains)"))
    evaluate_waits.add_arguments(parser.add_argument_group("forecasts of starts (--waits)"))
    _add_output(parser.add_argument_group("output"))


def _add_input(group: argparse._ArgumentGroup) -> None:
    add_inputs(group)
    group.add_argument(
        "--models",
        type=Path,
        metavar="DIR",
        help="folder of model folders, DIR/METHOD (default: the one of --cluster)",
    )


def _add_jobs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--start",
        required=True,
        type=instant,
        metavar="TIME",
        help="first submission, of chains begin of its span, as 2023-02-01T06:00, UTC",
    )
    group.add_argument(
        "--every",
        type=duration,
        metavar="D",
        help="time between submissions, of chains span of each, as 4h (default: 4h; of chains 2d)",
    )
    group.add_argument(
        "--nodes",
        type=sizes,
        metavar="K[,K]",
        help="sizes: nodes of each job (default: 1; of chains 1,2,8,16)",
    )
    group.add_argument(
        "--limit",
        type=duration,
        metavar="D",
        help="time limit of each job, which runs until it (default: 48h)",
    )
    add_partition(group, "the one with most node-hours in the history")
    add_workers(group)


def _add_comparison(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--methods",
        type=words_of,
        metavar="NAME[,NAME]",
        help=(
            "methods: timer, avg, recent-quantile, trained ones by name, or LABEL=FOLDER of a"
            " model; of chains also default, lead:3h, ahead:3:20h; reactive and oracle are"
            " always included"
        ),
    )
    group.add_argument(
        "--seed",
        type=_seed,
        default=1,
        metavar="N",
        help="seed of the 95 %% intervals, and of submissions of chains (default: %(default)s)",
    )


def _add_pairs(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--episodes",
        type=positive,
        metavar="N",
        help="number of submissions; at each a pair of every size",
    )
    group.add_argument(
        "--penalties",
        type=_penalties,
        metavar="I:O[,I:O]",
        help="weights of interruption and overlap (default: 1:1,4:1)",
    )
    add_warm_up(group)


def _add_output(group: argparse._ArgumentGroup) -> None:
    add_out(group, "folder of report.html, results.json and episodes.csv or chains.csv")
    group.add_argument(
        "--json", action="store_true", help="print the figures as JSON (docs/evaluation.md)"
    )


def _seed(text: str) -> int:
    if (number := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"expected a number from 0, got {text!r}")
    return number


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
    kind = "chains" if args.chains else "waits" if args.waits else "pairs"
    _check(args, kind)
    if kind == "chains":
        return evaluate_chains.run(args)
    if kind == "waits":
        return evaluate_waits.run(args)
    plan = _plan(args)
    from mirage.provision.evaluation import evaluate

    with TerminalReporter() as reporter:
        result = evaluate(plan, reporter)
    if args.json:
        _print_json(plan, result)
    else:
        _show(plan, result.comparison)
    return 0


KINDS: dict[str, tuple[str, tuple[str, ...], tuple[str, ...]]] = {
    "pairs": ("pairs of jobs", (*PAIRS, *JOBS), ("episodes", "methods")),
    "chains": ("--chains", (*evaluate_chains.OPTIONS, *JOBS), ()),
    "waits": ("--waits", evaluate_waits.OPTIONS, evaluate_waits.NEEDED),
}
"""What is judged: how it is called, its own options, and those that it needs."""


def _check(args: argparse.Namespace, kind: str) -> None:
    """Raises InputError: an option of something else, or none that is needed."""
    called, own, needed = KINDS[kind]
    every = {name for _, names, _ in KINDS.values() for name in names}
    for name in sorted(every - set(own)):
        if getattr(args, name) is not None:
            raise InputError(f"--{name.replace('_', '-')} says nothing to {called}; leave it out.")
    for name in needed:
        if getattr(args, name) is None:
            raise InputError(f"--{name} is needed for {called}.")
    if kind != "pairs" and args.warm_up != WARM_UPS[0]:
        raise InputError(f"--warm-up says nothing to {called}; leave it out.")


def _plan(args: argparse.Namespace) -> EvaluationPlan:
    from mirage.provision.evaluation import EvaluationPlan
    from mirage.provision.learn.background import WarmUp

    names = {"every": "every_s", "limit": "limit_s"}
    given: dict[str, Any] = {
        names.get(name, name): value
        for name in ("every", "nodes", "limit", "penalties")
        if (value := getattr(args, name)) is not None
    }
    return EvaluationPlan(
        trace=args.trace,
        cluster=args.cluster,
        methods=args.methods,
        out=args.out,
        start_s=args.start,
        episodes=args.episodes,
        partition=args.partition,
        warm_up=WarmUp(args.warm_up),
        models=args.models,
        seed=args.seed,
        workers=args.workers,
        **given,
    )


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
