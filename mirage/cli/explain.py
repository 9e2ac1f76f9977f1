"""`mirage explain JOB|CHAIN`."""

from __future__ import annotations

import argparse
import json
import re

from rich.markup import escape

from mirage.chain.tag import MAX_JOB_ID
from mirage.cli.chain_argument import for_each_replica
from mirage.cli.table import console, when
from mirage.errors import InputError
from mirage.user.chain_names import resolve_chain
from mirage.user.sources import find_explanation, job_of


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "job",
        metavar="JOB|CHAIN",
        help="job id of a link, or chain: its waiting link",
    )
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


@for_each_replica("job", alone="json")
def run(args: argparse.Namespace) -> int:
    found = find_explanation(_job(args.job))
    if args.json:
        print(json.dumps(found, indent=2))
        return 0
    console.print(escape(found["explanation"]))
    for release in found["releases"]:
        outcome = release["outcome"] or "not finished"
        detail = f" ({release['detail']})" if release["detail"] else ""
        console.print(escape(f"{when(release['at'])}  release: {outcome}{detail}"))
    return 0


def _job(text: str) -> int:
    """Raises InputError: neither a job nor a chain."""
    if re.fullmatch(r"\d+_(\d+|\[.*)", text):
        raise InputError(
            f"{text} is of a job array, which is no link of a chain: `mirage when {text}` says when it"
            " starts"
        )
    if not text.isdecimal():
        return job_of(resolve_chain(text))
    if not 0 < int(text) <= MAX_JOB_ID:
        raise InputError(f"expected a job id (1 to {MAX_JOB_ID}) or a chain, got {text!r}")
    return int(text)
