"""The argument CHAIN of a verb."""

from __future__ import annotations

import argparse


def add_chain(parser: argparse.ArgumentParser, nargs: str | None = None, default: str = "") -> None:
    """The argument `CHAIN` of a verb. ``default``: what happens without it, in words."""
    parser.add_argument(
        "chain",
        nargs=nargs,
        metavar="CHAIN",
        help="chain: its id or the beginning of it, its job name, or the id of one of its jobs"
        + (f" (default: {default})" if default else ""),
    )
