"""The table of jobs that every part works on: a checked pandas DataFrame, and its files.

Columns are those of docs/traces.md; times are Unix seconds, durations seconds. A time or limit that
is not known (pending, running, UNLIMITED) is missing, never a magic number.
"""

from __future__ import annotations

import errno
import gzip
import os
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pa_parquet
from numpy.typing import NDArray

from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.lines import Rule, line_of, read_csv, read_header, refuse_bad_line
from slurm_sim.traces.output import output_file

REQUIRED: dict[str, str] = {
    "job_id": "id",
    "user": "text",
    "partition": "text",
    "submit": "known time",
    "start": "time",
    "end": "time",
    "timelimit_s": "number",
    "nodes": "known",
    "gpus": "number",
    "cpus": "number",
    "state": "text",
}
"""Column: kind. known: a whole number that must be there; number: one that may be missing; time:
Unix seconds; id, text.
"""

OPTIONAL: dict[str, str] = {
    "account": "text",
    "qos": "text",
    "eligible": "time",
    "priority": "number",
    "dependency": "text",
    "array_job_id": "number",
    "array_task_id": "number",
    "array_throttle": "number",
    "exit_code": "text",
    "mem_mib": "number",
    "runtime_s": "number",
    "cancel_after_s": "number",
}

COLUMNS = REQUIRED | OPTIONAL
LAST_TIME_S = 7_258_118_399
"""A time in the year 2200 or later is one in milliseconds."""
_MOST = {"known": 2**53, "number": 2**53, "known time": LAST_TIME_S, "time": LAST_TIME_S}
"""The largest number of each kind."""
_KNOWN = ("known", "known time")
EXPECTED = {
    "id": "a job id like 5, 5_3 or 5+1",
    "text": "text",
    "known": "a whole number from 0 to 2^53",
    "number": "a whole number from 0 to 2^53, or nothing",
    "known time": "Unix seconds before the year 2200",
    "time": "Unix seconds before the year 2200, or nothing",
}
_ID = re.compile(r"[A-Za-z0-9_+.\-\[\]%,:]+")
FORMATS = (".csv", ".csv.gz", ".parquet")


@dataclass(frozen=True)
class Trace:
    """Jobs sorted by submission, one a row; ``jobs`` has all `REQUIRED` columns and some of
    `OPTIONAL`.
    """

    jobs: Any
    """The DataFrame: text columns as str, known columns as int64, the other numbers as Int64
    (nullable).
    """
    source: str = "table"
    rows: NDArray[np.int64] | None = field(default=None, repr=False, compare=False)
    """Each job's row in the file ``source``, from 0; None: the jobs are not simply those of a file.
    """
    _cache: dict[str, NDArray[np.float64]] = field(default_factory=dict, repr=False, compare=False)

    def __len__(self) -> int:
        return len(self.jobs)

    def column(self, name: str) -> NDArray[np.float64]:
        """A numeric column, shape (jobs,), NaN where it is unknown or the column is absent."""
        if name not in self._cache:
            if name in self.jobs.columns:
                self._cache[name] = self.jobs[name].to_numpy(dtype=np.float64, na_value=np.nan)
            else:
                self._cache[name] = np.full(len(self), np.nan)
        return self._cache[name]

    def text(self, name: str) -> NDArray[np.object_]:
        """A text column, shape (jobs,)."""
        values: NDArray[np.object_] = self.jobs[name].to_numpy(dtype=object)
        return values

    @property
    def wait_s(self) -> NDArray[np.float64]:
        """Start - submit; `sacct(1)` counts from Eligible where that is known, see `queued_s`."""
        return self.column("start") - self.column("submit")

    @property
    def queued_s(self) -> NDArray[np.float64]:
        """Start - eligible where eligible is known, else start - submit."""
        eligible = self.column("eligible")
        return self.column("start") - np.where(np.isnan(eligible), self.column("submit"), eligible)

    @property
    def run_s(self) -> NDArray[np.float64]:
        """End - start, else ``runtime_s`` (synthetic jobs, SWF without waits)."""
        run = self.column("end") - self.column("start")
        return np.where(np.isnan(run), self.column("runtime_s"), run)

    @property
    def ran(self) -> NDArray[np.bool_]:
        """Jobs that ran for at least a second."""
        return np.nan_to_num(self.run_s, nan=0.0) > 0

    @property
    def array_ids(self) -> NDArray[np.float64]:
        """Of tasks the array's id, as it is in ``array_job_id`` or in the task's own (``5_3``);
        NaN: no task.
        """
        own = (
            self.jobs["job_id"]
            .str.extract(r"^(\d{1,15})_\d+")[0]
            .to_numpy(dtype=np.float64, na_value=np.nan)
        )
        given = self.column("array_job_id")
        return np.where(np.isnan(given), own, given)

    def line(self, row: int) -> int | None:
        """A job's line in its file, from 1 (of a Parquet file its row); None: not known."""
        if self.rows is None:
            return None
        path, at = Path(self.source), int(self.rows[row])
        return at + 1 if path.name.endswith(".parquet") else line_of(path, at)

    def pick(self, rows: NDArray[Any]) -> Trace:
        """The jobs of a mask or of row numbers."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        kept = None if self.rows is None else self.rows[chosen]
        return Trace(self.jobs.iloc[chosen].reset_index(drop=True), self.source, kept)


def make_trace(
    frame: Any, source: str = "table", lines: NDArray[np.int64] | None = None, of_file: bool = False
) -> Trace:
    """Checks a DataFrame's columns and values, orders rows by submission (stable) and columns as
    documented.

    Raises `TraceError`: a column is missing or unknown, or a value is not of its kind. The line is
    ``lines[row]``, else row + 2, as in a CSV file. `of_file`: the rows are those of the file
    `source`.
    """
    _check_header([str(name) for name in frame.columns], source)
    columns = {}
    for name, kind in COLUMNS.items():
        if name in frame.columns:
            columns[name] = _typed(frame[name], name, kind, source, lines)
    jobs = pd.DataFrame(columns).reset_index(drop=True)
    if not jobs["submit"].is_monotonic_increasing:
        jobs = jobs.sort_values("submit", kind="stable")
    return Trace(jobs.reset_index(drop=True), source, jobs.index.to_numpy() if of_file else None)


def _check_header(names: list[str], file: str) -> None:
    missing = [name for name in REQUIRED if name not in names]
    unknown = [name for name in names if name not in COLUMNS]
    twice = [name for name in set(names) if names.count(name) > 1]
    if missing or unknown or twice:
        parts = [
            f"{what} {', '.join(sorted(found))}"
            for what, found in (("without", missing), ("unknown", unknown), ("twice", twice))
            if found
        ]
        raise TraceError(
            file,
            "the columns of docs/traces.md (another table: `mirage trace import --csv`)",
            found="; ".join(parts),
            line=1,
            field="header",
        )


def _typed(values: Any, name: str, kind: str, source: str, lines: NDArray[np.int64] | None) -> Any:
    if kind in ("text", "id"):
        text = _texts(values)
        _refuse(text.astype(object).to_numpy(), wrong_values(text, kind), name, source, lines)
        return text
    _refuse(values.astype(object).to_numpy(), wrong_values(values, kind), name, source, lines)
    floats = _floats(values)
    if kind in _KNOWN:
        return pd.Series(floats.astype(np.int64), index=values.index)
    whole = pd.array(np.nan_to_num(floats, nan=0.0).astype(np.int64), dtype="Int64")
    whole[np.isnan(floats)] = pd.NA
    return pd.Series(whole, index=values.index)


def wrong_values(values: Any, kind: str) -> NDArray[np.bool_]:
    """Which values of a column are not of its kind (`COLUMNS`), shape (rows,)."""
    if kind == "text":
        return np.zeros(len(values), bool)
    if kind == "id":
        matches: NDArray[np.bool_] = _texts(values).str.fullmatch(_ID.pattern).to_numpy(bool)
        return ~matches
    floats, given = _floats(values), values.notna().to_numpy(bool)
    good = (floats >= 0) & (floats <= _MOST[kind]) & (floats == np.floor(floats))
    result: NDArray[np.bool_] = ~good if kind in _KNOWN else given & ~good
    return result


def _texts(values: Any) -> Any:
    return values.astype(object).where(values.notna(), "").astype(str)


def _floats(values: Any) -> NDArray[np.float64]:
    """Of a column of numbers; NaN: not known, or no number."""
    is_text = not pd.api.types.is_numeric_dtype(values.dtype)
    numbers = pd.to_numeric(values, errors="coerce").astype("Float64") if is_text else values
    result: NDArray[np.float64] = numbers.to_numpy(dtype=np.float64, na_value=np.nan)
    return result


def _refuse(
    values: NDArray[np.object_],
    bad: NDArray[np.bool_],
    name: str,
    source: str,
    lines: NDArray[np.int64] | None,
) -> None:
    if bad.any():
        row = int(np.argmax(bad))
        found = "" if pd.isna(values[row]) else str(values[row])
        line = row + 2 if lines is None else int(lines[row])
        raise TraceError(
            source, EXPECTED[COLUMNS[name]], found=found or "nothing", line=line, field=name
        )


# --- files
# -----------------------------------------------------------------------------------------------------------


def read_trace(path: Path | str) -> Trace:
    """Reads .csv, .csv.gz or .parquet; a million lines take about a second.

    Raises `TraceError` with file, line, field, what was found and what was expected, for the first
    bad line.
    """
    path = Path(path)
    form = _form(path)
    try:
        frame = read_parquet(path).to_pandas() if form == ".parquet" else _read_csv(path)
        return make_trace(frame, str(path), of_file=True)
    except OSError as error:
        raise TraceError(str(path), f"a readable file ({reason(error)})") from error
    except (EOFError, pa.ArrowInvalid) as error:
        raise TraceError(
            str(path), f"a whole {form} file ({str(error).splitlines()[0]})"
        ) from error


def reason(error: Exception) -> str:
    """Why a file can't be read; pyarrow does not say it where the file is missing."""
    if isinstance(error, FileNotFoundError):
        return os.strerror(errno.ENOENT)
    return getattr(error, "strerror", None) or str(error).splitlines()[0]


def read_parquet(path: Path) -> Any:
    """A table whose columns are numbers or texts. Raises TraceError for another kind, OSError,
    ArrowInvalid.
    """
    table = pa_parquet.read_table(path)
    for column in table.schema:
        kind = column.type.value_type if pa.types.is_dictionary(column.type) else column.type
        known = (pa.types.is_integer, pa.types.is_floating, pa.types.is_boolean, pa.types.is_null)
        if not any(
            is_one(kind) for is_one in (*known, pa.types.is_string, pa.types.is_large_string)
        ):
            expected = "a column of numbers or text; times and durations are whole seconds"
            raise TraceError(str(path), expected, found=str(column.type), field=column.name)
    return table


def _form(path: Path) -> str:
    for form in FORMATS:
        if path.name.endswith(form):
            return form
    raise TraceError(str(path), f"a file name ending in {', '.join(FORMATS)}", found=path.name)


def _read_csv(path: Path) -> Any:
    header = read_header(path)
    _check_header(header, str(path))
    types = {name: pa.int64() if COLUMNS[name] in _MOST else pa.string() for name in header}
    table = read_csv(path, types, _rules())
    for (
        name
    ) in header:  # a value of the right type can still be wrong: negative, missing, not an id
        if _arrow_is_bad(table[name], COLUMNS[name]):
            refuse_bad_line(path, _rules())
    return table.to_pandas(types_mapper={pa.int64(): pd.Int64Dtype()}.get)


def _arrow_is_bad(column: Any, kind: str) -> bool:
    import pyarrow.compute as pc

    if kind in _KNOWN and column.null_count:
        return True
    if kind in _MOST:
        lowest, highest = (pc.min_max(column)[part].as_py() for part in ("min", "max"))
        return lowest is not None and (lowest < 0 or highest > _MOST[kind])
    if kind == "id":
        return pc.all(pc.match_substring_regex(column, f"^{_ID.pattern}$")).as_py() is False
    return False


def _rules() -> dict[str, Rule]:
    kinds = {name: kind for name, kind in COLUMNS.items() if kind != "text"}
    return {name: Rule(_checker(kind), EXPECTED[kind]) for name, kind in kinds.items()}


def _checker(kind: str) -> Callable[[str], bool]:
    if kind == "id":
        return lambda text: _ID.fullmatch(text) is not None
    return lambda text: (
        (not text and kind not in _KNOWN)
        or (text.isdecimal() and text.isascii() and int(text) <= _MOST[kind])
    )


def write_trace(trace: Trace, path: Path | str) -> None:
    """Writes .csv, .csv.gz or .parquet by the name's ending: the same jobs give the same bytes; all
    or nothing.
    """
    path = Path(path)
    form = _form(path)
    with output_file(path) as temporary:
        if form == ".parquet":
            pa_parquet.write_table(
                pa.Table.from_pandas(trace.jobs, preserve_index=False), temporary
            )
        elif form == ".csv":
            temporary.write_bytes(_csv_bytes(trace))
        else:  # no name and no time in the header, so that equal jobs give equal files
            temporary.write_bytes(gzip.compress(_csv_bytes(trace), compresslevel=6, mtime=0))


def _csv_bytes(trace: Trace) -> bytes:
    text: str = trace.jobs.to_csv(index=False, lineterminator="\n")
    return text.encode()


def numbered(trace: Trace) -> NDArray[np.int64]:
    """A number for each job, unique, shape (jobs,): its id where that is a plain number, else one
    above all ids.

    For programs that know jobs by number (the simulator); ``6203_5`` has no number of its own in a
    log.
    """
    numbers = pd.to_numeric(
        trace.jobs["job_id"].where(trace.jobs["job_id"].str.fullmatch(r"\d{1,15}")), errors="coerce"
    )
    known = numbers.notna().to_numpy(bool) & ~numbers.duplicated().to_numpy(bool)
    given = np.where(known, numbers.to_numpy(dtype=np.float64, na_value=0.0), 0.0).astype(np.int64)
    top = int(max(given.max(initial=0), np.nan_to_num(trace.array_ids).max(initial=0)))
    given[~known] = top + 1 + np.arange(int((~known).sum()))
    return given
