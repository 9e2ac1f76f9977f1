"""`mirage evaluate`: every method on the same episodes; `results.json`, `episodes.csv`,
`report.html`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape
from rich.table import Table

from mirage.chain.durations import parse_duration
from mirage.cli.past import WARM_UPS, background_of, errors, instant, partition_of, words_of
from mirage.cli.table import console
from mirage.domain import Penalties
from mirage.errors import InputError
from slurm_sim.cli.arguments import positive, whole_number

if (
    TYPE_CHECKING
):  # pandas and the simulator take a second to import: only once the arguments are right
    from mirage.provision.evaluation.comparison import Comparison, MethodInfo, Setup
    from mirage.provision.evaluation.methods import MethodRequest
    from mirage.provision.evaluation.run import Progress, Trials
    from mirage.provision.evaluation.sampling import Grid
    from mirage.provision.learn.background import Background
    from mirage.provision.learn.joblog import JobLog

Json = dict[str, Any]
LOADS = ("heavy", "medium", "light")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--trace", required=True, type=Path, metavar="T", help="job history (docs/traces.md)"
    )
    parser.add_argument(
        "--cluster", required=True, type=Path, metavar="C", help=".toml, otherwise a slurm.conf"
    )
    parser.add_argument(
        "--methods",
        required=True,
        type=words_of,
        metavar="A,B,...",
        help=(
            "timer, avg, recent-quantile, any trained method, LABEL=FOLDER; reactive and oracle are"
            " always there"
        ),
    )
    parser.add_argument(
        "--models", type=Path, metavar="FOLDER", help="of the models: FOLDER/METHOD (the cluster's)"
    )
    parser.add_argument(
        "--start",
        required=True,
        type=instant,
        metavar="ISO",
        help="first begin; UTC if without offset",
    )
    parser.add_argument(
        "--every", type=_duration, default=4 * 3600, metavar="D", help="between two begins (4h)"
    )
    parser.add_argument("--episodes", required=True, type=positive, metavar="N", help="begins")
    parser.add_argument(
        "--nodes", type=_sizes, default=(1,), metavar="K,...", help="of both jobs of a pair (1)"
    )
    parser.add_argument(
        "--limit", type=_duration, default=48 * 3600, metavar="D", help="of both jobs (48h)"
    )
    parser.add_argument(
        "--partition",
        metavar="P",
        help="partition of the pairs (the one with most of the history's node-hours)",
    )
    parser.add_argument(
        "--warm-up", choices=WARM_UPS, default="trace", help="the queue at the start (%(default)s)"
    )
    parser.add_argument(
        "--penalties",
        type=_penalties,
        default=(Penalties(1, 1), Penalties(4, 1)),
        metavar="I:O,...",
        help="weights of interruption and overlap (1:1,4:1)",
    )
    parser.add_argument(
        "--futures",
        type=positive,
        default=32,
        metavar="N",
        help="of lookahead, in each decision (%(default)s)",
    )
    parser.add_argument("--seed", type=_seed, default=1, help="of the intervals (%(default)s)")
    parser.add_argument(
        "--workers", type=positive, default=os.cpu_count() or 1, help="processes (all cores)"
    )
    parser.add_argument(
        "--out", required=True, type=Path, metavar="DIR", help="folder of the three files"
    )
    parser.add_argument(
        "--json", action="store_true", help="the figures, for programs (docs/evaluation.md)"
    )


def _duration(text: str) -> int:
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds < 60:
        raise argparse.ArgumentTypeError(f"expected at least a minute, got {text!r}")
    return seconds


def _seed(text: str) -> int:
    if (number := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"expected a number from 0, got {text!r}")
    return number


def _sizes(text: str) -> tuple[int, ...]:
    return tuple(dict.fromkeys(positive(word.strip()) for word in text.split(",")))


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
    comparison, found = judged(args)
    _show(args, comparison, found)
    return 0


def judged(args: argparse.Namespace) -> tuple[Comparison, Json]:
    """Writes the three files; returns the figures, and what stands in results.json. Raises
    InputError, MirageError.
    """
    from mirage.figures.provenance import file_record, provenance, sha256
    from mirage.provision.evaluation.comparison import Setup, compare
    from mirage.provision.evaluation.report.page import page
    from mirage.provision.evaluation.results import results, write

    started_s = time.time()
    if args.out.exists() and not args.out.is_dir():
        raise InputError(f"--out {args.out}: is a file; give a folder.")
    background, notes = background_of(args)
    partition, cautions = partition_of(background, args.partition)
    _check_start(args.start, background.log)
    methods = _methods(args, background)
    grid = _grid(args, partition)
    setup = Setup(
        args.start,
        args.every,
        args.episodes,
        args.nodes,
        args.limit,
        args.warm_up,
        args.penalties,
        seed=args.seed,
    )
    tried = _tried(args, background, methods, setup, grid)
    described = _described(methods, background, sha256(args.trace), grid)
    comparison = compare(setup, described, tried.trials, tried.dropped)
    record = provenance(
        _command(args, partition),
        inputs={
            "trace": file_record(args.trace, jobs=len(background.log)),
            "cluster": file_record(args.cluster),
        },
        split={
            "trained_s": {each.name: each.train_s for each in described if each.train_s},
            "evaluated_s": (grid.start_s, grid.end_s),
        },
        seed=args.seed,
        started_s=started_s,
        wall_s=time.time() - started_s,
    ) | {"notes": [*notes, *cautions]}
    found = results(comparison, record)
    write(args.out, comparison, found, page(comparison, record))
    return comparison, found


def _check_start(start_s: int, log: JobLog) -> None:
    from mirage.provision.learn.times import iso

    if start_s > log.last_s:
        raise InputError(
            f"--start {iso(start_s)}: {log.source} ends before, at {iso(log.last_s)}; choose an"
            " earlier time."
        )


def _methods(args: argparse.Namespace, background: Background) -> list[MethodRequest]:
    """Every model is read once before hours of work. Raises InputError."""
    from mirage.provision.evaluation.methods import requested_methods

    models = args.models or _models(args.cluster, background.cluster.name)
    methods = requested_methods(args.methods, models, args.futures)
    for method in methods:
        method.chooser()
        if method.label == "quantile" and method.folder is None:
            errors.print(
                "note: quantile: there is no model of it, so it goes by recent waits"
                " (recent-quantile)"
            )
    return methods


def _models(cluster: Path, name: str) -> Path | None:
    """Beside the cluster's description, as in models/CLUSTER/, or there."""
    folders = (cluster.parent, Path("models") / name)
    return next((folder for folder in folders if any(folder.glob("*/recipe.toml"))), None)


def _grid(args: argparse.Namespace, partition: str) -> Grid:
    from mirage.provision.evaluation.sampling import Grid
    from mirage.provision.learn.background import WarmUp

    warm_up = WarmUp(args.warm_up)
    return Grid(args.start, args.every, args.episodes, args.nodes, args.limit, warm_up, partition)


def _tried(
    args: argparse.Namespace,
    background: Background,
    methods: Sequence[MethodRequest],
    setup: Setup,
    grid: Grid,
) -> Trials:
    from mirage.provision.evaluation.run import Work
    from mirage.provision.evaluation.run import run as run_all

    work = Work(background, tuple(methods), setup.all_penalties, len(setup.penalties))
    with _progress() as progress:
        return run_all(work, grid, args.workers, progress)


@contextmanager
def _progress() -> Iterator[Progress | None]:
    """A bar on a terminal, nothing otherwise."""
    if not errors.is_terminal:
        yield None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bar

    with Bar(
        TextColumn("episodes"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=errors,
    ) as bar:
        task = bar.add_task("episodes", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _described(
    methods: Sequence[MethodRequest], background: Background, trace: str, grid: Grid
) -> list[MethodInfo]:
    judged_s = (grid.start_s, grid.end_s + 2 * grid.limit_s)
    cluster = background.cluster
    return [method.described(cluster, grid.partition, trace, judged_s) for method in methods]


def _command(args: argparse.Namespace, partition: str) -> list[str]:
    """The command line, with every option that the figures depend on."""
    words = {
        "--trace": args.trace,
        "--cluster": args.cluster,
        "--methods": ",".join(args.methods),
        "--models": args.models,
        "--start": datetime.fromtimestamp(args.start, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        "--every": f"{args.every}s",
        "--episodes": args.episodes,
        "--nodes": ",".join(map(str, args.nodes)),
        "--limit": f"{args.limit}s",
        "--partition": partition,
        "--warm-up": args.warm_up,
        "--penalties": ",".join(
            f"{each.interruption:g}:{each.overlap:g}" for each in args.penalties
        ),
        "--futures": args.futures,
        "--seed": args.seed,
        "--out": args.out,
    }
    return [
        "mirage",
        "evaluate",
        *(str(part) for word in words.items() if word[1] is not None for part in word),
    ]


# --- what is shown
# ---------------------------------------------------------------------------------------------------


def _show(args: argparse.Namespace, comparison: Comparison, found: Json) -> None:
    if args.json:
        shown = ("schema", "headline", "situations", "dropped", "summary", "differences")
        print(json.dumps({"out": str(args.out)} | {key: found[key] for key in shown}, indent=1))
        return
    from mirage.provision.evaluation.report.words import headline, left_out

    for group in comparison.groups:
        for penalties in args.penalties:
            console.print(_table(comparison, group.nodes, penalties))
    for words in left_out(comparison.dropped):
        console.print(escape(words))
    console.print(f"[bold]{escape(headline(comparison))}.[/]")
    console.print(f"{escape(str(args.out))}: report.html, results.json, episodes.csv")


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
