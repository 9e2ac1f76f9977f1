"""Random forest and gradient-boosted trees: the paper's statistical methods (section 4).

The paper lets them predict the observed reward of submitting, and does not say what that is
compared with. Here they learn the chances that the wait exceeds each of some durations
(distribution regression: Foresi and Peracchi, 1995; for the forest: Meinshausen, Quantile
regression forests, 2006), at every decision point of the training episodes. From these follow the
expected reward of submitting and that of the best later submission, for any penalties: `law.py`.

Tried instead: fitted policy iteration (Ernst, Geurts, Wehenkel, 2005), which prices waiting by the
exact outcomes of the last fit's own later decisions. With the few independent weeks that a trace
has, its rules swung between releasing far too early and never.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar, Protocol

import numpy as np

from mirage.errors import InputError
from mirage.provision.learn.boosted import BoostedTrees
from mirage.provision.learn.boosting import SPACE, Boosting, boost_chances
from mirage.provision.learn.episode import Episode, Floats, Vectors
from mirage.provision.learn.features import NAMES, features, features_of
from mirage.provision.learn.forest import Forest, Growth, grow
from mirage.provision.learn.law import DURATIONS_S, Law, assess
from mirage.provision.learn.method import Method, Space, TrainingData
from mirage.provision.learn.model import DEFAULT_TRAITS, Assessment, Flags, States, Traits
from mirage.rl.options import Count, MethodOptions
from slurm_sim.seconds import HOUR_S

FILES = {"random-forest": "forest.safetensors", "xgboost": "boosted.safetensors"}


class Regressor(Protocol):
    def predict(self, rows: Vectors) -> Floats:
        """(n, len(DURATIONS_S)): the chances, of (n, features)."""

    def save(self, path: Path) -> None: ...


@dataclass(frozen=True)
class Trees:
    """A trained statistical method."""

    name: str
    regressor: Regressor
    traits: Traits = DEFAULT_TRAITS

    def assess(self, states: States) -> Assessment:
        return assess(self.law(states), states)

    def law(self, states: States) -> Law:
        """Of the waits at these states."""
        return Law.of_chances(self.regressor.predict(features_of(states)))

    def write(self, folder: Path) -> None:
        self.regressor.save(folder / FILES[self.name])


@dataclass(frozen=True)
class ForestOptions(MethodOptions):
    every: Count = 3
    """Of each episode every so many decision points are learnt from; neighbours are nearly equal.
    """
    growth: Growth = field(default_factory=Growth)


@dataclass(frozen=True)
class BoostingOptions(MethodOptions):
    every: Count = 3
    boosting: Boosting = field(default_factory=lambda: Boosting(rounds=80))


class RandomForestMethod(Method[ForestOptions]):
    name = "random-forest"
    about = "a random forest predicts the cost of a release"
    space: ClassVar[Space] = {
        "growth.trees": (30, 60, 120),
        "growth.leaf": (5, 20, 80),
        "growth.features": (0.1, 0.33, 1.0),
    }

    def defaults(self) -> ForestOptions:
        return ForestOptions()

    def fit(self, data: TrainingData, options: ForestOptions) -> Trees:
        return train_random_forest(data.episodes, options, data.seed)

    def load(self, folder: Path) -> Trees:
        return read_random_forest(folder)


class XgboostMethod(Method[BoostingOptions]):
    name = "xgboost"
    about = "boosted trees predict the cost of a release"
    space = SPACE

    def defaults(self) -> BoostingOptions:
        return BoostingOptions()

    def fit(self, data: TrainingData, options: BoostingOptions) -> Trees:
        return train_xgboost(data.episodes, options, data.seed)

    def load(self, folder: Path) -> Trees:
        return read_xgboost(folder)


def train_random_forest(
    train: Sequence[Episode], options: ForestOptions = ForestOptions(), seed: int = 0
) -> Trees:
    """The splits tell waits apart on a logarithmic scale; the leaves keep the chances of the
    durations.

    Raises InputError if no episode has a decision point.
    """
    rows, waits_s = labelled(train, options.every)
    return Trees(
        "random-forest",
        grow(rows, np.log1p(waits_s / HOUR_S), _longer(waits_s), options.growth, seed),
    )


def train_xgboost(
    train: Sequence[Episode], options: BoostingOptions = BoostingOptions(), seed: int = 0
) -> Trees:
    """One booster a duration, with the number of rounds that is given.

    Raises InputError if no episode has a decision point.
    """
    rows, waits_s = labelled(train, options.every)
    return Trees("xgboost", boost_chances(rows, _longer(waits_s), options.boosting, seed))


def labelled(episodes: Sequence[Episode], every: int) -> tuple[Vectors, Floats]:
    """Features, (n, len(NAMES)), and the exact wait of a release there, (n,), of every so many
    decision points.
    """
    chosen = [episode for episode in episodes if len(episode)]
    if not chosen:
        raise InputError(
            "no episode has a decision point; give longer predecessors or more episodes."
        )
    rows = np.concatenate(
        [features(episode.windows[::every], episode.forecast_s[::every]) for episode in chosen]
    )
    return rows, np.concatenate([episode.waits_s[:-1:every] for episode in chosen]).astype(
        np.float64
    )


def _longer(waits_s: Floats) -> Flags:
    """(n, len(DURATIONS_S)): whether the wait is longer."""
    return np.asarray(waits_s[:, None] > DURATIONS_S)


def read_random_forest(folder: Path) -> Trees:
    """Raises InputError."""
    return Trees(
        "random-forest", Forest.load(folder / FILES["random-forest"], len(NAMES), len(DURATIONS_S))
    )


def read_xgboost(folder: Path) -> Trees:
    """Raises InputError."""
    return Trees(
        "xgboost", BoostedTrees.load(folder / FILES["xgboost"], len(NAMES), len(DURATIONS_S))
    )
