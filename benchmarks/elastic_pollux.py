"""Schedulers in Pollux's published comparison: its eight workloads, and workloads drawn anew.

    python -m benchmarks.elastic_pollux [--drawn 4] [--search 6] [--keep]
    python -m benchmarks.elastic_pollux --table

Writes benchmarks/elastic-pollux.json. ``--search N ...``: also runs the small Pollux on these
published workloads, a minute of CPU time each. ``--keep``: schedulers that the last results have
are not run again. ``--table`` prints the last results as Markdown.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sim_common import write_json
from mirage.elastic.baselines import Allocator
from mirage.elastic.measured.measuring import LearntRounds
from mirage.elastic.measured.rounds import RuleRounds
from mirage.elastic.measured.schedulers import GreedyRounds, PolluxOptimus, Tiresias
from mirage.elastic.measured.search import SmallPollux
from mirage.elastic.measured.world import drawn_workload, published_workload
from mirage.elastic.rollout import roll_out
from mirage.elastic.settings import ElasticSetting, Part, read_setting
from mirage.figures.provenance import provenance
from mirage.figures.resample import mean_interval, ratio_interval

RESULT = Path("benchmarks/elastic-pollux.json")
ROUND_S = 60.0
PUBLISHED_S: Mapping[str, Sequence[float]] = {
    "tiresias": (
        2473.65,
        5144.9625,
        3876.25625,
        3280.2625,
        3501.0125,
        3469.69375,
        5479.9125,
        5079.70625,
    ),
    "optimus": (
        4087.0625,
        6913.875,
        3944.00625,
        5967.75,
        5656.25,
        5301.875,
        7290.85625,
        6293.79375,
    ),
    "pollux": (
        2088.76875,
        3322.94375,
        2188.49375,
        2720.98125,
        2673.7,
        2446.13125,
        3616.14375,
        2951.90625,
    ),
}
"""Mean completion time in seconds on workloads 1 to 8: petuum/adaptdl, branch osdi21-artifact,
simulator/results-jobload/*-1.0/summary.json.
"""


def schedulers() -> dict[str, Allocator]:
    """`-user`: with the batch sizes of the users, as Tiresias and Optimus."""
    all_of_them = (
        LearntRounds(),
        RuleRounds(),
        RuleRounds(name="greedy-rule-user", tunes=False),
        GreedyRounds(name="greedy-steady", keep=0.1),
        GreedyRounds(),
        Tiresias(),
        PolluxOptimus(),
    )
    return {each.name: each for each in all_of_them}


def played(allocator: Allocator, setting: ElasticSetting, sequences: Sequence[Any]) -> Any:
    """Its completion times in seconds and its speed."""
    began = time.process_time()
    found = roll_out(allocator, setting.world, sequences)
    spent_s = time.process_time() - began
    return {
        "mean_s": (found.mean_jct_slots * ROUND_S).round(4).tolist(),
        "bound_s": (found.bound_slots * ROUND_S).round(2).tolist(),
        "rounds_per_cpu_s": round(float(found.makespan_slots.sum() / spent_s)),
    }


def compared(mine: Sequence[float], theirs: Sequence[float]) -> dict[str, Any]:
    """Paired difference in seconds and ratio on the same workloads, with 95 % intervals."""
    one, other = np.array(mine), np.array(theirs)
    return {
        "difference_s": [float((one - other).mean()), *mean_interval(one - other)],
        "ratio": [float(one.mean() / other.mean()), *ratio_interval(one, other)],
    }


def decision_ms(allocator: Allocator, setting: ElasticSetting) -> float:
    """Milliseconds of one decision with 40 jobs, one cluster: median of 30."""
    jobs = drawn_workload(setting.world, np.random.default_rng(1), jobs=40)  # type: ignore[arg-type]
    at_once = replace(jobs, submitted_s=0 * jobs.submitted_s, arrival_slot=0 * jobs.arrival_slot)
    world = setting.world.open([at_once])
    allocator.reset(world)
    spent: list[float] = []
    for _ in range(30):
        world.begin_slot()
        began = time.process_time()
        allocator.begin_slot(world)
        spent.append(1000 * (time.process_time() - began))
    return round(float(np.median(spent)), 3)


def table(record: Mapping[str, Any]) -> str:
    """Mean completion times in seconds, as Markdown."""
    lines = [
        "| scheduler | " + " | ".join(map(str, range(1, 9))) + " | mean | mean of 5 to 8 |",
        "| --- |" + " --- |" * 10,
    ]
    rows = {f"{name}, published": values for name, values in record["published_s"].items()}
    rows |= {name: row["mean_s"] for name, row in record["workloads"].items()}
    rows["lower bound"] = next(iter(record["workloads"].values()))["bound_s"]
    for name, values in rows.items():
        cells = [*values, np.mean(values), np.mean(values[4:])]
        lines.append(f"| {name} | " + " | ".join(f"{value:,.0f}" for value in cells) + " |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--drawn", type=int, default=4)
    parser.add_argument("--search", type=int, nargs="*", default=[])
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    if args.table:
        print(table(json.loads(args.out.read_text())))
        return
    started_s, began = time.time(), time.monotonic()
    setting = read_setting("pollux")
    published = [published_workload(nth, setting.world) for nth in range(1, 9)]  # type: ignore[arg-type]
    seeds = ([int(Part.TEST), nth] for nth in range(args.drawn))
    drawn = [setting.draw(np.random.default_rng(seed)) for seed in seeds]
    record: dict[str, Any] = json.loads(args.out.read_text()) if args.keep else {}
    record["published_s"] = {name: list(values) for name, values in PUBLISHED_S.items()}
    for part, sequences in (("workloads", published), ("drawn", drawn)):
        rows = record.setdefault(part, {})
        for name, allocator in schedulers().items():
            if part == "drawn" and name in ("tiresias", "optimus-pollux"):
                continue
            if name not in rows and sequences:
                rows[name] = played(allocator, setting, sequences)
                mean_s = np.round(rows[name]["mean_s"])
                print(part, name, mean_s, mean_s.mean().round(1), flush=True)
    test = {name: row["mean_s"][4:] for name, row in record["workloads"].items()}
    test["pollux, published"] = PUBLISHED_S["pollux"][4:]
    mine = test.pop("learnt-rule")
    record["learnt_rule_to"] = {name: compared(mine, theirs) for name, theirs in test.items()}
    search = record.setdefault("search", {})
    search |= {
        str(nth): played(SmallPollux(), setting, [published[nth - 1]]) for nth in args.search
    }
    record["decision_ms"] = {
        name: decision_ms(allocator, setting)
        for name, allocator in schedulers().items()
        if name in ("learnt-rule", "greedy-rule")
    }
    record["provenance"] = provenance(
        sys.argv,
        inputs={},
        split={"chosen on": "workloads 1 to 4", "test": "workloads 5 to 8"},
        seed=0,
        started_s=started_s,
        wall_s=time.monotonic() - began,
    )
    write_json(args.out, record)


if __name__ == "__main__":
    main()
