"""Simulators for tests."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import slurm_sim
from slurm_sim.config import ClusterConfig, Params, Partition, named_nodes
from slurm_sim.jobs import JobSpec
from slurm_sim.reference.simulator import ReferenceSimulator


def simulator(
    names: Sequence[str],
    partitions: Sequence[Partition],
    params: Params | None = None,
    jobs: Iterable[JobSpec] = (),
    start_s: int = 0,
    **more: object,
) -> ReferenceSimulator:
    """The reference, with equal nodes of these names; keywords go to `ClusterConfig`."""
    config = ClusterConfig(named_nodes(names), tuple(partitions), params or Params(), **more)  # type: ignore[arg-type]
    return ReferenceSimulator(config, jobs, start_s)


def fast_simulator(
    names: Sequence[str],
    partitions: Sequence[Partition],
    params: Params | None = None,
    start_s: int = 0,
) -> slurm_sim.Simulator:
    """What mirage runs on: the core."""
    return slurm_sim.Simulator(
        ClusterConfig(named_nodes(names), tuple(partitions), params or Params()), (), start_s
    )
