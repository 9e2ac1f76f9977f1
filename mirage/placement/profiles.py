"""The networks that simulated jobs train: FLOPs of an example and size of the gradient.

Data with origin and licence: `data/README.md`.
"""

from __future__ import annotations

import csv
import math
from dataclasses import dataclass
from importlib import resources
from typing import Literal

from mirage.errors import InputError


@dataclass(frozen=True, kw_only=True)
class Profile:
    """A network."""

    name: str
    flops_per_example: float
    """FLOPs of a forward pass, a multiply-add counted once."""
    gradient_mb: float
    """Size of all parameters in single precision."""


ProfileSet = Literal["convnet-burden", "torchvision"]
PROFILE_SETS: tuple[ProfileSet, ...] = ("convnet-burden", "torchvision")
"""The paper's 35 CNNs (its reference 12), and 80 models of torchvision with exact figures."""

_COLUMNS = {
    "convnet-burden": ("model", "flops_forward_per_example_fma_as_one", "param_mem_mb", 1.0),
    "torchvision": ("model", "giga_macs_forward_per_image", "weights_file_size_mb", 1e9),
}


def profiles(name: ProfileSet) -> tuple[Profile, ...]:
    """The profiles of a set, in its file's order. Raises InputError for a set that is not there."""
    if name not in _COLUMNS:
        raise InputError(f"profiles {name!r}: there are {', '.join(PROFILE_SETS)}")
    model, flops, size, factor = _COLUMNS[name]
    text = resources.files("mirage.placement").joinpath("data", f"{name}.csv").read_text()
    found = []
    for row in csv.DictReader(text.splitlines()):
        profile = Profile(
            name=row[model],
            flops_per_example=float(row[flops]) * factor,
            gradient_mb=float(row[size]),
        )
        if not (math.isfinite(profile.flops_per_example) and profile.flops_per_example > 0):
            raise InputError(f"profiles {name!r}: {profile.name} has no FLOPs")
        found.append(profile)
    return tuple(found)
