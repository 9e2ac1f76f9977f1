"""The service of `mirage daemon` and `mirage agent`, before it starts: its configuration, checked and
with all that follows from it.
"""

from __future__ import annotations

from typing import Any

from mirage.config import Config
from mirage.config_sources import BY_ITSELF, Key, LoadedConfig, with_values
from mirage.daemon.app import OpenPage, routing_table, state_valid_s
from mirage.daemon.metrics import parse_address
from mirage.daemon.restraint import Acting
from mirage.errors import InputError
from mirage.provision.policies.registry import make_policy
from mirage.slurm.adapter import probed_version
from mirage.slurm.rest_cluster import client_of
from mirage.store.journal import Journal
from mirage.web.server import port_of


def all_that_holds(
    loaded: LoadedConfig, acting: Acting, journal: Journal, socket: str
) -> LoadedConfig:
    """With each default that is worked out from something else."""
    config, origins = loaded.config, loaded.origins
    first, *others = map(str, acting.disable_files)
    heeds = f"; {' and '.join(others)} too" if others else ""
    worked_out: dict[Key, Any] = {
        ("acting", "mode"): acting.mode.value,
        ("acting", "disable_file"): first,
        ("audit", "file"): str(journal.path),
        ("routing", "valid_s"): state_valid_s(config),
    }
    said = {key: (value, origins.get(key, BY_ITSELF)) for key, value in worked_out.items()}
    said["acting", "disable_file"] = (first, said["acting", "disable_file"][1] + heeds)
    if socket != config.daemon.socket:
        said["daemon", "socket"] = (socket, "an agent has none")
    if config.daemon.store_file:
        said["daemon", "store_file"] = ("", "see store")
    return with_values(loaded, said)


def check(config: Config, socket: str) -> None:
    """All that a start would refuse, short of taking the store and the ports. Raises InputError."""
    make_policy(config.policy)
    routing_table(config)
    if config.cluster.adapter == "pyslurm":
        probed_version()
    if config.cluster.adapter == "rest":
        client_of(config.cluster)
    if config.daemon.metrics:
        parse_address(config.daemon.metrics, "daemon.metrics")
    if config.daemon.web:
        opener(socket)
        port_of(config.daemon.web)


def opener(socket: str) -> OpenPage:
    """Raises InputError where there can't be a web page."""
    if not socket:
        raise InputError(
            "daemon.web is set, but no socket, at which `mirage web` asks for a link: set"
            ' daemon.socket, or daemon.web to "". A user\'s own agent has neither; `mirage status`'
            " tells the same."
        )
    try:
        from mirage.web.page import opened
    except ImportError as error:
        raise InputError(f"daemon.web needs `pip install 'mirage-slurm[web]'` ({error})") from error
    return opened
