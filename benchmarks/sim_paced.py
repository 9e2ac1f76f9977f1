"""The reference with slurmctld's threads where they really were within each second.

Which of two things of one second comes first decides starts: a job ends, the background loop looks, backfill looks,
priorities are recalculated. After hours a simulation can't tell it, as slurmctld's loop drifts by some 200 us a second
and jumps. A replay's passes.csv.gz can. So where a paced simulation agrees and another does not, no rule is missing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from slurm_sim.config import ClusterConfig
from slurm_sim.jobs import JobSpec
from slurm_sim.reference import SECOND_US, Kind, Simulator

END_US = 51_000
"""Where in a second jobs end: fastclock's simjob.c ends 0.05 s into it, and slurmctld notes it 1 ms later."""
AFTER_THE_LOOP = len(Kind)
"""The order within a second of ends for which the loop came too early."""


class Moments(NamedTuple):
    """When threads really looked, in seconds since slurmctld's start, in order."""

    main: Sequence[float]
    backfill: Sequence[float]
    recalculated: Sequence[float]


def _us(moments: Sequence[float], time_s: int) -> int:
    """Where in its second the first of these from this time on is, or the last of all; microseconds."""
    return int(moments[min(bisect_left(moments, time_s), len(moments) - 1)] % 1 * SECOND_US)


class Paced(Simulator):
    def __init__(self, moments: Moments, config: ClusterConfig, jobs: Iterable[JobSpec] = ()) -> None:
        self._moments = moments
        fractions = sorted(moment % 1 for moment in moments.recalculated)
        if fractions:
            self.recalculated_us = int(fractions[len(fractions) // 2] * SECOND_US)
        super().__init__(config, jobs)

    def _tick_us(self, time_s: int) -> int:
        return _us(self._moments.main, time_s)

    def _backfill_pass(self) -> None:
        begun_us = _us(self._moments.backfill, self.now_s)
        self._last_backfill_us += begun_us - self._last_backfill_us % SECOND_US
        super()._backfill_pass()

    def _push(self, time_s: int, kind: Kind, job_id: int) -> int:
        late = kind is Kind.END and self._tick_us(time_s) < END_US
        return super()._push(time_s, AFTER_THE_LOOP if late else kind, job_id)  # type: ignore[arg-type]

    def _job_event(self, kind: Kind, sequence: int, job_id: int) -> None:
        late = kind == AFTER_THE_LOOP
        super()._job_event(Kind.END if late else kind, sequence, job_id)
        if late and self._main_due_s == self.now_s:
            self._main_due_s += 1
