"""`mirage history [CHAIN]`: what each handover cost."""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

from rich.markup import escape

from mirage.cli.chain_argument import add_chain
from mirage.cli.table import console, costs_table, duration, heading, remarks, wanted_words
from mirage.daemon.report import SHOWN, is_news
from mirage.user.chain_names import resolve_chains
from mirage.user.sources import find_chains


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_chain(parser, "?", SHOWN)
    parser.add_argument("--all", action="store_true", help="chains that are over too")
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def run(args: argparse.Namespace) -> int:
    asked = resolve_chains(args.chain) if args.chain else []
    reports, _note = find_chains(asked[0] if len(asked) == 1 else None)
    if asked:
        reports = [report for report in reports if report["chain"] in asked]
    if not (args.all or args.chain):
        reports = [report for report in reports if is_news(report, time.time())]
    summaries = [report | {"totals": _totals(report)} for report in reports]
    if args.json:
        print(json.dumps({"chains": summaries}, indent=2))
        return 0
    for report in summaries:
        console.print(heading(report))
        if report["reason"]:
            console.print(escape(report["reason"]))
        console.print(costs_table(report))
        for remark in remarks(report):
            console.print(escape(remark))
        totals = report["totals"]
        console.print(
            f"{totals['handovers']} handover{'s' * (totals['handovers'] != 1)}: interrupted for"
            f" {duration(totals['interruption_s'])} in all, overlapped for {duration(totals['overlap_s'])}"
            f" ({totals['node_hours_wasted']:.2f} node-hours); links gave up"
            f" {duration(totals['cut_short_s'])} of their time limits to early successors"
            f"{_up(report)}\n"
        )
    if not summaries:
        console.print("No chain of yours to show. With chains that are over: mirage history --all")
    return 0


def _up(report: dict[str, Any]) -> str:
    """Of a service that has been ready: for how much of the time it was; else empty."""
    service = report["service"]
    if not service or service["uptime"] is None:
        return ""
    return (
        f"; up for {service['uptime']:.2%}{wanted_words(service)} of {duration(service['wall_s'])},"
        f" never away for longer than {duration(service['longest_gap_s'])}"
    )


def _totals(report: dict[str, Any]) -> dict[str, Any]:
    links = report["links"]
    done = [link for link in links if link["overlap_s"] is not None]
    nodes = {link["job_id"]: link["nodes"] for link in links}
    return {
        "handovers": len(done),
        "interruption_s": sum(link["interruption_s"] or 0 for link in links),
        "overlap_s": sum(link["overlap_s"] for link in done),
        "cut_short_s": sum(link["cut_short_s"] for link in links),
        "node_hours_wasted": (
            sum(link["overlap_s"] * (nodes[link["predecessor"]] or 1) for link in done) / 3600
        ),
    }
