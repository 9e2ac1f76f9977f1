"""Hyper-parameter search by random settings (paper, section 4.6, which does it with Ray Tune), on the
part of the training time that is held out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirage.errors import MirageError
from mirage.provision.learn.card import TASTES, choice
from mirage.provision.learn.episode import Episode
from mirage.provision.learn.method import Space, TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.model import Model
from mirage.provision.learn.networks import FOUNDATION
from mirage.rl.options import with_settings
from slurm_sim.seconds import HOUR_S


def space_of(method: str, has_base: bool = False) -> Space:
    """What is tried for a method: for a head on a trained foundation, only its own options."""
    return {
        name: values
        for name, values in METHODS[method].space.items()
        if not (has_base and name.startswith(FOUNDATION))
    }


def drawn(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Random settings, which follow from the seed alone."""
    generator = np.random.default_rng(seed)
    return [
        {name: values[int(generator.integers(len(values)))] for name, values in space.items()}
        for _ in range(count)
    ]


def score_h(model: Model, episodes: Sequence[Episode]) -> float:
    """Mean penalty in hours over both tastes of the card, at e_I + e_O = 1."""
    costs = [
        episode.costs_s(taste)[choice(model, episode, taste)] / (taste.interruption + taste.overlap)
        for episode in episodes
        for taste in TASTES
    ]
    return float(np.mean(costs)) / HOUR_S


@dataclass(frozen=True)
class Search:
    """The settings that are tried, and what each is trained on."""

    method: str
    candidates: Sequence[Any]
    data: TrainingData

    @classmethod
    def of(
        cls, method: str, options: Any, data: TrainingData, count: int, fixed: Sequence[str] = ()
    ) -> Search:
        """The given options, and ``count`` random ones. ``fixed``: names of options that stay as
        given.
        """
        space = space_of(method, data.base is not None)
        searched = {name: values for name, values in space.items() if name not in fixed}
        settings = [{}, *drawn(searched, count, data.seed)]
        return cls(method, [_set(options, setting) for setting in settings], data)

    def best(self) -> Any:
        """The options that do best on the episodes which the data holds out, each trained on the
        others. One that can't be trained does not end the search. Raises MirageError if none can.
        """
        trials = [self._trial(number) for number in range(len(self.candidates))]
        penalties_h = {number: it for number, it in enumerate(trials) if isinstance(it, float)}
        if not penalties_h:
            raise MirageError(f"--tune: no setting of {self.method} could be trained ({trials[0]})")
        # Of equals the first: the given setting stays unless another is better.
        best = min(penalties_h, key=lambda number: (penalties_h[number], number))
        return self.candidates[best]

    def penalty_h(self, number: int) -> float:
        """Of a candidate's model, hours. Raises MirageError if it can't be trained, KeyboardInterrupt
        after Ctrl-C.
        """
        model = METHODS[self.method].train(self.data, self.candidates[number])
        if model.traits.interrupted:
            raise KeyboardInterrupt
        return score_h(model, self.data.held_out)

    def _trial(self, number: int) -> float | str:
        """The penalty, or why there is none."""
        try:
            return self.penalty_h(number)
        except MirageError as error:
            return str(error)


def _set(options: Any, settings: Mapping[str, Any]) -> Any:
    return with_settings(options, [f"{name}={value}" for name, value in settings.items()])
