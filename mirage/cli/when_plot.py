"""`mirage when --plot`: waits by nodes and time limit, as a coloured table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from mirage.chain.durations import format_duration
from slurm_sim.seconds import DAY_S, HOUR_S

if TYPE_CHECKING:
    from mirage.provision.starts.answer import ShapeForecast

HEAT = ((HOUR_S / 6, "black on green"), (4 * HOUR_S, "black on yellow"), (DAY_S, "white on red"))
"""Up to which wait a cell has which colour; beyond, `HOTTEST`."""
HOTTEST = "white on magenta"


def wait_table(found: Sequence[ShapeForecast]) -> Table:
    """Medians: a row for each number of nodes, a column for each time limit."""
    waits = {(each.shape.nodes, each.shape.time_limit_s or 0): each.forecast for each in found}
    sizes, limits = (sorted({key[place] for key in waits}) for place in (0, 1))
    table = Table(
        *("nodes", *map(format_duration, limits)), box=None, pad_edge=False, title_justify="left"
    )
    for nodes in sizes:
        cells = [
            _cell(waits[nodes, limit].wait_s[1]) if (nodes, limit) in waits else Text("-")
            for limit in limits
        ]
        table.add_row(str(nodes), *cells)
    return table


def _cell(wait_s: float) -> Text:
    style = next((style for bound, style in HEAT if wait_s <= bound), HOTTEST)
    return Text(f" {format_duration(wait_s)} ", style=style)
