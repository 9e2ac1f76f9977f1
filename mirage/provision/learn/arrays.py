"""Arrays of numbers in safetensors files, which anyone may have made. The one place that imports
`safetensors.numpy`, as it is needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """By name. Raises InputError: no such file, or no arrays that numpy has (safetensors has more
    kinds).
    """
    from safetensors import SafetensorError
    from safetensors.numpy import load_file

    try:
        arrays: dict[str, NDArray[Any]] = load_file(path)
    except (OSError, SafetensorError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise InputError(
            f"{path}: not the weights of a model ({error}); train the model again."
        ) from error
    if strange := [name for name, array in arrays.items() if array.dtype.kind not in "biuf"]:
        raise InputError(f"{path}: {strange[0]}: no numbers; train the model again.")
    return arrays


def write_arrays(path: Path, arrays: Mapping[str, NDArray[Any]]) -> None:
    from safetensors.numpy import save_file

    save_file({name: np.ascontiguousarray(array) for name, array in arrays.items()}, path)
