"""The reference with slurmctld's threads where they really were within each second.

Which of two things of one second comes first decides starts: a job ends, the background loop looks,
backfill looks, priorities are recalculated. After hours a simulation can't tell it, as slurmctld's
loop comes some 50 ms later after each save of its state. A replay's passes.csv.gz can. So where a
paced simulation agrees and another does not, no rule is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slurm_sim.config import ClusterConfig, Params
from slurm_sim.jobs import JobSpec
from tests.reference.clock import SECOND_US, TICK_PHASE_US, PassClock
from tests.reference.events import EventKind, Events
from tests.reference.simulator import ReferenceSimulator

COMES_US = {
    EventKind.END: 51_000,
    EventKind.SUBMIT: 20_000,
    EventKind.CANCEL: 20_000,
    EventKind.NODE: 20_000,
}
"""Where in a second: fastclock's simjob.c ends 0.05 s into it, and slurmctld knows of it 1 ms
later; replay.py stops the clock at a second's begin, and slurmctld has read what it was sent within
20 ms.
"""
AFTER_THE_LOOP = len(EventKind)
"""Added to the kind of what comes in a second in which the loop is earlier, and misses it."""


class Moments(NamedTuple):
    """When threads really looked, in seconds since slurmctld's start, in order."""

    main: Sequence[float]
    backfill: Sequence[float]
    recalculated: Sequence[float]


def _us(moments: Sequence[float], time_s: int) -> int:
    """Where in its second the first of these from this time on is, or the last of all;
    microseconds.
    """
    return int(moments[min(bisect_left(moments, time_s), len(moments) - 1)] % 1 * SECOND_US)


class PacedEvents(Events):
    """What comes after the loop's look of its second is marked."""

    def __init__(self, moments: Moments) -> None:
        super().__init__()
        self._moments = moments

    def push(self, time_s: int, kind: EventKind, number: int) -> int:
        main = self._moments.main
        tick_us = _us(main, time_s) if main else TICK_PHASE_US
        missed = tick_us < COMES_US.get(kind, 0)
        return super().push(time_s, kind + AFTER_THE_LOOP if missed else kind, number)  # type: ignore[arg-type]


class PacedClock(PassClock):
    """Backfill comes where it really came in its second."""

    def order(self, due: tuple[int, EventKind]) -> tuple[int, float]:
        time_s, place = super().order(due)
        within_us = self.timers.last_backfill_us % SECOND_US
        after_all = place == len(EventKind) and within_us > max(COMES_US.values())
        return time_s, place + AFTER_THE_LOOP if after_all else place


class Paced(ReferenceSimulator):
    """A simulation in which each thread looks when it really looked."""

    def __init__(
        self, moments: Moments, config: ClusterConfig, jobs: Iterable[JobSpec] = ()
    ) -> None:
        self._moments = moments
        super().__init__(config, jobs)

    def _make_events(self) -> Events:
        return PacedEvents(self._moments)

    def _make_clock(self, params: Params, start_s: int) -> PassClock:
        clock = PacedClock(params, start_s)
        fractions = sorted(moment % 1 for moment in self._moments.recalculated)
        if fractions:
            clock.recalculated_us = int(fractions[len(fractions) // 2] * SECOND_US)
        return clock

    def _backfill_pass(self) -> None:
        timers = self._clock.timers
        later_us = _us(self._moments.backfill, self.now_s) - timers.last_backfill_us % SECOND_US
        if later_us < -SECOND_US // 2:  # it drifted beyond the second's end
            timers.last_backfill_us += SECOND_US + later_us
            timers.backfill_due_s = self.now_s + 1
            return
        timers.last_backfill_us += later_us
        super()._backfill_pass()

    def _job_event(self, kind: EventKind, sequence: int, number: int) -> None:
        missed = kind >= AFTER_THE_LOOP
        super()._job_event(EventKind(kind - AFTER_THE_LOOP) if missed else kind, sequence, number)
        timers = self._clock.timers
        if missed and timers.main_due_s == self.now_s:
            timers.main_due_s += 1
        if missed and self._clock.next_full_s(self.now_s) == self.now_s:
            timers.last_full_s = self.now_s  # of this second, which found an empty queue
