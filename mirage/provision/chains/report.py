"""The page of an evaluation of chains."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from markupsafe import Markup

from mirage.chain.durations import format_duration
from mirage.domain import Mode
from mirage.figures.charts import bar_chart
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
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE
from mirage.provision.evaluation.report.words import nodes_words

MODES = {Mode.TRAIN.value: "training chains", Mode.SERVICE.value: "services"}


def share(value: float) -> str:
    """With a tenth of a percent: goodputs differ by so little."""
    return f"{100 * value:.1f} %"


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
            tiles=_tiles(plan, found.figures, chosen),
            sections=[
                Section("goodput", "Goodput", [*_pictures(plan, found, chosen)]),
                Section("cost", "What it takes", [*_tables(plan, found)]),
                Section("others", "What it takes from others", [*_others(found.figures)]),
                Section("methods", "Methods", [*_methods(found)]),
                Section("limits", "Limits of these data", [_limits(plan, found)]),
                Section("made", "How this was made", [origin_table(origin, facts)]),
            ],
            footer=Markup(
                "Made by <code>mirage evaluate --chains</code>. The same figures for programs:"
                " <code>results.json</code>, <code>chains.csv</code>."
            ),
        )
    )


def sentence(plan: ChainPlan, found: ChainsEvaluation) -> str:
    """What came out: of the headline method, on the largest chains, in the first mode."""
    chosen, mode = headline(found.methods), plan.modes[0].value
    if chosen == REACTIVE:
        return "Nothing but the bounds was compared"
    nodes = plan.nodes[-1]
    after, before, most = (
        found.figures.row(nodes, mode, name).goodput.value for name in (chosen, REACTIVE, ORACLE)
    )
    return (
        f"On {nodes_words(nodes)}, {chosen} lets {MODES[mode]} make progress {share(after)} of the"
        f" time, reactive {share(before)}, the oracle {share(most)}"
    )


def _lead(plan: ChainPlan, found: ChainsEvaluation) -> str:
    return (
        f"Chains of {format_duration(plan.limit_s)} links, each watched for"
        f" {format_duration(plan.lasts_s)}, submitted at {several(found.begins, 'begin')} from"
        f" {day(found.begins_s[0])} to {day(found.begins_s[-1])}, beside the recorded jobs of"
        f" {found.origin['trace']['file']}. All methods meet the same background, which reacts to"
        " what the chains take."
    )


def _tiles(plan: ChainPlan, figures: ChainFigures, chosen: str) -> list[Tile]:
    mode = plan.modes[0].value
    return [
        Tile(
            f"goodput of {chosen}, {MODES[mode]} on {nodes_words(nodes)}",
            estimate_cell(figures.row(nodes, mode, chosen).goodput, share),
        )
        for nodes in plan.nodes[:4]
    ]


def _pictures(plan: ChainPlan, found: ChainsEvaluation, chosen: str) -> Iterator[Part]:
    yield Paragraph(
        "Goodput: share of the wall clock in which a chain makes progress. In a training chain"
        " each handover costs 10 minutes of it; a service's costs none, as the old replica serves"
        " until the new one is healthy. Thin lines: 95 % intervals over begins."
    )
    for mode in plan.modes:
        pictures = []
        for nodes in plan.nodes:
            rows = [
                (method.name, found.figures.row(nodes, mode.value, method.name).goodput)
                for method in found.methods
            ]
            words = f"Goodput of {MODES[mode.value]} on {nodes_words(nodes)}"
            chart = bar_chart(rows, title=words, show=share, headline=chosen)
            pictures.append(Picture(MODES[mode.value].capitalize(), nodes_words(nodes), chart))
        yield Pictures(pictures)


def _tables(plan: ChainPlan, found: ChainsEvaluation) -> Iterator[Part]:
    head = (
        "method",
        "goodput",
        "gain over reactive",
        "interrupted",
        "handovers in 100 h of work",
        "held twice of the work",
        "link",
    )
    for mode in plan.modes:
        groups = [
            (
                nodes_words(nodes),
                [_row(found.figures.row(nodes, mode.value, it.name)) for it in found.methods],
            )
            for nodes in plan.nodes
        ]
        yield DataTable(MODES[mode.value].capitalize(), head, groups, "inline")


def _row(row: ChainSummary) -> Cells:
    return (
        row.method,
        estimate_cell(row.goodput, share),
        estimate_cell(row.gain, share),
        estimate_cell(row.interrupted, share),
        estimate_cell(row.handovers, number),
        estimate_cell(row.held_twice, share),
        estimate_cell(row.link_h),
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
        "their goodput",
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
    ]
    if found.begins < plan.begins:
        notes.append(f"The time was up after {found.begins} of {plan.begins} begins.")
    return Notes(notes)
