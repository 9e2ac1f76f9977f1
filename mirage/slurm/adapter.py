"""Which adapter speaks to Slurm: `cluster.adapter`. The only place that imports PySlurm."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from mirage.errors import ClusterError, InputError
from mirage.ports import Cluster
from mirage.slurm.commands import CommandCluster
from mirage.slurm.pyslurm_cluster import Module, PyslurmCluster
from mirage.slurm.rest_cluster import RestCluster

if TYPE_CHECKING:
    from mirage.config import AdapterConfig

_PROBE = "import pyslurm; print(pyslurm.__version__)"
_PROBE_TIMEOUT_S = 60


@dataclass(frozen=True)
class Adapter:
    """What was chosen, and why, in words that follow `Slurm is reached by`."""

    cluster: Cluster
    why: str


def connect(
    config: AdapterConfig,
    *,
    probe: Callable[[], str] | None = None,
    load: Callable[[], Module] | None = None,
) -> Adapter:
    """The adapter that the configuration asks for; with `auto` PySlurm where it works, else the
    commands.

    ``probe`` and ``load`` can be replaced in tests. Raises InputError where `pyslurm` is asked for
    and does not work, and where `rest` has no address.
    """
    if config.adapter == "rest":
        return Adapter(RestCluster.from_config(config), f"slurmrestd at {config.rest_url}")
    commands = CommandCluster.from_config(config)
    if config.adapter == "commands":
        return Adapter(commands, "the commands, as configured")
    try:
        version = (probe or probed_version)()
        _check_release(version, commands)
    except (ClusterError, InputError) as problem:
        if config.adapter == "pyslurm":
            raise InputError(
                f'cluster.adapter = "pyslurm": {problem} Install the one for your Slurm, or set it'
                ' to "commands".'
            ) from problem
        return Adapter(commands, f"the commands: {problem}")
    cluster = PyslurmCluster((load or _load)(), commands)
    return Adapter(
        cluster, f"PySlurm {version} for the queue and the nodes, and by the commands for the rest"
    )


def probed_version() -> str:
    """PySlurm's version. Raises InputError where it is not there or can't be imported.

    Tried in a process of its own: libslurm ends the whole one where it finds no configuration, and
    one of another release may crash it.
    """
    if importlib.util.find_spec("pyslurm") is None:
        raise InputError("PySlurm is not installed.")
    try:
        done = subprocess.run(
            [sys.executable, "-P", "-c", _PROBE],
            capture_output=True,
            text=True,
            timeout=_PROBE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise InputError(
            f"PySlurm can't be imported: nothing happened for {_PROBE_TIMEOUT_S} s."
        ) from None
    if done.returncode:
        words = done.stderr.strip().rpartition("\n")[2] or f"it ended with {done.returncode}"
        raise InputError(f"PySlurm can't be imported: {words[:200]}.")
    return done.stdout.strip()


def _check_release(version: str, commands: Cluster) -> None:
    """PySlurm X.Y.Z is for Slurm X.Y and for no other. Raises ClusterError, InputError."""
    running = commands.settings().version
    if _release(version) != _release(running):
        raise InputError(f"PySlurm {version} is not for Slurm {running}.")


def _release(version: str) -> list[str]:
    return version.split(".")[:2]


def _load() -> Module:
    flags = sys.getdlopenflags()
    try:
        return cast(Module, importlib.import_module("pyslurm"))
    finally:
        # Its import changes them for the whole process (RTLD_GLOBAL, RTLD_DEEPBIND;
        # pyslurm/__init__.py), and so the libraries of all packages that are imported after it.
        sys.setdlopenflags(flags)
