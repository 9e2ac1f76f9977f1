"""Who else uses the cluster: synthetic jobs by a model of Lonestar6's (docs/traces.md). A seed
fixes them.
"""

from __future__ import annotations

from dataclasses import replace

from slurm_sim import ClusterConfig, JobSpec
from slurm_sim.jobfile.jobs import jobs_of
from slurm_sim.jobfile.specs import specs
from slurm_sim.seconds import DAY_S
from slurm_sim.workload import generate, load_model

MODEL = "ls6_a100"


def other_jobs(cluster: ClusterConfig, seed: int, days: float, load: float) -> list[JobSpec]:
    """Jobs by submission time in seconds from 0, all in the cluster's first partition.

    `load` multiplies arrivals: at 1 as many jobs come as in the months that the model was fitted
    to. Jobs with a limit that the partition does not allow are left out.
    """
    partition = cluster.partitions[0]
    longest_s = partition.max_time_s or int(days * DAY_S)
    drawn = specs(
        jobs_of(generate(load_model(MODEL), seed, days * DAY_S, len(cluster.nodes), load))
    )
    return [
        replace(job, partition=partition.name)
        for job in drawn
        if job.time_limit_s is not None and job.time_limit_s <= longest_s
    ]
