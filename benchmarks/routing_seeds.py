"""Agents of several training seeds against rules without agents, on bursts and on histories.

    python -m benchmarks.routing_seeds KEPT.json --agents DIR... [--flavors F] [--streams 40]
        [--first] bursts|TRACE...

Per stream it keeps the mean completion, the longest wait, utilization and energy. Each row is kept
as soon as it is done, and is not made again. Then it prints the tables of docs/routing.md. Streams of
a trace are of disjoint windows of its last part, or with `--first` of the first; intervals draw
windows, and a window's value is the mean over its streams and, in the row of all agents, over seeds.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mirage.figures.resample import ratio_interval
from mirage.routing import stream
from mirage.routing.arrivals import Streams, by_window, draw_streams, read_history
from mirage.routing.flavors import PartitionKind, load_partitions
from mirage.routing.model import read_model
from slurm_sim.seconds import HOUR_S

BASE = "-p A,B"
SPEEDLESS = "without `speeds`"
Row = dict[str, list[float]]
RATIOS = {
    "gpu_h": "GPU hours",
    "span_h": "until the last end",
    "utilization": "utilization",
    "energy_kwh": "energy",
}
"""What is shown as ratios to `BASE` where all rows have it."""


def without_speeds(asked: stream.Arriving) -> str:
    """The default rule where the file of flavours gives no speeds."""
    states = [replace(each, kind=replace(each.kind, speeds=(1.0,))) for each in asked.states]
    return stream.room_rule(replace(asked, states=tuple(states)))


SIMPLE = {
    BASE: stream.everywhere,
    "best-fit": stream.best_fit,
    "default rule": stream.room_rule,
    SPEEDLESS: without_speeds,
}


def row_of(kinds: Sequence[PartitionKind], streams: Streams, rule: stream.StreamRule) -> Row:
    """Of each stream."""
    outcomes = [stream.route_stream(kinds, jobs, rule) for jobs in streams.jobs]
    return {
        "completion_h": [float(np.mean(each.completion_s)) / HOUR_S for each in outcomes],
        "wait_max_h": [max(each.wait_s) / HOUR_S for each in outcomes],
        "utilization": [each.utilization for each in outcomes],
        "gpu_h": [each.gpu_h for each in outcomes],
        "span_h": [each.span_h for each in outcomes],
        "energy_kwh": [each.energy_kwh for each in outcomes],
    }


def source_of(name: str, args: argparse.Namespace, kinds: Sequence[PartitionKind]) -> Streams:
    """The streams of bursts or of a trace."""
    random = np.random.default_rng([args.seed, 2])
    if name == "bursts":
        return draw_streams(kinds, None, args.streams, random)
    history = read_history(Path(name)).part(test=not args.first)
    return draw_streams(kinds, history, args.streams, random)


def ratio(rows: Sequence[Row], base: Row, key: str, windows: Sequence[int]) -> str:
    """Of the means over windows, with its interval."""
    mine: NDArray[np.float64] = by_window(np.mean([row[key] for row in rows], axis=0), windows)
    theirs = by_window(base[key], windows)
    low, high = ratio_interval(mine, theirs)
    return f"{mine.sum() / theirs.sum():.3f} ({low:.3f} to {high:.3f})"


def print_table(source: str, kept: dict[str, Any]) -> None:
    """One line a row, then all agents together."""
    rows, windows = kept["rows"], kept["windows"]
    agents = {name: row for name, row in rows.items() if name not in SIMPLE}
    print(f"\n{source}: {len(windows)} streams of {len(set(windows))} windows\n")
    ratios = {
        key: words for key, words in RATIOS.items() if all(key in row for row in rows.values())
    }
    head = ["rule", "completion, h", "to `-p A,B`", "longest wait, h", *ratios.values()]
    print("| " + " | ".join(head) + " |")
    print("| --- " * (4 + len(ratios)) + "|")
    shown = {name: [row] for name, row in rows.items()}
    if len(agents) > 1:
        shown[f"agents, {len(agents)} seeds"] = list(agents.values())
    for name, each in shown.items():
        cells = [
            f"{np.mean([row['completion_h'] for row in each]):.1f}",
            ratio(each, rows[BASE], "completion_h", windows),
            f"{np.max([row['wait_max_h'] for row in each]):.0f}",
            *(ratio(each, rows[BASE], key, windows) for key in ratios),
        ]
        print(f"| {name} | " + " | ".join(cells) + " |")
    if SPEEDLESS in shown:
        for name in [each for each in shown if each != SPEEDLESS]:
            to_it = ratio(shown[name], rows[SPEEDLESS], "completion_h", windows)
            print(f"completion of {name} to that of {SPEEDLESS}: {to_it}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kept", type=Path)
    parser.add_argument("sources", nargs="+", help="bursts, or job histories")
    parser.add_argument("--agents", type=Path, nargs="+", default=[])
    parser.add_argument("--flavors", type=Path)
    parser.add_argument("--streams", type=int, default=40)
    parser.add_argument("--first", action="store_true", help="a history's first part")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    kinds = load_partitions(args.flavors)
    kept = json.loads(args.kept.read_text()) if args.kept.exists() else {}
    for source in args.sources:
        name = Path(source).name + (", first part" if args.first else "")
        streams = source_of(source, args, kinds)
        part = kept.setdefault(name, {"windows": streams.windows, "rows": {}})
        teams = {
            f"agents {each.name}": stream.agents_rule(read_model(each).agents)
            for each in args.agents
        }
        speeds = {each.speeds for each in kinds}
        for rule_name, rule in (SIMPLE | teams).items():
            if rule_name not in part["rows"] and (len(speeds) > 1 or rule is not without_speeds):
                part["rows"][rule_name] = row_of(kinds, streams, rule)
                args.kept.write_text(json.dumps(kept) + "\n", encoding="utf-8")
        print_table(name, part)


if __name__ == "__main__":
    main()
