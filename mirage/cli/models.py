"""`mirage models fetch`: trained models that are not in the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirage.cli.groups import add_verbs
from mirage.models.fetch import fetch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser, [("fetch", _add_fetch, _fetch, "model folders from the archive of a release")]
    )


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _add_fetch(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "source",
        metavar="SOURCE",
        help="archive mirage-models.tar: a file, or an address as https://mirror/mirage-models.tar",
    )
    parser.add_argument(
        "--out",
        type=Path,
        default=Path("models"),
        metavar="DIR",
        help="folder of the model folders (default: %(default)s)",
    )


def _fetch(args: argparse.Namespace) -> int:
    for folder in fetch(args.source, args.out):
        print(folder)
    return 0
