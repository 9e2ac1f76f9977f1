"""The skeleton of a report: all parts, all text escaped."""

from html.parser import HTMLParser

from markupsafe import Markup

from mirage.figures.charts import Curve, bar_chart, curve_chart, curve_swatch, plane
from mirage.figures.estimate import Estimate
from mirage.figures.page import (
    DataTable,
    Heading,
    Legend,
    Notes,
    Paragraph,
    Picture,
    Pictures,
    ReportPage,
    Section,
    Tile,
    estimate_cell,
    render,
)

NASTY = "a<b> & 'c' \"d\""
VOID = {"meta", "br"}


class Outline(HTMLParser):
    """Refuses tags that do not match; keeps what was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.words: list[str] = []
        self.labels: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.labels += [value or "" for name, value in attrs if name == "aria-label"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def page() -> ReportPage:
    curves = [
        Curve(
            name=NASTY,
            style="m0",
            points=[(0, 1), (1, 3)],
            interval=[(0, 0.5, 1.5), (1, 2.5, 3.5)],
        )
    ]
    axes = plane(curves, across_words=NASTY, up_words="y")
    drawing = curve_chart(curves, axes, title=NASTY, levels=[(NASTY, 2.0)])
    bars = bar_chart(
        [(NASTY, Estimate(2, 1, 3)), ("plain", 1.5)], title="bars", show="{:.1f}".format
    )
    cell = estimate_cell(Estimate(2.0, 1.5, 2.5))
    parts = [
        Heading(NASTY),
        Paragraph(Markup("<b>{}</b>").format(NASTY)),
        Notes([NASTY]),
        Legend([(curve_swatch("m0"), NASTY)]),
        Pictures([Picture(NASTY, NASTY, drawing), Picture("bars", "", bars)], are_wide=True),
        DataTable(NASTY, ("", NASTY), [(NASTY, [(NASTY, cell)])], "inline"),
    ]
    return ReportPage(
        title=f"{NASTY} took 16 h",
        lead=NASTY,
        tiles=[Tile("under 10 min", cell)],
        warning=NASTY,
        sections=[Section("first", NASTY, parts)],
        footer=NASTY,
    )


def test_every_part_is_there_and_every_text_is_escaped() -> None:
    outline = Outline()
    outline.feed(render(page()))
    assert outline.open == []
    assert outline.tags.count("b") == 1
    assert outline.tags.count("svg") == 3
    assert {"h1", "h2", "h3", "dl", "nav", "table", "figure", "footer"} <= set(outline.tags)
    text = "".join(outline.words)
    assert text.count(NASTY) == 21
    assert sum(NASTY in label for label in outline.labels) == 3
    assert "16\N{NO-BREAK SPACE}h" in text
    assert "under 10\N{NO-BREAK SPACE}min" in text
    assert "1.5 h to 2.5 h" in text


def test_the_same_page_gives_the_same_text_and_needs_nothing_else() -> None:
    text = render(page())
    assert text == render(page())
    assert "http" not in text
    assert "src=" not in text
