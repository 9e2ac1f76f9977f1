"""What tests of the neural methods share: a toy queue, small networks, a model's distance from the
best policy.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch

from mirage.domain import Penalties
from mirage.provision.learn.episode import Episode
from mirage.provision.learn.foundation import Shape
from mirage.provision.learn.model import Model, States, releases
from mirage.provision.learn.pretrain import PretrainOptions
from slurm_sim.seconds import HOUR_S
from tests.toy import Toy

torch.set_num_threads(1)

TOY = Toy(limit_h=5, most_jobs=70)
TRAIN = [TOY.episode(i) for i in range(128)]
VALIDATION = [TOY.episode(i) for i in range(1000, 1032)]
FRESH = [TOY.episode(i) for i in range(10_000, 10_256)]
TEST = [TOY.episode(i) for i in range(2000, 2150)]
SMALL = Shape(
    width=16, heads=2, layers=1, feedforward=32, patch=72, dropout=0.0, forecast_input=False
)
"""It learns from the matrix alone: the toy's forecasts say nothing."""
PRETRAIN = PretrainOptions(
    shape=SMALL,
    share=0.5,
    rounds=14,
    states=1024,
    per_episode=29,
    batch=32,
    rate=3e-3,
    patience=99,
    every=1,
    device="cpu",
)
ALL_TASTES = replace(PRETRAIN, share=None)
SHORT = replace(PRETRAIN, rounds=2, states=256)


def choice(model: Model, episode: Episode, share: float) -> int:
    """The decision point at which the model releases; T: never."""
    states = States.of(episode, share, 1 - share)
    release = releases(model, model.assess(states), states)
    return int(np.argmax(release)) if release.any() else len(release)


def mean_cost_h(choices: list[int], share: float, test: list[Episode]) -> float:
    costs = [
        episode.costs_s(Penalties(share, 1 - share))[chosen] / HOUR_S
        for episode, chosen in zip(test, choices, strict=True)
    ]
    return float(np.mean(costs))


def regret(model: Model, share: float, test: list[Episode] = TEST) -> float:
    """The model's mean penalty on unseen episodes: 0 is the best policy's, 1 the reactive one's."""
    mine = mean_cost_h([choice(model, episode, share) for episode in test], share, test)
    best = mean_cost_h([TOY.best(episode, share) for episode in test], share, test)
    reactive = mean_cost_h([len(episode) for episode in test], share, test)
    return (mine - best) / (reactive - best)


def lateness_h(model: Model, share: float) -> float:
    """How much later than the best policy it releases, on average."""
    return (
        float(
            np.mean([choice(model, episode, share) - TOY.best(episode, share) for episode in TEST])
        )
        / 6
    )
