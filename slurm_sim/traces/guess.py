"""A cluster as far as a log shows it: for simulating the log's own jobs (`mirage trace infer
--out-cluster`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from slurm_sim.config import (
    ClusterConfig,
    NodeAction,
    NodeChange,
    Params,
    Partition,
    Qos,
    SelectType,
    make_nodes,
)
from slurm_sim.ranges import MOST_NODES
from slurm_sim.traces.capacity import NodeStep
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.inference import Inference
from slurm_sim.traces.table import Trace

ASSUMED = Params(
    priority_weight_age=10_000, priority_weight_fairshare=10_000, priority_weight_job_size=1_000
)
"""The scheduler of a site of which nothing is known: backfill with Slurm's defaults, and
priority/multifactor.

Slurm's own default is priority/basic, but sites that have queues set priority/multifactor with age
and fair share. Under priority/basic a job that waits for a dependency keeps its place in the queue,
so a chain of jobs hardly waits: with that default the figures of `mirage evaluate` would say the
opposite of what the site sees.
"""
WHY_IT_MATTERS = (
    "a job history does not show the scheduler's parameters, and they decide how long a successor"
    " waits; priority/multifactor with age and fair share is assumed"
)


def guessed_cluster(
    trace: Trace, inferred: Inference, site: ClusterConfig | None = None
) -> ClusterConfig:
    """Whole nodes, as many as the log ever needed, of which the last ones are drained while it
    shows fewer.

    It is named after the log's file. Every partition that a job names has all nodes; every QOS has
    the running limit a user. Times are those of the log, Unix seconds. ``site``: whose scheduler's
    parameters, limits and priorities count, for partitions and QOS of the same names; without it
    the parameters are `ASSUMED` and marked so. Raises TraceError if the log does not show any
    nodes, or more than the simulator takes.
    """
    if not inferred.nodes:
        raise TraceError(
            trace.source, "jobs with a start and an end, enough to see the cluster's nodes"
        )
    most = max(step.nodes for step in inferred.nodes)
    if most > MOST_NODES:
        raise TraceError(
            trace.source, f"jobs on at most {MOST_NODES:,} nodes at once", found=f"{most:,}"
        )
    nodes = make_nodes(most)
    names = tuple(node.name for node in nodes)
    limit = inferred.max_jobs_per_user
    partitions = {item.name: item for item in site.partitions} if site else {}
    all_qos = {item.name: item for item in site.qos} if site else {}
    return ClusterConfig(
        nodes,
        tuple(_partition(name, names, partitions) for name in _names(trace, "partition", "batch")),
        _whole_nodes(site.params) if site else ASSUMED,
        qos=tuple(
            all_qos.get(name) or Qos(name, max_jobs_per_user=limit)
            for name in _names(trace, "qos", "normal")
        ),
        node_changes=tuple(node_changes(inferred.nodes, names)),
        name=PurePath(trace.source.removesuffix(".gz")).stem,
        scheduler_is_assumed=site is None,
    )


def _partition(name: str, nodes: tuple[str, ...], known: Mapping[str, Partition]) -> Partition:
    """The site's partition has QOS and nodes that the guessed cluster lacks."""
    return replace(known[name], nodes=nodes, qos=None) if name in known else Partition(name, nodes)


def _whole_nodes(params: Params) -> Params:
    """A log does not say how many CPUs and GPUs a node has, so jobs hold whole nodes."""
    return replace(params, select_type=SelectType.LINEAR, threads_per_core=1)


def node_changes(steps: Sequence[NodeStep], names: Sequence[str]) -> list[NodeChange]:
    """So that from each step's time on its first ``nodes`` nodes take jobs; before the first step
    as in it.
    """
    changes: list[NodeChange] = []
    have = len(names)
    for number, step in enumerate(steps):
        time_s = step.time if number else 0
        lost, back = names[step.nodes : have], names[have : step.nodes]
        changes += [NodeChange(time_s, name, NodeAction.DRAIN) for name in lost]
        changes += [NodeChange(time_s, name, NodeAction.RESUME) for name in back]
        have = step.nodes
    return changes


def _names(trace: Trace, column: str, otherwise: str) -> list[str]:
    """Those that jobs name, the most common first, since that is the default; `otherwise` if there
    is none.
    """
    texts: NDArray[np.object_] = (
        trace.text(column) if column in trace.jobs.columns else np.array([], object)
    )
    names, counts = np.unique(texts[texts != ""].astype(str), return_counts=True)
    return [str(name) for name in names[np.argsort(-counts, kind="stable")]] or [otherwise]
