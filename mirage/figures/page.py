"""The skeleton of every report: one HTML page that needs nothing but itself.

A system describes its report by the records below; `report.html` is the template, `style.css` its
style. Text is escaped unless it is Markup.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from mirage.figures.estimate import Estimate
from mirage.figures.words import NOTHING, between, hours

HERE = Path(__file__).parent
Cells = Sequence[str]
"""Of a table's row: text, or Markup. The first one names the row."""


@dataclass(frozen=True)
class Heading:
    """Within a section."""

    kind: ClassVar[str] = "heading"
    text: str


@dataclass(frozen=True)
class Paragraph:
    kind: ClassVar[str] = "paragraph"
    text: str


@dataclass(frozen=True)
class Notes:
    """A list of sentences."""

    kind: ClassVar[str] = "notes"
    items: Sequence[str]


@dataclass(frozen=True)
class Legend:
    """Pairs of a swatch (svg) and what it means."""

    kind: ClassVar[str] = "legend"
    items: Sequence[tuple[Markup, str]]


@dataclass(frozen=True)
class Picture:
    caption: str
    small: str
    """Below the caption, in small letters."""
    svg: Markup


@dataclass(frozen=True)
class Pictures:
    """Side by side, as many as fit."""

    kind: ClassVar[str] = "pictures"
    pictures: Sequence[Picture]
    are_wide: bool = False


@dataclass(frozen=True)
class DataTable:
    """Rows in groups, each with a heading or none."""

    kind: ClassVar[str] = "table"
    caption: str
    head: Cells
    groups: Sequence[tuple[str, Sequence[Cells]]]
    style: str = ""
    """A class of `style.css`: `inline` for intervals beside the values, `wide-words` for text."""


Part: TypeAlias = Heading | Paragraph | Notes | Legend | Pictures | DataTable


@dataclass(frozen=True)
class Section:
    anchor: str
    title: str
    parts: Sequence[Part]


@dataclass(frozen=True)
class Tile:
    """One of the few figures at the top."""

    label: str
    value: str


@dataclass(frozen=True, kw_only=True)
class ReportPage:
    """A whole report."""

    title: str
    """What came out, in a sentence."""
    lead: str
    """What was done, in a paragraph."""
    tiles: Sequence[Tile] = ()
    warning: str = ""
    """Why the figures must not be believed; empty: nothing to warn of."""
    sections: Sequence[Section]
    footer: str


def render(page: ReportPage) -> str:
    """The HTML text; the same page gives the same text."""
    environment = Environment(
        loader=FileSystemLoader(HERE),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["unbroken"] = unbroken
    style = (HERE / "style.css").read_text(encoding="utf-8")
    return environment.get_template("report.html").render(page=page, style=Markup(style))  # noqa: S704


def unbroken(words: str) -> str:
    """No line ends between a number and its unit."""
    return re.sub(r"(\d) (h|min|%)", "\\1\N{NO-BREAK SPACE}\\2", words)


def estimate_cell(value: Estimate | None, show: Callable[[float], str] = hours) -> str:
    """A value, and its interval below it."""
    if value is None:
        return NOTHING
    interval = between(value, show)
    shown = show(value.value)
    return Markup("{}<small>{}</small>").format(shown, interval) if interval else shown


def origin_table(record: Mapping[str, Any], facts: Sequence[tuple[str, str]]) -> DataTable:
    """What went in: a system's own ``facts``, then what `provenance` recorded of every run."""
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    machine = ", ".join(str(part) for part in record["machine"].values() if part) + " cores"
    common = [
        ("seed", str(record["seed"])),
        ("versions", versions),
        ("commit", record["commit"] or NOTHING),
        ("machine", machine),
        ("ran", f"{record['started']}, for {record['wall_s']:.0f} s"),
    ]
    rows = [(name, Markup("<code>{}</code>").format(value)) for name, value in (*facts, *common)]
    return DataTable("What went in", ("", ""), [("", rows)], "wide-words")
