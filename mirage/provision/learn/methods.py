"""The methods that learn, by name. torch, xgboost and scikit-learn are imported when one that needs
them is used.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from mirage.errors import InputError
from mirage.models.folder import check_folder
from mirage.models.recipe import Recipe
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.episode import Episode
from mirage.provision.learn.model import Model

EXTRA = "pip install 'mirage-slurm[train]'"


@dataclass(frozen=True)
class Method:
    """Where its functions are: names of modules of `mirage.provision.learn`, and of what is in
    them.
    """

    name: str
    module: str
    trainer: str
    """Called as `train(episodes, validation, options, fresh, progress, seed)`."""
    reader_module: str
    reader: str
    options: Callable[[Any], Any]
    """Its default options, of the module."""
    stops_early: bool = True
    """Whether it needs episodes held out of the training part; else it learns from those too."""

    def default_options(self) -> Any:
        """A dataclass; `dataclasses.replace` changes it, `asdict` makes it part of the recipe."""
        return self.options(_module(self, self.module))

    def train(
        self,
        train: Sequence[Episode],
        validation: Sequence[Episode],
        options: Any = None,
        fresh: Sequence[Episode] | None = None,
        progress: Callable[[Any], None] | None = None,
        seed: int = 0,
        **more: Any,
    ) -> Model:
        """``validation``: episodes of held-out weeks of the training months, to stop early by;
        never those that a result is quoted on. ``fresh``: what heads go on with online. ``more``:
        what only some methods take, as ``base`` of the neural ones. Raises InputError.
        """
        options = self.default_options() if options is None else options
        trainer = getattr(_module(self, self.module), self.trainer)
        with _packages_of(self):
            model: Model = trainer(
                train, validation, options, fresh=fresh, progress=progress, seed=seed, **more
            )
        return model

    def read(self, folder: Path) -> Model:
        """The weights, as the method wrote them; `read_model` checks the folder first. Raises
        InputError.
        """
        model: Model = getattr(_module(self, self.reader_module), self.reader)(folder)
        return model


class Trained(NamedTuple):
    """What a model folder holds."""

    model: Model
    recipe: Recipe
    about: ProvisionAbout


def _neural(name: str, module: str, trainer: str, options: Callable[[Any], Any]) -> Method:
    return Method(name, module, trainer, "neural", "read", options)


METHODS: dict[str, Method] = {
    method.name: method
    for method in (
        Method(
            "random-forest",
            "trees",
            "train_random_forest",
            "trees",
            "read_random_forest",
            lambda m: m.ForestOptions(),
            stops_early=False,
        ),
        Method(
            "xgboost",
            "trees",
            "train_xgboost",
            "trees",
            "read_xgboost",
            lambda m: m.BoostingOptions(),
            stops_early=False,
        ),
        Method(
            "quantile",
            "quantile",
            "train_quantile",
            "quantile",
            "read",
            lambda m: m.QuantileOptions(),
            False,
        ),
        _neural("transformer", "pretrain", "train_supervised", lambda m: m.PretrainOptions()),
        _neural("moe", "pretrain", "train_supervised", lambda _: _moe()),
        _neural("transformer-dqn", "dqn", "train_dqn", lambda m: m.DqnOptions()),
        _neural("moe-dqn", "dqn", "train_dqn", lambda m: m.DqnOptions(pretrain=_moe(), rounds=20)),
        _neural("transformer-pg", "pg", "train_pg", lambda m: m.PgOptions()),
        _neural("moe-pg", "pg", "train_pg", lambda m: _of_ten(m.PgOptions)),
    )
}
"""Those that learn from episodes and decide by the state; ten experts cost six times as much a
round as one, so their heads get half the rounds. `lookahead` learns from a trace:
`mirage.provision.learn.futures`.
"""


def _of_ten(options: Any) -> Any:
    """Of a P-head on ten experts: longer warmed up, and carefully. At a single one's pace it
    unlearns to release.
    """
    return options(pretrain=_moe(), rounds=40, patience=20, warm=40, rate=2e-4)


def _moe() -> Any:
    """The options of pretraining, of ten experts."""
    from mirage.provision.learn.pretrain import MOE_OPTIONS

    return MOE_OPTIONS


def read_model(folder: Path, method: str | None = None) -> Trained:
    """A checked model folder (`folder.check_folder`), of this method if one is given. Raises
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
    return Trained(model, recipe, about)


def _module(method: Method, name: str) -> Any:
    with _packages_of(method):
        return import_module(f"mirage.provision.learn.{name}")


@contextmanager
def _packages_of(method: Method) -> Iterator[None]:
    """Raises InputError with what to install, where a package is missing."""
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name is None or error.name.startswith("mirage"):
            raise
        raise InputError(
            f"Method {method.name} needs the package {error.name}; install it: {EXTRA}."
        ) from error
