"""`mirage status [CHAIN]`."""

from __future__ import annotations

import argparse
import json

from rich.markup import escape

from mirage.cli.sources import find_chains
from mirage.cli.table import console, links_table, remarks


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("chain", nargs="?", help="only this chain (default: all that are not over)")
    parser.add_argument("--all", action="store_true", help="chains that are over too")
    parser.add_argument("--json", action="store_true", help="for programs (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    reports, note = find_chains(args.chain)
    if not (args.all or args.chain):
        reports = [report for report in reports if report["state"] in ("active", "paused")]
    if args.json:
        print(json.dumps({"chains": reports, "note": note}, indent=2))
        return 0
    if not reports:
        console.print("You have no running chain. Start one: mirage-submit --segments N SCRIPT")
    for report in reports:
        console.print(f"[bold]chain {report['chain']}[/] {report['state']} ({report['mode']}, {report['user']})")
        console.print(links_table(report))
        for remark in [*remarks(report), report["next"]]:
            console.print(escape(remark))
        console.print()
    if note:
        console.print(escape(note))
    return 0
