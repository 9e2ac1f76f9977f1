"""Numbers, times and lists for people."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from mirage.figures.estimate import Estimate

NOTHING, MINUS = "\u2013", "\u2212"
"""An empty cell; a true minus."""


def hours(value: float) -> str:
    """0, 4 min, 1.2 h, 21 h, 17,000 h; of a value in hours."""
    if abs(value) * 60 < 0.5:
        return "0"
    sign, value = (MINUS if value < 0 else ""), abs(value)
    if value * 60 < 59.5:
        return f"{sign}{value * 60:.0f} min"
    return f"{sign}{value:.1f} h" if value < 9.95 else f"{sign}{value:,.0f} h"


def tick_hours(value: float) -> str:
    """For axes, whose title has the unit."""
    return f"{value:g}" if value != 0.25 else "¼"


def percent(share: float) -> str:
    """Of a share from 0 to 1."""
    return f"{100 * share:.0f} %"


def number(value: float) -> str:
    """With two to three digits, whatever its size."""
    if abs(value) < 0.005:
        return "0"
    digits = 2 if abs(value) < 0.995 else 1 if abs(value) < 9.95 else 0
    return f"{value:,.{digits}f}".replace("-", MINUS)


def between(estimate: Estimate, show: Callable[[float], str] = hours) -> str:
    """The interval alone; empty where there is none, or only one value in it."""
    if estimate.low is None or estimate.high is None:
        return ""
    low, high = show(estimate.low), show(estimate.high)
    return "" if low == high else f"{low} to {high}"


def day(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d")


def instant(at_s: int) -> str:
    return datetime.fromtimestamp(at_s, UTC).strftime("%Y-%m-%d %H:%M UTC")


def several(count: int, one: str, many: str = "") -> str:
    return f"{count:,} {one if count == 1 else many or one + 's'}"


def listed(words: Sequence[str]) -> str:
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
