"""What groups of verbs share, such as `mirage place train`: their parser, durations, packages."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Callable, Iterable
from typing import Any

from rich.console import Console

from mirage.chain.durations import parse_duration
from mirage.config import MOST
from mirage.errors import InputError

errors = Console(stderr=True, highlight=False, soft_wrap=True, emoji=False)
Verb = tuple[
    str, Callable[[argparse.ArgumentParser], None], Callable[[argparse.Namespace], Any], str
]
"""Name, what adds its options, what does it, and what it does in words."""


def add_verbs(parser: argparse.ArgumentParser, verbs: Iterable[Verb]) -> None:
    """The verbs of a group; the chosen one is `subverb`, and `act` does it."""
    subparsers = parser.add_subparsers(dest="subverb", required=True, metavar="WHAT")
    for name, add, act, summary in verbs:
        sub = subparsers.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        add(sub)
        sub.set_defaults(act=act)


def seconds(text: str) -> int:
    """For argparse: `300`, or a duration as `90s`, `5min`, `2h`; from 1 s on."""
    try:
        found = int(text) if text.isdecimal() else parse_duration(text)
    except ValueError:
        found = 0
    if not 1 <= found <= MOST:
        raise argparse.ArgumentTypeError(
            f"expected seconds above 0, or a duration as 90s, 1m, 10min, 2h; got {text!r}"
        )
    return found


def announcer() -> Callable[[str], None]:
    """Says on a terminal what is being done."""
    return (lambda text: errors.print(text)) if errors.is_terminal else (lambda _: None)


def needs(extra: str, *packages: str) -> None:
    """Raises InputError where a package is missing. Small networks are slower on several cores, so
    torch gets one.
    """
    try:
        modules = {package: importlib.import_module(package) for package in packages}
    except ImportError as error:
        raise InputError(
            f"this needs {' and '.join(packages)} ({error}): pip install 'mirage-slurm[{extra}]'."
        ) from error
    if "torch" in modules:
        modules["torch"].set_num_threads(1)
