"""Recent waits as columns, so that 500 chains can each pick out the jobs like their own in a cycle."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from mirage.domain import Job, WaitSample

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]

NO_LIMIT = 0
"""How an UNLIMITED time limit stands in the columns: like nothing but itself."""


MOST_NAMES = 3


class Alike(NamedTuple):
    """Jobs that are compared with one."""

    wait_s: Floats
    """Oldest start first."""
    eligible_s: Floats
    """When each began to wait."""
    words: str
    """What they have in common with it, for people: `like jobs`, `jobs of partition gpu, of any
    size,`.
    """
    is_like: Callable[[Job], bool]
    """Whether another job of the pool is as much like it."""


class WaitColumns(NamedTuple):
    """(samples,) each."""

    partition: NDArray[np.int32]
    """A number for each name."""
    nodes: NDArray[np.int64]
    limit_s: NDArray[np.int64]
    wait_s: Floats
    start_s: Floats


def _columns(samples: Sequence[WaitSample], codes: Mapping[str, int]) -> WaitColumns:
    return WaitColumns(
        np.array([codes[sample.partition] for sample in samples], dtype=np.int32),
        np.array([sample.nodes for sample in samples], dtype=np.int64),
        np.array([sample.time_limit_s or NO_LIMIT for sample in samples], dtype=np.int64),
        np.array([sample.wait_s for sample in samples], dtype=np.float64),
        np.array([sample.start_s for sample in samples], dtype=np.float64),
    )


class Waits(Sequence[WaitSample]):
    """Jobs that started and how long they waited, oldest start first."""

    def __init__(
        self,
        samples: Sequence[WaitSample],
        sharing: Mapping[str, frozenset[str]] | None = None,
    ) -> None:
        """``sharing``: by partition those that share a node with it (`Snapshot.sharing`); None: all
        do.
        """
        self._samples = samples
        self._sharing = sharing
        names = {sample.partition for sample in samples}
        self._codes = {name: code for code, name in enumerate(sorted(names))}
        self._columns = _columns(samples, self._codes)

    def followed_by(
        self, samples: Sequence[WaitSample], sharing: Mapping[str, frozenset[str]] | None
    ) -> Waits:
        """The same as `Waits(samples, sharing)`, and much faster where ``samples`` are these without
        the oldest and with new ones at the end, as from one cycle to the next.
        """
        dropped = self._dropped(samples)
        new = samples[len(self) - dropped :] if dropped is not None else samples
        if dropped is None or any(sample.partition not in self._codes for sample in new):
            return Waits(samples, sharing)
        waits = Waits((), sharing)
        waits._samples, waits._codes = samples, self._codes
        added = _columns(new, self._codes)
        old = self._columns
        waits._columns = WaitColumns(
            np.concatenate([old.partition[dropped:], added.partition]),
            np.concatenate([old.nodes[dropped:], added.nodes]),
            np.concatenate([old.limit_s[dropped:], added.limit_s]),
            np.concatenate([old.wait_s[dropped:], added.wait_s]),
            np.concatenate([old.start_s[dropped:], added.start_s]),
        )
        return waits

    def _dropped(self, samples: Sequence[WaitSample]) -> int | None:
        """How many of these, the oldest, ``samples`` lacks; None: it does not follow these."""
        if not samples:
            return None
        first = next((at for at, one in enumerate(self._samples) if one is samples[0]), None)
        if first is None:
            return None
        last = len(self) - first - 1
        follows = last < len(samples) and samples[last] is self._samples[-1]
        return first if follows else None

    @property
    def wait_s(self) -> Floats:
        return self._columns.wait_s

    def __len__(self) -> int:
        return len(self._samples)

    @overload
    def __getitem__(self, index: int) -> WaitSample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[WaitSample]: ...

    def __getitem__(self, index: int | slice) -> WaitSample | Sequence[WaitSample]:
        return self._samples[index]

    def like(self, job: Job, at_least: int) -> Alike:
        """The waits of the jobs most like ``job``: as alike as leaves ``at_least``.

        Same partition, size and time limit within a factor of two; else same partition and size;
        else same partition; else like size in all partitions that share a node with it, and then
        the words say which. With fewer: those of the same partition, or of these; perhaps none. A
        job whose limit backfill may shorten fits where one of its --time-min does.
        """
        narrowing = list(self._narrowing(job))
        for alike, words, is_like in narrowing:
            if int(alike.sum()) >= at_least:
                return self._answer(alike, words, is_like)
        for alike, words, is_like in narrowing[-2:]:
            if alike.any():
                return self._answer(alike, words, is_like)
        alike, _, is_like = narrowing[-1]
        return self._answer(alike, f"jobs for the nodes of {job.partition}", is_like)

    def _answer(self, alike: Mask, words: str, is_like: Callable[[Job], bool]) -> Alike:
        return Alike(self.wait_s[alike], self._eligible_s[alike], words, is_like)

    def backlog(self, at_s: Floats) -> Floats:
        """Node-seconds, by time limits, of these jobs that were queued at each time. A job without
        a time limit counts nothing.
        """
        times_s, backlog = self._backlog
        return backlog[np.searchsorted(times_s, at_s, side="right")]

    @cached_property
    def _eligible_s(self) -> Floats:
        return np.asarray(self._columns.start_s - self.wait_s, dtype=np.float64)

    @cached_property
    def _backlog(self) -> tuple[Floats, Floats]:
        """The times at which the backlog changed, and the backlog before the first and after each."""
        work = self._columns.nodes.astype(np.float64) * self._columns.limit_s
        times_s = np.concatenate([self._eligible_s, self._columns.start_s])
        order = np.argsort(times_s, kind="stable")
        changes = np.concatenate([work, -work])[order]
        return times_s[order], np.concatenate([[0.0], np.cumsum(changes)])

    def partitions(self, last: int | None = None, these: Mask | None = None) -> str:
        """Where these jobs (the ``last`` ones) ran, for people: `partition gpu`, `partitions debug,
        gpu`.
        """
        ran = self._columns.partition if these is None else self._columns.partition[these]
        seen = set(ran[-last if last else 0 :].tolist())
        names = sorted(name for name, code in self._codes.items() if code in seen)
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return f"partition{'s' if len(names) > 1 else ''} {', '.join(names[:MOST_NAMES])}{more}"

    def _narrowing(self, job: Job) -> Iterator[tuple[Mask, str, Callable[[Job], bool]]]:
        """Masks from most to least alike, and the same test for a single job."""
        names = set(job.partition.split(","))
        limit_s = job.time_min_s or job.time_limit_s or NO_LIMIT
        codes = [self._codes[name] for name in names if name in self._codes]
        partition = np.isin(self._columns.partition, codes)
        size = partition & _within_factor_2(self._columns.nodes, job.nodes)

        def shares_partition(other: Job) -> bool:
            return not names.isdisjoint(other.partition.split(","))

        def has_size(other: Job) -> bool:
            return shares_partition(other) and _is_within_factor_2(other.nodes, job.nodes)

        def has_limit(other: Job) -> bool:
            return has_size(other) and _is_within_factor_2(other.time_limit_s or NO_LIMIT, limit_s)

        limit = size & _within_factor_2(self._columns.limit_s, limit_s)
        yield limit, "like jobs", has_limit
        yield size, "jobs of like size and any time limit", has_size
        yield partition, "jobs of the same partition and any size", shares_partition
        rivals = self._rivals(names)
        near_codes = [
            code for name, code in self._codes.items() if rivals is None or name in rivals
        ]
        near = np.isin(self._columns.partition, near_codes) & _within_factor_2(
            self._columns.nodes, job.nodes
        )

        def competes(other: Job) -> bool:
            is_near = rivals is None or not rivals.isdisjoint(other.partition.split(","))
            return is_near and _is_within_factor_2(other.nodes, job.nodes)

        where = self.partitions(these=near)
        words = f"jobs of {where} and like size, as too few of {job.partition} have started,"
        yield near, words, competes

    def _rivals(self, names: set[str]) -> set[str] | None:
        """The partitions that share a node with one of these; None: all."""
        if self._sharing is None:
            return None
        return {rival for name in names for rival in self._sharing.get(name, {name})}


def _within_factor_2(values: NDArray[np.int64], value: int) -> Mask:
    return (values <= 2 * value) & (value <= 2 * values)


def _is_within_factor_2(one: int, other: int) -> bool:
    return one <= 2 * other and other <= 2 * one
