"""What a site allows one user: replicas of services, and their GPUs (`[services]` of its file)."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from mirage.chain.sbatch import SbatchOption
from mirage.chain.service import living_replicas
from mirage.errors import InputError

_COUNT = re.compile(r"(?:^|[:=,])(\d+)(?=,|$|\()", re.ASCII)


def gpus_of(options: Sequence[SbatchOption]) -> int:
    """GPUs of a job, as its options of sbatch ask for them; those of its partition are not known."""
    said = {option.name: option.value or "" for option in options}
    nodes, tasks = _first(said.get("nodes", "1")), _first(said.get("ntasks", "1"))
    if "gpus" in said:
        return _gpus(said["gpus"])
    if "gpus-per-task" in said:
        return tasks * _gpus(said["gpus-per-task"])
    if "gpus-per-node" in said:
        return nodes * _gpus(said["gpus-per-node"])
    gres = [part for part in said.get("gres", "").split(",") if re.match(r"(gres/)?gpu\b", part)]
    return nodes * sum(_gpus(part) if re.search(r"[:=]\d+", part) else 1 for part in gres)


def _gpus(text: str) -> int:
    return sum(int(count) for count in _COUNT.findall(text))


def _first(text: str) -> int:
    match = re.match(r"\d+", text, re.ASCII)
    return max(1, int(match[0])) if match else 1


def check_bounds(more: int, options: Sequence[SbatchOption]) -> None:
    """InputError: with so many more replicas this user would have more than the site allows."""
    from mirage.config_sources import SITE_FILE, load

    if not os.access(SITE_FILE, os.R_OK):
        return
    bounds = load(None, SITE_FILE, {}).config.services
    mine = [one for replicas in living_replicas().values() for one in replicas]
    gpus, each = sum(one.gpus for one in mine), gpus_of(options)
    for what, have, add, most in (
        ("replicas", len(mine), more, bounds.most_replicas),
        ("GPUs", gpus, more * each, bounds.most_gpus),
    ):
        if most and have + add > most:
            raise InputError(
                f"your services would have {have + add} {what} ({have} now), and this site allows"
                f" {most} a user ({SITE_FILE}, services.most_{what.lower()})"
            )
