"""Hyper-parameter search with Ray Tune (paper, section 4.6), on the part of the training time that
is held out.

Ray is imported here, and nowhere else but in `parallel.py`.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mirage.errors import InputError, MirageError
from mirage.provision.learn.card import TASTES, choice
from mirage.provision.learn.episode import Episode
from mirage.provision.learn.method import Space, TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.model import Model
from mirage.provision.learn.networks import FOUNDATION
from mirage.rl.options import with_settings
from slurm_sim.seconds import HOUR_S


def ray_tune() -> Any:
    """Ray Tune. Raises InputError if it is not installed."""
    try:
        from ray import tune
    except ImportError as error:
        raise InputError(
            f"--tune needs the package ray ({error}); pip install 'mirage-slurm[ray]'."
        ) from error
    return tune


def space_of(method: str, has_base: bool = False) -> Space:
    """What is tried for a method: for a head on a trained foundation, only its own options."""
    return {
        name: values
        for name, values in METHODS[method].space.items()
        if not (has_base and name.startswith(FOUNDATION))
    }


def drawn(space: Space, count: int, seed: int) -> list[dict[str, Any]]:
    """Random settings. They are drawn here and not by Ray, so that they follow from the seed alone."""
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


def tuned(
    method: str, options: Any, data: TrainingData, count: int, fixed: Sequence[str] = ()
) -> Any:
    """The best of ``count`` random settings and the given one, each trained on the data's episodes
    and judged on those that it holds out.

    ``fixed``: names of options that stay as given. Raises InputError if Ray is missing, MirageError
    if no setting could be trained.
    """
    space = {
        name: values
        for name, values in space_of(method, data.base is not None).items()
        if name not in fixed
    }
    settings = [{}, *drawn(space, count, data.seed)]
    search = _Search(method, [_set(options, setting) for setting in settings], data)
    penalties_h = _penalties_h(search)
    # Of equals the first: the given setting stays unless another is better.
    best = min(penalties_h, key=lambda number: (penalties_h[number], number))
    return search.candidates[best]


@dataclass(frozen=True)
class _Search:
    """The settings that are tried, and what each is trained on."""

    method: str
    candidates: Sequence[Any]
    data: TrainingData

    def penalty_h(self, number: int) -> float:
        model = METHODS[self.method].train(self.data, self.candidates[number])
        return score_h(model, self.data.held_out)


def _trial(config: dict[str, Any], search: _Search) -> dict[str, float]:
    return {"penalty_h": search.penalty_h(config["number"])}


def _penalties_h(search: _Search) -> dict[int, float]:
    """By number of the candidate, but for those whose training failed. Raises MirageError if all
    did.
    """
    tune = ray_tune()
    _begin_ray()
    with tempfile.TemporaryDirectory(prefix="mirage-tune-") as folder:
        found = tune.Tuner(
            tune.with_parameters(_trial, search=search),
            param_space={"number": tune.grid_search(list(range(len(search.candidates))))},
            run_config=tune.RunConfig(verbose=0, storage_path=folder),
        ).fit()
        penalties_h = {
            it.config["number"]: it.metrics["penalty_h"] for it in found if it.error is None
        }
    if not penalties_h:
        raise MirageError(
            f"--tune: no setting of {search.method} could be trained; train without it to see why"
            f" ({found.errors[0]})."
        )
    return penalties_h


def _begin_ray() -> None:
    import ray

    # Tune would draw a box on stdout that names the temporary folder.
    os.environ["RAY_AIR_NEW_OUTPUT"] = "0"
    # Tune's own answer to Ctrl-C would end the search alone, and swallow the first Ctrl-C of the
    # training after it.
    os.environ["TUNE_DISABLE_SIGINT_HANDLER"] = "1"
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")


def _set(options: Any, settings: Mapping[str, Any]) -> Any:
    return with_settings(options, [f"{name}={value}" for name, value in settings.items()])
