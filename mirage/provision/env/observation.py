"""The 40 variables of a pair of jobs and the queue around it, of a simulation.

`mirage.state.variables` is the table of what they are. Values are raw: jobs, nodes, seconds. They
are those that `mirage.state` makes of a snapshot of the same moment, bit for bit; a test holds the
two together. The C++ form of this file is `slurm_sim/core/observe.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from mirage.state.variables import (
    NODES,
    PAIR,
    PERCENTILES,
    QUEUED,
    RUNNING,
    VARIABLES,
    capped_limit_s,
)
from slurm_sim.config import ClusterConfig, Partition
from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import LIMITED, JobRecord, JobSpec
from slurm_sim.seconds import DAY_S

Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]
WIDTH = len(VARIABLES)
COLUMNS = (WIDTH, QUEUED.start, RUNNING.start, PAIR.start, NODES.start)
"""The table as the core takes it: how many columns, and where each group begins."""
_MOST_S = 2**31 - 1


class Simulation(Protocol):
    """What the environments use of a simulator: `slurm_sim.Simulator` or the reference."""

    @property
    def config(self) -> ClusterConfig: ...
    @property
    def now_s(self) -> int: ...
    @property
    def node_names(self) -> tuple[str, ...]: ...
    def run_until(self, time_s: int) -> None: ...
    def submit(self, spec: JobSpec) -> int: ...
    def drop_dependency(self, job_id: int) -> None: ...
    def job(self, job_id: int) -> JobRecord: ...
    def pending(self) -> list[JobRecord]: ...
    def running(self) -> list[JobRecord]: ...
    def is_up(self, node: str) -> bool: ...
    def is_idle(self, node: str) -> bool: ...
    def fork(self) -> Self: ...


@dataclass(frozen=True)
class Pool:
    """The partitions that share nodes with one another and so compete: what an observation is of."""

    partitions: frozenset[str]
    nodes: tuple[str, ...]

    @classmethod
    def of(cls, config: ClusterConfig, partition: str | None) -> Pool:
        """The pool of this partition (None: the first)."""
        by_name = {item.name: item for item in config.partitions}
        name = config.partitions[0].name if partition is None else partition
        if name not in by_name:
            raise InvalidJob(
                f"partition {name!r} does not exist; this cluster has {', '.join(by_name)}"
            )
        members, nodes = {name}, set(by_name[name].nodes)
        while more := [item for item in config.partitions if _joins(item, members, nodes)]:
            members.update(item.name for item in more)
            nodes.update(node for item in more for node in item.nodes)
        return cls(
            frozenset(members), tuple(node.name for node in config.nodes if node.name in nodes)
        )


def _joins(partition: Partition, members: set[str], nodes: set[str]) -> bool:
    return partition.name not in members and not nodes.isdisjoint(partition.nodes)


def scales(pool: Pool) -> Vectors:
    """Factors, (40,), that bring the columns near 1: jobs and nodes by the pool's size, seconds by
    the day.
    """
    return np.array(
        [1 / DAY_S if item.unit == "seconds" else 1 / len(pool.nodes) for item in VARIABLES],
        dtype=np.float32,
    )


def observe(simulation: Simulation, pool: Pool, pair: tuple[int, int] | None) -> Vectors:
    """The row, (40,), of this moment. `pair`: ids of predecessor and successor, which the queue's
    columns leave out; None: there is no pair yet, and its columns are 0.
    """
    now_s = simulation.now_s
    queued = [job for job in simulation.pending() if _counts(job, pool, pair) and _is_queued(job)]
    running = [job for job in simulation.running() if _counts(job, pool, pair)]
    row = np.zeros(WIDTH)
    row[QUEUED] = _summary(queued, [now_s - (job.eligible_s or 0) for job in queued])
    row[RUNNING] = _summary(running, [now_s - (job.start_s or 0) for job in running])
    if pair is not None:
        row[PAIR] = pair_columns(simulation.job(pair[0]), simulation.job(pair[1]), now_s)
    row[NODES] = (
        sum(simulation.is_idle(node) for node in pool.nodes),
        sum(simulation.is_up(node) for node in pool.nodes),
    )
    return row.astype(np.float32)


def walk(
    simulation: Simulation, pool: Pool, pair: tuple[int, int] | None, times_s: Sequence[int] | Ints
) -> Vectors:
    """The rows, (times, 40), of these moments, to which the simulation goes on one by one."""
    rows = np.empty((len(times_s), WIDTH), dtype=np.float32)
    core = getattr(simulation, "_core", None)
    if core is not None:
        from slurm_sim.core import _core

        times = np.ascontiguousarray(times_s, dtype=np.int64)
        _core.walk(
            core, *core_pool(simulation.config, pool), *(pair or (0, 0)), COLUMNS, times, rows
        )
        return rows
    for row, time_s in zip(rows, times_s, strict=True):
        simulation.run_until(int(time_s))
        row[:] = observe(simulation, pool, pair)
    return rows


def core_pool(config: ClusterConfig, pool: Pool) -> tuple[list[int], list[bool]]:
    """A pool as the core takes it: words of 64 nodes, and a flag for each partition."""
    nodes = [0] * -(-len(config.nodes) // 64)
    for index, node in enumerate(config.nodes):
        nodes[index // 64] |= (node.name in pool.nodes) << index % 64
    return nodes, [partition.name in pool.partitions for partition in config.partitions]


def _counts(job: JobRecord, pool: Pool, pair: tuple[int, int] | None) -> bool:
    return job.partition in pool.partitions and (pair is None or job.job_id not in pair)


def _is_queued(job: JobRecord) -> bool:
    return job.eligible_s is not None and not job.reason.endswith(LIMITED)


def _summary(jobs: Sequence[JobRecord], seconds: Sequence[int]) -> NDArray[np.float64]:
    """Count, then the percentiles of nodes, seconds and limits."""
    if not jobs:
        return np.zeros(1 + 3 * len(PERCENTILES))
    rows = [
        [job.nodes for job in jobs],
        seconds,
        [capped_limit_s(job.time_limit_s) for job in jobs],
    ]
    percentiles = np.percentile(np.clip(rows, 0, _MOST_S), PERCENTILES, axis=1)
    return np.concatenate([[len(jobs)], percentiles.T.ravel()])


def pair_columns(predecessor: JobRecord, successor: JobRecord, at_s: int) -> tuple[int, ...]:
    """The pair's six columns at this time: all 0 before the predecessor became eligible, or while
    it is kept back.
    """
    eligible_s, start_s, end_s = predecessor.eligible_s, predecessor.start_s, predecessor.end_s
    if eligible_s is None or eligible_s > at_s:
        return (0,) * 6
    waited_s = min(time for time in (at_s, start_s, end_s) if time is not None) - eligible_s
    elapsed_s = 0 if start_s is None else (at_s if end_s is None else min(at_s, end_s)) - start_s
    facts = (
        predecessor.nodes,
        capped_limit_s(predecessor.time_limit_s),
        max(0, waited_s),
        max(0, elapsed_s),
    )
    return (*facts, successor.nodes, capped_limit_s(successor.time_limit_s))
