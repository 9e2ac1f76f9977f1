"""Chains on two partitions of different speeds: each alone, `-p A,B`, and `--anywhere`.

    python -m benchmarks.anywhere TRACE [--slow 0.5] [--share 0.5 0.55] [--seeds 5 6] [--out FILE.json]

Lonestar6's cluster in two halves, `fast` and `slow`, and the jobs of a month of its history, each in
one of them by a draw, `--share` of them in `fast`. Four training chains of two nodes, 48-hour
links and ten days' work at the fast speed. A successor enters the queue 12 hours before its
predecessor's limit; as it starts, the predecessor ends, and ten minutes are lost. For `anywhere` the
service's own `mirage.daemon.anywhere` chooses then. Slurm lets both halves weigh as their speeds
(TRESBillingWeights), so the fair share used is that of the work, and of what was lost.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from mirage.daemon.anywhere import Anywhere
from mirage.domain import Job, JobState
from mirage.provision.starts.finish import Speeds
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim import ClusterConfig, JobSpec, Simulator
from slurm_sim.clusters import read_cluster
from slurm_sim.seconds import DAY_S, HOUR_S
from slurm_sim.traces.table import read_trace

RULES = ("fast", "slow", "fast,slow", "anywhere")
CHAINS, NODES, LIMIT_S, WORK_S = 4, 2, 48 * HOUR_S, 10 * DAY_S
LEAD_S, HANDOVER_S, STEP_S, WARM_UP_S, MOST_S = 12 * HOUR_S, 600, 600, 3 * DAY_S, 45 * DAY_S
TAG = "mirage/1 chain=k3m9pq2xha seg=2/99 pred={} mode=train ei=1 eo=1 -- mirage:anywhere=fast,slow"


@dataclass
class Progress:
    """A chain under way."""

    begin_s: int
    running: int | None = None
    successor: int | None = None
    done_s: float = 0.0
    node_h: float = 0.0
    billing_h: float = 0.0
    links: int = 0
    finish_s: int | None = None
    of: dict[int, int] = field(default_factory=dict)
    """Job -> seconds of it that are counted."""


@dataclass
class World:
    """One simulation."""

    simulator: Simulator
    speeds: dict[str, float]
    rule: str

    def partitions(self, predecessor: int | None) -> str:
        if self.rule != "anywhere" or predecessor is None:
            return "fast,slow" if self.rule == "anywhere" else self.rule
        chosen = ["fast,slow"]
        cluster = SimulatedCluster(self.simulator, operator=True)
        observer = Anywhere(
            speeds=Speeds(self.speeds),
            nodes=lambda: (),
            accounting=cluster.accounting,
            set_partition=lambda _, names: chosen.append(names),
        )
        seen = cluster.snapshot()
        observer.queue_read(seen)
        observer.release_begins(_asked(seen.at_s, predecessor))
        return chosen[-1]

    def submit(self, chain: Progress) -> int:
        names = self.partitions(chain.running)
        return self.simulator.submit(
            JobSpec(NODES, LIMIT_S, None, user="chains", partition=names, memory_mib_per_node=1)
        )

    def step(self, chain: Progress) -> None:
        """Hands over, counts progress, and submits what comes next."""
        if chain.finish_s is not None or self.simulator.now_s < chain.begin_s:
            return
        if chain.successor is not None and self.simulator.job(chain.successor).start_s is not None:
            if chain.running is not None:
                self.simulator.cancel(chain.running)
                self._count(chain, chain.running)
                chain.done_s -= HANDOVER_S * self._speed(chain.successor)
            chain.running, chain.successor = chain.successor, None
            chain.links += 1
        if chain.running is not None:
            self._count(chain, chain.running)
            left_s = (self.simulator.job(chain.running).limit_end_s or 0) - self.simulator.now_s
            if chain.done_s >= WORK_S:
                self.simulator.cancel(chain.running)
                for job_id in (chain.successor,) if chain.successor else ():
                    self.simulator.cancel(job_id)
                chain.finish_s = self.simulator.now_s
                return
        else:
            left_s = 0
        if chain.successor is None and left_s <= LEAD_S:
            chain.successor = self.submit(chain)

    def _speed(self, job_id: int) -> float:
        return self.speeds[self.simulator.job(job_id).partition]

    def _count(self, chain: Progress, job_id: int) -> None:
        job = self.simulator.job(job_id)
        ran_s = min(job.end_s or self.simulator.now_s, self.simulator.now_s) - (job.start_s or 0)
        more_s = ran_s - chain.of.get(job_id, 0)
        chain.of[job_id] = ran_s
        chain.done_s += more_s * self._speed(job_id)
        chain.node_h += more_s * NODES / HOUR_S
        chain.billing_h += more_s * NODES * self._speed(job_id) / HOUR_S


def _asked(now_s: int, predecessor: int) -> Job:
    return Job(
        job_id=10**9,
        user="chains",
        partition="fast,slow",
        state=JobState.PENDING,
        nodes=NODES,
        submit_s=now_s,
        eligible_s=now_s,
        time_limit_s=LIMIT_S,
        comment=TAG.format(predecessor),
    )


def halves(cluster: ClusterConfig) -> ClusterConfig:
    names = [node.name for node in cluster.nodes]
    half = len(names) // 2
    parts = (("fast", names[:half]), ("slow", names[half:]))
    partitions = tuple(
        replace(cluster.partitions[0], name=name, nodes=tuple(nodes)) for name, nodes in parts
    )
    return replace(cluster, partitions=partitions, node_changes=())


def background(
    trace: Path, cluster: ClusterConfig, share: float, since_s: int, random: np.random.Generator
) -> Iterator[JobSpec]:
    """The history's jobs from ``since_s`` on, each in one half."""
    table = read_trace(trace)
    columns = [table.column(name) for name in ("submit", "start", "end", "timelimit_s", "nodes")]
    most = len(cluster.partitions[0].nodes)
    for row, user in zip(zip(*columns, strict=True), table.text("user"), strict=True):
        known = np.all(np.isfinite(row)) and since_s <= row[0] < since_s + MOST_S
        if known and row[2] > row[1] and row[4] <= most:
            submit_s, start_s, end_s, limit_s, nodes = map(int, row)
            yield JobSpec(
                nodes,
                min(limit_s, cluster.partitions[0].max_time_s or limit_s),
                max(1, end_s - start_s),
                user=str(user),
                partition="fast" if random.random() < share else "slow",
                submit_s=submit_s,
                memory_mib_per_node=1,
            )


def play(trace: Path, rule: str, slow: float, share: float, seed: int) -> list[dict[str, float]]:
    """A chain's figures each."""
    random = np.random.default_rng(seed)
    cluster = halves(read_cluster("models/ls6-a100/cluster.toml").cluster)
    submits = read_trace(trace).column("submit")
    since_s = int(random.integers(int(submits.min()), int(submits.max()) - MOST_S))
    simulator = Simulator(cluster, start_s=since_s - 1)
    for spec in background(trace, cluster, share, since_s, random):
        simulator.submit(spec)
    world = World(simulator, {"fast": 1.0, "slow": slow}, rule)
    first_s = since_s + WARM_UP_S
    chains = [Progress(first_s + number * DAY_S) for number in range(CHAINS)]
    while simulator.now_s < since_s + MOST_S and any(each.finish_s is None for each in chains):
        simulator.run_until(simulator.now_s + STEP_S)
        for chain in chains:
            world.step(chain)
    return [_figures(chain, simulator.now_s) for chain in chains]


def _figures(chain: Progress, now_s: int) -> dict[str, float]:
    wall_s = (chain.finish_s or now_s) - chain.begin_s
    return {
        "finish_d": wall_s / DAY_S,
        "finished": float(chain.finish_s is not None),
        "goodput": max(chain.done_s, 0.0) / wall_s,
        "node_h": chain.node_h,
        "billing_h": chain.billing_h,
        "links": chain.links,
    }


def summary(rows: Sequence[dict[str, float]]) -> dict[str, float]:
    return {name: round(float(np.mean([row[name] for row in rows])), 3) for name in rows[0]}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", type=Path)
    parser.add_argument("--slow", type=float, default=0.5, help="speed of the slow half")
    parser.add_argument(
        "--share",
        type=float,
        nargs="+",
        default=[0.5, 0.55, 0.6],
        help="of the jobs in the fast half",
    )
    parser.add_argument("--rules", nargs="+", default=RULES, choices=RULES)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3, 4, 5])
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    found: dict[str, Any] = {"slow": args.slow, "seeds": args.seeds, "share": {}}
    for share in args.share:
        print(f"\nshare {share}\n\n| rule | finish, d | goodput | node h | billing h | links |")
        print("| --- " * 6 + "|")
        rows = found["share"][str(share)] = {}
        for rule in args.rules:
            each = [play(args.trace, rule, args.slow, share, seed) for seed in args.seeds]
            rows[rule] = summary([row for seed in each for row in seed])
            rows[rule]["finish_d_each"] = [summary(seed)["finish_d"] for seed in each]
            cells = ("finish_d", "goodput", "node_h", "billing_h", "links")
            figures = " | ".join(f"{rows[rule][cell]:.2f}" for cell in cells)
            print(f"| {rule} | {figures} |", flush=True)
    if args.out:
        args.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
