"""Services on three kinds of background: up-time, and what it costs.

usage: python -m benchmarks.service_chains [--backgrounds 'short 4,demo 1,2023-02'] [--nodes 2]
           [--links 48] [--policies 'reactive;lead:3h;uptime;oracle'] [--trace CSV]
           [--out benchmarks/service_chains.json]

short SEED  8 chains of 8-hour links for 72 h, as in `chains_short_waits`
demo SEED   the demo's cluster: 4 chains of 4 users, 48-hour links, 15 days each, 3 days apart
YYYY-MM     recorded jobs of that month on Lonestar6: 4 chains of 4 users as in `demo`

`--links` sets other limits, in hours. A link is ready 10 minutes after its start, and its
predecessor ends then. A service is up while a link is ready, from the first readiness on. Decisions
come every 10 minutes, whoever decides. Policies are separated by semicolons:

reactive   as Slurm alone would run the chain
lead:D     one successor, D before its predecessor's limit
ahead:N:D  up to N successors in the queue, one more each D
pair       the untrained `quantile` at penalties of 1:1, one successor
uptime     the service's rule
NAME       that rule with the waits of the shipped model NAME (months)
oracle     knows all later jobs, but not what its own later releases change; it looks once an hour at
           links of 48 hours or more
none       no chains: what others wait for without them

Each row is written as it is measured; rows that `--out` has are kept. Printed at the end: sums of a
kind. `x_least`: handovers, by those of a chain that is always up and whose links run to their
limits. `others_h`: hours for which others' jobs wait in the mean, from the first chain on; those of
the last 8 hours are left out, since their waits are cut. `more_h`: how much longer that is than
without chains. Intervals are of 95 %, by resampling backgrounds; `more_up` is how much more of the
time `uptime` is up than that policy. `better_in`: backgrounds where that policy is up more and holds
less twice.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import chains_short_waits as short
from benchmarks.chain_goodput import IDLE_S, TRACE, WARM_S, month_cluster
from benchmarks.sim_common import write_json
from mirage.chain.progress import ChainProgress, chain_progress
from mirage.chain.script import AHEAD
from mirage.config import PolicyConfig
from mirage.daemon.restraint import Acting
from mirage.domain import HANDOVER_S, ActingMode, Link, Mode
from mirage.models.shipped import shipped
from mirage.ports import Policy
from mirage.provision.chains.decisions import ChainDecisions
from mirage.provision.chains.oracle import LOOK_S, OraclePolicy
from mirage.provision.chains.rules import ChainRule
from mirage.provision.chains.run import CLUSTER, POLL_S, ChainJobs, Scenario, busy_cluster
from mirage.provision.policies.heuristics import Reactive
from mirage.provision.policies.registry import make_pair_policy, make_policy
from slurm_sim import Simulator
from slurm_sim.seconds import HOUR_S

LONG = Scenario(mode=Mode.SERVICE, chains=4, has_one_user=False)
SHORT = replace(
    LONG,
    chains=8,
    apart_s=600,
    lasts_s=short.LASTS_H * HOUR_S,
    limit_s=short.LIMIT_S,
    warm_up_s=short.WARM_H * HOUR_S,
    has_one_user=True,
)
DRAWS, LOAD, NONE = 2000, 22, "none"
START_UP_H = HANDOVER_S / HOUR_S
POLICIES = "reactive;lead:10min;lead:3h;lead:6h;ahead:3:20h;pair;uptime;oracle"
KEY = ("background", "nodes", "link_h", "policy")


@dataclass(frozen=True, kw_only=True)
class Background:
    """A cluster with the jobs of others, and the chains on it."""

    scenario: Scenario
    simulator: Simulator


def background(name: str, trace: Path, nodes: int, link_h: int | None) -> Background:
    """``link_h``: None for the limit of this kind."""
    kind, _, seed = name.partition(" ")
    scenario = replace(SHORT if kind == "short" else LONG, link_nodes=nodes)
    if link_h is not None:
        scenario = replace(scenario, limit_s=link_h * HOUR_S)
    if kind == "short":
        return Background(scenario=scenario, simulator=short.cluster(int(seed), LOAD))
    if kind == "demo":
        scenario = replace(scenario, seed=int(seed))
        return Background(scenario=scenario, simulator=busy_cluster(scenario))
    scenario = replace(scenario, warm_up_s=WARM_S)
    return Background(scenario=scenario, simulator=month_cluster(trace, name, scenario))


def policy_of(name: str, simulator: Simulator, limit_s: int) -> tuple[Policy, int]:
    """The policy, and how many successors a chain has in the queue at most."""
    if name in ("reactive", NONE):
        return Reactive(), 1
    if rule := ChainRule.of(name):
        return rule.policy(simulator), rule.ahead
    if name == "pair":
        return make_pair_policy(PolicyConfig()), 1
    if name == "oracle":
        return OraclePolicy(simulator, LOOK_S if limit_s >= LONG.limit_s else POLL_S), AHEAD
    if name == "uptime":
        return make_policy(PolicyConfig()), AHEAD
    model = PolicyConfig(name=name, model=str(shipped(CLUSTER) / name))
    return make_policy(model), AHEAD


def run(on: Background, policy: Policy, with_chains: bool) -> tuple[list[ChainProgress], float]:
    """What became of each chain, and for how many hours others waited in the mean."""
    chains = links_of(on, policy, with_chains)
    own = {link.job_id for links in chains for link in links}
    waits_s = short.others_waits_s(on.simulator, own, on.scenario.warm_up_s)
    ends_s = [begin_s + on.scenario.lasts_s for begin_s in on.scenario.begins_s.values()]
    parts = [
        chain_progress(links, end_s, start_up_s=HANDOVER_S)
        for links, end_s in zip(chains, ends_s, strict=False)
    ]
    return parts, float(waits_s.mean()) / HOUR_S


def links_of(on: Background, policy: Policy, with_chains: bool = True) -> list[list[Link]]:
    """Of each chain; none without them."""
    scenario, simulator = on.scenario, on.simulator
    simulator.run_until(scenario.warm_up_s)
    jobs = ChainJobs(scenario, simulator)
    acting = Acting(mode=ActingMode.ENFORCE)
    is_idle = isinstance(policy, Reactive) and scenario.apart_s % IDLE_S == 0
    step_s = IDLE_S if is_idle else POLL_S
    decisions = ChainDecisions(simulator, policy, acting, step_s=step_s)
    while simulator.now_s < scenario.end_s:
        if with_chains:
            jobs.submit_due()
        decisions.cycle()
        jobs.run_until(min(simulator.now_s + step_s, scenario.end_s))
    decisions.cycle()
    begins = scenario.begins_s if with_chains else {}
    return [decisions.links(scenario.user(chain), chain) for chain in begins]


def measured(
    name: str, trace: Path, nodes: int, link_h: int | None, policy_name: str
) -> dict[str, Any]:
    """A row."""
    begun_s = time.process_time()
    on = background(name, trace, nodes, link_h)
    limit_s = on.scenario.limit_s
    policy, ahead = policy_of(policy_name, on.simulator, limit_s)
    watched = replace(on, scenario=replace(on.scenario, ahead=ahead))
    parts, others_h = run(watched, policy, policy_name != NONE)
    return {
        "background": name,
        "nodes": nodes,
        "link_h": limit_s // HOUR_S,
        "policy": policy_name,
        "wall_h": round(sum(part.wall_s for part in parts) / HOUR_S, 2),
        "down_h": round(sum(part.interrupted_s for part in parts) / HOUR_S, 2),
        "twice_node_h": round(nodes * sum(part.held_twice_s for part in parts) / HOUR_S, 2),
        "handovers": sum(part.handovers for part in parts),
        "gap_h": round(max((part.longest_gap_s for part in parts), default=0) / HOUR_S, 2),
        "others_h": round(others_h, 3),
        "cpu_s": round(time.process_time() - begun_s, 1),
    }


def kind_of(name: str) -> str:
    return name.partition(" ")[0] if " " in name else "months"


def tables(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """By kind of background, nodes, limit and policy: sums over the backgrounds that `uptime` has."""
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        key = kind_of(row["background"]), row["nodes"], row["link_h"], row["policy"]
        groups.setdefault(key, []).append(row)
    for (kind, nodes, link_h, policy), mine in groups.items():
        ours = {row["background"]: row for row in groups.get((kind, nodes, link_h, "uptime"), [])}
        mine = [row for row in mine if row["background"] in ours]
        if not mine or policy == NONE:
            continue
        sums = {
            name: sum(row[name] for row in mine)
            for name in ("wall_h", "down_h", "twice_node_h", "handovers")
        }
        more = [ours[row["background"]]["down_h"] for row in mine], [row["down_h"] for row in mine]
        yield {
            "kind": kind,
            "nodes": nodes,
            "link_h": link_h,
            "policy": policy,
            "backgrounds": len(mine),
            "up": round(100 * (1 - sums["down_h"] / sums["wall_h"]), 2),
            "twice_node_h": round(sums["twice_node_h"], 1),
            "handovers": sums["handovers"],
            "x_least": round(sums["handovers"] * (link_h - START_UP_H) / sums["wall_h"], 2),
            "gap_h": max(row["gap_h"] for row in mine),
            "more_up": difference(*more, [row["wall_h"] for row in mine]),
            "better_in": sum(
                row["down_h"] < ours[row["background"]]["down_h"]
                and row["twice_node_h"] < ours[row["background"]]["twice_node_h"]
                for row in mine
            ),
        }


def others(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """By how much longer others wait beside chains, on each background that was run without any."""
    without = {row["background"]: row for row in rows if row["policy"] == NONE}
    for row in rows:
        alone = without.get(row["background"])
        if alone and "others_h" in row and row["policy"] != NONE:
            yield {
                **{name: row[name] for name in KEY},
                "up": round(100 * (1 - row["down_h"] / row["wall_h"]), 2),
                "others_h": row["others_h"],
                "more_h": round(row["others_h"] - alone["others_h"], 3),
            }


def difference(
    ours_h: Sequence[float], theirs_h: Sequence[float], wall_h: Sequence[float]
) -> list[float]:
    """How much less of the time is lost, in points: of all, and its 95 % interval over backgrounds."""
    less, wall = np.array(theirs_h) - np.array(ours_h), np.array(wall_h)
    drawn = np.random.default_rng(1).integers(0, len(less), (DRAWS, len(less)))
    points = 100 * less[drawn].sum(1) / wall[drawn].sum(1)
    whole = 100 * less.sum() / wall.sum()
    return [round(float(each), 2) for each in (whole, *np.quantile(points, [0.025, 0.975]))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backgrounds", default="short 4,short 5,short 6,short 7")
    parser.add_argument("--nodes", default="2")
    parser.add_argument("--links", default="", help="hours; empty: those of each kind")
    parser.add_argument("--policies", default=POLICIES)
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    known = {tuple(row[name] for name in KEY) for row in rows}
    links: list[int | None] = [int(hours) for hours in args.links.split(",") if hours] or [None]
    for policy in args.policies.split(";"):
        for nodes in map(int, args.nodes.split(",")):
            for name in args.backgrounds.split(","):
                for link_h in links:
                    own_h = (
                        link_h or (SHORT if kind_of(name) == "short" else LONG).limit_s // HOUR_S
                    )
                    if (name, nodes, own_h, policy) not in known:
                        rows.append(measured(name, args.trace, nodes, link_h, policy))
                        write_json(args.out, rows)
    for table in (*tables(rows), *others(rows)):
        print(json.dumps(table))


if __name__ == "__main__":
    main()
