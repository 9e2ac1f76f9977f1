"""`mirage cancel CHAIN`."""

from __future__ import annotations

import argparse

from mirage.chain.folder import CANCELLED, chain_folder, over_marker
from mirage.cli.ending import end_chain


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chain", help="chain id, as mirage-submit printed it")


def run(args: argparse.Namespace) -> int:
    over = over_marker(chain_folder(args.chain))
    ended = end_chain(args.chain, CANCELLED, "cancelled by its owner", running_too=True)
    what = f"ended job{'s' if len(ended) > 1 else ''} {', '.join(map(str, ended))}" if ended else "it had no job left"
    print(
        f"chain {args.chain} was over already ({over[0]}: {over[1]}); {what}"
        if over
        else f"chain {args.chain} is cancelled: {what}"
    )
    return 0
