"""`mirage logs CHAIN [-f] [--link K]`: the output of all links, in order."""

from __future__ import annotations

import argparse
import sys

from mirage.cli.chain_argument import add_chain, for_each_replica
from mirage.errors import InputError
from mirage.user.chain_names import own_folder, resolve_chain
from mirage.user.output import ChainOutput, follow


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser)
    parser.add_argument(
        "-f",
        "--follow",
        action="store_true",
        help="go on with what is written, until the chain is over",
    )
    parser.add_argument("--link", type=_segment, metavar="K", help="output of link K only")


def _segment(text: str) -> int:
    if not text.isascii() or not text.isdecimal() or not 1 <= len(text) <= 4:
        raise argparse.ArgumentTypeError(f"expected the number of a link, got {text!r}")
    return int(text)


@for_each_replica("chain", alone="follow")
def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    folder = own_folder(args.chain)
    chain = ChainOutput(folder, args.link)
    chain.ask_slurm()
    if not args.follow and not chain.files():
        which = f"link {args.link}" if args.link else "no link"
        raise InputError(
            f"chain {args.chain}: {which} has {'not ' if args.link else ''}started, so it wrote"
            " nothing yet"
        )
    chain.show()
    if args.follow:
        follow(chain)
    for words in chain.missing():
        print(f"mirage logs: {words}", file=sys.stderr)
    return 0
