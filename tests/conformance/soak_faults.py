"""What goes wrong during the soak, by a seed: when, for how long, and how it is done."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from tests.conformance.soak_world import World

KINDS = (
    "daemon killed",
    "slurmctld restarted",
    "slurmctld killed",
    "killed as a link starts",
    "slurmdbd away",
    "disk full",
    "clock jump",
    "PostgreSQL restarted",
    "squeue lies",
)
QUIET_S = 2 * 3600
"""No fault begins in the last two hours, so that what is late can be made up for."""


@dataclass(frozen=True)
class Fault:
    """Times in simulated seconds. ``amount_s``: how long it lasts; of a clock jump, by how much."""

    kind: str
    at_s: int
    amount_s: int


def faults(each: int, hours: float, seed: int) -> list[Fault]:
    """``each`` of every kind, anywhere in time, so they may coincide."""
    rng = random.Random(seed + 1)
    lasts = {
        "daemon killed": (0, 1800),
        "slurmctld restarted": (60, 600),
        "slurmctld killed": (60, 600),
        "killed as a link starts": (0, 0),
        "slurmdbd away": (300, 3600),
        "disk full": (600, 3600),
        "PostgreSQL restarted": (60, 1200),
        "squeue lies": (60, 1200),
    }
    found = []
    for kind in KINDS:
        for _ in range(each):
            at_s = rng.randrange(900, int(hours * 3600) - QUIET_S)
            amount_s = (
                rng.choice([-1, 1]) * rng.randint(60, 600)
                if kind == "clock jump"
                else rng.randint(*lasts[kind])
            )
            found.append(Fault(kind, at_s, amount_s))
    return sorted(found, key=lambda fault: fault.at_s)


def begin(world: World, fault: Fault) -> Callable[[], None] | None:
    """Does it; returns what ends it, if anything."""
    slurm = world.site.slurm
    match fault.kind:
        case "daemon killed":
            return world.held("daemon", world.kill_daemon, world.start_daemon)
        case "slurmctld restarted":
            return world.held(
                "slurmctld",
                partial(slurm, "stop", "slurmctld"),
                partial(slurm, "start", "slurmctld"),
            )
        case "slurmctld killed":
            return world.held(
                "slurmctld",
                partial(slurm, "kill", "slurmctld"),
                partial(slurm, "start", "slurmctld"),
            )
        case "killed as a link starts":
            # Its successor is forgotten, and another user's jobs get the ids that are free again.
            world.kill_as_a_link_starts()
            give_back = world.held(
                "slurmctld",
                partial(slurm, "kill", "slurmctld"),
                partial(slurm, "start", "slurmctld"),
            )
            give_back()
            world.take_ids()
        case "slurmdbd away":
            return world.held(
                "slurmdbd", partial(slurm, "stop", "slurmdbd"), partial(slurm, "start", "slurmdbd")
            )
        case "disk full":
            return world.held("disk", world.fill_disk, world.free_disk)
        case "PostgreSQL restarted":
            return world.held(
                "postgresql", partial(world.databases, "stop"), partial(world.databases, "up")
            )
        case "squeue lies":
            return world.held("squeue", world.lies.touch, world.lies.unlink)
        case "clock jump":
            world.clock.jump(fault.amount_s)
    return None
