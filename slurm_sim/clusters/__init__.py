"""Descriptions of clusters: TOML, slurm.conf, and what a live Slurm prints (`docs/clusters.md`)."""

from __future__ import annotations

from pathlib import Path

from slurm_sim.clusters.files import read_live_files
from slurm_sim.clusters.notes import Loaded, Note, NoteKind
from slurm_sim.clusters.scheduler import SLURM_DEFAULTS, params_from
from slurm_sim.clusters.scontrol import read_live
from slurm_sim.clusters.slurm_conf import read_slurm_conf
from slurm_sim.clusters.toml import read_toml, write_toml

__all__ = [
    "SLURM_DEFAULTS",
    "Loaded",
    "Note",
    "NoteKind",
    "params_from",
    "read_cluster",
    "read_live",
    "read_live_files",
    "write_toml",
]


def read_cluster(path: str | Path) -> Loaded:
    """A cluster from a file: a ``.toml``, otherwise a slurm.conf. Raises InvalidCluster with file and line or key."""
    path = Path(path)
    return read_toml(path) if path.suffix.lower() == ".toml" else read_slurm_conf(path)
