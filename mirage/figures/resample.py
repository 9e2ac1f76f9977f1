"""Intervals for episodes that overlap: a few independent situations, not hundreds.

Two pairs that begin four hours apart live through the same queue. So intervals come from a circular
block bootstrap (Politis & Romano 1992): whole stretches of consecutive begins are drawn, with all
that happened in them.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from slurm_sim.seconds import DAY_S

SHORTEST_BLOCK_S, LONGEST_BLOCK_S = 3 * DAY_S, 7 * DAY_S
"""A pair of 48 h and its wait take about three days; a month has only four weeks."""
FEWEST_BLOCKS = 3
"""Of fewer blocks no interval is made: it would say more than the data."""
LEVEL = 0.95

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Mask = NDArray[np.bool_]
Interval = tuple[float, float]


def correlation_time(values: Floats) -> float:
    """So many consecutive values (n,) count as one: 1 + 2 * the sum of their autocorrelations, at
    least 1.

    The sum ends where two neighbouring autocorrelations are not positive together (Geyer 1992,
    initial positive sequence). A constant series counts as one value.
    """
    n = len(values)
    if n < 2:
        return float(max(n, 1))
    centred = values - values.mean()
    variance = float(centred @ centred)
    if variance == 0:
        return float(n)
    lags = np.correlate(centred, centred, mode="full")[n - 1 :] / variance
    pairs = lags[: n // 2 * 2].reshape(-1, 2).sum(axis=1)
    ends = np.flatnonzero(pairs <= 0)
    positive = pairs[: ends[0]] if len(ends) else pairs
    return float(np.clip(2 * positive.sum() - 1, 1.0, n))


def spells(begin_s: Ints, end_s: Ints) -> int:
    """How many separate stretches of time these spans, (n,) each, cover: those less than a day
    apart are one.
    """
    if not len(begin_s):
        return 0
    order = np.argsort(begin_s, kind="stable")
    reached_s = np.maximum.accumulate(end_s[order])
    return 1 + int(np.sum(begin_s[order][1:] >= reached_s[:-1] + DAY_S))


@dataclass(frozen=True)
class Blocks:
    """The episodes of one size in the order of their begins, and their resamples."""

    begin_s: Ints
    """(n,)"""
    length: int
    """Episodes in a block."""
    resamples: int
    seed: int

    @classmethod
    def of(cls, begin_s: Ints, wait_s: Floats, resamples: int, seed: int) -> Blocks:
        """Blocks of three days, or of twice the correlation time of the reactive wait where that is
        longer.
        """
        every_s = float(np.median(np.diff(begin_s))) if len(begin_s) > 1 else DAY_S
        wanted_s = 2 * correlation_time(wait_s) * every_s
        block_s = min(max(wanted_s, SHORTEST_BLOCK_S), LONGEST_BLOCK_S)
        return cls(begin_s, max(1, round(block_s / max(every_s, 1))), resamples, seed)

    @property
    def length_s(self) -> int:
        """From a block's first begin to the next block's."""
        every_s = float(np.median(np.diff(self.begin_s))) if len(self.begin_s) > 1 else DAY_S
        return round(self.length * every_s)

    def holding(self, mask: Mask) -> int:
        """How many of the consecutive, disjoint blocks hold an episode of this mask, (n,)."""
        return len(np.unique(np.flatnonzero(mask) // self.length))

    @cached_property
    def counts(self) -> Floats:
        """(resamples, n): how often each episode is in each resample."""
        n = len(self.begin_s)
        random = np.random.default_rng(self.seed)
        firsts = random.integers(n, size=(self.resamples, -(-n // self.length)))
        drawn = (firsts[:, :, None] + np.arange(self.length)) % n
        drawn = drawn.reshape(self.resamples, -1)[:, :n] + n * np.arange(self.resamples)[:, None]
        counts = np.bincount(drawn.ravel(), minlength=n * self.resamples)
        return counts.reshape(self.resamples, n).astype(np.float64)

    def interval(self, above: Floats, below: Floats, mask: Mask) -> Interval | None:
        """Of sum(above) / sum(below) over the episodes of the mask; all (n,).

        None: they are in too few blocks, or the ratio is undefined in one of twenty resamples.
        """
        if self.holding(mask) < FEWEST_BLOCKS:
            return None
        upper, lower = self.counts @ (above * mask), self.counts @ (below * mask)
        there = lower > 0
        if there.mean() < LEVEL:
            return None
        edges = np.quantile(upper[there] / lower[there], [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
        return float(edges[0]), float(edges[1])


def ratio_interval(above: Floats, below: Floats, resamples: int = 2000, seed: int = 0) -> Interval:
    """Of sum(above) / sum(below), both (n,): paired values of n independent situations, which are
    drawn again with replacement.
    """
    drawn = np.random.default_rng(seed).integers(len(above), size=(resamples, len(above)))
    ratios = above[drawn].sum(axis=1) / below[drawn].sum(axis=1)
    low, high = np.percentile(ratios, [50 * (1 - LEVEL), 50 * (1 + LEVEL)])
    return float(low), float(high)


def mean_interval(values: Floats, resamples: int = 2000, seed: int = 0) -> Interval:
    """Of the mean of (n,) values of independent situations, as paired differences are."""
    return ratio_interval(values, np.ones_like(values), resamples, seed)
