"""Checks of rights and limits: whose jobs may be let in, and how many of them may run or queue at
once. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from mirage.doctor.finding import Diagnosis, Severity, error, note, ok, warning
from mirage.doctor.survey import Site, is_privileged
from mirage.domain import Settings
from mirage.errors import ClusterError
from mirage.slurm.survey import JobLimits

SHOWN = 5
"""So many names; the rest is counted."""


def check_users(site: Site) -> Iterator[Diagnosis]:
    """All of this file."""
    if isinstance(site.settings, ClusterError):
        return
    yield _rights(site)
    yield from _limits(site, site.settings)


def _rights(site: Site) -> Diagnosis:
    level = (
        site.admin_level if isinstance(site.admin_level, str) and site.admin_level else "none known"
    )
    if is_privileged(site.user, site.is_root, site.settings, site.admin_level):
        who = "root" if site.is_root else site.user
        return ok("rights", f"{who} may let in anybody's jobs (admin level: {level})")
    if not site.of_daemon:
        return ok(
            "rights",
            f"{site.user} may let in own jobs only (admin level: {level}): right for `mirage"
            " agent`",
        )
    return error(
        "rights",
        f"{site.user} is no Operator (admin level: {level})",
        'Slurm refuses to let in other users\' jobs ("Invalid user id"); nothing would be'
        " released.",
        f"sacctmgr modify user {site.user} set adminlevel=Operator; or let users run `mirage"
        " agent`.",
    )


def _limits(site: Site, settings: Settings) -> Iterator[Diagnosis]:
    enforced = settings.parameters.get("AccountingStorageEnforce", "")
    if settings.parameters and not {"limits", "safe", "all"} & set(
        enforced.replace(" ", "").split(",")
    ):
        yield ok(
            "limits",
            "limits of users and QOS are not enforced"
            f" (AccountingStorageEnforce={enforced or 'none'})",
        )
        return
    if isinstance(site.limits, ClusterError) or isinstance(site.qos, ClusterError):
        problem = site.limits if isinstance(site.limits, ClusterError) else site.qos
        yield warning(
            "limits", f"limits can't be read: {problem}", "They go unchecked.", "Is slurmdbd up?"
        )
        return
    found = [*_of(site.limits, whose), *_of_qos(site.qos)]
    yield from found or [
        ok(
            "limits",
            f"{len(site.limits)} associations and {len(site.qos)} QOS: two jobs fit them all",
        )
    ]


def whose(limits: JobLimits) -> str:
    return f"{limits.user or 'all users'} in {limits.account}"


def _of_qos(those: Sequence[JobLimits]) -> Iterator[Diagnosis]:
    """Only to be noted while there are others: sites like to have one for short tests."""
    narrow = [limits for limits in those if {0, 1} & {*_counts(limits)}]
    for finding in _of(narrow, lambda limits: f"QOS {limits.qos}"):
        yield finding if len(narrow) == len(those) else replace(finding, severity=Severity.NOTE)


def _counts(limits: JobLimits) -> tuple[int | None, ...]:
    return limits.max_jobs, limits.group_jobs, limits.max_submit, limits.group_submit


def _of(those: Sequence[JobLimits], name: Callable[[JobLimits], str]) -> Iterator[Diagnosis]:
    if names := [name(each) for each in those if 1 in (each.max_jobs, each.group_jobs)]:
        yield warning(
            "max-jobs",
            f"only one job may run at once (MaxJobs or GrpJobs of 1): {_shown(names)}",
            "A successor can't start beside its predecessor, so an early release saves them nothing"
            " but their place in the queue, and there is no handover.",
            "Raise the limit to 2 for users of chains.",
        )
    if names := [name(each) for each in those if 1 in (each.max_submit, each.group_submit)]:
        yield error(
            "max-submit",
            "only one job may be in the queue (MaxSubmitJobs or GrpSubmitJobs of 1):"
            f" {_shown(names)}",
            "No successor can be queued behind a running link, so these users can't have a chain.",
            "Raise the limit to at least 2.",
        )
    none = [name(each) for each in those if 0 in _counts(each)]
    if none:
        yield note(
            "no-jobs",
            f"no job may run or be queued (a limit of 0): {_shown(none)}",
            "They can't have a chain.",
        )


def _shown(names: list[str]) -> str:
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more
