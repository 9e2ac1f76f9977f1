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

from slurm_sim.config import ClusterConfig
from slurm_sim.jobs import JobSpec
from slurm_sim.reference.simulator import SECOND_US, Kind, Simulator

COMES_US = {Kind.END: 51_000, Kind.SUBMIT: 20_000, Kind.CANCEL: 20_000, Kind.NODE: 20_000}
"""Where in a second: fastclock's simjob.c ends 0.05 s into it, and slurmctld knows of it 1 ms
later; replay.py stops the clock at a second's begin, and slurmctld has read what it was sent within
20 ms.
"""
AFTER_THE_LOOP = len(Kind)
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


class Paced(Simulator):
    """A simulation in which each thread looks when it really looked."""

    def __init__(
        self, moments: Moments, config: ClusterConfig, jobs: Iterable[JobSpec] = ()
    ) -> None:
        self._moments = moments
        fractions = sorted(moment % 1 for moment in moments.recalculated)
        if fractions:
            self.recalculated_us = int(fractions[len(fractions) // 2] * SECOND_US)
        super().__init__(config, jobs)

    def _order(self, due: tuple[int, Kind]) -> tuple[int, float]:
        time_s, place = super()._order(due)
        after_all = place == len(Kind) and self._last_backfill_us % SECOND_US > max(
            COMES_US.values()
        )
        return time_s, place + AFTER_THE_LOOP if after_all else place

    def _tick_us(self, time_s: int) -> int:
        return _us(self._moments.main, time_s) if self._moments.main else super()._tick_us(time_s)

    def _backfill_pass(self) -> None:
        later_us = _us(self._moments.backfill, self.now_s) - self._last_backfill_us % SECOND_US
        if later_us < -SECOND_US // 2:  # it drifted beyond the second's end
            self._last_backfill_us += SECOND_US + later_us
            self._backfill_due_s = self.now_s + 1
            return
        self._last_backfill_us += later_us
        super()._backfill_pass()

    def _push(self, time_s: int, kind: Kind, job_id: int) -> int:
        missed = self._tick_us(time_s) < COMES_US.get(kind, 0)
        return super()._push(time_s, kind + AFTER_THE_LOOP if missed else kind, job_id)  # type: ignore[arg-type]

    def _job_event(self, kind: Kind, sequence: int, job_id: int) -> None:
        missed = kind >= AFTER_THE_LOOP
        super()._job_event(Kind(kind - AFTER_THE_LOOP) if missed else kind, sequence, job_id)
        if missed and self._main_due_s == self.now_s:
            self._main_due_s += 1
        if missed and self._next_full_s() == self.now_s:
            self._last_full_s = self.now_s  # of this second, which found an empty queue
