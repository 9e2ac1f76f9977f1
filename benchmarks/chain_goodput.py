"""Goodput of training chains: the daemon's own decisions on real months and on the demo's cluster.

usage: python -m benchmarks.chain_goodput [--trace CSV --months 2023-01,2023-02] [--seeds 1,2]
           [--nodes 1,2,8,16] [--policies 'reactive;goodput;oracle;ahead:3:20h']
           [--ahead 6] [--time-min HOURS [--extended]] [--chains 4] [--step 600]
           [--out benchmarks/chain_goodput.json]

A chain of 48-hour jobs runs for 28 days beside the recorded jobs of a month, or the demo's. Recorded
jobs are submitted when they were and run as long as they did; what the chain takes they wait for.
Each case is one run: without chance but that of the background. One queue more or less decides
points of a chain, so `--chains 4` runs four of four users, three days apart, in each case. Each row is written as it is
measured, and rows that `--out` has already are kept: remove the file after a change of a policy.
Policies are separated by semicolons:

reactive   as Slurm alone would run the chain
goodput    the default of training chains
oracle     knows the future, but not what its own later releases change
after:D    yardstick: one successor, let in once its predecessor has run for D
ahead:N:D  yardstick: up to N successors in the queue, one more each D
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
from functools import partial
from pathlib import Path

from mirage.chain.progress import ChainProgress, chain_progress
from mirage.config import PolicyConfig
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode
from mirage.ports import Policy
from mirage.provision.chains.decisions import ChainDecisions
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.rules import ChainRule
from mirage.provision.chains.run import POLL_S, ChainJobs, Scenario, busy_cluster
from mirage.provision.policies.goodput import Goodput
from mirage.provision.policies.heuristics import Reactive
from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

TRACE = Path(__file__).parents[2] / "shared/traces/ls6_a100_dev.csv.gz"
YOUNG = 4
"""A link that ran for less than this part of its limit."""
IDLE_S = 4 * HOUR_S
"""Between two looks at a chain about which nothing is decided."""
WARM_S, LIMIT_S = 21 * DAY_S, 48 * HOUR_S
POLICIES = "reactive;goodput;oracle;after:12h;ahead:3:20h;ahead:4:16h"


def policy_of(text: str, scenario: Scenario) -> tuple[Scenario, Callable[[Simulator], Policy]]:
    """The policy of this name, and the scenario with as many successors as it wants."""
    if text == "reactive":
        return scenario, lambda _: Reactive()
    if text == "goodput":
        return scenario, lambda _: Goodput(PolicyConfig().goodput)
    if text == "oracle":
        return scenario, OraclePolicy
    rule = ChainRule.of(text)
    if rule is None:
        raise SystemExit(
            f"--policies: {text} is unknown; expected reactive, goodput, oracle or a rule"
        )
    return replace(scenario, ahead=rule.ahead), rule.policy


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


def cases_of(
    base: Scenario, trace: Path, months: str, seeds: str
) -> dict[str, tuple[Scenario, Callable[[Scenario], Simulator]]]:
    """By name: a scenario, and what makes its cluster. ``months`` and ``seeds`` with commas."""
    cases: dict[str, tuple[Scenario, Callable[[Scenario], Simulator]]] = {
        month: (replace(base, warm_up_s=WARM_S), partial(month_cluster, trace, month))
        for month in filter(None, months.split(","))
    }
    return cases | {
        f"demo {seed}": (replace(base, seed=int(seed)), busy_cluster)
        for seed in filter(None, seeds.split(","))
    }


def run_cases(
    scenario: Scenario,
    make_policy: Callable[[Simulator], Policy],
    simulator: Simulator,
    step_s: int,
) -> tuple[list[ChainProgress], int]:
    """Each chain's progress, and how many links a successor ended before a quarter of their limit."""
    simulator.run_until(scenario.warm_up_s)
    jobs = ChainJobs(scenario, simulator)
    acting = Acting(mode=ActingMode.ENFORCE)
    policy = make_policy(simulator)
    step_s = IDLE_S if isinstance(policy, Reactive) else step_s
    decisions = ChainDecisions(simulator, policy, acting, step_s=step_s)
    while simulator.now_s < scenario.end_s:
        jobs.submit_due()
        decisions.cycle()
        jobs.run_until(min(simulator.now_s + step_s, scenario.end_s))
    decisions.cycle()
    found = [
        (decisions.links(scenario.user(chain), chain), begin_s + scenario.lasts_s)
        for chain, begin_s in scenario.begins_s.items()
    ]
    runs_s = [
        link.end_s - link.start_s
        for links, _ in found
        for link in links
        if link.start_s is not None and link.end_s is not None
    ]
    young = sum(run_s < scenario.limit_s / YOUNG for run_s in runs_s)
    return [chain_progress(links, end_s) for links, end_s in found], young


def measured(
    name: str, policy: str, base: Scenario, make: Callable[[Scenario], Simulator], step_s: int
) -> dict[str, object]:
    """A row of the table."""
    begin = time.process_time()
    scenario, make_policy = policy_of(policy, base)
    parts, young = run_cases(scenario, make_policy, make(scenario), step_s)
    total = ChainProgress.of_all(parts)
    return {
        "background": name,
        "nodes": scenario.link_nodes,
        "policy": policy,
        "time_min_s": base.time_min_s,
        "extended": base.time_min_extends,
        "ahead": scenario.ahead,
        "chains": scenario.chains,
        "step_s": step_s,
        "each": [round(part.goodput, 3) for part in parts],
        "goodput": round(total.goodput, 4),
        "interrupted": round(total.interrupted_s / total.wall_s, 4),
        "held_twice": round(total.held_twice_s / total.wall_s, 4),
        "handovers": total.handovers,
        "young": young,
        "wall_h": round(total.wall_s / HOUR_S, 1),
        "run_h_a_link": round(
            (total.wall_s - total.interrupted_s) / HOUR_S / (total.handovers + scenario.chains), 1
        ),
        "cpu_s": round(time.process_time() - begin, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--months", default="2023-01,2023-02")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--nodes", default="1,2,8,16")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--ahead", type=int, default=Scenario.ahead, help="successors in the queue")
    parser.add_argument("--chains", type=int, default=1, help="of as many users, in each case")
    parser.add_argument("--step", type=int, default=POLL_S, help="seconds between decisions")
    parser.add_argument("--time-min", type=int, metavar="HOURS", help="of a link; default: none")
    parser.add_argument("--extended", action="store_true", help="--time-min as in Slurm 26.05")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    kept = ("background", "nodes", "policy", "time_min_s", "extended", "chains", "step_s")
    done = {tuple(row.get(key) for key in kept) for row in rows}
    for nodes in map(int, args.nodes.split(",")):
        base = Scenario(
            chains=args.chains,
            has_one_user=False,
            lasts_s=28 * DAY_S,
            link_nodes=nodes,
            ahead=args.ahead,
            time_min_s=args.time_min * HOUR_S if args.time_min else None,
            time_min_extends=args.extended,
        )
        for name, (scenario, make) in cases_of(base, args.trace, args.months, args.seeds).items():
            for policy in args.policies.split(";"):
                case = name, nodes, policy, base.time_min_s, base.time_min_extends
                if (*case, args.chains, args.step) in done:
                    continue
                rows.append(measured(name, policy, scenario, make, args.step))
                print(rows[-1], flush=True)
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
