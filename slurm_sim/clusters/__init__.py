"""Descriptions of clusters: TOML, slurm.conf, and what a live Slurm prints (`docs/clusters.md`)."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from slurm_sim.clusters.files import read_accounting_files, read_live_files, with_path
from slurm_sim.clusters.notes import ClusterDescription, Note, NoteKind
from slurm_sim.clusters.scheduler import SLURM_DEFAULTS, params_from
from slurm_sim.clusters.scontrol import read_live
from slurm_sim.clusters.slurm_conf import read_slurm_conf
from slurm_sim.clusters.toml import read_toml, write_toml
from slurm_sim.errors import InvalidCluster

__all__ = [
    "SLURM_DEFAULTS",
    "ClusterDescription",
    "Note",
    "NoteKind",
    "params_from",
    "read_cluster",
    "read_live",
    "read_live_files",
    "write_toml",
]


def read_cluster(path: str | Path, sacctmgr: Iterable[str | Path] = ()) -> ClusterDescription:
    """A cluster from a file: a ``.toml``, otherwise a slurm.conf.

    `sacctmgr`: beside a slurm.conf, files with the output of `sacctmgr -P show qos` and `sacctmgr
    -P show assoc tree`, or of one of them. Raises InvalidCluster with file and line or key.
    """
    path, accounting = Path(path), [Path(file) for file in sacctmgr]
    if path.suffix.lower() != ".toml":
        texts = read_accounting_files(accounting)
        try:
            return read_slurm_conf(path, **texts)
        except InvalidCluster as error:
            raise with_path(error, accounting) from None
    if accounting:
        raise InvalidCluster(
            f"{path}: a TOML has its own QOS and associations; give {accounting[0]} with a"
            " slurm.conf"
        )
    return read_toml(path)
