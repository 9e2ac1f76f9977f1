"""What describes the network of a live cluster: files of the caller's, or `scontrol show topology`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from mirage.errors import InputError
from mirage.placement.live.nvidia import GpuLinks, parse_topo
from mirage.placement.live.slurm_topology import read_switches
from mirage.slurm.oddities import note_once
from mirage.slurm.runner import Runner
from slurm_sim.files import read_text

SHOW_TOPOLOGY = ["scontrol", "show", "topology"]


@dataclass(frozen=True, kw_only=True)
class NetworkText:
    """What describes the network."""

    switches: str | None
    """topology.conf or `scontrol show topology`; None: not known."""
    source: str
    links: GpuLinks | None = None
    """Of `nvidia-smi topo -m`, for all nodes with as many GPUs."""
    is_given: bool = False
    """From a file of the caller's: then all its nodes must be the cluster's."""


def read_network(files: Sequence[Path], runner: Runner) -> NetworkText:
    """From files (topology.conf, `scontrol show topology`, `nvidia-smi topo -m`), else from Slurm.

    Raises InputError, ClusterError.
    """
    links, switches = None, None
    for file in files:
        text = _text_of(file)
        if re.search(r"\bGPU0\b", text):
            links = parse_topo(text, str(file))
        elif switches is not None:
            raise InputError(f"--topology {file}: {switches.source} describes switches already")
        else:
            switches = NetworkText(switches=text, source=str(file), is_given=True)
    if switches is None:
        switches = _shown_network(runner)
    return replace(switches, links=links)


def _shown_network(runner: Runner) -> NetworkText:
    """Of a kind that is not known here (topology/ring of 26.05): as if nothing were known of it."""
    result, source = runner.run(SHOW_TOPOLOGY), " ".join(SHOW_TOPOLOGY)
    known = result.stdout if result.returncode == 0 and "Name=" in result.stdout else None
    try:
        read_switches(known or "SwitchName=none", source)
    except InputError as error:
        note_once(str(error))
        known = None
    return NetworkText(switches=known, source=source)


def _text_of(file: Path) -> str:
    """Raises InputError."""
    try:
        text = read_text(file)
    except UnicodeDecodeError:
        raise InputError(f"--topology {file}: no text: give one of the forms of --help") from None
    if not text.strip():
        raise InputError(f"--topology {file}: the file is empty")
    if re.search(r"^\s*(?:- *)?topology *:", text, re.MULTILINE):
        raise InputError(
            f"--topology {file}: a topology.yaml, which mirage does not read: give the output of"
            " `scontrol show topology`, which shows the same"
        )
    return text
