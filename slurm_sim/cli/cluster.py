"""`slurm-sim cluster`: a cluster's TOML from a slurm.conf, or from what a live Slurm prints."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.markup import escape

from slurm_sim.cli.inputs import add_params_argument, changed, errors, tell
from slurm_sim.clusters import Loaded, read_cluster, read_live_files, write_toml
from slurm_sim.config import ClusterConfig
from slurm_sim.traces.errors import TraceError, refuse_overwriting
from slurm_sim.traces.output import output_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--slurm-conf", type=Path, metavar="F", help="a slurm.conf; what it includes is read, too"
    )
    source.add_argument(
        "--scontrol",
        type=Path,
        nargs="+",
        metavar="F",
        help=(
            "files with the output of `scontrol show config`, `... node -o` and `... partition -o`,"
            " in any order"
        ),
    )
    parser.add_argument(
        "--sacctmgr",
        type=Path,
        nargs="+",
        default=[],
        metavar="F",
        help="beside either: of `sacctmgr -P show qos` and `sacctmgr -P show assoc tree`",
    )
    add_params_argument(parser)
    parser.add_argument(
        "--out", type=Path, metavar="C", help="the cluster, .toml (default: to the terminal)"
    )


def run(args: argparse.Namespace) -> int:
    if args.out is not None and args.out.suffix != ".toml":
        raise TraceError(f"--out {args.out}", "a name ending in .toml")
    cluster, notes = changed(
        _load(args), args.slurm_params, str(args.slurm_conf or "the live cluster")
    )
    text = write_toml(cluster)
    tell(notes)
    if args.out is None:
        print(text, end="")  # noqa: T201
        return 0
    refuse_overwriting(args.out, args.slurm_conf, *(args.scontrol or ()), *args.sacctmgr)
    with output_file(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    errors.print(escape(f"{_summary(cluster)}: {args.out}"))
    return 0


def _load(args: argparse.Namespace) -> Loaded:
    if args.slurm_conf is None:
        return read_live_files([*args.scontrol, *args.sacctmgr])
    return read_cluster(args.slurm_conf, args.sacctmgr)


def _summary(cluster: ClusterConfig) -> str:
    names = ", ".join(partition.name for partition in cluster.partitions)
    return (
        f"{cluster.name}: {len(cluster.nodes)} nodes, partitions {names}; {len(cluster.qos)} QOS, "
        f"{len(cluster.associations)} associations"
    )
