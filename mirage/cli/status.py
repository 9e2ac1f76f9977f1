"""`mirage status [CHAIN]`."""

from __future__ import annotations

import argparse
import json
import time

from rich.markup import escape

from mirage.cli.chain_argument import add_chain
from mirage.cli.table import console, heading, remarks, states_table
from mirage.daemon.report import BAD_DAYS, SHOWN, is_news
from mirage.domain import ChainState
from mirage.user.chain_names import resolve_chain
from mirage.user.sources import Json, find_chains

MOST_LINKS = 6
"""Of a chain that was not asked for, the last ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "?", SHOWN)
    parser.add_argument("--all", action="store_true", help="chains that are over too")
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    chain_id = resolve_chain(args.chain) if args.chain else None
    reports, note = find_chains(chain_id)
    if not (args.all or args.chain):
        reports = [report for report in reports if is_news(report, time.time())]
    if args.json:
        print(json.dumps({"chains": reports, "note": note}, indent=2))
        return 0
    over = [report for report in reports if ChainState(report["state"]).is_over]
    running = [report for report in reports if report not in over]
    if not running and not chain_id:
        console.print("You have no running chain. Start one: mirage-submit SCRIPT")
    for report in running:
        _show(report, bool(chain_id))
    if over and not (args.all or chain_id):
        console.print(f"[bold]Ended badly within {BAD_DAYS} days[/]")
    for report in over:
        _show(report, bool(chain_id))
    if note:
        console.print(escape(note))
    return 0


def _show(report: Json, asked: bool) -> None:
    console.print(heading(report))
    console.print(states_table(report, None if asked else MOST_LINKS))
    if not asked and (more := len(report["links"]) - MOST_LINKS) > 0:
        links = f"{more} earlier link{'' if more == 1 else 's'}"
        console.print(f"and {links}: mirage status {report['chain']}")
    for remark in [*remarks(report), report["next"]]:
        console.print(escape(remark))
    console.print()
