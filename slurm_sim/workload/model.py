"""The fitted model of a workload, and its file: TOML, under 100 kB, no user names and none of the
trace's jobs.
"""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, dataclass, fields
from importlib import resources
from pathlib import Path
from typing import Any, Protocol

from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml
from slurm_sim.ranges import MOST_NODES
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.output import output_file

SCHEMA = 1
Table = tuple[float, ...]
"""Quantiles (tables.py)."""
SIZE_EDGES = (2, 6, 21)
"""Batches of 2-5, 6-20 and more jobs have their own gaps."""


@dataclass(frozen=True)
class Cell:
    """Jobs of one size and limit (or of a bin of both): how long they run, how many come at once."""

    nodes: Table
    limit_s: Table
    """0: no limit known; ``run`` is then in seconds."""
    smooth: bool
    """Limits are continuous (no favourites): drawn between the table's points too."""
    run: Table
    """Run time over limit, of jobs that ran."""
    batch: Table
    """Jobs a batch: equal jobs of one user with short gaps."""
    cancelled: float
    """Share cancelled in the queue."""
    failed: float
    """Share of those that ran and ended with an exit code."""


@dataclass(frozen=True)
class UserClass:
    """Users who work alike."""

    users: int
    share: float
    """Of all sessions."""
    activity: Table
    """Sessions of a user, relative to the class's mean."""
    batches: Table
    """Batches a session."""
    cells: tuple[int, ...]
    """Row numbers of ``WorkloadModel.cells``; a batch is of cell i with probability weights[i]."""
    weights: Table


@dataclass(frozen=True)
class WorkloadModel:
    """Sessions arrive by hour of the week; a session is a user's batches, a batch equal jobs
    (docs/workloads.md).
    """

    name: str
    source: str
    licence: str
    nodes: int
    """Of the cluster it was fitted on."""
    gpus_per_node: int
    jobs: int
    """Of the log it was fitted on."""
    days: float
    """Length of that log, in days."""
    offered_load: float
    """Mean nodes asked for and used, over ``nodes``."""
    has_users: bool
    sessions_per_h: float
    hour_of_week: Table
    """168 factors with mean 1, from Monday 00:00 local time."""
    day_shape: float
    """Shape of the gamma factor (mean 1) that days differ by beyond chance; 0: they don't."""
    run_correlation: float
    """Of the normal scores of run times within a batch."""
    chained: float
    """Share of a batch's followers that depend on the job before."""
    arrays: float
    """Share of batches of at least 6 jobs that are job arrays."""
    throttled: float
    """Share of those arrays with a throttle,"""
    throttle: Table
    """and that throttle over the number of tasks."""
    patience_s: Table
    """Time in the queue after which users cancelled."""
    gaps_s: tuple[Table, ...]
    """Between jobs of a batch of 2-5, 6-20 and more jobs."""
    batch_gap_s: Table
    """Between a session's batches."""
    classes: tuple[UserClass, ...]
    cells: tuple[Cell, ...]

    def save(self, path: Path | str) -> None:
        """Writes the TOML file; all or nothing."""
        with output_file(Path(path)) as temporary:
            temporary.write_text(self.text(), encoding="utf-8")

    def text(self) -> str:
        """The TOML file's text; the same model gives the same text."""
        lines = [
            "# A synthetic workload (docs/workloads.md). Quantile tables; no user names, none of the"
            " trace's jobs."
        ]
        record = {"schema": SCHEMA} | asdict(self)
        parts = {name: record.pop(name) for name in ("classes", "cells")}
        lines += [f"{name} = {_toml(value)}" for name, value in record.items()]
        for name, rows in parts.items():
            for row in rows:
                lines += [
                    "",
                    f"[[{name}]]",
                    *(f"{key} = {_toml(value)}" for key, value in row.items()),
                ]
        return "\n".join(lines) + "\n"


def _toml(value: Any) -> str:
    if isinstance(value, (bool, str)):
        return json.dumps(value, ensure_ascii=False)  # for these, JSON's text is TOML's too
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_toml(each) for each in value)}]"
    if isinstance(value, float) and value.is_integer() and abs(value) < 1e15:
        return f"{int(value)}.0" if abs(value) < 1e3 else f"{int(value)}"
    return str(value)


def shipped_models() -> list[str]:
    """Names of the models that come with the package."""
    folder = resources.files("slurm_sim.workload") / "data"
    return sorted(
        item.name.removesuffix(".toml") for item in folder.iterdir() if item.name.endswith(".toml")
    )


def load_model(name_or_path: Path | str) -> WorkloadModel:
    """A shipped model by its name, or a file ending in .toml. Raises `TraceError` for any other
    file.
    """
    if str(name_or_path) in shipped_models():
        text = (resources.files("slurm_sim.workload") / "data" / f"{name_or_path}.toml").read_text(
            encoding="utf-8"
        )
        return _parsed(text, f"{name_or_path}.toml")
    path = Path(name_or_path)
    if path.suffix != ".toml":
        names = ", ".join(shipped_models())
        raise TraceError(
            str(path),
            f"a .toml file of `mirage trace fit`, or one of {names}",
            found=str(name_or_path),
        )
    try:
        return _parsed(read_text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise TraceError(
            str(path), f"a readable TOML file ({getattr(error, 'strerror', None) or error})"
        ) from error


def _parsed(text: str, file: str) -> WorkloadModel:
    try:
        record = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise TraceError(file, f"TOML ({error})") from error
    if record.pop("schema", None) != SCHEMA:
        raise TraceError(file, f"a workload model with schema = {SCHEMA}", field="schema")
    cells, classes = (
        tuple(
            _record(kind, row, file, f"{name}[{index}]")
            for index, row in enumerate(_rows(record, name, file))
        )
        for name, kind in (("cells", Cell), ("classes", UserClass))
    )
    model: WorkloadModel = _record(
        WorkloadModel, record | {"cells": cells, "classes": classes}, file, ""
    )
    _check(model, file)
    return model


def _rows(record: dict[str, Any], name: str, file: str) -> list[Any]:
    rows = record.pop(name, [])
    if not isinstance(rows, list):
        raise TraceError(file, f"tables [[{name}]]", found=str(rows), field=name)
    return rows


def _record(kind: Any, row: Any, file: str, where: str) -> Any:
    if not isinstance(row, dict):
        raise TraceError(file, "a table", found=str(row), field=where)
    names = [item.name for item in fields(kind)]
    for name in (*names, *row):
        if name not in row or name not in names:
            raise TraceError(
                file,
                "missing" if name not in row else "unknown key",
                field=f"{where}.{name}".strip("."),
            )
    types = {item.name: str(item.type) for item in fields(kind)}
    return kind(
        **{
            name: _value(row[name], types[name], file, f"{where}.{name}".strip("."))
            for name in names
        }
    )


def _value(value: Any, kind: str, file: str, where: str) -> Any:
    good: Any = {"str": str, "bool": bool, "int": int, "float": (int, float)}.get(
        kind, (list, tuple)
    )
    if not isinstance(value, good) or (isinstance(value, bool) and kind != "bool"):
        raise TraceError(file, kind, found=str(value), field=where)
    if kind in ("int", "float"):
        _check_range([value], file, where)
        return float(value) if kind == "float" else value
    if kind == "Table":
        return _numbers(value, file, where)
    if kind == "tuple[Table, ...]":
        return tuple(_numbers(each, file, where) for each in value)
    return tuple(value) if isinstance(value, list) else value


MOST = 1e15
SHARE = (0.0, 1.0)
RANGES = {
    **dict.fromkeys(("run_correlation", "chained", "arrays", "throttled", "throttle"), SHARE),
    **dict.fromkeys(("cancelled", "failed", "share", "weights"), SHARE),
    "nodes": (1, MOST_NODES),
    "gpus_per_node": (0, 1000),
    "jobs": (1, MOST),
    "days": (0.01, 1e6),
    "sessions_per_h": (1e-6, 1e9),
    "users": (1, 1e6),
}
"""What a field's numbers may be, both included; those of others 0 to `MOST`."""


def _numbers(value: Any, file: str, where: str) -> Table:
    if not isinstance(value, list):
        raise TraceError(file, "a list of numbers", found=str(value), field=where)
    _check_range(value, file, where)
    return tuple(float(each) for each in value)


def _check_range(values: list[Any], file: str, where: str) -> None:
    low, high = RANGES.get(where.rpartition(".")[2], (0, MOST))
    for each in values:
        if isinstance(each, bool) or not isinstance(each, (int, float)) or not low <= each <= high:
            raise TraceError(
                file, f"a number from {low:g} to {high:g}", found=str(each), field=where
            )


class _Need(Protocol):
    def __call__(self, good: bool, expected: str, where: str, found: str = "") -> None:
        """Raises TraceError unless this is `good`."""


def _check(model: WorkloadModel, file: str) -> None:
    def need(good: bool, expected: str, where: str, found: str = "") -> None:
        if not good:
            raise TraceError(file, expected, field=where, found=found)

    weeks, gaps = len(model.hour_of_week), len(model.gaps_s)
    need(weeks == 168, "168 numbers", "hour_of_week", f"{weeks} numbers")
    need(any(model.hour_of_week), "a number above 0", "hour_of_week", "only 0")
    need(gaps == len(SIZE_EDGES), f"{len(SIZE_EDGES)} tables", "gaps_s", f"{gaps} tables")
    need(bool(model.cells) and bool(model.classes), "at least one of each", "cells, classes")
    need(any(group.share for group in model.classes), "a share above 0", "classes", "only 0")
    _check_classes(model, need)
    _check_tables(model, need)
    for index, cell in enumerate(model.cells):
        longest = max(cell.run) * max(1.0, *cell.limit_s)
        expected = f"run times of at most {MOST:g} s"
        need(longest <= MOST, expected, f"cells[{index}].run", f"{longest:g} s")


def _check_classes(model: WorkloadModel, need: _Need) -> None:
    for index, group in enumerate(model.classes):
        inside = all(type(cell) is int and 0 <= cell < len(model.cells) for cell in group.cells)
        good = inside and len(group.cells) == len(group.weights) > 0
        need(good, "cells of this file, a weight each", f"classes[{index}]")
        need(any(group.weights), "a number above 0", f"classes[{index}].weights", "only 0")


def _check_tables(model: WorkloadModel, need: _Need) -> None:
    """Each has one value, or one for each level."""
    from slurm_sim.workload.tables import LEVELS

    tables = [
        (f"cells[{i}].{name}", getattr(cell, name))
        for i, cell in enumerate(model.cells)
        for name in CELL_TABLES
    ]
    tables += [
        (f"classes[{i}].{name}", getattr(c, name))
        for i, c in enumerate(model.classes)
        for name in CLASS_TABLES
    ]
    tables += [("gaps_s", each) for each in model.gaps_s]
    tables += [(name, getattr(model, name)) for name in ("batch_gap_s", "patience_s", "throttle")]
    for where, points in tables:
        expected = f"1 or {len(LEVELS)} numbers"
        need(len(points) in (1, len(LEVELS)), expected, where, f"{len(points)} numbers")


CELL_TABLES = ("nodes", "limit_s", "run", "batch")
CLASS_TABLES = ("activity", "batches")
