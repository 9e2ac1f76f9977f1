"""Arrays of numbers from a safetensors file that anyone may have made."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from numpy.typing import NDArray
from safetensors import SafetensorError
from safetensors.numpy import load_file

from mirage.errors import InputError


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """By name. Raises InputError: no such file, or no arrays that numpy has (safetensors has more
    kinds).
    """
    try:
        arrays: dict[str, NDArray[Any]] = load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: not the weights of a model ({error}); train the model again."
        ) from error
    if strange := [name for name, array in arrays.items() if array.dtype.kind not in "biuf"]:
        raise InputError(f"{path}: {strange[0]}: no numbers; train the model again.")
    return arrays
