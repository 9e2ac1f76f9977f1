"""Which cluster Slurm's commands reach from here, and which one a chain lives on.

Several clusters may share a home directory, and so the folder of chains. A job id of one is
nothing to the other, so what is not there may not count as ended.
"""

from __future__ import annotations

import os
import re
import subprocess
from functools import cache
from pathlib import Path

from mirage.chain.folder import CHAIN_RECORD, chain_folder, read_record
from mirage.errors import InputError

PATIENCE_S = 3
CONFS = ("/etc/slurm/slurm.conf", "/run/slurm/conf/slurm.conf")
"""Where Slurm's commands look without `SLURM_CONF`; the second without configuration files."""
_NAME = re.compile(r"^\s*ClusterName\s*=\s*(\w[\w.-]*)", re.MULTILINE | re.IGNORECASE | re.ASCII)


def cluster_name() -> str:
    """The cluster's name (slurm.conf(5), ClusterName); empty: not known, as slurmctld is away."""
    return _name(os.environ.get("SLURM_CONF", ""), os.environ.get("PATH", ""))


@cache
def _name(conf: str, _path: str) -> str:
    """From the file first: it is there while slurmctld is away."""
    found = (_NAME.search(_text(file)) for file in ([conf] if conf else CONFS))
    match = next(filter(None, found), None) or _NAME.search(_asked())
    return match[1].lower() if match else ""


def _text(file: str) -> str:
    try:
        return Path(file).read_text(errors="replace")
    except OSError:
        return ""


def _asked() -> str:
    environ = {name: value for name, value in os.environ.items() if name != "SLURM_CLUSTERS"}
    words = ["scontrol", "show", "config"]
    try:
        done = subprocess.run(words, env=environ, capture_output=True, timeout=PATIENCE_S)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(done.stdout)


def other_cluster_of(chain_id: str) -> str:
    """The cluster on which a chain of one's own lives; empty: this one, or not known."""
    name = read_record(chain_folder(chain_id) / CHAIN_RECORD).get("cluster", "")
    return name if name and cluster_name() not in ("", name) else ""


def refuse_other_cluster(chain_id: str) -> None:
    """InputError: the chain lives on another cluster, so nobody can tell here what became of it."""
    if name := other_cluster_of(chain_id):
        raise InputError(
            f"chain {chain_id} is of cluster {name}, and Slurm's commands here reach cluster"
            f" {cluster_name()}: run this where they reach {name}"
        )
