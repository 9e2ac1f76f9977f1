"""The input of an assessment: a job history and its cluster, from Slurm's commands or from files."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from mirage.errors import ClusterError, InputError, MirageError
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
from slurm_sim.traces.inference import Inference, infer, with_dependencies

TRACE, CLUSTER, RECORDS = "history.csv.gz", "cluster.toml", "sacct.txt"
SACCT_TIMEOUT_S = 600
"""For a week of records."""


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
    timezone: str = "UTC"
    """Of times in ``sacct`` that have none, and of the hours of the day."""


@dataclass(frozen=True, kw_only=True)
class SiteHistory:
    trace: Trace
    inferred: Inference
    cluster: ClusterConfig
    """The nodes that the history shows, under the site's scheduler or an assumed one."""
    site: ClusterConfig | None
    """As the site describes itself; None: only the history is known."""
    notes: tuple[str, ...]


def site_history(source: HistorySource, folder: Path) -> SiteHistory:
    """Also writes `TRACE` (with inferred dependencies) and `CLUSTER` into ``folder``. Raises
    InputError, MirageError.
    """
    notes = []
    try:
        site, records = _site(source), _records(source, folder)
    except ClusterError as error:
        raise MirageError(
            f"{error} Where Slurm can't be asked, give its records with --sacct FILE."
        ) from error
    trace, note = import_records(records, source.timezone)
    if note:
        notes.append(note)
    try:
        inferred = infer(trace)
        trace = with_dependencies(trace, inferred)
        cluster = guessed_cluster(trace, inferred, site)
    except TraceError as error:
        raise InputError(str(error)) from error
    write_trace(trace, folder / TRACE)
    (folder / CLUSTER).write_text(write_toml(cluster), encoding="utf-8")
    return SiteHistory(
        trace=trace, inferred=inferred, cluster=cluster, site=site, notes=tuple(notes)
    )


def _records(source: HistorySource, folder: Path) -> Path:
    if source.sacct is not None:
        return source.sacct
    end_s, path = int(time.time()), folder / RECORDS
    write_history(Runner(timeout_s=SACCT_TIMEOUT_S), end_s - source.days * DAY_S, end_s, path)
    return path


def _site(source: HistorySource) -> ClusterConfig | None:
    """As the site describes its scheduler; None: nothing is known of it."""
    if source.slurm_conf is not None:
        try:
            return read_cluster(source.slurm_conf).cluster
        except SimulationError as error:
            raise InputError(f"--slurm-conf: {error}") from error
    return None if source.sacct is not None else Survey(Runner()).cluster()
