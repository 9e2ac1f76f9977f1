"""A method's options: a frozen dataclass whose annotations say types and ranges.

    @dataclass(frozen=True)
    class MyOptions(MethodOptions):
        rounds: Count = 40
        discount: Fraction = 0.9
        hidden: tuple[Count, ...] = (24, 12)
        order: Literal["first", "last"] = "first"

Its values are checked as it is made. `with_settings` changes them by words as `rounds=10`, and nested
options by `inner.rounds=10`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from mirage.errors import InputError

T = TypeVar("T")


@dataclass(frozen=True)
class Range:
    """Of a number; its text completes "give ..."."""

    low: float = -math.inf
    high: float = math.inf
    low_open: bool = False
    """Whether the least value itself is out of range."""
    high_open: bool = False

    def __contains__(self, value: float) -> bool:
        """False for NaN and infinity."""
        if not math.isfinite(value):
            return False
        above = value > self.low if self.low_open else value >= self.low
        return above and (value < self.high if self.high_open else value <= self.high)

    def __str__(self) -> str:
        if self.high == math.inf:
            return f"a number over {self.low:g}" if self.low_open else f"at least {self.low:g}"
        if self.low_open or self.high_open:
            low = f"over {self.low:g}" if self.low_open else f"of at least {self.low:g}"
            high = f"below {self.high:g}" if self.high_open else f"at most {self.high:g}"
            return f"a number {low}, {high}"
        return f"a number from {self.low:g} to {self.high:g}"


Count = Annotated[int, Range(1)]
Weight = Annotated[float, Range(0)]
Fraction = Annotated[float, Range(0, 1)]
Rate = Annotated[float, Range(0, 1, low_open=True)]
"""A learning rate, or a share of which nothing is useless: over 0, at most 1."""


class MethodOptions:
    """Base of a method's options: checks the ranges. Raises InputError for the first wrong value."""

    def __post_init__(self) -> None:
        for name, kind in _kinds(type(self)).items():
            _check(name, getattr(self, name), kind)


def with_settings(options: T, settings: Sequence[str]) -> T:
    """Options with ``name=value`` words applied in turn. Raises InputError for what cannot be."""
    for setting in settings:
        name, equals, text = setting.partition("=")
        if not equals:
            raise InputError(f"--set {setting}: expected NAME=VALUE, as in --set rounds=10.")
        options = _with(options, name.strip().split("."), text.strip(), setting)
    return options


def _with(options: Any, path: list[str], text: str, setting: str) -> Any:
    name, kinds = path[0], _kinds(type(options))
    if name not in kinds:
        raise InputError(
            f"--set {setting}: there is no option {name!r}; there are {', '.join(kinds)}."
        )
    now = getattr(options, name)
    if is_dataclass(now):
        if len(path) == 1:
            inner = ", ".join(f"{name}.{item.name}" for item in fields(now))
            raise InputError(f"--set {setting}: {name} has options of its own: {inner}.")
        return replace(options, **{name: _with(now, path[1:], text, setting)})
    if len(path) > 1:
        raise InputError(f"--set {setting}: {name} has no options of its own.")
    try:
        value = _value(kinds[name], text)
    except (KeyError, ValueError):
        raise InputError(f"--set {setting}: {_wanted(kinds[name], text, now)}.") from None
    return replace(options, **{name: value})


def _kinds(options: type[Any]) -> dict[str, Any]:
    """Name -> annotation, ranges included."""
    hints = get_type_hints(options, include_extras=True)
    return {item.name: hints[item.name] for item in fields(options) if item.init}


def _check(name: str, value: Any, kind: Any, more: str = "") -> None:
    origin, parts = get_origin(kind), get_args(kind)
    if value is None:
        return
    if origin in (Union, UnionType):
        for part in parts:
            _check(name, value, part, ", or none" if NoneType in parts else "")
    elif origin is tuple:
        for each in value:
            _check(name, each, parts[0])
    elif origin is Annotated:
        for allowed in kind.__metadata__:
            if isinstance(allowed, Range) and value not in allowed:
                raise InputError(f"{name} is {value}; give {allowed}{more}")
    elif origin is Literal and value not in parts:
        raise InputError(f"{name} is {value!r}; give one of {', '.join(map(str, parts))}{more}")


def _value(kind: Any, text: str) -> Any:
    """Raises ValueError or KeyError."""
    origin, parts = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _value(parts[0], text)
    if origin in (Union, UnionType):
        if text == "none" and NoneType in parts:
            return None
        (part,) = (part for part in parts if part is not NoneType)
        return _value(part, text)
    if origin is tuple:
        return tuple(_value(parts[0], word) for word in text.split(","))
    if origin is Literal:
        return {str(word): word for word in parts}[text]
    readers: dict[Any, Callable[[str], Any]] = {bool: _truth, int: int, float: float, str: str}
    return readers[kind](text)


def _truth(text: str) -> bool:
    return {"true": True, "false": False}[text.lower()]


def _wanted(kind: Any, text: str, now: Any) -> str:
    words = get_args(kind) if get_origin(kind) is Literal else ()
    if words:
        return f"give one of {', '.join(map(str, words))}"
    return f"{text!r} is not such a value as {now!r}"
