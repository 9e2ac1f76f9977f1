"""Snapshots: parameters and optimiser state of slices in safetensors files, and the final model."""

from __future__ import annotations

import hashlib
import os
import secrets
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import safetensors.numpy
from numpy.typing import NDArray

from mirage.elastic.runtime import folder, layout
from mirage.elastic.runtime.protocol import SavedSlices, TrainingJob
from mirage.errors import MirageError, system_says

PARAMETER = "parameter"
"""The buffer of a slice that holds its parameters; all other buffers are optimiser state."""

Array = NDArray[np.float32]
Buffers = dict[str, Array]


def write_part(path: Path, file: str, slices: Mapping[int, Mapping[str, Array]]) -> SavedSlices:
    """Writes a file of a snapshot durably. `slices`: the buffers of each slice by name.

    Raises MirageError: the disk is full, or so.
    """
    content = safetensors.numpy.save(
        {
            f"{index}.{name}": np.ascontiguousarray(values)
            for index, buffers in slices.items()
            for name, values in buffers.items()
        }
    )
    _write(path / folder.SNAPSHOTS / file, content)
    digest = hashlib.sha256(content).hexdigest()
    return SavedSlices(file=file, slices=tuple(sorted(slices)), sha256=digest)


def _write(path: Path, content: bytes) -> None:
    mine = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        descriptor = os.open(mine, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        folder.publish(mine, path)
    except OSError as error:
        mine.unlink(missing_ok=True)
        raise MirageError(f"{system_says(error, path)}. Make room, then start it again.") from None


def read_parts(
    path: Path, parts: Sequence[SavedSlices], wanted: Iterable[int]
) -> dict[int, Buffers]:
    """The buffers of these slices. Raises MirageError: a file is missing or changed, or a slice is
    in none of them.
    """
    wanted = set(wanted)
    found: dict[int, Buffers] = {}
    for part in parts:
        if not wanted.isdisjoint(part.slices):
            tensors = _read(path / folder.SNAPSHOTS / part.file, part.sha256)
            for key, values in tensors.items():
                index, _, name = key.partition(".")
                if int(index) in wanted:
                    found.setdefault(int(index), {})[name] = values
    if missing := wanted - found.keys():
        raise MirageError(f"{path / folder.SNAPSHOTS}: no file has slice {min(missing)}.")
    return found


def _read(path: Path, sha256: str) -> dict[str, Any]:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MirageError(f"{system_says(error, path)}. Restore it from a copy.") from None
    if hashlib.sha256(content).hexdigest() != sha256:
        raise MirageError(f"{path}: not as it was written. Restore it from a copy.")
    return safetensors.numpy.load(content)


def write_model(path: Path, job: TrainingJob, parts: Sequence[SavedSlices]) -> None:
    """Writes `model.safetensors`: the model's parameters by name, from a complete snapshot."""
    slices = layout.cut(job)
    buffers = read_parts(path, parts, range(len(slices)))
    flat = np.concatenate([buffers[index][PARAMETER] for index in range(len(slices))])
    tensors, start = {}, 0
    for parameter in sorted(job.parameters, key=lambda each: each.group):
        tensors[parameter.name] = flat[start : start + parameter.size].reshape(parameter.shape)
        start += parameter.size
    _write(path / folder.MODEL, safetensors.numpy.save(tensors))


def read_model(path: Path, job: TrainingJob) -> Array:
    """The flat parameters of a finished job. Raises MirageError: there is no such file."""
    try:
        tensors = safetensors.numpy.load((path / folder.MODEL).read_bytes())
    except OSError as error:
        raise MirageError(f"{system_says(error, path)}. Restore it from a copy.") from None
    ordered = sorted(job.parameters, key=lambda each: each.group)
    return np.concatenate([tensors[each.name].reshape(-1) for each in ordered])


def remove_old(path: Path, keep: Sequence[SavedSlices], version: int) -> None:
    """Removes what a complete snapshot of this version makes useless; never what it consists of."""
    names = {part.file for part in keep}
    for file in (path / folder.SNAPSHOTS).glob("v*.safetensors"):
        if file.name not in names and int(file.name[1:].partition("-")[0]) <= version:
            file.unlink(missing_ok=True)


def new_file_name(version: int) -> str:
    """Of one server's part: never used twice, since a manifest may name the earlier file."""
    return f"v{version}-{secrets.token_hex(8)}.safetensors"
