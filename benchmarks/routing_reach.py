"""How far routing to partitions can reach, by what is known: the bound of `mirage route`'s agents.

    python -m benchmarks.routing_reach TRACE|bursts [--flavors F] [--windows 10] [--samples 6] [--rows R] --out JSON

At each arrival every set of partitions is carried out in forks of the simulated cluster, and the one
with the least summed completion time is taken: one-step policy improvement over `-p A,B`, without
any network. Rows:

- limits: run times are drawn from those of the history's first part with a like limit, longer than
  what a job has run; the next 30 arrivals are drawn from there too. That is all that slurmctld knows.
- run times: those of the jobs that are there and of the arriving one are the true ones.
- everything: the next 40 arrivals are the true ones too, so one fork a choice is enough.

Three rows choose the server within the default rule's partition, where the job starts now: the one
with the fewest free GPUs, the one with the most, and the best one with everything known.

Streams are of disjoint windows of the history's last part, or with `--first` of its first, by which
rules may be chosen; the interval draws windows. Each row is kept as soon as it is done.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np

from mirage.figures.resample import ratio_interval
from mirage.routing import stream
from mirage.routing.arrivals import (
    ArrivalHistory,
    StreamJob,
    draw_streams,
    fitting,
    read_history,
)
from mirage.routing.flavors import PartitionKind, load_partitions
from slurm_sim.seconds import HOUR_S

AHEAD, ALIKE = 30, 500
"""Arrivals of a drawn future, and jobs on either side that have a like limit."""
FUTURES = 60


class RunTimes:
    """The law of run times by limit."""

    def __init__(self, history: ArrivalHistory, random: np.random.Generator) -> None:
        order = np.argsort(history.limit_s, kind="stable")
        self._limit_s = history.limit_s[order]
        self._share = (history.runtime_s / history.limit_s)[order]
        self._random = random

    def draw(self, job: StreamJob, ran_s: int) -> int:
        """A run time of more than ``ran_s``."""
        limit_s = job.demand.limit_s or 0
        place = int(np.searchsorted(self._limit_s, limit_s))
        alike_s = self._share[max(place - ALIKE, 0) : place + ALIKE] * limit_s
        longer_s = alike_s[alike_s > ran_s]
        if not len(longer_s):
            return ran_s + 1 + int(self._random.uniform(0, max(limit_s - ran_s, 1)))
        return max(1, int(self._random.choice(longer_s)))


class BurstRunTimes:
    """The law of `arrivals.bursts`."""

    def __init__(self, random: np.random.Generator) -> None:
        self._random = random

    def draw(self, job: StreamJob, ran_s: int) -> int:
        """A run time of more than ``ran_s``."""
        limit_s = job.demand.limit_s or 0
        low_s = max(ran_s, 0.05 * limit_s)
        return 1 + int(self._random.uniform(low_s, max(limit_s, low_s)))


@dataclass(frozen=True, kw_only=True)
class Belief:
    """What a rule believes of run times and arrivals; None: it knows them."""

    run_times: RunTimes | BurstRunTimes | None
    futures: Sequence[list[StreamJob]] | None
    samples: int
    random: np.random.Generator

    def ahead(self, under_way: stream.Stream, number: int) -> stream.Stream:
        """A copy with one future."""
        if self.run_times is not None:
            under_way = under_way.with_runtimes(self.run_times.draw)
        return under_way.ahead(self._coming(under_way.jobs, number))

    def job(self, job: StreamJob) -> StreamJob:
        """The arriving job as it is in one future."""
        times = self.run_times
        return job if times is None else replace(job, runtime_s=times.draw(job, 0))

    def _coming(self, jobs: Sequence[StreamJob], number: int) -> list[StreamJob]:
        if self.futures is None:
            return list(jobs[number + 1 : number + 1 + stream.SEEN_AHEAD])
        future = self.futures[int(self.random.integers(len(self.futures)))]
        first = int(self.random.integers(len(future) - AHEAD - 1))
        shift_s = jobs[number].submit_s - future[first].submit_s
        coming = future[first + 1 : first + 1 + AHEAD]
        return [replace(job, submit_s=job.submit_s + shift_s) for job in coming]


def route(
    kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob], belief: Belief
) -> stream.StreamOutcome:
    """A stream, each job by the choice that is best on the mean of the futures."""
    under_way = stream.Stream(kinds, jobs)
    for number, job in enumerate(jobs):
        under_way.arrive(job)
        names = [kind.name for kind in fitting(kinds, job.demand)]
        choices = [
            ",".join(chosen)
            for many in range(len(names), 0, -1)
            for chosen in combinations(names, many)
        ]
        best = 0
        if len(choices) > 1:
            totals = [_totals(under_way, number, choices, belief) for _ in range(belief.samples)]
            best = int(np.argmin(np.mean(totals, axis=0)))
        under_way.submit(job, choices[best])
    return under_way.finish()


def _totals(
    under_way: stream.Stream, number: int, choices: Sequence[str], belief: Belief
) -> list[int]:
    ahead, job = belief.ahead(under_way, number), belief.job(under_way.jobs[number])
    found = []
    for partitions in choices:
        tried = ahead.fork()
        tried.submit(job, partitions)
        found.append(tried.total_s())
    return found


def servers_of(asked: stream.Arriving) -> tuple[str, list[str]]:
    """Where the default rule sends the job, and the servers in which it would start now, one of each
    number of free GPUs, from the fewest.
    """
    names = stream.room_rule(asked)
    first = names.split(",")[0]
    state = next(state for state in asked.states if state.kind.name == first)
    flavor = state.kind.flavor_of(asked.demand)
    if flavor is None or not state.may_start(flavor):
        return names, []
    by_free = {state.servers[n].free[0]: state.servers[n].name for n in state.places(flavor)}
    return names, [by_free[free] for free in sorted(by_free)]


def route_to_server(
    kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob], which: int
) -> stream.StreamOutcome:
    """A stream by the default rule, with the server chosen: 0 the tightest, -1 the emptiest."""
    under_way = stream.Stream(kinds, jobs)
    for job in jobs:
        names, servers = servers_of(under_way.arrive(job))
        if servers:
            server = servers[which]
            under_way.submit(job, server.rpartition("-")[0], server=server)
        else:
            under_way.submit(job, names)
    return under_way.finish()


def route_knowing_servers(
    kinds: Sequence[PartitionKind], jobs: Sequence[StreamJob]
) -> stream.StreamOutcome:
    """A stream by the default rule, with the best of Slurm's and each other server in hindsight."""
    under_way = stream.Stream(kinds, jobs)
    for number, job in enumerate(jobs):
        names, servers = servers_of(under_way.arrive(job))
        choices = [(names, "")]
        if len(servers) > 1:
            choices += [(server.rpartition("-")[0], server) for server in servers]
        best = choices[0]
        if len(choices) > 1:
            ahead = under_way.ahead(jobs[number + 1 : number + 1 + stream.SEEN_AHEAD])

            def total_s(
                choice: tuple[str, str], ahead: stream.Stream = ahead, job: StreamJob = job
            ) -> int:
                tried = ahead.fork()
                tried.submit(job, choice[0], server=choice[1])
                return tried.total_s()

            best = min(choices, key=total_s)
        under_way.submit(job, best[0], server=best[1])
    return under_way.finish()


Router = Callable[[Sequence[PartitionKind], Sequence[StreamJob]], stream.StreamOutcome]


def rows_of(
    kinds: Sequence[PartitionKind], first: ArrivalHistory | None, samples: int, seed: int
) -> dict[str, Router]:
    """By name. ``first``: the history's first part; None: bursts."""
    random = np.random.default_rng([seed, 1])
    times = RunTimes(first, random) if first else BurstRunTimes(random)
    futures = draw_streams(kinds, first, FUTURES, random).jobs

    def by(
        run_times: RunTimes | BurstRunTimes | None, coming: Sequence[list[StreamJob]] | None
    ) -> Router:
        many = samples if coming is not None else 1
        belief = Belief(run_times=run_times, futures=coming, samples=many, random=random)
        return lambda kinds, jobs: route(kinds, jobs, belief)

    return {
        "-p A,B": lambda kinds, jobs: stream.route_stream(kinds, jobs, stream.everywhere),
        "default rule": lambda kinds, jobs: stream.route_stream(kinds, jobs, stream.room_rule),
        "tightest server": lambda kinds, jobs: route_to_server(kinds, jobs, 0),
        "emptiest server": lambda kinds, jobs: route_to_server(kinds, jobs, -1),
        "everything, servers": route_knowing_servers,
        "everything": by(None, None),
        "limits": by(times, futures),
        "run times": by(None, futures),
    }


def figures(
    outcomes: Sequence[stream.StreamOutcome], base: Sequence[stream.StreamOutcome]
) -> dict[str, Any]:
    """Mean completion, and ratios to ``base`` with their intervals."""

    def ratio(value: Callable[[stream.StreamOutcome], float]) -> list[float]:
        mine, theirs = (np.array([value(each) for each in one]) for one in (outcomes, base))
        return [float(mine.sum() / theirs.sum()), *ratio_interval(mine, theirs)]

    return {
        "windows": len(outcomes),
        "completion_mean_h": float(np.mean([np.mean(o.completion_s) for o in outcomes])) / HOUR_S,
        "completion": ratio(lambda outcome: float(np.mean(outcome.completion_s))),
        "energy": ratio(lambda outcome: outcome.energy_kwh),
        "utilization": ratio(lambda outcome: outcome.utilization),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("trace", help="a job history, or: bursts")
    parser.add_argument("--flavors", type=Path)
    parser.add_argument("--windows", type=int, default=10)
    parser.add_argument("--samples", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", action="store_true", help="streams of the history's first part")
    parser.add_argument("--rows", nargs="+", help="only these, beside -p A,B")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    kinds = load_partitions(args.flavors)
    history = None if args.trace == "bursts" else read_history(Path(args.trace))
    first = history.part(test=False) if history else None
    chosen = history.part(test=not args.first) if history else None
    random = np.random.default_rng([args.seed, 2])
    streams = draw_streams(kinds, chosen, args.windows, random).jobs
    plan = {
        "windows": args.windows,
        "samples": args.samples,
        "seed": args.seed,
        "first": args.first,
    }
    results: dict[str, Any] = {"trace": Path(args.trace).name, "plan": plan, "rows": {}}
    base: list[stream.StreamOutcome] = []
    for name, router in rows_of(kinds, first, args.samples, args.seed).items():
        if args.rows and name not in (*args.rows, "-p A,B"):
            continue
        begun_s = time.process_time()
        outcomes = [router(kinds, jobs) for jobs in streams]
        base = base or outcomes
        results["rows"][name] = row = figures(outcomes, base)
        row["cpu_s"] = round(time.process_time() - begun_s, 1)
        args.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
        print(name, row["completion"], flush=True)


if __name__ == "__main__":
    main()
