"""A cluster as far as a log shows it: for simulating the log's own jobs (`mirage trace infer --out-cluster`)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import PurePath

import numpy as np
from numpy.typing import NDArray

from slurm_sim.clusters import SLURM_DEFAULTS
from slurm_sim.config import ClusterConfig, NodeAction, NodeChange, Params, Partition, Qos, make_nodes
from slurm_sim.ranges import MOST_NODES
from slurm_sim.traces.capacity import NodeStep
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.inference import Inferred
from slurm_sim.traces.table import Trace


def guessed_cluster(trace: Trace, inferred: Inferred, params: Params = SLURM_DEFAULTS) -> ClusterConfig:
    """Whole nodes, as many as the log ever needed, of which the last ones are drained while it shows fewer.

    It is named after the log's file. Every partition that a job names has all nodes; every QOS has the running limit a
    user. Times are those of the log, Unix seconds. What a log does not show has Slurm's defaults: the scheduler's
    parameters, time limits of partitions, priorities. Raises TraceError if the log does not show any nodes, or
    more than the simulator takes.
    """
    if not inferred.nodes:
        raise TraceError(trace.source, "jobs with a start and an end, enough to see the cluster's nodes")
    most = max(step.nodes for step in inferred.nodes)
    if most > MOST_NODES:
        raise TraceError(trace.source, f"jobs on at most {MOST_NODES:,} nodes at once", found=f"{most:,}")
    nodes = make_nodes(most)
    names = tuple(node.name for node in nodes)
    limit = inferred.max_jobs_per_user
    return ClusterConfig(
        nodes,
        tuple(Partition(name, names) for name in _names(trace, "partition", "batch")),
        params,
        qos=tuple(Qos(name, max_jobs_per_user=limit) for name in _names(trace, "qos", "normal")),
        node_changes=tuple(node_changes(inferred.nodes, names)),
        name=PurePath(trace.source.removesuffix(".gz")).stem,
    )


def node_changes(steps: Sequence[NodeStep], names: Sequence[str]) -> list[NodeChange]:
    """So that from each step's time on its first ``nodes`` nodes take jobs; before the first step as in it."""
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
    """Those that jobs name, the most common first, since that is the default; `otherwise` if there is none."""
    texts: NDArray[np.object_] = trace.text(column) if column in trace.jobs.columns else np.array([], object)
    names, counts = np.unique(texts[texts != ""].astype(str), return_counts=True)
    return [str(name) for name in names[np.argsort(-counts, kind="stable")]] or [otherwise]
