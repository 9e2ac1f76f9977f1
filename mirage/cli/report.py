"""`mirage report --weeks N`: what the service was worth, from its audit log."""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.table import Table

from mirage.apps.places import DEFAULT_STORE, journal_from, settled
from mirage.chain.durations import format_duration
from mirage.cli.table import console
from mirage.config import Config
from mirage.config_sources import SITE_FILE, is_there, load, named_file, user_file
from mirage.daemon.drift import WINDOW_S, drift
from mirage.daemon.impact import Impact, impact, is_audit_log
from mirage.daemon.impact_words import hours, sentences
from mirage.errors import AuditError
from mirage.store.journal import read_journal
from mirage.user.service_check import default_agent_store
from mirage.user.sources import find_chains, find_services
from slurm_sim.seconds import WEEK_S


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--weeks",
        type=_weeks,
        default=1,
        metavar="N",
        help="length of the period until now, in weeks (default %(default)s)",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="configuration of the daemon, as TOML"
    )
    parser.add_argument(
        "--audit",
        type=Path,
        metavar="FILE",
        help="audit log, if not where the configuration says",
    )
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def _weeks(text: str) -> int:
    if not text.isdecimal() or not 0 < int(text) <= 520:
        raise argparse.ArgumentTypeError(f"expected a number of weeks from 1 to 520, got {text!r}")
    return int(text)


def run(args: argparse.Namespace) -> int:
    config = load(
        named_file(args.config),
        SITE_FILE if named_file(args.config) or is_there(SITE_FILE) else user_file(),
    ).config
    until_s = int(time.time()) + 1
    since_s = until_s - args.weeks * WEEK_S
    path = args.audit or audit_file(config, of_daemon=args.config is not None)
    found = read_impact(path, since_s, until_s, config.policy.timer.lead_s)
    fit = drift(read_journal(path, until_s - WINDOW_S), until_s)
    services = [] if args.audit else find_services(find_chains()[0], since_s)
    if args.json:
        period = {"audit": str(path), "since": since_s, "until": until_s}
        more = {"drift": fit.as_json(), "by_service": services}
        print(json.dumps(period | found.as_json() | more, indent=2))
        return 0
    console.print(f"The last {args.weeks} week{'s' * (args.weeks > 1)}, from {path}")
    if found.handovers:
        console.print(_costs(found))
    for line in (*sentences(found), fit.words):
        if line:
            console.print(escape(line))
    if services:
        console.print(_replicated(services))
    return 0


def read_impact(audit: Path, since_s: int, until_s: int, timer_lead_s: int) -> Impact:
    """As `impact`. Raises AuditError: it can't be read, or no line of it is an audit log's."""
    found = impact(read_journal(audit), since_s, until_s, timer_lead_s)
    if found.unreadable and not is_audit_log(read_journal(audit)):
        raise AuditError(f"{audit}: no line of it is one of an audit log. Name the service's.")
    return found


def audit_file(config: Config, *, of_daemon: bool) -> Path:
    """The daemon's log, or one's own agent's if there is one and no configuration was named."""
    own = journal_from(settled(config, default_agent_store()), default_agent_store()).path
    if not of_daemon and own.exists():
        return own
    return journal_from(settled(config, DEFAULT_STORE), DEFAULT_STORE).path


def _replicated(rows: Sequence[dict[str, Any]]) -> Table:
    """Services of several replicas, one a row."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("service", "owner", "ready", "wanted", "one up", "all up"):
        table.add_column(name, justify="left" if name in ("service", "owner") else "right")
    for row in rows:
        shares = (row[key] for key in ("uptime", "uptime_all"))
        up = ("-" if share is None else f"{share:.2%}" for share in shares)
        named = (row["service"], escape(row["user"]))
        table.add_row(*named, str(row["ready"]), str(row["wanted"]), *up)
    return table


def _costs(found: Impact) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for name in ("interrupted h", "too early h"):
        table.add_column(name, justify="right")
    with_mirage = (
        "with Mirage, had it acted" if found.only_observed else "every release carried out"
    )
    rows = (
        ("without Mirage (measured)" if found.only_observed else "measured", found.measured),
        ("reactive (estimated)", found.reactive),
        (f"timer {format_duration(found.timer_lead_s)} (estimated)", found.timer),
        (f"{with_mirage} (estimated)", found.policy),
    )
    for name, costs in rows:
        table.add_row(name, hours(costs.interruption_s), hours(costs.early_s))
    return table
