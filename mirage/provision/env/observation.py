"""The 40 variables of a pair of jobs and the queue around it, of a simulation.

`mirage.state.variables` is the table of what they are. Values are raw: jobs, nodes, seconds. They
are those that `mirage.state` makes of a snapshot of the same moment, bit for bit; a test holds the
two together. They are counted in `slurm_sim/core/observe.hpp`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from mirage.state.variables import (
    NODES,
    PAIR,
    QUEUED,
    RUNNING,
    VARIABLES,
    capped_limit_s,
)
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, Partition
from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import JobRecord
from slurm_sim.seconds import DAY_S

Vectors = NDArray[np.float32]
Ints = NDArray[np.int64]
WIDTH = len(VARIABLES)
COLUMNS = (WIDTH, QUEUED.start, RUNNING.start, PAIR.start, NODES.start)
"""The table as the core takes it: how many columns, and where each group begins."""


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


def observe(simulation: Simulator, pool: Pool, pair: tuple[int, int] | None) -> Vectors:
    """The row, (40,), of this moment, after all that is due now. `pair`: ids of predecessor and
    successor, which the queue's columns leave out; None: there is no pair yet, its columns are 0.
    """
    row: Vectors = walk(simulation, pool, pair, [simulation.now_s])[0]
    return row


def walk(
    simulation: Simulator, pool: Pool, pair: tuple[int, int] | None, times_s: Sequence[int] | Ints
) -> Vectors:
    """The rows, (times, 40), of these moments, to which the simulation goes on one by one."""
    from slurm_sim.core import _core

    rows = np.empty((len(times_s), WIDTH), dtype=np.float32)
    given = core_pool(simulation.config, pool)
    times = np.ascontiguousarray(times_s, dtype=np.int64)
    _core.walk(simulation._core, *given, *(pair or (0, 0)), COLUMNS, times, rows)
    return rows


def core_pool(config: ClusterConfig, pool: Pool) -> tuple[list[int], list[bool]]:
    """A pool as the core takes it: words of 64 nodes, and a flag for each partition."""
    nodes = [0] * -(-len(config.nodes) // 64)
    for index, node in enumerate(config.nodes):
        nodes[index // 64] |= (node.name in pool.nodes) << index % 64
    return nodes, [partition.name in pool.partitions for partition in config.partitions]


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
