"""Slurm's ways to write values, turned into numbers a column at a time. Rows with a bad value are
taken down.

Sources: `sacct(1)` (Timelimit, AllocTRES, State, ReqMem), `sbatch(1)` (--time).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from slurm_sim.traces.errors import Wrong
from slurm_sim.traces.table import LAST_TIME_S

Floats = NDArray[np.float64]
UNKNOWN = {
    "",
    "Unknown",
    "None",
    "N/A",
    "NONE",
    "Invalid",
    "INVALID",
    "(null)",
    "Partition_Limit",
    "UNLIMITED",
}
CONSTANTS = {str(2**bits - less) for bits in (32, 64) for less in (1, 2)}
"""INFINITE and NO_VAL of slurm.h, as slurmdbd's tables have them for UNLIMITED and for nothing."""
UNKNOWN |= CONSTANTS


@dataclass
class Batch:
    """Some lines of a file, as columns of text; ``lines[i]`` is row i's line number in the file."""

    file: str
    lines: list[int]
    columns: dict[str, list[str]]
    timezone: str | None = None
    """Of stamps without an offset; None: UTC."""
    notes: dict[str, int] = field(default_factory=dict)
    """What was done to values, and how often; shared by all batches of a file."""
    bad: dict[int, Wrong] = field(default_factory=dict)
    """Rows with a bad value."""

    @property
    def kept(self) -> NDArray[np.bool_]:
        """Which rows have no bad value, shape (rows,)."""
        result = np.ones(len(self.lines), bool)
        result[list(self.bad)] = False
        return result

    def note(self, what: str, count: int) -> None:
        if count:
            self.notes[what] = self.notes.get(what, 0) + int(count)

    def first(self, *names: str) -> str | None:
        """The first of these columns that the file has."""
        return next((name for name in names if name in self.columns), None)

    def refuse(self, name: str, rows: Iterable[int], expected: str) -> None:
        """Takes rows with a bad value down in `bad`."""
        for row in rows:
            found = self.columns[name][row] or "nothing"
            self.bad.setdefault(int(row), Wrong(name, found, expected))

    def mapped(
        self, name: str, convert: Callable[[str], Any], expected: str, wrong: Any = np.nan
    ) -> NDArray[np.object_]:
        """``convert`` over the column, once for each distinct text; it raises ValueError for a bad
        one.

        `wrong` stands for a bad one, if that does not raise.
        """
        codes, texts = pd.factorize(np.array(self.columns[name], dtype=object))
        values = np.empty(len(texts), dtype=object)
        for index, text in enumerate(texts):
            try:
                values[index] = convert(str(text).strip())
            except ValueError:
                values[index] = wrong
                self.refuse(name, np.flatnonzero(codes == index).tolist(), expected)
        result: NDArray[np.object_] = values[codes]
        return result

    def numbers(self, name: str, expected: str = "a whole number") -> Floats:
        return self.mapped(name, whole_number, expected).astype(np.float64)

    def limits_s(self, name: str) -> Floats:
        invalid = sum(text.strip().upper() == "INVALID" for text in self.columns[name])
        self.note(f"{name} INVALID, taken as unknown", invalid)
        return self.mapped(
            name, time_limit_s, "a time limit like 2-00:00:00, 30:00, 90 or UNLIMITED"
        ).astype(np.float64)

    def times(self, name: str) -> Floats:
        """Unix seconds of ISO stamps (local, or with an offset) or Unix seconds; NaN: Unknown."""
        text = pd.Series(self.columns[name], dtype=object).str.strip()
        missing = text.isin(UNKNOWN).to_numpy(bool)
        result = np.full(len(text), np.nan)
        epoch = text.str.fullmatch(r"\d{1,12}").to_numpy(bool)
        result[epoch] = text[epoch].astype(np.float64)
        rest = np.flatnonzero(~epoch & ~missing)
        if len(rest):
            result[rest] = self._iso(name, text.iloc[rest].tolist(), rest)
        outside = (result < 0) | (result > LAST_TIME_S)
        self.refuse(name, np.flatnonzero(outside).tolist(), "a time from 1970 to 2199")
        result[outside] = np.nan
        return result

    def _iso(self, name: str, texts: list[str], rows: NDArray[np.intp]) -> Floats:
        expected = "a time like 2023-01-31T12:00:00, Unix seconds or Unknown"
        offsets = np.array(
            [re.search(r":.*(Z|[+-]\d\d:?\d\d)$", text) is not None for text in texts]
        )
        if offsets.any() and not offsets.all():
            parts = [np.flatnonzero(offsets), np.flatnonzero(~offsets)]
            result = np.full(len(texts), np.nan)
            for part in parts:
                result[part] = self._iso(name, [texts[at] for at in part], rows[part])
            return result
        offset = bool(offsets[0])
        stamps = pd.to_datetime(pd.Series(texts), format="ISO8601", errors="coerce", utc=offset)
        dated = np.array([re.match(r"\d{4}", text) is not None for text in texts])
        bad = stamps.isna().to_numpy(bool) | ~dated  # pandas takes -5 for a year
        self.refuse(name, rows[bad].tolist(), expected)
        stamps = stamps.fillna(pd.Timestamp(0, tz="UTC" if offset else None))
        if not offset:
            stamps = self._localised(stamps)
        seconds: Floats = (
            stamps.dt.tz_convert("UTC")
            .dt.tz_localize(None)
            .astype("datetime64[s]")
            .astype(np.int64)
        ).to_numpy(dtype=np.float64)
        return np.where(bad, np.nan, seconds)

    def _localised(self, stamps: Any) -> Any:
        zone = self.timezone or "UTC"
        if zone == "UTC":
            return stamps.dt.tz_localize("UTC")
        early = stamps.dt.tz_localize(
            zone, ambiguous=np.ones(len(stamps), bool), nonexistent="shift_forward"
        )
        late = stamps.dt.tz_localize(
            zone, ambiguous=np.zeros(len(stamps), bool), nonexistent="shift_forward"
        )
        self.note(
            "times in an hour that the clock showed twice, taken as the second",
            (early != late).sum(),
        )
        gap = stamps.dt.tz_localize(
            zone, ambiguous=np.zeros(len(stamps), bool), nonexistent="NaT"
        ).isna()
        self.note("times that the clock never showed, moved to the next that it did", gap.sum())
        return late


NO_ZONE = "times without a zone, taken as UTC (give --timezone)"


def count_zoneless(batch: Batch, name: str) -> None:
    """Notes rows of which this time has no zone, if none was given."""
    if batch.timezone is None and batch.columns[name]:
        text = pd.Series(batch.columns[name][:1000], dtype=object)
        if text.str.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+").any():
            batch.note(NO_ZONE, len(batch.lines))


def whole_number(text: str) -> float:
    """A count that `sacct` may write as 1K or 2M; NaN: unknown."""
    if text in UNKNOWN:
        return np.nan
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGT]?)", text)
    if match is None:
        raise ValueError(text)
    return float(match[1]) * 1000.0 ** " KMGT".index(match[2] or " ")


def time_limit_s(text: str) -> float:
    """`sbatch(1)`: minutes, minutes:seconds, hours:minutes:seconds, days-hours[:minutes[:seconds]];
    NaN: UNLIMITED.
    """
    if text in UNKNOWN:
        return np.nan
    match = re.fullmatch(r"(?:(\d+)-)?(\d+)(?::(\d+))?(?::(\d+))?(?:\.\d+)?", text)
    if match is None:
        raise ValueError(text)
    days, *parts = match.groups()
    given = [int(part) for part in parts if part is not None]
    if days is not None:
        hours, minutes, seconds = (*given, 0, 0)[:3]
    elif len(given) == 3:
        hours, minutes, seconds = given
    else:
        hours, minutes, seconds = 0, given[0], (given[1] if len(given) == 2 else 0)
    return float(int(days or 0) * 86400 + hours * 3600 + minutes * 60 + seconds)


def state(text: str) -> str:
    """``CANCELLED by 1000`` -> CANCELLED; short forms as `squeue(1)` has them."""
    word = text.split(" ")[0].rstrip("+").upper()
    if not re.fullmatch(r"[A-Z_]+", word):
        raise ValueError(text)
    return SHORT_STATES.get(word, word)


def stored_state(text: str) -> str:
    """As `state`, or by its number, as slurmdbd's tables have it."""
    if not text.isdecimal():
        return state(text) if text else ""
    try:
        return NUMBERED_STATES[int(text)]
    except KeyError:
        raise ValueError(text) from None


_BY_NUMBER = (
    "PENDING RUNNING SUSPENDED COMPLETED CANCELLED FAILED TIMEOUT NODE_FAIL PREEMPTED BOOT_FAIL DEADLINE"
    " OUT_OF_MEMORY"
)
NUMBERED_STATES = dict(enumerate(_BY_NUMBER.split())) | {1024: "REQUEUED", 8192: "RESIZING"}
"""`enum job_states` and two flags of slurm.h."""
SHORT_STATES = {
    "BF": "BOOT_FAIL",
    "CA": "CANCELLED",
    "CD": "COMPLETED",
    "CF": "CONFIGURING",
    "CG": "COMPLETING",
    "DL": "DEADLINE",
    "F": "FAILED",
    "NF": "NODE_FAIL",
    "OOM": "OUT_OF_MEMORY",
    "PD": "PENDING",
    "PR": "PREEMPTED",
    "R": "RUNNING",
    "RQ": "REQUEUED",
    "S": "SUSPENDED",
    "TO": "TIMEOUT",
}


STATES = {
    *SHORT_STATES.values(),
    "LAUNCH_FAILED",
    "POWER_UP_NODE",
    "RECONFIG_FAIL",
    "REQUEUE_FED",
    "REQUEUE_HOLD",
}
STATES |= {
    "RESIZING",
    "RESV_DEL_HOLD",
    "REVOKED",
    "SIGNALING",
    "SPECIAL_EXIT",
    "STAGE_OUT",
    "STOPPED",
    "UPDATE_DB",
}
STATES |= {"EXPEDITING", "UNKNOWN"}
"""`squeue(1)`, JOB STATE CODES."""


def tres(text: str) -> dict[str, str]:
    """``cpu=4,mem=64G,gres/gpu=2`` -> its parts; `sacct(1)`, AllocTRES."""
    if text in UNKNOWN:
        return {}
    parts = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if not equals:
            raise ValueError(text)
        parts[name.strip()] = value.strip()
    return parts


def tres_gpus(text: str) -> float:
    """All GPUs of a TRES string: the total where it is given, else the sum over types. 0: none."""
    parts = tres(text)
    if "gres/gpu" in parts:
        return whole_number(parts["gres/gpu"])
    return sum(whole_number(value) for name, value in parts.items() if name.startswith("gres/gpu:"))


def gres_gpus(text: str) -> float:
    """GPUs of ``gpu:tesla:2,craynetwork:1``: AllocGRES and ReqGRES of sacct before 20.11. 0: none."""
    found = 0
    for part in text.split(","):
        name, *more = re.sub(r"\(.*", "", part).removeprefix("gres/").split(":")
        if name in ("gpu", GPU_ID):
            found += int(more[-1]) if more and more[-1].isdecimal() else 1
    return float(found)


GPU_ID = "7696487"
"""What a sacct prints that lacks the site's plugin, `gpu` as a number."""


def tres_cpus(text: str) -> float:
    """CPUs of a TRES string. 0: it names none."""
    return whole_number(tres(text).get("cpu", "0"))


def tres_nodes(text: str) -> float:
    """Nodes of a TRES string. 0: it names none."""
    return whole_number(tres(text).get("node", "0"))


def tres_mem_mib(text: str) -> float:
    return memory_mib(tres(text).get("mem", ""))


def memory_mib(text: str) -> float:
    """``64G``, ``4000M``, ``2T``, plain MiB (ReqMem of old releases adds n or c: a node, a CPU);
    NaN: unknown.
    """
    if text in UNKNOWN:
        return np.nan
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([KMGTP]?)[nc]?", text)
    if match is None:
        raise ValueError(text)
    return float(np.ceil(float(match[1]) * 1024.0 ** ("KMGTP".index(match[2] or "M") - 1)))


MOST_STATES = 5
"""How many of the unknown ones are named."""


def note_states(batch: Batch, states: NDArray[np.object_]) -> None:
    """Counts those that are none of Slurm's."""
    names, counts = np.unique(states.astype(str), return_counts=True)
    strange = [
        (name, count)
        for name, count in zip(names, counts, strict=True)
        if name and name not in STATES
    ]
    for name, count in strange[:MOST_STATES]:
        batch.note(f"state {name}, none of Slurm's, kept", count)
    batch.note(
        "more states that are none of Slurm's, kept",
        sum(count for _name, count in strange[MOST_STATES:]),
    )
