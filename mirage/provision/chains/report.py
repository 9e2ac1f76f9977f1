"""The page of an evaluation of chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from markupsafe import Markup

from mirage.chain.durations import format_duration
from mirage.domain import Mode
from mirage.figures.charts import bar_chart
from mirage.figures.estimate import Estimate
from mirage.figures.page import (
    Cells,
    DataTable,
    Notes,
    Paragraph,
    Part,
    Picture,
    Pictures,
    ReportPage,
    Section,
    Tile,
    estimate_cell,
    origin_table,
    render,
)
from mirage.figures.words import NOTHING, day, hours, number, several
from mirage.provision.chains.evaluation import ChainPlan, ChainsEvaluation, headline
from mirage.provision.chains.figures import ChainFigures, ChainSummary, OthersWait
from mirage.provision.chains.run import POLL_S
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE
from mirage.provision.evaluation.report.words import nodes_words

MODES = {Mode.TRAIN.value: "training chains", Mode.SERVICE.value: "services"}
MEASURES = {Mode.TRAIN.value: "goodput", Mode.SERVICE.value: "up-time"}


def share(value: float) -> str:
    """With a tenth of a percent: goodputs differ by so little."""
    return f"{100 * value:.1f} %"


def up_time(value: float) -> str:
    """With a hundredth: targets are like 99.9 %."""
    return f"{100 * value:.2f} %"


class TableColumn(NamedTuple):
    """Of the table of a mode, on the page as in a terminal."""

    head: str
    value: Callable[[ChainSummary], Estimate | float | None]
    show: Callable[[float], str]

    def cell(self, row: ChainSummary) -> str:
        """With its interval."""
        value = self.value(row)
        return self.show(value) if isinstance(value, float) else estimate_cell(value, self.show)

    def plain(self, row: ChainSummary) -> str:
        """Without."""
        value = self.value(row)
        if value is None:
            return NOTHING
        return self.show(value if isinstance(value, float) else value.value)


_OFTEN = TableColumn("handovers in 100 h", lambda row: row.handovers, number)
_TWICE = TableColumn("held twice", lambda row: row.held_twice, share)
COLUMNS = {
    Mode.TRAIN.value: (
        TableColumn("goodput", lambda row: row.goodput, share),
        TableColumn("gain over reactive", lambda row: row.gain, share),
        TableColumn("interrupted", lambda row: row.interrupted, share),
        _OFTEN,
        _TWICE,
        TableColumn("link", lambda row: row.link_h, hours),
    ),
    Mode.SERVICE.value: (
        TableColumn("up-time", lambda row: row.goodput, up_time),
        TableColumn("gain over reactive", lambda row: row.gain, up_time),
        TableColumn("longest gap", lambda row: row.longest_gap_h, hours),
        _OFTEN,
        TableColumn("times the least", lambda row: row.times_the_least, number),
        _TWICE,
        TableColumn("node-hours twice", lambda row: row.held_twice_node_h, number),
    ),
}
"""By mode."""


def page(plan: ChainPlan, found: ChainsEvaluation) -> str:
    """The whole of `report.html`."""
    chosen = headline(found.methods)
    origin = found.origin
    facts = [
        ("command", origin["command"]),
        ("job history", origin["trace"]["file"]),
        ("cluster", origin["cluster"]["file"]),
    ]
    return render(
        ReportPage(
            title=sentence(plan, found),
            lead=_lead(plan, found),
            tiles=_tiles(plan, found, chosen),
            sections=[
                Section("goodput", "Goodput and up-time", [*_pictures(plan, found, chosen)]),
                Section("cost", "What it takes", [*_tables(plan, found)]),
                Section("others", "What it takes from others", [*_others(found.figures)]),
                Section("methods", "Methods", [*_methods(found)]),
                Section("limits", "Limits of these data", [_limits(plan, found)]),
                Section("made", "How this was made", [origin_table(origin, facts)]),
            ],
            footer=Markup(
                "Made by <code>mirage evaluate chains</code>. The same figures for programs:"
                " <code>results.json</code>, <code>chains.csv</code>."
            ),
        )
    )


def sentence(plan: ChainPlan, found: ChainsEvaluation) -> str:
    """What came out: of the headline method, on the largest chains, in the first mode."""
    chosen, mode = headline(found.methods), plan.modes[0].value
    if chosen == REACTIVE:
        return "Nothing but the bounds was compared"
    nodes = found.nodes[-1]
    after, before, *most = (
        up_time(row.goodput.value) if mode == Mode.SERVICE.value else share(row.goodput.value)
        for row in (
            found.figures.row(nodes, mode, name)
            for name in (chosen, REACTIVE, ORACLE)
            if name != ORACLE or plan.with_oracle
        )
    )
    does = (
        "keeps services up" if mode == Mode.SERVICE.value else "lets training chains make progress"
    )
    bound = f", the oracle {most[0]}" if most else ""
    return f"On {nodes_words(nodes)}, {chosen} {does} {after} of the time, reactive {before}{bound}"


def _lead(plan: ChainPlan, found: ChainsEvaluation) -> str:
    return (
        f"Chains of {format_duration(plan.limit_s)} links, each watched for"
        f" {format_duration(plan.lasts_s)}, submitted at {several(found.begins, 'begin')} from"
        f" {day(found.begins_s[0])} to {day(found.begins_s[-1])}, beside the recorded jobs of"
        f" {found.origin['trace']['file']}. All methods meet the same background, which reacts to"
        " what the chains take."
    )


def _tiles(plan: ChainPlan, found: ChainsEvaluation, chosen: str) -> list[Tile]:
    mode = plan.modes[0].value
    first = COLUMNS[mode][0]
    return [
        Tile(
            f"{first.head} of {chosen}, {MODES[mode]} on {nodes_words(nodes)}",
            first.cell(found.figures.row(nodes, mode, chosen)),
        )
        for nodes in found.nodes[:4]
    ]


def _pictures(plan: ChainPlan, found: ChainsEvaluation, chosen: str) -> Iterator[Part]:
    yield Paragraph(
        "Goodput: share of the wall clock in which a training chain makes progress, less 10 minutes"
        " for each handover. Up-time: share in which a link of a service is ready, from the first"
        " readiness on. A link is ready 10 minutes after its start, and the one before it ends then."
        " Thin lines: 95 % intervals over begins."
    )
    for mode in plan.modes:
        measure = MEASURES[mode.value]
        pictures = []
        for nodes in found.nodes:
            rows = [
                (method.name, found.figures.row(nodes, mode.value, method.name).goodput)
                for method in found.methods
            ]
            words = f"{measure.capitalize()} of {MODES[mode.value]} on {nodes_words(nodes)}"
            chart = bar_chart(rows, title=words, show=COLUMNS[mode.value][0].show, headline=chosen)
            pictures.append(Picture(MODES[mode.value].capitalize(), nodes_words(nodes), chart))
        yield Pictures(pictures)


def _tables(plan: ChainPlan, found: ChainsEvaluation) -> Iterator[Part]:
    for mode in plan.modes:
        columns = COLUMNS[mode.value]
        groups = [
            (
                nodes_words(nodes),
                [
                    (row.method, *(column.cell(row) for column in columns))
                    for method in found.methods
                    for row in [found.figures.row(nodes, mode.value, method.name)]
                ],
            )
            for nodes in found.nodes
        ]
        head = ("method", *(column.head for column in columns))
        yield DataTable(MODES[mode.value].capitalize(), head, groups, "inline")
    yield Paragraph(
        "Handovers are counted for 100 hours of work, and for one of a chain whose links all run to"
        " their limits (times the least). Held twice: node-hours for a node-hour of work."
    )


def _others(figures: ChainFigures) -> Iterator[Part]:
    if not figures.others_wait:
        yield Paragraph("Not looked at.")
        return
    yield Paragraph(
        "Waits of the other users' jobs that came while the chains ran, all sizes alike. A chain"
        " that is interrupted less runs more, and so takes more; the last column divides by its"
        " work."
    )
    head = (
        "chains",
        "policy",
        "bound",
        "their goodput or up-time",
        "mean wait",
        "p95",
        "more than without",
        "more wait in h, for a node-hour of work",
    )
    show: Callable[[float], str] = hours
    rows = [_others_row(row, show) for row in figures.others_wait]
    yield DataTable("Waits of others", head, [("", rows)], "inline")
    yield Paragraph(
        "Bound: links of one chain that may compete for nodes at once (acting.most_ahead), by which"
        " a site limits it."
    )


def _others_row(row: OthersWait, show: Callable[[float], str]) -> Cells:
    if not row.chains:
        return ("none", *[NOTHING] * 3, estimate_cell(row.mean_h), show(row.p95_h), *[NOTHING] * 2)
    return (
        f"{row.chains} {MODES[row.mode]} on {nodes_words(row.nodes)}",
        row.method,
        str(row.most_ahead),
        NOTHING if row.goodput is None else share(row.goodput),
        estimate_cell(row.mean_h),
        show(row.p95_h),
        estimate_cell(row.more_h),
        NOTHING if row.more_per_node_h is None else number(row.more_per_node_h),
    )


def _methods(found: ChainsEvaluation) -> Iterator[Part]:
    yield Notes([f"{method.name}: {method.about}" for method in found.methods])


def _limits(plan: ChainPlan, found: ChainsEvaluation) -> Part:
    notes = [
        "Chains that begin days apart share weeks of the same queue. The intervals tell how much"
        " the moment of submission matters, not how other months would be.",
        "Other users submit what the history has, whenever it has it, however long they wait.",
        "Rules (after, ahead) look 15 minutes into the simulation's future, which no service can.",
        "The oracle decides link by link, so a method with several links ahead can beat it.",
        f"Decisions come each {format_duration(POLL_S)}, whatever decides.",
    ]
    if not found.is_whole:
        left = [nodes_words(nodes) for nodes in plan.nodes if nodes not in found.nodes]
        words = f" No chain on {', '.join(left)} was tried." if left else ""
        notes.append(f"The time was up after {found.begins} of {plan.begins} begins.{words}")
    return Notes(notes)
