"""`sacct -P` as a trace: which records it has (sacct_rows.py), and what their columns mean
(fields.py).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.formats import parse_json
from slurm_sim.slurm_json import RECORD_FIELDS, record_rows
from slurm_sim.traces import fields
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.fields import Batch, count_zoneless
from slurm_sim.traces.left_out import take_down
from slurm_sim.traces.reading import (
    BATCH_ROWS,
    Row,
    TraceImport,
    check_zone,
    note_undecodable,
    opened,
    put_together,
)
from slurm_sim.traces.sacct_layout import IDS, Layout, Values
from slurm_sim.traces.sacct_rows import NAMES, Found, Rows
from slurm_sim.traces.table import make_trace

HINT = "give what `sacct -P` prints, without texts that users choose"


def import_sacct(path: Path | str, timezone: str | None = None) -> TraceImport:
    """``sacct -X -P -D --format=...`` with its header, columns in any order; times ISO or epoch
    (SLURM_TIME_FORMAT=%s). Or ``sacct --json``.

    Needs JobID (or JobIDRaw), Submit, Start, End, State, and the nodes: NNodes/AllocNodes/ReqNodes
    or a TRES list. Reads also User, Partition, Account, QOS, Eligible, Priority, Timelimit or
    TimelimitRaw (minutes), NCPUS/AllocCPUS/ReqCPUS, AllocTRES/ReqTRES, AllocGRES/ReqGRES, ReqMem,
    ExitCode, Dependency. Steps (``5.batch``) and parts of heterogeneous jobs (``5+1``) are told apart by
    cleaning. A record that can't be read for sure is left out and counted in the notes.

    Raises TraceError: no header, or more than half of the records are left out.
    """
    check_zone(timezone)
    rows = Rows(str(path))
    notes: dict[str, int] = {}
    frames: list[Any] = []
    numbers: list[int] = []
    room = MAX_TASKS_OF_FILE
    lines = _as_lines(rows, opened(path, rows.saw_unended))
    for batch in _batches(rows, lines, timezone, notes):
        frame = pd.DataFrame(_sacct_columns(batch))
        take_down(batch, frame)
        room = _check_tasks(batch, room)
        rows.left_out.add_rows(batch)
        frames.append(frame[batch.kept])
        numbers.extend(np.array(batch.lines)[batch.kept].tolist())
    rows.left_out.refuse_rubbish(str(path), len(numbers), HINT)
    done = put_together(frames, numbers, str(path), rows.notes | notes | rows.left_out.notes())
    return _expand_arrays(replace(done, left_out=rows.left_out.total))


def _as_lines(rows: Rows, lines: Iterator[Row]) -> Iterator[Row]:
    """Of a file of `sacct --json` its records as lines of `sacct -P`, numbered by record; else the lines.

    Raises TraceError.
    """
    first = next(lines, None)
    if first is None or not first[1][0].lstrip().startswith("{"):
        return lines if first is None else chain([first], lines)
    try:
        jobs = parse_json("\n".join(line for _, [line] in chain([first], lines))).get("jobs")
    except ValueError as error:
        raise TraceError(rows.file, f"what `sacct --json` prints, whole ({error})") from None
    if not isinstance(jobs, list) or not all(isinstance(job, dict) for job in jobs):
        raise TraceError(rows.file, "a list `jobs`, as `sacct --json` prints it")
    rows.unended = 0  # JSON that is whole needs no line end
    header = "|".join((*RECORD_FIELDS, *MORE_OF_JSON))
    return chain([(0, [header])], ((number, [line]) for number, line in _json_rows(jobs)))


def _json_rows(jobs: list[dict[str, Any]]) -> Iterator[tuple[int, str]]:
    for (number, row), job in zip(record_rows(jobs), jobs, strict=True):
        more = (str(job.get(name.lower()) or "") for name in MORE_OF_JSON)
        yield number, "|".join(re.sub(r"[|\r\n]", "?", value) for value in (*row, *more))


MORE_OF_JSON = ("Account", "QOS")


def _batches(
    rows: Rows, lines: Iterator[tuple[int, list[str]]], timezone: str | None, notes: dict[str, int]
) -> Iterator[Batch]:
    """Rows of one header each, at most `BATCH_ROWS`."""
    waiting: dict[Layout, list[tuple[int, Values]]] = {}

    def batch(layout: Layout) -> Batch:
        found = waiting.pop(layout)
        columns = dict(
            zip(
                layout.read,
                map(list, zip(*(values for _, values in found), strict=True)),
                strict=True,
            )
        )
        for name in NAMES:
            rows.names[name].update(columns.get(name, ()))
        result = Batch(rows.file, [number for number, _ in found], columns, timezone, notes)
        note_undecodable(result, (values for _, values in found))
        return result

    def cut(found: Iterable[Found]) -> Iterator[Batch]:
        for layout, number, values in found:
            group = waiting.setdefault(layout, [])
            group.append((number, values))
            if len(group) == BATCH_ROWS:
                yield batch(layout)
        for layout in list(waiting):
            yield batch(layout)

    yield from cut(rows.read(lines))
    yield from cut(rows.kept())


def _sacct_columns(batch: Batch) -> dict[str, Any]:
    rows = len(batch.lines)
    ids = batch.first(*IDS) or ""
    state = batch.mapped("State", fields.state, "a state like COMPLETED or CANCELLED by 1000", "")
    fields.note_states(batch, state)
    result: dict[str, Any] = {
        "job_id": batch.columns[ids],
        "user": batch.columns.get("User", [""] * rows),
        "partition": batch.columns.get("Partition", [""] * rows),
        "submit": batch.times("Submit"),
        "start": batch.times("Start"),
        "end": batch.times("End"),
        "timelimit_s": _sacct_limit(batch, rows),
        "nodes": _nodes(batch, rows),
        "gpus": _gpus(batch, rows),
        "cpus": _cpus(batch, rows),
        "state": state,
    }
    count_zoneless(batch, "Submit")
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


def _check_tasks(batch: Batch, room: int) -> int:
    """Takes down rows with bad array ranges, and those for whose tasks the file has no room left.

    Returns the room that is left then, in tasks.
    """
    ids = batch.first(*IDS) or ""
    for row, text in enumerate(batch.columns[ids]):
        if "[" not in text or row in batch.bad:
            continue
        try:
            count = sum(map(len, task_ranges(_range_in(text))))
        except ValueError as error:
            batch.refuse(ids, [row], str(error))
            continue
        if count > room:
            batch.refuse(
                ids, [row], f"at most {MAX_TASKS_OF_FILE:,} tasks of pending arrays a file"
            )
        else:
            room -= count
    return room


def _range_in(job_id: str) -> str:
    return job_id.partition("[")[2].partition("]")[0]


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
            result = np.where(
                np.nan_to_num(result) > 0, result, np.where(np.isnan(values), result, values)
            )
    return result


def _nodes(batch: Batch, rows: int) -> NDArray[np.float64]:
    """NaN: unknown."""
    counted = _first_number(batch, rows, "AllocNodes", "NNodes", "ReqNodes")
    listed = _tres(batch, rows, fields.tres_nodes, positive=False)
    return np.where(np.nan_to_num(counted) > 0, counted, np.where(listed > 0, listed, counted))


def _cpus(batch: Batch, rows: int) -> NDArray[np.float64]:
    """NaN: unknown. A job that was cancelled in the queue has AllocCPUS 0; what it asked for is in
    ReqTRES.
    """
    counted = _first_number(batch, rows, "AllocCPUS", "NCPUS", "ReqCPUS")
    asked = _tres(batch, rows, fields.tres_cpus, positive=False)
    result = np.where(np.nan_to_num(counted) > 0, counted, asked)
    return np.where(result > 0, result, np.nan)


def _gpus(batch: Batch, rows: int) -> NDArray[np.float64]:
    """Of the TRES; of old dumps AllocGRES, which counts the job's, or ReqGRES, which counts a node's."""
    result = _tres(batch, rows, fields.tres_gpus, positive=True)
    for name, times in (("AllocGRES", np.ones(rows)), ("ReqGRES", _nodes(batch, rows))):
        if name in batch.columns:
            each = batch.mapped(name, fields.gres_gpus, "").astype(np.float64)
            found = np.where(result > 0, 0, np.nan_to_num(each * times))
            batch.note(f"jobs whose GPUs are those of {name}", (found > 0).sum())
            result = result + found
    return result


def _tres(batch: Batch, rows: int, convert: Any, *, positive: bool) -> NDArray[np.float64]:
    result = np.full(rows, 0.0 if positive else np.nan)
    for name in ("ReqTRES", "AllocTRES"):
        if name in batch.columns:
            values = batch.mapped(name, convert, "a list like cpu=4,mem=64G,gres/gpu=2").astype(
                np.float64
            )
            result = np.where(np.nan_to_num(values) > 0, values, result)
    return result


def _memory(
    batch: Batch, nodes: NDArray[np.float64], cpus: NDArray[np.float64]
) -> NDArray[np.float64]:
    """Of the whole job; `sacct` before Slurm 21.08 has ReqMem a node (4Gn) or a CPU (4000Mc). NaN:
    unknown.
    """
    result = _tres(batch, len(nodes), fields.tres_mem_mib, positive=False)
    if "ReqMem" in batch.columns:
        asked = batch.mapped("ReqMem", fields.memory_mib, "memory like 64G, 4000M or 4Gn").astype(
            np.float64
        )
        of = batch.mapped("ReqMem", lambda text: text[-1:], "").astype(str)
        asked = asked * np.select([of == "n", of == "c"], [nodes, cpus], 1.0)
        result = np.where(np.isnan(result), asked, result)
    return result


def _expand_arrays(done: TraceImport) -> TraceImport:
    """``5_[2-7%1]`` (tasks that never became jobs of their own) -> six rows; ids of tasks into
    their columns.
    """
    jobs = done.trace.jobs
    parts = jobs["job_id"].str.extract(r"^(?P<array>\d+)_(?P<task>\d+)?(?:\[(?P<range>[^\]]+)\]?)?")
    if parts["array"].isna().all():
        return done
    jobs = jobs.copy()
    jobs["array_job_id"] = pd.to_numeric(parts["array"]).astype("Int64")
    jobs["array_task_id"] = pd.to_numeric(parts["task"]).astype("Int64")
    jobs["array_throttle"] = pd.to_numeric(parts["range"].str.extract(r"%(\d+)")[0]).astype("Int64")
    folded = parts["range"].notna()
    tasks = [
        list(chain.from_iterable(task_ranges(text))) if isinstance(text, str) else [None]
        for text in parts["range"]
    ]
    cut_short = parts["range"].str.contains("...", regex=False) | ~jobs["job_id"].str.contains("]")
    cut = int((folded & cut_short).sum())
    rows = np.repeat(jobs.index.to_numpy(), [len(each) for each in tasks])
    jobs = jobs.loc[rows].reset_index(drop=True)
    flat = [task for each in tasks for task in each]
    new = np.array([task is not None for task in flat])
    known = [task for task in flat if task is not None]
    jobs.loc[new, "array_task_id"] = pd.array(known, dtype="Int64")
    jobs.loc[new, "job_id"] = [
        f"{array}_{task}"
        for array, task in zip(
            jobs.loc[new, "array_job_id"], jobs.loc[new, "array_task_id"], strict=True
        )
    ]
    notes = dict(done.notes)
    if folded.any():
        notes["pending array ranges, written out task by task"] = int(folded.sum())
    if cut:
        notes[
            "pending array ranges that sacct cut short, tasks are missing (SLURM_BITSTR_LEN=0 shows"
            " all)"
        ] = cut
    return replace(done, trace=make_trace(jobs, done.trace.source), notes=notes)


MAX_TASKS = 4_000_001
"""Slurm's greatest MaxArraySize (slurm.conf(5)): a longer range is a typing error, not a job."""
MAX_TASKS_OF_FILE = 1_000_001
"""Tasks of pending arrays that are written out, of a file: about 1 GB of memory."""


def task_ranges(text: str) -> list[range]:
    """``2-7%1``, ``1,3,5``, ``0-10:2`` -> the tasks; a range that sacct cut short (``1-5,...``)
    gives what it shows. Raises ValueError with what was expected.
    """
    result: list[range] = []
    for part in text.split("%")[0].split(","):
        if part.endswith("..."):
            continue
        match = re.fullmatch(r"(\d+)(?:-(\d+))?(?::(\d+))?", part)
        if match is None:
            raise ValueError("tasks of an array like 2-7%1, 1,3,5 or 0-10:2")
        low, high, step = int(match[1]), int(match[2] or match[1]), int(match[3] or 1)
        if not 0 <= high - low <= MAX_TASKS or step < 1:
            raise ValueError(
                f"an array's tasks from the lower to the higher, at most {MAX_TASKS:,}"
            )
        result.append(range(low, high + 1, step))
    return result
