"""Small pieces of SVG. Colours are classes of `style.css`: charts follow the page into the dark and
onto paper.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape

from markupsafe import Markup

WIDTH = 420
"""Of every chart, in units that are pixels on a desktop: narrow, so that letters stay readable on a
phone.
"""
_STEPS = (1.0, 2.0, 5.0)
_SQUARES = (0.0, 0.25, 1.0, 4.0, 9.0, 16.0, 25.0, 49.0, 100.0, 225.0, 400.0)


@dataclass(frozen=True)
class Scale:
    """Values from ``low`` to ``high`` to positions from ``left`` to ``right``; ``root``: by their
    square roots.
    """

    low: float
    high: float
    left: float
    right: float
    root: bool = False

    def __call__(self, value: float) -> float:
        low, high, value = (self._bent(each) for each in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.0
        return self.left + share * (self.right - self.left)

    def _bent(self, value: float) -> float:
        return math.sqrt(max(value, 0.0)) if self.root else value


def ticks(most: float, about: int = 4, least: float = 0.0) -> list[float]:
    """Round values from ``least`` to ``most``, about this many."""
    if most <= least:
        return [least]
    rough = (most - least) / about
    size = 10.0 ** math.floor(math.log10(rough))
    step = next((size * each for each in _STEPS if size * each >= rough), size * 10)
    first, last = math.ceil(least / step - 1e-9), math.floor(most / step + 1e-9)
    return [step * index for index in range(first, last + 1)]


def root_ticks(most: float) -> list[float]:
    """Values that stand well on a scale of square roots, in hours."""
    return [value for value in _SQUARES if value <= most * 1.02]


def chart(height: float, title: str, description: str, parts: Iterable[str]) -> Markup:
    """A picture with its words for those who can't see it. ``parts``: from the functions below,
    which escape what they are given.
    """
    return Markup(  # noqa: S704
        f'<svg viewBox="0 0 {WIDTH} {height:g}" role="img"'
        f' aria-label="{escape(f"{title}. {description}")}">'
        f"{''.join(parts)}</svg>"
    )


def text(x: float, y: float, content: str, style: str = "", anchor: str = "start") -> str:
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
        f' class="{style}">{escape(content)}</text>'
    )


def line(x1: float, y1: float, x2: float, y2: float, style: str, *, tip: str = "") -> str:
    shape = f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" class="{style}"'
    return f"{shape}>{_tip(tip)}</line>" if tip else f"{shape}/>"


def rect(x: float, y: float, width: float, height: float, style: str, tip: str = "") -> str:
    shape = (
        f'<rect x="{x:.1f}" y="{y:.1f}" width="{max(width, 0):.1f}" height="{height:.1f}"'
        f' class="{style}"'
    )
    return f"{shape}>{_tip(tip)}</rect>" if tip else f"{shape}/>"


def circle(x: float, y: float, radius: float, style: str, tip: str = "") -> str:
    shape = f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{radius:g}" class="{style}"'
    return f"{shape}>{_tip(tip)}</circle>" if tip else f"{shape}/>"


def path(
    points: Sequence[tuple[float, float]], style: str, *, closed: bool = False, tip: str = ""
) -> str:
    steps = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    shape = f'<path d="M{steps}{"Z" if closed else ""}" class="{style}"'
    return f"{shape}>{_tip(tip)}</path>" if tip else f"{shape}/>"


def band(x: Sequence[float], low: Sequence[float], high: Sequence[float], style: str) -> str:
    """The area between two curves over the same positions."""
    edge = [*zip(x, high, strict=True), *reversed([*zip(x, low, strict=True)])]
    return path(edge, f"band {style}", closed=True)


def _tip(words: str) -> str:
    """What a mouse shows."""
    return f"<title>{escape(words)}</title>"
