"""A site's accounting records as a job history to learn from."""

from __future__ import annotations

from pathlib import Path

from mirage.errors import MirageError
from slurm_sim.traces import Trace, TraceError
from slurm_sim.traces.cleaning import clean
from slurm_sim.traces.sacct import import_sacct


def import_records(records: Path, timezone: str | None = None) -> tuple[Trace, str]:
    """The cleaned job history in a file of sacct's output, and a note on what was left out, or "".

    ``timezone``: of times that have none; None: UTC. Raises MirageError.
    """
    try:
        imported = import_sacct(records, timezone)
        cleaned, _ = clean(imported.trace)
    except TraceError as error:
        raise MirageError(f"the accounting records can't be read: {error}") from error
    if not len(cleaned):
        raise MirageError("accounting has no job that ran in this time; give more --days.")
    if not imported.left_out:
        return cleaned, ""
    why = next(note for note in imported.notes if note.startswith("records left out: "))
    return cleaned, (
        f"note: {imported.left_out} of {imported.left_out + imported.rows} accounting records are"
        f" left out, since they can't be read: {why.partition(': ')[2]}"
    )
