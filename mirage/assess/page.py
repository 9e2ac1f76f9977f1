"""`assessment.html` and `assessment.json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from typing import Any

from markupsafe import Markup

from mirage.assess.assessment import CONFIG, MODEL, SiteAssessment
from mirage.assess.habits import WAYS, Habits
from mirage.assess.plan import AssessmentPlan
from mirage.assess.simulated import FIXED, default_rows
from mirage.assess.verdict import headline, judged_days, sentences
from mirage.assess.waits import CAUSES, WaitRow
from mirage.domain import Mode
from mirage.figures.charts import bar_chart
from mirage.figures.output import write_texts
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
from mirage.figures.words import MINUS, NOTHING, hours, percent, several
from mirage.provision.chains.evaluation import ChainsEvaluation
from mirage.provision.chains.report import COLUMNS, MODES, up_time
from mirage.provision.evaluation.report.words import nodes_words
from slurm_sim.seconds import HOUR_S

SCHEMA = 1
PAGE, RESULTS = "assessment.html", "assessment.json"
MOST_USERS = 10


def anonymous(found: SiteAssessment) -> SiteAssessment:
    """Without names of users, partitions and files."""
    users = {f"user {rank}": h for rank, h in enumerate(found.habits.by_user.values(), 1)}
    partitions = tuple(
        replace(row, name=f"partition {rank}")
        for rank, row in enumerate(found.waits.by_partition, 1)
    )
    facts = replace(found.facts, partition="its partition", notes=())
    return replace(
        found,
        facts=facts,
        habits=replace(found.habits, by_user=users),
        waits=replace(found.waits, by_partition=partitions),
    )


def record(found: SiteAssessment, origin: dict[str, Any]) -> dict[str, Any]:
    """What stands in assessment.json (docs/assess.md)."""
    return {
        "schema": SCHEMA,
        "provenance": origin,
        "headline": headline(found),
        "sentences": sentences(found),
        "facts": asdict(found.facts) | {"days": found.facts.days},
        "waits": asdict(found.waits) | {"contention": found.waits.contention},
        "habits": asdict(found.habits),
        "chains": [asdict(row) for row in found.chains.figures.summary] if found.chains else None,
        "size_waits": [asdict(row) for row in found.size_waits],
        "chains_by_priorities": {
            name: [asdict(row) for row in chains.figures.summary]
            for name, chains in found.by_priorities.items()
        },
        "routing": asdict(found.routing) if found.routing else None,
        "why_no_routing": found.why_no_routing or None,
        "why_no_chains": found.why_no_chains or None,
        "model": str(found.model) if found.model else None,
        "why_no_model": found.why_no_model or None,
        "steps_s": {name: round(took_s, 1) for name, took_s in found.steps_s.items()},
    }


def write(plan: AssessmentPlan, found: SiteAssessment, origin: dict[str, Any]) -> dict[str, Any]:
    """Both files. Returns the JSON's record. Raises MirageError."""
    result = record(found, origin)
    texts = {
        PAGE: render(report_page(found, origin)),
        RESULTS: json.dumps(result, indent=1, default=str) + "\n",
    }
    write_texts(plan.out, texts)
    return result


def report_page(found: SiteAssessment, origin: dict[str, Any]) -> ReportPage:
    """The page."""
    first, *others = sentences(found)
    facts = [("command", origin["command"]), ("job history", origin["trace"]["file"])]
    return ReportPage(
        title=headline(found),
        lead=first,
        tiles=list(_tiles(found)),
        warning=""
        if found.facts.scheduler_is_known
        else "The scheduler's priorities are assumed, since no slurm.conf was given.",
        sections=[
            Section("short", "In short", [Notes(others)]),
            Section("queue", "The queue", list(_queue(found))),
            Section("today", "Chains of today", list(_today(found.habits))),
            Section("mirage", "Chains with Mirage", list(_with_mirage(found))),
            Section("routing", "Routing", list(_routing(found))),
            Section("next", "What to do next", list(_next(found))),
            Section("made", "How this was made", [origin_table(origin, facts)]),
        ],
        footer=Markup(
            "Made by <code>mirage assess</code>. For programs: <code>assessment.json</code>."
        ),
    )


def _tiles(found: SiteAssessment) -> Iterator[Tile]:
    yield Tile("mean wait", hours(found.waits.all_jobs.mean_s / HOUR_S))
    if found.waits.contention is not None:
        yield Tile("of it for nodes", percent(found.waits.contention))
    yield Tile("chains today", str(found.habits.chains))
    for row in default_rows(found.chains):
        if row.gain is not None:
            yield Tile(
                f"gain of goodput, {nodes_words(row.nodes)}", estimate_cell(row.gain, _share)
            )
    for row in default_rows(found.chains, Mode.SERVICE):
        yield Tile(
            f"up-time of a service, {nodes_words(row.nodes)}", estimate_cell(row.goodput, up_time)
        )


def _queue(found: SiteAssessment) -> Iterator[Part]:
    waits = found.waits
    yield Pictures(
        [
            Picture(
                "Mean wait by nodes",
                "Hours from submission to start.",
                _bars("Mean wait by nodes", waits.by_size),
            ),
            Picture(
                "Mean wait by hour of submission",
                f"Hours of the day, zone {found.timezone} (--timezone).",
                _bars("Mean wait by hour", waits.by_hour),
            ),
        ]
    )
    total = sum(waits.hours_by_cause.values()) or 1.0
    rows = [
        (cause, CAUSES[cause], hours(value), percent(value / total))
        for cause, value in waits.hours_by_cause.items()
    ]
    yield DataTable(
        "What jobs waited for", ("cause", "meaning", "hours", "share"), [("", rows)], "wide-words"
    )
    yield DataTable(
        "Waits by partition",
        ("partition", "jobs", "mean", "median", "one in ten longer than"),
        [("", [_wait_cells(row) for row in waits.by_partition])],
    )


def _bars(title: str, rows: tuple[WaitRow, ...]) -> Markup:
    return bar_chart([(row.name, row.mean_s / HOUR_S) for row in rows], title=title, show=hours)


def _wait_cells(row: WaitRow) -> Cells:
    waits = (hours(value / HOUR_S) for value in (row.mean_s, row.p50_s, row.p90_s))
    return (row.name or NOTHING, f"{row.jobs:,}", *waits)


def _today(habits: Habits) -> Iterator[Part]:
    yield Paragraph(
        "Series of three jobs or more that continue each other, found by user, size, limit and"
        " times. An estimate: a history has no word for a chain."
    )
    rows = [
        (
            habit.way,
            WAYS[habit.way],
            str(habit.chains),
            str(habit.users),
            hours(habit.interrupted_h) if habit.chains else NOTHING,
            percent(habit.interrupted) if habit.chains else NOTHING,
        )
        for habit in habits.by_way
    ]
    head = ("way", "meaning", "chains", "users", "interrupted", "of the time")
    yield DataTable("How users chain jobs", head, [("", rows)], "wide-words")
    lost_h = {user: lost for user, lost in habits.by_user.items() if lost * 60 >= 1}
    users = [(user, hours(lost)) for user, lost in list(lost_h.items())[:MOST_USERS]]
    if users:
        yield DataTable("Who was interrupted longest", ("user", "hours"), [("", users)])


def _with_mirage(found: SiteAssessment) -> Iterator[Part]:
    if found.chains is None or found.chain_plan is None:
        yield Paragraph(f"Not simulated: {found.why_no_chains}.")
        return
    yield Paragraph(
        f"Chains of {hours(found.chain_plan.limit_s / HOUR_S)} links beside the recorded jobs of"
        f" the last {judged_days(found):.0f} days, which training did not see. Goodput: share of"
        " the time in which a training chain makes progress, less 10 minutes for each handover."
        " Up-time: share in which a service is ready; a link is, 10 minutes after its start."
        " reactive: Slurm's dependency alone, as most users chain today. default: Mirage without a"
        f" model. {FIXED}: the successor is let in 3 h before the end.{_oracle(found)}"
        f" {_intervals(found.chains)}"
    )
    waits = [
        (
            nodes_words(row.nodes),
            *(_hours(h) for h in (row.simulated_h, row.judged_h, row.history_h)),
        )
        for row in found.size_waits
    ]
    yield DataTable(
        "Mean waits, simulated and recorded",
        ("size", "simulated successor today", "recorded jobs, these days", "all that was read"),
        [("", waits)],
    )
    for mode in found.chain_plan.modes:
        columns = COLUMNS[mode.value]
        groups = [
            (nodes_words(nodes), list(_method_rows(found.chains, nodes, mode.value)))
            for nodes in found.chains.nodes
        ]
        head = ("method", *(column.head for column in columns))
        yield DataTable(MODES[mode.value].capitalize(), head, groups, "inline")


def _oracle(found: SiteAssessment) -> str:
    if found.chain_plan is None or not found.chain_plan.with_oracle:
        return ""
    return (
        " oracle: knows when each successor would start; it decides link by link, so another method"
        " may be a little better."
    )


def _hours(value_h: float | None) -> str:
    return NOTHING if value_h is None else hours(value_h)


def _intervals(chains: ChainsEvaluation) -> str:
    if any(row.goodput.low is not None for row in chains.figures.summary):
        return "Small print: 95 % intervals over begins."
    return f"Means of {several(chains.begins, 'begin')}, too few for intervals."


def _method_rows(chains: ChainsEvaluation, nodes: int, mode: str) -> Iterator[Cells]:
    columns = COLUMNS[mode]
    for method in chains.methods:
        row = chains.figures.row(nodes, mode, method.name)
        if not row.work_node_h:
            yield (row.method, "never started", *[NOTHING] * (len(columns) - 1))
            continue
        yield (row.method, *(column.cell(row) for column in columns))


def _routing(found: SiteAssessment) -> Iterator[Part]:
    routing = found.routing
    if routing is None:
        yield Paragraph(f"Not judged: {found.why_no_routing.rstrip('.')}.")
        return
    yield Paragraph(
        "Recorded jobs that ask for GPUs and fit in more than one partition, simulated twice: in"
        " the partitions that their users chose, and in all that admit them (-p A,B), where Slurm"
        " starts each where it first can. Small print: 95 % interval."
    )
    cells = (
        f"{routing.jobs:,}",
        f"{routing.moved:,}",
        hours(routing.recorded_h),
        hours(routing.routed_h),
        estimate_cell(routing.saved_h, hours),
    )
    head = ("jobs", "moved", "mean wait as chosen", "mean wait by -p A,B", "saved a job")
    yield DataTable("Routing between partitions", head, [("", [cells])])


def _next(found: SiteAssessment) -> Iterator[Part]:
    notes = [
        f"{CONFIG} has a service that only observes: mirage daemon --config {CONFIG}. Its user must"
        f" be able to read this folder. After some days `mirage report --config {CONFIG}` says what"
        " it would have done.",
        *found.facts.notes,
    ]
    if found.model:
        notes.insert(1, f"{MODEL} is the model that was trained for this page.")
    yield Notes(notes)


def _share(value: float) -> str:
    return f"{100 * value:.1f} %".replace("-", MINUS)
