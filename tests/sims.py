"""Simulators of equal nodes with these names, for tests; keywords go to `ClusterConfig`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import slurm_sim
from slurm_sim.config import ClusterConfig, Params, Partition, named_nodes
from slurm_sim.jobs import JobSpec
from tests.reference.simulator import ReferenceSimulator


def _cluster(
    names: Sequence[str], partitions: Sequence[Partition], params: Params | None, **more: Any
) -> ClusterConfig:
    return ClusterConfig(named_nodes(names), tuple(partitions), params or Params(), **more)


def simulator(
    names: Sequence[str],
    partitions: Sequence[Partition],
    params: Params | None = None,
    jobs: Iterable[JobSpec] = (),
    start_s: int = 0,
    **more: Any,
) -> ReferenceSimulator:
    """The reference."""
    return ReferenceSimulator(_cluster(names, partitions, params, **more), jobs, start_s)


def fast_simulator(
    names: Sequence[str],
    partitions: Sequence[Partition],
    params: Params | None = None,
    jobs: Iterable[JobSpec] = (),
    start_s: int = 0,
    **more: Any,
) -> slurm_sim.Simulator:
    """What mirage runs on: the core."""
    return slurm_sim.Simulator(_cluster(names, partitions, params, **more), jobs, start_s)
