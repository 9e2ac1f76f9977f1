"""A site's accounting records as a job history to learn from."""

from __future__ import annotations

from pathlib import Path

from mirage.errors import MirageError
from slurm_sim.traces import Trace, TraceError
from slurm_sim.traces.cleaning import CLOCK_CHANGES, clean
from slurm_sim.traces.fields import NO_ZONE
from slurm_sim.traces.sacct import import_sacct


def import_records(records: Path, timezone: str | None = None) -> tuple[Trace, list[str]]:
    """The cleaned job history in a file of sacct's output, and notes on what was left out or
    supposed.

    ``timezone``: of times that have none; None: UTC. Raises MirageError.
    """
    try:
        imported = import_sacct(records, timezone)
        cleaned, report = clean(imported.trace)
    except TraceError as error:
        raise MirageError(f"the accounting records can't be read: {error}") from error
    if not len(cleaned):
        raise MirageError("accounting has no job that ran in this time; give more --days.")
    notes = [
        f"note: {found.jobs:,} jobs: {found.detail}"
        for found in report.findings
        if found.rule == CLOCK_CHANGES and found.jobs
    ]
    if NO_ZONE in imported.notes:
        notes.append(f"note: {NO_ZONE}")
    if imported.left_out:
        why = next(note for note in imported.notes if note.startswith("records left out: "))
        notes.append(
            f"note: {imported.left_out} of {imported.left_out + imported.rows} accounting records"
            f" are left out, since they can't be read: {why.partition(': ')[2]}"
        )
    return cleaned, notes
