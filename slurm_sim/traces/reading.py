"""Foreign files, batch by batch: a million lines never lie in memory as text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.fields import Batch
from slurm_sim.traces.left_out import SkippedRecords, take_down
from slurm_sim.traces.lines import UNDECODABLE, bounded, open_text
from slurm_sim.traces.table import Trace, make_trace

Row = tuple[int, list[str]]
"""A line's number and its fields."""
BATCH_ROWS = 100_000


@dataclass(frozen=True)
class TraceImport:
    """A log as it says itself, before any cleaning."""

    trace: Trace
    rows: int
    """Lines with a job."""
    notes: dict[str, int] = field(default_factory=dict)
    """What was done to lines and values, and how often."""
    left_out: int = 0
    """Records that could not be read; `notes` says why."""


def opened(path: Path | str, unended: Callable[[int], None] | None = None) -> Iterator[Row]:
    """The file's lines, numbered, whole, with blank ones left out.

    ``unended`` gets the number of a last line without a line end, before that line comes.
    """
    path = Path(path)
    try:
        with open_text(path) as lines:
            for number, line in enumerate(bounded(lines, path), 1):
                if line.strip():
                    if unended is not None and line[-1] not in "\r\n":
                        unended(number)
                    yield number, [line.rstrip("\r\n")]
    except (OSError, EOFError) as error:
        raise TraceError(
            str(path), f"a readable text file ({getattr(error, 'strerror', None) or error})"
        ) from error


def opened_csv(path: Path | str, delimiter: str = ",") -> Iterator[Row]:
    """The same with CSV's quoting; a field may span lines."""
    path, last = Path(path), 0
    try:
        with open_text(path) as lines:
            reader = csv.reader(bounded(lines, path), delimiter=delimiter, strict=True)
            for row in reader:
                last = reader.line_num
                if row:
                    yield last, row
    except csv.Error as error:
        raise TraceError(str(path), f"a CSV line ({error})", line=last + 1) from error
    except (OSError, EOFError) as error:
        raise TraceError(
            str(path), f"a readable text file ({getattr(error, 'strerror', None) or error})"
        ) from error


def gather(
    rows: Iterator[Row],
    header: list[str],
    convert: Callable[[Batch], dict[str, Any]],
    file: str,
    left_out: SkippedRecords,
    timezone: str | None = None,
) -> TraceImport:
    """Runs ``convert`` over batches of rows, each as long as the header, and puts the tables
    together.

    Rows with a bad value are left out and counted in ``left_out``. Raises TraceError if these are
    more than half.
    """
    notes: dict[str, int] = {}
    frames = []
    numbers: list[int] = []
    check_zone(timezone)
    while batch := list(islice(rows, BATCH_ROWS)):
        columns = {
            name: list(values)
            for name, values in zip(header, zip(*(r for _, r in batch), strict=True), strict=True)
        }
        part = Batch(file, [number for number, _ in batch], columns, timezone, notes)
        note_undecodable(part, [row for _, row in batch])
        frame = pd.DataFrame(convert(part))
        take_down(part, frame)
        left_out.add_rows(part)
        frames.append(frame[part.kept])
        numbers.extend(np.array(part.lines)[part.kept].tolist())
    left_out.refuse_rubbish(file, len(numbers))
    done = put_together(frames, numbers, file, notes | left_out.notes())
    return replace(done, left_out=left_out.total)


def put_together(
    frames: list[Any], numbers: list[int], file: str, notes: dict[str, int]
) -> TraceImport:
    """One table of all batches; `numbers`: the line of each row. Raises TraceError where there is
    none.
    """
    if not numbers:
        raise TraceError(file, "at least one job", found="none")
    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    return TraceImport(make_trace(frame, file, np.array(numbers)), len(numbers), notes)


def note_undecodable(batch: Batch, rows: Iterable[Sequence[str]]) -> None:
    """Notes rows that have bytes which are no UTF-8."""
    batch.note(
        f"lines with bytes that are not UTF-8, read as {UNDECODABLE}",
        sum(map(_is_undecodable, rows)),
    )


def _is_undecodable(row: Sequence[str]) -> bool:
    return UNDECODABLE in "".join(row)


def check_zone(timezone: str | None) -> None:
    if timezone is None:
        return
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(timezone)
    except (ValueError, OSError, KeyError) as error:
        raise TraceError(
            "--timezone", "a name like America/Chicago or UTC", found=timezone
        ) from error
