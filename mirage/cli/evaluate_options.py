"""Options that the kinds of `mirage evaluate` share."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from mirage.chain.durations import parse_duration
from mirage.cli.learning import (
    add_inputs,
    add_out,
    add_partition,
    add_workers,
    instant,
    sizes,
    words_of,
)
from slurm_sim.cli.arguments import whole_number

PLAN_NAMES = {
    "start": "start_s",
    "every": "every_s",
    "lasts": "lasts_s",
    "limit": "limit_s",
    "end": "end_s",
    "past": "past_s",
}
"""Options whose field in a plan has its unit."""
OF_THE_TERMINAL = ("verb", "subverb", "run", "act", "json")


def add_history(parser: argparse.ArgumentParser, models: str) -> None:
    """``models``: which folder it is."""
    group = parser.add_argument_group("input")
    add_inputs(group)
    group.add_argument("--models", type=Path, metavar="DIR", help=models)
    add_partition(group, "the one with most node-hours in the history")


def add_methods(group: argparse._ArgumentGroup, about: str, *, required: bool = False) -> None:
    group.add_argument(
        "--methods", required=required, type=words_of, metavar="NAME[,NAME]", help=about
    )
    add_workers(group)


def add_start(group: argparse._ArgumentGroup, about: str) -> None:
    group.add_argument(
        "--start",
        required=True,
        type=instant,
        metavar="TIME",
        help=f"{about}, as 2023-02-01T06:00, UTC",
    )


def add_every(group: argparse._ArgumentGroup, about: str) -> None:
    group.add_argument("--every", type=duration, metavar="D", help=about)


def add_shape(group: argparse._ArgumentGroup, nodes: str, limit: str) -> None:
    group.add_argument("--nodes", type=sizes, metavar="K[,K]", help=nodes)
    group.add_argument("--limit", type=duration, metavar="D", help=f"{limit} (default: 48h)")


def add_output(parser: argparse.ArgumentParser, files: str, of_seed: str) -> None:
    group = parser.add_argument_group("output")
    group.add_argument(
        "--seed",
        type=_seed,
        default=1,
        metavar="N",
        help=f"seed of {of_seed} (default: %(default)s)",
    )
    add_out(group, f"folder of {files}")
    group.add_argument(
        "--json", action="store_true", help="print the figures as JSON (docs/evaluation.md)"
    )


def duration(text: str) -> int:
    """For argparse: seconds, at least a minute."""
    try:
        seconds = parse_duration(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from error
    if seconds < 60:
        raise argparse.ArgumentTypeError(f"expected at least a minute, got {text!r}")
    return seconds


def _seed(text: str) -> int:
    if (number := whole_number(text)) < 0:
        raise argparse.ArgumentTypeError(f"expected a number from 0, got {text!r}")
    return number


def plan_of(args: argparse.Namespace, *apart: str) -> dict[str, Any]:
    """The fields of a plan that were given; those in ``apart`` are the caller's."""
    return {
        PLAN_NAMES.get(name, name): value
        for name, value in vars(args).items()
        if value is not None and name not in (*OF_THE_TERMINAL, *apart)
    }
