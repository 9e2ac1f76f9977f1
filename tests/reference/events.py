"""What is known to happen, in its order."""

from __future__ import annotations

import heapq
from collections.abc import Collection
from enum import IntEnum


class EventKind(IntEnum):
    """What happens, in the order of things within one second; but see `PassClock.order`."""

    END = 0
    NODE = 1
    RESERVATION = 2
    CANCEL = 3
    SUBMIT = 4
    BEGIN = 5
    BACKFILL = 6
    MAIN = 7
    LIMIT = 8
    PURGE = 9


class Events:
    """All but passes and purges: (time, kind, sequence number, job or other number)."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, EventKind, int, int]] = []
        self._sequence = 0
        self._run_ends: dict[int, tuple[int, int]] = {}
        """Of running jobs: time and sequence number of the event that counts; others are out of
        date.
        """
        self._limit_ends: dict[int, int] = {}
        """Of running jobs: sequence number of the limit check that ends them."""

    def __bool__(self) -> bool:
        return bool(self._heap)

    def first(self) -> tuple[int, EventKind]:
        """Time and kind of the first."""
        return self._heap[0][:2]

    def pop(self) -> tuple[int, int]:
        """Takes the first; its sequence number and its job."""
        return heapq.heappop(self._heap)[2:]

    def push(self, time_s: int, kind: EventKind, number: int) -> int:
        """Returns the event's sequence number."""
        self._sequence += 1
        heapq.heappush(self._heap, (time_s, kind, self._sequence, number))
        return self._sequence

    def drop_until(self, time_s: int) -> None:
        """What would have happened until this time does not."""
        self._heap = [event for event in self._heap if event[0] > time_s]
        heapq.heapify(self._heap)

    def drop_kinds(self, kinds: Collection[EventKind]) -> None:
        """Nothing of these kinds happens."""
        self._heap = [event for event in self._heap if event[1] not in kinds]
        heapq.heapify(self._heap)

    # ---- ends of running jobs

    def end_run(self, job_id: int, end_s: int) -> None:
        """The job ends by itself at this time."""
        self._run_ends[job_id] = (end_s, self.push(end_s, EventKind.END, job_id))

    def end_limit(self, job_id: int, killed_s: int) -> None:
        """The limit check of this time ends the job."""
        self._limit_ends[job_id] = self.push(killed_s, EventKind.LIMIT, job_id)

    def run_end_s(self, job_id: int) -> int | None:
        """When the job ends by itself; None: not known."""
        end = self._run_ends.get(job_id)
        return None if end is None else end[0]

    def ends_run(self, job_id: int, time_s: int, sequence: int) -> bool:
        """Whether this event still is the job's own end."""
        return self._run_ends.get(job_id) == (time_s, sequence)

    def ends_limit(self, job_id: int, sequence: int) -> bool:
        """Whether this event still is the job's limit check."""
        return self._limit_ends.get(job_id) == sequence

    def forget_ends(self, job_id: int) -> None:
        """The job runs no more."""
        self._run_ends.pop(job_id, None)
        self._limit_ends.pop(job_id, None)

    def forget_run_ends(self) -> None:
        """No job ends by itself."""
        self._run_ends.clear()
