"""A model folder, `models/<cluster>/<method>/`: `recipe.toml`, weights, `card.md`. Only data,
checked before use.

A folder is written beside its place and then renamed, so it is there in whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Protocol

from mirage.errors import InputError, MirageError
from mirage.models.recipe import RECIPE, REMEDY, Recipe, check_system, parse_recipe, recipe_text
from slurm_sim.files import read_bytes, read_text

CARD = "card.md"
_WEIGHTS = re.compile(r"[a-z0-9][a-z0-9_-]*\.(safetensors|json|toml)")
_BEGINS = {".safetensors": (8, b"{"), ".json": (0, b"{"), ".toml": (0, b"")}
"""Where what stands in a file of this kind: a pickle, or an archive of them, does not get past."""
MOST_WEIGHTS_BYTES = 256 << 20


class Writable(Protocol):
    """What can be put into a folder: a trained model of any system."""

    @property
    def name(self) -> str:
        """Its method, as in the recipe."""

    def write(self, folder: Path) -> None:
        """Its weights, as files in this folder: safetensors, JSON or TOML, never pickle."""


def write_folder(folder: Path, model: Writable, recipe: Recipe, card: str) -> None:
    """Writes a model folder, in place of one that is there. Raises InputError if something else is
    there.
    """
    if model.name != recipe.method:
        raise InputError(
            f"{folder}: the recipe is of method {recipe.method!r}, the model of {model.name!r}."
        )
    check_replaceable(folder)
    with _beside(folder) as fresh:
        model.write(fresh)
        weights = {path.name: _sha256(path.read_bytes()) for path in sorted(fresh.iterdir())}
        for name in weights:
            _check_name(folder, name)
        (fresh / RECIPE).write_text(recipe_text(replace(recipe, weights=weights)), encoding="utf-8")
        (fresh / CARD).write_text(card, encoding="utf-8")
        replace_folder(fresh, folder)


def check_folder(folder: Path, *, system: str | None = None, method: str | None = None) -> Recipe:
    """The recipe of a folder that may be read: of this schema (and system, and method), complete,
    and unchanged since written.

    Raises InputError with what is wrong, where, and what to do.
    """
    recipe = read_recipe(folder)
    if system is not None:
        check_system(recipe, folder, system, method)
    _check_entries(folder, recipe)
    for name, expected in recipe.weights.items():
        _check_weights(folder / name, expected)
    return recipe


def read_recipe(folder: Path) -> Recipe:
    """Raises InputError."""
    path = folder / RECIPE
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a model folder.")
    try:
        if path.is_symlink():
            raise InputError(f"{path}: a symbolic link. {REMEDY}.")
        return parse_recipe(read_text(path), path)
    except FileNotFoundError:
        raise InputError(f"{folder}: no {RECIPE} in it; give a model folder.") from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: can't be read ({error}). {REMEDY}.") from error


def _check_entries(folder: Path, recipe: Recipe) -> None:
    """Exactly the files that the recipe names, and each a plain one."""
    if not recipe.weights:
        raise InputError(f"{folder / RECIPE}: weights: it names none. {REMEDY}.")
    for name in recipe.weights:
        _check_name(folder, name)
    found = {entry.name for entry in folder.iterdir()}
    if missing := sorted(recipe.weights.keys() - found):
        raise InputError(f"{folder / missing[0]}: missing, though {RECIPE} names it. {REMEDY}.")
    if strange := sorted(found - recipe.weights.keys() - {RECIPE, CARD}):
        raise InputError(
            f"{folder / strange[0]}: {RECIPE} does not name it; remove it if it is yours. {REMEDY}."
        )
    for name in sorted(found):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise InputError(f"{path}: not a plain file (a link, a folder, or a device). {REMEDY}.")


def _check_name(folder: Path, name: str) -> None:
    if not _WEIGHTS.fullmatch(name):
        raise InputError(
            f"{folder}: {name!r} is no name of a weight file (small letters, digits, - and _, then"
            " .safetensors, .json or .toml; never pickle, which runs code as it is read)."
            f" {REMEDY}."
        )


def _check_weights(path: Path, expected: str) -> None:
    try:
        content = read_bytes(path, MOST_WEIGHTS_BYTES)
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}). {REMEDY}.") from error
    if _sha256(content) != expected:
        raise InputError(
            f"{path}: truncated or changed since it was written (SHA-256 differs). {REMEDY}."
        )
    place, mark = _BEGINS[path.suffix]
    if content[place : place + len(mark)] != mark:
        raise InputError(
            f"{path}: not a {path.suffix} file, whatever its name says; perhaps a pickle. {REMEDY}."
        )


def _sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def check_replaceable(folder: Path) -> None:
    """A mistyped folder must not cost anyone their files."""
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder}: is there and no folder; give another name.")
    if folder.is_dir() and any(folder.iterdir()) and not (folder / RECIPE).is_file():
        raise InputError(f"{folder}: has files that are no model; give an empty or a new folder.")


@contextlib.contextmanager
def _beside(folder: Path) -> Iterator[Path]:
    """An empty folder on the same file system, which is gone afterwards unless it was renamed."""
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        fresh = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    except OSError as error:
        raise MirageError(f"{folder}: can't be written ({error.strerror}).") from error
    try:
        yield fresh
    finally:
        shutil.rmtree(fresh, ignore_errors=True)


def replace_folder(fresh: Path, folder: Path) -> None:
    """Renames a model folder on the same file system. Raises InputError if something else is there."""
    check_replaceable(folder)
    # mkdtemp's mode is 0700, that of a safetensors file 0600, and the daemon is another user.
    fresh.chmod(0o755)
    for path in fresh.iterdir():
        path.chmod(0o644)
    with _beside(folder) as old:
        if folder.is_dir():
            folder.replace(old)
        try:
            fresh.replace(folder)
        except OSError:
            if (old / RECIPE).exists():
                old.replace(folder)
            raise
