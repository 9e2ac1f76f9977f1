"""A small site for the tests of sampling: a contended cluster of 12 nodes and what it logged in
five weeks.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import pandas as pd

import slurm_sim
from mirage.provision.learn.background import Background
from mirage.provision.learn.joblog import read_log
from slurm_sim.config import ClusterConfig, Params, Partition, make_nodes
from slurm_sim.traces import Trace, make_trace
from tests.small_workload import Workload

DAY_S, HOUR_S = 86400, 3600
EPOCH_S = 1_600_041_600
"""A Monday, 00:00 UTC."""
DAYS = 35


@cache
def cluster() -> ClusterConfig:
    nodes = make_nodes(12)
    names = tuple(node.name for node in nodes)
    return ClusterConfig(
        nodes,
        (Partition("gpu", names, max_time_s=DAY_S),),
        Params(bf_window_s=2 * DAY_S),
        name="toy",
    )


@cache
def frame() -> pd.DataFrame:
    """The log: simulated, so that it is one of this cluster."""
    jobs = [
        replace(job, submit_s=EPOCH_S + (job.submit_s or 0))
        for job in Workload(12, load=0.8, days=DAYS, users=30).jobs(seed=3)
    ]
    simulation = slurm_sim.Simulator(cluster(), jobs, EPOCH_S)
    simulation.run()
    found = simulation.results()
    return pd.DataFrame(
        {
            "job_id": found.job_id.astype(str),
            "user": [job.user for job in jobs],
            "partition": "gpu",
            "submit": found.submit_s,
            "start": found.start_s,
            "end": found.end_s,
            "timelimit_s": [job.time_limit_s for job in jobs],
            "nodes": found.nodes,
            "gpus": 0,
            "cpus": pd.array([pd.NA] * len(jobs), dtype="Int64"),
            "state": np.where(found.end_s > 0, "COMPLETED", "PENDING"),
        }
    )


def trace(**columns: object) -> Trace:
    """With these columns instead."""
    return make_trace(frame().assign(**columns), "toy.csv")


@cache
def background() -> Background:
    return Background(cluster(), read_log(trace(), cluster()))


@cache
def fair_background() -> Background:
    """The same where fair-share orders the queue."""
    params = replace(cluster().params, priority_weight_fairshare=5000)
    return replace(background(), cluster=replace(cluster(), params=params))
