"""The waits of a chain's jobs, and what a chain could reach that knows them all.

usage: python -m benchmarks.chain_waits [--trace CSV --months 2023-01] [--seeds 1,2] [--nodes 8]
           [--every 4] [--out benchmarks/chain_waits.json]

Every few hours a fork of the simulation tells when a link would start that enters the queue now,
other users' later jobs included. So a table of releases and starts comes out, for two users:

alone    runs nothing else, so fair-share puts him first: no chain waits less
holding  runs links all the time that stand first in the queue, so fair-share puts him where a
         chain without interruption would be

The bound is the best sequence of starts out of a table, by dynamic programming: two starts that
lie further apart than a link lasts lose the difference, and each handover 10 minutes. It knows all
waits, and has as many successors in the queue as it likes. What its links change for each other is
left out, and it can only release at the times of the table.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from benchmarks.chain_goodput import TRACE, cases_of
from mirage.domain import HANDOVER_S
from mirage.provision.chains.run import USER, Scenario
from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

QUANTILES = (0.1, 0.5, 0.9, 1.0)
FIRST = 1_000_000
"""A priority above all others."""
FAR_S = 14 * DAY_S
"""A longer wait than this counts as this."""


def submit_links(scenario: Scenario, simulator: Simulator) -> None:
    """Links that run one after the other, each first in the queue."""
    spec = JobSpec(scenario.link_nodes, scenario.limit_s, user=USER, priority=FIRST)
    before = simulator.submit(spec)
    for _ in range((scenario.lasts_s + FAR_S) // scenario.limit_s):
        before = simulator.submit(replace(spec, dependency=f"afterany:{before}"))


def start_s(simulator: Simulator, scenario: Scenario) -> int:
    """When a link starts that enters the queue now."""
    fork = simulator.fork()
    spec = JobSpec(scenario.link_nodes, scenario.limit_s, user=USER)
    far_s = fork.now_s + FAR_S
    found = fork.run_until_start(fork.submit(spec), far_s)
    return far_s if found is None else found


def table(
    scenario: Scenario, simulator: Simulator, every_s: int, *, holding: bool
) -> list[tuple[int, int]]:
    """(release, start) pairs."""
    simulator.run_until(scenario.warm_up_s)
    pairs = [(simulator.now_s, start_s(simulator, scenario))]
    if holding:
        submit_links(scenario, simulator)
    while simulator.now_s + every_s < scenario.end_s:
        simulator.run_until(simulator.now_s + every_s)
        pairs.append((simulator.now_s, start_s(simulator, scenario)))
    return pairs


def bound(pairs: list[tuple[int, int]], limit_s: int, end_s: int) -> tuple[float, int]:
    """The greatest goodput from the first start until ``end_s``, and its handovers."""
    first_s = pairs[0][1]
    starts_s = np.array(sorted({start for _, start in pairs if first_s <= start < end_s}))
    least_s, count = np.zeros(len(starts_s)), np.zeros(len(starts_s), int)
    for at in range(1, len(starts_s)):
        late_s = np.maximum(starts_s[at] - starts_s[:at] - limit_s, 0)
        lost_s = least_s[:at] + late_s + HANDOVER_S
        best = int(lost_s.argmin())
        least_s[at], count[at] = lost_s[best], count[best] + 1
    left_s = least_s + np.maximum(end_s - starts_s - limit_s, 0)
    best = int(left_s.argmin())
    return 1 - float(left_s[best]) / (end_s - first_s), int(count[best])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--months", default="")
    parser.add_argument("--seeds", default="1,4")
    parser.add_argument("--nodes", default="8")
    parser.add_argument("--every", type=int, default=4, metavar="HOURS")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    done = {(row["background"], row["nodes"]) for row in rows}
    for nodes in map(int, args.nodes.split(",")):
        base = Scenario(chains=1, lasts_s=28 * DAY_S, link_nodes=nodes)
        for name, (scenario, make) in cases_of(base, args.trace, args.months, args.seeds).items():
            if (name, nodes) in done:
                continue
            begun_s = time.process_time()
            row: dict[str, object] = {"background": name, "nodes": nodes}
            for user in ("alone", "holding"):
                pairs = table(
                    scenario, make(scenario), args.every * HOUR_S, holding=user == "holding"
                )
                goodput, handovers = bound(pairs, scenario.limit_s, scenario.end_s)
                waits_h = np.array([start - release for release, start in pairs]) / HOUR_S
                row[user] = {
                    "bound": round(goodput, 4),
                    "handovers": handovers,
                    "wait_h": [round(float(np.quantile(waits_h, q)), 1) for q in QUANTILES],
                }
            row["cpu_s"] = round(time.process_time() - begun_s, 1)
            rows.append(row)
            print(row, flush=True)
            args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
