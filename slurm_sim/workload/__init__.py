"""Synthetic workloads: a small model fitted to a trace, and jobs drawn from it (docs/workloads.md)."""

from slurm_sim.workload.check import compare_workloads
from slurm_sim.workload.fit import fit
from slurm_sim.workload.generate import generate, hour_of_week
from slurm_sim.workload.model import WorkloadModel, load_model, shipped_models

__all__ = [
    "WorkloadModel",
    "compare_workloads",
    "fit",
    "generate",
    "hour_of_week",
    "load_model",
    "shipped_models",
]
