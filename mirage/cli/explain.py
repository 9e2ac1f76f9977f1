"""`mirage explain JOB`."""

from __future__ import annotations

import argparse
import json

from rich.markup import escape

from mirage.chain.tag import MAX_JOB_ID
from mirage.cli.sources import find_explanation
from mirage.cli.table import console, when


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("job", type=_job_id, metavar="JOB", help="job id of a link")
    parser.add_argument("--json", action="store_true", help="for programs (docs/cli.md)")


def _job_id(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= MAX_JOB_ID:
        raise argparse.ArgumentTypeError(f"expected a job id, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    found = find_explanation(args.job)
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    console.print(escape(found["explanation"]))
    for release in found["releases"]:
        outcome = release["outcome"] or "not finished"
        console.print(escape(f"{when(release['at'])}  release: {outcome}. {release['detail']}"))
    return 0
