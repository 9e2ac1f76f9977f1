"""What `mirage daemon` and `mirage agent` share: options, logging, the store, the loop."""

from __future__ import annotations

import argparse
import contextlib
import logging
import sys
from dataclasses import replace
from pathlib import Path

from mirage.config import Config, load_config
from mirage.daemon.app import Daemon
from mirage.daemon.scheduler import WallClock, run_forever
from mirage.daemon.socket import serving
from mirage.provision.registry import POLICIES, make_policy
from mirage.slurm.commands import CommandCluster
from mirage.store.lock import exclusive
from mirage.store.repository import SqlStore


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--poll", type=_seconds, metavar="SECONDS", help="seconds between two cycles (default 600)")
    parser.add_argument("--policy", choices=list(POLICIES), help="when a successor is let in (default: quantile)")
    parser.add_argument("--once", action="store_true", help="one cycle, then exit: 1 if Slurm or the store failed")
    parser.add_argument("--verbose", action="store_true", help="log details too")


def _seconds(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a number of seconds above 0, got {text!r}")
    return int(text)


def configured(args: argparse.Namespace, default_store: str) -> Config:
    """The configuration file, with what the command line says instead. Raises InputError."""
    config = load_config(args.config)
    daemon = replace(
        config.daemon, poll_s=args.poll or config.daemon.poll_s, store=config.daemon.store or default_store
    )
    return replace(config, daemon=daemon, policy=replace(config.policy, name=args.policy or config.policy.name))


def serve(args: argparse.Namespace, config: Config, *, only_user: str | None, socket: str) -> int:
    """Runs until told to stop. Raises MirageError if it can't start."""
    logging.basicConfig(
        level=logging.DEBUG if args.verbose else logging.INFO,
        format="%(asctime)s %(levelname)s %(name)s: %(message)s",
        stream=sys.stderr,
    )
    logging.getLogger("alembic").setLevel(logging.WARNING)
    policy = make_policy(config.policy)
    with contextlib.ExitStack() as stack:
        stack.enter_context(exclusive(_lock_file(config.daemon.store)))
        store = stack.enter_context(SqlStore.open(config.daemon.store))
        daemon = Daemon(
            CommandCluster.from_config(config.cluster),
            store,
            WallClock(),
            policy,
            poll_s=config.daemon.poll_s,
            only_user=only_user,
        )
        if args.once:
            return 0 if daemon.run_cycle() else 1
        if socket:
            stack.enter_context(serving(Path(socket), store))
        logging.getLogger(__name__).info(
            "started: policy %s, a cycle every %d s, store %s, socket %s",
            policy.name,
            config.daemon.poll_s,
            config.daemon.store,
            socket or "none",
        )
        run_forever(daemon.run_cycle, config.daemon.poll_s)
        logging.getLogger(__name__).info("stopped")
    return 0


def _lock_file(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///")).with_suffix(".lock")
