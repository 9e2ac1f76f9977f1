"""How chains look on a terminal (rich)."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from rich.console import Console
from rich.table import Table

from mirage.chain.durations import format_duration

Json = dict[str, Any]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Who pipes into `head` has what they want; rich would exit with 1."""
        raise BrokenPipeError


console = _Console(highlight=False, emoji=False)
if not console.is_terminal:
    console.width = max(console.width, 130)  # no terminal, no edge to wrap at


def when(seconds: int | None) -> str:
    """Local time, for people."""
    return datetime.fromtimestamp(seconds).strftime("%m-%d %H:%M:%S") if seconds else "-"


def duration(seconds: float | None) -> str:
    return "-" if seconds is None else format_duration(seconds)


def links_table(report: Json) -> Table:
    """A chain's links, one a row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("link", "job", "state", "nodes", "start", "end", "interrupted", "overlap", "cut short", "let in by"):
        table.add_column(name, justify="right" if name in ("link", "job", "nodes") else "left")
    for link in report["links"]:
        table.add_row(
            f"{link['segment']}/{report['segments']}",
            str(link["job_id"]),
            "handed over" if link["cut_short_s"] else link["state"],
            str(link["nodes"] or "-"),
            when(link["start"]),
            when(link["end"]),
            duration(link["interruption_s"]),
            duration(link["overlap_s"]),
            duration(link["cut_short_s"] or None),
            _let_in_by(link),
        )
    return table


def _let_in_by(link: Json) -> str:
    if link["released"]:
        return "Mirage"
    return "Slurm" if link["eligible"] else "-"
