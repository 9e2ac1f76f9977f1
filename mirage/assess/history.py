"""The input of an assessment: a job history and its cluster, from Slurm's commands or from files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mirage.errors import ClusterError, InputError, MirageError
from mirage.figures.words import several
from mirage.provision.learn.accounting import import_records
from mirage.slurm.records import write_history
from mirage.slurm.runner import Runner
from mirage.slurm.survey import Survey
from slurm_sim.clusters import read_cluster, write_toml
from slurm_sim.config import ClusterConfig
from slurm_sim.errors import SimulationError
from slurm_sim.seconds import DAY_S
from slurm_sim.traces import Trace, TraceError, write_trace
from slurm_sim.traces.guess import guessed_cluster
from slurm_sim.traces.inference import (
    IMPOSSIBLE,
    Inference,
    expected_instead,
    impossible,
    infer,
    with_dependencies,
)

TRACE, CLUSTER = "history.csv.gz", "cluster.toml"
RECORDS = "sacct-{}d.txt"
"""What Slurm said, with the names of users: for a second call, until all is simulated."""
FRESH_S = DAY_S
"""So long it is used again."""
SACCT_TIMEOUT_S = 600
"""For a week of records."""
ALIVE = ("RUNNING", "SUSPENDED", "COMPLETING", "STOPPED")
"""States of jobs that have no end yet."""
LEAST_RECENT_DAYS = 28
"""With fewer there is no room for a week before the first chain, and for chains of six days."""


@dataclass(frozen=True, kw_only=True)
class HistorySource:
    """Where the history and the cluster come from."""

    sacct: Path | None = None
    """A file of `sacct -X -P -D` with its header; None: Slurm is asked."""
    slurm_conf: Path | None = None
    """The site's slurm.conf, or a cluster's .toml; None: Slurm is asked, or, with ``sacct``, the
    history alone has to do.
    """
    days: int = 180
    """Of accounting records that Slurm is asked for."""
    timezone: str | None = None
    """Of times in ``sacct`` that have none, and of the hours of the day; None: UTC."""


@dataclass(frozen=True, kw_only=True)
class RecentHistory:
    """The end of a history: what training and simulation read. In files: `TRACE`, `CLUSTER`."""

    trace: Trace
    begin_s: int
    """The first submission that counts; jobs that were alive then are there too. Unix seconds."""
    cluster: ClusterConfig
    """The nodes that it shows, under the site's scheduler or an assumed one."""
    site: ClusterConfig | None
    """As the site describes itself; None: only the history is known."""


@dataclass(frozen=True, kw_only=True)
class SiteHistory:
    """All of it, with the recent part."""

    trace: Trace
    inferred: Inference
    recent: RecentHistory
    notes: tuple[str, ...]


def site_history(source: HistorySource, folder: Path, days: int, jobs: int) -> SiteHistory:
    """Also writes `TRACE` (with inferred dependencies) and `CLUSTER` into ``folder``. ``days``,
    ``jobs``: bounds of the recent part. Raises InputError, MirageError.
    """
    try:
        site, records = _site(source), _records(source, folder)
    except ClusterError as error:
        raise MirageError(
            f"{error} Where Slurm can't be asked, give its records with --sacct FILE."
        ) from error
    try:
        trace, notes = import_records(records, source.timezone)
    except MirageError as error:
        if source.sacct:
            raise InputError(str(error)) from error
        raise
    trace, more = plausible(trace, time.time())
    try:
        inferred = infer(trace)
        begin_s = recent_begin_s(trace, days, jobs)
        part = _alive_since(trace, begin_s)
        shown = inferred if part is trace else infer(part)
        part = with_dependencies(part, shown)
        cluster = guessed_cluster(part, shown, site)
    except TraceError as error:
        raise InputError(str(error)) from error
    write_trace(part, folder / TRACE)
    (folder / CLUSTER).write_text(write_toml(cluster), encoding="utf-8")
    recent = RecentHistory(trace=part, begin_s=begin_s, cluster=cluster, site=site)
    return SiteHistory(trace=trace, inferred=inferred, recent=recent, notes=(*notes, *more))


def plausible(trace: Trace, now_s: float) -> tuple[Trace, list[str]]:
    """Without jobs of the future, those that no cluster can have run, and runaways: slurmdbd has
    them as running for ever where it missed their end (`sacctmgr show runawayjobs`).

    Also a note on each kind that was left out. Raises InputError where no job with an end is left.
    """
    notes: list[str] = []

    def leave_out(jobs: Trace, mask: NDArray[np.bool_], why: str) -> Trace:
        if not mask.any():
            return jobs
        count = int(mask.sum())
        are = "is" if count == 1 else "are"
        notes.append(f"note: {several(count, 'job')} {are} left out: {why}")
        return jobs.pick(~mask)

    why = "submitted in the future; a wrong clock or --timezone?"
    kept = leave_out(trace, trace.column("submit") > now_s + DAY_S, why)
    for column in IMPOSSIBLE:
        mask = impossible(kept, column)
        if mask.any():
            kept = leave_out(kept, mask, _example(kept, column, int(mask.argmax())))
    why = "no end is known, but the state or the limit says it was (runaway jobs)"
    kept = leave_out(kept, _runaway(kept), why)
    if not (kept.ran & ~np.isnan(kept.column("start")) & ~np.isnan(kept.column("end"))).any():
        said = "".join(f" {note.removeprefix('note: ')}." for note in notes)
        raise InputError(
            f"{trace.source}: no job with a start and an end, so no queue shows.{said}"
        )
    return kept, notes


def _example(trace: Trace, column: str, row: int) -> str:
    """What a job says, and what was expected of it."""
    value = trace.column(column)[row]
    found = f"{int(value):,}" if column == "nodes" else f"{datetime.fromtimestamp(value, UTC):%Y}"
    return (
        f"{column}: {found} of job {trace.text('job_id')[row]}, expected"
        f" {expected_instead(trace, column)}"
    )


def _runaway(trace: Trace) -> NDArray[np.bool_]:
    start, end = trace.column("start"), trace.column("end")
    known = np.fmax(trace.column("submit"), np.fmax(start, end))
    last_s = np.nanmax(known, initial=0)
    over = start + trace.column("timelimit_s") + DAY_S < last_s
    over |= ~np.isin(trace.text("state"), ALIVE)
    found: NDArray[np.bool_] = ~np.isnan(start) & np.isnan(trace.run_s) & over
    return found


def recent_begin_s(trace: Trace, days: int, jobs: int) -> int:
    """The first submission of the last ``days``, or of the last ``jobs`` where these are fewer, but
    `LEAST_RECENT_DAYS` at least. Unix seconds.
    """
    submit = trace.column("submit")
    last_s = submit[-1]
    since_s = max(last_s - days * DAY_S, submit[max(0, len(submit) - jobs)])
    since_s = min(since_s, last_s - LEAST_RECENT_DAYS * DAY_S)
    return int(submit[np.searchsorted(submit, since_s)])


def _alive_since(trace: Trace, begin_s: int) -> Trace:
    """Jobs that were submitted, waited or ran since then."""
    if begin_s <= trace.column("submit")[0]:
        return trace
    end = trace.column("end")
    until = np.where(np.isnan(end), trace.column("start") + trace.column("timelimit_s"), end)
    return trace.pick((trace.column("submit") >= begin_s) | (until > begin_s))


def _records(source: HistorySource, folder: Path) -> Path:
    if source.sacct is not None:
        return source.sacct
    end_s, path = int(time.time()), folder / RECORDS.format(source.days)
    if path.exists() and end_s - path.stat().st_mtime < FRESH_S:
        return path
    write_history(Runner(timeout_s=SACCT_TIMEOUT_S), end_s - source.days * DAY_S, end_s, path)
    path.chmod(0o600)
    return path


def forget_records(folder: Path) -> None:
    """Removes what Slurm said, once no further call needs it."""
    for path in folder.glob(RECORDS.format("*")):
        path.unlink()


def _site(source: HistorySource) -> ClusterConfig | None:
    """As the site describes its scheduler; None: nothing is known of it."""
    if source.slurm_conf is not None:
        try:
            return read_cluster(source.slurm_conf).cluster
        except SimulationError as error:
            raise InputError(f"--slurm-conf: {error}") from error
    return None if source.sacct is not None else Survey(Runner()).cluster()
