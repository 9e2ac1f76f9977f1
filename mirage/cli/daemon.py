"""`mirage daemon`: the site's service."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirage.cli import serve

DEFAULT_STORE = "sqlite:////var/lib/mirage/mirage.db"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML (docs/configuration.md)")
    serve.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    config = serve.configured(args, DEFAULT_STORE)
    return serve.serve(args, config, only_user=None, socket=config.daemon.socket)
