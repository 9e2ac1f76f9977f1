"""`mirage dismiss CHAIN...`: puts chains that are over away, from `mirage status`, `top` and the page."""

from __future__ import annotations

import argparse
import time

from mirage.chain.folder import chain_folder, mark_dismissed
from mirage.cli.chain_argument import add_chain
from mirage.daemon.report import is_news
from mirage.daemon.socket import ask
from mirage.domain import ChainState
from mirage.errors import ClusterError, InputError
from mirage.figures.words import listed
from mirage.user.chain_names import resolve_chains
from mirage.user.service_check import socket_path
from mirage.user.sources import find_chains, me


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "*")
    parser.add_argument(
        "--all", action="store_true", help="all that are over and shown without being asked for"
    )


def run(args: argparse.Namespace) -> int:
    if args.all == bool(args.chain):
        raise InputError("which chains? Give the id or name of each, or --all.")
    chains = (
        _all_over() if args.all else [each for text in args.chain for each in resolve_chains(text)]
    )
    for chain in chains:
        if not _is_over(chain):
            raise InputError(f"chain {chain} is not over. To end it: mirage cancel {chain}")
    for chain in chains:
        _dismiss(chain)
    if not chains:
        print("No chain of yours that is over is shown.")
    return 0


def _all_over() -> list[str]:
    return [
        report["chain"]
        for report in find_chains()[0]
        if ChainState(report["state"]).is_over
        and report["user"] == me()
        and is_news(report, time.time())
    ]


def _is_over(chain: str) -> bool:
    return ChainState(find_chains(chain)[0][0]["state"]).is_over


def _dismiss(chain: str) -> None:
    folder, where = chain_folder(chain), list[str]()
    if folder.is_dir():
        try:
            mark_dismissed(folder, int(time.time()))
        except OSError as error:
            raise ClusterError(f"can't write to the chain's folder {folder}: {error}") from error
        where += ["status", "top"]
    try:
        ask(socket_path(), {"ask": "dismiss", "chain": chain})
        where.append("the daemon's page")
    except (OSError, ValueError, InputError):  # no daemon here, or it does not know the chain
        pass
    if not where:
        raise InputError(f"chain {chain}: {folder} is not there, and no daemon knows it.")
    shown = "`mirage status --all` still lists it"
    print(f"chain {chain} is put away from {listed(where)}; {shown}.")
