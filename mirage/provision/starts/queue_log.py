"""A queue log: jobs as they stood in the queue at some looks, and when they started later.

Gzipped CSV of the columns of `queue_rows`, with those of `HEAD` before them: the form of the public
log of Graham, and of what Mirage's service keeps of its own site (`keeping`). Times are UTC.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError, system_says
from mirage.provision.starts.queue_rows import AHEAD, OWN
from slurm_sim.files import replacing
from slurm_sim.seconds import DAY_S, HOUR_S

if TYPE_CHECKING:
    from pandas import DataFrame

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

HEAD = (
    "poll_time",
    "submit_time",
    "eligible_time",
    "start_time",
    "planned_time",
    "job_unique_id",
    "account_id",
    "partition_id",
)
"""Of these ``start_time`` may be empty (not known), and ``planned_time`` (Slurm's own plan)."""
COLUMNS = (*HEAD, *OWN, *AHEAD)
NEEDED = ("poll_time", "submit_time", "job_unique_id", "account_id", "partition_id")
FEATURES = (*OWN, *AHEAD, "age_s", "eligible_s", "hour", "weekday", "planned_log")
"""What forecasts are made of. NaN: not known. The last one is of Slurm's plan: log(1 + seconds)."""


@dataclass(frozen=True, kw_only=True, eq=False)
class QueueLog:
    """Rows by time of the look. Arrays are (n,); seconds."""

    poll_s: Floats
    start_s: Floats
    """NaN: not known, or not started."""
    planned_s: Floats
    """By Slurm's plan at the look; NaN: none."""
    keys: NDArray[np.object_]
    """The jobs' ids."""
    accounts: NDArray[np.object_]
    partitions: NDArray[np.object_]
    features: NDArray[np.float32]
    """(n, FEATURES)"""

    def __len__(self) -> int:
        return len(self.poll_s)

    def rows(self, chosen: Any) -> QueueLog:
        return QueueLog(
            **{name: values[chosen] for name, values in vars(self).items() if name in _FIELDS}
        )

    @cached_property
    def wait_s(self) -> Floats:
        return self.start_s - self.poll_s

    @cached_property
    def day(self) -> NDArray[np.int64]:
        """Days since 1970, UTC."""
        return (self.poll_s // DAY_S).astype(np.int64)

    def column(self, name: str) -> NDArray[np.float32]:
        """Of `FEATURES`."""
        return self.features[:, FEATURES.index(name)]


_FIELDS = QueueLog.__dataclass_fields__


def read_queue_log(paths: Sequence[Path]) -> QueueLog:
    """The rows of all files, by time. Raises InputError."""
    import pandas

    frame = pandas.concat([_read(path) for path in paths], ignore_index=True)
    if not len(frame):
        raise InputError(f"{paths[0]}: no rows; give a queue log (docs/traces.md).")
    frame = frame.sort_values("poll_time", kind="stable", ignore_index=True)
    return _log_of(frame)


def _read(path: Path) -> DataFrame:
    import pandas

    try:
        frame = pandas.read_csv(path, dtype=dict.fromkeys(HEAD, str))
    except OSError as error:
        raise InputError(f"{system_says(error)}; give a queue log.") from error
    except (ValueError, EOFError) as error:
        raise InputError(f"{path}: can't be read as CSV ({error}); give a queue log.") from error
    if missing := [name for name in NEEDED if name not in frame]:
        raise InputError(f"{path}: no column {missing[0]!r}; give a queue log (docs/traces.md).")
    for name in HEAD:
        if name.endswith("_time"):
            frame[name] = _seconds(frame.get(name), len(frame), path, name)
    if frame["poll_time"].isna().any() or frame["submit_time"].isna().any():
        raise InputError(f"{path}: a row without poll_time or submit_time.")
    return frame


def _seconds(column: Any, rows: int, path: Path, name: str) -> Floats:
    import pandas

    if column is None:
        return np.full(rows, np.nan)
    try:
        times = pandas.to_datetime(column, utc=True, format="ISO8601")
    except ValueError as error:
        raise InputError(f"{path}: {name}: expected 2026-01-31 12:00:00, UTC ({error}).") from error
    seconds = (times - pandas.Timestamp(0, tz="UTC")) / pandas.Timedelta(seconds=1)
    return np.asarray(seconds.to_numpy(dtype=np.float64), dtype=np.float64)


def _log_of(frame: DataFrame) -> QueueLog:
    poll_s = frame["poll_time"].to_numpy(dtype=np.float64)
    _add_counts(frame)
    submit_s, eligible_s = (
        frame[name].to_numpy(dtype=np.float64) for name in ("submit_time", "eligible_time")
    )
    values = {name: _numbers(frame, name) for name in (*OWN, *AHEAD)} | time_features(
        poll_s, submit_s, np.where(np.isfinite(eligible_s), eligible_s, submit_s)
    )
    planned_s = _numbers(frame, "planned_time")
    values["planned_log"] = planned_log(planned_s - poll_s)
    return QueueLog(
        poll_s=poll_s,
        start_s=_numbers(frame, "start_time"),
        planned_s=planned_s,
        keys=frame["job_unique_id"].to_numpy(dtype=object),
        accounts=frame["account_id"].fillna("").to_numpy(dtype=object),
        partitions=frame["partition_id"].fillna("").to_numpy(dtype=object),
        features=np.column_stack([values[name] for name in FEATURES]).astype(np.float32),
    )


def time_features(poll_s: Any, submit_s: Any, eligible_s: Any) -> dict[str, Any]:
    """Of numbers or arrays, Unix seconds; hours and days are UTC."""
    return {
        "age_s": poll_s - submit_s,
        "eligible_s": poll_s - eligible_s,
        "hour": poll_s % DAY_S // HOUR_S,
        "weekday": (poll_s // DAY_S + 4) % 7,
    }


def planned_log(wait_s: Any) -> Any:
    """Of the planned wait in seconds; a plan that has passed is one of now."""
    return np.log1p(np.maximum(wait_s, 0.0))


def _add_counts(frame: DataFrame) -> None:
    """GPUs and nodes out of ``req_tres``, where the log has that in place of them."""
    for name, word in (("req_gpus", r"gres/gpu=(\d+)"), ("req_nodes", r"node=(\d+)")):
        if name not in frame and "req_tres" in frame:
            found = frame["req_tres"].astype(str).str.extract(word, expand=False)
            frame[name] = found.astype(float).fillna(0.0)


def _numbers(frame: DataFrame, name: str) -> Floats:
    import pandas

    if name not in frame:
        return np.full(len(frame), np.nan)
    found = pandas.to_numeric(frame[name], errors="coerce").to_numpy(dtype=np.float64)
    return np.where(np.isfinite(found), found, np.nan)


def with_starts(log: QueueLog, starts_s: Mapping[str, int]) -> QueueLog:
    """With the starts that are known by now, by key; one before the look says nothing."""
    found = np.array([starts_s.get(key, np.nan) for key in log.keys], dtype=np.float64)
    found = np.where(np.isfinite(log.start_s), log.start_s, found)
    return replace(log, start_s=np.where(found >= log.poll_s, found, np.nan))


def write_queue_log(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    """Times as Unix seconds or None. Nothing half-written stays. Raises OSError."""
    with replacing(path) as fresh, gzip.open(fresh, "wt", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS, restval="")
        writer.writeheader()
        writer.writerows({name: _text(name, value) for name, value in row.items()} for row in rows)


def _text(name: str, value: Any) -> Any:
    if name.endswith("_time"):
        return (
            ""
            if value is None
            else datetime.fromtimestamp(value, UTC).strftime("%Y-%m-%d %H:%M:%S")
        )
    return f"{value:.6g}" if isinstance(value, float) else value
