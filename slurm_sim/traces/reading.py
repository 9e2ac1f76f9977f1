"""Foreign files, batch by batch: a million lines never lie in memory as text."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.fields import Batch
from slurm_sim.traces.lines import UNDECODABLE, open_text
from slurm_sim.traces.table import Trace, make_trace

Row = tuple[int, list[str]]
"""A line's number and its fields."""
BATCH_ROWS = 100_000


@dataclass(frozen=True)
class Imported:
    """A log as it says itself, before any cleaning."""

    trace: Trace
    rows: int
    """Lines with a job."""
    notes: dict[str, int] = field(default_factory=dict)
    """What was done to lines and values, and how often."""


def opened(path: Path | str) -> Iterator[Row]:
    """The file's lines, numbered, whole, with blank ones left out."""
    path = Path(path)
    try:
        with open_text(path) as lines:
            for number, line in enumerate(lines, 1):
                if line.strip():
                    yield number, [line.rstrip("\r\n")]
    except (OSError, EOFError) as error:
        raise TraceError(str(path), f"a readable text file ({getattr(error, 'strerror', None) or error})") from error


def opened_csv(path: Path | str, delimiter: str = ",") -> Iterator[Row]:
    """The same with CSV's quoting; a field may span lines."""
    path, last = Path(path), 0
    try:
        with open_text(path) as lines:
            reader = csv.reader(lines, delimiter=delimiter, strict=True)
            for row in reader:
                last = reader.line_num
                if row:
                    yield last, row
    except csv.Error as error:
        raise TraceError(str(path), f"a CSV line ({error})", line=last + 1) from error
    except (OSError, EOFError) as error:
        raise TraceError(str(path), f"a readable text file ({getattr(error, 'strerror', None) or error})") from error


def gather(
    rows: Iterator[Row],
    header: list[str],
    convert: Callable[[Batch], dict[str, Any]],
    file: str,
    timezone: str | None = None,
) -> Imported:
    """Runs ``convert`` over batches of rows, each as long as the header, and puts the tables together."""
    notes: dict[str, int] = {}
    frames = []
    numbers: list[int] = []
    _check_zone(timezone)
    while batch := list(islice(rows, BATCH_ROWS)):
        columns = {
            name: list(values) for name, values in zip(header, zip(*(r for _, r in batch), strict=True), strict=True)
        }
        part = Batch(file, [number for number, _ in batch], columns, timezone, notes)
        part.note(f"lines with bytes that are not UTF-8, read as {UNDECODABLE}", sum(map(_is_undecodable, batch)))
        frames.append(pd.DataFrame(convert(part)))
        numbers.extend(part.lines)
    if not frames:
        raise TraceError(file, "at least one job", found="none")
    frame = pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]
    return Imported(make_trace(frame, file, np.array(numbers)), len(numbers), notes)


def _is_undecodable(row: Row) -> bool:
    return UNDECODABLE in "".join(row[1])


def _check_zone(timezone: str | None) -> None:
    if timezone is None:
        return
    from zoneinfo import ZoneInfo

    try:
        ZoneInfo(timezone)
    except (ValueError, OSError, KeyError) as error:
        raise TraceError("--timezone", "a name like America/Chicago or UTC", found=timezone) from error
