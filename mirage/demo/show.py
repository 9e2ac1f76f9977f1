"""How the demo looks: a live timeline while it runs, a table at its end, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirage.chain.durations import format_duration
from mirage.demo.run import Progress, Result, Scenario
from mirage.demo.workload import DAY_S, HOUR_S
from mirage.domain import Link

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_S = 4 * HOUR_S
"""Time that one character of the timeline stands for."""
COLOURS = {"one": "green", "both": "yellow", "none": "red"}


def clock(seconds: int) -> str:
    """Simulated time: day and hour."""
    day, left = divmod(seconds, DAY_S)
    return f"day {day} {left // HOUR_S:02d}:{left % HOUR_S // 60:02d}"


def timeline(links: Sequence[Link], from_s: int, to_s: int) -> Text:
    """One character for each CELL_S: a link runs, two overlap, or the chain is interrupted."""
    text = Text()
    for cell_s in range(from_s, to_s, CELL_S):
        text.append(*_cell(links, cell_s, min(cell_s + CELL_S, to_s)))
    return text


def _cell(links: Sequence[Link], from_s: int, to_s: int) -> tuple[str, str]:
    started = [link for link in links if link.start_s is not None and link.start_s < to_s]
    if not started:
        return "·", "dim"
    covered_s = sum(max(0, min(link.end_s or to_s, to_s) - max(link.start_s or 0, from_s)) for link in started)
    if covered_s > 1.1 * (to_s - from_s):
        return "▓", COLOURS["both"]
    if covered_s < 0.9 * (to_s - from_s) and started[0].start_s < from_s:  # type: ignore[operator]
        return "░", COLOURS["none"]
    return "█", COLOURS["one"]


def screen(scenario: Scenario, rows: Sequence[Progress]) -> Group:
    """What the terminal shows while the simulation runs."""
    lines = []
    for row in rows:
        line = Text(f"{row.policy:>10}  ", style="bold")
        until_s = max((link.end_s or 0 for link in row.links), default=0) if row.done else row.now_s
        line.append_text(timeline(row.links, scenario.warm_up_s, until_s))
        lines.append(line)
    last = rows[-1]
    status = Text(f"{' ' * 12}{clock(last.now_s)}   {last.queued} jobs wait for nodes" if not last.done else "")
    legend = Text.assemble(
        " " * 12, ("█", COLOURS["one"]), " a link runs  ", ("░", COLOURS["none"]), " interrupted  ",
        ("▓", COLOURS["both"]), f" two at once   ({format_duration(CELL_S)} a character)",
    )  # fmt: skip
    return Group(*lines, legend, status)


def results_table(results: Sequence[Result]) -> Table:
    """Interruption, overlap and waste of each handover, policies side by side."""
    table = Table(title="What each handover cost", title_justify="left")
    table.add_column("to link", justify="right")
    for result in results:
        for name in ("interrupted", "overlap", "wasted"):
            table.add_column(f"{result.policy}\n{name}", justify="right", no_wrap=True)
    for row in zip(*(result.handoffs for result in results), strict=False):
        cells = [str(row[0].link.segment)]
        for handoff in row:
            cells += _cells(handoff.interruption_s, handoff.overlap_s, handoff.node_hours_wasted)
        table.add_row(*cells)
    table.add_section()
    totals = [result.totals() for result in results]
    cells = [cell for t in totals for cell in _cells(t["interruption_s"], t["overlap_s"], t["node_hours_wasted"])]
    table.add_row("all", *cells, style="bold")
    table.caption = "wasted: node-hours held by two links at once"
    table.caption_justify = "left"
    return table


def _cells(interruption_s: float, overlap_s: float, node_hours: float) -> list[str]:
    return [f"{interruption_s / HOUR_S:.1f} h", f"{overlap_s / HOUR_S:.1f} h", f"{node_hours:.1f}"]


def verdict(results: Sequence[Result]) -> str:
    """What it came to, in a sentence."""
    before, after = (result.totals()["interruption_s"] / HOUR_S for result in results)
    wasted = results[-1].totals()["node_hours_wasted"]
    return (
        f"{results[-1].policy} was interrupted for {after:.1f} h where {results[0].policy} was for {before:.1f} h, and "
        f"held {wasted:.1f} node-hours twice for it."
    )


def save_picture(scenario: Scenario, results: Sequence[Result], path: Path) -> None:
    """A chart of both runs: links as bars, interruptions and overlaps marked, and the queue below."""
    from matplotlib.figure import Figure  # slow to import, and nothing else needs it

    figure = Figure(figsize=(11, 2 + 1.2 * len(results)), layout="constrained")
    *rows, below = figure.subplots(len(results) + 1, 1, sharex=True)
    for axes, result in zip(rows, results, strict=True):
        totals = result.totals()
        axes.set_title(
            f"{result.policy}: interrupted for {format_duration(totals['interruption_s'])}, overlapped for "
            f"{format_duration(totals['overlap_s'])} in {len(result.handoffs)} handovers",
            loc="left",
            fontsize=10,
        )
        for link in result.links:
            if link.start_s is not None and link.end_s is not None:
                begin, length = link.start_s / HOUR_S, (link.end_s - link.start_s) / HOUR_S
                axes.broken_barh([(begin, length)], (link.segment % 2, 0.9), color="tab:green")
                axes.text(begin + length / 2, link.segment % 2 + 0.4, f"link {link.segment}", ha="center", va="center")
        for handoff in result.handoffs:
            _mark(axes, handoff.predecessor.end_s, handoff.interruption_s, "tab:red")
            _mark(axes, handoff.link.start_s, handoff.overlap_s, "gold")
        axes.set_yticks([])
        below.plot(
            [at_s / HOUR_S for at_s, _ in result.queue], [jobs for _, jobs in result.queue], label=result.policy, lw=1
        )
    below.set_title("Jobs waiting for nodes", loc="left", fontsize=10)
    below.set_xlabel(f"Hours of simulated time (seed {scenario.seed})")
    below.legend(fontsize=8)
    figure.suptitle("Red: interrupted. Yellow: two links at once.", fontsize=10)
    figure.savefig(path, dpi=110)


def _mark(axes: Axes, from_s: int | None, length_s: int, colour: str) -> None:
    """Shades a time of interruption or overlap."""
    if length_s and from_s is not None:
        axes.axvspan(from_s / HOUR_S, (from_s + length_s) / HOUR_S, color=colour, alpha=0.5, lw=0)
