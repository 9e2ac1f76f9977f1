"""Logs in other formats: SWF, the published Mirage log, any CSV.

Each as it is; cleaning.py comes after. `sacct`: sacct.py.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import groupby
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_sim.traces import fields
from slurm_sim.traces.errors import TraceError, Wrong
from slurm_sim.traces.fields import Batch, count_zoneless
from slurm_sim.traces.left_out import UNENDED, SkippedRecords
from slurm_sim.traces.reading import Row, TraceImport, gather, opened, opened_csv
from slurm_sim.traces.table import COLUMNS

# --- SWF
# -------------------------------------------------------------------------------------------------------------

SWF = [
    "job",
    "submit",
    "wait",
    "run",
    "procs_used",
    "cpu",
    "mem_used",
    "procs",
    "run_asked",
    "mem_asked",
    "status",
]
SWF += ["user", "group", "app", "queue", "partition", "before", "think"]
STATUS, SUBMIT, RUN = SWF.index("status"), SWF.index("submit"), SWF.index("run")
SWF_STATE = {
    "0": "FAILED",
    "1": "COMPLETED",
    "3": "COMPLETED",
    "4": "FAILED",
    "5": "CANCELLED",
    "-1": "",
}
PARTS = ("2", "3", "4")
"""Statuses of one execution of a job that was swapped out in between: to be continued, the last
one, one killed.
"""


def import_swf(path: Path | str, cpus_per_node: int = 1) -> TraceImport:
    """The Standard Workload Format 2.2: 18 numbers a job, -1 unknown; times from the header's
    UnixStartTime.

    Processors become nodes by ``cpus_per_node``, rounded up; the memory asked for, KB a processor,
    that of the job. A job without a wait has ``runtime_s`` only. Of a job that was swapped out the
    line that sums it up counts; where there is none, its executions are put together. Source:
    Feitelson, The Standard Workload Format,
    https://www.cs.huji.ac.il/labs/parallel/workload/swf.html

    A line that is none of this format is left out and counted in the notes, and so is a last one
    that may be cut off. Raises TraceError if more than half of them are.
    """
    header: dict[str, str] = {}
    notes: dict[str, int] = {}
    left_out = SkippedRecords()
    rows = _whole_jobs(_swf_rows(path, header, left_out), notes)

    def convert(batch: Batch) -> dict[str, Any]:
        return _swf_columns(batch, _swf_begin_s(header, str(path)), cpus_per_node)

    done = gather(rows, SWF, convert, str(path), left_out)
    if "UnixStartTime" not in header:
        notes["times from 1970 on: the header has no UnixStartTime"] = done.rows
    cpus = _header_number(header, "MaxProcs") / max(1, _header_number(header, "MaxNodes"))
    if cpus_per_node == 1 and cpus > 1:
        notes[f"a processor taken for a node: the header has {cpus:g} a node (--cpus-per-node)"] = (
            done.rows
        )
    return replace(done, notes=done.notes | notes)


def _header_number(header: Mapping[str, str], name: str) -> int:
    match = re.match(r"\d{1,9}", header.get(name, ""))
    return int(match[0]) if match else 0


def _whole_jobs(rows: Iterator[Row], notes: dict[str, int]) -> Iterator[Row]:
    """One row a job. Lines of one job that was swapped out follow each other; only the first has a
    submit time.
    """
    for _, group in groupby(rows, key=lambda row: row[1][0]):
        lines = list(group)
        parts = [line for line in lines if _status(line) in PARTS]
        yield from (line for line in lines if _status(line) not in PARTS)
        if parts and len(parts) == len(lines):
            yield _put_together(lines)
        if parts:
            what = (
                "lines of single executions of jobs that were swapped out; one line a job is kept"
            )
            notes[what] = notes.get(what, 0) + len(parts)


def _put_together(lines: list[Row]) -> Row:
    """A job of which there are only single executions: it ran as long as they did together."""
    number, first = lines[0]
    runs = [line[RUN] for _, line in lines]
    try:
        run = "-1" if "-1" in runs else f"{sum(map(float, runs)):g}"
    except ValueError:
        run = next(text for text in runs if not _is_number(text))  # is refused with its column
    whole = list(first)
    whole[RUN], whole[STATUS] = run, lines[-1][1][STATUS]
    return number, whole


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _status(row: Row) -> str:
    return row[1][STATUS].split(".")[0]


def _swf_begin_s(header: Mapping[str, str], file: str) -> float:
    text = (header.get("UnixStartTime", "").split() or ["0"])[0]
    try:
        return float(text)
    except ValueError:
        raise TraceError(file, "seconds since 1970", found=text, field="; UnixStartTime") from None


def _swf_rows(path: Path | str, header: dict[str, str], left_out: SkippedRecords) -> Iterator[Row]:
    unended: list[int] = []
    for number, [line] in opened(path, unended.append):
        if line.lstrip().startswith(";"):
            name, colon, value = line.lstrip("; \t").partition(":")
            if colon:
                header.setdefault(name.strip(), value.strip())
            continue
        parts = line.split()
        if len(parts) != len(SWF):
            left_out.add(number, Wrong("line", f"{len(parts)} fields", "18 numbers (SWF)"))
        elif unended and parts[-1] != "-1":
            left_out.add(number, UNENDED)
        else:
            yield number, parts


def _swf_columns(batch: Batch, begin: float, cpus_per_node: int) -> dict[str, Any]:
    def column(name: str) -> NDArray[np.float64]:
        values = batch.mapped(name, _swf_number, "a number, -1 for unknown").astype(np.float64)
        return np.where(values < 0, np.nan, values)

    submitted = batch.mapped("submit", _swf_submit, "seconds from 0 on").astype(np.float64)
    submit, wait, run = begin + submitted, column("wait"), column("run")
    used = column("procs_used")
    procs = np.where(np.isnan(used) | (used == 0), column("procs"), used)
    start = np.floor(submit + wait)
    before = column("before")
    chained = ~np.isnan(before) & (before > 0)
    state = _swf_states(batch)
    # Its wait is the time in the queue until it was cancelled.
    never_ran = (state == "CANCELLED") & ~(np.nan_to_num(run) > 0)
    no_wait = np.isnan(wait) & ~never_ran
    batch.note("jobs without a wait: only their run time is known", no_wait.sum())
    batch.note("jobs whose run time is unknown", (np.isnan(run) & ~never_ran).sum())
    batch.note("jobs whose processors are unknown", (~(procs > 0)).sum())
    thinks = chained & (np.nan_to_num(column("think")) > 0)
    batch.note("think times after the job before, left out: there is only afterany", thinks.sum())
    asked = column("mem_asked")
    each_kib, count = np.where(asked > 0, asked, np.nan), np.where(procs > 0, procs, np.nan)
    memory_mib = np.ceil(each_kib * count / 1024)
    result = {
        "job_id": [text.split(".")[0] for text in batch.columns["job"]],
        "user": _prefixed("u", batch.columns["user"], ~np.isnan(column("user"))),
        "partition": np.where(np.isnan(column("queue")), "", batch.columns["queue"]),
        "submit": np.floor(submit),
        "start": np.where(never_ran, np.nan, start),
        "end": np.where(never_ran, start, start + np.floor(run)),
        "timelimit_s": np.floor(column("run_asked")),
        "nodes": np.ceil(np.nan_to_num(procs) / cpus_per_node),
        "gpus": 0.0,
        "cpus": procs,
        "state": state,
        "dependency": _prefixed("afterany:", batch.columns["before"], chained),
        "runtime_s": np.where(never_ran, np.nan, np.floor(run)),
    }
    return result if np.isnan(memory_mib).all() else result | {"mem_mib": memory_mib}


def _swf_states(batch: Batch) -> NDArray[np.object_]:
    states = [SWF_STATE.get(text.split(".")[0], "") for text in batch.columns["status"]]
    batch.note("jobs whose status is unknown, or none of the format's", states.count(""))
    return np.array(states, dtype=object)


def _prefixed(prefix: str, texts: Sequence[str], where: NDArray[np.bool_]) -> NDArray[np.str_]:
    """The texts behind the prefix; empty elsewhere."""
    return np.where(where, [prefix + text for text in texts], "")


def _swf_number(text: str) -> float:
    value = float(text)
    if not np.isfinite(value):
        raise ValueError(text)
    return value


def _swf_submit(text: str) -> float:
    value = _swf_number(text)
    if value < 0:
        raise ValueError(text)
    return value


# --- the published Mirage log
# ----------------------------------------------------------------------------------------


def import_mirage_log(
    path: Path | str, timezone: str | None = "America/Chicago", gpus_per_node: int = 0
) -> TraceImport:
    """The log format of github.com/zhaozhang/Mirage (data/ls6-a100.log): sacct's columns with a
    count line and a dashed line, tabs or blanks between fields, local times (TACC's), limits in
    minutes.

    The file has no state: end == start is CANCELLED (in the queue), a run of at least its limit
    TIMEOUT, exit 0:0 COMPLETED, else FAILED; no CPUs.
    """
    lines = opened(path)
    header: list[str] = []
    for _number, [line] in lines:
        if "JobID" in line:
            header = line.split()
            break
    needed = {"JobID", "UID", "Start", "Submit", "End", "TimelimitR", "NNodes"}
    if missing := sorted(needed - set(header)):
        raise TraceError(str(path), f"a header line with {', '.join(missing)}", field="header")
    notes: dict[str, int] = {}
    left_out = SkippedRecords()
    rows = _mirage_rows(lines, header, left_out, notes)

    def convert(batch: Batch) -> dict[str, Any]:
        return _mirage_columns(batch, gpus_per_node)

    done = gather(rows, header, convert, str(path), left_out, timezone)
    return replace(done, notes=done.notes | notes)


def _mirage_rows(
    lines: Iterator[Row], header: list[str], left_out: SkippedRecords, notes: dict[str, int]
) -> Iterator[Row]:
    stamp = re.compile(r"\d{4}-\d\d-\d\dT")
    first_time = min(header.index(name) for name in ("Start", "Submit", "End"))
    repaired = "lines with a stray field before the times, left out"
    for number, [line] in lines:
        if not line.strip("- \t"):
            continue
        parts = line.split("\t") if "\t" in line else line.split()
        extra = len(parts) - len(header)
        if extra == 1 and stamp.match(parts[first_time + 1]) and not stamp.match(parts[first_time]):
            del parts[first_time]
            notes[repaired] = notes.get(repaired, 0) + 1
        if len(parts) != len(header):
            left_out.add(number, Wrong("line", f"{len(parts)} fields", f"{len(header)} fields"))
        else:
            yield number, parts


def _mirage_columns(batch: Batch, gpus_per_node: int) -> dict[str, Any]:
    start, end = batch.times("Start"), batch.times("End")
    limit = batch.numbers("TimelimitR", "minutes, or UNLIMITED") * 60
    nodes = batch.numbers("NNodes")
    exits = batch.columns.get("ExitCode", ["0:0"] * len(nodes))
    run = end - start
    state = np.select(
        [np.isnan(run), run == 0, run >= limit, np.array(exits) == "0:0"],
        ["PENDING", "CANCELLED", "TIMEOUT", "COMPLETED"],
        "FAILED",
    )
    result: dict[str, Any] = {
        "job_id": batch.columns["JobID"],
        "user": ["u" + uid for uid in batch.columns["UID"]],
        "partition": "",
        "submit": batch.times("Submit"),
        "start": start,
        "end": end,
        "timelimit_s": limit,
        "nodes": nodes,
        "gpus": nodes * gpus_per_node,
        "cpus": np.nan,
        "state": state,
        "exit_code": exits,
    }
    if "Priority" in batch.columns:
        result["priority"] = batch.numbers("Priority")
    return result


# --- any CSV
# ---------------------------------------------------------------------------------------------------------

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def import_csv(
    path: Path | str,
    mapping: Mapping[str, str] | None = None,
    timezone: str | None = None,
    delimiter: str = ",",
) -> TraceImport:
    """Any CSV with a header. ``mapping``: our column -> theirs, ``timelimit_s: walltime:min`` for
    another unit.

    Columns that already have our names need no mapping; ``wait_s`` may stand for ``start``,
    ``runtime_s`` for ``end``. Needs at least ``submit`` and ``nodes``; others are left empty, ids
    are numbered.
    """
    rows = opened_csv(path, delimiter)
    try:
        line, header = next(rows)
    except StopIteration:
        raise TraceError(str(path), "a header line", found="an empty file") from None
    chosen = _mapping(header, mapping or {}, str(path), line)
    left_out = SkippedRecords()
    checked = _even_rows(rows, header, left_out)
    done = gather(
        checked, header, lambda batch: _csv_columns(batch, chosen), str(path), left_out, timezone
    )
    used = {theirs for theirs, _unit in chosen.values()}
    if unused := [name for name in header if name not in used]:
        note = f"columns left out, since no --column names them: {', '.join(unused)}"
        return replace(done, notes=done.notes | {note: done.rows})
    return done


def _mapping(
    header: list[str], mapping: Mapping[str, str], file: str, line: int
) -> dict[str, tuple[str, float]]:
    chosen = {name: (name, 1.0) for name in (*COLUMNS, "wait_s") if name in header}
    for ours, theirs in mapping.items():
        name, _, unit = (
            theirs.rpartition(":") if theirs.rpartition(":")[2] in UNITS else (theirs, "", "s")
        )
        if ours not in COLUMNS and ours != "wait_s":
            raise TraceError(
                file, f"one of {', '.join((*COLUMNS, 'wait_s'))}", found=ours, field="--column"
            )
        if name not in header:
            raise TraceError(
                file, f"one of {', '.join(header)}", found=name, line=line, field="--column"
            )
        chosen[ours] = (name, UNITS[unit])
    for needed in ("submit", "nodes"):
        if needed not in chosen:
            raise TraceError(
                file,
                f"--column {needed}=NAME, NAME one of {', '.join(header)}",
                line=line,
                field="header",
            )
    return chosen


def _even_rows(rows: Iterator[Row], header: list[str], left_out: SkippedRecords) -> Iterator[Row]:
    for number, parts in rows:
        if len(parts) == len(header):
            yield number, parts
        else:
            left_out.add(number, Wrong("line", f"{len(parts)} fields", f"{len(header)} fields"))


def _csv_columns(batch: Batch, chosen: dict[str, tuple[str, float]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        if name not in chosen:
            continue
        if name in ("submit", "start", "end", "eligible"):
            result[name] = batch.times(chosen[name][0])
        elif name == "state":
            result[name] = _stored_states(batch, chosen[name][0])
        elif kind in ("text", "id"):
            result[name] = batch.columns[chosen[name][0]]
        else:
            result[name] = _csv_numbers(batch, name, *chosen[name])
    if {"exit_code", "state"} <= result.keys() and _are_stored(batch.columns[chosen["state"][0]]):
        result["exit_code"] = list(map(_exit_code, result["exit_code"]))
    for name in {"start", "end", "eligible"} & result.keys():
        # slurmdbd's tables have 0 for a time that has not come.
        not_yet = (result[name] == 0) & (result["submit"] > 0)
        batch.note(f"{name} 0, taken as not yet", not_yet.sum())
        result[name] = np.where(not_yet, np.nan, result[name])
    for theirs in {theirs for theirs, _ in chosen.values()}:
        constants = sum(text in fields.CONSTANTS for text in batch.columns[theirs])
        batch.note(f"{theirs} of Slurm's INFINITE or NO_VAL (4294967295), taken as none", constants)
    if "start" not in result and "wait_s" in chosen:
        result["start"] = result["submit"] + _csv_numbers(batch, "wait_s", *chosen["wait_s"])
    if "end" not in result and "start" in result and "runtime_s" in result:
        result["end"] = result["start"] + result["runtime_s"]
    count_zoneless(batch, chosen["submit"][0])
    _add_missing(result, batch)
    return result


def _csv_numbers(batch: Batch, name: str, theirs: str, unit: float) -> NDArray[np.float64]:
    """The column ``name``, which the file calls ``theirs``, of which one has so many of our unit."""
    if name in ("timelimit_s", "runtime_s", "wait_s"):
        if any(":" in text for text in batch.columns[theirs][:1000]):
            return batch.limits_s(theirs)
        return np.floor(batch.mapped(theirs, _decimal, "a number").astype(np.float64) * unit)
    return batch.numbers(theirs)


def _add_missing(result: dict[str, Any], batch: Batch) -> None:
    """Columns that each trace has, empty."""
    rows = len(batch.lines)
    result.setdefault("job_id", [str(line - 1) for line in batch.lines])
    for name, kind in COLUMNS.items():
        if name in ("user", "partition", "state", "start", "end", "timelimit_s", "gpus", "cpus"):
            result.setdefault(name, [""] * rows if kind == "text" else np.full(rows, np.nan))


def _are_stored(states: Sequence[str]) -> bool:
    """Whether they are those of a table of slurmdbd."""
    return all(text.strip().isdecimal() for text in states)


def _exit_code(text: str) -> str:
    """As sacct shows what slurmdbd stores, the status of wait(2): 256 is 1:0."""
    return f"{int(text) >> 8}:{int(text) & 0x7F}" if text.isdecimal() else text


def _stored_states(batch: Batch, theirs: str) -> NDArray[np.object_]:
    numbered = sum(text.strip().isdecimal() for text in batch.columns[theirs])
    batch.note("states by number, read as slurmdbd's (3: COMPLETED)", numbered)
    expected = "a state like COMPLETED, or its number in slurmdbd"
    states = batch.mapped(theirs, fields.stored_state, expected, "")
    fields.note_states(batch, states)
    return states


def _decimal(text: str) -> float:
    return np.nan if text in fields.UNKNOWN else float(text)
