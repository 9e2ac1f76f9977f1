"""`mirage agent`: the same loop as a plain user, for that user's own chains. Needs no rights and no
configuration.
"""

from __future__ import annotations

import argparse
import time
from contextlib import nullcontext

from mirage.apps.places import journal_from
from mirage.cli import serve
from mirage.config_sources import user_file
from mirage.daemon.restraint import Acting, acting_from
from mirage.domain import ActingMode
from mirage.user.refused_links import QueuesRefused
from mirage.user.scaler import scale_once, scaling
from mirage.user.service_check import agent_folder, default_agent_store
from mirage.user.sources import me


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serve.add_arguments(parser, "~/.config/mirage/mirage.toml", ActingMode.ENFORCE)


def run(args: argparse.Namespace) -> int:
    loaded = serve.configured(args, user_file(), default_agent_store())
    acting = acting_from(loaded.config.acting, ActingMode.ENFORCE, agent_folder() / "disabled")
    journal = journal_from(loaded.config, default_agent_store())
    queuer = (QueuesRefused(acting),)
    is_service = not (args.once or args.check or args.print_config)
    with scaling(lambda: _may_act(acting)) if is_service else nullcontext():
        code = serve.run(args, loaded, acting, journal, only_user=me(), socket="", observers=queuer)
    if args.once and _may_act(acting):
        scale_once(int(time.time()))
    return code


def _may_act(acting: Acting) -> bool:
    return acting.mode is ActingMode.ENFORCE and not acting.disabled()
