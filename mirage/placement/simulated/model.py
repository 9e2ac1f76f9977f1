"""A folder of a trained placement agent: weights, learning curve, recipe and card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from torch import nn

from mirage.errors import InputError
from mirage.libraries import library_versions
from mirage.models.card import card_text, markdown_table
from mirage.models.folder import check_folder, write_folder
from mirage.models.recipe import About, Recipe
from mirage.placement.simulated.image import Image
from mirage.placement.simulated.learning import PaperCurvePoint, PaperOptions
from mirage.placement.simulated.paper import PaperNetwork
from mirage.placement.simulated.setting import PlacementSetting
from mirage.provision.learn.network_files import check_tensors
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

LIBRARIES = ("numpy", "torch")
NETWORK, CURVE, SHAPE = "network.safetensors", "curve.json", "shape.json"
LIMITS = (
    "Trained on simulated jobs with the paper's model of speed. See docs/placement.md for how far"
    " that model is from measurements."
)


@dataclass(frozen=True, kw_only=True)
class PlacementAbout(About):
    """What the agent was trained on."""

    SYSTEM: ClassVar[str] = "placement"
    setting: Mapping[str, Any]
    """`PlacementSetting.facts`."""
    env_steps: int
    """Time steps of all training episodes."""


@dataclass(frozen=True)
class PaperModel:
    """The paper's agent as a model folder."""

    network: PaperNetwork
    curve: Sequence[PaperCurvePoint]
    name: ClassVar[str] = "paper"

    def write(self, folder: Path) -> None:
        _write_network(folder, self.network, self.curve)
        _write_json(folder / SHAPE, asdict(self.network.image))

    @property
    def card(self) -> tuple[str, Sequence[str]]:
        last = self.curve[-1]
        rows = [
            (each.sequences, f"{each.test_reward:,.0f}", f"{each.test_slowdown:.1f}")
            for each in _some(self.curve)
        ]
        head = ("training sequences", "mean reward (eq. 16)", "mean slowdown (eq. 17)")
        summary = (
            f"The paper's agent for {self.network.image.gpus} GPUs, trained on {last.sequences}"
            f" job sequences ({last.env_steps:,} time steps) in {last.seconds / 60:.0f} minutes."
        )
        return summary, markdown_table(head, rows)


def _some(curve: Sequence[Any]) -> Sequence[Any]:
    """About ten of the points."""
    return curve[:: max(1, len(curve) // 10)]


def _write_network(folder: Path, network: nn.Module, curve: Sequence[Any]) -> None:
    from safetensors.torch import save_file

    save_file(dict(network.state_dict()), folder / NETWORK)
    _write_json(folder / CURVE, {"points": [asdict(point) for point in curve]})


def _write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def save_model(
    folder: Path,
    model: PaperModel,
    setting: PlacementSetting,
    options: PaperOptions,
    *,
    seed: int,
) -> None:
    """Writes a model folder, in place of one that is there. Raises InputError, MirageError."""
    about = PlacementAbout(setting=setting.facts(), env_steps=model.curve[-1].env_steps)
    recipe = Recipe(
        system=PlacementAbout.SYSTEM,
        method=model.name,
        seed=seed,
        options=asdict(options),
        libraries=library_versions(LIBRARIES),
        about=about.table(),
    )
    summary, table = model.card
    sections = {
        "Setting": [f"- {name}: {value}" for name, value in about.setting.items()],
        "On sequences apart from the training's": table,
    }
    more = "All options, versions and checksums: `recipe.toml`."
    card = card_text("Placement agent", [summary, more], sections, LIMITS)
    write_folder(folder, model, recipe, card)


def trained_setting(folder: Path) -> Mapping[str, Any]:
    """`PlacementSetting.facts` of the training. Raises InputError."""
    return PlacementAbout.of(check_folder(folder, system=PlacementAbout.SYSTEM), folder).setting


def read_model(folder: Path) -> PaperModel:
    """Raises InputError."""
    recipe = check_folder(folder, system=PlacementAbout.SYSTEM)
    PlacementAbout.of(recipe, folder)
    if recipe.method != PaperModel.name:
        raise InputError(
            f"{folder}: a model of method {recipe.method!r}; mirage knows {PaperModel.name!r}: train it again."
        )
    try:
        shape = parse_json(read_text(folder / SHAPE))
        points = parse_json(read_text(folder / CURVE))["points"]
        paper = _filled(PaperNetwork(Image(**shape)), folder)
        return PaperModel(paper, [PaperCurvePoint(**point) for point in points])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{folder}: not as `mirage place train` writes it ({error!r}); train it again."
        ) from error


def _filled(network: PaperNetwork, folder: Path) -> PaperNetwork:
    from safetensors.torch import load_file

    tensors = load_file(folder / NETWORK)
    check_tensors(network, tensors, folder / NETWORK)
    network.load_state_dict(tensors)
    return network
