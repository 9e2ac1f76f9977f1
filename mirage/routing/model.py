"""A folder of trained agents: `recipe.toml`, `agents.safetensors`, `partitions.json`, `card.md`.
Needs no torch.

The recipe and its checksums are those of all models (`mirage.models`).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from mirage.errors import InputError
from mirage.libraries import library_versions
from mirage.models.card import card_text
from mirage.models.folder import check_folder, read_recipe, write_folder
from mirage.models.recipe import About, Recipe
from mirage.routing.agent import Agent, Layer
from mirage.routing.flavors import Flavor, PartitionKind
from mirage.routing.state import Variant
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

METHOD = "dqn"
LIBRARIES = ("numpy", "torch")
LIMITS = "For partitions of these names and numbers of servers only. See docs/routing.md."
WEIGHTS, PARTITIONS = "agents.safetensors", "partitions.json"


@dataclass(frozen=True, kw_only=True)
class RoutingAbout(About):
    """What the agents were trained on, and where they may be used."""

    SYSTEM: ClassVar[str] = "routing"
    lesson: str
    """What they were trained on, in words."""
    servers: Mapping[str, int]
    """Partition -> number of its servers; the agents are for these only."""
    proof: str = ""
    """That they help on the site's own jobs, in words (`proof.prove_on_history`); empty: no proof."""

    def problem(self) -> str:
        few = [name for name, count in self.servers.items() if count < 1]
        return f"servers: {few[0]}: expected at least 1, got {self.servers[few[0]]}" if few else ""


@dataclass(frozen=True)
class RoutingModel:
    """Agents that were trained together, one a partition, in the order in which ties go."""

    agents: tuple[Agent, ...]
    proof: str = ""
    """As `RoutingAbout.proof`."""

    @property
    def name(self) -> str:
        return METHOD

    @property
    def needs_proof(self) -> bool:
        """Whether they keep jobs off partitions: on another site's jobs such agents can do harm."""
        return self.agents[0].variant is Variant.CHOICE

    def write(self, folder: Path) -> None:
        from safetensors.numpy import save_file

        tensors = {}
        for agent in self.agents:
            for number, layer in enumerate(agent.layers):
                tensors[f"{agent.kind.name}.{number}.weight"] = np.array(layer.weights, np.float32)
                tensors[f"{agent.kind.name}.{number}.bias"] = np.array(layer.bias, np.float32)
        save_file(tensors, folder / WEIGHTS)
        (folder / WEIGHTS).chmod(0o644)
        kinds = [asdict(agent.kind) | {"variant": agent.variant.value} for agent in self.agents]
        (folder / PARTITIONS).write_text(
            json.dumps({"partitions": kinds}, indent=1) + "\n", encoding="utf-8"
        )


def read_model(folder: Path) -> RoutingModel:
    """Raises InputError: not a routing model, changed, of another schema, NaN in it, or no
    safetensors installed.
    """
    recipe = check_folder(folder, system=RoutingAbout.SYSTEM, method=METHOD)
    about = RoutingAbout.of(recipe, folder)
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise InputError(
            f"{folder}: to read it, install safetensors (`pip install safetensors`)."
        ) from error
    try:
        kinds = parse_json(read_text(folder / PARTITIONS))["partitions"]
        tensors = load_file(folder / WEIGHTS)
        return RoutingModel(tuple(_agent(dict(kind), tensors) for kind in kinds), about.proof)
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder}: not as `mirage route train` writes it ({error!r}); train it again."
        ) from error


def _agent(kind: dict[str, Any], tensors: dict[str, Any]) -> Agent:
    variant = Variant(kind.pop("variant"))
    flavors = tuple(Flavor(**flavor) for flavor in kind.pop("flavors"))
    speeds = tuple(kind.pop("speeds"))
    made = PartitionKind(**kind, flavors=flavors, speeds=speeds)
    count = sum(name.startswith(f"{made.name}.") and name.endswith(".bias") for name in tensors)
    return Agent(
        made, variant, tuple(_layer(tensors, f"{made.name}.{number}") for number in range(count))
    )


def _layer(tensors: dict[str, Any], name: str) -> Layer:
    rows = tensors[f"{name}.weight"].astype(float).tolist()
    return Layer(tuple(map(tuple, rows)), tuple(tensors[f"{name}.bias"].astype(float).tolist()))


def save_model(
    folder: Path, agents: Sequence[Agent], lesson: str, seed: int, facts: dict[str, Any]
) -> None:
    """Writes a model folder. ``lesson``: what it was trained on. Raises InputError, MirageError."""
    servers = {agent.kind.name: agent.kind.servers for agent in agents}
    recipe = Recipe(
        system=RoutingAbout.SYSTEM,
        method=METHOD,
        seed=seed,
        options=facts,
        libraries=library_versions(LIBRARIES),
        about=RoutingAbout(lesson=lesson, servers=servers).table(),
    )
    write_folder(folder, RoutingModel(tuple(agents)), recipe, _card(agents, recipe))


def record_proof(folder: Path, proof: str) -> None:
    """Puts the proof into a model folder, in place of an earlier one; empty: takes it out. Raises
    InputError, MirageError.
    """
    model = replace(read_model(folder), proof=proof)
    recipe = read_recipe(folder)
    about = replace(RoutingAbout.of(recipe, folder), proof=proof)
    recipe = replace(recipe, about=about.table())
    write_folder(folder, model, recipe, _card(model.agents, recipe))


def _card(agents: Sequence[Agent], recipe: Recipe) -> str:
    lesson, proof = recipe.about["lesson"], recipe.about["proof"]
    summary = f"Trained on {lesson}. All options, versions and checksums: `recipe.toml`."
    site = f"On the site's own jobs: {proof or 'no proof yet, so they are not published'}."
    partitions = [
        f"- {a.kind.name}: {a.kind.servers} servers, {a.products} products ({a.variant.value})"
        for a in agents
    ]
    sections = {
        "Partitions": partitions,
        "Options": [f"- {name}: {value}" for name, value in recipe.options.items()],
    }
    return card_text("Routing agents", [summary, site], sections, LIMITS)
