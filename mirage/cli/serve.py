"""What `mirage daemon` and `mirage agent` share: options, logging, the store, the loop."""

from __future__ import annotations

import argparse
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from mirage.chain.durations import parse_duration
from mirage.config import MOST, Config
from mirage.config_sources import (
    BY_ITSELF,
    Key,
    LoadedConfig,
    load,
    named_file,
    show,
    store_url,
    with_store,
    with_values,
)
from mirage.daemon.app import OpenPage, ServiceOptions, routing_table, serve, state_valid_s
from mirage.daemon.metrics import parse_address
from mirage.daemon.observers import Observer
from mirage.daemon.restraint import Acting
from mirage.daemon.socket import closed_folder
from mirage.domain import ActingMode
from mirage.errors import InputError
from mirage.provision.policies.registry import POLICIES, make_policy
from mirage.slurm.adapter import probed_version
from mirage.slurm.rest_cluster import client_of
from mirage.store.journal import Journal
from mirage.store.sqlite import file_of
from mirage.store.url import parse_url
from mirage.web.server import port_of


def add_arguments(parser: argparse.ArgumentParser, usual: str, default_mode: ActingMode) -> None:
    """``usual``: where the configuration lies if nothing else is said."""
    service = parser.add_argument_group("service")
    service.add_argument(
        "--config",
        type=Path,
        metavar="FILE",
        help=f"configuration, as TOML (default: $MIRAGE_CONFIG, {usual})",
    )
    service.add_argument(
        "--poll",
        type=_seconds,
        metavar="D",
        help=(
            "time between two cycles, at most: 90s, 1m, 2h; a bare number is seconds, as poll_s"
            " (default 600)"
        ),
    )
    service.add_argument(
        "--policy",
        choices=list(POLICIES),
        help=(
            "rule that says when a successor is let in (default: goodput for training chains,"
            " quantile for services)"
        ),
    )
    service.add_argument(
        "--mode",
        choices=[mode.value for mode in ActingMode],
        help=(
            "what the service may do. observe: decide and write down; advise: show users its"
            f" decisions too; enforce: act (default: {default_mode.value})"
        ),
    )
    service.add_argument(
        "--verbose",
        action="store_true",
        help='details in the log too, as daemon.log_level = "debug"',
    )
    _add_single_runs(parser)


def _add_single_runs(parser: argparse.ArgumentParser) -> None:
    once = parser.add_argument_group("instead of a service")
    once.add_argument(
        "--once", action="store_true", help="one cycle, as for cron: an agent prints failures only"
    )
    once.add_argument(
        "--check", action="store_true", help="only a check of configuration and model"
    )
    once.add_argument(
        "--print-config",
        action="store_true",
        help="only a print of the values in force, and where each comes from",
    )


def _seconds(text: str) -> int:
    try:
        seconds = int(text) if text.isdecimal() else parse_duration(text)
    except ValueError:
        seconds = 0
    if not 1 <= seconds <= MOST:
        raise argparse.ArgumentTypeError(
            f"expected seconds above 0, or a duration as 90s, 1m, 10min, 2h; got {text!r}"
        )
    return seconds


def configured(args: argparse.Namespace, usual: Path, default_store: str) -> LoadedConfig:
    """Files, environment and command line together, the store's URL settled. Raises InputError."""
    given: dict[Key, Any] = {
        ("daemon", "poll_s"): args.poll,
        ("policy", "name"): args.policy,
        ("acting", "mode"): args.mode,
        ("daemon", "log_level"): "debug" if args.verbose else None,
    }
    loaded = load(named_file(args.config), usual, os.environ, given)
    return with_store(loaded, store_url(loaded.config.daemon, default_store))


def run(
    args: argparse.Namespace,
    loaded: LoadedConfig,
    acting: Acting,
    journal: Journal,
    *,
    only_user: str | None,
    socket: str,
    observers: tuple[Observer, ...] = (),
) -> int:
    """Shows the configuration, checks it, or serves, as the command line says. Raises MirageError."""
    if args.print_config:
        print(show(_all_that_holds(loaded, acting, journal, socket)), end="")
        return 0
    if args.check:
        _check(loaded.config, socket)
        if closed := closed_folder(Path(socket)) if socket else "":
            print(f"warning: {closed}", file=sys.stderr)
        print("The configuration is good.")
        return 0
    options = ServiceOptions(
        config=loaded.config,
        acting=acting,
        journal=journal,
        only_user=only_user,
        socket=socket,
        open_page=_opener(socket) if loaded.config.daemon.web and not args.once else None,
        once=args.once,
        observers=observers,
    )
    return 0 if serve(options) else 1


def _all_that_holds(
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


def _check(config: Config, socket: str) -> None:
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
        _opener(socket)
        port_of(config.daemon.web)


def settled(config: Config, default_store: str) -> Config:
    """The configuration, with the store's URL in it. Raises InputError."""
    store = store_url(config.daemon, default_store)
    return replace(config, daemon=replace(config.daemon, store=store, store_file=""))


def journal_from(config: Config, default_store: str) -> Journal:
    """The audit log: beside the store, unless the configuration names another place."""
    audit = config.audit
    path = Path(audit.file) if audit.file else state_folder(config, default_store) / "audit.jsonl"
    return Journal(
        path=path, max_bytes=audit.max_mib << 20, max_age_s=audit.max_days * 86_400, keep=audit.keep
    )


def state_folder(config: Config, default_store: str) -> Path:
    """Where the store is if it is a file, else where ``default_store`` would be. Raises InputError."""
    return (
        store_path(config.daemon.store) or store_path(default_store) or Path("mirage.db")
    ).parent


def store_path(url: str) -> Path | None:
    """The file of a store; None: it is on a server, or in memory. Raises InputError."""
    parsed = parse_url(url)
    return file_of(parsed) if parsed.get_backend_name() == "sqlite" else None


def _opener(socket: str) -> OpenPage:
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
