"""A model folder, `models/<cluster>/<method>/`: `recipe.toml`, weights, `card.md`. Only data,
checked before use.

The recipe says how the model was made, the SHA-256 of every weight file, and that of its own other
lines: by its ranges, pool and nodes the service tells where the model can be trusted. A folder is
written beside its place and then renamed, so it is there in whole or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import math
import re
import shutil
import tempfile
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Protocol

from mirage.errors import InputError, MirageError
from slurm_sim.files import read_bytes, read_text
from slurm_sim.formats import parse_toml

SCHEMA = 2
"""Of the recipe and of what the weights are applied to; a change that makes old folders useless
raises it.
"""
RECIPE, CARD = "recipe.toml", "card.md"
_WEIGHTS = re.compile(r"[a-z0-9][a-z0-9_-]*\.(safetensors|json|toml)")
_BEGINS = {".safetensors": (8, b"{"), ".json": (0, b"{"), ".toml": (0, b"")}
"""Where what stands in a file of this kind: a pickle, or an archive of them, does not get past."""
MOST_WEIGHTS_BYTES = 256 << 20
_ABOUT = (
    "# How this model was made (docs/learning.md). `mirage train` wrote it; a change makes it"
    " unreadable."
)
_AGAIN = "Train the model again (`mirage train`), or get it anew"


class Written(Protocol):
    """What can be put into a folder: `mirage.provision.learn.model.Model`, and what look-ahead
    learns.
    """

    @property
    def name(self) -> str: ...

    def write(self, folder: Path) -> None: ...


@dataclass(frozen=True)
class Recipe:
    """How a model was made: enough to make it again, and to tell where it may be used. Times are
    Unix seconds.
    """

    method: str
    cluster: str
    """The cluster's name,"""
    pool: str
    """that of the partitions that share nodes (`Snapshot.pool_of`),"""
    nodes: int
    """and how many nodes these have."""
    trace: str
    """File name of the job history,"""
    trace_sha256: str
    train_s: tuple[int, int]
    """and the part that was learnt from; begin, end."""
    validation_s: tuple[int, int]
    """The part that the card's results are of."""
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Name -> version, as trained."""
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    """Of the inputs, in training (`ranges.py`)."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """File name -> SHA-256; filled in by `write_folder`."""


def write_folder(folder: Path, model: Written, recipe: Recipe, card: str) -> None:
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
        _put(fresh, folder)


def check_folder(folder: Path, method: str | None = None) -> Recipe:
    """The recipe of a folder that may be read: of this schema (and method), complete, and unchanged
    since written.

    Raises InputError with what is wrong, where, and what to do.
    """
    recipe = read_recipe(folder)
    if method is not None and recipe.method != method:
        raise InputError(
            f"{folder}: a model of method {recipe.method!r}, not {method!r}; give that one's"
            " folder."
        )
    _check_entries(folder, recipe)
    for name, expected in recipe.weights.items():
        _check_weights(folder / name, expected)
    return recipe


def read_recipe(folder: Path) -> Recipe:
    """Raises InputError."""
    path = folder / RECIPE
    if not folder.is_dir():
        raise InputError(f"{folder}: no such folder; give a folder that `mirage train` wrote.")
    try:
        if path.is_symlink():
            raise InputError(f"{path}: a symbolic link. {_AGAIN}.")
        return _recipe(read_text(path), path)
    except FileNotFoundError:
        raise InputError(
            f"{folder}: no {RECIPE} in it; give a folder that `mirage train` wrote."
        ) from None
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
        raise InputError(f"{path}: can't be read ({error}). {_AGAIN}.") from error


def _recipe(text: str, path: Path) -> Recipe:
    record = parse_toml(text)
    if record.pop("schema", None) != SCHEMA:
        raise InputError(f"{path}: schema: this version of Mirage reads {SCHEMA}. {_AGAIN}.")
    lines = text.split("\n", 2)
    if len(lines) < 3 or text != sealed(lines[0], lines[2]):
        raise InputError(f"{path}: changed since it was written (SHA-256 differs). {_AGAIN}.")
    record.pop("sha256", None)
    recipe = _typed(record, path)
    _check_values(recipe, path)
    return recipe


def _typed(record: dict[str, Any], path: Path) -> Recipe:
    known = {item.name: str(item.type) for item in fields(Recipe)}
    if wrong := sorted(known.keys() ^ record.keys()):
        what = "missing" if wrong[0] in known else "unknown key"
        raise InputError(f"{path}: {wrong[0]}: {what}. {_AGAIN}.")
    for name, kind in known.items():
        if not _is(record[name], kind):
            raise InputError(f"{path}: {name}: expected {kind}, got {record[name]!r}. {_AGAIN}.")
        if kind.startswith("tuple"):
            record[name] = tuple(record[name])
    record["ranges"] = {name: tuple(bounds) for name, bounds in record["ranges"].items()}
    return Recipe(**record)


def _check_values(recipe: Recipe, path: Path) -> None:
    if recipe.nodes < 1:
        raise InputError(f"{path}: nodes: expected at least 1, got {recipe.nodes}. {_AGAIN}.")
    for name, (low, high) in recipe.ranges.items():
        if not -math.inf < low <= high < math.inf:
            raise InputError(
                f"{path}: ranges: {name}: expected finite numbers, the lesser first. {_AGAIN}."
            )


def _is(value: Any, kind: str) -> bool:
    if kind == "tuple[int, int]":
        return _is_pair(value, int)
    if kind == "Mapping[str, tuple[float, float]]":
        return isinstance(value, dict) and all(
            _is_pair(each, int | float) for each in value.values()
        )
    if kind == "Mapping[str, str]":
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return isinstance(value, {"str": str, "int": int}.get(kind, dict)) and not isinstance(
        value, bool
    )


def _is_pair(value: Any, kind: Any) -> bool:
    return (
        isinstance(value, list)
        and len(value) == 2
        and all(isinstance(each, kind) for each in value)
    )


def _check_entries(folder: Path, recipe: Recipe) -> None:
    """Exactly the files that the recipe names, and each a plain one."""
    if not recipe.weights:
        raise InputError(f"{folder / RECIPE}: weights: it names none. {_AGAIN}.")
    for name in recipe.weights:
        _check_name(folder, name)
    found = {entry.name for entry in folder.iterdir()}
    if missing := sorted(recipe.weights.keys() - found):
        raise InputError(f"{folder / missing[0]}: missing, though {RECIPE} names it. {_AGAIN}.")
    if strange := sorted(found - recipe.weights.keys() - {RECIPE, CARD}):
        raise InputError(
            f"{folder / strange[0]}: {RECIPE} does not name it; remove it if it is yours. {_AGAIN}."
        )
    for name in sorted(found):
        path = folder / name
        if path.is_symlink() or not path.is_file():
            raise InputError(f"{path}: not a plain file (a link, a folder, or a device). {_AGAIN}.")


def _check_name(folder: Path, name: str) -> None:
    if not _WEIGHTS.fullmatch(name):
        raise InputError(
            f"{folder}: {name!r} is no name of a weight file (small letters, digits, - and _, then"
            " .safetensors, .json or .toml; never pickle, which runs code as it is read)."
            f" {_AGAIN}."
        )


def _check_weights(path: Path, expected: str) -> None:
    try:
        content = read_bytes(path, MOST_WEIGHTS_BYTES)
    except OSError as error:
        raise InputError(f"{path}: can't be read ({error.strerror}). {_AGAIN}.") from error
    if _sha256(content) != expected:
        raise InputError(
            f"{path}: truncated or changed since it was written (SHA-256 differs). {_AGAIN}."
        )
    place, mark = _BEGINS[path.suffix]
    if content[place : place + len(mark)] != mark:
        raise InputError(
            f"{path}: not a {path.suffix} file, whatever its name says; perhaps a pickle. {_AGAIN}."
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


def _put(fresh: Path, folder: Path) -> None:
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


def recipe_text(recipe: Recipe) -> str:
    """The recipe as TOML; the same recipe gives the same text."""
    plain: dict[str, Any] = {"schema": SCHEMA}
    tables: dict[str, Any] = {}
    for name, value in asdict(recipe).items():
        (tables if isinstance(value, dict) else plain)[name] = value
    lines = _pairs(plain)
    for name, table in tables.items():
        lines += ["", f"[{name}]", *_pairs(table)]
    return sealed(_ABOUT, "\n".join(lines) + "\n")


def sealed(first: str, rest: str) -> str:
    """The recipe's text: between its first line and the rest stands the SHA-256 of both."""
    digest = _sha256(f"{first}\n{rest}".encode())
    return f'{first}\nsha256 = "{digest}"\n{rest}'


def _pairs(table: Mapping[str, Any]) -> list[str]:
    return [f"{_key(name)} = {_toml(value)}" for name, value in table.items() if value is not None]


def _key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z0-9_-]+", name) else _toml(name)


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        return f"{{ {', '.join(_pairs(value))} }}"
    if isinstance(value, (list, tuple)):
        return f"[{', '.join(_toml(each) for each in value)}]"
    # Of text, numbers, true and false JSON's form is TOML's too, but for one character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
