"""A folder of a trained elastic policy: `recipe.toml`, `networks.safetensors`, `card.md`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from mirage.elastic.baselines import Allocator
from mirage.elastic.network import Networks, flat_networks
from mirage.elastic.observation import PaperEncoder
from mirage.elastic.policy import learned
from mirage.elastic.settings import ElasticSetting
from mirage.errors import InputError
from mirage.libraries import library_versions
from mirage.models.card import card_text
from mirage.models.folder import check_folder, write_folder
from mirage.models.recipe import REMEDY, About, Recipe
from mirage.provision.learn.network_files import check_tensors
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

WEIGHTS, CURVE = "networks.safetensors", "curve.json"
LIBRARIES = ("numpy", "torch")
METHOD = "dl2"
"""The paper's policy."""
LIMITS = (
    "It knows what its setting shows: other loads, clusters and speeds need an evaluation of their"
    " own (docs/elastic.md)."
)


class CurvePoint(NamedTuple):
    """A validation during a training."""

    stage: str
    round: int
    slots: float
    """Mean completion time of the validation sequences."""


@dataclass(frozen=True, kw_only=True)
class ElasticAbout(About):
    """What the policy was trained on, and the shape of its networks."""

    SYSTEM: ClassVar[str] = "elastic"
    setting: str
    teacher: str
    types: tuple[str, ...]
    """Names of the job types, in the order of the paper's one-hot code."""
    places: int
    """J."""
    features: int
    hidden: tuple[int, ...]
    """Units of the layers."""
    knows_speeds: bool

    def problem(self) -> str:
        """See `About`."""
        if self.places < 1 or self.features < 1 or not self.hidden or min(self.hidden) < 1:
            return "places, features and hidden must be above 0"
        return ""


@dataclass(frozen=True, kw_only=True)
class ElasticModel:
    """A policy with its value network."""

    about: ElasticAbout
    networks: Networks
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    curve: Sequence[CurvePoint] = ()
    """How its training went (Figure 10)."""
    references: Mapping[str, float] = field(default_factory=dict)
    """Mean completion time in slots on the same sequences, by scheduler or phase."""

    @property
    def name(self) -> str:
        """The method."""
        return METHOD

    def write(self, folder: Path) -> None:
        """The weights, and the learning curve."""
        save_file(self.networks.state_dict(), folder / WEIGHTS)
        record = {"references": dict(self.references), "curve": [list(each) for each in self.curve]}
        (folder / CURVE).write_text(json.dumps(record) + "\n", encoding="utf-8")

    def allocator(self, *, name: str = "", seed: int | None = None) -> Allocator:
        """The policy in service; ``seed``: samples its actions instead of taking the best."""
        return learned(name or METHOD, self.networks, PaperEncoder(), self.about.places, seed=seed)

    def check(self, setting: ElasticSetting, folder: Path) -> None:
        """Raises InputError where the policy can't be used in this setting."""
        types = tuple(kind.name for kind in setting.world.types)
        if types != self.about.types:
            raise InputError(
                f"{folder}: its job types are {', '.join(self.about.types)}; those of setting"
                f" {setting.name!r} are {', '.join(types)}. Train one for them."
            )


def new_model(
    setting: ElasticSetting, teacher: str, *, hidden: Sequence[int], seed: int
) -> ElasticModel:
    """Untrained, with weights from torch's generator."""
    types = tuple(kind.name for kind in setting.world.types)
    about = ElasticAbout(
        setting=setting.name,
        teacher=teacher,
        types=types,
        places=setting.places,
        features=PaperEncoder().size(len(types)),
        hidden=tuple(hidden),
        knows_speeds=setting.knows_speeds,
    )
    return ElasticModel(about=about, networks=_networks(about), seed=seed)


def _networks(about: ElasticAbout) -> Networks:
    return flat_networks(about.features, about.places, about.hidden)


def save_model(
    folder: Path, model: ElasticModel, *, summary: Sequence[str], facts: Sequence[str]
) -> None:
    """Writes the folder, in place of an older model. Raises InputError."""
    recipe = Recipe(
        system=ElasticAbout.SYSTEM,
        method=METHOD,
        seed=model.seed,
        options=dict(model.options),
        libraries=library_versions(LIBRARIES),
        about=model.about.table(),
    )
    title = f"Elastic policy {METHOD}, setting {model.about.setting}"
    card = card_text(title, summary, {"Training": facts}, LIMITS)
    write_folder(folder, model, recipe, card)


def load_model(folder: Path) -> ElasticModel:
    """Raises InputError for a folder that is no whole, unchanged elastic model."""
    recipe = check_folder(folder, system=ElasticAbout.SYSTEM)
    about = ElasticAbout.of(recipe, folder)
    if recipe.method != METHOD:
        raise InputError(f"{folder}: method {recipe.method!r} is unknown. {REMEDY}.")
    networks = _networks(about)
    try:
        tensors = load_file(folder / WEIGHTS)
        check_tensors(networks, tensors, folder / WEIGHTS)
        networks.load_state_dict(tensors)
    except (RuntimeError, SafetensorError, FileNotFoundError) as error:
        raise InputError(
            f"{folder / WEIGHTS}: not of these networks ({error}). {REMEDY}."
        ) from error
    references, curve = _read_curve(folder / CURVE)
    return ElasticModel(
        about=about,
        networks=networks.eval(),
        seed=recipe.seed,
        options=recipe.options,
        curve=curve,
        references=references,
    )


def _read_curve(path: Path) -> tuple[dict[str, float], list[CurvePoint]]:
    """Raises InputError."""
    try:
        record = parse_json(read_text(path))
        points = [CurvePoint(str(row[0]), int(row[1]), float(row[2])) for row in record["curve"]]
        return {str(name): float(at) for name, at in record["references"].items()}, points
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        raise InputError(f"{path}: no learning curve ({error}). {REMEDY}.") from error


def options_table(options: Any) -> dict[str, Any]:
    """A frozen dataclass of options for the recipe."""
    return asdict(options)
