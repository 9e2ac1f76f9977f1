"""`slurm-sim compare`: two results, or a result and reality."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from slurm_sim.cli.arguments import positive
from slurm_sim.cli.inputs import show_notes
from slurm_sim.jobfile.jobs import read_jobs
from slurm_sim.results import WITHIN_S, Results, compare_results, compared, nodes_in, read_results
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.output import output_folder

console = Console(highlight=False, emoji=False)
if not console.is_terminal:
    console.width = max(console.width, 130)  # no terminal, no edge to wrap at

ROWS = (
    ("makespan", ("makespan_s",), "s", 0),
    ("mean completion time (submit to end)", ("completion_s",), "s", 1),
    ("mean wait (submit to start)", ("wait_s", "mean"), "s", 1),
    *((f"wait, {percent} %", ("wait_s", f"p{percent}"), "s", 1) for percent in (50, 90, 95, 99)),
    ("mean bounded slowdown", ("bounded_slowdown",), "", 2),
    ("node-hours", ("node_hours",), "", 1),
    ("utilisation", ("utilisation",), "", 4),
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    results = parser.add_argument_group("results")
    results.add_argument(
        "a",
        metavar="A",
        type=Path,
        help="results of `slurm-sim run`, a replay's actual.csv, or a trace",
    )
    results.add_argument("b", metavar="B", type=Path, help="results to hold against A, of any kind")
    results.add_argument(
        "--jobs",
        type=Path,
        metavar="FILE",
        help="table of jobs with their nodes, if neither A nor B has them",
    )
    results.add_argument(
        "--nodes",
        type=positive,
        metavar="N",
        help="number of nodes of the cluster (default: the most that were busy at once)",
    )
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", type=Path, metavar="DIR", help="folder for compare.json and compare.png"
    )
    output.add_argument(
        "--json", action="store_true", help="figures as JSON, for programs (docs/slurm-sim.md)"
    )


def run(args: argparse.Namespace) -> int:
    a, b = read_results(args.a), read_results(args.b)
    nodes_of = None
    if args.jobs is not None:
        jobs = read_jobs(args.jobs)
        nodes_of = dict(zip(map(str, jobs.labels), map(float, jobs.numbers("nodes")), strict=True))
    figures = compare_results(a, b, nodes_of, args.nodes)
    if not figures["jobs"]:
        why = "; ".join(_left_out(figures["left_out"])) or "both are empty"
        expected = f"jobs that started and ended in both, matched by job_id: {why}"
        raise TraceError(f"A ({args.a}) and B ({args.b})", expected, found="none")
    figures |= {"files": {"a": str(args.a), "b": str(args.b)}}
    made = _save(figures, a, b, nodes_of, args) if args.out else []
    if args.json:
        console.file.write(_json(figures))
        return 0
    _show(figures)
    for path in made:
        console.print(escape(str(path)))
    _remark(figures, args.jobs)
    return 0


def _remark(figures: dict[str, Any], jobs: Path | None) -> None:
    if differ := figures["difference"]["submissions_differ"]:
        show_notes([f"{differ} jobs were not submitted at the same time in both"])
    unknown, differing = figures["nodes"]["unknown"], figures["nodes"]["differ"]
    if unknown["jobs"]:
        where = f"A, B or --jobs {jobs}" if jobs else "A or B; give --jobs"
        show_notes(
            [
                f"node-hours and utilisation need the nodes of every job: {_which(unknown)} have"
                f" none in {where}"
            ]
        )
    if differing["jobs"]:
        whose = "each result counts with its own, else with those of --jobs, else with the other's"
        show_notes([f"{_which(differing)} have other nodes in A than in B: {whose}"])
    busy, nodes = (
        max(figures[each]["busy_nodes_max"] for each in ("a", "b")),
        figures["cluster_nodes"],
    )
    if busy > nodes:
        why = (
            f"up to {busy:.0f} nodes were busy at once, more than --nodes {nodes:.0f}: the"
            " utilisation is too high"
        )
        what = (
            "give the most nodes that the cluster had (`mirage trace infer` estimates them from a"
            " log)"
        )
        show_notes([f"{why}; {what}"], "warning")


WORDS = {
    "only_in_a": "only in A",
    "only_in_b": "only in B",
    "started_in_neither": "started in neither",
    "started_only_in_a": "started only in A",
    "started_only_in_b": "started only in B",
    "not_ended": "not ended in both",
}


def _left_out(left_out: dict[str, dict[str, Any]]) -> list[str]:
    """One for each reason: how many jobs, and which."""
    return [_which(found, WORDS[reason]) for reason, found in left_out.items() if found["jobs"]]


def _which(found: dict[str, Any], what: str = "jobs") -> str:
    more = ", ..." if found["jobs"] > len(found["first"]) else ""
    return f"{found['jobs']} {what} (job {', '.join(found['first'])}{more})"


def _json(figures: dict[str, Any]) -> str:
    return json.dumps(_plain(figures), indent=2) + "\n"


def _plain(value: Any) -> Any:
    """What can't be told is null: JSON has no NaN."""
    if isinstance(value, dict):
        return {name: _plain(each) for name, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _save(
    figures: dict[str, Any],
    a: Results,
    b: Results,
    nodes_of: dict[str, float] | None,
    args: argparse.Namespace,
) -> list[Path]:
    from slurm_sim.cli.picture import save_picture

    in_a, in_b, _ = compared(a, b)
    nodes = nodes_in(in_a, in_b, nodes_of), nodes_in(in_b, in_a, nodes_of)
    names = ("compare.json", "compare.png")
    with output_folder(args.out) as folder:
        (folder / names[0]).write_text(_json(figures))
        save_picture(in_a, in_b, nodes, ("A", "B"), folder / names[1])
    return [args.out / name for name in names]


def _show(figures: dict[str, Any]) -> None:
    console.print(f"{figures['jobs']} jobs started and ended in both: all figures are over these")
    for line in _left_out(figures["left_out"]):
        console.print(f"left out: {escape(line)}")
    for key in ("a", "b"):
        console.print(f"{key.upper()}: {escape(figures['files'][key])}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("", "A", "B", "B to A"):
        table.add_column(name, justify="right" if name else "left")
    for name, keys, unit, digits in ROWS:
        of_a, of_b = (_at(figures[each], keys) for each in ("a", "b"))
        change = (of_b - of_a) / of_a if of_a else float("nan")
        table.add_row(
            name,
            _n(of_a, digits, unit),
            _n(of_b, digits, unit),
            _n(100 * change, 3, "%", sign=True),
        )
    console.print(table)
    difference, start = figures["difference"], figures["start"]
    ratio, jobs = _n(difference["completion_ratio"], 5), difference["completion_ratio_jobs"]
    some = f" (of the {jobs} jobs that took time)" if jobs < figures["jobs"] else ""
    console.print(f"geometric mean of the ratios of completion times: {ratio}{some}")
    ratio, jobs = _n(difference["wait_ratio"], 5), difference["wait_ratio_jobs"]
    in_one = f"{difference['waited_in_one_jobs']} waited in one only"
    some = f" (of the {jobs} jobs that waited in both; {in_one})" if jobs < figures["jobs"] else ""
    console.print(f"geometric mean of the ratios of waits: {ratio}{some}")
    console.print(
        f"starts: mean difference {_n(start['mean_s'], 2, 's')}, mean absolute"
        f" {_n(start['mean_absolute_s'], 2, 's')}, largest {_n(start['max_absolute_s'], 0, 's')}"
    )
    shares = ", ".join(
        f"{_n(100 * start[f'within_{seconds}_s'], 1, '%')}"
        f" {f'within {seconds} s' if seconds else 'equal'}"
        for seconds in WITHIN_S
    )
    console.print(f"starts: {shares}")
    if math.isfinite(figures["cluster_nodes"]):
        console.print(f"utilisation is of {figures['cluster_nodes']:,.0f} nodes")


def _at(figures: dict[str, Any], keys: tuple[str, ...]) -> float:
    value: Any = figures
    for key in keys:
        value = value[key]
    return float(value)


def _n(value: float, digits: int = 1, unit: str = "", *, sign: bool = False) -> str:
    if not math.isfinite(value):
        return "-"
    return f"{value:{'+' if sign else ''},.{digits}f}" + (f" {unit}" if unit else "")
