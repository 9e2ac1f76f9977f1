"""Jobs to simulate, as columns: from a CSV or Parquet file, or from a trace (docs/slurm-sim.md has
the columns).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from slurm_sim.jobs import WHOLE
from slurm_sim.ranges import LAST_ID, LONGEST_S, MOST
from slurm_sim.seconds import DAY_S
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.lines import Rule, line_of, read_csv, read_header
from slurm_sim.traces.table import Trace, numbered, read_parquet, reason

Ints = NDArray[np.int64]
MISSING = -1
"""In a column of numbers: not given."""


@dataclass(frozen=True)
class Number:
    """What a column of numbers may hold."""

    least: int
    most: int
    expected: str
    required: bool = False
    """A value must be there."""
    whole: bool = True

    def is_good(self, text: str) -> bool:
        if not text:
            return not self.required
        if DECIMAL.fullmatch(text) is None:
            return False
        value = float(text)
        return self.least <= value <= self.most and (
            value == int(value) if self.whole else value > 0
        )


def _whole(name: str, *, required: bool = False) -> Number:
    """As a `JobSpec`'s field of that name takes it, as far as floats tell such numbers apart.

    Times leave room for a day between slurmctld's start and the file's 0.
    """
    least, most = WHOLE[name]
    most = min(most, LAST_ID - 1) - DAY_S * (name in ("submit_s", "begin_s", "cancel_s"))
    expected = (
        f"a whole number from {least} to {most:,}{' (seconds)' if name.endswith('_s') else ''}"
    )
    return Number(least, most, expected + ("" if required else ", or nothing"), required)


_MINUTES = (
    f"minutes above 0, at most {LONGEST_S // 60:,}, or nothing for the partition's DefaultTime"
)
NUMBERS = {
    "job_id": _whole("job_id", required=True),
    "submit_s": _whole("submit_s", required=True),
    "nodes": _whole("nodes", required=True),
    "timelimit_min": Number(0, LONGEST_S // 60, _MINUTES, whole=False),
    "timelimit_s": _whole("time_limit_s"),
    "timemin_s": _whole("time_min_s"),
    "runtime_s": _whole("runtime_s"),
    "begin_s": _whole("begin_s"),
    "cancel_s": _whole("cancel_s"),
    "cpus": _whole("cpus_per_node"),
    "cpus_per_node": _whole("cpus_per_node"),
    "gpus": _whole("gpus_per_node"),
    "gpus_per_node": _whole("gpus_per_node"),
    "mem_mib": _whole("memory_mib_per_node"),
    "mem_mib_per_node": _whole("memory_mib_per_node"),
    "array_job_id": _whole("array_job_id"),
    "array_throttle": _whole("array_throttle"),
    "priority": _whole("priority"),
    "nice": Number(0, MOST, f"a whole number from 0 to {MOST:,}, or nothing"),
}
WORDS = {"0": 0, "1": 1, "false": 0, "true": 1, "no": 0, "yes": 1, "": MISSING}
FLAGS = {"held": 0, "exclusive": 0, "requeue": 1}
"""Columns of yes and no, with what an empty field means."""
TEXTS = (
    "user",
    "account",
    "partition",
    "qos",
    "dependency",
    "constraint",
    "reservation",
    "exit_code",
)
COLUMNS = (*NUMBERS, *FLAGS, *TEXTS)
REQUIRED = ("job_id", "submit_s", "nodes", "runtime_s")
SHARED = {"cpus": "cpus_per_node", "gpus": "gpus_per_node", "mem_mib": "mem_mib_per_node"}
"""Totals of a job, and what they become: an equal part on each node, rounded up."""
EXIT_CODE = re.compile(r"(\d{1,3})(?::(\d{1,3}))?", re.ASCII)
DECIMAL = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)


@dataclass(frozen=True)
class Jobs:
    """Jobs as columns of equal length: numbers as int64 with `MISSING`, texts as objects. Times as
    in the file.
    """

    source: str
    columns: dict[str, Any]
    """job_id, submit_s, nodes, timelimit_s, runtime_s always; of the others those that the file
    has.
    """
    labels: Any
    """The ids as the file has them, for the results."""
    locate: Callable[[int], int | None]
    """Where a row is in the file: its line, if there is one."""
    notes: tuple[str, ...] = ()
    given: dict[str, tuple[str, Any]] = field(default_factory=dict)
    """Of columns that have another name, or other values, in the file: that name, and the file's
    values.
    """
    names: dict[int, str] = field(default_factory=dict)
    """Of numbers that stand for jobs in dependencies: what the file says instead."""

    def __len__(self) -> int:
        return len(self.labels)

    def numbers(self, name: str) -> Ints:
        """A column of numbers; all `MISSING` if the file has none."""
        column: Ints | None = self.columns.get(name)
        return np.full(len(self), MISSING, np.int64) if column is None else column

    def texts(self, name: str) -> NDArray[np.object_]:
        """A column of texts; all empty if the file has none."""
        column: NDArray[np.object_] | None = self.columns.get(name)
        return np.full(len(self), "", object) if column is None else column

    def pick(self, rows: NDArray[Any]) -> Jobs:
        """The jobs of a mask or of row numbers."""
        chosen = np.flatnonzero(rows) if rows.dtype == bool else rows
        columns = {name: column[chosen] for name, column in self.columns.items()}
        given = {name: (own, values[chosen]) for name, (own, values) in self.given.items()}
        locate = self.locate
        return replace(
            self,
            columns=columns,
            labels=self.labels[chosen],
            locate=lambda row: locate(int(chosen[row])),
            given=given,
        )

    def own_name(self, name: str) -> str:
        """What the file calls a column."""
        return self.given[name][0] if name in self.given else name

    def name_of(self, job_id: int) -> str:
        """What the file calls a job that dependencies have as this number."""
        return self.names.get(job_id, str(job_id))

    def found(self, row: int, name: str) -> str:
        """What stands in the file."""
        value = self.given[name][1][row] if name in self.given else self.columns[name][row]
        if isinstance(value, str):
            return value or "nothing"
        return "nothing" if value == MISSING else _shown(value)

    def without(self, names: Iterable[str], why: str) -> Jobs:
        """Leaves columns out, by the file's names or ours, and notes which."""
        wanted = set(names)
        there = [name for name in self.columns if {name, self.own_name(name)} & wanted]
        if not there:
            return self
        columns = {name: column for name, column in self.columns.items() if name not in there}
        shown = ", ".join(map(self.own_name, there))
        return replace(self, columns=columns, notes=(*self.notes, f"not used: {shown} ({why})"))

    def refuse(self, row: int, name: str, expected: str, found: str | None = None) -> TraceError:
        """For raising: says where, in the file's own words."""
        line, own = self.locate(row), self.own_name(name)
        place = own if line is not None else f"job {self.labels[row]}: {own}"
        found = self.found(row, name) if found is None else found
        return TraceError(self.source, expected, found=found, line=line, field=place)


def like(name: str, known: Iterable[str]) -> str:
    """For messages: `` (did you mean ...?)``, or nothing if no known name is like it."""
    near = difflib.get_close_matches(name, list(known), 1, cutoff=0.7)
    return f" (did you mean {near[0]}?)" if near else ""


NEEDED = ("job_id", "submit_s", "nodes")


def without_ignored(jobs: Jobs, names: Iterable[str]) -> Jobs:
    """Without the columns of `--ignore`. Raises TraceError for a name that no table of jobs has."""
    own = {jobs.own_name(name) for name in jobs.columns}
    for name in (names := list(names)):
        if name in NEEDED or name in map(jobs.own_name, NEEDED):
            raise TraceError("--ignore", "a column that jobs can do without", found=name)
        if name not in own.union(COLUMNS):
            hint = like(name, own.union(COLUMNS)) or f": {', '.join(sorted(own))}"
            raise TraceError("--ignore", f"columns of the jobs{hint}", found=name)
    return jobs.without(names, "--ignore")


# --- files
# -----------------------------------------------------------------------------------------------------------


def read_jobs(path: Path) -> Jobs:
    """Reads .csv, .csv.gz or .parquet. Raises TraceError for the first bad line, saying where and
    what is expected.
    """
    try:
        if path.name.endswith(".parquet"):
            table = read_parquet(path)
            _check_header(table.column_names, str(path))
            return _jobs(path, table, lambda row: row + 1)
        return _jobs(path, _read_csv(path), lambda row: line_of(path, row))
    except (OSError, EOFError, pa.ArrowInvalid) as error:
        raise TraceError(str(path), f"a readable table of jobs ({reason(error)})") from error


def _check_header(names: Sequence[str], file: str) -> None:
    missing = [name for name in REQUIRED if name not in names]
    if not {"timelimit_min", "timelimit_s"} & set(names):
        missing.append("timelimit_min")
    if missing:
        like_a_trace = {"submit", "start", "end"} <= set(names)
        hint = "; this looks like a trace: give it with --trace" if like_a_trace else ""
        expected = f"the columns job_id, submit_s, nodes, timelimit_min, runtime_s{hint}"
        raise TraceError(file, expected, found=",".join(names), line=1, field="header")
    if twice := sorted({name for name in names if list(names).count(name) > 1}):
        raise TraceError(file, "each column once", found=", ".join(twice), line=1, field="header")
    for pair in (("timelimit_min", "timelimit_s"), *SHARED.items()):
        if set(pair) <= set(names):
            raise TraceError(
                file, f"{pair[0]} or {pair[1]}, not both", found="both", line=1, field="header"
            )


def _read_csv(path: Path) -> Any:
    header = read_header(path)
    _check_header(header, str(path))
    types = {name: pa.float64() if name in NUMBERS else pa.string() for name in header}
    return read_csv(
        path, types, {name: Rule(rule.is_good, rule.expected) for name, rule in NUMBERS.items()}
    )


def _jobs(path: Path, table: Any, locate: Callable[[int], int | None]) -> Jobs:
    raw: dict[str, Any] = {}
    jobs = Jobs(str(path), raw, np.arange(table.num_rows), locate)
    for name in (each for each in COLUMNS if each in table.column_names):
        raw[name] = (
            _numbers(jobs, name, table[name])
            if name in NUMBERS
            else _texts(jobs, name, table[name])
        )
    unknown = [name + like(name, COLUMNS) for name in table.column_names if name not in COLUMNS]
    notes = (f"unknown columns, not used: {', '.join(unknown)}",) if unknown else ()
    return _finished(replace(jobs, labels=raw["job_id"], notes=notes))


def _numbers(jobs: Jobs, name: str, column: Any) -> Any:
    """int64 with `MISSING`; timelimit_min stays float64."""
    rule = NUMBERS[name]
    try:
        floats = column.cast(pa.float64(), safe=False).to_numpy(zero_copy_only=False)
    except pa.ArrowInvalid:
        texts = pd.Series(column.to_pandas())
        row = int(
            np.argmax((pd.to_numeric(texts, errors="coerce").isna() & texts.notna()).to_numpy())
        )
        raise jobs.refuse(row, name, rule.expected, str(texts[row])) from None
    empty = column.is_null().to_numpy()
    good = (floats >= rule.least) & (floats <= rule.most)
    if rule.whole:
        good &= floats == np.floor(floats)
    else:
        good &= floats > 0
    bad = ~good & ~empty
    if rule.required:
        bad |= empty
    if bad.any():
        row = int(np.argmax(bad))
        found = "nothing" if empty[row] else _shown(floats[row])
        raise jobs.refuse(row, name, rule.expected, found)
    filled = np.where(empty, MISSING, floats)
    return filled.astype(np.int64) if rule.whole else filled


def _shown(value: float) -> str:
    """Integers in full, also where they are floats."""
    if value >= LAST_ID:
        return f"about {value:.16g}"
    return f"{value:.0f}" if np.isfinite(value) and value == np.floor(value) else f"{value:.15g}"


def _texts(jobs: Jobs, name: str, column: Any) -> Any:
    coded = column.cast(pa.string()).fill_null("").combine_chunks().dictionary_encode()
    values = [text.strip() for text in coded.dictionary.to_pylist()]
    codes = coded.indices.to_numpy()
    if name in FLAGS:
        known = np.array([WORDS.get(text.lower(), -2) for text in values], np.int64)
        bad = known[codes] == -2
        expected = "yes or no"
    elif name == "exit_code":
        bad = np.array([bool(text) and EXIT_CODE.fullmatch(text) is None for text in values], bool)[
            codes
        ]
        expected = "an exit code like 1 or 1:0"
    else:
        return np.array([*values, ""], object)[codes]
    if bad.any():
        row = int(np.argmax(bad))
        raise jobs.refuse(row, name, expected, values[codes[row]])
    if name in FLAGS:
        return np.where(known < 0, FLAGS[name], known)[codes]
    return exit_codes(np.array(values, object))[codes]


def exit_codes(texts: NDArray[np.object_]) -> Ints:
    """``1``, ``1:0`` or ``0:9`` (a signal) as one number; anything else: 0."""
    found = (EXIT_CODE.fullmatch(str(text)) for text in texts)
    return np.array(
        [int(match[1]) or int(match[2] or 0) if match else 0 for match in found], np.int64
    )


def _finished(jobs: Jobs) -> Jobs:
    """Limits in seconds, totals of a job as parts of each node; each id once."""
    columns, given = dict(jobs.columns), dict(jobs.given)
    if "timelimit_min" in columns:
        minutes = columns.pop("timelimit_min")
        given["timelimit_s"] = ("timelimit_min", minutes)
        columns["timelimit_s"] = np.where(
            minutes < 0, MISSING, np.ceil(np.round(minutes * 60, 6))
        ).astype(np.int64)
    for total, each in SHARED.items():
        if total in columns:
            amount = columns.pop(total)
            given[each] = (total, amount)
            columns[each] = np.where(
                amount < 0, MISSING, -(-amount // np.maximum(columns["nodes"], 1))
            )
    ids = columns["job_id"]
    order = np.argsort(ids, kind="stable")
    again = order[1:][ids[order[1:]] == ids[order[:-1]]]
    if len(again):
        row = int(again.min())
        raise jobs.refuse(row, "job_id", "each id once")
    return replace(jobs, columns=columns, given=given)


# --- traces
# ----------------------------------------------------------------------------------------------------------


def jobs_of(trace: Trace, priorities: bool = False) -> Jobs:
    """What a trace's users asked for, and how their jobs behaved; times stay Unix seconds.

    A job that never ran, or with nothing but an end, is cancelled when it ended in the log. One
    that was eligible after its submission, without a dependency that says why, gets that as its
    begin time. Priorities are the simulator's own, or with `priorities` the log's.
    """
    run = trace.run_s
    submit, start, end = (trace.column(name) for name in ("submit", "start", "end"))
    never_ran = ~np.isnan(end) & (
        np.isnan(start) | ((run == 0) & (trace.text("state") == "CANCELLED"))
    )
    cancel = np.where(never_ran, end, submit + trace.column("cancel_after_s"))
    columns: dict[str, Any] = {
        "job_id": numbered(trace),
        "submit_s": submit.astype(np.int64),
        "nodes": trace.column("nodes").astype(np.int64),
        "timelimit_s": _filled(trace.column("timelimit_s")),
        "runtime_s": _filled(np.where(never_ran & ~(run > 0), np.nan, run)),
    }
    given: dict[str, tuple[str, Any]] = {"submit_s": ("submit", columns["submit_s"])}
    if not np.isnan(end - start).all():
        given["runtime_s"] = ("end - start", columns["runtime_s"])
    _add_resources(trace, columns, given)
    if not np.isnan(cancel).all():
        columns["cancel_s"] = _filled(cancel)
        given["cancel_s"] = ("cancel_after_s", _filled(trace.column("cancel_after_s")))
    for name in ("user", "partition", "account", "qos", "dependency"):
        if name in trace.jobs.columns and (trace.text(name) != "").any():
            columns[name] = trace.text(name)
    columns |= _arrays_and_priorities(trace, priorities)
    names = _add_dependencies(trace, columns, given)
    columns["exit_code"] = _exit_codes_of(trace)
    return Jobs(trace.source, columns, trace.text("job_id"), trace.line, given=given, names=names)


def _add_resources(
    trace: Trace, columns: dict[str, Any], given: dict[str, tuple[str, Any]]
) -> None:
    """CPUs, memory and GPUs of each node, where the trace has any."""
    each = np.maximum(columns["nodes"], 1)
    for name, ours in SHARED.items():
        if (trace.column(name) > 0).any():
            asked = np.ceil(trace.column(name) / each)
            columns[ours] = _filled(np.where(asked > 0, asked, np.nan) if name == "cpus" else asked)
            given[ours] = (name, _filled(trace.column(name)))


def _arrays_and_priorities(trace: Trace, priorities: bool) -> dict[str, Any]:
    """Columns of numbers that only some traces have."""
    numbers = {"array_throttle": trace.column("array_throttle")}
    if priorities:
        logged = trace.column("priority")
        # 0: the job was held when it was logged.
        numbers["priority"] = np.where(logged == 0, np.nan, logged)
    numbers["array_job_id"] = trace.array_ids
    return {name: _filled(values) for name, values in numbers.items() if not np.isnan(values).all()}


def _add_dependencies(
    trace: Trace, columns: dict[str, Any], given: dict[str, tuple[str, Any]]
) -> dict[int, str]:
    """Dependencies by number, and begin times of jobs that were eligible late without one; the
    names of jobs that dependencies name.
    """
    late = trace.column("eligible") > trace.column("submit")
    names: dict[int, str] = {}
    if "dependency" in columns:
        given["dependency"] = ("dependency", columns["dependency"])
        columns["dependency"], names = _by_number(
            columns["dependency"], trace.text("job_id"), columns["job_id"]
        )
        late &= columns["dependency"] == ""
    if late.any():
        columns["begin_s"] = _filled(np.where(late, trace.column("eligible"), np.nan))
        given["begin_s"] = ("eligible", _filled(trace.column("eligible")))
    return names


def _exit_codes_of(trace: Trace) -> NDArray[np.int64]:
    """A job that failed without a code has 1."""
    failed = trace.text("state") == "FAILED"
    codes = (
        exit_codes(trace.text("exit_code"))
        if "exit_code" in trace.jobs.columns
        else np.zeros(len(trace), np.int64)
    )
    return np.where(codes == 0, failed.astype(np.int64), codes)


NAMED = re.compile(r":([\w.\-]*[^\W\d][\w.\-]*\*?)", re.ASCII)
"""A job that a dependency names by more than a number: a task, ``5_3`` or ``5_*``, or another run,
``5.r1``.
"""


def _by_number(
    texts: NDArray[np.object_], labels: NDArray[np.object_], numbers: Ints
) -> tuple[NDArray[np.object_], dict[int, str]]:
    """Dependencies on the simulator's numbers, and what the trace calls those.

    Without ``(unfulfilled)``, as sacct has it for jobs that were pending. One on a task that the
    trace does not have is on a number that no job has.
    """
    number_of = dict(zip(labels.tolist(), numbers.tolist(), strict=True))
    nobody, names = int(numbers.max(initial=0)) + 1, dict[int, str]()

    def number(match: re.Match[str]) -> str:
        name = match[1]
        if name.endswith("_*"):
            return f":{name[:-2]}"
        names[number_of.setdefault(name, nobody + len(names))] = name
        return f":{number_of[name]}"

    return (
        np.array([NAMED.sub(number, re.sub(r"\(\w+\)", "", text)) for text in texts], object),
        names,
    )


def _filled(values: NDArray[np.float64]) -> Ints:
    return np.where(np.isnan(values), MISSING, values).astype(np.int64)
