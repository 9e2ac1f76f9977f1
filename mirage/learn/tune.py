"""Hyper-parameter search with Ray Tune (paper, section 4.6), on the part of the training time that is held out.

Ray is imported here, and nowhere else but in `parallel.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from mirage.errors import InputError
from mirage.learn.card import TASTES, choice
from mirage.learn.course import changed
from mirage.learn.episode import HOUR_S, Episode
from mirage.learn.methods import METHODS
from mirage.learn.model import Model

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
    "random-forest": {"growth.trees": (30, 60, 120), "growth.leaf": (5, 20, 80), "growth.features": (0.1, 0.33, 1.0)},
    "xgboost": _BOOSTING,
    "quantile": _BOOSTING,
    "transformer": _NETWORK,
    "moe": _NETWORK,
    "dqn": _INNER | {"rate": (1e-4, 5e-4, 2e-3), "epsilon": (0.3, 0.5, 0.8), "sync": (10, 40, 160)},
    "pg": _INNER | {"rate": (1e-3, 5e-3, 1e-2), "entropy": (0.0, 1e-3, 1e-2)},
}


def space_of(method: str) -> Space:
    """What is tried for a method."""
    return _SPACES[method if method in _SPACES else method.rpartition("-")[2]]


def score_h(model: Model, episodes: Sequence[Episode]) -> float:
    """Mean penalty in hours over both tastes of the card, at e_I + e_O = 1."""
    costs = [
        episode.costs_s(taste)[choice(model, episode, taste)] / (taste.interruption + taste.overlap)
        for episode in episodes
        for taste in TASTES
    ]
    return float(np.mean(costs)) / HOUR_S


def tuned(
    method: str, options: Any, train: Sequence[Episode], held_out: Sequence[Episode], count: int, seed: int
) -> Any:
    """The best of ``count`` random settings and the given one, each trained on ``train`` and judged on ``held_out``.

    Raises InputError where Ray is missing.
    """
    try:
        import ray
        from ray import tune
    except ImportError as error:
        raise InputError(f"--tune needs the package ray ({error}); pip install 'mirage-slurm[ray]'.") from error
    if not ray.is_initialized():
        ray.init(log_to_driver=False, include_dashboard=False, logging_level="error")
    episodes = ray.put((list(train), list(held_out)))

    def trial(settings: dict[str, Any]) -> dict[str, float]:
        learnt_from, judged = ray.get(episodes)
        return {
            "penalty_h": score_h(METHODS[method].train(learnt_from, judged, _set(options, settings), seed=seed), judged)
        }

    found = tune.Tuner(
        trial,
        param_space={name: tune.choice(list(values)) for name, values in space_of(method).items()},
        tune_config=tune.TuneConfig(num_samples=count, metric="penalty_h", mode="min"),
        run_config=tune.RunConfig(verbose=0),
    ).fit()
    given_h = trial({})["penalty_h"]
    good = [result for result in found if result.metrics and "penalty_h" in result.metrics]
    best = min(good, key=lambda result: result.metrics["penalty_h"], default=None)
    if best is None or best.metrics["penalty_h"] >= given_h:
        return options
    return _set(options, best.config)


def _set(options: Any, settings: Mapping[str, Any]) -> Any:
    return changed(options, [f"{name}={value}" for name, value in settings.items()])
