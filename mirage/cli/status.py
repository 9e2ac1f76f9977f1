"""`mirage status [CHAIN]`."""

from __future__ import annotations

import argparse
import json
import time

from rich.markup import escape

from mirage.chain.service import is_service
from mirage.cli.chain_argument import add_chain
from mirage.cli.table import console, heading, remarks, services_table, states_table
from mirage.daemon.report import BAD_DAYS, SHOWN, is_news
from mirage.daemon.services import in_words
from mirage.domain import ChainState
from mirage.user.chain_names import replicas_of, resolve_chains
from mirage.user.sources import Json, find_chains, find_services

MOST_LINKS = 6
"""Of a chain that was not asked for, the last ones."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "?", SHOWN)
    parser.add_argument("--all", action="store_true", help="chains that are over too")
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    asked = _asked(args.chain)
    chain_id = asked[0] if len(asked) == 1 else None
    reports, note = find_chains(chain_id)
    services = find_services(reports)
    if args.chain:
        reports = [report for report in reports if report["chain"] in asked]
        services = [row for row in services if row["service"] == args.chain]
    if not (args.all or args.chain):
        reports = [report for report in reports if is_news(report, time.time())]
    if args.json:
        print(json.dumps({"services": services, "chains": reports, "note": note}, indent=2))
        return 0
    over = [report for report in reports if ChainState(report["state"]).is_over]
    running = [report for report in reports if report not in over]
    for row in services:
        _show_service(row)
    if not args.chain:  # each of these has its row
        running = [report for report in running if not report["replica"]]
    if not running and not services and not asked:
        console.print("You have no running chain. Start one: mirage-submit SCRIPT")
    for report in running:
        _show(report, bool(asked))
    if over and not (args.all or asked):
        console.print(f"[bold]Ended badly within {BAD_DAYS} days[/]")
    for report in over:
        _show(report, bool(asked))
    if note:
        console.print(escape(note))
    return 0


def _asked(text: str | None) -> list[str]:
    """Ids of the chains that are meant; none too of a service without a replica."""
    if not text or (is_service(text) and not replicas_of(text)):
        return []
    return resolve_chains(text)


def _show_service(row: Json) -> None:
    console.print(f"[bold]service {row['service']}[/] ({escape(row['user'])}): {in_words(row)}")
    if row["replicas"]:
        console.print(services_table(row))
    console.print()


def _show(report: Json, asked: bool) -> None:
    console.print(heading(report))
    console.print(states_table(report, None if asked else MOST_LINKS))
    if not asked and (more := len(report["links"]) - MOST_LINKS) > 0:
        links = f"{more} earlier link{'' if more == 1 else 's'}"
        console.print(f"and {links}: mirage status {report['chain']}")
    for remark in [*remarks(report), report["next"]]:
        console.print(escape(remark))
    console.print()
