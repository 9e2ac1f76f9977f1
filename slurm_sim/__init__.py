"""A simulator of a Slurm cluster. Knows nothing of mirage."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from slurm_sim.config import ClusterConfig, Node, Params, Partition, make_nodes, whole_nodes
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError, UnknownJob
from slurm_sim.jobs import JobRecord, JobSpec, Sample, State, array

__all__ = [
    "ClusterConfig",
    "InvalidCluster",
    "InvalidJob",
    "JobRecord",
    "JobSpec",
    "Node",
    "Params",
    "Partition",
    "Sample",
    "SimulationError",
    "Simulator",
    "State",
    "UnknownJob",
    "array",
    "make_nodes",
    "whole_nodes",
]

if TYPE_CHECKING:
    from slurm_sim.simulator import Simulator as Simulator


def __getattr__(name: str) -> object:
    """`Simulator`: by the C++ core, or, where it was not built, the reference: the same, but slowly."""
    if name != "Simulator":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        from slurm_sim.simulator import Simulator
    except ImportError as error:
        from slurm_sim.reference import Simulator as Reference

        warnings.warn(f"slurm_sim runs in slow Python: its C++ core is missing ({error})", RuntimeWarning, stacklevel=2)
        globals()[name] = Reference
    else:
        globals()[name] = Simulator
    return globals()[name]
