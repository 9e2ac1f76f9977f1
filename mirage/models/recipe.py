"""`recipe.toml`: how a model was made, the same form for every system.

The recipe has the SHA-256 of every weight file, and that of its own other lines: a service trusts a
model by what stands in it. What only one system says of its models is the table `about`.
"""

from __future__ import annotations

import collections.abc
import hashlib
import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar, Self, TypeVar, get_args, get_origin, get_type_hints

from mirage.errors import InputError
from slurm_sim.formats import parse_toml

SCHEMA = 3
"""Of the recipe and of what the weights are applied to. A change that makes old folders useless
raises it.
"""
RECIPE = "recipe.toml"
REMEDY = "Train the model again, or copy its folder again from where it came"
_PAGES = {"provision": "learning"}
"""The page of a system whose page has not its name."""

R = TypeVar("R")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """How a model was made: enough to make it again, and to tell where it may be used."""

    system: str
    """The package that trained it: `provision`, `routing`, ..."""
    method: str
    """The method's name in that system."""
    seed: int
    options: Mapping[str, Any] = field(default_factory=dict)
    """All that was chosen for the training."""
    libraries: Mapping[str, str] = field(default_factory=dict)
    """Name -> version, as trained."""
    weights: Mapping[str, str] = field(default_factory=dict)
    """File name -> SHA-256; `write_folder` fills it in."""
    about: Mapping[str, Any] = field(default_factory=dict)
    """The system's own: what `About.table` gives."""


@dataclass(frozen=True, kw_only=True)
class About:
    """The table `about` of one system's recipes: a frozen dataclass with this as its base."""

    SYSTEM: ClassVar[str]

    @classmethod
    def of(cls, recipe: Recipe, folder: Path) -> Self:
        """Raises InputError: the recipe is another system's, or its table is not as it must be."""
        check_system(recipe, folder, cls.SYSTEM)
        where = f"{folder / RECIPE}: about"
        about = typed(cls, recipe.about, where)
        if problem := about.problem():
            raise InputError(f"{where}: {problem}. {REMEDY}.")
        return about

    def problem(self) -> str:
        """What is wrong with its values; empty: nothing."""
        return ""

    def table(self) -> dict[str, Any]:
        """For `Recipe.about`."""
        return {item.name: getattr(self, item.name) for item in fields(self)}


def check_system(recipe: Recipe, folder: Path, system: str, method: str | None = None) -> None:
    """Raises InputError if the model is of another system or method."""
    if recipe.system != system:
        raise InputError(
            f"{folder}: a model of system {recipe.system!r}, not {system!r}; give that one's"
            " folder."
        )
    if method is not None and recipe.method != method:
        raise InputError(
            f"{folder}: a model of method {recipe.method!r}, not {method!r}; give that one's"
            " folder."
        )


# --- text


def recipe_text(recipe: Recipe) -> str:
    """The recipe as TOML; the same recipe gives the same text."""
    lines = _pairs({"schema": SCHEMA} | _plain(asdict(recipe)))
    for name, table in _tables(asdict(recipe)):
        lines += ["", f"[{name}]", *_pairs(_plain(table))]
        for inner, values in _tables(table):
            lines += ["", f"[{name}.{inner}]", *_pairs(values)]
    page = f"docs/{_PAGES.get(recipe.system, recipe.system)}.md"
    first = f"# How this model was made ({page}). A change makes it unreadable."
    return sealed(first, "\n".join(lines) + "\n")


def _plain(table: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in table.items() if not isinstance(value, Mapping)}


def _tables(table: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield _key(name), value


def sealed(first: str, rest: str) -> str:
    """The recipe's text: between its first line and the rest stands the SHA-256 of both."""
    digest = hashlib.sha256(f"{first}\n{rest}".encode()).hexdigest()
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


# --- reading


def parse_recipe(text: str, path: Path) -> Recipe:
    """Raises InputError, and TOMLDecodeError for what is no TOML."""
    record = parse_toml(text)
    if record.pop("schema", None) != SCHEMA:
        raise InputError(f"{path}: schema: this version of Mirage reads {SCHEMA}. {REMEDY}.")
    lines = text.split("\n", 2)
    if len(lines) < 3 or text != sealed(lines[0], lines[2]):
        raise InputError(f"{path}: changed since it was written (SHA-256 differs). {REMEDY}.")
    record.pop("sha256", None)
    return typed(Recipe, record, str(path))


def typed(kind: type[R], table: Mapping[str, Any], where: str) -> R:
    """A dataclass from a table that has exactly its fields. Raises InputError."""
    kinds = {name: hint for name, hint in get_type_hints(kind).items() if name in _names(kind)}
    if wrong := sorted(kinds.keys() ^ table.keys()):
        what = "missing" if wrong[0] in kinds else "unknown key"
        raise InputError(f"{where}: {wrong[0]}: {what}. {REMEDY}.")
    values = {}
    for name, hint in kinds.items():
        try:
            values[name] = _value(table[name], hint)
        except TypeError:
            words = hint.__name__ if isinstance(hint, type) else str(hint)
            raise InputError(
                f"{where}: {name}: expected {words.replace('collections.abc.', '')}, got"
                f" {table[name]!r}. {REMEDY}."
            ) from None
    return kind(**values)


def _names(kind: type) -> set[str]:
    return {item.name for item in fields(kind)}


def _value(value: Any, kind: Any) -> Any:
    """TOML's value as a field of this type has it. Raises TypeError."""
    if kind is Any:
        return value
    arguments = get_args(kind)
    if get_origin(kind) is tuple:
        return _tuple(value, arguments)
    if get_origin(kind) is collections.abc.Mapping:
        return {name: _value(each, arguments[1]) for name, each in _checked(value, dict).items()}
    return _checked(value, int | float if kind is float else kind)


def _tuple(value: Any, kinds: tuple[Any, ...]) -> tuple[Any, ...]:
    _checked(value, list)
    each = kinds[:1] * len(value) if kinds[1:] == (...,) else kinds
    if len(value) != len(each):
        raise TypeError
    return tuple(_value(item, kind) for item, kind in zip(value, each, strict=True))


def _checked(value: Any, kind: Any) -> Any:
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        raise TypeError
    return value
