"""Puts the service of `mirage place run` together."""

from __future__ import annotations

import argparse
import os
import pwd
import time
from dataclasses import replace
from pathlib import Path

from mirage.cli.place_live import PAUSE_S, assumptions, in_words, move_json, terms
from mirage.config_sources import load, named_file, user_file
from mirage.daemon import logs
from mirage.daemon.restraint import Acting, acting_from
from mirage.daemon.scheduler import run_forever
from mirage.daemon.wall_clock import WallClock
from mirage.domain import ActingMode, Job
from mirage.placement.live_network import read_network
from mirage.placement.live_state import LiveState, read_state
from mirage.placement.move_journal import MoveJournal
from mirage.placement.move_steps import Patience
from mirage.placement.mover import Mover, MoverOptions
from mirage.slurm.commands import CommandCluster
from mirage.slurm.job_details import read_details
from mirage.slurm.runner import Runner
from mirage.store.lock import exclusive
from mirage.user.service_check import agent_folder

LOOK_S = 2
"""Between two looks at an open move: the node list must be set before the job starts again."""


def serve(args: argparse.Namespace) -> int:
    """Raises MirageError where it can't start: a second service, a wrong configuration."""
    config = load(named_file(args.config), user_file()).config
    logs.set_up(config.daemon.log_level)
    acting = acting_from(config.acting, ActingMode.OBSERVE, agent_folder() / "disabled")
    acting = replace(acting, mode=ActingMode(args.mode))
    folder: Path = args.state or agent_folder() / "place"
    runner = Runner(bin_dir=config.cluster.bin_dir, timeout_s=config.cluster.timeout_s)
    with exclusive(folder / "place.lock"):
        mover = _mover(args, acting, runner, MoveJournal.read(folder / "moves.jsonl"))
        if not args.once:
            run_forever(mover.cycle, lambda: LOOK_S)
            return 0
        done = mover.cycle()
        while not mover.is_idle:
            time.sleep(LOOK_S)
            done = mover.look()
        return 0 if done else 1


def _mover(args: argparse.Namespace, acting: Acting, runner: Runner, journal: MoveJournal) -> Mover:
    cluster = CommandCluster(runner)
    network, assumed = read_network(args.topology, runner), assumptions(args)
    only_user = None if args.all_users else pwd.getpwuid(os.getuid()).pw_name
    lists_only = replace(acting, mode=ActingMode.ENFORCE, disable_files=())

    def forbidden(job: Job) -> str:
        if only_user not in (None, job.user):
            return "it is another user's"
        return str(lists_only.standing(job) or "")

    def read(own_lists: dict[int, frozenset[str]]) -> LiveState:
        return read_state(cluster, runner, network, assumed, own_lists)

    return Mover(
        cluster=cluster,
        mover=cluster,
        clock=WallClock(),
        journal=journal,
        options=MoverOptions(
            mode=ActingMode(args.mode),
            every_s=args.every,
            jobs_per_hour=args.jobs_per_hour,
            patience=Patience(checkpoint_s=args.grace, start_s=args.patience),
        ),
        read=read,
        details=lambda job_id: read_details(runner, job_id),
        terms=lambda moves: terms(args, moves.pause_s(PAUSE_S)),
        forbidden=forbidden,
        restraint=lambda job: str(acting.standing(job) or ""),
        show=lambda state, moves: print(in_words(state, moves), flush=True),
        as_json=move_json,
    )
