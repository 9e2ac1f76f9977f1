"""What a training and an evaluation read alike: a job history, a cluster, and the pairs' partition."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from mirage.errors import InputError
from mirage.provision.learn.background import Background
from mirage.provision.learn.cautions import choose_partition, scheduler_cautions
from mirage.provision.learn.joblog import read_log
from mirage.provision.learn.reporter import SILENT, Reporter
from slurm_sim.clusters import read_cluster
from slurm_sim.errors import SimulationError
from slurm_sim.traces import TraceError, read_trace


class Inputs(NamedTuple):
    background: Background
    partition: str
    """Of the pairs."""
    notes: list[str]
    """Of the readers, then what the result depends on."""


def read_inputs(
    trace: Path, cluster: Path, partition: str | None, reporter: Reporter = SILENT
) -> Inputs:
    """Partition None: the one whose jobs took most node-hours. Raises InputError."""
    background, notes = read_background(trace, cluster, reporter)
    chosen, cautions = choose_partition(background.log, background.cluster, partition)
    for text in cautions:
        reporter.caution(text)
    return Inputs(background, chosen, [*notes, *cautions])


def read_background(
    trace: Path, cluster: Path, reporter: Reporter = SILENT
) -> tuple[Background, list[str]]:
    """The queue, and notes on it. Raises InputError."""
    try:
        loaded = read_cluster(cluster)
        history = read_trace(trace)
        log = read_log(history, loaded.cluster)
    except (SimulationError, TraceError) as error:
        raise InputError(str(error)) from error
    notes = [*(str(note) for note in loaded.notes), *log.notes]
    for text in notes:
        reporter.note(text)
    cautions = scheduler_cautions(loaded.cluster)
    for text in cautions:
        reporter.caution(text)
    return Background(loaded.cluster, log, trace=history), [*notes, *cautions]
