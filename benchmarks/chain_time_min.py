"""What `--time-min` brings to training chains, alone and with several successors in the queue.

usage: python -m benchmarks.chain_time_min [--trace CSV] [--months 2023-01,2023-02] [--seeds 1,2]
                                           [--nodes 1,2,8,16] [--least 12,24]
                                           [--rules "reactive,after 12,ahead 3"]
                                           [--out benchmarks/chain_time_min.json]

A chain of 48-hour links runs for 28 days beside the recorded jobs of a month of Lonestar6's A100
partition, or beside the demo's jobs. Its successors enter the queue by fixed rules, so that the
rule does not hide what Slurm does:

reactive   a successor is queued when the running link has ended
after 12   one successor, queued once the running link has run for 12 h
ahead 3    up to three successors, one more each 20 h
by limit   as ahead 3, but one more each 20/48 of the limit that the running link got

No successor is queued that would start at once. A link that starts lets its predecessor save for
10 min and takes over. Each rule runs with the full limit alone, and with each `--time-min` by both
rules of Slurm: *exact* gives a shortened link its --time-min (22.05, 24.11), *extended* all time
until its nodes are kept for others (26.05). Nothing is random but the demo's seeds.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from benchmarks.chain_goodput import TRACE, WARM_S, month_cluster
from benchmarks.sim_common import machine, table
from mirage.domain import HANDOVER_S
from mirage.provision.chains.run import POLL_S, USER, Scenario, busy_cluster
from slurm_sim import JobRecord, JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

SOON_S = 900
"""A successor that would start within this time is not queued."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """When a successor enters the queue."""

    ahead: int
    """Successors in the queue at most."""
    after_s: int | None = None
    """The running link has run for so long; None: it has ended."""
    apart_s: int | None = None
    """So long after the last one was queued; None: only as `after_s` says."""
    is_by_limit: bool = False
    """`apart_s` is for links of the full limit; after a shorter one it is that part shorter."""


RULES = {
    "reactive": Rule(ahead=1),
    "after 12": Rule(ahead=1, after_s=12 * HOUR_S),
    "ahead 3": Rule(ahead=3, apart_s=20 * HOUR_S),
    "by limit": Rule(ahead=3, apart_s=20 * HOUR_S, is_by_limit=True),
}
Make = Callable[[Scenario], Simulator]


@dataclass
class Chain:
    """The chain's jobs, on a simulated cluster."""

    simulator: Simulator
    scenario: Scenario
    rule: Rule
    queued: list[int] = field(default_factory=list)
    links: list[tuple[int, int]] = field(default_factory=list)
    """(job, start), in order."""
    ended_s: dict[int, int] = field(default_factory=dict)
    limits_s: list[int] = field(default_factory=list)
    """That the links got."""
    cancels: list[tuple[int, int]] = field(default_factory=list)
    """(when, job): predecessors that save."""
    last_s: int = 0

    def __post_init__(self) -> None:
        self.simulator.on_start.append(self._started)
        self.simulator.on_end.append(self._over)

    def _started(self, job: JobRecord) -> None:
        if job.user != USER:
            return
        start_s = self.simulator.now_s
        self.queued.remove(job.job_id)
        self.limits_s.append(job.time_limit_s or 0)
        if self.links and self.links[-1][0] not in self.ended_s:
            self.cancels.append((start_s + HANDOVER_S, self.links[-1][0]))
        self.links.append((job.job_id, start_s))

    def _over(self, job: JobRecord) -> None:
        if job.user == USER:
            self.ended_s[job.job_id] = self.simulator.now_s

    def submit(self) -> None:
        self.queued.append(self._submit(self.simulator))
        self.last_s = self.simulator.now_s

    def _submit(self, simulator: Simulator) -> int:
        limit_s, least_s = self.scenario.limit_s, self.scenario.time_min_s
        return simulator.submit(
            JobSpec(self.scenario.link_nodes, limit_s, user=USER, time_min_s=least_s)
        )

    def would_start_at_once(self) -> bool:
        fork = self.simulator.fork()
        return fork.run_until_start(self._submit(fork), fork.now_s + SOON_S) is not None

    def run(self, end_s: int) -> None:
        self.submit()
        while self.simulator.now_s < end_s:
            self._pass_time(self.simulator.now_s + POLL_S)
            if self.links and self._wants_one():
                self.submit()

    def _pass_time(self, until_s: int) -> None:
        while self.cancels and min(self.cancels)[0] <= until_s:
            due_s, job = min(self.cancels)
            self.cancels.remove((due_s, job))
            self.simulator.run_until(max(due_s, self.simulator.now_s))
            if job not in self.ended_s:
                self.simulator.cancel(job)
        self.simulator.run_until(until_s)

    def _wants_one(self) -> bool:
        now_s, (job, start_s) = self.simulator.now_s, self.links[-1]
        if job in self.ended_s and not self.queued:
            return True
        if job in self.ended_s or len(self.queued) >= self.rule.ahead:
            return False
        if self.rule.apart_s is not None:
            part = self.limits_s[-1] / self.scenario.limit_s if self.rule.is_by_limit else 1
            wants = now_s - self.last_s >= part * self.rule.apart_s
        else:
            wants = self.rule.after_s is not None and now_s - start_s >= self.rule.after_s
        left_s = start_s + self.limits_s[-1] - now_s
        return wants and not (not self.queued and left_s > SOON_S and self.would_start_at_once())

    def figures(self) -> dict[str, float]:
        """Shares of the wall clock since the first start."""
        now_s = self.simulator.now_s
        first_s = reached_s = self.links[0][1]
        covered_s = held_s = 0
        for job, start_s in self.links:
            end_s = self.ended_s.get(job, now_s)
            covered_s += max(0, end_s - max(start_s, reached_s))
            reached_s = max(reached_s, end_s)
            held_s += end_s - start_s
        wall_s, handovers = now_s - first_s, len(self.links) - 1
        short = sum(limit_s < self.scenario.limit_s for limit_s in self.limits_s)
        return {
            "goodput": round((covered_s - HANDOVER_S * handovers) / wall_s, 4),
            "interrupted": round(1 - covered_s / wall_s, 4),
            "held_twice": round((held_s - covered_s) / wall_s, 4),
            "handovers": handovers,
            "shortened": short,
        }


def backgrounds(args: argparse.Namespace) -> Iterator[tuple[str, Scenario, Make]]:
    base = Scenario(chains=1, lasts_s=28 * DAY_S)
    for month in filter(None, args.months.split(",")):
        scenario = replace(base, warm_up_s=WARM_S)
        yield month, scenario, lambda it, of=month: month_cluster(args.trace, of, it)
    for seed in filter(None, args.seeds.split(",")):
        yield f"demo {seed}", replace(base, seed=int(seed)), busy_cluster


def variants(least_h: list[int]) -> Iterator[tuple[str, int | None, bool]]:
    """Name, --time-min in seconds, whether Slurm extends it."""
    yield "full limit", None, False
    for hours in least_h:
        yield f"{hours} h exact", hours * HOUR_S, False
        yield f"{hours} h extended", hours * HOUR_S, True


def case(made: Simulator, scenario: Scenario, rule: Rule) -> dict[str, float]:
    """Of one chain, submitted as the warm-up ends."""
    chain = Chain(made, scenario, rule)
    chain.run(scenario.end_s)
    return chain.figures()


def summary(rows: list[dict[str, Any]]) -> str:
    """Means over all backgrounds and sizes."""
    lines = []
    for rule in dict.fromkeys(row["rule"] for row in rows):
        for variant in dict.fromkeys(row["time_min"] for row in rows):
            of = [row for row in rows if (row["rule"], row["time_min"]) == (rule, variant)]
            mean = {name: sum(row[name] for row in of) / len(of) for name in of[0] if name in SHOWN}
            worst = min(row["goodput"] for row in of)
            lines.append(
                [
                    rule,
                    variant,
                    f"{100 * mean['goodput']:.1f}",
                    f"{100 * worst:.1f}",
                    f"{100 * mean['interrupted']:.1f}",
                    f"{100 * mean['held_twice']:.2f}",
                    f"{mean['handovers']:.1f}",
                    f"{mean['shortened']:.1f}",
                ]
            )
    return table(HEADER, lines)


SHOWN = ("goodput", "interrupted", "held_twice", "handovers", "shortened")
HEADER = (
    *("rule", "--time-min", "goodput %", "worst", "interrupted %", "held twice %", "handovers"),
    "links shortened",
)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--trace", type=Path, default=TRACE, help="recorded jobs, CSV")
    parser.add_argument("--months", default="2023-01,2023-02", help="of the trace")
    parser.add_argument("--seeds", default="1,2", help="of the demo's other users")
    parser.add_argument("--nodes", default="1,2,8,16", help="of a link")
    parser.add_argument("--least", default="12,24", help="--time-min, hours")
    parser.add_argument("--rules", default=",".join(RULES), help="of those above")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    begin, rows = time.process_time(), list[dict[str, Any]]()
    least_h = [int(hours) for hours in args.least.split(",")]
    rules = {name: RULES[name] for name in args.rules.split(",")}
    for name, scenario, make in backgrounds(args):
        for extends in (False, True):
            warm = make(replace(scenario, time_min_extends=extends))
            warm.run_until(scenario.warm_up_s)
            for nodes in map(int, args.nodes.split(",")):
                for variant, least_s, extended in variants(least_h):
                    if extended is not extends:
                        continue
                    of = replace(scenario, link_nodes=nodes, time_min_s=least_s)
                    for rule_name, rule in rules.items():
                        row = {"background": name, "nodes": nodes, "rule": rule_name}
                        row |= {"time_min": variant} | case(warm.fork(), of, rule)
                        rows.append(row)
        print(summary(rows), flush=True)
        result = {"cpu_s": round(time.process_time() - begin), "machine": machine(), "rows": rows}
        args.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
