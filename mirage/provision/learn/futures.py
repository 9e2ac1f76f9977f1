"""What the futures of `mirage when` are drawn from: how long jobs run, and who will come. Learnt from
a job history; no labelled episodes are needed.

A folder of method `futures` has both as arrays, and the cluster's description to simulate it.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mirage.errors import InputError
from mirage.models.recipe import RECIPE
from mirage.provision.learn.arrays import read_arrays, write_arrays
from mirage.provision.learn.arrivals import Arrivals
from mirage.provision.learn.episode import Ints
from mirage.provision.learn.runtimes import CLASSES, Runtimes, fit_runtimes
from mirage.provision.learn.times import iso
from slurm_sim.clusters.toml import read_toml, write_toml
from slurm_sim.config import ClusterConfig
from slurm_sim.errors import InvalidCluster
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

if TYPE_CHECKING:
    from mirage.provision.learn.joblog import JobLog

NAME = "futures"
ARRAYS, WORDS, CLUSTER = "futures.safetensors", "names.json", "cluster.toml"


@dataclass(frozen=True)
class Futures:
    """What may come on this cluster."""

    cluster: ClusterConfig
    runtimes: Runtimes
    arrivals: Arrivals
    partitions: tuple[str, ...]
    """Names of the arrivals' partitions."""
    name: str = NAME

    def write(self, folder: Path) -> None:
        """Arrays, names and the cluster, into an existing folder."""
        arrays = asdict(self.arrivals) | {
            "ratios": self.runtimes.ratios,
            "first": self.runtimes.first,
        }
        arrays["alike"] = np.array([self.runtimes.alike])
        write_arrays(folder / ARRAYS, arrays)
        words = {"partitions": list(self.partitions), "users": dict(self.runtimes.users)}
        (folder / WORDS).write_text(json.dumps(words) + "\n", encoding="utf-8")
        (folder / CLUSTER).write_text(write_toml(self.cluster), encoding="utf-8")


def train_futures(log: JobLog, cluster: ClusterConfig, begin_s: int, end_s: int) -> Futures:
    """From the jobs submitted in [begin_s, end_s): the training part of a cluster's history (Unix
    seconds).

    When nodes fail and come back (`node_changes`) is left out: nobody knows that beforehand.

    Raises InputError if no job of it ran.
    """
    part = log.between(begin_s, end_s - 1)
    limit_s, runtime_s, nodes = (
        part.column(name) for name in ("timelimit_s", "runtime_s", "nodes")
    )
    users = [str(user) for user in part.columns["user"]]
    ran = np.flatnonzero((runtime_s > 0) & (limit_s > 0))
    if not len(ran):
        part_s = f"from {iso(begin_s)} to {iso(end_s)}"
        raise InputError(
            f"{log.source}: no job with a time limit ran {part_s}; give a longer part."
        )
    runtimes = fit_runtimes(
        [users[row] for row in ran],
        nodes[ran],
        limit_s[ran],
        runtime_s[ran],
        part.column("submit_s")[ran],
    )
    partitions, partition = np.unique(part.columns["partition"].astype(str), return_inverse=True)
    known = replace(cluster, node_changes=())
    return Futures(
        known, runtimes, _arrivals(part, users, partition, end_s), tuple(map(str, partitions))
    )


def _arrivals(log: JobLog, users: list[str], partition: Ints, end_s: int) -> Arrivals:
    submit_s, eligible_s, cancel_s = (
        log.column(name) for name in ("submit_s", "eligible_s", "cancel_s")
    )
    at_s = np.maximum(submit_s, eligible_s)
    columns = {
        "at_s": at_s,
        "nodes": log.column("nodes"),
        "limit_s": log.column("timelimit_s"),
        "runtime_s": log.column("runtime_s"),
        "cancel_after_s": np.where(cancel_s >= 0, np.maximum(cancel_s - at_s, 0), -1),
        "user": np.unique(users, return_inverse=True)[1],
        "partition": partition,
    }
    order = np.argsort(at_s, kind="stable")
    order = order[
        at_s[order] < end_s
    ]  # those held back for longer would make days of their own, empty ones before
    return Arrivals(
        **{name: np.asarray(column)[order].astype(np.int64) for name, column in columns.items()}
    )


def read(folder: Path) -> Futures:
    """What `Futures.write` wrote; `folder.check_folder` checks the folder first. Raises InputError."""
    try:
        arrays, words = read_arrays(folder / ARRAYS), parse_json(read_text(folder / WORDS))
        arrivals = Arrivals(**{item.name: arrays[item.name] for item in fields(Arrivals)})
        users, partitions = dict(words["users"]), tuple(words["partitions"])
        runtimes = Runtimes(arrays["ratios"], arrays["first"], users, float(arrays["alike"][0]))
        futures = Futures(read_toml(folder / CLUSTER).cluster, runtimes, arrivals, partitions)
    except (OSError, ValueError, KeyError, TypeError, IndexError, InvalidCluster) as error:
        raise InputError(
            f"{folder}: not what is learnt for futures ({error}); train it again."
        ) from error
    if not _fits(futures):
        raise InputError(
            f"{folder}: the arrays of the futures do not fit each other; train it again."
        )
    return futures


def _fits(futures: Futures) -> bool:
    """Whether every index is inside, so that no draw can fail."""
    runtimes, arrivals = futures.runtimes, futures.arrivals
    columns: list[Any] = [getattr(arrivals, item.name) for item in fields(Arrivals)]
    groups = len(runtimes.first) - 1
    return (
        all(
            column.shape == (len(arrivals.at_s),) and column.dtype == np.int64 for column in columns
        )
        and runtimes.first.dtype == np.int64
        and runtimes.first.ndim == runtimes.ratios.ndim == 1
        and bool((np.diff(arrivals.at_s) >= 0).all())
        and bool(((arrivals.partition >= 0) & (arrivals.partition < len(futures.partitions))).all())
        and groups >= CLASSES
        and bool((np.diff(runtimes.first) >= 0).all())
        and (runtimes.first[0], runtimes.first[-1]) == (0, len(runtimes.ratios))
        and all(
            isinstance(group, int) and CLASSES <= group < groups
            for group in runtimes.users.values()
        )
    )


def folder_in(models: Path) -> Path:
    """The folder of futures among model folders, or this one itself. Raises InputError."""
    for folder in (models / NAME, models):
        if (folder / RECIPE).is_file():
            return folder
    raise InputError(
        f"--models {models}: no folder of futures there; train it (mirage train --method {NAME})."
    )
