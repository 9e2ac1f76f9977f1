"""Which episodes to sample: when they begin, and what pairs are in them. A seed and a number fix an
episode.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

import numpy as np

from mirage.errors import InputError
from mirage.provision.learn.augment import Augmentation
from mirage.provision.learn.background import WarmUp
from mirage.provision.learn.episode import AUGMENTED_LEAD_S, STEP_S, PairJob, PairSpec
from mirage.provision.learn.joblog import JobLog
from mirage.provision.learn.times import iso
from slurm_sim.config import ClusterConfig
from slurm_sim.seconds import DAY_S, HOUR_S

WIDEST = 4
"""Pairs have at most one of so many parts of the partition: wider chains wait for weeks."""
SHORTEST_LIMIT_S, LONGEST_LIMIT_S = 2 * HOUR_S, 5 * DAY_S
"""Shorter jobs are no links of a chain; longer ones have few hand-overs, and an episode of them
takes minutes.
"""
USUAL = 0.01
"""Share of the jobs that have a limit which is usual."""

Shares = tuple[tuple[int, float], ...]
"""(value, share); the shares add up to 1."""


@dataclass(frozen=True)
class EpisodePlan:
    """One episode to be."""

    begin_s: int
    """The predecessor's submission, Unix seconds."""
    pair: PairSpec
    warm_up: WarmUp = WarmUp.TRACE
    partition: str | None = None
    """The pair's; None: the cluster's first."""
    augmentation: Augmentation | None = None
    """Who else comes; None: as logged."""
    seed: tuple[int, ...] = (0,)
    """Of the augmentation."""

    @property
    def lead_s(self) -> int:
        """So long before `begin_s` the simulation begins."""
        return (
            self.warm_up.lead_s
            if self.augmentation is None
            else max(AUGMENTED_LEAD_S, self.warm_up.lead_s)
        )


def fixed_pair(nodes: int, time_limit_s: int = 48 * HOUR_S) -> PairSpec:
    """Two equal jobs that run until their limit (paper, section 6: 48 h, 1 or 8 nodes)."""
    link = PairJob(nodes, time_limit_s, time_limit_s)
    return PairSpec(link, link)


@dataclass(frozen=True)
class Mix:
    """How pairs of all kinds are drawn, so that one model serves a site."""

    nodes: Shares
    limits_s: Shares
    early: float = 0.2
    """Share of predecessors that end before their limit: anywhere from a quarter of it on."""
    unequal: float = 0.2
    """Share of pairs whose successor is drawn independently, not like its predecessor."""

    @classmethod
    def of(cls, log: JobLog, cluster: ClusterConfig, partition: str | None = None) -> Mix:
        """From the partition's own jobs: half its sizes, half 1, 2, 4 and 8 nodes; half its usual
        limits, half its longest. Give it the log of the training range. Raises InputError if it has
        no limits.
        """
        there = next(
            (it for it in cluster.partitions if it.name == partition), cluster.partitions[0]
        )
        if partition not in (None, there.name):
            names = ", ".join(it.name for it in cluster.partitions)
            raise InputError(
                f"cluster {cluster.name!r} has no partition {partition!r}; it has {names}."
            )
        mine = log.pick(log.columns["partition"] == there.name)
        widest = max(1, min(len(there.nodes) // WIDEST, there.max_nodes or len(there.nodes)))
        sizes = [
            size for size in mine.column("nodes").tolist() if there.min_nodes <= size <= widest
        ]
        powers = [size for size in (1, 2, 4, 8) if there.min_nodes <= size <= widest] or [
            there.min_nodes
        ]
        return cls(_shares(sizes, powers), _limit_shares(mine, there.max_time_s))

    def pair(self, draws: Sequence[float]) -> PairSpec:
        """`draws`: seven uniform numbers."""
        first = PairJob(_pick(self.nodes, draws[0]), limit := _pick(self.limits_s, draws[1]), limit)
        second = first
        if draws[2] < self.unequal:
            second = PairJob(
                _pick(self.nodes, draws[3]), limit := _pick(self.limits_s, draws[4]), limit
            )
        if draws[5] < self.early:
            runtime_s = int(first.time_limit_s * (0.25 + 0.75 * draws[6]))
            first = first._replace(runtime_s=max(STEP_S, runtime_s))
        return PairSpec(first, second)


def _limit_shares(log: JobLog, longest_s: int | None) -> Shares:
    most_s = min(longest_s or LONGEST_LIMIT_S, LONGEST_LIMIT_S)
    count = Counter(
        it for it in log.column("timelimit_s").tolist() if SHORTEST_LIMIT_S <= it <= most_s
    )
    usual = [limit_s for limit_s, jobs in count.items() if jobs >= USUAL * len(log)]
    if longest_s is None or longest_s > most_s:
        longest_s = max(usual or count, default=0)
    if longest_s < SHORTEST_LIMIT_S:
        raise InputError(
            f"{log.source}: no job of this partition has a limit of {SHORTEST_LIMIT_S // HOUR_S} h"
            " or more, and the partition has no MaxTime: there are no chains to learn. Give time"
            " limits, or another partition."
        )
    return _shares(usual, [longest_s])


def _shares(*groups: Sequence[int]) -> Shares:
    """Each group that is not empty counts alike, and in it each of its members."""
    there = [group for group in groups if group]
    shares: dict[int, float] = {}
    for group in there:
        for value, times in sorted(Counter(group).items()):
            shares[value] = shares.get(value, 0.0) + times / len(group) / len(there)
    return tuple(sorted(shares.items()))


def _pick(shares: Shares, uniform: float) -> int:
    edges = list(accumulate(share for _, share in shares))
    return shares[min(bisect_right(edges, uniform * edges[-1]), len(shares) - 1)][0]


@dataclass(frozen=True)
class Drawing:
    """A number of episodes. The same drawing gives the same plans everywhere, each by its number
    alone.
    """

    count: int
    seed: int
    begin_s: int
    """No episode begins before,"""
    end_s: int
    """and no predecessor can run beyond this."""
    pairs: Mix | tuple[PairSpec, ...]
    """Several fixed pairs take turns."""
    every_s: int | None = None
    """Episodes begin on this grid, from `begin_s` on (paper: 4 hours); None: at any second."""
    warm_up: WarmUp = WarmUp.TRACE
    partition: str | None = None
    augmentations: tuple[Augmentation, ...] = ()
    augmented: float = 0.5
    """Share of episodes that one of them, drawn with equal chances, gets at."""

    def __post_init__(self) -> None:
        if self.count < 1 or self.seed < 0:
            raise InputError(
                f"{self.count} episodes, seed {self.seed}: give at least 1 episode, and a seed from"
                " 0 on."
            )
        longest_s = max(limit_s for limit_s in self._limits_s())
        last_s = self.begin_s + (
            0 if self.every_s is None else self._turn(self.count - 1) * self.every_s
        )
        if last_s + longest_s >= self.end_s:
            raise InputError(
                f"the range of times from {iso(self.begin_s)} to {iso(self.end_s)} has no room for"
                f" a job of {longest_s / HOUR_S:g} h that begins"
                f" {(last_s - self.begin_s) / HOUR_S:g} h into it; give a longer range, or fewer or"
                " shorter pairs."
            )

    def _limits_s(self) -> list[int]:
        if isinstance(self.pairs, Mix):
            return [limit_s for limit_s, _ in self.pairs.limits_s]
        return [pair.predecessor.time_limit_s for pair in self.pairs]

    def extremes(self) -> list[PairSpec]:
        """Pairs such that a cluster which can run these can run all that are drawn."""
        if not isinstance(self.pairs, Mix):
            return list(self.pairs)
        nodes, limits_s = (
            [value for value, _ in shares] for shares in (self.pairs.nodes, self.pairs.limits_s)
        )
        return [fixed_pair(size, max(limits_s)) for size in (min(nodes), max(nodes))]

    def plan(self, number: int) -> EpisodePlan:
        """The episode of this number, from 0 on."""
        draws = np.random.default_rng((self.seed, number)).random(10).tolist()
        pair = (
            self.pairs.pair(draws[:7])
            if isinstance(self.pairs, Mix)
            else self.pairs[number % len(self.pairs)]
        )
        chosen = None
        if self.augmentations and draws[8] < self.augmented:
            chosen = self.augmentations[
                min(int(draws[9] * len(self.augmentations)), len(self.augmentations) - 1)
            ]
        begin_s = self._begin_s(number, draws[7], pair)
        return EpisodePlan(
            begin_s=begin_s,
            pair=pair,
            warm_up=self.warm_up,
            partition=self.partition,
            augmentation=chosen,
            seed=(self.seed, number),
        )

    def _begin_s(self, number: int, uniform: float, pair: PairSpec) -> int:
        if self.every_s is None:
            return self.begin_s + int(
                uniform * (self.end_s - self.begin_s - pair.predecessor.time_limit_s)
            )
        return self.begin_s + self._turn(number) * self.every_s

    def _turn(self, number: int) -> int:
        return number if isinstance(self.pairs, Mix) else number // len(self.pairs)

    def record(self) -> dict[str, Any]:
        """For a header: equal records mean equal plans."""
        pairs = (
            self.pairs
            if isinstance(self.pairs, Mix)
            else [list(map(tuple, pair)) for pair in self.pairs]
        )
        return {
            "count": self.count,
            "seed": self.seed,
            "begin_s": self.begin_s,
            "end_s": self.end_s,
            "pairs": vars(pairs) if isinstance(pairs, Mix) else pairs,
            "every_s": self.every_s,
            "warm_up": self.warm_up.value,
            "partition": self.partition,
            "augmentations": [augmentation.name for augmentation in self.augmentations],
            "augmented": self.augmented,
        }
