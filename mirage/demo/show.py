"""How the demo looks: a live timeline while it runs, a table at its end, and a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirage.chain.durations import format_duration
from mirage.chain.handoff import handoffs
from mirage.demo.run import DemoProgress, DemoResult, Scenario, totals
from mirage.domain import Link
from slurm_sim.files import replacing
from slurm_sim.seconds import DAY_S, HOUR_S

if TYPE_CHECKING:
    from matplotlib.axes import Axes

CELL_S = 6 * HOUR_S
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
    covered_s = sum(
        max(0, min(link.end_s or to_s, to_s) - max(link.start_s or 0, from_s)) for link in started
    )
    if covered_s > 1.1 * (to_s - from_s):
        return "▓", COLOURS["both"]
    if covered_s < 0.9 * (to_s - from_s) and started[0].start_s < from_s:  # type: ignore[operator]
        return "░", COLOURS["none"]
    return "█", COLOURS["one"]


def screen(scenario: Scenario, rows: Sequence[DemoProgress]) -> Group:
    """What the terminal shows while the simulation runs."""
    lines = []
    for row in rows:
        for number, links in enumerate(row.chains):
            line = Text(f"{row.policy if number == 0 else '':>10}  ", style="bold")
            until_s = max((link.end_s or row.now_s for link in links), default=row.now_s)
            line.append_text(timeline(links, scenario.warm_up_s, until_s))
            lines.append(line)
    last = rows[-1]
    status = Text(
        f"{' ' * 12}{clock(last.now_s)}   {last.queued} jobs wait for nodes"
        if not last.done
        else ""
    )
    legend = Text.assemble(
        " " * 12, ("█", COLOURS["one"]), " a link runs  ", ("░", COLOURS["none"]), " interrupted  ",
        ("▓", COLOURS["both"]), f" two at once   ({format_duration(CELL_S)} a character)",
    )  # fmt: skip
    return Group(*lines, legend, status)


def results_table(results: Sequence[DemoResult]) -> Table:
    """Interruption, overlap and waste of each chain's handovers, policies side by side."""
    table = Table(title="What the handovers cost", title_justify="left")
    table.add_column("chain", justify="right")
    for result in results:
        for name in ("interrupted", "overlap", "wasted"):
            table.add_column(f"{result.policy}\n{name}", justify="right", no_wrap=True)
    for number, row in enumerate(zip(*(result.chains for result in results), strict=True), start=1):
        table.add_row(
            str(number), *(cell for links in row for cell in _cells(totals(handoffs(links))))
        )
    table.add_section()
    table.add_row(
        "all", *(cell for result in results for cell in _cells(result.totals())), style="bold"
    )
    table.caption = "wasted: node-hours held by two links at once"
    table.caption_justify = "left"
    return table


def _cells(cost: Mapping[str, float]) -> list[str]:
    hours = [f"{cost[name] / HOUR_S:.1f} h" for name in ("interruption_s", "overlap_s")]
    return [*hours, f"{cost['node_hours_wasted']:.1f}"]


def verdict(results: Sequence[DemoResult]) -> str:
    """What it came to, in a sentence."""
    before, after = (result.totals()["interruption_s"] / HOUR_S for result in results)
    wasted = results[-1].totals()["node_hours_wasted"]
    return (
        f"{results[-1].policy} was interrupted for {after:.1f} h where {results[0].policy} was for"
        f" {before:.1f} h, and held {wasted:.1f} node-hours twice for it."
    )


def save_picture(scenario: Scenario, results: Sequence[DemoResult], path: Path) -> None:
    """A chart of both runs: links as bars, interruptions and overlaps marked, and the queue below."""
    from matplotlib.figure import Figure  # slow to import, and nothing else needs it

    figure = Figure(figsize=(11, 2 + 1.2 * len(results)), layout="constrained")
    *rows, below = figure.subplots(len(results) + 1, 1, sharex=True)
    for axes, result in zip(rows, results, strict=True):
        cost = result.totals()
        axes.set_title(
            f"{result.policy}: interrupted for {format_duration(cost['interruption_s'])},"
            f" overlapped for {format_duration(cost['overlap_s'])} in {len(result.handoffs)}"
            " handovers",
            loc="left",
            fontsize=10,
        )
        for row, links in enumerate(result.chains):
            _draw(axes, row, links)
        axes.set_yticks([])
        below.plot(
            [at_s / HOUR_S for at_s, _ in result.queue],
            [jobs for _, jobs in result.queue],
            label=result.policy,
            lw=1,
        )
    below.set_title("Jobs waiting for nodes", loc="left", fontsize=10)
    below.set_xlabel(f"Hours of simulated time (seed {scenario.seed})")
    below.legend(fontsize=8)
    figure.suptitle("Red: interrupted. Yellow: two links at once.", fontsize=10)
    with replacing(path) as fresh:
        figure.savefig(fresh, format="png", dpi=110)


def _draw(axes: Axes, row: int, links: Sequence[Link]) -> None:
    """A chain: its links, and what lies between them."""
    for link in links:
        if link.start_s is not None and link.end_s is not None:
            begin, length = link.start_s / HOUR_S, (link.end_s - link.start_s) / HOUR_S
            axes.broken_barh([(begin, length)], (-row, 0.8), color="tab:green", edgecolor="white")
            axes.text(begin + length / 2, -row + 0.4, str(link.segment), ha="center", va="center")
    for handoff in handoffs(links):
        _mark(axes, row, handoff.predecessor.end_s, handoff.interruption_s, "tab:red")
        _mark(axes, row, handoff.link.start_s, handoff.overlap_s, "gold")


def _mark(axes: Axes, row: int, from_s: int | None, length_s: int, colour: str) -> None:
    """Shades a time of interruption or overlap."""
    if length_s and from_s is not None:
        axes.broken_barh(
            [(from_s / HOUR_S, length_s / HOUR_S)], (-row, 0.8), color=colour, alpha=0.6
        )
