"""A service that is scaled from 0 to 4 replicas by its load against four that are held all the time.

usage: python -m benchmarks.service_scale [--backgrounds '2023-02,demo 1'] [--seeds 1,2]
           [--trace CSV] [--out benchmarks/service_scale.json]

Backgrounds as in `benchmarks.service_chains`, for 14 days. Requests come as users do: by day four times
as many as in the evening, none for most nights, in bursts (a seed draws them). A replica is one job of
one node, takes 8 requests at once, and is ready 2 minutes after its start; its queue wait is the
simulator's. The rule is the product's (`mirage/user/scaler.py`, quiet for 10 minutes), and looks once
a minute. Arms: `0..4`, `1..4`, `held` (4 that are ready
all the time, without a wait or a handover).

`waits`: times at which somebody asked and no replica was ready. `first_s`: until the first answer then,
median, 90 % and greatest. `short`: share of the requests' time beyond what the ready replicas take, %.
`node_h`: all that were held.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks import service_chains
from benchmarks.chain_goodput import TRACE
from mirage.chain.service import ScaleRule
from mirage.user.scaler import kept_needs, need_of, wanted_replicas
from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

LASTS_S, STEP_S, START_UP_S, LIMIT_S = 14 * DAY_S, 60, 120, 48 * HOUR_S
RULES = {
    "0..4": ScaleRule(least=0, most=4),
    "1..4": ScaleRule(least=1, most=4),
    "held": ScaleRule(least=4, most=4),
}
REQUESTS_A_DAY, LASTS_MEAN_S = 2500, 120
BY_HOUR = np.array([0, 0, 0, 0, 0, 0, 0, 1, 3, 4, 4, 4, 3, 4, 4, 4, 3, 2, 1, 1, 1, 1, 0, 0])


def open_requests(seed: int) -> np.ndarray[Any, np.dtype[np.float64]]:
    """How many are open at each step, if all are answered at once."""
    random = np.random.default_rng(seed)
    steps = LASTS_S // STEP_S
    hours = (np.arange(steps) * STEP_S // HOUR_S) % 24
    weekday = (np.arange(steps) * STEP_S // DAY_S) % 7 < 5
    bursts = random.gamma(0.5, 2.0, steps // 30 + 1).repeat(30)[:steps]
    rate = BY_HOUR[hours] / BY_HOUR.sum() * (REQUESTS_A_DAY * STEP_S / HOUR_S) * bursts
    came = random.poisson(rate * np.where(weekday, 1.0, 0.1))
    stays = max(1, LASTS_MEAN_S // STEP_S)
    return np.convolve(came, np.ones(stays))[:steps]


class Replicas:
    """One job each on the simulated cluster."""

    def __init__(self, simulator: Simulator) -> None:
        self._simulator, self._jobs = simulator, list[int]()
        self.held_s = 0

    def ready(self) -> int:
        now_s = self._simulator.now_s
        starts = [self._simulator.job(job).start_s for job in self._jobs]
        return sum(start is not None and now_s - start >= START_UP_S for start in starts)

    def count(self) -> int:
        """Those that queue or run; one at its limit is replaced by the rule."""
        ended = [job for job in self._jobs if self._simulator.job(job).end_s is not None]
        for job in ended:
            self._note(job)
        return len(self._jobs)

    def set(self, wanted: int) -> None:
        """The youngest go first: they may still queue."""
        while len(self._jobs) > wanted:
            job = self._jobs[-1]
            self._simulator.cancel(job)
            self._note(job)
        while len(self._jobs) < wanted:
            self._jobs.append(self._simulator.submit(JobSpec(1, LIMIT_S, None, user="service")))

    def _note(self, job: int) -> None:
        self._jobs.remove(job)
        record = self._simulator.job(job)
        if record.start_s is not None:
            self.held_s += (record.end_s or self._simulator.now_s) - record.start_s


def run(simulator: Simulator, rule: ScaleRule, load: Sequence[float]) -> dict[str, Any]:
    replicas, needs = Replicas(simulator), list[tuple[int, int]]()
    first_s: list[int] = []
    asleep_since: int | None = None
    served = missed = 0.0
    for requests in load:
        now_s = simulator.now_s
        ready = rule.most if rule.is_fixed else replicas.ready()
        if requests and not ready and asleep_since is None:
            asleep_since = now_s
        if ready and asleep_since is not None:
            first_s.append(now_s - asleep_since)
            asleep_since = None
        served += requests
        missed += max(0.0, requests - ready * rule.target)
        needs = kept_needs(
            [*needs, (now_s, need_of(rule, requests, int(requests > 0)))], rule.quiet_s
        )
        if not rule.is_fixed:
            replicas.set(wanted_replicas(rule, needs, replicas.count()))
        simulator.run_until(now_s + STEP_S)
    replicas.set(0)
    held_s = rule.most * LASTS_S if rule.is_fixed else replicas.held_s
    return {
        "waits": len(first_s),
        "first_s": [int(each) for each in np.quantile(first_s, [0.5, 0.9, 1])] if first_s else None,
        "short": round(100 * missed / served, 2),
        "node_h": round(held_s / HOUR_S, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backgrounds", default="2022-11,2023-02,demo 1,demo 2")
    parser.add_argument("--seeds", default="1,2")
    parser.add_argument("--trace", type=Path, default=TRACE)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    rows = []
    service_chains.LONG = replace(service_chains.LONG, chains=1, lasts_s=LASTS_S)
    for name in args.backgrounds.split(","):
        on = service_chains.background(name, args.trace, 1, None)
        on.simulator.run_until(on.scenario.warm_up_s)
        for seed in map(int, args.seeds.split(",")):
            load = open_requests(seed).tolist()
            for arm, rule in RULES.items():
                begun_s = time.process_time()
                row = {"background": name, "seed": seed, "arm": arm}
                row |= run(on.simulator.fork(), rule, load)
                rows.append({**row, "cpu_s": round(time.process_time() - begun_s, 1)})
                print(json.dumps(rows[-1]), flush=True)
                args.out.write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
