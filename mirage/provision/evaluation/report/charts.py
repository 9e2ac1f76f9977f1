"""The charts. Each is one picture of one size and load class, with a line of words for those who
can't see it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from markupsafe import Markup

from mirage.figures.charts import (
    EDGE,
    LABELS,
    ROW,
    Plane,
    bar_chart,
    curve_style,
    dot_chart,
    names,
)
from mirage.figures.estimate import Estimate
from mirage.figures.svg import WIDTH, Scale, chart, circle, line, path, rect, root_ticks, text
from mirage.figures.words import between, hours, number, percent, tick_hours
from mirage.provision.evaluation.calibration import LEVELS, Bin, Coverage
from mirage.provision.evaluation.metrics import Difference, MethodSummary, Point
from mirage.provision.evaluation.protocol import ORACLE

OUTCOMES = (
    "interrupted 12 h or more",
    "interrupted 2 to 12 h",
    "interrupted 10 min to 2 h",
    "within 10 min",
    "overlapped 10 min to 2 h",
    "overlapped 2 to 12 h",
    "overlapped 12 h or more",
)


def outcome_bars(rows: Sequence[MethodSummary], headline: str) -> Markup:
    """Mean interruption to the left of a line, mean overlap to its right, on one scale of hours."""
    late = max(row.interruption_h.greatest for row in rows)
    early = max(row.overlap_h.greatest for row in rows)
    room = WIDTH - LABELS - 2 * 50
    per_hour = room / max(late + early, 0.5)
    zero = LABELS + 50 + late * per_hour
    bottom = ROW * len(rows)
    parts = [
        line(zero, 0, zero, bottom + 2, "axis"),
        *names([row.method for row in rows], headline),
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


def _bar(zero: float, middle: float, per_hour: float, figure: Estimate, kind: str) -> Iterator[str]:
    end = zero + per_hour * figure.value
    tip = f"{hours(figure.value)} ({between(figure) or 'no interval'})"
    yield rect(min(zero, end), middle - 7, abs(end - zero), 14, kind, tip)
    reach = zero + per_hour * figure.greatest
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


def outcome_shares(rows: Sequence[MethodSummary], headline: str) -> Markup:
    """Of each method, how many handovers came how late or early: bars of 100 %."""
    scale = Scale(0, 1, LABELS, WIDTH - EDGE)
    parts = [*names([row.method for row in rows], headline)]
    for index, row in enumerate(rows):
        parts += _shares(row, ROW * index, scale)
    words = "; ".join(
        f"{row.method}: {percent(row.outcomes[3] / row.episodes)} within 10 min" for row in rows
    )
    return chart(ROW * len(rows) + 4, "How late or early the successors started", words, parts)


def _shares(row: MethodSummary, top: float, scale: Scale) -> Iterator[str]:
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


def regrets(rows: Sequence[MethodSummary], headline: str) -> Markup:
    """What is left of the distance from reactive (1) to the oracle (0), with intervals."""
    shown = [(row.method, row.regret) for row in rows if row.regret is not None]
    most = min(max([1.1, *(regret.greatest for _, regret in shown)]), 2.0)
    return dot_chart(
        shown,
        title="Regret: 0 is the oracle, 100 % is reactive",
        show=percent,
        scale=Scale(0, most, LABELS + 6, WIDTH - 44),
        marks=(0, 0.25, 0.5, 0.75, 1),
        headline=headline,
    )


def differences(rows: Sequence[Difference]) -> Markup:
    """Penalty of other methods minus the headline one's, in hours: to the right of the line they
    are worse.
    """
    shown = [(row.method, row.penalty_h) for row in rows]
    most = max(max(each.greatest, 0.0) for _, each in shown)
    least = min(min(each.value, each.low or 0.0, 0.0) for _, each in shown)
    below = ROW * len(rows) + 15
    sides = []
    if most > 0:
        sides.append(text(WIDTH - EDGE, below, "worse \u2192", "tick", "end"))
    if least < 0:
        sides.append(text(LABELS - 8, below, "\u2190 better", "tick", "end"))
    return dot_chart(
        shown,
        title="Difference in penalty, hours",
        show=number,
        scale=Scale(least, max(most, least + 0.1), LABELS + 16, WIDTH - 60),
        marks=(0,),
        more=sides,
    )


def tradeoff(points: Sequence[Point], methods: Sequence[str], marked: Sequence[str]) -> Markup:
    """Mean interruption over mean overlap, a curve a method: one point for each ratio of penalties.

    ``marked``: the ratios whose points are drawn large.
    """
    left, top, bottom, right = 48, 10, 300, WIDTH - 14
    most_x = max(point.overlap_h for point in points) * 1.05 + 0.02
    most_y = max(point.interruption_h for point in points) * 1.05 + 0.02
    axes = Plane(
        across=Scale(0, most_x, left, right, root=True),
        up=Scale(0, most_y, bottom, top, root=True),
        across_words="mean overlap, hours",
        up_words="mean interruption, hours",
        across_ticks=root_ticks(most_x),
        up_ticks=root_ticks(most_y),
        show=tick_hours,
    )
    parts = [*axes.frame()]
    for index, name in enumerate(methods):
        own = [point for point in points if point.method == name]
        parts += _curve(own, method_style(name, index), axes, marked)
    parts += axes.words()
    words = "; ".join(
        f"{point.method} at {point.penalties}: interruption {hours(point.interruption_h)}, "
        f"overlap {hours(point.overlap_h)}"
        for point in points
        if point.penalties in marked
    )
    return chart(axes.height, "Trade-off between interruption and overlap", words, parts)


def method_style(name: str, index: int) -> str:
    """The class that gives a method its colour, the same in all charts."""
    return "m-oracle" if name == ORACLE else curve_style(index)


def _curve(
    points: Sequence[Point], style: str, axes: Plane, marked: Sequence[str]
) -> Iterator[str]:
    places = [(axes.across(point.overlap_h), axes.up(point.interruption_h)) for point in points]
    if len(set(places)) == 1:
        points, places = points[-1:], places[-1:]
        marked = [point.penalties for point in points]
    yield path(places, f"curve {style}")
    for point, (x, y) in zip(points, places, strict=True):
        outcome = f"interruption {hours(point.interruption_h)}, overlap {hours(point.overlap_h)}"
        tip = f"{point.method}, {point.penalties}: {outcome}"
        yield circle(x, y, 5.5 if point.penalties in marked else 2.5, f"mark {style}", tip)


def coverage(rows: Sequence[Coverage]) -> Markup:
    """How many real waits stay below each predicted quantile, against how many should."""
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
    return chart(bottom + 22, "Share of real waits below each predicted quantile", words, parts)


def _covered(row: Coverage, middle: float, scale: Scale) -> Iterator[str]:
    low, high = scale(row.below.value), scale(row.at_most.value)
    yield text(LABELS + 18, middle + 4, row.quantile, "tick", "end")
    if row.below.low is not None and row.at_most.high is not None:
        yield line(scale(row.below.low), middle, scale(row.at_most.high), middle, "whisker")
    tip = f"{percent(row.below.value)} below, {percent(row.at_most.value)} at or below"
    yield rect(low - 3.5, middle - 5, high - low + 7, 10, "predicted", tip)
    yield line(scale(row.level), middle - 8, scale(row.level), middle + 8, "target")


def predicted(rows: Sequence[Bin]) -> Markup:
    """Predicted against real waits, by the predicted median: bars from p10 to p90, a mark at p50."""
    left, top, bottom = 44, 8, 210
    most = max(max(row.predicted_h[2], row.real_h[2]) for row in rows)
    up = Scale(0, most * 1.05, bottom, top, root=True)
    width = (WIDTH - left - EDGE) / len(rows)
    parts = []
    for value in root_ticks(up.high):
        parts += [line(left, up(value), WIDTH - EDGE, up(value), "grid")]
        parts += [text(left - 6, up(value) + 4, tick_hours(value), "tick", "end")]
    for index, row in enumerate(rows):
        middle = left + width * (index + 0.5)
        parts += _range(middle - 9, row.predicted_h, up, "predicted")
        parts += _range(middle + 9, row.real_h, up, "real")
        parts += [text(middle, bottom + 16, _bin_name(row), "tick", "middle")]
    parts += [text((left + WIDTH) / 2, bottom + 34, "predicted median", "axis-word", "middle")]
    words = "; ".join(
        f"{_bin_name(row)}: predicted {_three(row.predicted_h)}, real {_three(row.real_h)}"
        for row in rows
    )
    return chart(bottom + 42, "Predicted and real waits, p10, p50 and p90", words, parts)


def _range(x: float, values_h: tuple[float, float, float], up: Scale, style: str) -> Iterator[str]:
    low, middle, high = (up(value) for value in values_h)
    yield rect(x - 5, high, 10, max(low - high, 1), style, f"{style}: {_three(values_h)}")
    yield line(x - 7, middle, x + 7, middle, "median")


def _bin_name(row: Bin) -> str:
    return "more" if row.to_h is None else f"to {hours(row.to_h).replace('.0', '')}"


def _three(values_h: tuple[float, float, float]) -> str:
    return ", ".join(hours(value) for value in values_h)


def waste(rows: Sequence[MethodSummary], headline: str) -> Markup:
    """Node-hours held twice at a handover."""
    return bar_chart(
        [(row.method, row.node_hours_wasted) for row in rows],
        title="Node-hours held twice at a handover",
        show=number,
        headline=headline,
    )
