"""The law of the successor's wait, and what it makes a release and a delay cost (the newsvendor
problem).

Whoever knows the law of the wait W at a state knows the expected reward (paper, equation 8) of
submitting there with any time left and for any penalties: with r seconds left it is -(e_I * E[(W -
r)+] + e_O * E[(r - W)+]). So methods that learn the law need neither the time left nor the
penalties as inputs, and one fit serves all tastes; a fit of the reward itself would have to learn
the kink at W = r from examples, at every r. Submitting is compared with the best of the later
decision points under the same law. What waiting will reveal is left out of that, but the comparison
is made again, with a new law, at each decision point.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np

from mirage.provision.learn.episode import Floats
from mirage.provision.learn.model import Assessment, States
from slurm_sim.seconds import HOUR_S

_HOURS = (
    1 / 60,
    1 / 6,
    0.5,
    1,
    1.5,
    *range(2, 7),
    *range(8, 24, 2),
    24,
    27,
    30,
    34,
    38,
    43,
    48,
    60,
    72,
    96,
    144,
)
DURATIONS_S = np.array(_HOURS) * HOUR_S
"""The chance of waiting longer is learnt at each; it is 1 at 0, and falls to 0 at `LONGEST_S`."""
LONGEST_S = 240 * HOUR_S


@dataclass(frozen=True)
class Law:
    """Laws of n waits. The chance of a longer wait is linear between the J given points of each."""

    waits_s: Floats
    """(n, J), not falling, the first 0."""
    exceeded: Floats
    """(n, J): the chance of a longer wait, not rising, from 1 to 0."""

    @classmethod
    def of_chances(cls, chances: Floats) -> Law:
        """Of the chances, (n, len(DURATIONS_S)), that the wait exceeds each of `DURATIONS_S`."""
        falling = np.minimum.accumulate(np.clip(chances, 0, 1), axis=1)
        waits_s = np.concatenate([[0], DURATIONS_S, [LONGEST_S]])
        ends = np.ones((len(chances), 1)), np.zeros((len(chances), 1))
        return cls(
            np.tile(waits_s, (len(chances), 1)), np.concatenate([ends[0], falling, ends[1]], axis=1)
        )

    def interruption_s(self, left_s: Floats) -> Floats:
        """(n,): E[(W - left)+], the mean interruption of a release with so much time left, (n,)."""
        last = self.waits_s.shape[1] - 1
        upper = np.clip((self.waits_s <= left_s[:, None]).sum(axis=1), 1, last)[:, None]
        here_s = np.minimum(left_s, self.waits_s[:, -1])
        ends_s, chance = np.take_along_axis(self.waits_s, upper, 1)[:, 0], self.exceeded_at(left_s)
        part = (ends_s - here_s) * (chance + np.take_along_axis(self.exceeded, upper, 1)[:, 0]) / 2
        return part + np.take_along_axis(self._beyond_s(), upper, 1)[:, 0]

    def overlap_s(self, left_s: Floats) -> Floats:
        """(n,): E[(left - W)+], the mean overlap."""
        return left_s - self._beyond_s()[:, 0] + self.interruption_s(left_s)

    def cost_s(self, left_s: Floats, penalties: Floats) -> Floats:
        """(n,): the expected penalty of a release with so much time left, (n,), for e_I and e_O,
        (n, 2).
        """
        return penalties[:, 0] * self.interruption_s(left_s) + penalties[:, 1] * self.overlap_s(
            left_s
        )

    def exceeded_at(self, waits_s: Floats) -> Floats:
        """(n,): the chance of waiting longer."""
        upper = np.clip(
            (self.waits_s <= waits_s[:, None]).sum(axis=1), 1, self.waits_s.shape[1] - 1
        )[:, None]
        low_s, high_s = (
            np.take_along_axis(self.waits_s, index, 1)[:, 0] for index in (upper - 1, upper)
        )
        low, high = (
            np.take_along_axis(self.exceeded, index, 1)[:, 0] for index in (upper - 1, upper)
        )
        part = np.clip((waits_s - low_s) / np.maximum(high_s - low_s, 1e-9), 0, 1)
        return np.asarray(low + (high - low) * part)

    def quantile_s(self, levels: Floats) -> Floats:
        """(n,): each law's quantile at its own level, (n,)."""
        chance = 1 - levels
        upper = np.clip(
            (self.exceeded > chance[:, None]).sum(axis=1), 1, self.waits_s.shape[1] - 1
        )[:, None]
        low, high = (
            np.take_along_axis(self.exceeded, index, 1)[:, 0] for index in (upper - 1, upper)
        )
        low_s, high_s = (
            np.take_along_axis(self.waits_s, index, 1)[:, 0] for index in (upper - 1, upper)
        )
        part = np.clip((low - chance) / np.maximum(low - high, 1e-12), 0, 1)
        return np.asarray(low_s + (high_s - low_s) * part)

    def score_s(self, waits_s: Floats) -> Floats:
        """(n,): the continuous ranked probability score of waits that came, (n,): the integral of
        the squared difference of the chance of a longer wait from what was, taken at
        `DURATIONS_S`. Lower is better; of a sure forecast it is the absolute error.
        """
        levels = [self.exceeded_at(np.full(len(waits_s), at_s)) for at_s in DURATIONS_S]
        squared = (np.stack(levels, axis=1) - (waits_s[:, None] > DURATIONS_S)) ** 2
        result: Floats = squared @ np.diff(DURATIONS_S, prepend=0)
        return result

    def _beyond_s(self) -> Floats:
        """(n, J): the integral of the chance from each point on, E[(W - point)+]."""
        parts = np.diff(self.waits_s, axis=1) * (self.exceeded[:, 1:] + self.exceeded[:, :-1]) / 2
        sums = np.cumsum(parts[:, ::-1], axis=1)[:, ::-1]
        return np.concatenate([sums, np.zeros((len(sums), 1))], axis=1)


@runtime_checkable
class Forecaster(Protocol):
    """A `Model` that knows the law of the wait."""

    def law(self, states: States) -> Law:
        """Of the waits at these states."""


def assess(law: Law, states: States) -> Assessment:
    """Release where no later decision point, nor the predecessor's end, is expected to be as cheap
    as now.
    """
    left_s, penalties = states.remaining_s.astype(np.float64), states.penalties
    now_s = law.cost_s(left_s, penalties)
    later_s = np.minimum(*(law.cost_s(at_s, penalties) for at_s in _best_later(law, states)))
    quantiles_s = [law.quantile_s(np.full(len(states), level)) for level in (0.1, 0.5, 0.9)]
    return Assessment((now_s < later_s) & (left_s > 0), now_s, later_s, *quantiles_s)


def _best_later(law: Law, states: States) -> tuple[Floats, Floats]:
    """The time left at the two later decision points around the best lead: the law's quantile at
    e_I / (e_I + e_O).

    The cost is convex in the time left, so no other later point can be cheaper.
    """
    left_s = states.remaining_s.astype(np.float64)
    lead_s = law.quantile_s(states.penalties[:, 0] / states.penalties.sum(axis=1))
    steps = np.maximum(np.floor((left_s - lead_s) / states.step_s), 1)
    before_s = left_s - steps * states.step_s
    return np.maximum(before_s, 0), np.maximum(before_s - states.step_s, 0)
