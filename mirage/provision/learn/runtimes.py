"""How long jobs run, given what is known of them while they queue or run: limit, user, and the time
so far.

The law of run time over limit is the sample of a job history's jobs: of the same user with a like
limit where there are some, mixed with those of all users with a like limit and size. A job that has
run for a while is drawn among those that ran longer; that is the Kaplan-Meier estimate, as nothing
is censored but at the limit itself (Kaplan and Meier, 1958).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.provision.learn.episode import Floats, Ints
from slurm_sim.seconds import HOUR_S

LIMIT_EDGES_S = np.array([0.25, 0.5, 1, 2, 4, 8, 12, 24, 36, 48, 96]) * HOUR_S
"""Limits between two of these are alike; the edge itself belongs to the lower class."""
CLASSES = 2 * (len(LIMIT_EDGES_S) + 1)
"""By limit, and one node or more."""
USER_WEIGHT = 10
"""A user's k jobs count k times, all others together this often."""
FEWEST = 5
"""Jobs that a user needs for a law of their own."""
TOGETHER_S = HOUR_S
"""Equal jobs of a user that were submitted within this time tell how alike run times are."""


class JobQuery(NamedTuple):
    """Jobs, and for how long they have run; (n,) each, seconds."""

    users: Sequence[str]
    nodes: Ints
    limits_s: Ints
    elapsed_s: Ints


class _Span(NamedTuple):
    """Places in a row of sorted ratios: those that are still possible, (n,) each."""

    begin: Ints
    size: Ints


@dataclass(frozen=True)
class Runtimes:
    """The ratios of all groups in one row, sorted in each group: the `CLASSES` first, then the
    users' own.
    """

    ratios: Floats
    first: Ints
    """(groups + 1,): where each begins, and the end."""
    users: Mapping[str, int]
    """``user/limit class`` -> group."""
    alike: float
    """Chance that a job takes its place in the law from its user's equal jobs rather than its own
    draw.
    """

    def drawn(self, asked: JobQuery, rng: np.random.Generator, times: int) -> Ints:
        """Run times, (times, n), each longer than the job has run; -1: until its limit."""
        of_all = self._left(_classes(asked), asked)
        own = self._left(self._own(asked), asked)
        places = self._places(asked, rng, times)
        takes_own = (
            rng.random((times, len(asked.nodes))) * (own.size + USER_WEIGHT * (of_all.size > 0))
            < own.size
        )
        begin = np.where(takes_own, own.begin, of_all.begin)
        size = np.where(takes_own, own.size, of_all.size)
        index = np.minimum(begin + (places * size).astype(np.int64), len(self.ratios) - 1)
        ratio = np.where(size > 0, self.ratios[index], 1.0)
        runtime_s = np.maximum((ratio * asked.limits_s).astype(np.int64), asked.elapsed_s + 1)
        return np.where((ratio >= 1) | (runtime_s >= asked.limits_s), -1, runtime_s)

    def _left(self, group: Ints, asked: JobQuery) -> _Span:
        """The places of longer ratios than the job has reached; group -1 has none."""
        reached = asked.elapsed_s / np.maximum(asked.limits_s, 1)
        first, end = self.first[group], self.first[group + 1]
        found = np.array(
            [
                low + np.searchsorted(self.ratios[low:high], ratio, side="right")
                for low, high, ratio in zip(
                    first.tolist(), end.tolist(), reached.tolist(), strict=True
                )
            ],
            dtype=np.int64,
        )
        return _Span(found, np.where(group >= 0, end - found, 0))

    def _own(self, asked: JobQuery) -> Ints:
        limit_class = _limit_class(asked.limits_s)
        keys = (
            f"{user}/{number}"
            for user, number in zip(asked.users, limit_class.tolist(), strict=True)
        )
        return np.array([self.users.get(key, -1) for key in keys], dtype=np.int64)

    def _places(self, asked: JobQuery, rng: np.random.Generator, times: int) -> Floats:
        """Uniform numbers, (times, n): with chance `alike` one for all equal jobs of a user."""
        kinds = list(zip(asked.users, asked.nodes.tolist(), asked.limits_s.tolist(), strict=True))
        number = {kind: index for index, kind in enumerate(dict.fromkeys(kinds))}
        shared = rng.random((times, len(number)))[:, [number[kind] for kind in kinds]]
        own = rng.random((times, len(kinds)))
        return np.where(rng.random((times, len(kinds))) < self.alike, shared, own)


def fit_runtimes(
    users: Sequence[str], nodes: Ints, limits_s: Ints, runtimes_s: Ints, submits_s: Ints
) -> Runtimes:
    """From jobs that ran and had a limit, (n,) each, in the order of their submission."""
    ratios = np.minimum(runtimes_s / np.maximum(limits_s, 1), 1.0)
    asked = JobQuery(users, nodes, limits_s, np.zeros_like(limits_s))
    group = _classes(asked)
    named, users_ratios = _by_user(users, _limit_class(limits_s), ratios)
    parts = [np.sort(ratios[group == number]) for number in range(CLASSES)] + users_ratios
    first = np.cumsum([0, *(len(part) for part in parts)])
    return Runtimes(np.concatenate(parts), first, named, _alike(asked, group, ratios, submits_s))


def _by_user(
    users: Sequence[str], limit_class: Ints, ratios: Floats
) -> tuple[dict[str, int], list[Floats]]:
    keys = np.array(
        [f"{user}/{number}" for user, number in zip(users, limit_class.tolist(), strict=True)]
    )
    names, number, count = np.unique(keys, return_inverse=True, return_counts=True)
    kept = np.flatnonzero(count >= FEWEST)
    named = {str(names[index]): CLASSES + place for place, index in enumerate(kept)}
    return named, [np.sort(ratios[number == index]) for index in kept]


def _alike(asked: JobQuery, group: Ints, ratios: Floats, submits_s: Ints) -> float:
    """The root of the rank correlation of two equal jobs of a user that came together: both must
    share the draw.
    """
    rank = _ranks(group, ratios)
    pairs: list[tuple[float, float]] = []
    last: dict[tuple[str, int, int], int] = {}
    for index, kind in enumerate(
        zip(asked.users, asked.nodes.tolist(), asked.limits_s.tolist(), strict=True)
    ):
        before = last.get(kind)
        if before is not None and submits_s[index] - submits_s[before] <= TOGETHER_S:
            pairs.append((rank[before], rank[index]))
        last[kind] = index
    if len(pairs) < FEWEST or np.ptp(pairs) == 0:
        return 0.0
    correlation = float(np.corrcoef(np.array(pairs).T)[0, 1])
    return float(np.sqrt(max(correlation, 0.0))) if np.isfinite(correlation) else 0.0


def _ranks(group: Ints, ratios: Floats) -> Floats:
    """Where each ratio stands in its group, 0 to 1; equal ratios stand together."""
    rank = np.empty(len(ratios))
    for number in np.unique(group):
        own = group == number
        sorted_ratios = np.sort(ratios[own])
        low, high = (
            np.searchsorted(sorted_ratios, ratios[own], side=side) for side in ("left", "right")
        )
        rank[own] = (low + high) / 2 / len(sorted_ratios)
    return rank


def _limit_class(limits_s: Ints) -> NDArray[np.int64]:
    return np.searchsorted(LIMIT_EDGES_S, limits_s)


def _classes(asked: JobQuery) -> NDArray[np.int64]:
    return 2 * _limit_class(asked.limits_s) + (asked.nodes > 1)
