"""`mirage done [CHAIN]`: inside a job, the chain is known from the environment."""

from __future__ import annotations

import argparse
import os
from collections.abc import Sequence

from mirage.chain.folder import DONE, chain_folder, read_then
from mirage.chain.service import forget_service, is_service
from mirage.cli.chain_argument import add_chain
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chains
from mirage.user.ending import end_chains, queue


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "?", "inside a link's job, that job's chain")


def run(args: argparse.Namespace) -> int:
    name = args.chain or os.environ.get("MIRAGE_CHAIN_ID")
    if not name:
        raise InputError(
            "which chain? Give its id, as mirage-submit printed it, or run this inside a link's"
            " job."
        )
    chains = resolve_chains(name) if args.chain else [name]
    if is_service(name):
        forget_service(name)
        print(f"service {name} is done")
    found = end_chains(queue(), chains, DONE, "said to be done by its owner", running_too=False)
    for chain, ending in found.items():
        _show(chain, ending.jobs)
    return 0


def _show(chain: str, ended: Sequence[int]) -> None:
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
