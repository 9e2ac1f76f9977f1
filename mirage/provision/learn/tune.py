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
from mirage.provision.learn.episode import HOUR_S, Episode
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.model import Model
from mirage.rl.options import with_settings

Space = Mapping[str, Sequence[Any]]
"""Name of an option (as for `mirage train --set`) -> what is tried."""
_BOOSTING: Space = {
    "boosting.rounds": (50, 100, 200, 400),
    "boosting.depth": (3, 4, 5, 6, 8),
    "boosting.learning_rate": (0.03, 0.05, 0.08, 0.15),
    "boosting.leaf": (10, 40, 160),
}
_NETWORK: Space = {
    "shape.patch": (4, 6, 12, 24),
    "shape.width": (32, 48, 64),
    "shape.heads": (2, 4, 8),
    "shape.layers": (1, 2, 3),
    "shape.feedforward": (64, 96, 192),
    "shape.dropout": (0.0, 0.1, 0.2),
    "rate": (3e-4, 1e-3, 3e-3),
}
_INNER: dict[str, Sequence[Any]] = {f"pretrain.{name}": values for name, values in _NETWORK.items()}
_SPACES: Mapping[str, Space] = {
    "random-forest": {
        "growth.trees": (30, 60, 120),
        "growth.leaf": (5, 20, 80),
        "growth.features": (0.1, 0.33, 1.0),
    },
    "xgboost": _BOOSTING,
    "quantile": _BOOSTING,
    "transformer": _NETWORK,
    "moe": _NETWORK,
    "dqn": _INNER | {"rate": (1e-4, 5e-4, 2e-3), "epsilon": (0.3, 0.5, 0.8), "sync": (10, 40, 160)},
    "pg": _INNER | {"rate": (1e-3, 5e-3, 1e-2), "entropy": (0.0, 1e-3, 1e-2)},
}


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
    space = _SPACES[method if method in _SPACES else method.rpartition("-")[2]]
    return {name: values for name, values in space.items() if not (has_base and name in _INNER)}


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
    method: str,
    options: Any,
    train: Sequence[Episode],
    held_out: Sequence[Episode],
    count: int,
    seed: int,
    fixed: Sequence[str] = (),
    **more: Any,
) -> Any:
    """The best of ``count`` random settings and the given one, each trained on ``train`` and judged
    on ``held_out``.

    ``fixed``: names of options that stay as given. ``more``: as for `Method.train`, so that a
    setting is judged on such a training as it is chosen for. Raises InputError where Ray is
    missing, MirageError if no setting could be trained.
    """
    space = {
        name: values
        for name, values in space_of(method, "base" in more).items()
        if name not in fixed
    }
    settings = [{}, *drawn(space, count, seed)]
    candidates = [_set(options, setting) for setting in settings]
    penalties_h = _penalties_h(_Trials(method, candidates, train, held_out, seed, more))
    # Of equals the first: the given setting stays unless another is better.
    return candidates[min(penalties_h, key=lambda number: (penalties_h[number], number))]


@dataclass(frozen=True)
class _Trials:
    """What is tried, and what each trial is taught with."""

    method: str
    candidates: Sequence[Any]
    train: Sequence[Episode]
    held_out: Sequence[Episode]
    seed: int
    more: Mapping[str, Any]

    def penalty_h(self, number: int) -> float:
        options = self.candidates[number]
        model = METHODS[self.method].train(
            self.train, self.held_out, options, seed=self.seed, **self.more
        )
        return score_h(model, self.held_out)


def _trial(config: dict[str, Any], trials: _Trials) -> dict[str, float]:
    return {"penalty_h": trials.penalty_h(config["number"])}


def _penalties_h(trials: _Trials) -> dict[int, float]:
    """By number of the candidate, but for those whose training failed. Raises MirageError if all
    did.
    """
    tune = ray_tune()
    _begin_ray()
    with tempfile.TemporaryDirectory(prefix="mirage-tune-") as folder:
        found = tune.Tuner(
            tune.with_parameters(_trial, trials=trials),
            param_space={"number": tune.grid_search(list(range(len(trials.candidates))))},
            run_config=tune.RunConfig(verbose=0, storage_path=folder),
        ).fit()
        penalties_h = {
            it.config["number"]: it.metrics["penalty_h"] for it in found if it.error is None
        }
    if not penalties_h:
        raise MirageError(
            f"--tune: no setting of {trials.method} could be trained; train without it to see why"
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
