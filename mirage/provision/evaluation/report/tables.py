"""The figures behind the charts, as tables with captions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from html import escape

from mirage.domain import Penalties
from mirage.provision.evaluation.comparison import Comparison
from mirage.provision.evaluation.metrics import (
    ALL,
    LOADS,
    Difference,
    Figure,
    Group,
    Summary,
    ratio_text,
)
from mirage.provision.evaluation.protocol import ORACLE
from mirage.provision.evaluation.report.words import (
    LOAD_RULES,
    LOAD_WORDS,
    NOTHING,
    between,
    day,
    hours,
    nodes_words,
    number,
    percent,
    several,
)

Cells = Sequence[str]


def table(caption: str, head: Cells, groups: Iterable[tuple[str, Iterable[Cells]]]) -> str:
    """``groups``: (heading or nothing, rows of HTML cells); the first cell of a row names it."""
    body = "".join(_group(heading, rows, len(head)) for heading, rows in groups)
    columns = "".join(f'<th scope="col">{escape(name)}</th>' for name in head)
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(caption)}"><table>'
        f"<caption>{escape(caption)}</caption><thead><tr>{columns}</tr></thead>{body}</table></div>"
    )


def _group(heading: str, rows: Iterable[Cells], width: int) -> str:
    top = (
        f'<tr><th colspan="{width}" scope="rowgroup">{escape(heading)}</th></tr>' if heading else ""
    )
    lines = "".join(
        f'<tr><th scope="row">{row[0]}</th>{"".join(f"<td>{cell}</td>" for cell in row[1:])}</tr>'
        for row in rows
    )
    return f"<tbody>{top}{lines}</tbody>"


def figure(value: Figure | None, show: Callable[[float], str] = hours) -> str:
    """A value, and its interval below it."""
    if value is None:
        return NOTHING
    interval = between(value, show)
    return f"{show(value.value)}<small>{interval}</small>" if interval else show(value.value)


def main_table(comparison: Comparison, group: Group, penalties: Penalties) -> str:
    """All figures of one size and one pair of penalties."""
    head = (
        "method", "interruption", "its median", "its p90", "overlap", "its p90", "no interruption",
        "under 10 min of it", "penalty", "regret", "less than reactive",
    )  # fmt: skip
    groups = []
    for load in group.present:
        found = _of(comparison, group.nodes, load, penalties)
        heading = (
            f"{LOAD_WORDS[load].capitalize()}: {several(found[0].episodes, 'episode')}"
            f" ({LOAD_RULES[load]})"
        )
        groups.append((heading, [_main_row(row, comparison.headline) for row in found]))
    weights = f"{ratio_text(penalties)}, interruption to overlap"
    return table(
        f"{nodes_words(group.nodes).capitalize()}, penalties {weights}. Small: 95 % intervals",
        head,
        groups,
    )


def _of(comparison: Comparison, nodes: int, load: str, penalties: Penalties) -> list[Summary]:
    rows = (comparison.row(nodes, load, penalties, method.name) for method in comparison.methods)
    return [row for row in rows if row is not None]


def _main_row(row: Summary, headline: str) -> Cells:
    return (
        method_name(row.method, headline),
        figure(row.interruption_h),
        hours(row.interruption_spread.p50),
        hours(row.interruption_spread.p90),
        figure(row.overlap_h),
        hours(row.overlap_spread.p90),
        figure(row.zero_interruption, percent),
        figure(row.under_10_min, percent),
        figure(row.penalty_h, number),
        figure(row.regret, percent),
        figure(row.reduction, percent),
    )


def method_name(name: str, headline: str) -> str:
    return f"<b>{escape(name)}</b>" if name == headline else escape(name)


def glance_table(comparison: Comparison) -> str:
    """The headline method in a few figures, for each size and pair of penalties."""
    rows = []
    for group in comparison.groups:
        busiest = comparison.busiest(group.nodes)
        for penalties in comparison.setup.penalties:
            heavy = comparison.row(group.nodes, busiest or ALL, penalties, comparison.headline)
            light = comparison.row(group.nodes, "light", penalties, comparison.headline)
            if heavy is not None:
                name = f"{nodes_words(group.nodes)}, {ratio_text(penalties)}"
                rows.append((name, *_glance(heavy), figure(light.overlap_h) if light else NOTHING))
    head = (
        "", "load", "interruption", "less than reactive", "under 10 min", "overlap", "regret", "overlap, light load",
    )  # fmt: skip
    return table(f"{comparison.headline} at a glance", head, [("", rows)])


def _glance(row: Summary) -> Cells:
    return (
        row.load,
        figure(row.interruption_h),
        figure(row.reduction, percent),
        figure(row.under_10_min, percent),
        figure(row.overlap_h),
        figure(row.regret, percent),
    )


def situation_table(comparison: Comparison) -> str:
    """How much there is to judge on."""
    groups = []
    for group in comparison.groups:
        found = [row for row in comparison.situations if row.nodes == group.nodes]
        rows = [
            (
                f"{LOAD_WORDS[row.load]}",
                str(row.episodes),
                NOTHING if row.spells is None else str(row.spells),
                str(row.blocks),
                NOTHING if row.effective is None else f"{row.effective:.0f}",
            )
            for row in found
        ]
        span = (
            f"{nodes_words(group.nodes)}, {day(int(group.begin_s[0]))} to"
            f" {day(int(group.begin_s[-1]))}"
        )
        groups.append((f"{span}, blocks of {group.blocks.length_s / 86400:.1f} days", rows))
    head = (
        "load",
        "episodes",
        "separate spells in the queue",
        "blocks with any",
        "independent episodes",
    )
    return table("How much there is to judge on", head, groups)


def difference_table(comparison: Comparison, group: Group, penalties: Penalties) -> str:
    """Each method against the headline one, in the same episodes."""
    head = ("method", "interruption", "overlap", "penalty", "reading")
    groups = []
    for load in comparison.shown_loads(group.nodes):
        rows = [
            _difference_row(row)
            for row in comparison.against_headline(group.nodes, load, penalties)
        ]
        if rows:
            groups.append((LOAD_WORDS[load].capitalize(), rows))
    words = f"{nodes_words(group.nodes)}, {ratio_text(penalties)}"
    return table(
        f"Other methods minus {comparison.headline}, episode by episode ({words})", head, groups
    )


def _difference_row(row: Difference) -> Cells:
    return (
        escape(row.method),
        figure(row.interruption_h),
        figure(row.overlap_h),
        figure(row.penalty_h, number),
        _reading(row.penalty_h, row.method),
    )


def _reading(penalty: Figure, other: str) -> str:
    if other == ORACLE:
        return "the bound"
    if penalty.low is None or penalty.high is None:
        return "too few blocks to tell"
    return "worse" if penalty.low > 0 else "better" if penalty.high < 0 else "no clear difference"


def waste_table(comparison: Comparison, penalties: Penalties) -> str:
    """What the interruption that is gone costs in node-hours."""
    groups = []
    for group in comparison.groups:
        rows = []
        for method in comparison.methods:
            row = comparison.row(group.nodes, ALL, penalties, method.name)
            if row is not None:
                saved_h = float(group.wait_h.sum()) - row.interruption_h.value * row.episodes
                rows.append(_waste_row(comparison, group, row, saved_h))
        groups.append((nodes_words(group.nodes).capitalize(), rows))
    head = (
        "method",
        *(LOAD_WORDS[load] for load in LOADS),
        "all handovers together",
        "for an hour less interruption",
    )
    return table(
        f"Node-hours held twice, mean of a handover ({ratio_text(penalties)})", head, groups
    )


def _waste_row(comparison: Comparison, group: Group, total: Summary, saved_h: float) -> Cells:
    penalties = next(
        each for each in comparison.setup.penalties if ratio_text(each) == total.penalties
    )
    by_load = (comparison.row(group.nodes, load, penalties, total.method) for load in LOADS)
    return (
        method_name(total.method, comparison.headline),
        *(figure(row.node_hours_wasted, number) if row else NOTHING for row in by_load),
        number(total.node_hours_wasted_total),
        number(total.node_hours_wasted_total / saved_h) if saved_h > 0 else NOTHING,
    )


def coverage_table(comparison: Comparison) -> str:
    groups = []
    for group in comparison.groups:
        found = [row for row in comparison.coverage if row.nodes == group.nodes]
        rows = [
            (
                f"{escape(row.method)}, {LOAD_WORDS[row.load]}, {row.quantile}",
                percent(row.level),
                figure(row.below, percent),
                figure(row.at_most, percent),
                f"{row.points:,}",
            )
            for row in found
        ]
        groups.append((nodes_words(group.nodes).capitalize(), rows))
    head = ("quantile", "should be", "real waits below", "at or below", "decision points")
    return table("Foretold quantiles of the wait against the real ones", head, groups)
