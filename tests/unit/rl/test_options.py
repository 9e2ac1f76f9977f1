"""Options are checked as they are made, and changed by words."""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import pytest

from mirage.errors import InputError
from mirage.rl.options import Count, Fraction, MethodOptions, Range, Rate, Weight, with_settings


@dataclass(frozen=True)
class Inner(MethodOptions):
    depth: Count = 3


@dataclass(frozen=True)
class Toy(MethodOptions):
    rounds: Count = 10
    rate: Rate = 1e-3
    discount: Fraction = 1.0
    entropy: Weight = 0.0
    heat: Annotated[float, Range(0, low_open=True)] = 1.0
    dropout: Annotated[float, Range(0, 1, high_open=True)] = 0.1
    probes: Annotated[int, Range(2)] | None = None
    hidden: tuple[Count, ...] = (24, 12)
    order: Literal["first", "last"] = "first"
    replay: bool = True
    device: str = "auto"
    inner: Inner = field(default_factory=Inner)


@pytest.mark.parametrize(
    ("setting", "name", "value"),
    [
        ("rounds=7", "rounds", 7),
        (" rate = 0.5", "rate", 0.5),
        ("discount=1", "discount", 1.0),
        ("probes=4", "probes", 4),
        ("probes=none", "probes", None),
        ("hidden=8,4,2", "hidden", (8, 4, 2)),
        ("order=last", "order", "last"),
        ("replay=False", "replay", False),
        ("device=cuda:1", "device", "cuda:1"),
        ("inner.depth=1", "inner", Inner(1)),
    ],
)
def test_words_change_one_option(setting: str, name: str, value: object) -> None:
    changed = with_settings(Toy(), [setting])
    assert changed == replace(Toy(), **{name: value})
    assert type(getattr(changed, name)) is type(value)


def test_the_last_word_counts() -> None:
    assert with_settings(Toy(), ["rounds=1", "rate=1", "rounds=2"]) == Toy(rounds=2, rate=1.0)


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ("rounds", "--set rounds: expected NAME=VALUE"),
        ("speed=1", "--set speed=1: there is no option 'speed'; there are rounds, rate, discount"),
        ("rounds=many", "--set rounds=many: 'many' is not such a value as 10."),
        ("rounds=1.5", "'1.5' is not such a value as 10"),
        ("rounds=none", "'none' is not such a value as 10"),
        ("replay=1", "'1' is not such a value as True"),
        ("hidden=8,", "'8,' is not such a value as (24, 12)"),
        ("order=middle", "--set order=middle: give one of first, last."),
        ("inner=3", "--set inner=3: inner has options of its own: inner.depth."),
        ("rate.x=3", "--set rate.x=3: rate has no options of its own."),
        ("rounds=0", "rounds is 0; give at least 1"),
        ("rate=0", "rate is 0.0; give a number over 0, at most 1"),
        ("rate=nan", "rate is nan; give a number over 0, at most 1"),
        ("discount=1.1", "discount is 1.1; give a number from 0 to 1"),
        ("entropy=inf", "entropy is inf; give at least 0"),
        ("heat=0", "heat is 0.0; give a number over 0"),
        ("dropout=1", "dropout is 1.0; give a number of at least 0, below 1"),
        ("probes=1", "probes is 1; give at least 2, or none"),
        ("hidden=8,0", "hidden is 0; give at least 1"),
        ("inner.depth=0", "depth is 0; give at least 1"),
    ],
)
def test_what_cannot_be_is_one_clear_error(setting: str, message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        with_settings(Toy(), [setting])


def test_options_made_in_code_are_checked_too() -> None:
    with pytest.raises(InputError, match="order is 'middle'; give one of first, last"):
        Toy(order="middle")  # type: ignore[arg-type]
