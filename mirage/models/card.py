"""`card.md`: what a model was made of, how good it is, where it ends. Markdown, for people."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

Cells = Sequence[object]


def card_text(
    title: str, summary: Sequence[str], sections: Mapping[str, Sequence[str]], limits: str
) -> str:
    """The page: ``summary`` are paragraphs, ``sections`` lines by heading; those without are left
    out.
    """
    lines = [f"# {title}", ""]
    for words in summary:
        lines += [words, ""]
    for heading, body in (*sections.items(), ("Limits", [limits])):
        if body:
            lines += [f"## {heading}", "", *body, ""]
    return "\n".join(lines)


def markdown_table(head: Cells, rows: Iterable[Cells]) -> list[str]:
    """The lines of a table."""
    return [_line(head), _line(["---"] * len(head)), *map(_line, rows)]


def _line(cells: Cells) -> str:
    return f"| {' | '.join(map(str, cells))} |".replace("|  |", "| |")
