"""`mirage daemon`: the site's service."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirage.cli import serve
from mirage.domain import ActingMode

DEFAULT_STORE = "sqlite:////var/lib/mirage/mirage.db"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML (docs/configuration.md)")
    serve.add_arguments(parser, ActingMode.OBSERVE)


def run(args: argparse.Namespace) -> int:
    config = serve.configured(args, DEFAULT_STORE)
    acting = serve.acting_from(config.acting, ActingMode.OBSERVE)
    journal = serve.journal_from(config, DEFAULT_STORE)
    return serve.serve(args, config, acting, journal, only_user=None, socket=config.daemon.socket)
