"""What `mirage daemon` and `mirage agent` share: options, logging, the store, the loop."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from mirage.apps.service import all_that_holds, check, opener
from mirage.cli.groups import seconds
from mirage.config_sources import (
    Key,
    LoadedConfig,
    load,
    named_file,
    show,
    store_url,
    with_store,
)
from mirage.daemon.app import ServiceOptions, serve
from mirage.daemon.observers import Observer
from mirage.daemon.restraint import Acting
from mirage.daemon.socket import closed_folder
from mirage.domain import ActingMode
from mirage.provision.policies.registry import POLICIES
from mirage.store.journal import Journal


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
        type=seconds,
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
            "rule that says when a successor is released (default: goodput for training chains,"
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
        print(show(all_that_holds(loaded, acting, journal, socket)), end="")
        return 0
    if args.check:
        check(loaded.config, socket)
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
        open_page=opener(socket) if loaded.config.daemon.web and not args.once else None,
        once=args.once,
        observers=observers,
    )
    return 0 if serve(options) else 1
