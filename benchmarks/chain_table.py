"""The rows of `chain_goodput.py`, case by case: the service's rule beside the yardsticks'.

usage: python -m benchmarks.chain_table [benchmarks/chain_goodput.json]

A case is a background and a number of nodes, with one chain. A yardstick rule that has at least the
service's goodput shall not have fewer handovers. Steps of decisions may differ (`step_s`). The bound
is that of `chain_waits.py` for a user who holds the nodes all the time.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

WAITS = "chain_waits.json"
OURS, ALONE = "goodput", "reactive"
RULES = ("after:12h", "ahead:3:20h", "ahead:4:16h")

Row = dict[str, Any]


def cases(rows: Sequence[Row]) -> Iterator[tuple[str, int, dict[str, Row]]]:
    """Background, nodes, and the row of each policy; of several steps the shortest."""
    chosen = [row for row in rows if row["chains"] == 1 and row["time_min_s"] is None]
    for background, nodes in sorted({(row["background"], row["nodes"]) for row in chosen}):
        mine = [row for row in chosen if (row["background"], row["nodes"]) == (background, nodes)]
        yield (
            background,
            nodes,
            {row["policy"]: row for row in sorted(mine, key=lambda row: -row["step_s"])},
        )


def cheaper(ours: Row, rules: Sequence[Row]) -> list[Row]:
    """The rules that have at least our goodput with fewer handovers."""
    as_good = [rule for rule in rules if rule["goodput"] >= ours["goodput"]]
    return [rule for rule in as_good if rule["handovers"] < ours["handovers"]]


def line(background: str, nodes: int, found: dict[str, Row], bound: str = "") -> str:
    """A row of the table, Markdown."""
    ours, rules = found[OURS], [found[name] for name in RULES if name in found]
    fewer = ", ".join(rule["policy"] for rule in cheaper(ours, rules)) or "-"
    cells = [
        background,
        str(nodes),
        *(cell(found.get(name)) for name in (ALONE, *RULES, OURS)),
        f"{100 * ours['interrupted']:.1f} %",
        f"{100 * ours['held_twice']:.1f} %",
        f"{ours['run_h_a_link']:.0f} h",
        bound,
        fewer,
    ]
    return f"| {' | '.join(cells)} |"


def cell(row: Row | None) -> str:
    return "" if row is None else f"{100 * row['goodput']:.1f} / {row['handovers']}"


def main() -> None:
    path = (
        Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).with_name("chain_goodput.json")
    )
    head = ["background", "nodes", ALONE, *RULES, OURS]
    head += ["interrupted", "held twice", "run time a link", "bound", "cheaper rule"]
    bounds = {
        (row["background"], row["nodes"]): f"{100 * row['holding']['bound']:.1f}"
        for row in json.loads(path.with_name(WAITS).read_text())
    }
    print(f"| {' | '.join(head)} |\n|{' --- |' * len(head)}")
    for background, nodes, found in cases(json.loads(path.read_text())):
        if OURS in found:
            print(line(background, nodes, found, bounds.get((background, nodes), "")))


if __name__ == "__main__":
    main()
