"""`slurm-sim cluster`: a cluster's TOML from a slurm.conf, or from what a live Slurm prints."""

from __future__ import annotations

import argparse
from pathlib import Path

from rich.markup import escape

from slurm_sim.cli.inputs import add_params_argument, changed, errors, show_notes
from slurm_sim.clusters import ClusterDescription, read_cluster, read_live_files, write_toml
from slurm_sim.config import ClusterConfig
from slurm_sim.traces.errors import TraceError, refuse_overwriting
from slurm_sim.traces.output import output_file


def add_arguments(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("cluster")
    source = group.add_mutually_exclusive_group(required=True)
    source.add_argument(
        "--slurm-conf",
        type=Path,
        metavar="FILE",
        help="the slurm.conf of the cluster, with the files that it includes",
    )
    source.add_argument(
        "--scontrol",
        type=Path,
        nargs="+",
        metavar="FILE",
        help=(
            "outputs of `scontrol show config`, `scontrol show node -o` and `scontrol show"
            " partition -o`, in any order"
        ),
    )
    group.add_argument(
        "--sacctmgr",
        type=Path,
        nargs="+",
        default=[],
        metavar="FILE",
        help=("outputs of `sacctmgr -P show qos` and `sacctmgr -P show assoc tree`, beside either"),
    )
    add_params_argument(group)
    output = parser.add_argument_group("output")
    output.add_argument(
        "--out", type=Path, metavar="FILE", help="the TOML file (default: to the terminal)"
    )


def run(args: argparse.Namespace) -> int:
    if args.out is not None and args.out.suffix != ".toml":
        raise TraceError(f"--out {args.out}", "a name ending in .toml")
    cluster, notes = changed(
        _load(args), args.slurm_params, str(args.slurm_conf or "the live cluster")
    )
    text = write_toml(cluster)
    show_notes(notes)
    if args.out is None:
        print(text, end="")  # noqa: T201
        return 0
    refuse_overwriting(args.out, args.slurm_conf, *(args.scontrol or ()), *args.sacctmgr)
    with output_file(args.out) as temporary:
        temporary.write_text(text, encoding="utf-8")
    errors.print(escape(f"{_summary(cluster)}: {args.out}"))
    return 0


def _load(args: argparse.Namespace) -> ClusterDescription:
    if args.slurm_conf is None:
        return read_live_files([*args.scontrol, *args.sacctmgr])
    return read_cluster(args.slurm_conf, args.sacctmgr)


def _summary(cluster: ClusterConfig) -> str:
    names = ", ".join(partition.name for partition in cluster.partitions)
    return (
        f"{cluster.name}: {len(cluster.nodes)} nodes, partitions {names}; {len(cluster.qos)} QOS, "
        f"{len(cluster.associations)} associations"
    )
