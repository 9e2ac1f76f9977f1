"""Reservations and maintenances: `scontrol show reservation`, and from when on a job fits beside them.

Slurm starts no job that would run into one. Tried on 22.05 and 26.05.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from math import inf

from mirage.domain import Job, Snapshot
from mirage.slurm.oddities import note_once
from slurm_sim.clusters.scontrol import attributes
from slurm_sim.clusters.values import expand_hosts
from slurm_sim.config import ClusterConfig, Reservation
from slurm_sim.errors import InvalidCluster

ARGV = ["scontrol", "show", "reservation", "-o"]
NONE = "No reservations in the system"


@dataclass(frozen=True)
class Hindrance:
    """Until when a job can't start for reservations."""

    wait_s: int
    reservation: Reservation
    """The one that ends then."""


def parse_reservations(text: str) -> tuple[Reservation, ...]:
    """Those of nodes; one that can't be read is logged and left out."""
    lines = (line for line in text.splitlines() if line.strip() and not line.startswith(NONE))
    found = (reservation_of(attributes(line)) for line in lines)
    return tuple(each for each in found if each is not None)


def reservation_of(shown: dict[str, str]) -> Reservation | None:
    """Of what scontrol shows, keys in lower case, times in Unix seconds. None: no nodes, or unreadable."""
    if shown.get("nodes", "(null)") in ("", "(null)"):
        return None
    users = shown.get("users", "(null)")
    try:
        return Reservation(
            shown["reservationname"],
            int(shown["starttime"]),
            int(shown["endtime"]),
            expand_hosts(shown["nodes"]),
            () if users == "(null)" else tuple(users.split(",")),
        )
    except (KeyError, ValueError, InvalidCluster) as error:
        name = shown.get("reservationname", str(shown)[:80])
        note_once(f"scontrol show reservation: {name} can't be read and is left out: {error}")
        return None


def hindrance(
    job: Job, snapshot: Snapshot, reservations: Sequence[Reservation]
) -> Hindrance | None:
    """None: so many nodes of its partitions as it asks for are free of reservations for long enough."""
    wanted = set(job.partition.split(","))
    kept = {name for each in reservations for name in each.nodes}
    nodes = [
        node.name
        for node in snapshot.nodes
        if wanted.intersection(node.partitions) and (node.up or node.name in kept)
    ]
    length_s = inf if job.time_limit_s is None else job.time_limit_s
    ahead = [each for each in reservations if each.end_s > snapshot.at_s]
    for start_s, ended in [(snapshot.at_s, None), *_ends(ahead)]:
        taken = {
            name
            for each in ahead
            if each.end_s > start_s and each.start_s < start_s + length_s
            for name in each.nodes
        }
        if len(nodes) - len(taken.intersection(nodes)) >= job.nodes:
            return None if ended is None else Hindrance(start_s - snapshot.at_s, ended)
    return None


def _ends(ahead: Sequence[Reservation]) -> list[tuple[int, Reservation]]:
    return [(each.end_s, each) for each in sorted(ahead, key=lambda each: each.end_s)]


def with_reservations(cluster: ClusterConfig, found: Sequence[Reservation]) -> ClusterConfig:
    """The cluster with those of its nodes, in place of what its description had."""
    names = {node.name for node in cluster.nodes}
    own = [
        replace(each, nodes=tuple(name for name in each.nodes if name in names)) for each in found
    ]
    return replace(cluster, reservations=tuple(each for each in own if each.nodes))
