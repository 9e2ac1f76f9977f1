"""`mirage done [CHAIN]`: inside a job, the chain is known from the environment."""

from __future__ import annotations

import argparse
import os

from mirage.chain.folder import DONE, chain_folder, read_then
from mirage.cli.chain_argument import add_chain
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.ending import end_chains, queue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "?", "inside a link's job, that job's chain")


def run(args: argparse.Namespace) -> int:
    chain = resolve_chain(args.chain) if args.chain else os.environ.get("MIRAGE_CHAIN_ID")
    if not chain:
        raise InputError(
            "which chain? Give its id, as mirage-submit printed it, or run this inside a link's"
            " job."
        )
    ended = end_chains(queue(), [chain], DONE, "said to be done by its owner", running_too=False)[
        chain
    ].jobs
    gone = (
        f"; cancelled successor{'s' if len(ended) > 1 else ''} {', '.join(map(str, ended))}"
        if ended
        else ""
    )
    print(f"chain {chain} is done{gone}")
    for then in read_then(chain_folder(chain)):
        print(
            f"{f'job {then.job_id}' if then.job_id else 'to be queued by its last link'} follows"
            f" it: {then.script}"
        )
    return 0
