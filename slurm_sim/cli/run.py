"""`slurm-sim run`: simulates jobs on a cluster and writes when each started and ended."""

from __future__ import annotations

import argparse
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.markup import escape
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from slurm_sim.cli import engine
from slurm_sim.cli.inputs import (
    add_cluster_arguments,
    add_engine_arguments,
    add_job_arguments,
    errors,
    load_cluster,
    load_jobs,
    show_notes,
)
from slurm_sim.clusters.values import compress_hosts
from slurm_sim.jobfile.jobs import MISSING, Jobs
from slurm_sim.jobfile.prepare import SimulationInput, prepare
from slurm_sim.ranges import LAST_S
from slurm_sim.results import check_format, write_results
from slurm_sim.traces.errors import TraceError, refuse_overwriting

ALWAYS = ("job_id", "submit_s", "start_s", "end_s")
MORE = (
    *("state", "nodes", "timelimit_s", "partition", "user", "eligible_s", "wait_s", "queued_s"),
    *("scheduler", "reason", "nodelist"),
)
SHOWN = 5
"""Jobs that never started and are named: at most this many."""
WAIT_FOR_NODES = {"None", "Priority", "ReqNodeNotAvail", "Resources"}
"""Reasons of jobs that more nodes might help."""
KWH_J = 3_600_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    jobs = parser.add_argument_group("jobs")
    source = jobs.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--jobs", type=Path, metavar="FILE", help="table of jobs: .csv, .csv.gz or .parquet"
    )
    source.add_argument(
        "--trace", type=Path, metavar="FILE", help="trace of jobs, from `mirage trace import`"
    )
    add_job_arguments(jobs)
    add_cluster_arguments(parser, conf=True)
    simulation = parser.add_argument_group("simulation")
    simulation.add_argument(
        "--until", type=int, metavar="S", help="end of the simulation, in seconds of the jobs' time"
    )
    add_engine_arguments(simulation)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="FILE",
        help="table of results: .csv, .csv.gz or .parquet",
    )
    output.add_argument(
        "--columns",
        default="",
        metavar="COLUMN,...",
        help=f"further columns of the results: `all`, or some of {', '.join(MORE)}",
        type=_columns,
    )
    output.add_argument(
        "--json", action="store_true", help="summary as JSON, for programs (docs/slurm-sim.md)"
    )


def run(args: argparse.Namespace) -> int:
    check_format(args.out)
    refuse_overwriting(args.out, args.jobs, args.trace)
    cluster, notes = load_cluster(args)
    show_notes(notes)
    jobs, started_s = load_jobs(args)
    ready, notes = prepare(cluster, jobs, started_s, args.skip_impossible, args.strict)
    show_notes(notes)
    if args.until is not None and args.until < started_s:
        raise TraceError(
            "--until", f"a time from slurmctld's start on ({started_s})", found=str(args.until)
        )
    if args.until is not None and args.until > LAST_S:
        raise TraceError("--until", f"a time up to {LAST_S}", found=str(args.until))
    simulator = engine.make(ready)
    with _progress() as progress:
        engine.run(simulator, ready, args.until, progress)
    found = engine.outcome(simulator, ready)
    write_results(_rows(args.columns, simulator, ready, found), args.out)
    summary = _summary(simulator, ready, found, args)
    if args.json:
        print(json.dumps(summary, indent=2))  # noqa: T201
    else:
        _report(summary, len(ready.cluster.nodes))
    return 0


def _columns(text: str) -> tuple[str, ...]:
    names = (
        MORE if text == "all" else tuple(filter(None, (name.strip() for name in text.split(","))))
    )
    if unknown := [name for name in names if name not in MORE]:
        raise argparse.ArgumentTypeError(
            f"unknown: {', '.join(unknown)}; expected `all` or some of {','.join(MORE)}"
        )
    return tuple(name for name in MORE if name in names)


@contextmanager
def _progress() -> Iterator[Callable[[float], None] | None]:
    """A bar, on a terminal."""
    if not errors.is_terminal:
        yield None
        return
    shown = (TextColumn("submissions"), BarColumn(), TaskProgressColumn(), TimeElapsedColumn())
    with Progress(*shown, console=errors, transient=True) as bar:
        task = bar.add_task("", total=1.0)
        yield lambda share: bar.update(task, completed=share)


def _rows(
    more: tuple[str, ...], simulator: Any, ready: SimulationInput, found: engine.RunOutcome
) -> dict[str, Any]:
    jobs = ready.jobs
    submit_s = jobs.numbers("submit_s")
    columns: dict[str, Callable[[], Any]] = {
        "job_id": lambda: jobs.labels,
        "submit_s": lambda: submit_s,
        "start_s": lambda: _known(found.start_s),
        "end_s": lambda: _known(found.end_s),
        "state": lambda: found.state,
        "nodes": lambda: jobs.numbers("nodes"),
        "timelimit_s": lambda: _known(jobs.numbers("timelimit_s")),
        "partition": lambda: engine.partitions(simulator, ready, found),
        "user": lambda: _or(jobs.texts("user"), "user"),
        "eligible_s": lambda: _known(found.eligible_s),
        "wait_s": lambda: _difference(found.start_s, submit_s),
        "queued_s": lambda: _difference(found.start_s, found.eligible_s),
        "scheduler": lambda: found.scheduler,
        "reason": lambda: found.reason,
        "nodelist": lambda: engine.node_lists(simulator, ready),
    }
    return {name: columns[name]() for name in (*ALWAYS, *more)}


def _known(values: Any) -> Any:
    """Int64, with nothing where it is missing; int64 if all is there."""
    missing = values == MISSING
    return pd.arrays.IntegerArray(values, missing) if missing.any() else values


def _difference(values: Any, since: Any) -> Any:
    return _known(np.where((values == MISSING) | (since == MISSING), MISSING, values - since))


def _or(texts: Any, otherwise: str) -> Any:
    return np.where(texts == "", otherwise, texts)


def _summary(
    simulator: Any, ready: SimulationInput, found: engine.RunOutcome, args: argparse.Namespace
) -> dict[str, Any]:
    """What became of the jobs and nodes as a whole (docs/slurm-sim.md)."""
    nodes = ready.cluster.nodes
    whole = args.until is None
    return {
        "out": str(args.out),
        "jobs": len(ready.jobs),
        "states": dict(
            sorted(Counter(state or "not submitted yet" for state in found.state.tolist()).items())
        ),
        "stopped_s": simulator.now_s - ready.shift_s,
        "energy_j": (
            simulator.energy_j() if any(node.idle_w or node.busy_w for node in nodes) else None
        ),
        "nodes_down": [node.name for node in nodes if not simulator.is_up(node.name)],
        "never_start": _listed(ready.jobs, found, (found.state == "PENDING") & whole),
        "never_end": _listed(ready.jobs, found, (found.state == "RUNNING") & whole),
    }


def _listed(jobs: Jobs, found: engine.RunOutcome, which: Any) -> dict[str, Any]:
    """Of the jobs of a mask how many they are, for each reason, and the first with theirs."""
    rows = np.flatnonzero(which)
    return {
        "jobs": int(rows.size),
        "reasons": dict(
            sorted(Counter(str(reason).split(" ")[0] for reason in found.reason[rows]).items())
        ),
        "first": {str(jobs.labels[row]): found.reason[row] for row in rows[:SHOWN]},
    }


def _report(summary: dict[str, Any], node_count: int) -> None:
    """What a user must know of jobs that did not run to their end, and one line on the whole."""
    states = ", ".join(f"{count} {state}" for state, count in summary["states"].items())
    errors.print(f"{summary['jobs']} jobs: {states}; {escape(summary['out'])}")
    if (energy_j := summary["energy_j"]) is not None:
        errors.print(f"energy: {energy_j / KWH_J:,.3f} kWh until {summary['stopped_s']} s")
    stuck, endless, down = summary["never_start"], summary["never_end"], summary["nodes_down"]
    if stuck["jobs"]:
        counted = ", ".join(f"{count} {reason}" for reason, count in stuck["reasons"].items())
        named = ", ".join(f"{job}: {reason}" for job, reason in stuck["first"].items())
        more = ", ..." if stuck["jobs"] > SHOWN else ""
        errors.print(
            f"warning: {stuck['jobs']} jobs never start ({counted}): job {escape(named)}{more}"
        )
    if down and WAIT_FOR_NODES & set(stuck["reasons"]):
        many = f"all {node_count}" if len(down) == node_count else f"{len(down)} of {node_count}"
        why = (
            f"{many} nodes are down or drained at the end ({compress_hosts(down)}), and jobs wait"
            " for nodes"
        )
        show_notes([f"{why}; a node_change RESUME brings nodes back (docs/clusters.md)"], "warning")
    if endless["jobs"]:
        named = ", ".join(endless["first"])
        errors.print(
            f"warning: {endless['jobs']} jobs have neither a run time nor a limit and never end:"
            f" {named}"
        )
