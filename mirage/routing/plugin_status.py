"""Whether the plugin routes jobs: what is installed, what slurmctld runs, what was published."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from mirage.errors import ClusterError, InputError
from mirage.routing import plugin
from mirage.routing.table import AGENTS, STATE, read_agents, read_state

UNKNOWN = "unknown"


def status(script: Path, folder: Path) -> dict[str, Any]:
    """As `mirage plugin status --json` has it. ``folder``: of the published files."""
    report: dict[str, Any] = {
        "installed": plugin.is_installed(script),
        "outdated": plugin.outdated(script) if plugin.is_installed(script) else [],
        "job_submit_plugins": parameter("JobSubmitPlugins", UNKNOWN),
    }
    report |= _published(folder)
    enabled = "lua" in report["job_submit_plugins"].split(",")
    whole = report["installed"] and not report["outdated"]
    report["routes"] = bool(whole and enabled and not report["problem"])
    return report


def parameter(name: str, unknown: str = "") -> str:
    """A line of `scontrol show config`; ``unknown``: slurmctld does not answer."""
    from mirage.slurm.commands import CommandCluster

    try:
        return CommandCluster().settings().parameters.get(name, "")
    except ClusterError:
        return unknown


def _published(folder: Path) -> dict[str, Any]:
    try:
        table, wanted = read_state(folder / STATE)
        checksum = read_agents(folder / AGENTS)[1] if wanted else 0
    except InputError as error:
        return {"partitions": [], "age_s": None, "valid_s": None, "problem": str(error)}
    now_s = int(time.time())
    problem = "the state is stale: is the daemon running?" if table.is_stale(now_s) else ""
    if checksum != wanted:
        problem = f"{STATE} is for other agents than {AGENTS} has"
    names = [place.name for place in table.places]
    return {
        "partitions": names,
        "age_s": now_s - table.at_s,
        "valid_s": table.valid_s,
        "problem": problem,
    }
