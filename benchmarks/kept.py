"""Results of long computations, kept in files that are named by what they were computed from."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from slurm_sim.files import replacing

Arrays = Mapping[str, Any]


def checksum(folders: Sequence[Path], settings: Any) -> str:
    """12 hexadecimal digits of every file in these folders and of the settings (JSON; what it
    does not know counts by its `str`). A folder that is not there counts as empty.
    """
    digest = hashlib.sha256(json.dumps(settings, sort_keys=True, default=str).encode())
    for folder in folders:
        for file in sorted(folder.glob("[!.]*")):
            digest.update(f"{folder.name}/{file.name}".encode())
            digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()[:12]


def kept(file: Path, compute: Callable[[], Arrays]) -> dict[str, Any]:
    """The arrays of this npz file. If it is not there they are computed, and it is written whole or
    not at all.
    """
    if not file.exists():
        arrays = compute()
        file.parent.mkdir(exist_ok=True)
        with replacing(file) as fresh, fresh.open("wb") as out:
            np.savez(out, **arrays)
    with np.load(file) as found:
        return dict(found)
