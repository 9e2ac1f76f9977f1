"""A small busy cluster, so that the environments work without a trace."""

from __future__ import annotations

import numpy as np

from mirage.provision.env.episode import Start, Task
from mirage.provision.env.starts import equal_pair, starts
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, Params, whole_nodes
from slurm_sim.jobs import JobSpec
from slurm_sim.seconds import DAY_S, HOUR_S

NODES = 16


def busy_jobs(seed: int, days: float, nodes: int = NODES, load: float = 0.95) -> list[JobSpec]:
    """Jobs of 1 to 4 nodes with limits of 2 to 24 hours, as many as keep `load` of the nodes busy
    on average.
    """
    rng = np.random.default_rng(seed)
    mean_node_s = 2.0 * 0.6 * 10 * HOUR_S
    count = int(days * DAY_S * nodes * load / mean_node_s)
    submit_s = np.sort(rng.integers(0, int(days * DAY_S), count))
    size = rng.choice([1, 2, 4], count, p=[0.5, 0.35, 0.15])
    limit_s = rng.choice([2, 8, 24], count, p=[0.35, 0.4, 0.25]) * HOUR_S
    runtime_s = np.ceil(limit_s * rng.uniform(0.2, 1.0, count)).astype(int)
    return [
        JobSpec(int(wide), int(limit), int(run), user=f"u{number % 7}", submit_s=int(at))
        for number, (wide, limit, run, at) in enumerate(
            zip(size, limit_s, runtime_s, submit_s, strict=True)
        )
    ]


def busy_cluster() -> ClusterConfig:
    """16 whole nodes, Slurm's defaults, a plan of two days."""
    return whole_nodes(NODES, Params(bf_window_s=2 * DAY_S, bf_cycle_us=0))


def example_starts(seed: int = 0, count: int = 8, task: Task | None = None) -> list[Start]:
    """Starts 7 hours apart on the busy cluster, after two days of warming up; pairs of 24 hours on
    2 nodes.
    """
    begins_s = [2 * DAY_S + 7 * HOUR_S * number for number in range(count)]
    days = begins_s[-1] / DAY_S + 4
    simulation = Simulator(busy_cluster(), busy_jobs(seed, days))
    return starts(simulation, equal_pair(2, 24 * HOUR_S), begins_s, task)
