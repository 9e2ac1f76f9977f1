"""A synthetic workload: other users who keep a small GPU cluster contended. A seed fixes it."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from dataclasses import dataclass

from slurm_sim.jobs import JobSpec

HOUR_S = 3600
DAY_S = 24 * HOUR_S


@dataclass(frozen=True)
class Workload:
    """Who else uses the cluster.

    Arrivals are a Poisson process that is busier by day than by night; sizes and limits are what
    GPU clusters see (most jobs on one node, most node-hours in long ones); most jobs end well
    before their limit.
    """

    nodes: int
    load: float
    """Node-hours asked for by node-hours there are; above 1 the queue grows."""
    days: float
    users: int = 20
    sizes: tuple[tuple[int, float], ...] = ((1, 0.6), (2, 0.2), (4, 0.15), (8, 0.05))
    """(nodes, share of jobs)."""
    limits_h: tuple[tuple[int, float], ...] = ((1, 0.4), (3, 0.3), (8, 0.2), (24, 0.1))
    """(time limit in hours, share of jobs)."""
    reaches_limit: float = 0.25
    """Share of jobs that run into their limit; the others end anywhere before it."""

    def jobs(self, seed: int) -> Iterator[JobSpec]:
        """The jobs, by submission time in seconds from 0."""
        rng = random.Random(seed)
        rate = self.load * self.nodes / self._mean_node_s()
        now_s = 0.0
        while (now_s := now_s + rng.expovariate(2 * rate)) < self.days * DAY_S:
            if rng.random() < _daily(now_s) / 2:  # thinning: candidates come at twice the mean rate
                yield self._job(rng, int(now_s))

    def _job(self, rng: random.Random, submit_s: int) -> JobSpec:
        nodes = rng.choices([n for n, _ in self.sizes], [share for _, share in self.sizes])[0]
        limit_s = (
            HOUR_S
            * rng.choices([h for h, _ in self.limits_h], [share for _, share in self.limits_h])[0]
        )
        runtime_s = limit_s if rng.random() < self.reaches_limit else int(limit_s * rng.random())
        user = f"user{rng.randrange(self.users):02d}"
        return JobSpec(
            user=user,
            partition="gpu",
            nodes=nodes,
            time_limit_s=limit_s,
            runtime_s=max(60, runtime_s),
            submit_s=submit_s,
        )

    def _mean_node_s(self) -> float:
        """Mean node-seconds of a job: size and limit are independent."""
        nodes = sum(n * share for n, share in self.sizes)
        limit_s = HOUR_S * sum(h * share for h, share in self.limits_h)
        return nodes * limit_s * (self.reaches_limit + (1 - self.reaches_limit) / 2)


def _daily(now_s: float) -> float:
    """Arrivals by time of day, mean 1: most at 15:00, least at 03:00."""
    return 1 + 0.8 * math.cos(2 * math.pi * (now_s / DAY_S - 15 / 24))
