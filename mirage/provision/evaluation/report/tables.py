"""The figures behind the charts, as tables with captions."""

from __future__ import annotations

from markupsafe import Markup

from mirage.domain import Penalties
from mirage.figures.estimate import Estimate
from mirage.figures.page import Cells, DataTable, estimate_cell
from mirage.figures.words import NOTHING, day, hours, number, percent, several
from mirage.provision.evaluation.comparison import Comparison
from mirage.provision.evaluation.metrics import (
    ALL,
    LOADS,
    Difference,
    Group,
    MethodSummary,
    ratio_text,
)
from mirage.provision.evaluation.protocol import ORACLE
from mirage.provision.evaluation.report.words import LOAD_RULES, LOAD_WORDS, nodes_words


def main_table(comparison: Comparison, group: Group, penalties: Penalties) -> DataTable:
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
    return DataTable(
        f"{nodes_words(group.nodes).capitalize()}, penalties {weights}. Small: 95 % intervals",
        head,
        groups,
    )


def _of(comparison: Comparison, nodes: int, load: str, penalties: Penalties) -> list[MethodSummary]:
    rows = (comparison.row(nodes, load, penalties, method.name) for method in comparison.methods)
    return [row for row in rows if row is not None]


def _main_row(row: MethodSummary, headline: str) -> Cells:
    return (
        method_name(row.method, headline),
        estimate_cell(row.interruption_h),
        hours(row.interruption_spread.p50),
        hours(row.interruption_spread.p90),
        estimate_cell(row.overlap_h),
        hours(row.overlap_spread.p90),
        estimate_cell(row.zero_interruption, percent),
        estimate_cell(row.under_10_min, percent),
        estimate_cell(row.penalty_h, number),
        estimate_cell(row.regret, percent),
        estimate_cell(row.reduction, percent),
    )


def method_name(name: str, headline: str) -> str:
    return Markup("<b>{}</b>").format(name) if name == headline else name


def glance_table(comparison: Comparison) -> DataTable:
    """The headline method in a few figures, for each size and pair of penalties."""
    rows = []
    for group in comparison.groups:
        busiest = comparison.busiest(group.nodes)
        for penalties in comparison.setup.penalties:
            heavy = comparison.row(group.nodes, busiest or ALL, penalties, comparison.headline)
            light = comparison.row(group.nodes, "light", penalties, comparison.headline)
            if heavy is not None:
                name = f"{nodes_words(group.nodes)}, {ratio_text(penalties)}"
                rows.append(
                    (name, *_glance(heavy), estimate_cell(light.overlap_h) if light else NOTHING)
                )
    head = (
        "", "load", "interruption", "less than reactive", "under 10 min", "overlap", "regret", "overlap, light load",
    )  # fmt: skip
    return DataTable(f"{comparison.headline} at a glance", head, [("", rows)])


def _glance(row: MethodSummary) -> Cells:
    return (
        row.load,
        estimate_cell(row.interruption_h),
        estimate_cell(row.reduction, percent),
        estimate_cell(row.under_10_min, percent),
        estimate_cell(row.overlap_h),
        estimate_cell(row.regret, percent),
    )


def situation_table(comparison: Comparison) -> DataTable:
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
    return DataTable("How much there is to judge on", head, groups)


def difference_table(comparison: Comparison, group: Group, penalties: Penalties) -> DataTable:
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
    return DataTable(
        f"Other methods minus {comparison.headline}, episode by episode ({words})",
        head,
        groups,
        "inline",
    )


def _difference_row(row: Difference) -> Cells:
    return (
        row.method,
        estimate_cell(row.interruption_h),
        estimate_cell(row.overlap_h),
        estimate_cell(row.penalty_h, number),
        _reading(row.penalty_h, row.method),
    )


def _reading(penalty: Estimate, other: str) -> str:
    if other == ORACLE:
        return "the bound"
    if penalty.low is None or penalty.high is None:
        return "too few blocks to decide"
    return "worse" if penalty.low > 0 else "better" if penalty.high < 0 else "no clear difference"


def waste_table(comparison: Comparison, penalties: Penalties) -> DataTable:
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
    return DataTable(
        f"Node-hours held twice, mean of a handover ({ratio_text(penalties)})", head, groups
    )


def _waste_row(comparison: Comparison, group: Group, total: MethodSummary, saved_h: float) -> Cells:
    penalties = next(
        each for each in comparison.setup.penalties if ratio_text(each) == total.penalties
    )
    by_load = (comparison.row(group.nodes, load, penalties, total.method) for load in LOADS)
    return (
        method_name(total.method, comparison.headline),
        *(estimate_cell(row.node_hours_wasted, number) if row else NOTHING for row in by_load),
        number(total.node_hours_wasted_total),
        number(total.node_hours_wasted_total / saved_h) if saved_h > 0 else NOTHING,
    )


def coverage_table(comparison: Comparison) -> DataTable:
    groups = []
    for group in comparison.groups:
        found = [row for row in comparison.coverage if row.nodes == group.nodes]
        rows = [
            (
                f"{row.method}, {LOAD_WORDS[row.load]}, {row.quantile}",
                percent(row.level),
                estimate_cell(row.below, percent),
                estimate_cell(row.at_most, percent),
                f"{row.points:,}",
            )
            for row in found
        ]
        groups.append((nodes_words(group.nodes).capitalize(), rows))
    head = ("quantile", "should be", "real waits below", "at or below", "decision points")
    return DataTable("Predicted quantiles of the wait against the real ones", head, groups)
