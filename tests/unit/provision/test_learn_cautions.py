"""What a result hangs on is said: which partition the pairs are in, and whose scheduler the cluster
has.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.provision.learn.cautions import FEW_JOBS, choose_partition, scheduler_cautions
from mirage.provision.learn.joblog import JobLog
from slurm_sim.config import ClusterConfig, Params, Partition, make_nodes


def cluster(*names: str, **more: object) -> ClusterConfig:
    nodes = make_nodes(2)
    there = tuple(node.name for node in nodes)
    return ClusterConfig(nodes, tuple(Partition(name, there) for name in names), **more)  # type: ignore[arg-type]


def log(**jobs: tuple[int, int]) -> JobLog:
    """Partition -> how many jobs, and how long each ran, in seconds; -1: not known."""
    rows = [(name, run_s) for name, (count, run_s) in jobs.items() for _ in range(count)]
    columns = {
        "partition": np.array([name for name, _ in rows]),
        "nodes": np.ones(len(rows), np.int64),
        "runtime_s": np.array([run_s for _, run_s in rows], np.int64),
    }
    return JobLog("t.csv", columns)


def test_the_partition_with_the_load_is_chosen_and_named() -> None:
    history = log(debug=(5000, 60), gpu=(1000, 3600))
    partition, notes = choose_partition(history, cluster("debug", "gpu"), None)
    assert partition == "gpu"
    assert notes == ["note: partition gpu, with 92 % of the history's node-hours (--partition)"]


def test_without_run_times_the_number_of_jobs_counts() -> None:
    assert (
        choose_partition(log(debug=(600, -1), gpu=(700, -1)), cluster("debug", "gpu"), None)[0]
        == "gpu"
    )


def test_a_partition_of_few_jobs_is_warned_of() -> None:
    history = log(debug=(FEW_JOBS - 1, 60), gpu=(1000, 3600))
    partition, notes = choose_partition(history, cluster("debug", "gpu"), "debug")
    assert partition == "debug"
    assert notes == [
        "warning: the history has 499 jobs of partition debug, too few to tell how its queue is; "
        "500 or more would be good"
    ]
    assert choose_partition(history, cluster("debug", "gpu"), "gpu") == ("gpu", [])


def test_one_partition_needs_no_word_and_an_unknown_one_is_refused() -> None:
    assert choose_partition(log(gpu=(1000, 60)), cluster("gpu"), None) == ("gpu", [])
    with pytest.raises(InputError, match="has no partition 'cpu'; it has gpu"):
        choose_partition(log(gpu=(1000, 60)), cluster("gpu"), "cpu")


def test_an_assumed_scheduler_and_priority_basic_are_warned_of() -> None:
    assert scheduler_cautions(cluster("gpu")) == []
    assumed = scheduler_cautions(cluster("gpu", scheduler_is_assumed=True))
    assert "priority/multifactor with age and fair share is assumed" in assumed[0]
    basic = scheduler_cautions(cluster("gpu", params=replace(Params(), priority_multifactor=False)))
    assert "keeps its place in the queue" in basic[0]
