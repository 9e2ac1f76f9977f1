"""Recent waits as columns, so that 500 chains can each pick out the jobs like their own in a cycle."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
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


class Requests(NamedTuple):
    """What jobs ask for, as columns: (jobs,) each."""

    names: Sequence[str]
    """Each partition, or list of partitions, once."""
    partition: NDArray[np.int32]
    """Its place in ``names``."""
    nodes: NDArray[np.int64]
    limit_s: NDArray[np.int64]

    @classmethod
    def of(cls, jobs: Collection[Job] | Collection[WaitSample]) -> Requests:
        names = sorted({job.partition for job in jobs})
        codes = {name: code for code, name in enumerate(names)}
        return cls(
            names,
            np.array([codes[job.partition] for job in jobs], dtype=np.int32),
            np.array([job.nodes for job in jobs], dtype=np.int64),
            np.array([job.time_limit_s or NO_LIMIT for job in jobs], dtype=np.int64),
        )

    def followed_by(self, others: Requests, first: int) -> Requests:
        """These from place ``first`` on, and then ``others``, whose partitions all are among these."""
        places = np.array([self.names.index(name) for name in others.names], dtype=np.int32)
        return Requests(
            self.names,
            np.concatenate([self.partition[first:], places[others.partition]]),
            np.concatenate([self.nodes[first:], others.nodes]),
            np.concatenate([self.limit_s[first:], others.limit_s]),
        )


class Likeness(NamedTuple):
    """What a job must ask for to be like another one."""

    partitions: frozenset[str] | None
    """One of these; None: any."""
    nodes: int | None = None
    """Within a factor of two; None: any number."""
    limit_s: int | None = None
    """Likewise."""

    def among(self, requests: Requests) -> Mask:
        """(jobs,): which of them do."""
        chosen = np.ones(len(requests.nodes), dtype=bool)
        if self.partitions is not None:
            named = [not self.partitions.isdisjoint(name.split(",")) for name in requests.names]
            chosen &= np.array(named, dtype=bool)[requests.partition]
        if self.nodes is not None:
            chosen &= _within_factor_2(requests.nodes, self.nodes)
        if self.limit_s is not None:
            chosen &= _within_factor_2(requests.limit_s, self.limit_s)
        return chosen


@dataclass(frozen=True, eq=False)
class Alike:
    """Jobs that are compared with one."""

    wait_s: Floats
    """Oldest start first."""
    eligible_s: Floats
    """When each began to wait."""
    words: str
    """What they have in common with it, for people: `like jobs`, `jobs of partition gpu, of any
    size,`.
    """
    likeness: Likeness
    """What another job of the pool must ask for to be as much like it."""


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
        self._fill(samples, sharing, Requests.of(samples), *_times(samples))

    def _fill(
        self,
        samples: Sequence[WaitSample],
        sharing: Mapping[str, frozenset[str]] | None,
        requests: Requests,
        wait_s: Floats,
        start_s: Floats,
    ) -> None:
        self._samples, self._sharing, self.requests = samples, sharing, requests
        self.wait_s, self._start_s = wait_s, start_s
        self._answers: dict[tuple[str, int, int, int], Alike] = {}

    def followed_by(
        self, samples: Sequence[WaitSample], sharing: Mapping[str, frozenset[str]] | None
    ) -> Waits:
        """The same as `Waits(samples, sharing)`, and much faster where ``samples`` are these without
        the oldest and with new ones at the end, as from one cycle to the next.
        """
        dropped = self._dropped(samples)
        new = samples[len(self) - dropped :] if dropped is not None else samples
        if dropped is None or any(sample.partition not in self.requests.names for sample in new):
            return Waits(samples, sharing)
        waits = Waits((), sharing)
        wait_s, start_s = _times(new)
        waits._fill(
            samples,
            sharing,
            self.requests.followed_by(Requests.of(new), dropped),
            np.concatenate([self.wait_s[dropped:], wait_s]),
            np.concatenate([self._start_s[dropped:], start_s]),
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
        job whose limit backfill may shorten fits where one of its --time-min does. What was asked
        once is kept: many chains ask for the same.
        """
        key = job.partition, job.nodes, job.time_min_s or job.time_limit_s or NO_LIMIT, at_least
        if key not in self._answers:
            self._answers[key] = self._like(*key)
        return self._answers[key]

    def _like(self, partition: str, nodes: int, limit_s: int, at_least: int) -> Alike:
        names = frozenset(partition.split(","))
        narrowing = [
            (likeness, likeness.among(self.requests))
            for likeness in (
                Likeness(names, nodes, limit_s),
                Likeness(names, nodes),
                Likeness(names),
                Likeness(self._rivals(names), nodes),
            )
        ]
        enough = (at for at, (_, mask) in enumerate(narrowing) if int(mask.sum()) >= at_least)
        any_last = (at for at in (2, 3) if narrowing[at][1].any())
        at = next(enough, next(any_last, None))
        likeness, mask = narrowing[3 if at is None else at]
        words = (
            f"jobs for the nodes of {partition}" if at is None else self._words(at, partition, mask)
        )
        return Alike(self.wait_s[mask], self._eligible_s[mask], words, likeness)

    def _words(self, at: int, partition: str, mask: Mask) -> str:
        if at < len(_NARROW):
            return _NARROW[at]
        where = self.partitions(these=mask)
        return f"jobs of {where} and like size, as too few of {partition} have started,"

    def backlog(self, at_s: Floats) -> Floats:
        """Node-seconds, by time limits, of these jobs that were queued at each time. A job without
        a time limit counts nothing.
        """
        times_s, backlog = self._backlog
        return backlog[np.searchsorted(times_s, at_s, side="right")]

    @cached_property
    def _eligible_s(self) -> Floats:
        return np.asarray(self._start_s - self.wait_s, dtype=np.float64)

    @cached_property
    def _backlog(self) -> tuple[Floats, Floats]:
        """The times at which the backlog changed, and the backlog before the first and after each."""
        work = self.requests.nodes.astype(np.float64) * self.requests.limit_s
        times_s = np.concatenate([self._eligible_s, self._start_s])
        order = np.argsort(times_s, kind="stable")
        changes = np.concatenate([work, -work])[order]
        return times_s[order], np.concatenate([[0.0], np.cumsum(changes)])

    def partitions(self, last: int | None = None, these: Mask | None = None) -> str:
        """Where these jobs (the ``last`` ones) ran, for people: `partition gpu`, `partitions debug,
        gpu`.
        """
        ran = self.requests.partition if these is None else self.requests.partition[these]
        seen = set(ran[-last if last else 0 :].tolist())
        names = [name for code, name in enumerate(self.requests.names) if code in seen]
        more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
        return f"partition{'s' if len(names) > 1 else ''} {', '.join(names[:MOST_NAMES])}{more}"

    def _rivals(self, names: frozenset[str]) -> frozenset[str] | None:
        """The partitions that share a node with one of these; None: all."""
        if self._sharing is None:
            return None
        return frozenset(rival for name in names for rival in self._sharing.get(name, {name}))


_NARROW = (
    "like jobs",
    "jobs of like size and any time limit",
    "jobs of the same partition and any size",
)
"""What the jobs of the first three kinds of likeness are called."""


def _times(samples: Sequence[WaitSample]) -> tuple[Floats, Floats]:
    """Waits and starts, (samples,) each."""
    return (
        np.array([sample.wait_s for sample in samples], dtype=np.float64),
        np.array([sample.start_s for sample in samples], dtype=np.float64),
    )


def _within_factor_2(values: NDArray[np.int64], value: int) -> Mask:
    return (values <= 2 * value) & (value <= 2 * values)
