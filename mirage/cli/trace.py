"""`mirage trace import|stats|infer|fit|synth|check`: job histories and synthetic workloads
(docs/traces.md).
"""

from __future__ import annotations

import argparse
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo

from rich.markup import escape

from mirage.cli.groups import Verb, add_verbs
from mirage.cli.table import console
from mirage.cli.trace_text import (
    cleaning_table,
    make_table,
    number,
    print_inferred,
    print_stats,
    too_many_busy,
)
from mirage.errors import InputError
from slurm_sim.cli.arguments import amount, node_count, positive, whole_number

if TYPE_CHECKING:  # pandas and scipy take a second to import: only inside the verbs
    from slurm_sim.config import ClusterConfig
    from slurm_sim.traces import Trace
    from slurm_sim.traces.cleaning import CleaningReport
    from slurm_sim.traces.inference import Inference
    from slurm_sim.traces.reading import TraceImport

Json = dict[str, Any]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(parser, VERBS)


def run(args: argparse.Namespace) -> int:
    from slurm_sim.traces import TraceError

    try:
        args.act(args)
    except TraceError as error:
        raise InputError(str(error)) from error
    except KeyboardInterrupt:
        print(f"mirage trace {args.subverb}: interrupted; no file is half-written", file=sys.stderr)
        return 130
    return 0


# --- import


DEFAULTS = {"column": [], "delimiter": ",", "cpus_per_node": 1, "gpus_per_node": 0}
"""Of options of `import` that are for one source."""


def _flag(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _add_import(parser: argparse.ArgumentParser) -> None:
    _add_import_input(parser)
    parser.set_defaults(**DEFAULTS)
    cleaning = parser.add_argument_group("cleaning")
    for name, choices, words in (
        ("cancelled", ("keep", "drop"), "jobs that were cancelled in the queue"),
        ("overruns", ("keep", "clip"), "jobs that ran longer than their time limit"),
        ("duplicates", ("restarts", "last"), "several rows with one job id"),
        ("unstarted", ("drop", "keep"), "jobs that are still pending at the end"),
    ):
        cleaning.add_argument(
            f"--{name}",
            choices=choices,
            default=choices[0],
            help=f"what becomes of {words} (default %(default)s)",
        )
    cleaning.add_argument(
        "--nodes", type=node_count, help="nodes of the cluster: wider jobs are dropped"
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", required=True, type=Path, help="file for the trace: .csv, .csv.gz or .parquet"
    )
    output.add_argument("--json", action="store_true", help="report as JSON")


def _add_import_input(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("input")
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--sacct",
        metavar="FILE",
        help="output of `sacct -X -P -D` with its header, or of `sacct --json`",
    )
    source.add_argument("--swf", metavar="FILE", help="log in the Standard Workload Format")
    source.add_argument(
        "--mirage-log", metavar="FILE", help="log in the format of the published Mirage logs"
    )
    source.add_argument("--csv", metavar="FILE", help="any CSV file; see --column")
    group.add_argument(
        "--timezone",
        help="zone of times without one (default: UTC; America/Chicago for --mirage-log)",
    )
    group.add_argument(
        "--column",
        action="append",
        metavar="OURS=THEIRS[:min]",
        help="name of a column, for --csv; :min for values in minutes",
    )
    group.add_argument(
        "--delimiter",
        type=_delimiter,
        help="character between fields, for --csv (default %(default)s)",
    )
    group.add_argument(
        "--cpus-per-node",
        type=positive,
        help="processors of a node, for --swf (default %(default)s)",
    )
    group.add_argument(
        "--gpus-per-node", type=int, help="GPUs of a node, for --mirage-log (default %(default)s)"
    )


def _delimiter(text: str) -> str:
    if len(text) != 1 or text in '"\r\n':
        raise argparse.ArgumentTypeError(
            f"expected one character, neither a quote nor a line's end, got {text!r}"
        )
    return text


def _import(args: argparse.Namespace) -> None:
    from slurm_sim.traces import write_trace
    from slurm_sim.traces.cleaning import Rules, clean
    from slurm_sim.traces.errors import refuse_overwriting

    refuse_overwriting(args.out, Path(args.sacct or args.swf or args.mirage_log or args.csv))
    imported = _read_foreign(args)
    rules = Rules(args.nodes, args.cancelled, args.overruns, args.duplicates, args.unstarted)
    trace, report = clean(imported.trace, rules)
    out = str(args.out) if len(trace) else None
    if out:
        write_trace(trace, args.out)
    if args.json:
        record = {
            "out": out,
            "rows": imported.rows,
            "left_out": imported.left_out,
            "notes": imported.notes,
        }
        record["cleaning"] = report.as_dict()
        print(json.dumps(record, indent=2))
    else:
        console.print(cleaning_table(imported, report))
    if not out:
        raise InputError(
            f"{imported.trace.source}: no job is left, nothing was written; {_dropped(report)}"
        )
    if not args.json:
        console.print(f"{len(trace)} jobs: {escape(out)}")


KEPT_BY = {
    "wider than the cluster": "a greater --nodes",
    "cancelled in the queue": "--cancelled keep",
    "never started": "--unstarted keep",
}
"""Rules that drop jobs, and the option that keeps them."""


def _dropped(report: CleaningReport) -> str:
    """Which rules dropped how many jobs."""
    dropped = [found for found in report.findings if found.action == "dropped" and found.jobs]
    rules = (
        f"{found.rule} {found.jobs}"
        + (f" ({KEPT_BY[found.rule]} keeps them)" if found.rule in KEPT_BY else "")
        for found in dropped
    )
    return f"dropped: {', '.join(rules)}"


OF_ONE_SOURCE = {
    "column": "csv",
    "delimiter": "csv",
    "cpus_per_node": "swf",
    "gpus_per_node": "mirage_log",
}
"""Options, and the source that each is for."""


def _read_foreign(args: argparse.Namespace) -> TraceImport:
    from slurm_sim.traces import imports, sacct

    for option, source in OF_ONE_SOURCE.items():
        if getattr(args, source) is None and getattr(args, option) != DEFAULTS[option]:
            raise InputError(f"{_flag(option)}: only for {_flag(source)}; leave it out")
    if args.sacct:
        return sacct.import_sacct(args.sacct, args.timezone)
    if args.swf:
        return imports.import_swf(args.swf, args.cpus_per_node)
    if args.mirage_log:
        return imports.import_mirage_log(
            args.mirage_log, args.timezone or "America/Chicago", args.gpus_per_node
        )
    mapping = {}
    for text in args.column:
        ours, equals, theirs = text.partition("=")
        if not equals:
            raise InputError(f"--column {text}: expected OURS=THEIRS, like submit=SubmitTime")
        mapping[ours] = theirs
    return imports.import_csv(args.csv, mapping, args.timezone, args.delimiter)


# --- stats


def _add_stats(parser: argparse.ArgumentParser) -> None:
    _add_trace(parser)
    _add_timezone(parser, "months and hours")
    parser.add_argument("--nodes", type=node_count, help="nodes of the cluster, for its load")
    parser.add_argument("--out", type=Path, help="folder for stats.json and pictures")
    _add_json(parser)


def _stats(args: argparse.Namespace) -> None:
    from slurm_sim.traces.stats import trace_stats

    trace = _read(args)
    _warn_of_dirt(trace, args.nodes)
    figures = trace_stats(trace, args.timezone, args.nodes)
    made = _save_stats(trace, figures, args) if args.out else []
    if args.json:
        print(json.dumps(figures, indent=2))
        return
    print_stats(figures)
    for path in made:
        console.print(f"Picture: {escape(str(path))}")
    if wrong := too_many_busy(figures["load"]):
        print(f"warning: {wrong}", file=sys.stderr)


def _save_stats(trace: Trace, figures: Json, args: argparse.Namespace) -> list[Path]:
    """stats.json and the pictures, once all of them are made; returns the pictures."""
    from slurm_sim.traces.output import output_folder
    from slurm_sim.traces.plots import save_plots

    with output_folder(args.out) as folder:
        (folder / "stats.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
        pictures = save_plots(trace, figures, folder, args.nodes)
    return [args.out / picture.name for picture in pictures]


# --- infer


def _add_infer(parser: argparse.ArgumentParser) -> None:
    _add_trace(parser)
    parser.add_argument(
        "--out", type=Path, help="file for the trace with inferred dependencies and array throttles"
    )
    parser.add_argument(
        "--out-cluster",
        type=Path,
        metavar="C",
        help="file for a cluster for slurm-sim, .toml: nodes over time, running limit",
    )
    parser.add_argument(
        "--scheduler",
        metavar="S",
        help=(
            "whose scheduler the cluster has: a slurm.conf, a cluster's .toml, or `live`, the Slurm"
            " of this machine (without it: priority/multifactor is assumed)"
        ),
    )
    _add_timezone(parser, "the times shown")
    _add_json(parser)


def _infer(args: argparse.Namespace) -> None:
    from slurm_sim.traces import write_trace
    from slurm_sim.traces.errors import refuse_overwriting
    from slurm_sim.traces.inference import infer, with_dependencies

    if args.out_cluster and args.out_cluster.suffix != ".toml":
        raise InputError(f"--out-cluster {args.out_cluster}: expected a name ending in .toml")
    if args.scheduler and not args.out_cluster:
        raise InputError(
            f"--scheduler {args.scheduler}: is for the cluster; give --out-cluster C.toml too"
        )
    site = _site(args.scheduler) if args.scheduler else None
    if args.out:
        refuse_overwriting(args.out, args.trace)
    trace = _read(args)
    found = infer(trace)
    made = _write_cluster(trace, found, args, site) if args.out_cluster else []
    if args.out:
        write_trace(with_dependencies(trace, found), args.out)
    if args.json:
        print(json.dumps(found.as_dict(), indent=2))
        return
    print_inferred(found.as_dict(), args.timezone)
    for line in made:
        console.print(escape(line))


def _site(source: str) -> ClusterConfig:
    """The cluster whose scheduler counts. Raises InputError, ClusterError."""
    from slurm_sim.clusters import read_cluster
    from slurm_sim.errors import InvalidCluster

    if source == "live":
        from mirage.slurm.runner import Runner
        from mirage.slurm.survey import Survey

        return Survey(Runner()).cluster()
    try:
        return read_cluster(source).cluster
    except InvalidCluster as error:
        raise InputError(f"--scheduler {error}") from error


def _write_cluster(
    trace: Trace, found: Inference, args: argparse.Namespace, site: ClusterConfig | None
) -> list[str]:
    """Writes the cluster that the log lets guess; returns lines for the user."""
    from slurm_sim.clusters import write_toml
    from slurm_sim.traces.guess import WHY_IT_MATTERS, guessed_cluster
    from slurm_sim.traces.output import output_file

    cluster = guessed_cluster(trace, found, site)
    if site is None:
        print(
            f"warning: {WHY_IT_MATTERS}. Give the site's: --scheduler slurm.conf", file=sys.stderr
        )
    with output_file(args.out_cluster) as temporary:
        temporary.write_text(write_toml(cluster), encoding="utf-8")
    lines = [f"{args.out_cluster}: {len(cluster.nodes)} nodes, changes: {len(found.nodes) - 1}"]
    if wide := int((trace.column("nodes") > len(cluster.nodes)).sum()):
        lines.append(
            f"{wide} jobs are wider than that: `slurm-sim run --skip-impossible` leaves them out"
        )
    return lines


# --- fit, synth, check


def _add_fit(parser: argparse.ArgumentParser) -> None:
    _add_trace(parser)
    parser.add_argument("--out", required=True, type=Path, help="file for the model, .toml")
    parser.add_argument("--nodes", required=True, type=node_count, help="nodes of the cluster")
    _add_timezone(parser, "the hours of the week")
    _add_days(parser)
    parser.add_argument("--name", help="name of the model (default: the file's)")
    parser.add_argument("--source", default="", help="origin of the trace")
    parser.add_argument("--licence", default="", help="licence of the trace, and so of the model")


def _fit(args: argparse.Namespace) -> None:
    from slurm_sim.workload import fit

    if args.out.suffix != ".toml":
        raise InputError(f"--out {args.out}: expected a name ending in .toml")
    trace = _between(_read(args), args)
    about = {"name": args.name or args.out.stem, "source": args.source, "licence": args.licence}
    _warn_of_dirt(trace, args.nodes)
    model = fit(trace, args.nodes, timezone=args.timezone, **about)
    model.save(args.out)
    size = args.out.stat().st_size
    console.print(
        f"{escape(str(args.out))}: {size / 1000:.1f} kB, {model.jobs} jobs over {model.days:.0f}"
        f" days, {len(model.cells)} cells, {len(model.classes)} user classes, offered load"
        f" {model.offered_load:.2f}"
    )


MONDAY_S = 345_600
"""1970-01-05 00:00 UTC, the first Monday in Unix time."""


def _from_0(text: str) -> int:
    if (number := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"expected a number from 0, got {text!r}")
    return number


def _add_synth(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--model", required=True, help="a shipped model's name (ls6_a100, ...) or a .toml file"
    )
    parser.add_argument("--days", required=True, type=amount, help="length of the workload in days")
    _add_seed(parser, "all random draws")
    parser.add_argument(
        "--nodes",
        type=node_count,
        help="nodes of the cluster, by which arrivals scale (default: the model's)",
    )
    parser.add_argument(
        "--load", type=amount, default=1.0, help="factor on arrivals (default %(default)s)"
    )
    parser.add_argument(
        "--begin",
        type=_from_0,
        default=MONDAY_S,
        help="begin in Unix seconds (default %(default)s, a Monday)",
    )
    _add_timezone(parser, "the hours of the week")
    parser.add_argument(
        "--out", required=True, type=Path, help="file for the jobs: .csv, .csv.gz or .parquet"
    )


def _synth(args: argparse.Namespace) -> None:
    from slurm_sim.traces import write_trace
    from slurm_sim.traces.table import LAST_TIME_S
    from slurm_sim.workload import generate, hour_of_week, load_model

    if args.begin > LAST_TIME_S:
        raise InputError(f"--begin {args.begin}: expected Unix seconds before the year 2200")
    hour = hour_of_week(args.begin, args.timezone)
    trace = generate(
        load_model(args.model),
        args.seed,
        args.days * 86400,
        args.nodes,
        args.load,
        args.begin,
        hour,
    )
    write_trace(trace, args.out)
    console.print(f"{len(trace)} jobs: {escape(str(args.out))}")


def _add_check(parser: argparse.ArgumentParser) -> None:
    _add_trace(parser)
    parser.add_argument(
        "model", help="a shipped model's name, a .toml file, or a trace of synthetic jobs"
    )
    _add_seed(parser, "the drawn jobs")
    _add_days(parser)
    _add_timezone(parser, "--since and --until")
    _add_json(parser)


def _check(args: argparse.Namespace) -> None:
    from slurm_sim.traces import read_trace
    from slurm_sim.traces.table import FORMATS
    from slurm_sim.workload import compare_workloads, generate, load_model

    trace = _between(_read(args), args)
    if args.model.endswith(FORMATS):
        drawn = read_trace(args.model)
    else:
        span = float(trace.column("submit").max() - trace.column("submit").min())
        drawn = generate(load_model(args.model), args.seed, max(span, 86400.0))
    distances = compare_workloads(trace, drawn)
    if args.json:
        print(json.dumps({"distances": [each.as_dict() for each in distances]}, indent=2))
        return
    title = (
        f"{len(trace)} jobs against {len(drawn)} synthetic ones; floor: the trace's halves, months:"
        " its 28-day parts"
    )
    table = make_table("quantity", "KS", "floor", "months", "Wasserstein", "floor", title=title)
    for each in distances:
        shown = (each.ks, each.floor_ks, each.months_ks, each.wasserstein, each.floor_wasserstein)
        table.add_row(each.quantity, *(number(value, 3) for value in shown))
    console.print(table)


# --- shared


def _add_trace(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("trace", type=Path, metavar="T", help="a trace (.csv, .csv.gz, .parquet)")


def _add_timezone(parser: argparse.ArgumentParser, of: str) -> None:
    about = f"zone of {of} (default %(default)s)"
    parser.add_argument("--timezone", default="UTC", type=_zone, help=about)


def _add_days(parser: argparse.ArgumentParser) -> None:
    about = "only jobs submitted from this day on, like 2022-11-01"
    parser.add_argument("--since", type=_date, help=about)
    parser.add_argument("--until", type=_date, help="only jobs submitted before this day")


def _add_seed(parser: argparse.ArgumentParser, of: str) -> None:
    about = f"seed of {of} (default %(default)s)"
    parser.add_argument("--seed", type=_from_0, default=1, help=about)


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/traces.md)")


def _read(args: argparse.Namespace) -> Trace:
    from slurm_sim.traces import read_trace

    trace = read_trace(args.trace)
    if not len(trace):
        raise InputError(f"{args.trace}: no jobs in it")
    return trace


def _warn_of_dirt(trace: Trace, nodes: int | None) -> None:
    """Of jobs that `import` would not leave as they are."""
    from slurm_sim.traces.cleaning import Rules, clean

    for found in clean(trace, Rules(nodes=nodes, unstarted="keep"))[1].findings:
        if found.jobs and found.action in ("dropped", "renamed", "merged"):
            jobs = f"{found.jobs} jobs, as {', '.join(found.examples)}"
            print(
                f"warning: {found.rule}: {jobs}: {found.detail}; `mirage trace import` mends it",
                file=sys.stderr,
            )


def _between(trace: Trace, args: argparse.Namespace) -> Trace:
    zone = ZoneInfo(args.timezone)
    submit = trace.column("submit")
    inside = submit >= 0
    if args.since:
        inside &= submit >= args.since.replace(tzinfo=zone).timestamp()
    if args.until:
        inside &= submit < args.until.replace(tzinfo=zone).timestamp()
    if not inside.any():
        raise InputError(f"{args.trace}: no jobs from --since to --until")
    return trace.pick(inside)


def _date(text: str) -> datetime:
    try:
        return datetime.strptime(text, "%Y-%m-%d")
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"expected a day like 2022-11-01, got {text!r}") from error


def _zone(text: str) -> str:
    try:
        return ZoneInfo(text).key
    except (ValueError, OSError, KeyError) as error:
        raise argparse.ArgumentTypeError(
            f"expected a name like America/Chicago or UTC, got {text!r}"
        ) from error


_INFERS = "what a log hides: dependencies, running limits, nodes over time, array throttles"
VERBS: tuple[Verb, ...] = (
    (
        "import",
        _add_import,
        _import,
        "a log of another format, cleaned, and what was wrong with it",
    ),
    ("stats", _add_stats, _stats, "waits, load, sizes, limits and users, with pictures"),
    ("infer", _add_infer, _infer, _INFERS),
    ("fit", _add_fit, _fit, "fit a synthetic workload to a trace"),
    ("synth", _add_synth, _synth, "draw jobs from a synthetic workload"),
    ("check", _add_check, _check, "how near a synthetic workload is to a trace"),
)
