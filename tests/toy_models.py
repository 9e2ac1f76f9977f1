"""Model folders of small models, trained on a toy queue in seconds."""

from __future__ import annotations

from pathlib import Path

from mirage.models.folder import write_folder
from mirage.models.recipe import Recipe
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.method import TrainingData
from mirage.provision.learn.methods import METHODS
from mirage.provision.learn.ranges import ranges_of
from mirage.rl.options import with_settings
from tests.toy import Toy

TOY = Toy()
EPISODES = [TOY.episode(index) for index in range(12)]
ABOUT = ProvisionAbout(
    cluster="toy",
    pool="gpu",
    nodes=20,
    trace="toy.csv.gz",
    trace_sha256="0" * 64,
    train_s=(0, 100),
    validation_s=(100, 200),
    ranges=ranges_of(EPISODES),
)
SMALL = {
    "random-forest": ("growth.trees=4",),
    "xgboost": ("boosting.rounds=4",),
    "transformer": ("rounds=1", "states=64", "shape.layers=1", "device=cpu"),
}


def write_toy_model(folder: Path, method: str) -> None:
    """One of `SMALL`, trained on `EPISODES`."""
    data = TrainingData(episodes=EPISODES, held_out=EPISODES[:2], seed=1)
    options = with_settings(METHODS[method].default_options(), SMALL[method])
    recipe = Recipe(system="provision", method=method, seed=1, about=ABOUT.table())
    write_folder(folder, METHODS[method].train(data, options), recipe, "")
