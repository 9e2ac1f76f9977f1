"""The last 24 hours of a pool: 144 steps of 10 minutes, and any pair's state matrix from them
(paper, section 4.2).
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator, Sequence

import numpy as np

from mirage.errors import InputError, MirageError
from mirage.state.encoder import (
    HistoryStep,
    Ints,
    JobMatrix,
    JobPair,
    Vectors,
    fill_cluster,
    pair_columns,
    pair_ids,
)
from mirage.state.variables import PAIR, VARIABLES

__all__ = ["BrokenStep", "History", "JobPair", "decode_step", "encode_step"]


class History:
    """Steps of one pool. Polls may come more often than ``step_s``, late, or not at all, and in any
    order.

    Kept are the newest step and the first of each slot; slots start at the multiples of ``step_s``.
    """

    def __init__(self, pool: str, step_s: int = 600, length: int = 144) -> None:
        self.pool = pool
        self.step_s = step_s
        self.length = length
        self._steps: list[HistoryStep] = []
        self._filled = _Filled([], [])

    @property
    def steps(self) -> Sequence[HistoryStep]:
        """What is kept, oldest first."""
        return tuple(self._steps)

    @property
    def latest(self) -> HistoryStep | None:
        """The newest step; None: there is none yet."""
        return self._steps[-1] if self._steps else None

    def add(self, step: HistoryStep) -> bool:
        """Takes a step in. True if it is the first of its slot: it stays, so it is worth saving."""
        by_time = {known.at_s: known for known in self._steps} | {step.at_s: step}
        steps = [by_time[at_s] for at_s in sorted(by_time)]
        newest = steps[-1]
        # The oldest row may need a step from up to two slots before it.
        oldest_s = newest.at_s - (self.length + 1) * self.step_s
        firsts: dict[int, HistoryStep] = {}
        for kept in steps:
            if kept.at_s >= oldest_s:
                firsts.setdefault(kept.at_s // self.step_s, kept)
        self._steps = [*firsts.values()]
        if self._steps[-1] is not newest:
            self._steps.append(newest)
        return firsts.get(step.at_s // self.step_s) is step

    def matrix(self, pair: JobPair, now_s: int) -> Vectors:
        """The pair's state matrix at ``now_s``, (length, 40), oldest row first; the last row is
        ``now_s`` itself.

        Row k from the end is the instant now_s - k * step_s. Queue, servers and nodes are those of
        the latest step at or before it; where there is none, of the oldest step known. The pair's
        columns are exact at that instant. Raises InputError while there is no step at all.
        """
        matrix: Vectors = self.matrices([pair], now_s)[0]
        return matrix

    def matrices(self, pairs: Sequence[JobPair], now_s: int) -> Vectors:
        """`matrix` for many pairs at once, (pairs, length, 40): much cheaper than one by one."""
        if not self._steps:
            raise InputError(
                f"The history of pool {self.pool!r} is empty; add a step before asking for a"
                " matrix."
            )
        needed = list(self._rows(now_s))
        # From one cycle to the next the same pairs are asked about, and all steps but one stay.
        self._filled = _Filled(pairs, [step for step, _ in needed], self._filled)
        result = np.empty((len(pairs), self.length, len(VARIABLES)), dtype=np.float32)
        for column, (_, rows) in enumerate(needed):
            result[:, rows] = self._filled.rows[:, column, None]
        result[:, :, PAIR] = pair_columns(pairs, self._instants(now_s))
        return result

    def known(self, now_s: int, every_s: int = 0) -> float:
        """Share of the matrix's rows, 0 to 1, whose step is less than two ``step_s`` older than the
        row's instant; less than two ``every_s``, where a step comes no more often than that.

        The others repeat a step that is older still, or, before the first step, the first one.
        """
        if not self._steps:
            return 0.0
        instants = self._instants(now_s)
        age = instants - self._times()[self._latest(instants)]
        return float(np.mean((age >= 0) & (age < 2 * max(self.step_s, every_s))))

    def is_complete(self, now_s: int) -> bool:
        """Whether every row is known."""
        return self.known(now_s) == 1.0

    def _times(self) -> Ints:
        return np.array([step.at_s for step in self._steps], dtype=np.int64)

    def _instants(self, now_s: int) -> Ints:
        return now_s - self.step_s * np.arange(self.length - 1, -1, -1, dtype=np.int64)

    def _latest(self, instants: Ints) -> Ints:
        """The index of each instant's step."""
        return np.maximum(np.searchsorted(self._times(), instants, side="right") - 1, 0)

    def _rows(self, now_s: int) -> Iterator[tuple[HistoryStep, slice]]:
        """Each step that is needed, with the rows that it fills."""
        indices, first, count = np.unique(
            self._latest(self._instants(now_s)), return_index=True, return_counts=True
        )
        for index, row, rows in zip(indices, first, count, strict=True):
            yield self._steps[index], slice(row, row + rows)


class _Filled:
    """Rows of pairs at steps, (pairs, steps, 40), without the columns of the pairs themselves.

    Rows that ``before`` has are copied: they depend on nothing but the step and the jobs' ids.
    """

    def __init__(
        self, pairs: Sequence[JobPair], steps: Sequence[HistoryStep], before: _Filled | None = None
    ) -> None:
        without = pair_ids(pairs)
        self.row_of = {(int(a), int(b)): row for row, (a, b) in enumerate(without)}
        self.column_of = {step: column for column, step in enumerate(steps)}  # by identity
        self.rows = np.zeros((len(pairs), len(steps), len(VARIABLES)), dtype=np.float32)
        former = {} if before is None else before.row_of
        at = np.array([former.get((int(a), int(b)), -1) for a, b in without], dtype=np.int64)
        for step, column in self.column_of.items():
            copied = None if before is None else before.column_of.get(step)
            new = np.flatnonzero(at < 0) if copied is not None else np.arange(len(pairs))
            if before is not None and copied is not None:
                self.rows[at >= 0, column] = before.rows[at[at >= 0], copied]
            if len(new):
                rows = np.zeros((len(new), len(VARIABLES)), dtype=np.float32)
                fill_cluster(rows, step, without[new])
                self.rows[new, column] = rows


class BrokenStep(MirageError):
    """A stored step of the history can't be read. Drop it and go on: its rows repeat the step
    before it.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"A stored step of the history can't be read: {reason}. Drop it and go on without it."
        )


_MAGIC = b"MIRSTEP\x01"
"""The last byte is the format's version."""
_HEAD = struct.Struct("<qIIII")
_BYTES_PER_JOB = 8 + 3 * 4


def encode_step(step: HistoryStep) -> bytes:
    """A step for the store: magic and version, then zlib over a header and the arrays,
    little-endian.
    """
    head = _HEAD.pack(
        step.at_s, len(step.queued), len(step.running), step.idle_nodes, step.up_nodes
    )
    tables = [part for table in (step.queued, step.running) for part in (table.ids, table.values)]
    arrays = [array.astype(array.dtype.newbyteorder("<")).tobytes() for array in tables]
    return _MAGIC + zlib.compress(b"".join([head, *arrays]), level=1)


def decode_step(payload: bytes) -> HistoryStep:
    """The step that `encode_step` made this of. Raises BrokenStep, with the reason, if it is
    anything else.
    """
    if not payload.startswith(_MAGIC):
        raise BrokenStep(f"it does not begin as a step of version {_MAGIC[-1]}")
    try:
        return _unpack(zlib.decompress(payload[len(_MAGIC) :]))
    except (zlib.error, struct.error, ValueError) as error:
        raise BrokenStep(str(error)) from error


def _unpack(body: bytes) -> HistoryStep:
    at_s, queued, running, idle, up = _HEAD.unpack_from(body)
    split = _HEAD.size + queued * _BYTES_PER_JOB
    if len(body) != split + running * _BYTES_PER_JOB:
        raise ValueError(f"{len(body)} bytes do not fit {queued} queued and {running} running jobs")
    return HistoryStep(
        at_s=at_s,
        queued=_unpack_table(body[_HEAD.size : split]),
        running=_unpack_table(body[split:]),
        idle_nodes=idle,
        up_nodes=up,
    )


def _unpack_table(body: bytes) -> JobMatrix:
    count = len(body) // _BYTES_PER_JOB
    ids = np.frombuffer(body, dtype="<i8", count=count).astype(np.int64)
    values = np.frombuffer(body, dtype="<i4", offset=8 * count).astype(np.int32).reshape(3, count)
    if np.any(np.diff(ids) < 0) or np.any(values < 0):
        raise ValueError("job ids are not in order, or a value is negative")
    return JobMatrix.by_id(ids, values)
