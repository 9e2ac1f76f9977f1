"""`mirage web`: a link to the daemon's web page, for oneself."""

from __future__ import annotations

import argparse
import json
import os
import socket
from pathlib import Path
from urllib.parse import urlsplit

from mirage.config import DaemonConfig
from mirage.daemon.socket import ask
from mirage.errors import MirageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Prints a link to the daemon's web page (docs/web.md). It works once, for two minutes, and"
        " opens your own chains for twelve hours; root sees all chains."
    )
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    path = Path(os.environ.get("MIRAGE_SOCKET") or DaemonConfig.socket)
    try:
        answer = ask(path, {"ask": "web"})
    except (OSError, ValueError) as error:
        raise MirageError(
            f"no daemon answers at {path} ({error}). The page is the site daemon's: run this on its"
            " machine, or name its socket with MIRAGE_SOCKET. `mirage status` works without."
        ) from error
    if args.json:
        print(json.dumps(answer, indent=2))
        return 0
    parts = urlsplit(answer["url"])
    print(answer["url"])
    print(
        f"It works once, within two minutes, and shows {'your' if answer['user'] else 'all'} chains."
        f" Your browser must run on this machine, or reach it: ssh -L {parts.port}:{parts.netloc}"
        f" {socket.gethostname()}"
    )
    return 0
