"""What `run` and `bench` share: options, the cluster, notes on stderr."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from slurm_sim.cli.arguments import node_count, whole_number
from slurm_sim.clusters import (
    SLURM_DEFAULTS,
    ClusterDescription,
    NoteKind,
    params_from,
    read_cluster,
)
from slurm_sim.config import ClusterConfig, whole_nodes
from slurm_sim.jobfile.jobs import Jobs, jobs_of, read_jobs, without_ignored
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.table import Trace, read_trace

STARTED_BEFORE_S = 120
"""slurmctld is up this long before time 0, or before the first job of a trace."""
OF_THE_CLUSTER = ("partition", "qos", "reservation", "constraint")
"""Columns that name parts of a cluster; a plain one (`--nodes`) has none of them."""

errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def add_cluster_arguments(parser: argparse.ArgumentParser, conf: bool) -> None:
    """The cluster; `conf`: also --slurm-conf, which --cluster takes too."""
    group = parser.add_argument_group("cluster")
    cluster = group.add_mutually_exclusive_group(required=True)
    cluster.add_argument(
        "--cluster", type=Path, metavar="FILE", help="the cluster's description: TOML or slurm.conf"
    )
    if conf:
        cluster.add_argument(
            "--slurm-conf", type=Path, metavar="FILE", help="the slurm.conf of a real cluster"
        )
    cluster.add_argument(
        "--nodes",
        type=node_count,
        metavar="N",
        help=(
            "number of nodes of a plain cluster: whole nodes, one partition, priority/basic,"
            " backfill with Slurm's defaults"
        ),
    )
    add_params_argument(group)


def add_params_argument(group: argparse._ArgumentGroup) -> None:
    group.add_argument(
        "--slurm-params",
        default="",
        metavar="NAME=VALUE,...",
        help=(
            "changes of its parameters, in Slurm's names and units:"
            " bf_max_job_test=500,bf_window=2880,PriorityWeightAge=1000"
        ),
    )


def add_job_arguments(group: argparse._ArgumentGroup) -> None:
    """What is done with the jobs of the input."""
    group.add_argument(
        "--skip-impossible",
        action="store_true",
        help="leave out jobs that the cluster could never run",
    )
    group.add_argument(
        "--strict",
        action="store_true",
        help="refuse a dependency on a job that is not submitted before",
    )
    group.add_argument(
        "--ignore",
        default="",
        metavar="COLUMN,...",
        help="columns of the jobs that are not used, such as partition,qos",
    )
    group.add_argument(
        "--trace-priority",
        action="store_true",
        help="priorities as logged in the trace, in place of the simulator's",
    )


def add_engine_arguments(group: argparse._ArgumentGroup) -> None:
    """How it is simulated."""
    group.add_argument(
        "--slurmctld-started-s",
        type=whole_number,
        metavar="S",
        help=(
            "slurmctld's start, from which its timers count, in seconds of the jobs' time"
            f" (default: -{STARTED_BEFORE_S}; for a trace {STARTED_BEFORE_S} s before its first job)"
        ),
    )


def load_cluster(args: argparse.Namespace) -> tuple[ClusterConfig, list[str]]:
    """The cluster and the notes of its reader. Raises InvalidCluster."""
    path = args.cluster or getattr(args, "slurm_conf", None)
    loaded = (
        ClusterDescription(whole_nodes(args.nodes, SLURM_DEFAULTS))
        if path is None
        else read_cluster(path)
    )
    return changed(loaded, args.slurm_params, str(path))


def changed(
    loaded: ClusterDescription, params_text: str, source: str
) -> tuple[ClusterConfig, list[str]]:
    """The cluster with --slurm-params, and what its reader noted; notes on what has no effect are
    only counted.
    """
    params, more = params_from(params_text, loaded.cluster.params)
    shown = [str(note) for note in loaded.notes if note.kind is not NoteKind.NO_EFFECT]
    if rest := len(loaded.notes) - len(shown):
        shown.append(f"{source}: {rest} parameters without effect on scheduling")
    return replace(loaded.cluster, params=params), shown + [
        f"--slurm-params: {note}" for note in more
    ]


def load_jobs(args: argparse.Namespace, trace: Trace | None = None) -> tuple[Jobs, int]:
    """The jobs, and when slurmctld was started. Raises TraceError."""
    if trace is None and args.trace is not None:
        trace = read_trace(args.trace)
    if trace is not None:
        _check_once(trace)
    elif args.trace_priority:
        raise TraceError(
            "--trace-priority", "--trace beside it: the jobs of --jobs have their own priorities"
        )
    jobs = read_jobs(args.jobs) if trace is None else jobs_of(trace, args.trace_priority)
    if args.ignore:
        jobs = without_ignored(
            jobs, filter(None, (name.strip() for name in args.ignore.split(",")))
        )
    if args.nodes is not None:
        jobs = jobs.without(OF_THE_CLUSTER, "the plain cluster of --nodes has none")
    started_s = args.slurmctld_started_s
    if started_s is None:
        first_s = 0 if trace is None or not len(jobs) else int(jobs.numbers("submit_s").min())
        started_s = first_s - STARTED_BEFORE_S
    return jobs, started_s


def _check_once(trace: Trace) -> None:
    again = trace.jobs["job_id"].duplicated().to_numpy(bool)
    if again.any():
        row = int(again.argmax())
        found = f"{trace.jobs['job_id'].iloc[row]} a second time"
        expected = "each id once; `mirage trace import` makes runs of one job jobs of their own"
        raise TraceError(trace.source, expected, found=found, line=trace.line(row), field="job_id")


def show_notes(notes: Iterable[str], kind: str = "note") -> None:
    """Notes, or warnings, for the user, on stderr."""
    for note in notes:
        errors.print(f"{kind}: {escape(note)}")
