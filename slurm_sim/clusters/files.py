"""A live Slurm's output in files: which file is which is seen from its first line."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

from slurm_sim.clusters.notes import ClusterDescription
from slurm_sim.clusters.scontrol import SETTING, read_live
from slurm_sim.errors import InvalidCluster
from slurm_sim.files import read_text

COMMANDS = {
    "config_text": "scontrol show config",
    "nodes_text": "scontrol show node -o",
    "partitions_text": "scontrol show partition -o",
    "qos_text": "sacctmgr -P show qos",
    "assoc_text": "sacctmgr -P show assoc tree",
}
"""Arguments of `read_live`, and what prints them."""
MOST_LIVE_BYTES = 512 << 20
"""Of one output: a kilobyte or two for each node."""
NEEDED = tuple(COMMANDS)[:3]
ACCOUNTING = tuple(COMMANDS)[3:]


def read_live_files(paths: Iterable[Path]) -> ClusterDescription:
    """As `read_live`, from files in any order. Raises InvalidCluster, also for a file of which
    nothing can be made.
    """
    paths = list(paths)
    found = _by_kind(paths, tuple(COMMANDS))
    if missing := [kind for kind in NEEDED if kind not in found]:
        raise InvalidCluster(f"{', '.join(map(str, paths))}: give also {_listed(missing)}")
    try:
        return read_live(**found)
    except InvalidCluster as error:
        raise with_path(error, paths) from None


def with_path(error: InvalidCluster, paths: Iterable[Path]) -> InvalidCluster:
    """With the file's name before the command whose output is wrong."""
    for path in paths:
        kind = _kind(_text(path))
        command = (
            COMMANDS[kind].removesuffix(" -o").replace(" -P", "").removesuffix(" tree")
            if kind
            else ""
        )
        if command and str(error).startswith(f"{command}:"):
            return InvalidCluster(f"{path}: {error}")
    return error


def read_accounting_files(paths: Iterable[Path]) -> dict[str, str]:
    """Of `sacctmgr` only: the arguments `qos_text` and `assoc_text`, or one of them. Raises
    InvalidCluster.
    """
    return _by_kind(paths, ACCOUNTING)


def _by_kind(paths: Iterable[Path], kinds: tuple[str, ...]) -> dict[str, str]:
    found: dict[str, tuple[Path, str]] = {}
    for path in paths:
        text = _text(path)
        kind = _kind(text)
        if kind not in kinds:
            raise InvalidCluster(
                f"{path}:1: found {_first(text)[:60]!r}; give the output of {_listed(kinds)}"
            )
        if kind in found:
            raise InvalidCluster(
                f"{path}: is of `{COMMANDS[kind]}`, like {found[kind][0]}; give each of them once"
            )
        found[kind] = path, text
    return {kind: text for kind, (_, text) in found.items()}


def _text(path: Path) -> str:
    try:
        return read_text(path, MOST_LIVE_BYTES, "replace")
    except OSError as error:
        raise InvalidCluster(f"{path}: {error.strerror}; give a file that can be read") from None


def _first(text: str) -> str:
    return next((line for line in text.splitlines() if line.strip()), "")


def _kind(text: str) -> str | None:
    line = _first(text)
    columns = [name.strip().lower() for name in line.split("|")]
    if line.startswith("NodeName="):
        return "nodes_text"
    if line.startswith("PartitionName="):
        return "partitions_text"
    if "account" in columns:
        return "assoc_text"
    if "name" in columns:
        return "qos_text"
    if line.startswith("Configuration data as of") or re.fullmatch(SETTING, line):
        return "config_text"
    return None


def _listed(kinds: Iterable[str]) -> str:
    return ", ".join(f"`{COMMANDS[kind]}`" for kind in kinds)
