"""Asks a site all that the checks judge. An answer that can't be had is kept as its error, for the
check to tell.
"""

from __future__ import annotations

import os
import pwd
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from mirage.domain import Settings, Snapshot
from mirage.errors import ClusterError
from mirage.slurm import parsing
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from mirage.slurm.survey import JobLimits, Survey, controller_time_s
from slurm_sim.config import ClusterConfig
from slurm_sim.seconds import DAY_S

HISTORY_DAYS = (1, 7, 30, 90, 365)

T = TypeVar("T")


@dataclass(frozen=True)
class ClockSkew:
    """slurmctld's time less ours, and for how long it was asked: the difference is known no better
    than that.
    """

    skew_s: float
    asked_s: float


@dataclass(frozen=True, kw_only=True)
class Site:
    """What was found."""

    user: str
    is_root: bool
    of_daemon: bool
    """Whether the daemon's needs are judged, or an agent's."""
    settings: Settings | ClusterError
    clock: ClockSkew | ClusterError
    snapshot: Snapshot | ClusterError
    live: ClusterConfig | ClusterError
    """The cluster as slurmctld describes it."""
    admin_level: str | ClusterError
    limits: list[JobLimits] | ClusterError
    """The user's; for the daemon all users'."""
    qos: list[JobLimits] | ClusterError
    history_days: int | ClusterError
    """Accounting has jobs of so many days ago (of HISTORY_DAYS), 0: of none."""


def survey(runner: Runner, of_daemon: bool | None) -> Site:
    """``of_daemon`` None: judge what the user's rights are enough for."""
    ask, user = Survey(runner), pwd.getpwuid(os.getuid()).pw_name
    began_s = time.time()
    config = _answer(ask.config)
    asked_s = time.time() - began_s
    root = os.getuid() == 0
    if isinstance(config, ClusterError):
        return _silent_site(config, user=user, is_root=root, of_daemon=of_daemon)
    settings = _answer(lambda: parsing.parse_settings(config))
    level = _answer(lambda: ask.admin_level(user))
    privileged = is_privileged(user, root, settings, level)
    daemon = privileged if of_daemon is None else of_daemon
    cluster = settings.cluster if isinstance(settings, Settings) else ""
    return Site(
        user=user,
        is_root=root,
        of_daemon=daemon,
        settings=settings,
        clock=_answer(
            lambda: ClockSkew(controller_time_s(config) + 0.5 - (began_s + asked_s / 2), asked_s)
        ),
        snapshot=_answer(CommandCluster(runner).snapshot),
        live=_answer(ask.cluster),
        admin_level=level,
        limits=_answer(lambda: ask.limits(cluster, None if daemon else user)),
        qos=_answer(ask.qos),
        history_days=_answer(lambda: _history_days(ask, int(began_s))),
    )


def _silent_site(error: ClusterError, *, user: str, is_root: bool, of_daemon: bool | None) -> Site:
    """Where slurmctld does not answer, nothing else is asked: each question would time out too."""
    return Site(
        user=user,
        is_root=is_root,
        of_daemon=is_root if of_daemon is None else of_daemon,
        settings=error,
        clock=error,
        snapshot=error,
        live=error,
        admin_level=error,
        limits=error,
        qos=error,
        history_days=error,
    )


def is_privileged(
    user: str, is_root: bool, settings: Settings | ClusterError, level: str | ClusterError
) -> bool:
    """Whether slurmctld lets the user change anybody's job."""
    return is_root or level in ("Operator", "Administrator") or user == slurm_user(settings)


def slurm_user(settings: Settings | ClusterError) -> str:
    """`SlurmUser = slurm(64030)` -> slurm."""
    return (
        settings.parameters.get("SlurmUser", "").partition("(")[0]
        if isinstance(settings, Settings)
        else ""
    )


def _history_days(ask: Survey, now_s: int) -> int:
    """The furthest day of HISTORY_DAYS that has a record; days that were quiet say nothing."""
    return max((days for days in HISTORY_DAYS if ask.has_records(now_s - days * DAY_S)), default=0)


def _answer(ask: Callable[[], T]) -> T | ClusterError:
    try:
        return ask()
    except ClusterError as error:
        return error
