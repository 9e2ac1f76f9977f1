"""A folder of a trained placement agent: weights, learning curve, recipe and card."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, ClassVar

from mirage.errors import InputError
from mirage.libraries import library_versions
from mirage.models.card import card_text, markdown_table
from mirage.models.folder import check_folder, write_folder
from mirage.models.recipe import About, Recipe
from mirage.placement.image import Image
from mirage.placement.learning import CurvePoint, PaperOptions, Training
from mirage.placement.paper import PaperNetwork
from mirage.placement.setting import PlacementSetting
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

LIBRARIES = ("numpy", "torch")
NETWORK, CURVE, IMAGE = "network.safetensors", "curve.json", "image.json"
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
    curve: Sequence[CurvePoint]
    name: ClassVar[str] = "paper"

    def write(self, folder: Path) -> None:
        from safetensors.torch import save_file

        save_file(dict(self.network.state_dict()), folder / NETWORK)
        write_json(folder / IMAGE, asdict(self.network.image))
        write_json(folder / CURVE, {"points": [asdict(point) for point in self.curve]})


def write_json(path: Path, content: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def save_paper(
    folder: Path,
    training: Training,
    setting: PlacementSetting,
    options: PaperOptions,
    *,
    seed: int,
) -> None:
    """Writes a model folder, in place of one that is there. Raises InputError, MirageError."""
    last = training.curve[-1]
    about = PlacementAbout(setting=setting.facts(), env_steps=last.env_steps)
    recipe = Recipe(
        system=PlacementAbout.SYSTEM,
        method=PaperModel.name,
        seed=seed,
        options=asdict(options),
        libraries=library_versions(LIBRARIES),
        about=about.table(),
    )
    card = paper_card(training.curve, setting)
    write_folder(folder, PaperModel(training.network, training.curve), recipe, card)


def paper_card(curve: Sequence[CurvePoint], setting: PlacementSetting) -> str:
    facts = setting.facts()
    summary = (
        f"The paper's agent for {facts['gpus']} GPUs, trained on {curve[-1].sequences} job"
        f" sequences ({curve[-1].env_steps:,} time steps) in {curve[-1].seconds / 60:.0f} minutes."
        " All options, versions and checksums: `recipe.toml`."
    )
    rows = [
        (each.sequences, f"{each.test_reward:,.0f}", f"{each.test_slowdown:.1f}")
        for each in curve[:: max(1, len(curve) // 8)]
    ]
    head = ("training sequences", "mean reward (eq. 16)", "mean slowdown (eq. 17)")
    sections = {
        "Setting": [f"- {name}: {value}" for name, value in facts.items()],
        "On separate sequences": markdown_table(head, rows),
    }
    return card_text("Placement agent", [summary], sections, LIMITS)


def read_paper(folder: Path) -> PaperModel:
    """Raises InputError."""
    recipe = check_folder(folder, system=PlacementAbout.SYSTEM, method=PaperModel.name)
    PlacementAbout.of(recipe, folder)
    try:
        from safetensors.torch import load_file

        network = PaperNetwork(Image(**parse_json(read_text(folder / IMAGE))))
        network.load_state_dict(load_file(folder / NETWORK))
        points = parse_json(read_text(folder / CURVE))["points"]
        return PaperModel(network, [CurvePoint(**point) for point in points])
    except (KeyError, TypeError, ValueError, RuntimeError) as error:
        raise InputError(
            f"{folder}: not as `mirage place train` writes it ({error!r}); train it again."
        ) from error
