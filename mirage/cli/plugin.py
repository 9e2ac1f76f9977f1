"""`mirage plugin install|status|remove`: the job_submit plugin that routes jobs (docs/routing.md)."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mirage.cli.groups import add_verbs
from mirage.errors import InputError
from mirage.routing import plugin
from mirage.routing.plugin_status import UNKNOWN, parameter, status

CONF = "/etc/slurm/slurm.conf"
SCRIPT = "job_submit.lua"
"""slurmctld reads it in the folder of its slurm.conf."""
RUN = Path("/run/mirage")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_verbs(
        parser,
        (
            (
                "install",
                _add_install,
                _install,
                "put routing into the site's job_submit.lua; again after an upgrade of Mirage",
            ),
            ("status", _add_status, _status, "whether routing is in place, and what it last read"),
            ("remove", _add_script, _remove, "take routing out of job_submit.lua"),
        ),
    )


def _add_script(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--script",
        type=Path,
        metavar="FILE",
        help="the site's job_submit.lua (default: beside slurm.conf, as $SLURM_CONF or slurmctld says)",
    )


def _add_folders(parser: argparse.ArgumentParser) -> None:
    _add_script(parser)
    parser.add_argument(
        "--run",
        dest="folder",
        type=Path,
        default=RUN,
        metavar="DIR",
        help="folder of the published files (default %(default)s)",
    )


def _add_status(parser: argparse.ArgumentParser) -> None:
    _add_folders(parser)
    parser.add_argument("--json", action="store_true", help="output as JSON (docs/cli.md)")


def _add_install(parser: argparse.ArgumentParser) -> None:
    _add_folders(parser)
    parser.add_argument(
        "--marker", default="", metavar="P", help="a partition whose jobs are routed too"
    )
    parser.add_argument(
        "--named",
        action="store_true",
        help="servers, by the paper's agents, for jobs that name a partition",
    )
    parser.add_argument(
        "--counters",
        default="",
        metavar="FILE",
        help="counts for node_exporter's textfile collector",
    )


def run(args: argparse.Namespace) -> int:
    args.script = args.script or _beside_conf()
    return int(args.act(args))


def _beside_conf() -> Path:
    """Raises InputError: nothing says where slurm.conf lies."""
    known = os.environ.get("SLURM_CONF") or parameter("SLURM_CONF")
    conf = Path(known or CONF)
    if not known and not conf.exists():
        raise InputError(
            f"{conf} is not there, and slurmctld does not say where slurm.conf lies. Give --script"
            " FILE, the job_submit.lua beside it."
        )
    return conf.parent / SCRIPT


def _install(args: argparse.Namespace) -> int:
    options = plugin.PluginOptions(
        run=args.folder.absolute(),
        marker=args.marker,
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
    report = status(args.script, args.folder)
    if args.json:
        print(json.dumps(report))
    else:
        for words in _words(args.script, report):
            print(words)
    return 0 if report["routes"] else 1


def _words(script: Path, report: dict[str, Any]) -> Iterator[str]:
    """What is in place, and what to do about what is not."""
    if not report["installed"]:
        yield f"{script}: no routing in it. Put it in: mirage plugin install --script {script}"
    elif report["outdated"]:
        files = ", ".join(report["outdated"])
        yield f"{script}: of another Mirage ({files}). Again: mirage plugin install --script {script}"
    else:
        yield f"{script}: routing is in it"
    if "lua" in report["job_submit_plugins"].split(","):
        yield "slurmctld runs it (JobSubmitPlugins=lua)"
    elif report["job_submit_plugins"] == UNKNOWN:
        yield "slurmctld can't be asked now whether it runs it (JobSubmitPlugins)"
    else:
        yield (
            "slurmctld does not run it: add JobSubmitPlugins=lua to slurm.conf, then `scontrol"
            " reconfigure`"
        )
    if report["partitions"]:
        yield (
            f"published for {', '.join(report['partitions'])}: {report['age_s']} s old, good for"
            f" {report['valid_s']} s"
        )
    if report["problem"]:
        yield f"problem: {report['problem']}"
    yield "Jobs are routed." if report["routes"] else "Jobs are not routed."
