"""The argument CHAIN of a verb."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from functools import wraps

from mirage.errors import InputError, MirageError
from mirage.user.chain_names import replicas_of

Run = Callable[[argparse.Namespace], int]


def add_chain(parser: argparse.ArgumentParser, nargs: str | None = None, default: str = "") -> None:
    """The argument `CHAIN` of a verb. ``default``: what happens without it, in words."""
    parser.add_argument(
        "chain",
        nargs=nargs,
        metavar="CHAIN",
        help="chain: its id or the beginning of it, its job name, the id of one of its jobs, or a"
        " service: its name (all replicas), NAME:2 (one)"
        + (f" (default: {default})" if default else ""),
    )


def for_each_replica(argument: str, alone: str = "") -> Callable[[Run], Run]:
    """A verb of one chain, for all replicas where it is given a service's name. One that fails does
    not keep the others from it; the exit code is the first one's that failed.

    ``argument``: which one names the chain. ``alone``: an option with which it takes one replica.
    """

    def of_service(run_one: Run) -> Run:
        @wraps(run_one)
        def run(args: argparse.Namespace) -> int:
            name = getattr(args, argument)
            replicas = replicas_of(name)
            if not replicas:
                return run_one(args)
            if alone and getattr(args, alone):
                raise InputError(
                    f"--{alone} takes one replica, such as {name}:{replicas[0].number}"
                )
            failed = 0
            for one in replicas:
                print(f"replica {one.number} of service {name}:", flush=True)
                setattr(args, argument, one.chain_id)
                try:
                    code = run_one(args)
                except MirageError as error:
                    print(f"mirage {args.verb}: {error}", file=sys.stderr)
                    code = error.exit_code
                failed = failed or code
            return failed

        return run

    return of_service
