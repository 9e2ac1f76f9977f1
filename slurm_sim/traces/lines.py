"""Lines of a text file of jobs: reading them, and finding the one that an error is about."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

from slurm_sim.files import no_device
from slurm_sim.traces.errors import TraceError

UNDECODABLE = "\ufffd"
"""What bytes that are no UTF-8 are read as."""


class Rule(NamedTuple):
    """What a field may hold."""

    is_good: Callable[[str], bool]
    expected: str


def open_text(path: Path) -> TextIO:
    """A text file, plain or gzipped, undecodable bytes replaced."""
    with no_device(path).open("rb") as probe:
        zipped = probe.read(2) == b"\x1f\x8b"
    raw: Any = gzip.open(path, "rb") if zipped else path.open("rb")  # noqa: SIM115 - the caller closes it
    return io.TextIOWrapper(raw, encoding="utf-8-sig", errors="replace", newline="")


def read_header(path: Path) -> list[str]:
    """The names in a CSV's first line."""
    with open_text(path) as lines:
        return next(csv.reader([lines.readline(100_000)]), [])


def line_of(path: Path, wanted: int) -> int | None:
    """The line, from 1, of a CSV's row, from 0 (blank lines are no rows, a quoted field may span lines)."""
    with open_text(path) as lines:
        reader = csv.reader(lines)
        next(reader, None)
        row = -1
        for fields in reader:
            row += bool(fields)
            if row == wanted:
                return reader.line_num
    return None


def refuse_bad_line(path: Path, rules: Mapping[str, Rule]) -> None:
    """Streams a CSV, slowly and in little memory, and raises TraceError for the first line that is wrong.

    `rules`: by the column's name; every line must have as many fields as the header, in UTF-8.
    """
    with open_text(path) as lines:
        reader = csv.reader(lines, strict=True)
        header = next(reader, [])
        checks = [(index, name, rules[name]) for index, name in enumerate(header) if name in rules]
        try:
            for row in filter(None, reader):
                if len(row) != len(header):
                    found, expected = f"{len(row)} fields", f"{len(header)} fields"
                    raise TraceError(str(path), expected, found=found, line=reader.line_num, field="line")
                for index, name, rule in checks:
                    if not rule.is_good(row[index]):
                        found = row[index] or "nothing"
                        raise TraceError(str(path), rule.expected, found=found, line=reader.line_num, field=name)
                if UNDECODABLE in "".join(row):
                    raise TraceError(str(path), "text in UTF-8", line=reader.line_num)
        except csv.Error as error:
            raise TraceError(str(path), f"a CSV line ({error})", line=reader.line_num) from error
