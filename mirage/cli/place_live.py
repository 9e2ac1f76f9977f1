"""`mirage place advise`, `mirage place run`: live GPU jobs (docs/placement-live.md)."""

from __future__ import annotations

import argparse
import json
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from mirage.cli.groups import needs, seconds
from mirage.config_sources import load, named_file, user_file
from mirage.domain import ActingMode
from mirage.errors import InputError
from mirage.user.service_check import agent_folder
from slurm_sim.cli.arguments import positive

if TYPE_CHECKING:
    from mirage.placement.live.advice import Terms
    from mirage.placement.live.state import Assumptions


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
    """Prints where jobs are and which moves help; does nothing."""
    needs("placement", "networkx")
    from mirage.config import AdapterConfig
    from mirage.placement.live.advice import advise as find_moves
    from mirage.placement.live.network import read_network
    from mirage.placement.live.state import read_state
    from mirage.placement.live.words import as_json, in_words
    from mirage.slurm.commands import CommandCluster
    from mirage.slurm.runner import Runner

    runner = Runner(timeout_s=AdapterConfig().timeout_s)
    network = read_network(args.topology, runner)
    state = read_state(CommandCluster(runner), runner, network, _assumptions(args))
    moves = find_moves(state, replace(_terms(args), only_opted_in=args.opted_in))
    if args.picture:
        from mirage.placement.live.picture import save_picture

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
        type=seconds,
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
        type=seconds,
        default=600,
        metavar="D",
        help="time from the signal to the job's requeue; later it stays (default 10min)",
    )
    service.add_argument(
        "--patience",
        type=seconds,
        default=300,
        metavar="D",
        help="time that a requeued job waits for its nodes; then it may start anywhere (default 5min)",
    )


def run(args: argparse.Namespace) -> int:
    """Serves until SIGTERM; with --once until its moves are over."""
    needs("placement", "networkx")
    from mirage.apps.placing import PlacingPlan, serve
    from mirage.placement.live.mover import MoverOptions
    from mirage.placement.live.steps import Patience

    options = MoverOptions(
        mode=ActingMode(args.mode),
        every_s=args.every,
        jobs_per_hour=args.jobs_per_hour,
        patience=Patience(checkpoint_s=args.grace, start_s=args.patience),
    )
    return serve(
        PlacingPlan(
            config=load(named_file(args.config), user_file()).config,
            folder=args.state or agent_folder() / "place",
            disabled=agent_folder() / "disabled",
            options=options,
            topology=args.topology,
            assumed=_assumptions(args),
            terms=_terms(args),
            measures_pause=args.pause is None,
            all_users=args.all_users,
            once=args.once,
            say=partial(print, flush=True),
        )
    )


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
        "--machine",
        choices=("dgx-a100", "dgx-h100", "gh200-nvl32", "mi250", "t4"),
        help=(
            "machine whose public rates the nodes have; with it speeds are shown (default: switches"
            " and shared links only, ranked as four nodes of T4 were measured)"
        ),
    )
    group.add_argument(
        "--rates",
        type=Path,
        action="append",
        default=[],
        metavar="F",
        help="output of all_reduce_perf on nodes of this cluster; replaces a rate; may be repeated",
    )


def _add_terms(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what a move has to bring")
    group.add_argument(
        "--horizon",
        type=seconds,
        default=4 * 3600,
        metavar="D",
        help="time for which a gain counts, unless the job's limit is sooner (default 4h)",
    )
    group.add_argument(
        "--pause",
        type=seconds,
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


def _assumptions(args: argparse.Namespace) -> Assumptions:
    """What the command line says of jobs that do not say it."""
    from mirage.placement.live.law import MACHINES
    from mirage.placement.live.opt_in import find_profile
    from mirage.placement.live.state import Assumptions

    if args.rates and not args.machine:
        raise InputError("--rates: give --machine too, which says how fast one GPU computes")
    return Assumptions(
        profile=find_profile(args.network),
        minibatch=args.minibatch,
        machine=MACHINES[args.machine or "t4"],
        is_named=args.machine is not None,
        rates=tuple(args.rates),
    )


def _terms(args: argparse.Namespace) -> Terms:
    from mirage.apps.placing import PAUSE_S
    from mirage.placement.live.advice import Terms

    return Terms(
        pause_s=PAUSE_S if args.pause is None else float(args.pause),
        horizon_s=float(args.horizon),
        most_moves=args.most_moves,
    )
