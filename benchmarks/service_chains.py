"""Service chains without a trained model, by penalties, on three kinds of background.

usage: python -m benchmarks.service_chains [--backgrounds 'short 4,demo 1,2023-02']
           [--penalties 1:1,4:1] [--policies reactive,default,oracle] [--trace CSV]
           [--out benchmarks/service_chains.json]

short SEED  8 chains of 8-hour links for 72 h, as in `chains_short_waits`
demo SEED   the demo's cluster: 4 chains of 4 users, 48-hour links, 15 days each, 3 days apart
YYYY-MM     recorded jobs of that month on Lonestar6: 4 chains of 4 users as in `demo`

All chains have 2 nodes; decisions come every 10 minutes where links are short, else every 30.
`default` is the service's own choice without a model. `oracle` knows all later jobs and releases
each successor where its penalty is least, whatever that does to later ones.

Interruption and overlap are those of the paper's pairs (equation 8): a successor that starts before
its predecessor's limit overlaps until then. A real service ends its predecessor once it is ready, so
less is held twice (`held_twice_h`). Each row is written as it is measured; rows that `--out` has are
kept. The intervals at the end are of 95 %, by resampling backgrounds of a kind.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import chains_short_waits as short
from benchmarks.chain_goodput import IDLE_S, TRACE, WARM_S, month_cluster
from mirage.chain.progress import chain_progress
from mirage.config import PolicyConfig
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Link, Mode, Penalties
from mirage.ports import Policy
from mirage.provision.chains.decisions import ChainDecisions
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.run import POLL_S, ChainJobs, Scenario, busy_cluster
from mirage.provision.policies.heuristics import Reactive
from mirage.provision.policies.registry import make_policy
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
DRAWS, LOAD = 2000, 22


@dataclass(frozen=True, kw_only=True)
class Background:
    """A cluster with the jobs of others, and the chains on it."""

    scenario: Scenario
    simulator: Simulator
    step_s: int


def background(name: str, trace: Path, penalties: Penalties) -> Background:
    kind, _, seed = name.partition(" ")
    if kind == "short":
        scenario = replace(SHORT, penalties=penalties)
        return Background(
            scenario=scenario, simulator=short.cluster(int(seed), LOAD), step_s=POLL_S
        )
    scenario = replace(LONG, penalties=penalties)
    if kind == "demo":
        scenario = replace(scenario, seed=int(seed))
        simulator = busy_cluster(scenario)
    else:
        scenario = replace(scenario, warm_up_s=WARM_S)
        simulator = month_cluster(trace, name, scenario)
    return Background(scenario=scenario, simulator=simulator, step_s=3 * POLL_S)


def policy_of(name: str, simulator: Simulator, look_s: int) -> Policy:
    if name == "reactive":
        return Reactive()
    if name == "oracle":
        return OraclePolicy(simulator, look_s)
    if name == "default":
        return make_policy(PolicyConfig())
    raise SystemExit(f"--policies: {name} is unknown; expected reactive, default or oracle")


def run(on: Background, policy: Policy) -> list[tuple[list[Link], int]]:
    """The links of each chain, and until when it was watched."""
    scenario, simulator = on.scenario, on.simulator
    simulator.run_until(scenario.warm_up_s)
    jobs = ChainJobs(scenario, simulator)
    acting = Acting(mode=ActingMode.ENFORCE)
    is_idle = isinstance(policy, Reactive) and scenario.apart_s % IDLE_S == 0
    step_s = IDLE_S if is_idle else on.step_s
    decisions = ChainDecisions(simulator, policy, acting, step_s=step_s)
    while simulator.now_s < scenario.end_s:
        jobs.submit_due()
        decisions.cycle()
        jobs.run_until(min(simulator.now_s + step_s, scenario.end_s))
    decisions.cycle()
    return [
        (decisions.links(scenario.user(chain), chain), begin_s + scenario.lasts_s)
        for chain, begin_s in scenario.begins_s.items()
    ]


def pair_overlap_s(links: Sequence[Link], limit_s: int, until_s: int) -> int:
    """Of all pairs of links: from a successor's start to its predecessor's limit."""
    starts_s = sorted(
        link.start_s for link in links if link.start_s is not None and link.start_s < until_s
    )
    return sum(max(0, before_s + limit_s - after_s) for before_s, after_s in pairwise(starts_s))


def measured(name: str, trace: Path, penalties: Penalties, policy: str) -> dict[str, Any]:
    """A row: hours."""
    begun_s = time.process_time()
    on = background(name, trace, penalties)
    found = run(on, policy_of(policy, on.simulator, on.step_s))
    parts = [chain_progress(links, until_s, 0) for links, until_s in found]
    interruption_h = sum(part.interrupted_s for part in parts) / HOUR_S
    overlap_h = (
        sum(pair_overlap_s(links, on.scenario.limit_s, until_s) for links, until_s in found)
        / HOUR_S
    )
    return {
        "background": name,
        "penalties": words(penalties),
        "policy": policy,
        "wall_h": round(sum(part.wall_s for part in parts) / HOUR_S, 1),
        "interruption_h": round(interruption_h, 2),
        "overlap_h": round(overlap_h, 2),
        "penalty_h": round(
            penalties.interruption * interruption_h + penalties.overlap * overlap_h, 2
        ),
        "held_twice_h": round(sum(part.held_twice_s for part in parts) / HOUR_S, 2),
        "handovers": sum(part.handovers for part in parts),
        "cpu_s": round(time.process_time() - begun_s, 1),
    }


def words(penalties: Penalties) -> str:
    return f"{penalties.interruption:g}:{penalties.overlap:g}"


def kind_of(name: str) -> str:
    return name.partition(" ")[0] if " " in name else "months"


def tables(rows: Sequence[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """By kind of background, penalties and policy: sums, and what reactive's became, in %."""
    for kind, penalties in sorted({(kind_of(row["background"]), row["penalties"]) for row in rows}):
        chosen = [
            row
            for row in rows
            if (kind_of(row["background"]), row["penalties"]) == (kind, penalties)
        ]
        before = {row["background"]: row for row in chosen if row["policy"] == "reactive"}
        for policy in dict.fromkeys(row["policy"] for row in chosen):
            mine = [
                row for row in chosen if row["policy"] == policy and row["background"] in before
            ]
            names = ("interruption_h", "overlap_h", "penalty_h", "held_twice_h", "handovers")
            sums = {name: round(sum(row[name] for row in mine), 1) for name in names}
            cuts = {
                name: share(
                    [before[row["background"]][name] for row in mine], [row[name] for row in mine]
                )
                for name in ("interruption_h", "penalty_h")
            }
            yield {
                "kind": kind,
                "penalties": penalties,
                "policy": policy,
                "backgrounds": len(mine),
                **sums,
                "cut": cuts,
            }


def share(before: Sequence[float], after: Sequence[float]) -> list[int]:
    """Less than before, %: of the sums, and its 95 % interval over backgrounds."""
    one, other = np.array(before), np.array(after)
    drawn = np.random.default_rng(1).integers(0, len(one), (DRAWS, len(one)))
    cuts = 1 - other[drawn].sum(1) / np.maximum(one[drawn].sum(1), 1e-9)
    whole = 1 - other.sum() / max(one.sum(), 1e-9)
    return [round(100 * float(cut)) for cut in (whole, *np.quantile(cuts, [0.025, 0.975]))]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backgrounds", default="short 4,short 5,short 6,short 7")
    parser.add_argument("--penalties", default="1:1,4:1")
    parser.add_argument("--policies", default="reactive,default,oracle")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    for name in args.backgrounds.split(","):
        for taste in args.penalties.split(","):
            for policy in args.policies.split(","):
                head = {"background": name, "penalties": taste, "policy": policy}
                if any(head.items() <= row.items() for row in rows):
                    continue
                penalties = Penalties(*map(float, taste.split(":")))
                rows.append(measured(name, args.trace, penalties, policy))
                args.out.write_text(json.dumps(rows, indent=1) + "\n")
    for table in tables(rows):
        print(json.dumps(table))


if __name__ == "__main__":
    main()
