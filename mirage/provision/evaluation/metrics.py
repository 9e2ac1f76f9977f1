"""From trials to figures: per size, load class, penalties and method. Hours, shares from 0 to 1,
node-hours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mirage.domain import Penalties
from mirage.figures.estimate import Estimate
from mirage.figures.resample import Blocks, Mask, correlation_time, spells
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE, EpisodeTrial
from mirage.provision.learn.episode import Floats, Ints, Load
from slurm_sim.seconds import HOUR_S

ALL = "all"
LOADS = (*(load.value for load in Load), ALL)
ON_TIME_S = 600
"""Less than a decision step away from the predecessor's end."""
EDGES_H = (-12.0, -2.0, -ON_TIME_S / HOUR_S, ON_TIME_S / HOUR_S, 2.0, 12.0)
"""Between the classes of outcomes: hours of overlap (negative) or of interruption."""
LEAST_TO_GAIN_H = 1.0
"""Of penalty at e_I + e_O = 1, between reactive and oracle: below it no regret is shown, as a share
of minutes says nothing.
"""


@dataclass(frozen=True)
class Spread:
    """Quantiles over the episodes, in hours."""

    p25: float
    p50: float
    p75: float
    p90: float
    p95: float
    most: float


@dataclass(frozen=True)
class MethodSummary:
    """One method, in one load class, for one pair of penalties and one size."""

    nodes: int
    load: str
    penalties: str
    method: str
    episodes: int
    interruption_h: Estimate
    overlap_h: Estimate
    interruption_spread: Spread
    overlap_spread: Spread
    zero_interruption: Estimate
    """Share of handovers without any."""
    under_10_min: Estimate
    """Share with less than 10 minutes of interruption."""
    penalty_h: Estimate
    """e_I * interruption + e_O * overlap (paper, eq. 8, negated)."""
    regret: Estimate | None
    """Share of the distance from reactive to oracle that is left: 0 is the oracle, 1 is reactive,
    above 1 is worse.
    """
    reduction: Estimate | None
    """Share of reactive's mean interruption that is gone."""
    node_hours_wasted: Estimate
    """Mean node-hours held twice at a handover."""
    node_hours_wasted_total: float
    outcomes: tuple[int, ...]
    """Episodes by outcome, from an interruption over 12 h to an overlap over 12 h; between: 2 h, 10
    min (EDGES_H).
    """


@dataclass(frozen=True)
class Difference:
    """Method minus another one, in the same episodes; below zero the method has less."""

    nodes: int
    load: str
    penalties: str
    method: str
    than: str
    interruption_h: Estimate
    overlap_h: Estimate
    penalty_h: Estimate

    def reversed(self) -> Difference:
        """The other one minus this."""
        return replace(
            self,
            method=self.than,
            than=self.method,
            interruption_h=-self.interruption_h,
            overlap_h=-self.overlap_h,
            penalty_h=-self.penalty_h,
        )


@dataclass(frozen=True)
class Situation:
    """How much evidence the episodes of a load class are."""

    nodes: int
    load: str
    episodes: int
    blocks: int
    """Of the bootstrap, that hold at least one."""
    spells: int | None
    """Separate stretches of time that the reactive successors spend in the queue; None where they
    hardly wait.
    """
    effective: float | None
    """Of all episodes: as many independent ones, by the autocorrelation of the reactive wait."""


@dataclass(frozen=True)
class Point:
    """One method's mean outcome for one ratio of penalties."""

    nodes: int
    load: str
    method: str
    penalties: str
    interruption_h: float
    overlap_h: float


class Group:
    """All trials of one size, in the order of their begins, as columns."""

    def __init__(self, trials: Sequence[EpisodeTrial], resamples: int, seed: int) -> None:
        self.trials = sorted(trials, key=lambda trial: trial.episode.begin_s)
        self.nodes = self.trials[0].nodes
        episodes = [trial.episode for trial in self.trials]
        self.begin_s: Ints = np.array([episode.begin_s for episode in episodes], dtype=np.int64)
        self.wait_h: Floats = np.array([episode.reactive_wait_s for episode in episodes]) / HOUR_S
        self._load = np.array([episode.load.value for episode in episodes])
        self._nodes = np.array(
            [episode.pair.predecessor.nodes for episode in episodes], dtype=np.float64
        )
        self.blocks = Blocks.of(self.begin_s, self.wait_h, resamples, seed)
        self._outcomes: dict[tuple[str, Penalties], tuple[Floats, Floats]] = {}

    def mask(self, load: str) -> Mask:
        return np.full(len(self.trials), True) if load == ALL else np.asarray(self._load == load)

    def outcomes(self, method: str, penalties: Penalties) -> tuple[Floats, Floats]:
        """Interruption and overlap in hours, (n,) each."""
        key = method, penalties
        if key not in self._outcomes:
            gap_s = np.array(
                [trial.gap_s(trial.choices[key]) for trial in self.trials], dtype=np.float64
            )
            self._outcomes[key] = np.maximum(gap_s, 0) / HOUR_S, np.maximum(-gap_s, 0) / HOUR_S
        return self._outcomes[key]

    def costs(self, method: str, penalties: Penalties) -> Floats:
        """Penalty in hours, (n,)."""
        interruption, overlap = self.outcomes(method, penalties)
        return penalties.interruption * interruption + penalties.overlap * overlap

    @cached_property
    def present(self) -> list[str]:
        """The load classes that occur, and all."""
        return [load for load in LOADS if self.mask(load).any()]

    def mean(self, values: Floats, mask: Mask) -> Estimate:
        return self.ratio(values, np.ones(len(values)), mask)

    def ratio(self, above: Floats, below: Floats, mask: Mask, *, left: bool = True) -> Estimate:
        """sum(above) / sum(below) over a mask, or what it leaves of 1."""
        value = float(above[mask].sum() / below[mask].sum())
        low, high = self.blocks.interval(above, below, mask) or (None, None)
        if left or low is None or high is None:
            return Estimate(value if left else 1 - value, low, high)
        return Estimate(1 - value, 1 - high, 1 - low)

    def summary(self, method: str, penalties: Penalties, load: str) -> MethodSummary:
        mask = self.mask(load)
        interruption, overlap = self.outcomes(method, penalties)
        wasted = overlap * self._nodes
        return MethodSummary(
            nodes=self.nodes,
            load=load,
            penalties=ratio_text(penalties),
            method=method,
            episodes=int(mask.sum()),
            interruption_h=self.mean(interruption, mask),
            overlap_h=self.mean(overlap, mask),
            interruption_spread=_spread(interruption[mask]),
            overlap_spread=_spread(overlap[mask]),
            zero_interruption=self.mean((interruption == 0).astype(np.float64), mask),
            under_10_min=self.mean((interruption < ON_TIME_S / HOUR_S).astype(np.float64), mask),
            penalty_h=self.mean(self.costs(method, penalties), mask),
            regret=self._regret(method, penalties, mask),
            reduction=self._reduction(interruption, mask),
            node_hours_wasted=self.mean(wasted, mask),
            node_hours_wasted_total=float(wasted[mask].sum()),
            outcomes=_by_outcome((interruption - overlap)[mask]),
        )

    def _regret(self, method: str, penalties: Penalties, mask: Mask) -> Estimate | None:
        best = self.costs(ORACLE, penalties)
        distance = self.costs(REACTIVE, penalties) - best
        if distance[mask].mean() < LEAST_TO_GAIN_H * (penalties.interruption + penalties.overlap):
            return None
        return self.ratio(self.costs(method, penalties) - best, distance, mask)

    def _reduction(self, interruption: Floats, mask: Mask) -> Estimate | None:
        if self.wait_h[mask].sum() == 0:
            return None
        return self.ratio(interruption, self.wait_h, mask, left=False)

    def difference(self, method: str, than: str, penalties: Penalties, load: str) -> Difference:
        mask = self.mask(load)
        mine, theirs = self.outcomes(method, penalties), self.outcomes(than, penalties)
        return Difference(
            nodes=self.nodes,
            load=load,
            penalties=ratio_text(penalties),
            method=method,
            than=than,
            interruption_h=self.mean(mine[0] - theirs[0], mask),
            overlap_h=self.mean(mine[1] - theirs[1], mask),
            penalty_h=self.mean(self.costs(method, penalties) - self.costs(than, penalties), mask),
        )

    def situation(self, load: str) -> Situation:
        mask = self.mask(load)
        picked = [trial.episode for trial, inside in zip(self.trials, mask, strict=True) if inside]
        begin_s = np.array([episode.predecessor_end_s for episode in picked])
        end_s = np.array([episode.successor_start_s[-1] for episode in picked])
        queued = load in (Load.HEAVY.value, Load.MEDIUM.value)
        effective = len(self.trials) / correlation_time(self.wait_h) if load == ALL else None
        return Situation(
            nodes=self.nodes,
            load=load,
            episodes=len(picked),
            blocks=self.blocks.holding(mask),
            spells=spells(begin_s, end_s) if queued else None,
            effective=effective,
        )

    def points(self, method: str, ratios: Sequence[Penalties]) -> Iterator[Point]:
        """The trade-off curve of a method, in each load class."""
        for penalties in ratios:
            interruption, overlap = self.outcomes(method, penalties)
            for load in self.present:
                mask = self.mask(load)
                means = float(interruption[mask].mean()), float(overlap[mask].mean())
                yield Point(self.nodes, load, method, ratio_text(penalties), *means)


def ratio_text(penalties: Penalties) -> str:
    """As on the command line: 4:1 weighs interruption four times as much as overlap."""
    return f"{penalties.interruption:g}:{penalties.overlap:g}"


def _spread(hours: Floats) -> Spread:
    return Spread(
        *(float(value) for value in np.quantile(hours, [0.25, 0.5, 0.75, 0.9, 0.95, 1.0]))
    )


def _by_outcome(signed_h: Floats) -> tuple[int, ...]:
    """Counts from long interruption to long overlap. A class holds its edge that is nearer to zero:
    10 min is late.
    """
    late = np.searchsorted(EDGES_H, signed_h, side="right")
    early = np.searchsorted(EDGES_H, signed_h, side="left")
    place = np.where(signed_h > 0, late, early)
    counts = np.bincount(place, minlength=len(EDGES_H) + 1)[::-1]
    return tuple(int(count) for count in counts)
