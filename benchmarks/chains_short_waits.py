"""Chains where waits are shorter than a link, and what they take from others.

usage: python -m benchmarks.chains_short_waits [--seeds 8,9,10,11] [--chains 8]
           [--load 22] [--out benchmarks/chains_short_waits.json]

The jobs of `real_chains_plan.other_jobs` on 40 simulated nodes, and beside them chains of two nodes
of training with 8-hour links for 72 hours. A handover costs 10 minutes. Each seed is one background,
the same for all rows. Rows that `--out` has already are kept.

Printed and written: of all seeds together the chains' goodput, interruption, handovers, and links
that a successor ended before a quarter of their limit; the other users' mean wait and p95. Those
who came in the last 8 hours are left out, since their waits are cut.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Collection, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from benchmarks.real_chains_plan import HOUR_S, LINK_MIN, other_jobs
from benchmarks.sim_common import write_json
from mirage.chain.progress import chain_progress
from mirage.chain.script import AHEAD, MOST_AHEAD
from mirage.config import PolicyConfig
from mirage.daemon.restraint import Acting
from mirage.domain import HANDOVER_S, ActingMode, Link
from mirage.ports import Policy
from mirage.provision.chains.decisions import ChainDecisions
from mirage.provision.chains.oracle import OraclePolicy
from mirage.provision.chains.run import POLL_S, USER, ChainJobs, Scenario
from mirage.provision.policies.heuristics import Reactive
from mirage.provision.policies.registry import make_policy
from slurm_sim import ClusterConfig, JobSpec, Partition, Simulator, make_nodes

NODES, LASTS_H, WARM_H = 40, 72, 4
LIMIT_S = LINK_MIN * 60
YOUNG = 4


@dataclass(frozen=True, kw_only=True)
class Case:
    """A row."""

    chains: int
    policy: str
    """`reactive`, `default` (the service's own), or `oracle`, which knows all later jobs."""


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """Of one seed."""

    wall_s: int
    lost_s: int
    interrupted_s: int
    handovers: int
    young: int
    others_wait_s: np.ndarray


def cases(counts: list[int]) -> Iterator[Case]:
    for count in counts:
        if not count:
            yield Case(chains=0, policy="reactive")
            continue
        for policy in ("reactive", "default", "oracle"):
            yield Case(chains=count, policy=policy)


def cluster(seed: int, load: float) -> Simulator:
    nodes = make_nodes(NODES)
    config = ClusterConfig(nodes, (Partition("all", tuple(node.name for node in nodes)),))
    jobs = [
        JobSpec(job.nodes, job.limit_min * 60, job.run_s, user="carol", submit_s=job.submit_s)
        for job in other_jobs(WARM_H + LASTS_H, load, seed)
    ]
    return Simulator(config, sorted(jobs, key=lambda job: job.submit_s or 0))


def policy_of(case: Case, simulator: Simulator) -> Policy:
    if case.policy == "reactive":
        return Reactive()
    return OraclePolicy(simulator) if case.policy == "oracle" else make_policy(PolicyConfig())


def run(case: Case, seed: int, load: float) -> Outcome:
    scenario = Scenario(
        chains=case.chains,
        apart_s=600,
        lasts_s=LASTS_H * HOUR_S,
        link_nodes=2,
        limit_s=LIMIT_S,
        ahead=AHEAD,
        warm_up_s=WARM_H * HOUR_S,
    )
    simulator, end_s = cluster(seed, load), (WARM_H + LASTS_H) * HOUR_S
    jobs = ChainJobs(scenario, simulator)
    simulator.run_until(scenario.warm_up_s)
    policy = policy_of(case, simulator)
    acting = Acting(mode=ActingMode.ENFORCE, most_ahead=MOST_AHEAD)
    decisions = ChainDecisions(simulator, policy, acting, step_s=POLL_S)
    while simulator.now_s < end_s:
        jobs.submit_due()
        decisions.cycle()
        jobs.run_until(min(simulator.now_s + POLL_S, end_s))
    decisions.cycle()
    links = [decisions.links(USER, chain) for chain in scenario.begins_s]
    return outcome(links, simulator, jobs)


def outcome(links: list[list[Link]], simulator: Simulator, jobs: ChainJobs) -> Outcome:
    end_s = simulator.now_s
    parts = [chain_progress(each, end_s, HANDOVER_S) for each in links]
    runs_s = [
        link.end_s - link.start_s
        for each in links
        for link in each
        if link.start_s is not None and link.end_s is not None
    ]
    return Outcome(
        wall_s=sum(part.wall_s for part in parts),
        lost_s=sum(part.interrupted_s + part.handovers * HANDOVER_S for part in parts),
        interrupted_s=sum(part.interrupted_s for part in parts),
        handovers=sum(part.handovers for part in parts),
        young=sum(run_s < LIMIT_S / YOUNG for run_s in runs_s),
        others_wait_s=others_waits_s(simulator, jobs.job_ids, WARM_H * HOUR_S),
    )


def others_waits_s(simulator: Simulator, own: Collection[int], since_s: int) -> np.ndarray:
    """Waits of jobs that are not ``own`` and were submitted from then on; not of those of the last
    hours, which are cut.
    """
    found, end_s = simulator.results(), simulator.now_s
    began_s = found.eligible_s
    is_counted = (began_s >= since_s) & (began_s < end_s - LIMIT_S)
    is_counted &= ~np.isin(found.job_id, list(own))
    until_s = np.where(found.start_s >= 0, found.start_s, end_s)
    return np.asarray((until_s - began_s)[is_counted])


def row(case: Case, seeds: list[int], load: float) -> dict[str, object]:
    begun_s = time.process_time()
    found = [run(case, seed, load) for seed in seeds]
    wait_h = np.concatenate([each.others_wait_s for each in found]) / HOUR_S
    wall_s = sum(each.wall_s for each in found)
    return {
        **asdict(case),
        "load": load,
        "seeds": seeds,
        "goodput": round(1 - sum(each.lost_s for each in found) / wall_s, 4) if wall_s else None,
        "interrupted_h": round(sum(each.interrupted_s for each in found) / HOUR_S, 1),
        "handovers": sum(each.handovers for each in found),
        "young": sum(each.young for each in found),
        "others": len(wait_h),
        "others_mean_h": round(float(wait_h.mean()), 2),
        "others_p95_h": round(float(np.quantile(wait_h, 0.95)), 2),
        "cpu_s": round(time.process_time() - begun_s, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", default="8,9,10,11")
    parser.add_argument("--chains", default="8")
    parser.add_argument("--load", type=float, default=22, help="nodes that others ask for")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    seeds = [int(word) for word in args.seeds.split(",")]
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    for case in cases([int(word) for word in args.chains.split(",")]):
        wanted = {**asdict(case), "load": args.load, "seeds": seeds}
        if any(wanted.items() <= done.items() for done in rows):
            continue
        rows.append(row(case, seeds, args.load))
        print(rows[-1], flush=True)
        write_json(args.out, rows)


if __name__ == "__main__":
    main()
