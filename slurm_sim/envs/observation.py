"""The 40 variables of a pair of jobs and the queue around it (the Mirage paper, section 4.1), of a
simulation.

Values are raw: jobs, nodes, seconds. They are those that `mirage.state` makes of a snapshot of the
same moment, bit for bit; a test holds the two together. The C++ form of this file is
`core/observe.hpp` with `core/vector_env.cpp`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol, Self

import numpy as np
from numpy.typing import NDArray

from slurm_sim.config import DAY_S, ClusterConfig, Partition
from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import LIMITED, JobRecord, JobSpec

Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]
PERCENTILES = (0, 25, 50, 75, 100)
"""With linear interpolation, as `numpy.percentile`; of no jobs, all are 0."""
LIMIT_CAP_S = 30 * DAY_S
"""Longer limits, and none, count as 30 days."""
_MOST_S = 2**31 - 1


def _five(name: str) -> tuple[str, ...]:
    return tuple(f"{name}_p{percentile}" for percentile in PERCENTILES)


NAMES = (
    "queued_jobs",
    *_five("queued_nodes"),
    *_five("queued_age_s"),
    *_five("queued_limit_s"),
    "running_jobs",
    *_five("running_nodes"),
    *_five("running_elapsed_s"),
    *_five("running_limit_s"),
    "predecessor_nodes",
    "predecessor_limit_s",
    "predecessor_wait_s",
    "predecessor_elapsed_s",
    "successor_nodes",
    "successor_limit_s",
    "idle_nodes",
    "up_nodes",
)
"""The columns, in order."""
WIDTH = len(NAMES)
PAIR = slice(32, 38)


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
    seconds = re.compile(r"_s(_p\d+)?$")
    return np.array(
        [1 / DAY_S if seconds.search(name) else 1 / len(pool.nodes) for name in NAMES],
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
    row[0:16] = _summary(queued, [now_s - (job.eligible_s or 0) for job in queued])
    row[16:32] = _summary(running, [now_s - (job.start_s or 0) for job in running])
    if pair is not None:
        row[PAIR] = pair_columns(simulation.job(pair[0]), simulation.job(pair[1]), now_s)
    row[38] = sum(simulation.is_idle(node) for node in pool.nodes)
    row[39] = sum(simulation.is_up(node) for node in pool.nodes)
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
        _core.walk(core, *core_pool(simulation.config, pool), *(pair or (0, 0)), times, rows)
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
    rows = [[job.nodes for job in jobs], seconds, [_capped_s(job.time_limit_s) for job in jobs]]
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
        _capped_s(predecessor.time_limit_s),
        max(0, waited_s),
        max(0, elapsed_s),
    )
    return (*facts, successor.nodes, _capped_s(successor.time_limit_s))


def _capped_s(time_limit_s: int | None) -> int:
    return LIMIT_CAP_S if time_limit_s is None else min(time_limit_s, LIMIT_CAP_S)
