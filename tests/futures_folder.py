"""A folder of futures, learnt from a generated history of eight days."""

from dataclasses import replace
from pathlib import Path

from mirage.models.folder import write_folder
from mirage.models.recipe import Recipe
from mirage.provision.learn.futures import train_futures
from mirage.provision.learn.joblog import JobLog, log_of
from slurm_sim.config import ClusterConfig
from slurm_sim.seconds import DAY_S
from slurm_sim.workload import generate, load_model


def history(cluster: ClusterConfig) -> JobLog:
    """Jobs of the cluster's first partition."""
    trace = generate(load_model("ls6_a100"), 1, 8 * DAY_S)
    jobs = trace.jobs.assign(partition=cluster.partitions[0].name)
    return log_of(replace(trace, jobs=jobs, _cache={}), cluster)


def write_futures(folder: Path, cluster: ClusterConfig) -> None:
    futures = train_futures(history(cluster), cluster, 0, 6 * DAY_S)
    write_folder(folder, futures, Recipe(system="provision", method=futures.name, seed=0), "")
