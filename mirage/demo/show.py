"""How the demo looks: a live timeline while it runs, a table at its end, and a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Group
from rich.table import Table
from rich.text import Text

from mirage.chain.durations import format_duration
from mirage.domain import Link
from mirage.provision.chains.run import ChainsResult, RunView, Scenario
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


def screen(scenario: Scenario, rows: Sequence[RunView]) -> Group:
    """What the terminal shows while the simulation runs."""
    lines, begins_s = [], list(scenario.begins_s.values())
    for row in rows:
        for number, links in enumerate(row.chains):
            line = Text(f"{row.policy if number == 0 else '':>10}  ", style="bold")
            until_s = min(row.now_s, begins_s[number] + scenario.lasts_s)
            line.append_text(timeline(links, scenario.warm_up_s, until_s))
            lines.append(line)
    under_way = [
        f"{' ' * 12}{row.policy}: {clock(row.now_s)} of {clock(scenario.end_s)},"
        f" {row.queued} jobs wait for nodes"
        for row in rows
        if not row.done
    ]
    legend = Text.assemble(
        " " * 12, ("█", COLOURS["one"]), " a link runs  ", ("░", COLOURS["none"]), " interrupted  ",
        ("▓", COLOURS["both"]), f" two at once   ({format_duration(CELL_S)} a character)",
    )  # fmt: skip
    return Group(*lines, legend, *under_way)


def results_table(results: Sequence[ChainsResult]) -> Table:
    """Goodput and what it cost, a row for each policy, all chains together."""
    table = Table(title="What became of the time", title_justify="left")
    for name in ("policy", "goodput", "interrupted", "handovers", "held twice"):
        table.add_column(name, justify="left" if name == "policy" else "right", no_wrap=True)
    for result in results:
        total = result.total()
        table.add_row(
            result.policy,
            f"{total.goodput:.1%}",
            f"{total.interrupted_s / HOUR_S:.1f} h",
            str(total.handovers),
            f"{total.held_twice_s / HOUR_S:.1f} h",
        )
    table.caption = (
        "goodput: share of the time in which the chains made progress; each handover costs 10 min"
    )
    table.caption_justify = "left"
    return table


def verdict(results: Sequence[ChainsResult]) -> str:
    """What it came to, in a sentence."""
    before, after = results[0].total(), results[1].total()
    return (
        f"{results[1].policy} makes progress {after.goodput:.1%} of the time, where"
        f" {results[0].policy} does for {before.goodput:.1%}: interruptions fall from"
        f" {before.interrupted_s / HOUR_S:.0f} h to {after.interrupted_s / HOUR_S:.0f} h."
    )


def save_picture(scenario: Scenario, results: Sequence[ChainsResult], path: Path) -> None:
    """A chart of the runs: links as bars, interruptions marked, and the queue below."""
    from matplotlib.figure import Figure  # slow to import, and nothing else needs it

    figure = Figure(figsize=(11, 2 + 1.2 * len(results)), layout="constrained")
    *rows, below = figure.subplots(len(results) + 1, 1, sharex=True)
    for axes, result in zip(rows, results, strict=True):
        total = result.total()
        axes.set_title(
            f"{result.policy}: goodput {total.goodput:.1%}, interrupted for"
            f" {format_duration(total.interrupted_s)} in {total.handovers} handovers",
            loc="left",
            fontsize=10,
        )
        for row, (links, end_s) in enumerate(zip(result.chains, result.ends_s, strict=True)):
            _draw(axes, row, links, end_s)
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
    figure.suptitle("Each bar is a job of the chain. Red: the chain is interrupted.", fontsize=10)
    with replacing(path) as fresh:
        figure.savefig(fresh, format="png", dpi=110)


def _draw(axes: Axes, row: int, links: Sequence[Link], end_s: int) -> None:
    """A chain until ``end_s``: its links, and the times in which none of them runs."""
    reached_s = None
    for link in sorted(links, key=lambda link: link.start_s or end_s):
        if link.start_s is None or link.start_s >= end_s:
            continue
        until_s = min(link.end_s or end_s, end_s)
        if reached_s is not None and link.start_s > reached_s:
            _mark(axes, row, reached_s, link.start_s)
        begin, length = link.start_s / HOUR_S, (until_s - link.start_s) / HOUR_S
        axes.broken_barh([(begin, length)], (-row, 0.8), color="tab:green", edgecolor="white")
        reached_s = max(reached_s or 0, until_s)
    if reached_s is not None and reached_s < end_s:
        _mark(axes, row, reached_s, end_s)


def _mark(axes: Axes, row: int, from_s: int, to_s: int) -> None:
    """Shades a time of interruption."""
    axes.broken_barh(
        [(from_s / HOUR_S, (to_s - from_s) / HOUR_S)], (-row, 0.8), color="tab:red", alpha=0.6
    )
