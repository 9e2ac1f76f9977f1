"""`mirage models fetch`: trained models that are not in the package."""

from __future__ import annotations

import argparse
from pathlib import Path

from mirage.models.fetch import fetch


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="models", required=True, metavar="VERB")
    summary = "model folders from the archive of a release"
    getting = verbs.add_parser("fetch", help=summary, description=summary.capitalize() + ".")
    getting.add_argument(
        "source",
        metavar="SOURCE",
        help="archive mirage-models.tar: a file, or an address as https://mirror/mirage-models.tar",
    )
    getting.add_argument(
        "--out",
        type=Path,
        default=Path("models"),
        metavar="DIR",
        help="folder of the model folders (default: %(default)s)",
    )


def run(args: argparse.Namespace) -> int:
    for folder in fetch(args.source, args.out):
        print(folder)
    return 0
