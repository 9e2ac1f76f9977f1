"""The charts. Each is one picture of one size and load class, with a line of words for those who
can't see it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from mirage.figures.svg import (
    WIDTH,
    Scale,
    chart,
    circle,
    line,
    path,
    rect,
    root_ticks,
    text,
    ticks,
)
from mirage.provision.evaluation.calibration import LEVELS, Bin, Coverage
from mirage.provision.evaluation.metrics import Difference, Figure, Point, Summary
from mirage.provision.evaluation.protocol import ORACLE
from mirage.provision.evaluation.report.words import between, hours, number, percent, tick_hours

LABELS = 122
"""Width of the methods' names."""
ROW = 25
EDGE = 8
OUTCOMES = (
    "interrupted 12 h or more",
    "interrupted 2 to 12 h",
    "interrupted 10 min to 2 h",
    "within 10 min",
    "overlapped 10 min to 2 h",
    "overlapped 2 to 12 h",
    "overlapped 12 h or more",
)
METHOD_STYLES = 12
"""Colours of curves in `style.css`."""


def _names(rows: Sequence[str], headline: str, top: float = 0) -> Iterator[str]:
    for index, name in enumerate(rows):
        style = "name chosen" if name == headline else "name"
        yield text(LABELS - 8, top + ROW * index + ROW / 2 + 4, name, style, "end")


def outcome_bars(rows: Sequence[Summary], headline: str) -> str:
    """Mean interruption to the left of a line, mean overlap to its right, on one scale of hours."""
    late = max(_most(row.interruption_h) for row in rows)
    early = max(_most(row.overlap_h) for row in rows)
    room = WIDTH - LABELS - 2 * 50
    per_hour = room / max(late + early, 0.5)
    zero = LABELS + 50 + late * per_hour
    bottom = ROW * len(rows)
    parts = [
        line(zero, 0, zero, bottom + 2, "axis"),
        *_names([row.method for row in rows], headline),
    ]
    for index, row in enumerate(rows):
        middle = ROW * index + ROW / 2
        parts += _bar(zero, middle, -per_hour, row.interruption_h, "interruption")
        parts += _bar(zero, middle, per_hour, row.overlap_h, "overlap")
    parts += [
        text(zero - 6, bottom + 16, "← interruption", "interruption-word", "end"),
        text(zero + 6, bottom + 16, "overlap →", "overlap-word"),
    ]
    words = "; ".join(
        f"{row.method}: {hours(row.interruption_h.value)} interruption,"
        f" {hours(row.overlap_h.value)} overlap"
        for row in rows
    )
    return chart(bottom + 24, "Mean interruption and overlap", words, parts)


def _most(figure: Figure) -> float:
    return figure.value if figure.high is None else max(figure.value, figure.high)


def _bar(zero: float, middle: float, per_hour: float, figure: Figure, kind: str) -> Iterator[str]:
    end = zero + per_hour * figure.value
    tip = f"{hours(figure.value)} ({between(figure) or 'no interval'})"
    yield rect(min(zero, end), middle - 7, abs(end - zero), 14, kind, tip)
    reach = zero + per_hour * _most(figure)
    if figure.low is not None and figure.high is not None and figure.high > figure.low:
        yield line(zero + per_hour * figure.low, middle, reach, middle, "whisker")
    if figure.value or kind == "interruption":
        left = per_hour < 0
        yield text(
            reach + (-5 if left else 5),
            middle + 4,
            hours(figure.value),
            "value",
            "end" if left else "start",
        )


def outcome_shares(rows: Sequence[Summary], headline: str) -> str:
    """Of each method, how many handovers came how late or early: bars of 100 %."""
    scale = Scale(0, 1, LABELS, WIDTH - EDGE)
    parts = [*_names([row.method for row in rows], headline)]
    for index, row in enumerate(rows):
        parts += _shares(row, ROW * index, scale)
    words = "; ".join(
        f"{row.method}: {percent(row.outcomes[3] / row.episodes)} within 10 min" for row in rows
    )
    return chart(ROW * len(rows) + 4, "How late or early the successors started", words, parts)


def _shares(row: Summary, top: float, scale: Scale) -> Iterator[str]:
    done = 0
    for index, count in enumerate(row.outcomes):
        share = count / row.episodes
        left, right = scale(done / row.episodes), scale((done + count) / row.episodes)
        done += count
        if count:
            tip = f"{row.method}: {OUTCOMES[index]}: {percent(share)}"
            yield rect(left, top + 3, right - left, ROW - 6, f"outcome{index}", tip)
        if share >= 0.1:
            yield text(
                (left + right) / 2, top + ROW / 2 + 4, percent(share), f"on{index}", "middle"
            )


def regrets(rows: Sequence[Summary], headline: str) -> str:
    """What is left of the distance from reactive (1) to the oracle (0), with intervals."""
    shown = [row for row in rows if row.regret is not None]
    most = min(max([1.1, *(_most(row.regret) for row in shown if row.regret)]), 2.0)
    scale = Scale(0, most, LABELS + 6, WIDTH - 44)
    bottom = ROW * len(shown)
    parts = [
        line(scale(value), 0, scale(value), bottom, "grid") for value in (0, 0.25, 0.5, 0.75, 1)
    ]
    parts += [*_names([row.method for row in shown], headline)]
    for index, row in enumerate(shown):
        assert row.regret is not None
        parts += _dot(row.regret, ROW * index + ROW / 2, scale, percent)
    parts += [
        text(scale(value), bottom + 15, percent(value), "tick", "middle")
        for value in (0, 0.25, 0.5, 0.75, 1)
    ]
    words = "; ".join(f"{row.method}: {percent(row.regret.value)}" for row in shown if row.regret)
    return chart(bottom + 22, "Regret: 0 is the oracle, 100 % is reactive", words, parts)


def _dot(
    figure: Figure, middle: float, scale: Scale, show: Callable[[float], str]
) -> Iterator[str]:
    """A value with its whisker; what is beyond the scale stands at its end."""
    end = min(_most(figure), scale.high)
    if figure.low is not None:
        yield line(
            scale(max(min(figure.low, scale.high), scale.low)),
            middle,
            scale(end),
            middle,
            "whisker",
        )
    at = min(figure.value, scale.high)
    yield circle(
        scale(max(at, scale.low)),
        middle,
        5,
        "dot",
        f"{show(figure.value)} ({between(figure, show)})",
    )
    beyond = " ▸" if figure.value > scale.high else ""
    yield text(scale(max(end, at)) + 9, middle + 4, show(figure.value) + beyond, "value")


def differences(rows: Sequence[Difference]) -> str:
    """Penalty of other methods minus the headline one's, in hours: to the right of the line they
    are worse.
    """
    figures = [row.penalty_h for row in rows]
    most = max(max(_most(each), 0.0) for each in figures)
    least = min(min(each.value, each.low or 0.0, 0.0) for each in figures)
    scale = Scale(least, max(most, least + 0.1), LABELS + 16, WIDTH - 60)
    bottom = ROW * len(rows)
    parts = [line(scale(0), 0, scale(0), bottom, "axis"), *_names([row.method for row in rows], "")]
    for index, row in enumerate(rows):
        parts += _dot(row.penalty_h, ROW * index + ROW / 2, scale, number)
    parts += [text(scale(0), bottom + 15, "0", "tick", "middle")]
    if most > 0:
        parts.append(text(WIDTH - EDGE, bottom + 15, "worse \u2192", "tick", "end"))
    if least < 0:
        parts.append(text(LABELS - 8, bottom + 15, "\u2190 better", "tick", "end"))
    words = "; ".join(f"{row.method}: {number(row.penalty_h.value)}" for row in rows)
    return chart(bottom + 22, "Difference in penalty, hours", words, parts)


def tradeoff(points: Sequence[Point], methods: Sequence[str], marked: Sequence[str]) -> str:
    """Mean interruption over mean overlap, a curve a method: one point for each ratio of penalties.

    ``marked``: the ratios whose points are drawn large.
    """
    left, top, bottom, right = 48, 10, 300, WIDTH - 14
    across = Scale(
        0, max(point.overlap_h for point in points) * 1.05 + 0.02, left, right, root=True
    )
    up = Scale(
        0, max(point.interruption_h for point in points) * 1.05 + 0.02, bottom, top, root=True
    )
    parts = []
    for value in root_ticks(across.high):
        parts += [line(across(value), top, across(value), bottom, "grid")]
        parts += [text(across(value), bottom + 16, tick_hours(value), "tick", "middle")]
    for value in root_ticks(up.high):
        parts += [line(left, up(value), right, up(value), "grid")]
        parts += [text(left - 6, up(value) + 4, tick_hours(value), "tick", "end")]
    for index, name in enumerate(methods):
        own = [point for point in points if point.method == name]
        parts += _curve(own, method_style(name, index), across, up, marked)
    parts += [
        text((left + right) / 2, bottom + 36, "mean overlap, hours", "axis-word", "middle"),
        f'<g transform="translate(13 {(top + bottom) / 2:g}) rotate(-90)">'
        f"{text(0, 0, 'mean interruption, hours', 'axis-word', 'middle')}</g>",
    ]
    words = "; ".join(
        f"{point.method} at {point.penalties}: interruption {hours(point.interruption_h)}, "
        f"overlap {hours(point.overlap_h)}"
        for point in points
        if point.penalties in marked
    )
    return chart(bottom + 44, "Trade-off between interruption and overlap", words, parts)


def method_style(name: str, index: int) -> str:
    """The class that gives a method its colour, the same in all charts."""
    return "m-oracle" if name == ORACLE else f"m{index % METHOD_STYLES}"


def _curve(
    points: Sequence[Point], style: str, across: Scale, up: Scale, marked: Sequence[str]
) -> Iterator[str]:
    places = [(across(point.overlap_h), up(point.interruption_h)) for point in points]
    if len(set(places)) == 1:
        points, places = points[-1:], places[-1:]
        marked = [point.penalties for point in points]
    yield path(places, f"curve {style}")
    for point, (x, y) in zip(points, places, strict=True):
        outcome = f"interruption {hours(point.interruption_h)}, overlap {hours(point.overlap_h)}"
        tip = f"{point.method}, {point.penalties}: {outcome}"
        yield circle(x, y, 5.5 if point.penalties in marked else 2.5, f"mark {style}", tip)


def coverage(rows: Sequence[Coverage]) -> str:
    """How many real waits stay below each foretold quantile, against how many should."""
    scale = Scale(0, 1, LABELS + 26, WIDTH - 20)
    methods = list(dict.fromkeys(row.method for row in rows))
    bottom = len(rows) * 18 + len(methods) * 10
    parts = [
        line(scale(level), 0, scale(level), bottom, "grid") for level in (0, *LEVELS.values(), 1)
    ]
    parts += [
        text(scale(level), bottom + 15, percent(level), "tick", "middle")
        for level in LEVELS.values()
    ]
    for index, row in enumerate(rows):
        middle = index * 18 + 10 * methods.index(row.method) + 12
        if row.quantile == "p50":
            parts.append(text(LABELS - 12, middle + 4, row.method, "name", "end"))
        parts += _covered(row, middle, scale)
    words = "; ".join(
        f"{row.method} {row.quantile}: {percent(row.below.value)} to {percent(row.at_most.value)}"
        for row in rows
    )
    return chart(bottom + 22, "Share of real waits below each foretold quantile", words, parts)


def _covered(row: Coverage, middle: float, scale: Scale) -> Iterator[str]:
    low, high = scale(row.below.value), scale(row.at_most.value)
    yield text(LABELS + 18, middle + 4, row.quantile, "tick", "end")
    if row.below.low is not None and row.at_most.high is not None:
        yield line(scale(row.below.low), middle, scale(row.at_most.high), middle, "whisker")
    tip = f"{percent(row.below.value)} below, {percent(row.at_most.value)} at or below"
    yield rect(low - 3.5, middle - 5, high - low + 7, 10, "told", tip)
    yield line(scale(row.level), middle - 8, scale(row.level), middle + 8, "target")


def foretold(rows: Sequence[Bin]) -> str:
    """Foretold against real waits, by the foretold median: bars from p10 to p90, a mark at p50."""
    left, top, bottom = 44, 8, 210
    most = max(max(row.told_h[2], row.real_h[2]) for row in rows)
    up = Scale(0, most * 1.05, bottom, top, root=True)
    width = (WIDTH - left - EDGE) / len(rows)
    parts = []
    for value in root_ticks(up.high):
        parts += [line(left, up(value), WIDTH - EDGE, up(value), "grid")]
        parts += [text(left - 6, up(value) + 4, tick_hours(value), "tick", "end")]
    for index, row in enumerate(rows):
        middle = left + width * (index + 0.5)
        parts += _range(middle - 9, row.told_h, up, "told")
        parts += _range(middle + 9, row.real_h, up, "real")
        parts += [text(middle, bottom + 16, _bin_name(row), "tick", "middle")]
    parts += [text((left + WIDTH) / 2, bottom + 34, "foretold median", "axis-word", "middle")]
    words = "; ".join(
        f"{_bin_name(row)}: foretold {_three(row.told_h)}, real {_three(row.real_h)}"
        for row in rows
    )
    return chart(bottom + 42, "Foretold and real waits, p10, p50 and p90", words, parts)


def _range(x: float, values_h: tuple[float, float, float], up: Scale, style: str) -> Iterator[str]:
    low, middle, high = (up(value) for value in values_h)
    yield rect(x - 5, high, 10, max(low - high, 1), style, f"{style}: {_three(values_h)}")
    yield line(x - 7, middle, x + 7, middle, "median")


def _bin_name(row: Bin) -> str:
    return "more" if row.to_h is None else f"to {hours(row.to_h).replace('.0', '')}"


def _three(values_h: tuple[float, float, float]) -> str:
    return ", ".join(hours(value) for value in values_h)


def waste(rows: Sequence[Summary], headline: str) -> str:
    """Node-hours held twice at a handover."""
    most = max(_most(row.node_hours_wasted) for row in rows)
    scale = Scale(0, max(most, 0.1), LABELS + 6, WIDTH - 60)
    bottom = ROW * len(rows)
    parts = [line(scale(value), 0, scale(value), bottom, "grid") for value in ticks(scale.high)]
    parts += [
        text(scale(value), bottom + 15, f"{value:g}", "tick", "middle")
        for value in ticks(scale.high)
    ]
    parts += [*_names([row.method for row in rows], headline)]
    for index, row in enumerate(rows):
        middle = ROW * index + ROW / 2
        figure = row.node_hours_wasted
        parts.append(
            rect(
                scale(0),
                middle - 7,
                scale(figure.value) - scale(0),
                14,
                "overlap",
                number(figure.value),
            )
        )
        if figure.low is not None and figure.high is not None and figure.high > figure.low:
            parts.append(line(scale(figure.low), middle, scale(figure.high), middle, "whisker"))
        parts.append(text(scale(_most(figure)) + 5, middle + 4, number(figure.value), "value"))
    words = "; ".join(f"{row.method}: {number(row.node_hours_wasted.value)}" for row in rows)
    return chart(bottom + 22, "Node-hours held twice at a handover", words, parts)
