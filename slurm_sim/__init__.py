"""A simulator of a Slurm cluster. Knows nothing of mirage."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = [
    "ClusterConfig",
    "InvalidCluster",
    "InvalidJob",
    "JobRecord",
    "JobSpec",
    "NodeSpec",
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
    from slurm_sim.config import ClusterConfig, NodeSpec, Params, Partition, make_nodes, whole_nodes
    from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError, UnknownJob
    from slurm_sim.jobs import JobRecord, JobSpec, Sample, State, array
    from slurm_sim.simulator import Simulator

# Loaded as they are needed: who only reads node states (`mirage-submit` does) shall not wait for
# numpy.
_HOMES = {
    "slurm_sim.config": (
        "ClusterConfig",
        "NodeSpec",
        "Params",
        "Partition",
        "make_nodes",
        "whole_nodes",
    ),
    "slurm_sim.errors": ("InvalidCluster", "InvalidJob", "SimulationError", "UnknownJob"),
    "slurm_sim.jobs": ("JobRecord", "JobSpec", "Sample", "State", "array"),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    """The package's names."""
    if name in _HOME_OF:
        found = getattr(import_module(_HOME_OF[name]), name)
    elif name == "Simulator":
        found = _simulator()
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found
    return found


def _simulator() -> object:
    """The class; without a core one that says so where a simulation is to begin, not at its import."""
    try:
        from slurm_sim.simulator import Simulator
    except ImportError:
        from slurm_sim.errors import NoSimulator

        return NoSimulator
    return Simulator
