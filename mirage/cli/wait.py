"""`mirage wait CHAIN`: until the chain is over and none of its links runs any more."""

from __future__ import annotations

import argparse
import sys
import time

from mirage.chain.durations import parse_duration
from mirage.chain.folder import DONE, chain_folder, over_marker
from mirage.cli.chain_argument import add_chain, for_each_replica
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.slurm_access import adapter_config, slurm_of
from mirage.user.waiting import unmarked, wait_until_over

TIMED_OUT = 124
"""As timeout(1)."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser)
    parser.add_argument(
        "--timeout",
        type=_duration,
        metavar="D",
        help=f"give up after D, with exit code {TIMED_OUT}",
    )
    parser.epilog = (
        "Exit codes: 0 the chain is done, 1 it failed, was cancelled, used up its links or has none"
        " left, 2 it is not known."
    )


def _duration(text: str) -> int:
    try:
        return parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error


@for_each_replica("chain")
def run(args: argparse.Namespace) -> int:
    args.chain = resolve_chain(args.chain)
    folder = chain_folder(args.chain)
    if not folder.is_dir():
        raise InputError(
            f"chain {args.chain}: {folder} is not there. `mirage status` lists your chains."
        )
    cluster = slurm_of(adapter_config())
    until_s = None if args.timeout is None else time.monotonic() + args.timeout
    if not wait_until_over(folder, cluster, until_s, _complain):
        print(f"mirage wait: chain {args.chain} is not over yet", file=sys.stderr)
        return TIMED_OUT
    marker, reason = over_marker(folder) or unmarked(args.chain, folder)
    print(
        f"chain {args.chain} is {marker}: {reason}",
        file=sys.stdout if marker == DONE else sys.stderr,
    )
    return 0 if marker == DONE else 1


def _complain(words: str) -> None:
    print(f"mirage wait: {words}", file=sys.stderr)
