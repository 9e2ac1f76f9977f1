"""Asks a site all that the checks judge. An answer that can't be had is kept as its error, for the
check to tell.
"""

from __future__ import annotations

import time
from dataclasses import dataclass

from mirage.domain import Settings, Snapshot
from mirage.errors import ClusterError
from mirage.ports import Cluster
from mirage.slurm.survey import JobLimits, SiteSurvey, answer_of
from slurm_sim.config import ClusterConfig
from slurm_sim.seconds import DAY_S

HISTORY_DAYS = (1, 7, 30, 90, 365)


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


def survey(
    ask: SiteSurvey, port: Cluster, user: str, *, is_root: bool, of_daemon: bool | None
) -> Site:
    """``user``, ``is_root``: as whom Slurm is asked. ``of_daemon`` None: judge what the user's rights
    are enough for.
    """
    began_s = time.time()
    about = answer_of(ask.about)
    asked_s = time.time() - began_s
    if isinstance(about, ClusterError):
        return _silent_site(about, user=user, is_root=is_root, of_daemon=of_daemon)
    settings, time_s = about.settings, about.time_s
    level = answer_of(lambda: ask.admin_level(user))
    privileged = is_privileged(user, is_root, settings, level)
    daemon = privileged if of_daemon is None else of_daemon
    cluster = settings.cluster if isinstance(settings, Settings) else ""
    return Site(
        user=user,
        is_root=is_root,
        of_daemon=daemon,
        settings=settings,
        clock=time_s
        if isinstance(time_s, ClusterError)
        else ClockSkew(time_s + 0.5 - (began_s + asked_s / 2), asked_s),
        snapshot=answer_of(port.snapshot),
        live=answer_of(ask.cluster),
        admin_level=level,
        limits=answer_of(lambda: ask.limits(cluster, None if daemon else user)),
        qos=answer_of(ask.qos),
        history_days=answer_of(lambda: _history_days(ask, int(began_s))),
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


def _history_days(ask: SiteSurvey, now_s: int) -> int:
    """The furthest day of HISTORY_DAYS that has a record; days that were quiet say nothing."""
    return max((days for days in HISTORY_DAYS if ask.has_records(now_s - days * DAY_S)), default=0)
