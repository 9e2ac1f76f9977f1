"""`mirage top`: your chains, live in the terminal (textual, extra `top`)."""

from __future__ import annotations

import argparse
import sys

from mirage.cli.groups import seconds
from mirage.errors import InputError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--every",
        type=_seconds,
        default=10,
        metavar="D",
        help="time between two looks, from 2 s to 1 h (default 10s)",
    )
    parser.add_argument("--all", action="store_true", help="chains that are over too")
    parser.epilog = (
        "Keys: arrows choose a chain, r looks now, a shows chains that are over, q quits. Chains"
        " that need attention are first."
    )


def _seconds(text: str) -> int:
    found = seconds(text)
    if not 2 <= found <= 3600:
        raise argparse.ArgumentTypeError(f"expected 2s to 1h, got {text!r}")
    return found


def run(args: argparse.Namespace) -> int:
    from mirage.cli.top_view import TopView
    from mirage.user.sources import find_chains

    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise InputError("it needs a terminal: use `mirage status` where there is none")
    TopView(find_chains, every_s=args.every, show_all=args.all).run()
    return 0
