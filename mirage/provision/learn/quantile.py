"""The wait's conditional quantiles by boosting with the pinball loss, conformally calibrated; then
the newsvendor rule.

Beyond the paper. A release with `lead` seconds to go is cheapest where `lead` is the wait's
quantile at e_I / (e_I + e_O), so one fit of several levels serves both tastes (`law.py`; the
untrained form of the same rule is `mirage.provision.policies.quantile`). The logarithm of the wait
is fitted: quantiles go through any growing function.

Boosting on a few months is overconfident. Each block of the training time is therefore predicted by
fits that have not seen it, and each level is renamed to the share of waits that were below its
quantile there: conformal prediction on ranks (Chernozhukov, Wuethrich, Zhu: Distributional
conformal prediction, 2021), over blocks as in CV+ (Barber et al., 2021). Moving quantiles by a
number of minutes instead, as in conformalised quantile regression, makes idle clusters look busy:
the doubt of some predictions falls on all. Calibrating long waits apart rests on too few spells of
them. The guarantee is for exchangeable data, which weeks of a cluster are not; the evaluation shows
what is left of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, NamedTuple

import numpy as np

from mirage.errors import InputError
from mirage.provision.learn.arrays import read_arrays, write_arrays
from mirage.provision.learn.boosted import BoostedTrees
from mirage.provision.learn.boosting import SPACE, Boosting, boost_quantiles
from mirage.provision.learn.episode import STEP_S, Episode, Floats, Ints, span
from mirage.provision.learn.features import NAMES, features_of
from mirage.provision.learn.law import Law, assess
from mirage.provision.learn.method import Method, TrainingData
from mirage.provision.learn.model import DEFAULT_TRAITS, Assessment, Flags, States, Traits
from mirage.provision.learn.trees import labelled
from mirage.rl.options import Count, MethodOptions, Range
from slurm_sim.seconds import HOUR_S

LEVELS = (0.02, 0.05, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
_SHORT = float(np.log1p(STEP_S / HOUR_S))
"""Below one decision step all waits are equal, so a prediction below it is right at all levels."""
_LONGEST = float(np.log1p(60 * 24))
BOOSTER, COVERAGE = "boosted.safetensors", "calibration.safetensors"


@dataclass(frozen=True)
class QuantileOptions(MethodOptions):
    every: Count = 6
    """Of each episode every so many decision points are learnt from; neighbours are nearly equal.
    """
    blocks: Annotated[int, Range(2)] = 10
    """Parts of the training time, each held out once for the calibration."""
    boosting: Boosting = field(
        default_factory=lambda: Boosting(rounds=80, depth=3, learning_rate=0.1)
    )


@dataclass(frozen=True)
class QuantileModel:
    """A trained quantile method."""

    booster: BoostedTrees
    coverage: Floats
    """(levels,): the share of waits that is below each quantile; not falling."""
    name: str = "quantile"
    traits: Traits = DEFAULT_TRAITS

    def assess(self, states: States) -> Assessment:
        return assess(self.law(states), states)

    def law(self, states: States) -> Law:
        """Of the waits at these states."""
        logs = _in_order(self.booster.predict(features_of(states)))
        quantiles_s = np.expm1(logs) * HOUR_S
        beyond_s = 2 * quantiles_s[:, -1:] - quantiles_s[:, -3:-2]
        waits_s = np.concatenate([np.zeros((len(logs), 1)), quantiles_s, beyond_s], axis=1)
        ends = np.ones((len(logs), 1)), np.zeros((len(logs), 1))
        exceeded = np.tile(1 - self.coverage, (len(logs), 1))
        return Law(waits_s, np.concatenate([ends[0], exceeded, ends[1]], axis=1))

    def write(self, folder: Path) -> None:
        self.booster.save(folder / BOOSTER)
        write_arrays(folder / COVERAGE, {"coverage": self.coverage})


class QuantileMethod(Method[QuantileOptions]):
    name = "quantile"
    about = "the wait's quantile at e_I / (e_I + e_O), conditional on the state"
    space = SPACE

    def defaults(self) -> QuantileOptions:
        return QuantileOptions()

    def fit(self, data: TrainingData, options: QuantileOptions) -> QuantileModel:
        return train_quantile(data.episodes, options, data.seed)

    def load(self, folder: Path) -> QuantileModel:
        return read(folder)


def train_quantile(
    train: Sequence[Episode], options: QuantileOptions = QuantileOptions(), seed: int = 0
) -> QuantileModel:
    """Fits once on each part without a block, to calibrate, and once on all. Raises InputError for
    too few episodes.
    """
    ordered = sorted(
        (episode for episode in train if len(episode)), key=lambda episode: episode.begin_s
    )
    rows, waits_s = labelled(ordered, options.every)
    points = _Points.of(ordered, options)
    logs = np.log1p(waits_s / HOUR_S)
    held_out = np.empty((len(rows), len(LEVELS)))
    for number in range(options.blocks):
        own, apart = points.block == number, points.apart_from(number)
        if not own.any() or not apart.any():
            raise InputError(
                f"{len(ordered)} episodes can't be cut into {options.blocks} parts of the time that"
                " do not overlap; give episodes of a longer time."
            )
        others = boost_quantiles(rows[apart], logs[apart], LEVELS, options.boosting, seed)
        held_out[own] = _in_order(others.predict(rows[own]))
    return QuantileModel(
        boost_quantiles(rows, logs, LEVELS, options.boosting, seed), _coverage(held_out, logs)
    )


class _Points(NamedTuple):
    """Of which episode each decision point is that is learnt from; (n,) each."""

    block: Ints
    """The part of the training time, from 0."""
    begin_s: Ints
    end_s: Ints
    """Of the time that the episode tells something of (`episode.span`)."""

    @classmethod
    def of(cls, ordered: Sequence[Episode], options: QuantileOptions) -> _Points:
        sizes = [len(range(0, len(episode), options.every)) for episode in ordered]
        blocks = [number * options.blocks // len(ordered) for number in range(len(ordered))]
        begins_s, ends_s = zip(*map(span, ordered), strict=True)
        return cls(
            *(
                np.repeat(np.array(values, dtype=np.int64), sizes)
                for values in (blocks, begins_s, ends_s)
            )
        )

    def apart_from(self, number: int) -> Flags:
        """(n,): whether the episode shares no second with those of this block: neighbours wait in
        the same queue.
        """
        own: Flags = self.block == number
        if not own.any():
            return own
        begin_s, end_s = self.begin_s[own].min(), self.end_s[own].max()
        return np.asarray((self.end_s < begin_s) | (self.begin_s > end_s))


def _coverage(predicted: Floats, logs: Floats) -> Floats:
    """(levels,): the share of waits that were no longer than each level's quantile said, where that
    is in question.
    """
    same = (logs[:, None] < _SHORT) & (predicted < _SHORT)
    known = ~same.all(axis=1)
    if not known.any():
        return np.array(LEVELS)
    below = np.where(same, LEVELS, logs[:, None] <= predicted)
    return np.maximum.accumulate(below[known].mean(axis=0))


def _in_order(logs: Floats) -> Floats:
    """Log quantiles, (n, levels), that neither cross nor are negative or absurd."""
    return np.clip(np.maximum.accumulate(logs, axis=1), 0, _LONGEST)


def read(folder: Path) -> QuantileModel:
    """Raises InputError."""
    path = folder / COVERAGE
    coverage = read_arrays(path).get("coverage", np.empty(0)).astype(np.float64)
    rising = coverage.shape == (len(LEVELS),) and bool((np.diff(coverage) >= 0).all())
    if not rising or not ((coverage >= 0) & (coverage <= 1)).all():
        raise InputError(
            f"{path}: not the calibration of {len(LEVELS)} levels; train the model again."
        )
    return QuantileModel(BoostedTrees.load(folder / BOOSTER, len(NAMES), len(LEVELS)), coverage)
