"""`mirage agent`: the same loop as a plain user, for that user's own chains. Needs no rights and no
configuration.
"""

from __future__ import annotations

import argparse

from mirage.cli import serve
from mirage.cli.service_check import agent_folder, default_agent_store
from mirage.cli.sources import me
from mirage.config_sources import user_file
from mirage.daemon.restraint import acting_from
from mirage.domain import ActingMode


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serve.add_arguments(parser, "~/.config/mirage/mirage.toml", ActingMode.ENFORCE)


def run(args: argparse.Namespace) -> int:
    loaded = serve.configured(args, user_file(), default_agent_store())
    acting = acting_from(loaded.config.acting, ActingMode.ENFORCE, agent_folder() / "disabled")
    journal = serve.journal_from(loaded.config, default_agent_store())
    return serve.run(args, loaded, acting, journal, only_user=me(), socket="")
