"""The service of `mirage place run`: live GPU jobs move at their checkpoints (docs/placement-live.md)."""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mirage.config import Config
from mirage.daemon import logs
from mirage.daemon.restraint import Acting, acting_from
from mirage.daemon.scheduler import run_forever
from mirage.daemon.wall_clock import WallClock
from mirage.domain import ActingMode, Job
from mirage.placement.live.advice import Terms
from mirage.placement.live.journal import MoveJournal
from mirage.placement.live.mover import Mover, MoverOptions
from mirage.placement.live.network import read_network
from mirage.placement.live.state import Assumptions, LiveState, read_state
from mirage.placement.live.words import in_words, move_json
from mirage.slurm.commands import CommandCluster
from mirage.slurm.job_details import read_details
from mirage.slurm.runner import Runner
from mirage.store.lock import exclusive

LOOK_S = 2
"""Between two looks at an open move: the node list must be set before the job starts again."""
PAUSE_S = 180.0
"""Assumed before the first measured move: Slurm starts a requeued job after two minutes."""


@dataclass(frozen=True, kw_only=True)
class PlacingPlan:
    """What the service is to do."""

    config: Config
    folder: Path
    """Of the journal."""
    disabled: Path
    """While this file is there nothing is moved, unless the configuration names others."""
    options: MoverOptions
    topology: Sequence[Path]
    """Files with the network; none: what Slurm shows."""
    assumed: Assumptions
    terms: Terms
    measures_pause: bool
    """Whether the pause of a move is the median of those so far."""
    all_users: bool
    once: bool
    say: Callable[[str], None]


def serve(plan: PlacingPlan) -> int:
    """Until SIGTERM, or with `once` until its moves are over. Raises MirageError where it can't
    start: a second service, a wrong configuration.
    """
    logs.set_up(plan.config.daemon.log_level)
    acting = acting_from(plan.config.acting, ActingMode.OBSERVE, plan.disabled)
    acting = replace(acting, mode=plan.options.mode)
    with exclusive(plan.folder / "place.lock"):
        mover = _mover(plan, acting, MoveJournal.read(plan.folder / "moves.jsonl"))
        if not plan.once:
            run_forever(mover.cycle, lambda: LOOK_S)
            return 0
        done = mover.cycle()
        while not mover.is_idle:
            time.sleep(LOOK_S)
            done = mover.look()
        return 0 if done else 1


def _mover(plan: PlacingPlan, acting: Acting, journal: MoveJournal) -> Mover:
    where = plan.config.cluster
    runner = Runner(bin_dir=where.bin_dir, timeout_s=where.timeout_s)
    cluster = CommandCluster(runner)
    network = read_network(plan.topology, runner)
    only_user = None if plan.all_users else pwd.getpwuid(os.getuid()).pw_name
    lists_only = replace(acting, mode=ActingMode.ENFORCE, disable_files=())

    def forbidden(job: Job) -> str:
        if only_user not in (None, job.user):
            return "it is another user's"
        return str(lists_only.standing(job) or "")

    def read(own_lists: dict[int, frozenset[str]]) -> LiveState:
        return read_state(cluster, runner, network, plan.assumed, own_lists)

    def terms(moves: MoveJournal) -> Terms:
        pause_s = moves.pause_s(PAUSE_S) if plan.measures_pause else plan.terms.pause_s
        return replace(plan.terms, pause_s=pause_s)

    return Mover(
        cluster=cluster,
        mover=cluster,
        clock=WallClock(),
        journal=journal,
        options=plan.options,
        read=read,
        details=lambda job_id: read_details(runner, job_id),
        terms=terms,
        forbidden=forbidden,
        restraint=lambda job: str(acting.standing(job) or ""),
        show=lambda state, moves: plan.say(in_words(state, moves)),
        as_json=move_json,
    )
