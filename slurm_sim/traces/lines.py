"""Text files of jobs: CSV as Arrow tables, lines one by one, and the line that an error is about."""

from __future__ import annotations

import csv
import gzip
import io
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, TextIO

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pa_csv

from slurm_sim.files import open_bytes
from slurm_sim.traces.errors import TraceError

UNDECODABLE = "\ufffd"
"""What bytes that are no UTF-8 are read as."""


class Rule(NamedTuple):
    """What a field may hold."""

    is_good: Callable[[str], bool]
    expected: str


GZIP, PARQUET = b"\x1f\x8b", b"PAR1"
MOST_LINE = 16 << 20
"""Characters. A file with a longer line is none of jobs, and would fill the memory."""
ONE_LINE = "a value within its line; a quote is not closed?"


def open_text(path: Path) -> TextIO:
    """A text file, plain or gzipped, undecodable bytes replaced. Opened once, so it may be a pipe.

    Raises TraceError for Parquet.
    """
    file: Any = open_bytes(path)  # the caller closes it
    begin = file.peek(4)
    if begin.startswith(PARQUET):
        file.close()
        raise TraceError(
            str(path),
            "text, not Parquet; write it as .csv instead (`slurm-sim run --out R.csv` does)",
        )
    if begin.startswith(GZIP):
        raw, file = file, gzip.GzipFile(fileobj=file)
        file.myfileobj = raw  # what it closes with itself
    return io.TextIOWrapper(file, encoding="utf-8-sig", errors="replace", newline="")


def bounded(lines: TextIO, path: Path | str) -> Iterator[str]:
    """Line by line, each with its end. Raises TraceError for one of more than `MOST_LINE`
    characters.
    """
    number = 0
    while line := lines.readline(MOST_LINE):
        number += 1
        if len(line) == MOST_LINE:
            raise TraceError(str(path), f"lines of less than {MOST_LINE:,} characters", line=number)
        yield line


def read_header(path: Path) -> list[str]:
    """The names in a CSV's first line. Raises TraceError for a pipe: a table is read more than
    once.
    """
    if path.is_fifo():
        raise TraceError(str(path), "a file: a table is read more than once", found="a pipe")
    with open_text(path) as lines:
        text = lines.readline(100_000)
    if UNDECODABLE in text:
        raise TraceError(str(path), "names in UTF-8", line=1, field="header")
    return next(csv.reader([text]), [])


def read_csv(path: Path, types: Mapping[str, Any], rules: Mapping[str, Rule]) -> Any:
    """A CSV, plain or gzipped, as an Arrow table.

    `types`: Arrow's, of columns that may be there; those of others are guessed. Raises TraceError
    for the first line that is wrong, by `rules` as `refuse_bad_line`; OSError, EOFError.
    """
    with open_bytes(path) as probe:
        compression = "gzip" if probe.read(2) == GZIP else None
    # Types are given, so that a column that is whole in one block and empty in another stays one
    # type.
    convert = pa_csv.ConvertOptions(column_types=types, null_values=[""], strings_can_be_null=False)
    try:
        with pa.input_stream(str(path), compression=compression) as stream:
            # Without it Arrow drops what comes after a quote that is never closed, to the end of
            # its block.
            parse = pa_csv.ParseOptions(newlines_in_values=True)
            table = pa_csv.read_csv(stream, parse_options=parse, convert_options=convert)
    except (pa.ArrowInvalid, pa.ArrowKeyError) as error:
        refuse_bad_line(path, rules)
        raise TraceError(str(path), f"a CSV file ({str(error).splitlines()[0]})") from error
    if any(map(_spans_lines, table.columns)):
        refuse_bad_line(path, rules)
        raise TraceError(str(path), ONE_LINE)
    return table


def _spans_lines(column: Any) -> bool:
    """Whether a text of this column goes on in the next line: Arrow takes a quote that is never
    closed for that.
    """
    return bool(
        pa.types.is_string(column.type) and pc.any(pc.match_substring(column, "\n")).as_py()
    )


def line_of(path: Path, wanted: int) -> int | None:
    """The line, from 1, of a CSV's row, from 0 (blank lines are no rows)."""
    with open_text(path) as lines:
        reader = csv.reader(bounded(lines, path))
        next(reader, None)
        row = -1
        for fields in reader:
            row += bool(fields)
            if row == wanted:
                return reader.line_num
    return None


def refuse_bad_line(path: Path, rules: Mapping[str, Rule]) -> None:
    """Streams a CSV, slowly and in little memory, and raises TraceError for the first line that is
    wrong.

    `rules`: by the column's name; every line must have as many fields as the header, in UTF-8, and
    end where they do.
    """
    with open_text(path) as lines:
        reader = csv.reader(bounded(lines, path), strict=True)
        line = 1
        try:
            header = next(reader, [])
            checks = [
                (index, name, rules[name]) for index, name in enumerate(header) if name in rules
            ]
            line = reader.line_num + 1
            for row in reader:
                if row:
                    _check_row(path, line, row, header, checks)
                line = reader.line_num + 1
        except csv.Error as error:
            raise TraceError(str(path), f"a CSV line ({error})", line=line) from error


def _check_row(
    path: Path, line: int, row: list[str], header: list[str], checks: list[tuple[int, str, Rule]]
) -> None:
    for index, text in enumerate(row):
        if "\n" in text or "\r" in text:
            field = header[index] if index < len(header) else "line"
            raise TraceError(str(path), ONE_LINE, found=text, line=line, field=field)
    if len(row) != len(header):
        found, expected = f"{len(row)} fields", f"{len(header)} fields"
        raise TraceError(str(path), expected, found=found, line=line, field="line")
    for index, name, rule in checks:
        if not rule.is_good(row[index]):
            raise TraceError(
                str(path), rule.expected, found=row[index] or "nothing", line=line, field=name
            )
    if UNDECODABLE in "".join(row):
        raise TraceError(str(path), "text in UTF-8", line=line)
