"""`mirage elastic run|status|stop`: elastic training jobs (docs/elastic-jobs.md)."""

from __future__ import annotations

import argparse

from mirage.cli import elastic_jobs


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="elastic_verb", required=True, metavar="WHAT")
    for name, add, act, summary in elastic_jobs.VERBS:
        sub = verbs.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        add(sub)
        sub.set_defaults(act=act)


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))
