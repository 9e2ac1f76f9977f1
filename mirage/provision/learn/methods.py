"""The methods that learn from episodes, by name. A new one is one file and one line here."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from mirage.errors import InputError
from mirage.models.folder import check_folder
from mirage.models.recipe import Recipe
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.method import Method
from mirage.provision.learn.model import Model
from mirage.provision.learn.networks import NETWORKS
from mirage.provision.learn.quantile import QuantileMethod
from mirage.provision.learn.trees import RandomForestMethod, XgboostMethod

_ALL: tuple[Method[Any], ...] = (
    RandomForestMethod(),
    XgboostMethod(),
    QuantileMethod(),
    *NETWORKS,
)
METHODS = {method.name: method for method in _ALL}
"""Heads stand after their foundations."""


class TrainedModel(NamedTuple):
    """What a model folder holds."""

    model: Model
    recipe: Recipe
    about: ProvisionAbout


def read_model(folder: Path, method: str | None = None) -> TrainedModel:
    """A checked model folder (`mirage.models.folder`), of this method if one is given. Raises
    InputError.
    """
    recipe = check_folder(folder, system=ProvisionAbout.SYSTEM, method=method)
    about = ProvisionAbout.of(recipe, folder)
    if recipe.method not in METHODS:
        raise InputError(f"{folder}: method {recipe.method!r} is none of {', '.join(METHODS)}.")
    model = METHODS[recipe.method].read(folder)
    if model.name != recipe.method:
        raise InputError(
            f"{folder}: the recipe is of method {recipe.method!r}, the weights of {model.name!r}."
        )
    return TrainedModel(model, recipe, about)
