"""Goodput of training chains: the daemon's own code on real months and on the demo's cluster.

usage: python -m benchmarks.chain_goodput [--trace CSV --months 2023-01,2023-02] [--seeds 1,2]
                                          [--nodes 1,2,8,16] [--ahead 4] [--time-min HOURS]
                                          [--out benchmarks/chain_goodput.json]

A chain of 48-hour jobs runs for 28 days beside the recorded jobs of a month (or the demo's), once
as Slurm alone would run it (reactive) and once by the default of training chains. Recorded jobs
are submitted when they were and run as long as they did; what the chain takes they wait for.
Each case is one run: without chance but that of the background.
"""

from __future__ import annotations

import argparse
import csv
import gzip
import json
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

from mirage.config import PolicyConfig
from mirage.ports import Policy
from mirage.provision.chains.run import Scenario, busy_cluster, run_chains
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Reactive
from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

TRACE = Path(__file__).parents[2] / "shared/traces/ls6_a100_dev.csv.gz"
WARM_S, LIMIT_S = 21 * DAY_S, 48 * HOUR_S
POLICIES: dict[str, Callable[[], Policy]] = {
    "reactive": Reactive,
    "goodput": lambda: Goodput(PolicyConfig().goodput),
}


def month_cluster(trace: Path, month: str, scenario: Scenario) -> Simulator:
    """The cluster with the recorded jobs of a month; time 0 is three weeks before it."""
    begin_s = int(datetime.fromisoformat(f"{month}-01").replace(tzinfo=UTC).timestamp())
    zero_s, most = begin_s - scenario.warm_up_s, len(scenario.cluster.nodes)
    jobs = []
    with gzip.open(trace, "rt") as file:
        for row in csv.DictReader(file):
            if not row["start"] or not row["end"]:
                continue
            submit_s, nodes = int(float(row["submit"])) - zero_s, int(row["nodes"])
            run_s = int(float(row["end"])) - int(float(row["start"]))
            limit_s = min(int(float(row["timelimit_s"])), LIMIT_S)
            if 0 <= submit_s <= scenario.end_s and nodes <= most and run_s > 0:
                spec = JobSpec(nodes, limit_s, max(1, min(run_s, limit_s)), user=row["user"] or "u")
                jobs.append(replace(spec, submit_s=submit_s))
    jobs.sort(key=lambda job: job.submit_s or 0)
    return Simulator(scenario.cluster, jobs)


def case(name: str, scenario: Scenario, make: Callable[[Scenario], Simulator]) -> list[dict]:
    """A row for each policy."""
    rows = []
    for policy, made in POLICIES.items():
        begin = time.process_time()
        chosen = made()
        result = run_chains(scenario, lambda _, it=chosen: it, lambda _: None, make)
        total = result.total()
        rows.append(
            {
                "background": name,
                "nodes": scenario.link_nodes,
                "policy": policy,
                "goodput": round(total.goodput, 4),
                "interrupted": round(total.interrupted_s / total.wall_s, 4),
                "held_twice": round(total.held_twice_s / total.wall_s, 4),
                "handovers": total.handovers,
                "wall_h": round(total.wall_s / HOUR_S, 1),
                "cpu_s": round(time.process_time() - begin, 1),
            }
        )
        print(rows[-1], flush=True)
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--months", default="2023-01,2023-02")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--nodes", default="1,2,8,16")
    parser.add_argument("--ahead", type=int, default=Scenario.ahead, help="successors in the queue")
    parser.add_argument("--time-min", type=int, metavar="HOURS", help="of a link; default: none")
    parser.add_argument("--extended", action="store_true", help="--time-min as in Slurm 26.05")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows: list[dict] = []
    for nodes in map(int, args.nodes.split(",")):
        base = Scenario(
            chains=1,
            lasts_s=28 * DAY_S,
            link_nodes=nodes,
            ahead=args.ahead,
            time_min_s=args.time_min * HOUR_S if args.time_min else None,
            time_min_extends=args.extended,
        )
        for month in filter(None, args.months.split(",")):
            scenario = replace(base, warm_up_s=WARM_S)
            rows += case(month, scenario, lambda it, of=month: month_cluster(args.trace, of, it))
        for seed in filter(None, args.seeds.split(",")):
            rows += case(f"demo {seed}", replace(base, seed=int(seed)), busy_cluster)
        args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
