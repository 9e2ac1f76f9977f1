"""`mirage daemon`: the site's service."""

from __future__ import annotations

import argparse

from mirage.apps.places import DEFAULT_STORE, journal_from
from mirage.cli import serve
from mirage.config_sources import SITE_FILE
from mirage.daemon.restraint import acting_from
from mirage.domain import ActingMode
from mirage.errors import StoreError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    serve.add_arguments(parser, str(SITE_FILE), ActingMode.OBSERVE)


def run(args: argparse.Namespace) -> int:
    loaded = serve.configured(args, SITE_FILE, DEFAULT_STORE)
    acting = acting_from(loaded.config.acting, ActingMode.OBSERVE)
    journal = journal_from(loaded.config, DEFAULT_STORE)
    socket = loaded.config.daemon.socket
    try:
        return serve.run(args, loaded, acting, journal, only_user=None, socket=socket)
    except StoreError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
        raise StoreError(f"{error} For your own chains alone: mirage agent") from error
