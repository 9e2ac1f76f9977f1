"""A folder of trained agents: `recipe.toml`, `agents.safetensors`, `partitions.json`, `card.md`.
Needs no torch.

The recipe and its checksums are those of all models (`mirage.models.folder`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirage.errors import InputError
from mirage.models.folder import Recipe, check_folder, write_folder
from mirage.routing.agent import Agent, Layer
from mirage.routing.flavors import Flavor, PartitionKind
from mirage.routing.state import Variant
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

METHOD = "routing"
WEIGHTS, PARTITIONS = "agents.safetensors", "partitions.json"


@dataclass(frozen=True)
class RoutingModel:
    """Agents that were trained together, one a partition, in the order in which ties go."""

    agents: tuple[Agent, ...]

    @property
    def name(self) -> str:
        return METHOD

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
    check_folder(folder, METHOD)
    try:
        from safetensors.numpy import load_file
    except ImportError as error:
        raise InputError(
            f"{folder}: to read it, install safetensors (`pip install safetensors`)."
        ) from error
    try:
        kinds = parse_json(read_text(folder / PARTITIONS))["partitions"]
        tensors = load_file(folder / WEIGHTS)
        return RoutingModel(tuple(_agent(dict(kind), tensors) for kind in kinds))
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{folder}: not as `mirage route train` writes it ({error!r}); train it again."
        ) from error


def _agent(kind: dict[str, Any], tensors: dict[str, Any]) -> Agent:
    variant = Variant(kind.pop("variant"))
    flavors = tuple(Flavor(**flavor) for flavor in kind.pop("flavors"))
    made = PartitionKind(**kind, flavors=flavors)
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
    kinds = [agent.kind for agent in agents]
    recipe = Recipe(
        method=METHOD,
        cluster=folder.parent.name or "cluster",
        pool=",".join(kind.name for kind in kinds),
        nodes=sum(kind.servers for kind in kinds),
        trace=lesson,
        trace_sha256="",
        train_s=(0, 0),
        validation_s=(0, 0),
        seed=seed,
        options=facts,
        libraries={"numpy": np.__version__},
    )
    write_folder(folder, RoutingModel(tuple(agents)), recipe, _card(agents, lesson, facts))


def _card(agents: Sequence[Agent], lesson: str, facts: dict[str, Any]) -> str:
    lines = [
        "# Routing agents",
        "",
        f"Trained on {lesson}. Partitions, servers, products an evaluation:",
        "",
    ]
    lines += [
        f"- {a.kind.name}: {a.kind.servers} servers, {a.products} products ({a.variant.value})"
        for a in agents
    ]
    lines += ["", *(f"- {name}: {value}" for name, value in facts.items())]
    lines += [
        "",
        "For partitions of these names and numbers of servers only. See docs/routing.md.",
        "",
    ]
    return "\n".join(lines)
