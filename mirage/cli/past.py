"""What `mirage train` and `mirage evaluate` read alike: times, methods, and the cluster's past."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from rich.console import Console
from rich.markup import escape

from mirage.errors import InputError

if (
    TYPE_CHECKING
):  # pandas and the simulator take a second to import: only once the arguments are right
    from mirage.provision.learn.background import Background

WARM_UPS = ("trace", "paper")
EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Of the times that can be given: Python can't write all others down."""
errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)


def words_of(text: str) -> tuple[str, ...]:
    words = tuple(word.strip() for word in text.split(",") if word.strip())
    if not words:
        raise argparse.ArgumentTypeError("expected at least one method")
    return words


def instant(text: str) -> int:
    try:
        when = datetime.fromisoformat(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(
            f"expected a time like 2023-02-01 or 2023-02-01T06:00, got {text!r}"
        ) from error
    when = when if when.tzinfo else when.replace(tzinfo=UTC)
    if not EARLIEST <= when <= LATEST:
        raise argparse.ArgumentTypeError(
            f"expected a time from {EARLIEST:%Y} to {LATEST:%Y}, got {text!r}"
        )
    return int(when.timestamp())


def background_of(args: argparse.Namespace) -> tuple[Background, list[str]]:
    """The queue, and what its readers noted. Raises InputError."""
    from mirage.provision.learn.background import Background
    from mirage.provision.learn.cautions import scheduler_cautions
    from mirage.provision.learn.joblog import read_log
    from slurm_sim.clusters import read_cluster
    from slurm_sim.errors import SimulationError
    from slurm_sim.traces import TraceError, read_trace

    try:
        loaded = read_cluster(args.cluster)
        trace = read_trace(args.trace)
        log = read_log(trace, loaded.cluster)
    except (SimulationError, TraceError) as error:
        raise InputError(str(error)) from error
    notes = [*(str(note) for note in loaded.notes), *log.notes]
    if errors.is_terminal:
        for note in notes:
            errors.print(f"note: {escape(note)}")
    cautions = scheduler_cautions(loaded.cluster)
    _show(cautions)
    return Background(loaded.cluster, log, trace=trace), [*notes, *cautions]


def partition_of(background: Background, wanted: str | None) -> tuple[str, list[str]]:
    """The partition of the pairs, and notes on it. Raises InputError."""
    from mirage.provision.learn.cautions import choose_partition

    partition, notes = choose_partition(background.log, background.cluster, wanted)
    _show(notes)
    return partition, notes


def _show(notes: Sequence[str]) -> None:
    """Also where no terminal is: the result hangs on these."""
    for note in notes:
        errors.print(escape(note))
