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


def remarks(report: Json) -> list[str]:
    """What went wrong at handovers and what follows the chain, one sentence each."""
    found = [_cut_off(link) for link in report["links"] if link["handover"] and link["handover"]["cut_off"]]
    return [*found, *(_then(then, report) for then in report["then"])]


def _cut_off(link: Json) -> str:
    handover = link["handover"]
    who = f"Link {link['segment']} (job {link['job_id']}) was cancelled by its successor"
    lost = "what it had not saved by then is lost. To give it longer:"
    if handover["cut_off_by"] == "grace":
        grace_s = handover["grace_s"] or 0
        return (
            f"{who} {format_duration(grace_s)} after it was asked to end: {lost} mirage-submit --handover-grace "
            f"{max(60, 2 * grace_s)}s"
        )
    return f"{who} once both had run together for as long as --max-overlap allows: {lost} a longer --max-overlap"


def _then(then: Json, report: Json) -> str:
    state, again = report["state"], f"mirage done {report['chain']}"
    if then["problem"]:
        return f"--then {then['script']} could not be queued: {then['problem']}. To try again: {again}"
    if state == "active":
        return f"Once the chain is done, {then['script']} follows" + (
            f" (job {then['job_id']})." if then["job_id"] else "."
        )
    if then["job_id"] and state == "done":
        return f"{then['script']} follows the chain as job {then['job_id']}."
    if state == "done":
        return f"--then {then['script']} is not queued yet. If that stays so: {again}"
    return f"{then['script']} does not follow the chain, since it is {state}."


def _let_in_by(link: Json) -> str:
    if link["released"]:
        return "Mirage"
    return "Slurm" if link["eligible"] else "-"
