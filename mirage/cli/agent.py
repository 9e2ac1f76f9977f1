"""`mirage agent`: the same loop as a plain user, for that user's own chains. Needs no rights and no configuration."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirage.cli import serve
from mirage.cli.sources import agent_folder, agent_store, me
from mirage.domain import ActingMode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", type=Path, metavar="FILE", help="TOML (docs/configuration.md)")
    serve.add_arguments(parser, ActingMode.ENFORCE)


def run(args: argparse.Namespace) -> int:
    config = serve.configured(args, agent_store())
    acting = serve.acting_from(config.acting, ActingMode.ENFORCE, agent_folder() / "disabled")
    journal = serve.journal_from(config, agent_store())
    return serve.serve(args, config, acting, journal, only_user=me(), socket="")
