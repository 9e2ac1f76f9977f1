"""`mirage agent`: the same loop as a plain user, for that user's own chains. Needs no rights and no configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirage.cli import serve
from mirage.cli.sources import agent_store, me


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML (docs/configuration.md)")
    serve.add_arguments(parser)


def run(args: argparse.Namespace) -> int:
    config = serve.configured(args, agent_store())
    return serve.serve(args, config, only_user=me(), socket="")
