"""The page put together: a headline in words, then charts, then the figures behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from markupsafe import Markup

from mirage.domain import Penalties
from mirage.figures.charts import curve_swatch, swatch
from mirage.figures.page import (
    DataTable,
    Heading,
    Legend,
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
from mirage.figures.words import NOTHING, day, instant, percent, several
from mirage.provision.evaluation.comparison import Comparison, MethodInfo
from mirage.provision.evaluation.metrics import ALL, Group, MethodSummary, ratio_text
from mirage.provision.evaluation.protocol import ORACLE
from mirage.provision.evaluation.report import charts
from mirage.provision.evaluation.report.tables import (
    coverage_table,
    difference_table,
    glance_table,
    main_table,
    situation_table,
    waste_table,
)
from mirage.provision.evaluation.report.timeline import examples, timeline
from mirage.provision.evaluation.report.words import (
    LOAD_RULES,
    LOAD_WORDS,
    caveats,
    headline,
    headline_row,
    nodes_words,
    penalties_words,
    subtitle,
)

Json = Mapping[str, Any]


def page(comparison: Comparison, provenance: Json) -> str:
    """The whole of `report.html`. ``provenance`` as in results.json."""
    sections = [
        ("outcomes", "Interruption and overlap", _outcomes(comparison)),
        ("shares", "How late or early successors started", _shares(comparison)),
        ("tradeoff", "The trade-off", _tradeoff(comparison)),
        ("best", "How close to the best possible", _best(comparison)),
        ("predicted", "Predicted and real waits", _predicted(comparison)),
        ("episodes", "Single episodes", _episodes(comparison)),
        ("cost", "What it costs", _cost(comparison)),
        ("limits", "Limits of these data", _limits(comparison)),
        ("figures", "All figures", _figures(comparison)),
        ("made", "How this was made", _made(comparison, provenance)),
    ]
    return render(
        ReportPage(
            title=headline(comparison),
            lead=subtitle(comparison, _trace(provenance)),
            tiles=_tiles(comparison),
            warning=_warning(comparison),
            sections=[Section(anchor, title, [*parts]) for anchor, title, parts in sections],
            footer=Markup(
                "Made by <code>mirage evaluate</code>. The same figures for programs:"
                " <code>results.json</code>, <code>episodes.csv</code>."
            ),
        )
    )


def _trace(provenance: Json) -> str:
    return str(provenance["trace"]["file"])


def _tiles(comparison: Comparison) -> list[Tile]:
    """The headline method's four figures."""
    row = headline_row(comparison)
    if row is None:
        return []
    where = f"{LOAD_WORDS[row.load]}, {nodes_words(row.nodes)}, {row.penalties}"
    return [
        Tile(f"less interruption than reactive ({where})", estimate_cell(row.reduction, percent)),
        Tile(
            "of handovers with under 10 min of interruption",
            estimate_cell(row.under_10_min, percent),
        ),
        Tile("overlap at a handover", estimate_cell(row.overlap_h)),
        Tile(
            "regret: 0 is the best possible, 100 % is reactive", estimate_cell(row.regret, percent)
        ),
    ]


def _warning(comparison: Comparison) -> str:
    names = [method.name for method in comparison.methods if method.saw_these]
    if not names:
        return ""
    return Markup(
        "Trained on a part of the very time shown here: <b>{}</b>. These figures are too good."
        " Choose a later <code>--start</code>."
    ).format(", ".join(names))


def _rows(
    comparison: Comparison, group: Group, load: str, penalties: Penalties
) -> list[MethodSummary]:
    found = (
        comparison.row(group.nodes, load, penalties, method.name) for method in comparison.methods
    )
    return [row for row in found if row is not None]


def _each(comparison: Comparison) -> Iterator[tuple[Group, Penalties, Heading]]:
    """Sizes and penalties, with the heading for both."""
    for group in comparison.groups:
        for penalties in comparison.setup.penalties:
            words = (
                f"{nodes_words(group.nodes).capitalize()}: {penalties_words(ratio_text(penalties))}"
            )
            yield group, penalties, Heading(words)


def _loads(comparison: Comparison, group: Group) -> Iterator[tuple[str, str, str]]:
    """The load classes that occur, each with a caption."""
    for situation in comparison.situations:
        if situation.nodes == group.nodes and situation.load != ALL:
            counted = several(situation.episodes, "episode")
            if situation.spells is not None:
                counted += f" in {several(situation.spells, 'spell')}"
            words = LOAD_WORDS[situation.load].capitalize()
            yield situation.load, words, f"{counted}; {LOAD_RULES[situation.load]}"


Draw = Callable[[list[MethodSummary], str], Markup]


def _by_load(comparison: Comparison, draw: Draw) -> Iterator[Part]:
    """A picture of each load class, for each size and pair of penalties."""
    for group, penalties, heading in _each(comparison):
        yield heading
        yield Pictures(
            [
                Picture(
                    words,
                    small,
                    draw(_rows(comparison, group, load, penalties), comparison.headline),
                )
                for load, words, small in _loads(comparison, group)
            ]
        )


def _outcomes(comparison: Comparison) -> Iterator[Part]:
    yield Paragraph(
        Markup(
            "<b>Interruption</b>: nothing of the chain ran. <b>Overlap</b>: predecessor and"
            " successor both held nodes. Bars are means over the episodes of a load class, thin"
            " lines their 95&nbsp;% intervals. Each picture has its own scale. <b>reactive</b> is"
            " what users do today: the successor enters the queue when its predecessor ends."
            " <b>oracle</b> is the best that was possible, known only afterwards."
        )
    )
    yield from _by_load(comparison, charts.outcome_bars)


def _shares(comparison: Comparison) -> Iterator[Part]:
    yield Paragraph(
        "All handovers of a load class, from those interrupted longest to those overlapped longest."
    )
    yield Legend(
        [(swatch(f"outcome{index}"), words) for index, words in enumerate(charts.OUTCOMES)]
    )
    yield from _by_load(comparison, charts.outcome_shares)


def _tradeoff(comparison: Comparison) -> Iterator[Part]:
    first, last = comparison.setup.curve[0], comparison.setup.curve[-1]
    marked = [ratio_text(each) for each in comparison.setup.penalties]
    yield Paragraph(
        f"Every method was asked for penalties from {ratio_text(first)} to {ratio_text(last)}: the"
        " more an interruption weighs, the further right it goes. Nothing can be nearer to the"
        " corner than the oracle's line. A method that does not mind penalties is one point. Large"
        f" points: {' and '.join(marked)}. The axes are stretched near zero (square roots)."
    )
    names = [method.name for method in comparison.methods]
    yield Legend(
        [(curve_swatch(charts.method_style(name, index)), name) for index, name in enumerate(names)]
    )
    pictures = []
    for group in comparison.groups:
        for load in comparison.shown_loads(group.nodes):
            points = [
                point
                for point in comparison.tradeoff
                if (point.nodes, point.load) == (group.nodes, load)
            ]
            picture = charts.tradeoff(points, names, marked)
            pictures.append(
                Picture(LOAD_WORDS[load].capitalize(), nodes_words(group.nodes), picture)
            )
    yield Pictures(pictures, are_wide=True)


def _best(comparison: Comparison) -> Iterator[Part]:
    yield Paragraph(
        Markup(
            "<b>Regret</b> is the share of the distance from reactive to the oracle that is left,"
            " in penalty: 0 is the oracle, 100&nbsp;% is no better than reactive. Below, all"
            " methods are compared with <b>{}</b> episode by episode, which is far sharper than to"
            " compare their means."
        ).format(comparison.headline)
    )
    regrets, differences = [], []
    for group, penalties, _ in _each(comparison):
        small = f"{nodes_words(group.nodes)}, penalties {ratio_text(penalties)}"
        load = comparison.busiest(group.nodes) or ALL
        rows = _rows(comparison, group, load, penalties)
        rows = [row for row in rows if row.method != ORACLE]
        if any(row.regret for row in rows):
            picture = charts.regrets(rows, comparison.headline)
            regrets.append(Picture(LOAD_WORDS[load].capitalize(), small, picture))
        if others := comparison.against_headline(group.nodes, ALL, penalties):
            title = f"Penalty minus that of {comparison.headline}, all loads"
            differences.append(Picture(title, small, charts.differences(others)))
    yield Pictures(regrets, are_wide=True)
    yield Pictures(differences, are_wide=True)


def _predicted(comparison: Comparison) -> Iterator[Part]:
    if not comparison.coverage:
        yield Paragraph("None of the methods tells how long the wait would be.")
        return
    yield Paragraph(
        "Of a well calibrated p90, nine in ten real waits stay at or below it. A blue block goes"
        " from the share of real waits below the quantile to the share at or below it (many waits"
        " are exactly 0); a red mark is where it should be. All decision points of all episodes"
        " count."
    )
    covered = []
    for group in comparison.groups:
        for load in comparison.shown_loads(group.nodes):
            rows = [
                row for row in comparison.coverage if (row.nodes, row.load) == (group.nodes, load)
            ]
            if rows:
                words = LOAD_WORDS[load].capitalize()
                covered.append(Picture(words, nodes_words(group.nodes), charts.coverage(rows)))
    yield Pictures(covered, are_wide=True)
    yield Paragraph(
        "Where a method predicted about the same median: what it predicted (blue) and what came"
        " (grey), from p10 to p90, with a line at the median. Hours, stretched near zero."
    )
    bins = []
    for nodes, name in dict.fromkeys((row.nodes, row.method) for row in comparison.bins):
        own = [row for row in comparison.bins if (row.nodes, row.method) == (nodes, name)]
        bins.append(Picture(name, nodes_words(nodes), charts.predicted(own)))
    yield Pictures(bins)


def _episodes(comparison: Comparison) -> Iterator[Part]:
    penalties = comparison.setup.penalties[0]
    yield Paragraph(
        f"Penalties {ratio_text(penalties)}. A tick is the moment at which a method lets the"
        " successor into the queue, the dashed line its wait; red is interruption, blue is"
        " overlap, green the successor alone."
    )
    names = [method.name for method in comparison.methods]
    pictures = []
    for group in comparison.groups:
        for example in examples(group, comparison.headline, penalties):
            small = f"{nodes_words(group.nodes)}, begun {instant(example.trial.episode.begin_s)}"
            picture = timeline(example.trial, names, comparison.headline, penalties)
            pictures.append(Picture(example.title, small, picture))
    yield Pictures(pictures)


def _cost(comparison: Comparison) -> Iterator[Part]:
    yield Paragraph(
        Markup(
            "While both jobs hold nodes, one set of them does no new work. A successor that takes"
            " over and ends its predecessor at once gives these hours back: this is the most that"
            " an overlap can cost. What an hour less of interruption costs stands"
            ' <a href="#figures">in the tables</a>.'
        )
    )
    pictures = []
    for group, penalties, _ in _each(comparison):
        rows = _rows(comparison, group, ALL, penalties)
        small = f"{nodes_words(group.nodes)}, penalties {ratio_text(penalties)}, all loads"
        picture = charts.waste(rows, comparison.headline)
        pictures.append(Picture("Node-hours held twice at a handover", small, picture))
    yield Pictures(pictures, are_wide=True)


def _limits(comparison: Comparison) -> Iterator[Part]:
    yield Notes([*caveats(comparison)])
    yield situation_table(comparison)


def _figures(comparison: Comparison) -> Iterator[Part]:
    yield glance_table(comparison)
    for group, penalties, _ in _each(comparison):
        yield main_table(comparison, group, penalties)
    for group, penalties, _ in _each(comparison):
        yield difference_table(comparison, group, penalties)
    for penalties in comparison.setup.penalties:
        yield waste_table(comparison, penalties)
    if comparison.coverage:
        yield coverage_table(comparison)


def _made(comparison: Comparison, provenance: Json) -> Iterator[Part]:
    yield Paragraph(Markup("<code>{}</code>").format(provenance["command"]))
    methods = [_method(method) for method in comparison.methods]
    head = ("method", "kind", "what it does", "learnt from", "model")
    yield DataTable("Methods", head, [("", methods)], "wide-words")
    setup, trace = comparison.setup, provenance["trace"]
    yield origin_table(
        provenance,
        [
            ("job history", f"{trace['file']}, {trace['jobs']:,} jobs, {_digest(trace)}"),
            ("cluster", f"{provenance['cluster']['file']}, {_digest(provenance['cluster'])}"),
            ("warm-up", setup.warm_up),
            ("intervals", f"circular block bootstrap, {setup.resamples:,} resamples"),
        ],
    )


def _method(method: MethodInfo) -> tuple[str, ...]:
    learnt = (
        NOTHING
        if method.train_s is None
        else f"{day(method.train_s[0])} to {day(method.train_s[1])}"
    )
    return (method.name, method.kind, method.about, learnt, method.folder or NOTHING)


def _digest(record: Json) -> str:
    return f"SHA-256 {record['sha256'][:16]}…"
