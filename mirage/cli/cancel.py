"""`mirage cancel CHAIN...`, `mirage cancel --all`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from mirage.chain.folder import CANCELLED
from mirage.chain.service import forget_service, is_service
from mirage.cli.chain_argument import add_chain
from mirage.errors import InputError
from mirage.ports import Cluster
from mirage.user.chain_names import replicas_of, resolve_chains
from mirage.user.ending import ChainEnding, end_chains, jobs_of, queue
from mirage.user.folders import name_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "*")
    parser.add_argument(
        "--all",
        action="store_true",
        help="all your chains that have a job in the queue; asks first",
    )
    parser.add_argument("--yes", action="store_true", help="with --all: do not ask")


def run(args: argparse.Namespace) -> int:
    if args.all == bool(args.chain):
        raise InputError(
            "which chains? Give the id of each, as mirage-submit printed it, or --all."
        )
    cluster = queue()
    services = [text for text in args.chain if is_service(text)]
    for name in services:  # before its replicas end, so that nothing starts others
        forget_service(name)
        print(f"service {name} is cancelled")
    named = [text for text in args.chain if text not in services or replicas_of(text)]
    chains = (
        _all(cluster, args.yes)
        if args.all
        else list(dict.fromkeys(chain for text in named for chain in resolve_chains(text)))
    )
    if not chains:
        return 0
    for chain, ended in end_chains(
        cluster, chains, CANCELLED, "cancelled by its owner", running_too=True
    ).items():
        print(_words(chain, ended))
    return 0


def _all(cluster: Cluster, sure: bool) -> Sequence[str]:
    """One's chains that have a job in the queue; none if one is not sure."""
    jobs = jobs_of(cluster)
    chains = sorted(jobs)
    if not chains:
        print("No chain of yours has a job in the queue.")
        return []
    print(f"{len(chains)} chain{'s' if len(chains) > 1 else ''}:")
    for chain in chains:
        print(
            " ",
            *filter(None, (chain, name_of(chain))),
            "jobs",
            *(job.job_id for job in jobs[chain]),
        )
    if sure:
        return chains
    if not sys.stdin.isatty():
        raise InputError("`cancel --all` asks first, and there is no terminal to ask at: add --yes")
    print("Cancel them all? [y/N] ", end="", flush=True)
    if sys.stdin.readline().strip().lower() not in ("y", "yes"):
        print("Nothing was cancelled.")
        return []
    return chains


def _words(chain: str, ended: ChainEnding) -> str:
    what = f"ended job{'s' if len(ended.jobs) > 1 else ''} {', '.join(map(str, ended.jobs))}"
    what = what if ended.jobs else "it had no job left"
    if ended.over:
        return f"chain {chain} was over already ({ended.over[0]}: {ended.over[1]}); {what}"
    return f"chain {chain} is cancelled: {what}"
