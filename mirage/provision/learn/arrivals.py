"""Who will come: days of a job history, put one after the other (a block bootstrap: Kuensch, 1989).

Whole days keep what matters for a queue: hours of the day, bursts, users who submit the same job
many times, which sizes come with which limits and run times. Working days are followed by working
days, weekends by weekends.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.provision.learn.episode import Ints
from slurm_sim.seconds import DAY_S

_FIRST_MONDAY_S = 4 * DAY_S
"""Unix time began on a Thursday."""


@dataclass(frozen=True)
class Arrivals:
    """Jobs in the order in which they began to compete, (jobs,) each; seconds, -1: none."""

    at_s: Ints
    nodes: Ints
    limit_s: Ints
    runtime_s: Ints
    cancel_after_s: Ints
    """Of those that were cancelled in the queue."""
    user: Ints
    """Number of the user: they are nobody's names."""
    partition: Ints
    """Index into the partitions' names."""

    def __len__(self) -> int:
        return len(self.at_s)

    def drawn(
        self, now_s: int, horizon_s: int, rng: np.random.Generator
    ) -> tuple[NDArray[np.intp], Ints]:
        """The jobs of a possible future, as rows, and when each comes: after `now_s`, until so long
        after it.

        Raises InputError if the history is shorter than two days.
        """
        rows, times = [np.empty(0, dtype=np.intp)], [np.empty(0, dtype=np.int64)]
        for begin_s in range(now_s, now_s + horizon_s, DAY_S):
            day_s = int(rng.choice(self._days_like(begin_s)))
            length_s = min(DAY_S, now_s + horizon_s - begin_s)
            first, end = np.searchsorted(self.at_s, (day_s + 1, day_s + length_s + 1))
            rows.append(np.arange(first, end))
            times.append(self.at_s[first:end] - day_s + begin_s)
        return np.concatenate(rows), np.concatenate(times)

    def _days_like(self, begin_s: int) -> Ints:
        """Instants of the history at this time of the day, whole days before its end, all weekend
        or all not.
        """
        if not len(self) or self.at_s[-1] - self.at_s[0] < 2 * DAY_S:
            raise InputError(
                "the history of arrivals is shorter than two days; train on a longer trace."
            )
        first_s = int(self.at_s[0]) + (begin_s - int(self.at_s[0])) % DAY_S
        instants = np.arange(first_s, int(self.at_s[-1]) - DAY_S + 1, DAY_S)
        alike = instants[is_weekend(instants) == is_weekend(np.array([begin_s]))[0]]
        return alike if len(alike) else instants


def is_weekend(times_s: Ints) -> NDArray[np.bool_]:
    """Saturday or Sunday, UTC."""
    return np.asarray((times_s - _FIRST_MONDAY_S) // DAY_S % 7 >= 5)
