"""The tables of learning.md, from a folder of `mirage evaluate`: `python -m
benchmarks.learning_tables FOLDER`.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

PENALTIES = ("1:1", "4:1")
HEADER = [
    "method",
    "1:1 interruption h",
    "overlap h",
    "under 10 min",
    "regret",
    "4:1 interruption h",
    "overlap h",
]
HEADER += ["under 10 min", "regret"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    results = json.loads((parser.parse_args().folder / "results.json").read_text())
    rows = {
        (each["nodes"], each["load"], each["penalties"], each["method"]): each
        for each in results["summary"]
    }
    for situation in results["situations"]:
        nodes, load = situation["nodes"], situation["load"]
        print(f"**{load.capitalize()}, {_count(nodes, 'node')}**: {_about(situation)}.\n")
        print(_line(HEADER), _line(["---"] * len(HEADER)), sep="\n")
        for method in (each["name"] for each in results["methods"]):
            pair = [rows[nodes, load, penalties, method] for penalties in PENALTIES]
            print(_line([method, *(cell for row in pair for cell in _cells(row))]))
        print()


def _about(situation: dict[str, Any]) -> str:
    spells = _count(situation["spells"], "spell") if situation["spells"] else "no spells"
    return (
        f"{situation['episodes']} episodes in {spells},"
        f" {_count(situation['blocks'], 'independent block')}"
    )


def _cells(row: dict[str, Any]) -> list[str]:
    regret = row["regret"]["value"] if row["regret"] else None
    hours = [_hours(row[name]) for name in ("interruption_h", "overlap_h")]
    return [
        *hours,
        f"{row['under_10_min']['value']:.0%}",
        "-" if regret is None else f"{regret:.0%}",
    ]


def _hours(figure: dict[str, float | None]) -> str:
    low, high = figure["low"], figure["high"]
    return f"{figure['value']:.1f}" + ("" if low is None else f" ({low:.1f}\N{EN DASH}{high:.1f})")


def _count(number: int, word: str) -> str:
    return f"{number} {word}{'' if number == 1 else 's'}"


def _line(cells: list[str]) -> str:
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
