"""What the processes of all roles share: arguments, exit codes, a member's name."""

from __future__ import annotations

import argparse
import logging
import os
import signal
import socket
import sys
from collections.abc import Callable
from pathlib import Path

from mirage.errors import MirageError
from mirage.peers import allow_files


def parser(role: str, description: str) -> argparse.ArgumentParser:
    """The arguments of every role."""
    made = argparse.ArgumentParser(
        prog=f"python -m mirage.elastic.runtime.{role}", description=description
    )
    made.add_argument("--folder", type=Path, required=True, help="the job's folder")
    return made


def add_member_arguments(made: argparse.ArgumentParser, role: str) -> None:
    """The arguments of servers and workers."""
    made.add_argument("--name", default=default_name(role), help="the member's name in the job")
    made.add_argument(
        "--orphan",
        type=float,
        default=900.0,
        metavar="SECONDS",
        help="time without a coordinator until it ends",
    )


def default_name(role: str) -> str:
    """A name that no other member has."""
    return f"{role}-{socket.gethostname().partition('.')[0][:32]}-{os.getpid()}"


def run(role: str, work: Callable[[argparse.Namespace], None], given: argparse.Namespace) -> int:
    """The exit code: 0, or that of the error, which is one line on standard error."""
    allow_files()
    logging.basicConfig(format=f"{role}: %(message)s", level=logging.WARNING)
    try:
        work(given)
    except MirageError as error:
        sys.stderr.write(f"{role}: {error}\n")
        return error.exit_code
    except KeyboardInterrupt:
        return 130
    return 0


def on_terminate(react: Callable[[], None]) -> None:
    """SIGTERM, as Slurm sends it before it preempts or cancels, does this instead of ending."""
    signal.signal(signal.SIGTERM, lambda _number, _frame: react())
