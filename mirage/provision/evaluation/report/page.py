"""The page put together: a headline in words, then charts, then the figures behind them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from html import escape
from importlib import resources
from typing import Any

from mirage.domain import Penalties
from mirage.provision.evaluation.comparison import Comparison, MethodInfo
from mirage.provision.evaluation.metrics import ALL, Group, Summary, ratio_text
from mirage.provision.evaluation.protocol import ORACLE
from mirage.provision.evaluation.report import charts
from mirage.provision.evaluation.report.tables import (
    coverage_table,
    difference_table,
    figure,
    glance_table,
    main_table,
    situation_table,
    table,
    waste_table,
)
from mirage.provision.evaluation.report.timeline import examples, timeline
from mirage.provision.evaluation.report.words import (
    LOAD_RULES,
    LOAD_WORDS,
    NOTHING,
    caveats,
    day,
    headline,
    headline_row,
    instant,
    nodes_words,
    penalties_words,
    percent,
    several,
    subtitle,
)

Json = Mapping[str, Any]


def page(comparison: Comparison, provenance: Json) -> str:
    """The whole of `report.html`. ``provenance`` as in results.json."""
    style = resources.files("mirage.figures").joinpath("style.css").read_text(encoding="utf-8")
    sections = [
        ("outcomes", "Interruption and overlap", _outcomes(comparison)),
        ("shares", "How late or early successors started", _shares(comparison)),
        ("tradeoff", "The trade-off", _tradeoff(comparison)),
        ("best", "How close to the best possible", _best(comparison)),
        ("foretold", "Foretold and real waits", _foretold(comparison)),
        ("episodes", "Single episodes", _episodes(comparison)),
        ("cost", "What it costs", _cost(comparison)),
        ("limits", "What these data can't tell", _limits(comparison)),
        ("figures", "All figures", _figures(comparison)),
        ("made", "How this was made", _made(comparison, provenance)),
    ]
    links = "".join(
        f'<li><a href="#{name}">{escape(title)}</a></li>' for name, title, _ in sections
    )
    body = "".join(_section(name, title, parts) for name, title, parts in sections)
    title = headline(comparison)
    return (
        '<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f"<header><h1>{_unbroken(title)}</h1>"
        f'<p class="lead">{escape(subtitle(comparison, _trace(provenance)))}</p>'
        f"{_tiles(comparison)}{_warning(comparison)}"
        f'<nav aria-label="Contents"><ul>{links}</ul></nav></header><main>{body}</main>'
        "<footer><p>Made by <code>mirage evaluate</code>. The same figures for programs: "
        "<code>results.json</code>, <code>episodes.csv</code>.</p></footer></body></html>\n"
    )


def _trace(provenance: Json) -> str:
    return str(provenance["trace"]["file"])


def _section(name: str, title: str, parts: Iterable[str]) -> str:
    return (
        f'<section aria-labelledby="{name}"><h2 id="{name}">{escape(title)}</h2>'
        f"{''.join(parts)}</section>"
    )


def _figure(caption: str, small: str, picture: str) -> str:
    return f"<figure><figcaption>{escape(caption)}<small>{escape(small)}</small></figcaption>{picture}</figure>"


def _paragraph(words: str) -> str:
    return f"<p>{words}</p>"


def _unbroken(words: str) -> str:
    """As HTML; no line ends between a number and its unit."""
    return re.sub(r"(\d) (h|min|%)", r"\1&nbsp;\2", escape(words))


def _tiles(comparison: Comparison) -> str:
    """The headline method's four figures."""
    row = headline_row(comparison)
    if row is None:
        return ""
    where = f"{LOAD_WORDS[row.load]}, {nodes_words(row.nodes)}, {row.penalties}"
    tiles = [
        (f"less interruption than reactive ({where})", figure(row.reduction, percent)),
        ("of handovers with under 10 min of interruption", figure(row.under_10_min, percent)),
        ("overlap at a handover", figure(row.overlap_h)),
        ("regret: 0 is the best possible, 100 % is reactive", figure(row.regret, percent)),
    ]
    cells = "".join(
        f"<div><dt>{_unbroken(name)}</dt><dd>{value}</dd></div>" for name, value in tiles
    )
    return f'<dl class="tiles">{cells}</dl>'


def _warning(comparison: Comparison) -> str:
    names = [method.name for method in comparison.methods if method.saw_these]
    if not names:
        return ""
    return (
        '<p class="warning">Trained on a part of the very time shown here:'
        f" <b>{escape(', '.join(names))}</b>. These figures are too good. Choose a later"
        " <code>--start</code>.</p>"
    )


def _rows(comparison: Comparison, group: Group, load: str, penalties: Penalties) -> list[Summary]:
    found = (
        comparison.row(group.nodes, load, penalties, method.name) for method in comparison.methods
    )
    return [row for row in found if row is not None]


def _each(comparison: Comparison) -> Iterator[tuple[Group, Penalties, str]]:
    """Sizes and penalties, with the heading for both."""
    for group in comparison.groups:
        for penalties in comparison.setup.penalties:
            words = (
                f"{nodes_words(group.nodes).capitalize()}: {penalties_words(ratio_text(penalties))}"
            )
            yield group, penalties, f"<h3>{escape(words)}</h3>"


def _loads(comparison: Comparison, group: Group) -> Iterator[tuple[str, str, str]]:
    """The load classes that occur, each with a caption."""
    for situation in comparison.situations:
        if situation.nodes == group.nodes and situation.load != ALL:
            counted = several(situation.episodes, "episode")
            if situation.spells is not None:
                counted += f" in {several(situation.spells, 'spell')}"
            words = LOAD_WORDS[situation.load].capitalize()
            yield situation.load, words, f"{counted}; {LOAD_RULES[situation.load]}"


def _outcomes(comparison: Comparison) -> Iterator[str]:
    yield _paragraph(
        "<b>Interruption</b>: nothing of the chain ran. <b>Overlap</b>: predecessor and successor"
        " both held nodes. Bars are means over the episodes of a load class, thin lines their"
        " 95&nbsp;% intervals. Each picture has its own scale. <b>reactive</b> is what users do"
        " today: the successor enters the queue when its predecessor ends. <b>oracle</b> is the"
        " best that was possible, known only afterwards."
    )
    for group, penalties, heading in _each(comparison):
        yield heading + '<div class="charts">'
        for load, words, small in _loads(comparison, group):
            picture = charts.outcome_bars(
                _rows(comparison, group, load, penalties), comparison.headline
            )
            yield _figure(words, small, picture)
        yield "</div>"


def _shares(comparison: Comparison) -> Iterator[str]:
    yield _paragraph(
        "All handovers of a load class, from those interrupted longest to those overlapped longest."
    )
    swatch = (
        '<svg viewBox="0 0 24 12" aria-hidden="true"><rect width="24" height="12"'
        ' class="outcome{}"/></svg>'
    )
    items = "".join(
        f"<li>{swatch.format(index)}{words}</li>" for index, words in enumerate(charts.OUTCOMES)
    )
    yield f'<ul class="legend">{items}</ul>'
    for group, penalties, heading in _each(comparison):
        yield heading + '<div class="charts">'
        for load, words, small in _loads(comparison, group):
            picture = charts.outcome_shares(
                _rows(comparison, group, load, penalties), comparison.headline
            )
            yield _figure(words, small, picture)
        yield "</div>"


def _tradeoff(comparison: Comparison) -> Iterator[str]:
    first, last = comparison.setup.curve[0], comparison.setup.curve[-1]
    marked = [ratio_text(each) for each in comparison.setup.penalties]
    yield _paragraph(
        f"Every method was asked for penalties from {ratio_text(first)} to {ratio_text(last)}: the"
        " more an interruption weighs, the further right it goes. Nothing can be nearer to the"
        " corner than the oracle's line. A method that does not mind penalties is one point. Large"
        f" points: {escape(' and '.join(marked))}. The axes are stretched near zero (square roots)."
    )
    names = [method.name for method in comparison.methods]
    yield (
        f'<ul class="legend">{"".join(_curve_key(name, index) for index, name in enumerate(names))}</ul>'
    )
    yield '<div class="charts two">'
    for group in comparison.groups:
        for load in comparison.shown_loads(group.nodes):
            points = [
                point
                for point in comparison.tradeoff
                if (point.nodes, point.load) == (group.nodes, load)
            ]
            words = LOAD_WORDS[load].capitalize()
            yield _figure(words, nodes_words(group.nodes), charts.tradeoff(points, names, marked))
    yield "</div>"


def _curve_key(name: str, index: int) -> str:
    style = charts.method_style(name, index)
    swatch = (
        '<svg viewBox="0 0 26 12" aria-hidden="true"><path d="M0 6L26 6" class="curve'
        f' {style}"/><circle cx="13" cy="6" r="4.5" class="mark {style}"/></svg>'
    )
    return f"<li>{swatch}{escape(name)}</li>"


def _best(comparison: Comparison) -> Iterator[str]:
    yield _paragraph(
        "<b>Regret</b> is the share of the distance from reactive to the oracle that is left, in"
        " penalty: 0 is the oracle, 100&nbsp;% is no better than reactive. Below, all methods are"
        f" compared with <b>{escape(comparison.headline)}</b> episode by episode, which is far"
        " sharper than to compare their means."
    )
    yield '<div class="charts two">'
    for group, penalties, _ in _each(comparison):
        load = comparison.busiest(group.nodes)
        rows = [
            row for row in _rows(comparison, group, load or ALL, penalties) if row.method != ORACLE
        ]
        if any(row.regret for row in rows):
            small = f"{nodes_words(group.nodes)}, penalties {ratio_text(penalties)}"
            yield _figure(
                LOAD_WORDS[load or ALL].capitalize(),
                small,
                charts.regrets(rows, comparison.headline),
            )
    yield "</div>"
    yield '<div class="charts two">'
    for group, penalties, _ in _each(comparison):
        differences = comparison.against_headline(group.nodes, ALL, penalties)
        if differences:
            small = f"{nodes_words(group.nodes)}, penalties {ratio_text(penalties)}"
            title = f"Penalty minus that of {comparison.headline}, all loads"
            yield _figure(title, small, charts.differences(differences))
    yield "</div>"


def _foretold(comparison: Comparison) -> Iterator[str]:
    if not comparison.coverage:
        yield _paragraph("None of the methods tells how long the wait would be.")
        return
    yield _paragraph(
        "Of a well calibrated p90, nine in ten real waits stay at or below it. A blue block goes"
        " from the share of real waits below the quantile to the share at or below it (many waits"
        " are exactly 0); a red mark is where it should be. All decision points of all episodes"
        " count."
    )
    yield '<div class="charts two">'
    for group in comparison.groups:
        for load in comparison.shown_loads(group.nodes):
            rows = [
                row for row in comparison.coverage if (row.nodes, row.load) == (group.nodes, load)
            ]
            if rows:
                yield _figure(
                    LOAD_WORDS[load].capitalize(), nodes_words(group.nodes), charts.coverage(rows)
                )
    yield "</div>"
    yield _paragraph(
        "Where a method foretold about the same median: what it foretold (blue) and what came"
        " (grey), from p10 to p90, with a line at the median. Hours, stretched near zero."
    )
    yield '<div class="charts">'
    for nodes, name in dict.fromkeys((row.nodes, row.method) for row in comparison.bins):
        bins = [row for row in comparison.bins if (row.nodes, row.method) == (nodes, name)]
        yield _figure(name, nodes_words(nodes), charts.foretold(bins))
    yield "</div>"


def _episodes(comparison: Comparison) -> Iterator[str]:
    penalties = comparison.setup.penalties[0]
    yield _paragraph(
        f"Penalties {ratio_text(penalties)}. A tick is the moment at which a method lets the"
        " successor into the queue, the dashed line its wait; red is interruption, blue is"
        " overlap, green the successor alone."
    )
    names = [method.name for method in comparison.methods]
    yield '<div class="charts">'
    for group in comparison.groups:
        for example in examples(group, comparison.headline, penalties):
            begun = instant(example.trial.episode.begin_s)
            picture = timeline(example.trial, names, comparison.headline, penalties)
            yield _figure(example.title, f"{nodes_words(group.nodes)}, begun {begun}", picture)
    yield "</div>"


def _cost(comparison: Comparison) -> Iterator[str]:
    yield _paragraph(
        "While both jobs hold nodes, one set of them does no new work. A successor that takes over"
        " and ends its predecessor at once gives these hours back: this is the most that an overlap"
        ' can cost. What an hour less of interruption costs stands <a href="#figures">in the'
        " tables</a>."
    )
    yield '<div class="charts two">'
    for group, penalties, _ in _each(comparison):
        rows = _rows(comparison, group, ALL, penalties)
        small = f"{nodes_words(group.nodes)}, penalties {ratio_text(penalties)}, all loads"
        yield _figure(
            "Node-hours held twice at a handover", small, charts.waste(rows, comparison.headline)
        )
    yield "</div>"


def _limits(comparison: Comparison) -> Iterator[str]:
    yield f"<ul>{''.join(f'<li>{escape(each)}</li>' for each in caveats(comparison))}</ul>"
    yield situation_table(comparison)


def _figures(comparison: Comparison) -> Iterator[str]:
    yield glance_table(comparison)
    for group, penalties, _ in _each(comparison):
        yield main_table(comparison, group, penalties)
    for group, penalties, _ in _each(comparison):
        yield f'<div class="inline">{difference_table(comparison, group, penalties)}</div>'
    for penalties in comparison.setup.penalties:
        yield waste_table(comparison, penalties)
    if comparison.coverage:
        yield coverage_table(comparison)


def _made(comparison: Comparison, provenance: Json) -> Iterator[str]:
    yield _paragraph(f"<code>{escape(str(provenance['command']))}</code>")
    methods = [_method(method) for method in comparison.methods]
    head = ("method", "kind", "what it does", "learnt from", "model")
    yield f'<div class="wide-words">{table("Methods", head, [("", methods)])}</div>'
    setup = comparison.setup
    facts = [
        (
            "job history",
            (
                f"{_trace(provenance)}, {provenance['trace']['jobs']:,} jobs,"
                f" {_digest(provenance['trace'])}"
            ),
        ),
        ("cluster", f"{provenance['cluster']['file']}, {_digest(provenance['cluster'])}"),
        ("warm-up", setup.warm_up),
        (
            "intervals",
            f"circular block bootstrap, {setup.resamples:,} resamples, seed {setup.seed}",
        ),
        (
            "versions",
            ", ".join(f"{name} {version}" for name, version in provenance["versions"].items()),
        ),
        (
            "machine",
            ", ".join(str(part) for part in provenance["machine"].values() if part) + " cores",
        ),
        ("ran", f"{provenance['started']}, for {provenance['wall_s']:.0f} s"),
    ]
    rows = [(escape(name), f"<code>{escape(value)}</code>") for name, value in facts]
    yield f'<div class="wide-words">{table("What went in", ("", ""), [("", rows)])}</div>'


def _method(method: MethodInfo) -> tuple[str, ...]:
    learnt = (
        NOTHING
        if method.train_s is None
        else f"{day(method.train_s[0])} to {day(method.train_s[1])}"
    )
    return (
        escape(method.name),
        method.kind,
        escape(method.about),
        learnt,
        escape(method.folder or NOTHING),
    )


def _digest(record: Json) -> str:
    return f"SHA-256 {record['sha256'][:16]}…"
