"""Charts that every system draws: estimates by name, curves over a plane."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from mirage.figures.estimate import Estimate
from mirage.figures.svg import WIDTH, Scale, band, chart, circle, line, path, rect, text, ticks
from mirage.figures.words import between

LABELS = 122
"""Width of the rows' names."""
ROW = 25
EDGE = 8
STYLES = 12
"""Colours of curves in `style.css`: classes m0 to m11."""
MOST_POINTS = 400
"""Of a curve: more are thinned, since nobody sees them."""

Rows = Sequence[tuple[str, Estimate]]
Show = Callable[[float], str]


def names(rows: Sequence[str], headline: str = "") -> Iterator[str]:
    """The rows' names at the left; the headline's in bold."""
    for index, name in enumerate(rows):
        style = "name chosen" if name == headline else "name"
        yield text(LABELS - 8, ROW * index + ROW / 2 + 4, name, style, "end")


def dot_chart(
    rows: Rows,
    *,
    title: str,
    show: Show,
    scale: Scale,
    marks: Sequence[float],
    headline: str = "",
    more: Sequence[str] = (),
) -> Markup:
    """Values as dots with whiskers. ``marks``: values with a line. ``more``: other pieces of SVG."""
    bottom = ROW * len(rows)
    style = "axis" if len(marks) == 1 else "grid"
    parts = [line(scale(value), 0, scale(value), bottom, style) for value in marks]
    parts += names([name for name, _ in rows], headline)
    for index, (_, estimate) in enumerate(rows):
        parts += _dot(estimate, ROW * index + ROW / 2, scale, show)
    parts += [text(scale(value), bottom + 15, show(value), "tick", "middle") for value in marks]
    return chart(bottom + 22, title, _in_words(rows, show), [*parts, *more])


def _in_words(rows: Rows, show: Show) -> str:
    return "; ".join(f"{name}: {show(estimate.value)}" for name, estimate in rows)


def _dot(estimate: Estimate, middle: float, scale: Scale, show: Show) -> Iterator[str]:
    """A value with its whisker; what is beyond the scale stands at its end."""
    end = min(estimate.greatest, scale.high)
    if estimate.low is not None:
        low = max(min(estimate.low, scale.high), scale.low)
        yield line(scale(low), middle, scale(end), middle, "whisker")
    at = min(estimate.value, scale.high)
    tip = f"{show(estimate.value)} ({between(estimate, show)})"
    yield circle(scale(max(at, scale.low)), middle, 5, "dot", tip)
    beyond = " ▸" if estimate.value > scale.high else ""
    words = show(estimate.value) + beyond
    yield text(scale(max(end, at)) + 9, middle + 4, words, "value")


def bar_chart(
    values: Sequence[tuple[str, Estimate | float]],
    *,
    title: str,
    show: Show,
    style: str = "overlap",
    headline: str = "",
) -> Markup:
    """Values from 0 as bars, estimates with whiskers. ``style``: the bars' class in `style.css`."""
    rows = [
        (name, value if isinstance(value, Estimate) else Estimate(value)) for name, value in values
    ]
    most = max(estimate.greatest for _, estimate in rows)
    scale = Scale(0, max(most, 0.1), LABELS + 6, WIDTH - 60)
    bottom = ROW * len(rows)
    parts = [line(scale(value), 0, scale(value), bottom, "grid") for value in ticks(scale.high)]
    for value in ticks(scale.high):
        parts.append(text(scale(value), bottom + 15, f"{value:g}", "tick", "middle"))
    parts += names([name for name, _ in rows], headline)
    for index, (_, estimate) in enumerate(rows):
        parts += _bar(estimate, ROW * index + ROW / 2, scale, show, style)
    return chart(bottom + 22, title, _in_words(rows, show), parts)


def _bar(estimate: Estimate, middle: float, scale: Scale, show: Show, style: str) -> Iterator[str]:
    width = scale(estimate.value) - scale(0)
    yield rect(scale(0), middle - 7, width, 14, style, show(estimate.value))
    low, high = estimate.low, estimate.high
    if low is not None and high is not None and high > low:
        yield line(scale(low), middle, scale(high), middle, "whisker")
    yield text(scale(estimate.greatest) + 5, middle + 4, show(estimate.value), "value")


# --- curves


@dataclass(frozen=True, kw_only=True)
class Curve:
    """Values over an axis, (x, y) in the order of x."""

    name: str
    style: str
    """A class of `style.css`: `curve_style`."""
    points: Sequence[tuple[float, float]]
    interval: Sequence[tuple[float, float, float]] = ()
    """A band around it: (x, low, high)."""


@dataclass(frozen=True, kw_only=True)
class Plane:
    """The two axes of a chart of curves, with their grid and words."""

    across: Scale
    up: Scale
    across_words: str
    up_words: str
    across_ticks: Sequence[float]
    up_ticks: Sequence[float]
    show: Show = "{:g}".format

    @property
    def height(self) -> float:
        return self.up.left + 44

    def frame(self) -> Iterator[str]:
        left, right, bottom, top = self.across.left, self.across.right, self.up.left, self.up.right
        for value in self.across_ticks:
            x = self.across(value)
            yield line(x, top, x, bottom, "grid")
            yield text(x, bottom + 16, self.show(value), "tick", "middle")
        for value in self.up_ticks:
            y = self.up(value)
            yield line(left, y, right, y, "grid")
            yield text(left - 6, y + 4, self.show(value), "tick", "end")

    def words(self) -> Iterator[str]:
        """The axes' titles."""
        across, bottom, top = self.across, self.up.left, self.up.right
        middle = (across.left + across.right) / 2
        yield text(middle, bottom + 36, self.across_words, "axis-word", "middle")
        yield (
            f'<g transform="translate(13 {(top + bottom) / 2:g}) rotate(-90)">'
            f"{text(0, 0, self.up_words, 'axis-word', 'middle')}</g>"
        )


def plane(
    curves: Sequence[Curve], *, across_words: str, up_words: str, from_zero: bool = True
) -> Plane:
    """Axes that hold all curves. ``from_zero``: of the values; the horizontal axis always begins
    at 0.
    """
    values = [y for curve in curves for _, y in curve.points]
    values += [y for curve in curves for _, *ends in curve.interval for y in ends]
    most_x = max((x for curve in curves for x, _ in curve.points), default=1.0)
    low = 0.0 if from_zero else min(values, default=0.0)
    high = max(max(values, default=1.0), low + 1e-6)
    edge = (high - low) * 0.05
    low = low if from_zero else low - edge
    across = Scale(0, most_x, 48, WIDTH - 14)
    up = Scale(low, high + edge, 240, 10)
    return Plane(
        across=across,
        up=up,
        across_words=across_words,
        up_words=up_words,
        across_ticks=ticks(across.high, 5),
        up_ticks=ticks(up.high, least=up.low),
    )


def curve_chart(
    curves: Sequence[Curve],
    axes: Plane,
    *,
    title: str,
    levels: Sequence[tuple[str, float]] = (),
) -> Markup:
    """``levels``: (name, value) of dashed lines across, as of a bound."""
    parts = [*axes.frame()]
    for curve in curves:
        if curve.interval:
            x, low, high = (list(values) for values in zip(*_thin(curve.interval), strict=True))
            across = [axes.across(value) for value in x]
            parts.append(band(across, [*map(axes.up, low)], [*map(axes.up, high)], curve.style))
    for name, value in levels:
        y = axes.up(value)
        parts.append(line(axes.across.left, y, axes.across.right, y, "level"))
        parts.append(text(axes.across.right, y - 4, name, "tick", "end"))
    for curve in curves:
        places = [(axes.across(x), axes.up(y)) for x, y in _thin(curve.points)]
        if places:
            parts.append(path(places, f"curve {curve.style}", tip=curve.name))
    words = "; ".join(f"{each.name} ends at {each.points[-1][1]:.3g}" for each in curves)
    return chart(axes.height, title, words, [*parts, *axes.words()])


def _thin(points: Sequence[tuple[float, ...]]) -> Sequence[tuple[float, ...]]:
    return points[:: -(-len(points) // MOST_POINTS)] if points else points


def curve_style(index: int) -> str:
    """The class of a curve's colour."""
    return f"m{index % STYLES}"


def curve_swatch(style: str) -> Markup:
    """For a legend."""
    return Markup(
        '<svg viewBox="0 0 26 12" aria-hidden="true"><path d="M0 6L26 6" class="curve {}"/>'
        '<circle cx="13" cy="6" r="4.5" class="mark {}"/></svg>'
    ).format(style, style)


def swatch(style: str) -> Markup:
    """For a legend of areas."""
    return Markup(
        '<svg viewBox="0 0 24 12" aria-hidden="true"><rect width="24" height="12" class="{}"/></svg>'
    ).format(style)
