"""Logs in other formats: sacct, SWF, the published Mirage log, any CSV. Each as it is; cleaning.py comes after."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.traces import fields
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.fields import Batch
from slurm_sim.traces.reading import Imported, Row, gather, opened, opened_csv
from slurm_sim.traces.table import COLUMNS

FREE_TEXT = ("JobName", "Comment", "AdminComment", "SystemComment", "WorkDir", "SubmitLine", "Constraints", "Reason")
"""Fields of sacct that a user may put a `|` into."""
MOST_STATES = 5
"""So many unknown ones are named."""
NO_ZONE = "times without a zone, taken as UTC (give --timezone)"


# --- sacct -----------------------------------------------------------------------------------------------------------


def import_sacct(path: Path | str, timezone: str | None = None) -> Imported:
    """``sacct -X -P -D --format=...`` with its header, columns in any order; times ISO or epoch (SLURM_TIME_FORMAT=%s).

    Needs JobID (or JobIDRaw), Submit, Start, End, State; reads also User, Partition, Account, QOS, Eligible, Priority,
    Timelimit or TimelimitRaw (minutes), NNodes/AllocNodes/ReqNodes, NCPUS/AllocCPUS/ReqCPUS, AllocTRES/ReqTRES, ReqMem,
    ExitCode, Dependency. Steps (``5.batch``) and parts of heterogeneous jobs (``5+1``) are told apart by cleaning.
    """
    lines = opened(path)
    try:
        line, [text] = next(lines)
    except StopIteration:
        raise TraceError(str(path), "a header line like JobID|User|...", found="an empty file") from None
    delimiter = "|" if "|" in text else "," if "," in text else "\t"
    header = text.rstrip(delimiter).split(delimiter)
    _need_sacct(header, str(path), line)
    rows = _split_sacct(lines, header, delimiter, str(path))
    done = gather(rows, header, _sacct_columns, str(path), timezone)
    return _expand_arrays(done)


def _need_sacct(header: list[str], file: str, line: int) -> None:
    if not {"JobID", "JobIDRaw"} & set(header):
        raise TraceError(file, "a header with JobID", found="|".join(header), line=line, field="header")
    for name in ("Submit", "Start", "End", "State"):
        if name not in header:
            raise TraceError(file, f"a column {name}", found="|".join(header), line=line, field="header")


def _split_sacct(lines: Iterator[Row], header: list[str], delimiter: str, file: str) -> Iterator[Row]:
    free = next((header.index(name) for name in FREE_TEXT if name in header), None)
    width = len(header)
    for number, [line] in lines:
        parts = line.split(delimiter)
        if len(parts) == width + 1 and not parts[-1]:  # `sacct -p` ends each line with a delimiter
            parts.pop()
        extra = len(parts) - width
        if extra > 0 and free is not None:
            parts[free : free + extra + 1] = [delimiter.join(parts[free : free + extra + 1])]
        if len(parts) != width:
            raise TraceError(file, f"{width} fields", found=f"{len(parts)} fields", line=number, field="line")
        yield number, parts


def _sacct_columns(batch: Batch) -> dict[str, Any]:
    rows = len(batch.lines)
    ids = batch.first("JobID", "JobIDRaw") or ""
    batch.mapped(ids, _sacct_id, "a job id like 5, 5_3, 5_[2-7%1], 5+1 or 5.batch")
    for text, line in zip(batch.columns[ids], batch.lines, strict=True):
        if "[" in text:
            task_ids(text.partition("[")[2].partition("]")[0], batch.file, line)
    state = batch.mapped("State", fields.state, "a state like COMPLETED or CANCELLED by 1000")
    _note_states(batch, state)
    result: dict[str, Any] = {
        "job_id": batch.columns[ids],
        "user": batch.columns.get("User", [""] * rows),
        "partition": batch.columns.get("Partition", [""] * rows),
        "submit": batch.times("Submit"),
        "start": batch.times("Start"),
        "end": batch.times("End"),
        "timelimit_s": _sacct_limit(batch, rows),
        "nodes": _first_number(batch, rows, "AllocNodes", "NNodes", "ReqNodes"),
        "gpus": _tres(batch, rows, fields.tres_gpus, positive=True),
        "cpus": _cpus(batch, rows),
        "state": state,
    }
    _count_zoneless(batch, "Submit")
    for ours, theirs in (("account", "Account"), ("qos", "QOS"), ("exit_code", "ExitCode")):
        if theirs in batch.columns:
            result[ours] = batch.columns[theirs]
    if "Eligible" in batch.columns:
        result["eligible"] = batch.times("Eligible")
    if "Priority" in batch.columns:
        result["priority"] = batch.numbers("Priority")
    if batch.first("AllocTRES", "ReqTRES", "ReqMem"):
        result["mem_mib"] = _memory(batch, result["nodes"], result["cpus"])
    if "Dependency" in batch.columns:
        result["dependency"] = batch.columns["Dependency"]
    return result


def _sacct_id(text: str) -> str:
    if not re.fullmatch(r"\d+(_(\d+|\[[\d,\-:%.]+\]?))?(\+\d+)?(\.\w+)?", text):
        raise ValueError(text)
    return text


def _note_states(batch: Batch, states: NDArray[np.object_]) -> None:
    names, counts = np.unique(states.astype(str), return_counts=True)
    strange = [(name, count) for name, count in zip(names, counts, strict=True) if name not in fields.STATES]
    for name, count in strange[:MOST_STATES]:
        batch.note(f"state {name}, none of Slurm's, kept", count)
    batch.note("more states that are none of Slurm's, kept", sum(count for _name, count in strange[MOST_STATES:]))


def _sacct_limit(batch: Batch, rows: int) -> NDArray[np.float64]:
    if "Timelimit" in batch.columns:
        return batch.limits_s("Timelimit")
    if "TimelimitRaw" in batch.columns:
        return batch.numbers("TimelimitRaw", "minutes, or UNLIMITED") * 60
    return np.full(rows, np.nan)


def _first_number(batch: Batch, rows: int, *names: str) -> NDArray[np.float64]:
    """The first column that says more than 0: a job that never started has AllocNodes 0."""
    result = np.full(rows, np.nan)
    for name in names:
        if name in batch.columns:
            values = batch.numbers(name)
            result = np.where(np.nan_to_num(result) > 0, result, np.where(np.isnan(values), result, values))
    return result


def _cpus(batch: Batch, rows: int) -> NDArray[np.float64]:
    """NaN: unknown. A job that was cancelled in the queue has AllocCPUS 0; what it asked for is in ReqTRES."""
    counted = _first_number(batch, rows, "AllocCPUS", "NCPUS", "ReqCPUS")
    asked = _tres(batch, rows, fields.tres_cpus, positive=False)
    result = np.where(np.nan_to_num(counted) > 0, counted, asked)
    return np.where(result > 0, result, np.nan)


def _tres(batch: Batch, rows: int, convert: Any, *, positive: bool) -> NDArray[np.float64]:
    result = np.full(rows, 0.0 if positive else np.nan)
    for name in ("ReqTRES", "AllocTRES"):
        if name in batch.columns:
            values = batch.mapped(name, convert, "a list like cpu=4,mem=64G,gres/gpu=2").astype(np.float64)
            result = np.where(np.nan_to_num(values) > 0, values, result)
    return result


def _memory(batch: Batch, nodes: NDArray[np.float64], cpus: NDArray[np.float64]) -> NDArray[np.float64]:
    """Of the whole job; `sacct` before Slurm 21.08 has ReqMem a node (4Gn) or a CPU (4000Mc). NaN: unknown."""
    result = _tres(batch, len(nodes), fields.tres_mem_mib, positive=False)
    if "ReqMem" in batch.columns:
        asked = batch.mapped("ReqMem", fields.memory_mib, "memory like 64G, 4000M or 4Gn").astype(np.float64)
        of = batch.mapped("ReqMem", lambda text: text[-1:], "").astype(str)
        asked = asked * np.select([of == "n", of == "c"], [nodes, cpus], 1.0)
        result = np.where(np.isnan(result), asked, result)
    return result


def _count_zoneless(batch: Batch, name: str) -> None:
    if batch.timezone is None and batch.columns[name]:
        text = pd.Series(batch.columns[name][:1000], dtype=object)
        if text.str.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+").any():
            batch.note(NO_ZONE, len(batch.lines))


def _expand_arrays(done: Imported) -> Imported:
    """``5_[2-7%1]`` (tasks that never became jobs of their own) -> six rows; ids of tasks into their columns."""
    jobs = done.trace.jobs
    parts = jobs["job_id"].str.extract(r"^(?P<array>\d+)_(?P<task>\d+)?(?:\[(?P<range>[^\]]+)\]?)?")
    if parts["array"].isna().all():
        return done
    jobs = jobs.copy()
    jobs["array_job_id"] = pd.to_numeric(parts["array"]).astype("Int64")
    jobs["array_task_id"] = pd.to_numeric(parts["task"]).astype("Int64")
    jobs["array_throttle"] = pd.to_numeric(parts["range"].str.extract(r"%(\d+)")[0]).astype("Int64")
    folded = parts["range"].notna()
    file = done.trace.source
    tasks = [task_ids(text, file) if isinstance(text, str) else [None] for text in parts["range"]]
    cut = int((folded & (parts["range"].str.contains("...", regex=False) | ~jobs["job_id"].str.contains("]"))).sum())
    jobs = jobs.loc[np.repeat(jobs.index.to_numpy(), [len(each) for each in tasks])].reset_index(drop=True)
    flat = [task for each in tasks for task in each]
    new = np.array([task is not None for task in flat])
    jobs.loc[new, "array_task_id"] = pd.array([task for task in flat if task is not None], dtype="Int64")
    jobs.loc[new, "job_id"] = [
        f"{array}_{task}"
        for array, task in zip(jobs.loc[new, "array_job_id"], jobs.loc[new, "array_task_id"], strict=True)
    ]
    notes = dict(done.notes)
    if folded.any():
        notes["pending array ranges, written out task by task"] = int(folded.sum())
    if cut:
        notes["pending array ranges that sacct cut short, tasks are missing (SLURM_BITSTR_LEN=0 shows all)"] = cut
    from slurm_sim.traces.table import make_trace

    return Imported(make_trace(jobs, done.trace.source), done.rows, notes)


MAX_TASKS = 4_000_001
"""Slurm's greatest MaxArraySize (slurm.conf(5)): a longer range is a typing error, not a job."""


def task_ids(text: str, file: str, line: int | None = None) -> list[int]:
    """``2-7%1``, ``1,3,5``, ``0-10:2`` -> task ids; a range that sacct cut short (``1-5,...``) gives what it shows."""
    result: list[int] = []
    for part in text.split("%")[0].split(","):
        if part.endswith("..."):
            continue
        match = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part)
        if match is None:
            expected = "tasks of an array like 2-7%1, 1,3,5 or 0-10:2"
            raise TraceError(file, expected, found=text, field="JobID", line=line)
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if not 0 <= high - low <= MAX_TASKS or step < 1:
            expected = f"an array's tasks from the lower to the higher, at most {MAX_TASKS:,}"
            raise TraceError(file, expected, found=text, field="JobID", line=line)
        result.extend(range(low, high + 1, step))
    return result


# --- SWF -------------------------------------------------------------------------------------------------------------

SWF = ["job", "submit", "wait", "run", "procs_used", "cpu", "mem_used", "procs", "run_asked", "mem_asked", "status"]
SWF += ["user", "group", "app", "queue", "partition", "before", "think"]
SWF_STATE = {"0": "FAILED", "1": "COMPLETED", "2": "COMPLETED", "3": "COMPLETED", "4": "FAILED", "5": "CANCELLED"}


def import_swf(path: Path | str, cpus_per_node: int = 1) -> Imported:
    """The Standard Workload Format 2.2: 18 numbers a job, -1 unknown; times from the header's UnixStartTime.

    Processors become nodes by ``cpus_per_node``, rounded up; the memory asked for, KB a processor, that of the job. A
    job without a wait has ``runtime_s`` only.
    """
    header: dict[str, str] = {}
    rows = _swf_rows(path, header)

    def convert(batch: Batch) -> dict[str, Any]:
        return _swf_columns(batch, _swf_begin_s(header, str(path)), cpus_per_node)

    return gather(rows, SWF, convert, str(path))


def _swf_begin_s(header: Mapping[str, str], file: str) -> float:
    text = (header.get("UnixStartTime", "").split() or ["0"])[0]
    try:
        return float(text)
    except ValueError:
        raise TraceError(file, "seconds since 1970", found=text, field="; UnixStartTime") from None


def _swf_rows(path: Path | str, header: dict[str, str]) -> Iterator[Row]:
    for number, [line] in opened(path):
        if line.lstrip().startswith(";"):
            name, colon, value = line.lstrip("; ").partition(":")
            if colon:
                header.setdefault(name.strip(), value.strip())
            continue
        parts = line.split()
        if len(parts) != len(SWF):
            raise TraceError(str(path), "18 numbers (SWF)", found=f"{len(parts)} fields", line=number, field="line")
        yield number, parts


def _swf_columns(batch: Batch, begin: float, cpus_per_node: int) -> dict[str, Any]:
    def column(name: str) -> NDArray[np.float64]:
        values = batch.mapped(name, _swf_number, "a number, -1 for unknown").astype(np.float64)
        return np.where(values < 0, np.nan, values)

    submitted = batch.mapped("submit", _swf_submit, "seconds from 0 on").astype(np.float64)
    submit, wait, run = begin + submitted, column("wait"), column("run")
    procs = np.where(
        np.isnan(column("procs_used")) | (column("procs_used") == 0), column("procs"), column("procs_used")
    )
    start = np.floor(submit + wait)
    before = column("before")
    chained = ~np.isnan(before) & (before > 0)
    batch.note("jobs without a wait: only their run time is known", np.isnan(wait).sum())
    batch.note("jobs whose run time is unknown", np.isnan(run).sum())
    thinks = chained & (np.nan_to_num(column("think")) > 0)
    batch.note("think times after the job before, left out: there is only afterany", thinks.sum())
    ids = [text.split(".")[0] for text in batch.columns["job"]]
    memory = column("mem_asked")
    memory = np.ceil(np.where(memory > 0, memory, np.nan) * np.where(procs > 0, procs, np.nan) / 1024)
    result = {
        "job_id": ids,
        "user": np.where(np.isnan(column("user")), "", [f"u{text}" for text in batch.columns["user"]]),
        "partition": np.where(np.isnan(column("queue")), "", batch.columns["queue"]),
        "submit": np.floor(submit),
        "start": start,
        "end": start + np.floor(run),
        "timelimit_s": np.floor(column("run_asked")),
        "nodes": np.ceil(np.nan_to_num(procs) / cpus_per_node),
        "gpus": 0.0,
        "cpus": procs,
        "state": batch.mapped("status", lambda text: SWF_STATE.get(text.split(".")[0], "COMPLETED"), "a status"),
        "dependency": np.where(chained, [f"afterany:{text}" for text in batch.columns["before"]], ""),
        "runtime_s": np.floor(run),
    }
    return result if np.isnan(memory).all() else result | {"mem_mib": memory}


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


# --- the published Mirage log ----------------------------------------------------------------------------------------


def import_mirage_log(path: Path | str, timezone: str | None = "America/Chicago", gpus_per_node: int = 0) -> Imported:
    """The log format of github.com/zhaozhang/Mirage (data/ls6-a100.log): sacct's columns with a count line and a dashed
    line, tabs or blanks between fields, local times (TACC's), limits in minutes.

    The file has no state: end == start is CANCELLED (in the queue), a run of at least its limit TIMEOUT, exit
    0:0 COMPLETED, else FAILED; no CPUs.
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
    rows = _mirage_rows(lines, header, str(path), notes)

    def convert(batch: Batch) -> dict[str, Any]:
        return _mirage_columns(batch, gpus_per_node)

    done = gather(rows, header, convert, str(path), timezone)
    return Imported(done.trace, done.rows, done.notes | notes)


def _mirage_rows(lines: Iterator[Row], header: list[str], file: str, notes: dict[str, int]) -> Iterator[Row]:
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
            raise TraceError(file, f"{len(header)} fields", found=f"{len(parts)} fields", line=number, field="line")
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


# --- any CSV ---------------------------------------------------------------------------------------------------------

UNITS = {"s": 1.0, "min": 60.0, "h": 3600.0}


def import_csv(
    path: Path | str, mapping: Mapping[str, str] | None = None, timezone: str | None = None, delimiter: str = ","
) -> Imported:
    """Any CSV with a header. ``mapping``: our column -> theirs, ``timelimit_s: walltime:min`` for another unit.

    Columns that already have our names need no mapping; ``wait_s`` may stand for ``start``, ``runtime_s`` for ``end``.
    Needs at least ``submit`` and ``nodes``; others are left empty, ids are numbered.
    """
    rows = opened_csv(path, delimiter)
    try:
        line, header = next(rows)
    except StopIteration:
        raise TraceError(str(path), "a header line", found="an empty file") from None
    chosen = _mapping(header, mapping or {}, str(path), line)
    checked = _even_rows(rows, header, str(path))
    done = gather(checked, header, lambda batch: _csv_columns(batch, chosen), str(path), timezone)
    used = {theirs for theirs, _unit in chosen.values()}
    if unused := [name for name in header if name not in used]:
        note = f"columns left out, since no --column names them: {', '.join(unused)}"
        return Imported(done.trace, done.rows, done.notes | {note: done.rows})
    return done


def _mapping(header: list[str], mapping: Mapping[str, str], file: str, line: int) -> dict[str, tuple[str, float]]:
    chosen = {name: (name, 1.0) for name in (*COLUMNS, "wait_s") if name in header}
    for ours, theirs in mapping.items():
        name, _, unit = theirs.rpartition(":") if theirs.rpartition(":")[2] in UNITS else (theirs, "", "s")
        if ours not in COLUMNS and ours != "wait_s":
            raise TraceError(file, f"one of {', '.join((*COLUMNS, 'wait_s'))}", found=ours, field="--column")
        if name not in header:
            raise TraceError(file, f"one of {', '.join(header)}", found=name, line=line, field="--column")
        chosen[ours] = (name, UNITS[unit])
    for needed in ("submit", "nodes"):
        if needed not in chosen:
            raise TraceError(
                file, f"--column {needed}=NAME, NAME one of {', '.join(header)}", line=line, field="header"
            )
    return chosen


def _even_rows(rows: Iterator[Row], header: list[str], file: str) -> Iterator[Row]:
    for number, parts in rows:
        if len(parts) != len(header):
            raise TraceError(file, f"{len(header)} fields", found=f"{len(parts)} fields", line=number, field="line")
        yield number, parts


def _csv_columns(batch: Batch, chosen: dict[str, tuple[str, float]]) -> dict[str, Any]:
    rows = len(batch.lines)

    def numbers(name: str) -> NDArray[np.float64]:
        theirs, unit = chosen[name]
        if name in ("timelimit_s", "runtime_s", "wait_s"):
            if any(":" in text for text in batch.columns[theirs][:1000]):
                return batch.limits_s(theirs)
            return np.floor(batch.mapped(theirs, _decimal, "a number").astype(np.float64) * unit)
        return batch.numbers(theirs)

    result: dict[str, Any] = {}
    for name, kind in COLUMNS.items():
        if name not in chosen:
            continue
        if name in ("submit", "start", "end", "eligible"):
            result[name] = batch.times(chosen[name][0])
        elif kind in ("text", "id"):
            result[name] = batch.columns[chosen[name][0]]
        else:
            result[name] = numbers(name)
    if "start" not in result and "wait_s" in chosen:
        result["start"] = result["submit"] + numbers("wait_s")
    if "end" not in result and "start" in result and "runtime_s" in result:
        result["end"] = result["start"] + result["runtime_s"]
    _count_zoneless(batch, chosen["submit"][0])
    result.setdefault("job_id", [str(line - 1) for line in batch.lines])
    for name, kind in COLUMNS.items():
        if name in ("user", "partition", "state", "start", "end", "timelimit_s", "gpus", "cpus"):
            result.setdefault(name, [""] * rows if kind == "text" else np.full(rows, np.nan))
    return result


def _decimal(text: str) -> float:
    return np.nan if text in fields.UNKNOWN else float(text)
