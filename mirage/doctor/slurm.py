"""Checks of Slurm itself: its release, its clock, its scheduler, its accounting records. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator

from mirage.chain.durations import format_duration
from mirage.doctor.finding import Diagnosis, error, note, ok, warning
from mirage.doctor.survey import HISTORY_DAYS, Site
from mirage.domain import Settings, Snapshot
from mirage.errors import ClusterError
from mirage.slurm.agreement import Disagreement, of_settings, of_snapshot
from slurm_sim.config import ClusterConfig, Params

TESTED_RELEASES = ("22.05", "24.11", "26.05")
OLDEST_RELEASE = (20, 11)
MOST_SKEW_S = 30
UNREADABLE = "Run `scontrol show config` by hand, and report what Mirage can't read in it."
LUA_REJECTS_SINCE = (26, 5)
"""From here on slurmctld rejects a job whose Lua plugin fails (docs of job_submit/lua)."""


def check_slurm(site: Site, poll_s: int) -> Iterator[Diagnosis]:
    """All of this file."""
    if isinstance(site.settings, ClusterError):
        yield error(
            "slurm",
            f"slurmctld can't be asked: {site.settings}",
            "Mirage does nothing while Slurm does not answer; chains go on by Slurm's own"
            " dependency.",
            "Start slurmctld, install Slurm's commands here, or set cluster.bin_dir.",
        )
        return
    yield _release(site.settings)
    if not site.settings.parameters:
        yield from _queue(site)
        yield from _agreement(site)
        yield _hidden_configuration()
        yield from _records(site)
        return
    yield _clock(site)
    yield from _queue(site)
    yield from _agreement(site)
    yield _priority(site.settings)
    yield from _scheduler(site.live, site.settings)
    yield from _accounting(site, site.settings, poll_s)
    yield _over_time(site.settings, site.live)
    yield _plugin(site.settings)


def _agreement(site: Site) -> Iterator[Diagnosis]:
    """Answers that disagree."""
    found: list[Disagreement] = []
    if isinstance(site.snapshot, Snapshot):
        found += of_snapshot(site.snapshot)
    if isinstance(site.settings, Settings) and isinstance(site.live, ClusterConfig):
        found += of_settings(site.settings, site.live)
    for each in found:
        yield warning(f"agreement: {each.kind}", str(each), each.why, each.do)
    if not found:
        yield ok("agreement", "squeue, sinfo and scontrol agree")


def _hidden_configuration() -> Diagnosis:
    return note(
        "slurm.conf",
        "slurmrestd does not show slurm.conf, nor slurmctld's time",
        "Priorities, backfill, ACCRUE_ALWAYS, OverTimeLimit, job_submit/lua and the clock go"
        " unchecked.",
        "Run `mirage doctor` on a machine that has Slurm's commands, if there is one.",
    )


def _release(settings: Settings) -> Diagnosis:
    release = ".".join(settings.version.split(".")[:2])
    if release in TESTED_RELEASES:
        return ok("release", f"Slurm {settings.version}, a release that Mirage is tested on")
    if release_of(settings) < OLDEST_RELEASE:
        return warning(
            "release",
            f"Slurm {settings.version} is older than any release that Mirage knows",
            "Commands may print other words; what can't be read is refused, and then nothing is"
            " done.",
            "Upgrade Slurm, or keep mode observe and read the log.",
        )
    return note(
        "release",
        f"Slurm {settings.version}; Mirage is tested on {', '.join(TESTED_RELEASES)}",
        "What Slurm prints is checked before it is believed, so a change shows as skipped cycles in"
        " the log.",
        "Stay in mode observe for some days.",
    )


def release_of(settings: Settings) -> tuple[int, ...]:
    """`22.05.8` -> (22, 5)."""
    return tuple(int(word) for word in re.findall(r"\d+", settings.version)[:2])


def _clock(site: Site) -> Diagnosis:
    if isinstance(site.clock, ClusterError):
        return warning(
            "clock",
            f"slurmctld's time is not known: {site.clock}",
            "A clock that is off goes unnoticed.",
            UNREADABLE,
        )
    skew_s = site.clock.skew_s
    if abs(skew_s) <= MOST_SKEW_S + site.clock.asked_s:
        return ok("clock", f"slurmctld's clock and this machine's differ by {abs(skew_s):.0f} s")
    ahead = "ahead of" if skew_s > 0 else "behind"
    return error(
        "clock",
        f"slurmctld's clock is {format_duration(abs(skew_s))} {ahead} this machine's",
        "Releases aim at the predecessor's end by this machine's clock, so they come so much too"
        " early or too late.",
        "Run NTP (chrony, timesyncd) on both machines.",
    )


def _queue(site: Site) -> Iterator[Diagnosis]:
    if isinstance(site.snapshot, ClusterError):
        yield error(
            "queue",
            f"the queue can't be read: {site.snapshot}",
            "Each cycle needs it.",
            "See the words above.",
        )
        return
    yield ok(
        "queue", f"{len(site.snapshot.jobs)} jobs and {len(site.snapshot.nodes)} nodes are seen"
    )
    assert isinstance(site.settings, Settings)
    private = {word.strip() for word in site.settings.parameters.get("PrivateData", "").split(",")}
    if "jobs" in private and not site.of_daemon:
        yield warning(
            "private-data",
            "PrivateData=jobs hides other users' jobs from you",
            "Policies then see a queue that looks short, and let successors in too late.",
            "Ask for a site daemon, or use `--policy timer`.",
        )


def _priority(settings: Settings) -> Diagnosis:
    if settings.parameters.get("PriorityType") == "priority/basic":
        return note(
            "priority",
            "PriorityType=priority/basic: first come, first served",
            "A successor's place in the queue is that of its submission, long before its release,"
            " so it starts sooner than like jobs did. Reactive chains hardly wait here.",
        )
    if settings.accrue_always:
        return warning(
            "priority",
            "PriorityFlags has ACCRUE_ALWAYS: a successor gains age while it waits for its"
            " predecessor",
            "It starts sooner than like jobs did, from whose waits the policies learn: releases"
            " come too early, and users pay for overlap.",
            "Remove the flag, or prefer a model that was trained with it (cluster.toml:"
            " accrue_always).",
        )
    return ok(
        "priority",
        "no ACCRUE_ALWAYS: a successor's age counts from its release, as policies assume",
    )


def _scheduler(live: ClusterConfig | ClusterError, settings: Settings) -> Iterator[Diagnosis]:
    if isinstance(live, ClusterError):
        yield warning(
            "backfill",
            f"the scheduler's parameters are not known: {live}",
            "They go unchecked.",
            UNREADABLE,
        )
        return
    params = live.params
    if not params.backfill:
        yield warning(
            "backfill",
            f"SchedulerType={settings.parameters.get('SchedulerType', '?')}: no backfill",
            "One large job at the head blocks all behind it, so waits are long and hard to"
            " predict.",
            "Use sched/backfill.",
        )
        return
    yield from _backfill(params, live)


def _backfill(params: Params, live: ClusterConfig) -> Iterator[Diagnosis]:
    longest_s = max((partition.max_time_s or 0 for partition in live.partitions), default=0)
    shown = f"bf_interval={params.bf_interval_s}, bf_max_job_test={params.bf_max_job_test}"
    if params.bf_window_s < longest_s:
        yield warning(
            "backfill",
            f"bf_window is {format_duration(params.bf_window_s)}, the longest MaxTime"
            f" {format_duration(longest_s)}",
            "Backfill does not plan so far ahead, so jobs behind long ones may starve and waits"
            " vary more.",
            f"SchedulerParameters=bf_window={-(-longest_s // 60)} (minutes).",
        )
    else:
        yield ok("backfill", f"its window covers the longest time limit ({shown})")
    names = (f"bf_max_job_{whose}" for whose in ("user", "part", "user_part", "assoc"))
    few = [name for name in names if getattr(params, name) is not None]
    if few:
        words = ", ".join(f"{name}={getattr(params, name)}" for name in few)
        yield note(
            "backfill-limits",
            f"SchedulerParameters has {words}",
            "Of a user with more jobs than that only the first are tested, so a released successor"
            " may be passed over.",
        )


def _accounting(site: Site, settings: Settings, poll_s: int) -> Iterator[Diagnosis]:
    kind = settings.parameters.get("AccountingStorageType", "")
    age_s = int((re.findall(r"\d+", settings.parameters.get("MinJobAge", "")) or ["300"])[0])
    if not kind.endswith("slurmdbd"):
        yield warning(
            "accounting",
            f"AccountingStorageType={kind or 'none'}: no accounting records",
            "Recent waits and the last 24 h are not known at a start; the service learns them as"
            " time passes. Models can't be trained.",
            "Set up slurmdbd.",
        )
    else:
        yield from _records(site)
    if age_s < poll_s and not (kind.endswith("slurmdbd") and isinstance(site.history_days, int)):
        yield warning(
            "min-job-age",
            f"MinJobAge is {age_s} s, a cycle comes every {poll_s} s, and accounting can't be read",
            "slurmctld forgets ended jobs between two cycles, so how links ended may stay unknown.",
            f"Set MinJobAge to at least {2 * poll_s}, or daemon.poll_s below {age_s}.",
        )


def _records(site: Site) -> Iterator[Diagnosis]:
    """Of accounting."""
    if isinstance(site.history_days, ClusterError):
        yield warning(
            "accounting",
            f"accounting can't be read: {site.history_days}",
            "Without it a start knows no recent waits; chains are carried on.",
            "Is slurmdbd up?",
        )
    elif site.history_days < HISTORY_DAYS[1]:
        known = "of the last day only" if site.history_days else "of none of the days asked for"
        yield warning(
            "accounting",
            f"sacct has jobs {known} (asked: {', '.join(map(str, HISTORY_DAYS))} days ago)",
            "Policies learn from the waits of the last 7 days; a model needs some months.",
            "Wait, or look at slurmdbd's Purge...After, and at its PrivateData.",
        )
    else:
        yield ok("accounting", f"sacct has jobs of {site.history_days} days ago and since")


def _over_time(settings: Settings, live: ClusterConfig | ClusterError) -> Diagnosis:
    text = settings.parameters.get("OverTimeLimit", "0 min")
    partitions = live.partitions if isinstance(live, ClusterConfig) else ()
    own = [partition.name for partition in partitions if partition.over_time_limit_s]
    if text.startswith("0") and not own:
        return ok("time-limit", "jobs end at their time limit (OverTimeLimit=0)")
    where = f" (of partition {', '.join(own)}: its own)" if own else ""
    return note(
        "time-limit",
        f"OverTimeLimit={text}{where}: jobs may run on after their limit",
        "Releases aim at the limit; a predecessor that runs on overlaps with its successor for so"
        " much longer.",
    )


def _plugin(settings: Settings) -> Diagnosis:
    plugins = settings.parameters.get("JobSubmitPlugins", "")
    if "lua" not in plugins:
        return note(
            "plugin",
            "JobSubmitPlugins has no lua: slurmctld routes no jobs to partitions for Mirage",
            "Chains need no plugin; routing does.",
        )
    if release_of(settings) >= LUA_REJECTS_SINCE:
        return warning(
            "plugin",
            "job_submit/lua is configured, and since 26.05 an error in the script rejects the job",
            "A fault in job_submit.lua stops all submissions.",
            "Wrap its functions in pcall and return slurm.SUCCESS.",
        )
    return ok("plugin", f"job_submit/lua is configured (JobSubmitPlugins={plugins})")
