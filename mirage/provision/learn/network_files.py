"""Networks as files: a header `network.json` and tensors in `network.safetensors`, checked against
each other as they are read.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

SCHEMA = 1
HEADER, WEIGHTS = "network.json", "network.safetensors"
T = TypeVar("T")


def write_network(
    folder: Path, header: Mapping[str, Any], network: nn.Module, arrays: Mapping[str, Any]
) -> None:
    """Into an existing folder. ``arrays``: prefix -> a record of arrays, such as a scaling."""
    tensors = {
        name: tensor.detach().cpu().contiguous() for name, tensor in network.state_dict().items()
    }
    for prefix, record in arrays.items():
        for item in fields(record):
            tensors[f"{prefix}.{item.name}"] = torch.from_numpy(
                np.ascontiguousarray(getattr(record, item.name))
            )
    save_file(tensors, folder / WEIGHTS)
    text = json.dumps({"schema": SCHEMA, **header}, indent=2)
    (folder / HEADER).write_text(text + "\n", encoding="utf-8")


def read_header(folder: Path) -> dict[str, Any]:
    """Raises InputError if it is missing, damaged, or of another schema."""
    path = folder / HEADER
    try:
        header = parse_json(read_text(path))
    except FileNotFoundError:
        raise InputError(f"{path} is missing; give a folder that `mirage train` wrote") from None
    except (OSError, ValueError) as error:
        raise InputError(f"{path} can't be read ({error}); train the model again") from None
    if not isinstance(header, dict) or header.get("schema") != SCHEMA:
        found = header.get("schema") if isinstance(header, dict) else None
        raise InputError(
            f"{path} has schema {found!r}, this version reads {SCHEMA}; train the model again"
        )
    if not isinstance(header.get("name"), str):
        raise InputError(f"{path} has no name; train the model again")
    return header


def record_of(kind: type[Any], header: dict[str, Any], key: str, folder: Path) -> Any:
    """A dataclass of the header; raises InputError where fields are missing, unknown, or of another
    type.
    """
    path = folder / HEADER
    values = header.get(key)
    names = {item.name for item in fields(kind)}
    if not isinstance(values, dict) or set(values) != names:
        raise InputError(
            f"{path}: {key} must have exactly {', '.join(sorted(names))}; train the model again"
        )
    wrong = [
        name for name, value in values.items() if type(value) not in _types(getattr(kind(), name))
    ]
    if wrong:
        raise InputError(f"{path}: {key}.{wrong[0]} is {values[wrong[0]]!r}; train the model again")
    try:
        return kind(**values)
    except InputError as error:
        raise InputError(f"{path}: {key}: {error}; train the model again") from None


def _types(default: object) -> tuple[type, ...]:
    """What a field with this default may be."""
    if default is None:
        return (type(None), float, int)
    return (float, int) if isinstance(default, float) else (type(default),)


def read_tensors(folder: Path) -> dict[str, Tensor]:
    """Raises InputError if they are missing or damaged."""
    path = folder / WEIGHTS
    try:
        return load_file(path)
    except FileNotFoundError:
        raise InputError(f"{path} is missing; give a folder that `mirage train` wrote") from None
    except (OSError, SafetensorError) as error:
        raise InputError(f"{path} can't be read ({error}); copy or train the model again") from None


def take_arrays(tensors: dict[str, Tensor], prefix: str, kind: type[T]) -> T:
    """The record of arrays under a prefix, whose tensors are taken out. Raises InputError."""
    found = {
        item.name: tensors.pop(f"{prefix}.{item.name}", torch.empty(0)).numpy()
        for item in fields(kind)  # type: ignore[arg-type]
    }
    return kind(**found)


def fill(network: nn.Module, tensors: dict[str, Tensor], folder: Path) -> None:
    """Puts tensors into a network on the device `meta`, once they are checked: a header that asks
    for a huge network must not get the memory for it. Raises InputError.
    """
    check_tensors(network, tensors, folder / WEIGHTS)
    network.to_empty(device="cpu")
    network.load_state_dict(tensors)
    network.eval()


def check_tensors(network: nn.Module, tensors: dict[str, Tensor], path: Path) -> None:
    """Raises InputError: not this network's, or not all numbers are finite."""
    expected = {name: tensor.shape for name, tensor in network.state_dict().items()}
    if different := sorted(set(expected) ^ set(tensors)):
        state = "missing" if different[0] in expected else "unknown"
        raise InputError(f"{path}: tensor {different[0]} is {state}; train the model again")
    for name, tensor in tensors.items():
        if tensor.shape != expected[name]:
            raise InputError(
                f"{path}: tensor {name} has shape {tuple(tensor.shape)}, the header asks for"
                f" {tuple(expected[name])}"
            )
        if not tensor.is_floating_point() or not torch.isfinite(tensor).all():
            raise InputError(
                f"{path}: tensor {name} has values that are no numbers; train the model again"
            )
