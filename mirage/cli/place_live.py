"""`mirage place advise`, `mirage place run`: live GPU jobs (docs/placement-live.md)."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mirage.chain.durations import parse_duration
from mirage.domain import ActingMode
from mirage.errors import InputError
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from mirage.placement.advice import Move, Terms
    from mirage.placement.live_state import Assumptions, LiveState

PAUSE_S = 180.0
"""Assumed before the first measured move: Slurm starts a requeued job after two minutes."""


def add_advise(parser: argparse.ArgumentParser) -> None:
    """Options of `mirage place advise`."""
    _add_network(parser)
    _add_terms(parser)
    parser.add_argument(
        "--opted-in",
        action="store_true",
        help="only moves of jobs whose owners allow them, as `mirage place run` would take",
    )
    parser.add_argument("--json", action="store_true", help="result as JSON")
    parser.add_argument(
        "--picture", type=Path, metavar="F.svg", help="file for a picture of the network"
    )


def advise(args: argparse.Namespace) -> int:
    """Prints throughput now and after each move; does nothing."""
    networkx_or_error()
    from mirage.config import AdapterConfig
    from mirage.placement.advice import advise as find_moves
    from mirage.placement.live_network import read_network
    from mirage.placement.live_state import read_state
    from mirage.slurm.commands import CommandCluster
    from mirage.slurm.runner import Runner

    runner = Runner(timeout_s=AdapterConfig().timeout_s)
    network = read_network(args.topology, runner)
    state = read_state(CommandCluster(runner), runner, network, assumptions(args))
    moves = find_moves(state, replace(terms(args, PAUSE_S), only_opted_in=args.opted_in))
    if args.picture:
        from mirage.placement.picture import save_picture

        names = [f"job {each.job.job_id}" for each in state.jobs]
        save_picture(args.picture, state.topology, state.assigned, names)
    print(json.dumps(as_json(state, moves), indent=2) if args.json else in_words(state, moves))
    return 0


def add_run(parser: argparse.ArgumentParser) -> None:
    """Options of `mirage place run`."""
    service = parser.add_argument_group("service")
    service.add_argument(
        "--mode",
        choices=[mode.value for mode in ActingMode],
        default=ActingMode.OBSERVE.value,
        help=(
            "what it may do. observe: write its journal; advise: print too; enforce: move jobs"
            " (default: %(default)s)"
        ),
    )
    service.add_argument(
        "--all-users",
        action="store_true",
        help="jobs of all users, as Slurm's Operator (default: your own)",
    )
    service.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=(
            "configuration, as TOML: lists and disable file of [acting], and [cluster] (default: the"
            " agent's)"
        ),
    )
    service.add_argument(
        "--state",
        type=Path,
        metavar="DIR",
        help="folder of the journal (default: ~/.local/state/mirage/place)",
    )
    service.add_argument(
        "--once", action="store_true", help="one decision; ends when its move is over"
    )
    _add_pace(service)
    _add_network(parser)
    _add_terms(parser)


def _add_pace(service: argparse._ArgumentGroup) -> None:
    service.add_argument(
        "--every",
        type=_duration,
        default=300,
        metavar="D",
        help="time between two decisions (default 5min)",
    )
    service.add_argument(
        "--jobs-per-hour",
        type=positive,
        default=4,
        metavar="N",
        help="jobs that are moved in an hour at most (default %(default)s)",
    )
    service.add_argument(
        "--grace",
        type=_duration,
        default=600,
        metavar="D",
        help="time from the signal to the job's requeue; later it stays (default 10min)",
    )
    service.add_argument(
        "--patience",
        type=_duration,
        default=300,
        metavar="D",
        help="time that a requeued job waits for its nodes; then it may start anywhere (default 5min)",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM; with --once until its moves are over."""
    networkx_or_error()
    from mirage.cli.place_service import serve

    return serve(args)


def networkx_or_error() -> None:
    """Raises InputError where NetworkX is missing."""
    try:
        import networkx  # noqa: F401
    except ImportError as error:
        raise InputError(f"this needs networkx ({error}): pip install networkx.") from error


def _add_network(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("network and jobs")
    group.add_argument(
        "--topology",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help=(
            "file with topology.conf, the output of `scontrol show topology`, or of `nvidia-smi"
            " topo -m`; may be repeated (default: what Slurm shows)"
        ),
    )
    group.add_argument(
        "--network",
        default="resnet-50",
        metavar="NAME",
        help="network that jobs train whose tag names none (default %(default)s)",
    )
    group.add_argument(
        "--minibatch",
        type=positive,
        default=64,
        metavar="N",
        help="their minibatch on one GPU, examples (default %(default)s)",
    )
    group.add_argument(
        "--gpu-tflops",
        type=_above_zero,
        default=10.6,
        metavar="X",
        help="peak speed of one GPU, TFLOPS (default %(default)s, a P100)",
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what a move has to bring")
    group.add_argument(
        "--horizon",
        type=_duration,
        default=4 * 3600,
        metavar="D",
        help="time for which a gain counts, unless the job's limit is sooner (default 4h)",
    )
    group.add_argument(
        "--pause",
        type=_duration,
        metavar="D",
        help=(
            "time without progress that a move costs (default: median of the moves so far, 3min"
            " before the first)"
        ),
    )
    group.add_argument(
        "--most-moves",
        type=positive,
        default=5,
        metavar="N",
        help="moves that are looked for (default %(default)s)",
    )


def _above_zero(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < 1e6:
        raise argparse.ArgumentTypeError(f"expected a number above 0, got {text!r}")
    return value


def _duration(text: str) -> int:
    try:
        return int(text) if text.isdecimal() else parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected seconds, or a duration as 90s, 10min, 2h; got {text!r}"
        ) from error


def assumptions(args: argparse.Namespace) -> Assumptions:
    """What the command line says of jobs that do not say it."""
    from mirage.placement.live_state import Assumptions
    from mirage.placement.opt_in import find_profile
    from mirage.placement.speed import SpeedModel

    return Assumptions(
        profile=find_profile(args.network),
        minibatch=args.minibatch,
        # A training step computes a backward pass too, about twice the forward one.
        model=SpeedModel(gpu_flops=args.gpu_tflops * 1e12, backward_factor=3.0),
    )


def terms(args: argparse.Namespace, measured_s: float) -> Terms:
    """``measured_s``: the pause of a move, unless the command line gives one."""
    from mirage.placement.advice import Terms

    return Terms(
        pause_s=measured_s if args.pause is None else float(args.pause),
        horizon_s=float(args.horizon),
        most_moves=args.most_moves,
    )


def in_words(state: LiveState, moves: Sequence[Move]) -> str:
    """What `mirage place advise` prints."""
    from mirage.placement.advice import progress

    now = progress(state, state.assigned)
    held = int(state.assigned.sum())
    lines = [
        f"{len(state.rooms)} nodes with {len(state.topology)} GPUs, {held} in use;"
        f" network: {state.topology.source}",
        *(f"note: {note}" for note in state.notes),
        *_table(state, now),
        f"throughput now: {now.sum():.2f} of {held} GPUs",
    ]
    for number, move in enumerate(moves, start=1):
        lines += _move_words(state, number, move)
    if not moves:
        lines.append("no move is worth its price" if held else "no GPU job runs")
    return "\n".join(lines)


def _table(state: LiveState, now: Any) -> list[str]:
    rows = []
    racks = state.topology.racks(state.assigned)
    for row, each in enumerate(state.jobs):
        where = _nodes(share.node for share in each.shares)
        spread = f" in {racks[row]} racks" if racks[row] > 1 else ""
        why = f"stays: {each.obstacle}" if each.obstacle else ""
        why = why or ("" if each.opt_in else "not opted in")
        job = each.job
        rows.append(
            (str(job.job_id), job.user, str(job.gpus), f"{now[row]:.2f}", where + spread, why)
        )
    for job in state.waiting:
        rows.append((str(job.job_id), job.user, str(job.gpus), "-", "waits", job.reason))
    note = "NOTE" if any(row[-1] for row in rows) else ""
    rows.insert(0, ("JOB", "USER", "GPUS", "THROUGHPUT", "NODES", note))
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    padded = (
        "  ".join(word.ljust(width) for word, width in zip(row, widths, strict=True))
        for row in rows
    )
    return [line.rstrip() for line in padded]


def _nodes(names: Iterable[str]) -> str:
    """In the order of their numbers: n2 before n10."""
    order = sorted(names, key=lambda name: re.sub(r"\d+", lambda digits: digits[0].zfill(9), name))
    return ",".join(order)


def _move_words(state: LiveState, number: int, move: Move) -> list[str]:
    where = " and ".join(
        f"job {each.job_id} ({each.user}) from {_nodes(each.from_nodes)} to"
        f" {_nodes(each.to_nodes)}" + ("" if each.has_opted_in else ", if its owner opts in")
        for each in move.relocations
    )
    total = float(move.after.sum())
    lines = [
        f"move {number}: {where}",
        f"  throughput {move.before.sum():.2f} -> {total:.2f}"
        f" ({move.gain:+.2f}, {100 * move.gain / move.before.sum():+.0f} %)",
    ]
    change = move.after - move.before
    for words, rows in (("gains", change > 5e-3), ("loses", change < -5e-3)):
        if rows.any():
            named = ", ".join(
                f"job {state.jobs[row].job.job_id} {change[row]:+.2f}" for row in rows.nonzero()[0]
            )
            lines.append(f"  {words}: {named}")
    if move.starts:
        begun = ", ".join(
            f"job {each.job.job_id} ({each.job.user}, {each.job.gpus} GPUs) on"
            f" {','.join(each.nodes)}"
            for each in move.starts
        )
        lines.append(f"  makes room for: {begun}")
    payers = ", ".join(f"job {each.job_id}" for each in move.relocations)
    lines.append(
        f"  price: {payers} without progress for a while, {move.price_gpu_s:.0f} GPU seconds;"
        f" worth {move.value_gpu_s + move.price_gpu_s:.0f} GPU seconds"
    )
    return lines


def as_json(state: LiveState, moves: Sequence[Move]) -> dict[str, Any]:
    """What `mirage place advise --json` prints."""
    from mirage.placement.advice import progress

    now = progress(state, state.assigned)
    jobs = [
        {
            "job_id": each.job.job_id,
            "user": each.job.user,
            "gpus": each.job.gpus,
            "nodes": [share.node for share in each.shares],
            "throughput": round(float(now[row]), 4),
            "opted_in": each.opt_in is not None,
            "obstacle": each.obstacle,
        }
        for row, each in enumerate(state.jobs)
    ]
    return {
        "at": state.at_s,
        "topology": state.topology.source,
        "gpus": len(state.topology),
        "throughput": round(float(now.sum()), 4),
        "jobs": jobs,
        "waiting": [{"job_id": job.job_id, "gpus": job.gpus} for job in state.waiting],
        "moves": [move_json(state, move) for move in moves],
        "notes": list(state.notes),
    }


def move_json(state: LiveState, move: Move) -> dict[str, Any]:
    """A move, as `as_json` and the journal have it."""
    change = move.after - move.before
    return {
        "jobs": [
            {
                "job_id": each.job_id,
                "user": each.user,
                "from": list(each.from_nodes),
                "to": list(each.to_nodes),
                "opted_in": each.has_opted_in,
            }
            for each in move.relocations
        ],
        "throughput": round(float(move.after.sum()), 4),
        "gain": round(move.gain, 4),
        "change": {
            str(each.job.job_id): round(float(change[row]), 4)
            for row, each in enumerate(state.jobs)
            if abs(change[row]) > 1e-9
        },
        "makes_room_for": [
            {"job_id": each.job.job_id, "gpus": each.job.gpus, "nodes": list(each.nodes)}
            for each in move.starts
        ],
        "price_gpu_s": round(move.price_gpu_s, 1),
        "value_gpu_s": round(move.value_gpu_s, 1),
    }
