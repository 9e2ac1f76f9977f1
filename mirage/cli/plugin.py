"""`mirage plugin install|status|remove`: the job_submit plugin that routes jobs (docs/routing.md)."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import Any

from mirage.errors import ClusterError, InputError
from mirage.routing import plugin
from mirage.routing.table import AGENTS, STATE, read_agents, read_state

SCRIPT = Path("/etc/slurm/job_submit.lua")
RUN = Path("/run/mirage")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    verbs = parser.add_subparsers(dest="plugin_verb", required=True, metavar="WHAT")
    for name, act, summary in (
        (
            "install",
            _install,
            "put routing into the site's job_submit.lua; again after an upgrade of Mirage",
        ),
        ("status", _status, "whether routing is in place, and what it last read"),
        ("remove", _remove, "take routing out of job_submit.lua"),
    ):
        sub = verbs.add_parser(
            name, help=summary, description=summary[0].upper() + summary[1:] + "."
        )
        sub.add_argument(
            "--script",
            type=Path,
            default=SCRIPT,
            metavar="FILE",
            help="the site's job_submit.lua (default %(default)s)",
        )
        sub.set_defaults(act=act)
        if name != "remove":
            sub.add_argument(
                "--run",
                dest="folder",
                type=Path,
                default=RUN,
                metavar="DIR",
                help="folder of the published files (default %(default)s)",
            )
        if name == "install":
            _add_options(sub)
        if name == "status":
            sub.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def _add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--marker", default="", metavar="P", help="a partition whose jobs are routed too"
    )
    parser.add_argument(
        "--servers", action="store_true", help="choose the server too, not only the partition"
    )
    parser.add_argument(
        "--named",
        action="store_true",
        help="jobs that name a partition too: their server within it, if one has room",
    )
    parser.add_argument(
        "--counters",
        default="",
        metavar="FILE",
        help="counts for node_exporter's textfile collector",
    )


def run(args: argparse.Namespace) -> int:
    return int(args.act(args))


def _install(args: argparse.Namespace) -> int:
    options = plugin.PluginOptions(
        run=args.folder.absolute(),
        marker=args.marker,
        servers=args.servers,
        named=args.named,
        counters=args.counters,
    )
    for path in plugin.install(args.script.absolute(), options):
        print(f"written: {path}")
    print(
        "slurmctld reads it at the next submission. It needs JobSubmitPlugins=lua in slurm.conf; if"
        " that is new: `scontrol reconfigure`."
    )
    return 0


def _remove(args: argparse.Namespace) -> int:
    was_there = plugin.remove(args.script.absolute())
    print(
        f"{args.script}: "
        + ("routing taken out; the script stays" if was_there else "no routing in it")
    )
    return 0


def _status(args: argparse.Namespace) -> int:
    report = _report(args.script, args.folder)
    if args.json:
        print(json.dumps(report))
    else:
        for name, value in report.items():
            print(
                f"{name.replace('_', ' ')}:"
                f" {', '.join(value) if isinstance(value, list) else value}"
            )
    return 0 if report["routes"] else 1


def _report(script: Path, folder: Path) -> dict[str, Any]:
    report: dict[str, Any] = {
        "installed": plugin.is_installed(script),
        "outdated": plugin.outdated(script) if plugin.is_installed(script) else [],
        "job_submit_plugins": _plugins(),
    }
    report |= _published(folder)
    enabled = "lua" in report["job_submit_plugins"].split(",")
    whole = report["installed"] and not report["outdated"]
    report["routes"] = bool(whole and enabled and not report["problem"])
    return report


def _plugins() -> str:
    from mirage.slurm.commands import CommandCluster

    try:
        return CommandCluster().settings().parameters.get("JobSubmitPlugins", "")
    except ClusterError:
        return "unknown"


def _published(folder: Path) -> dict[str, Any]:
    try:
        agents, checksum = read_agents(folder / AGENTS)
        table, wanted = read_state(folder / STATE, [agent.kind for agent in agents])
    except InputError as error:
        return {"partitions": [], "age_s": None, "valid_s": None, "problem": str(error)}
    now_s = int(time.time())
    problem = "the state is stale: is the daemon running?" if table.is_stale(now_s) else ""
    if checksum != wanted:
        problem = f"{STATE} is for other agents than {AGENTS} has"
    names = [agent.kind.name for agent in agents]
    return {
        "partitions": names,
        "age_s": now_s - table.at_s,
        "valid_s": table.valid_s,
        "problem": problem,
    }
