"""Where a job may go without agents: the partitions whose nodes can run it, those first where it is
forecast to start first.

`lua/mirage_places.lua` decides the same. A job goes to all of them (`-p A,B`), and Slurm starts it
where it first can, so a forecast that is wrong delays nobody.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from mirage.routing.flavors import Demand

NEVER_S = 10**9
"""The wait where none is forecast: such a place comes last."""


@dataclass(frozen=True, kw_only=True)
class NodeShape:
    """Equal nodes of a partition that are up."""

    count: int
    cpus: int
    memory_mib: int
    gpus: int
    gpu_type: str
    """As in gres.conf; `-`: none, or several."""


@dataclass(frozen=True, kw_only=True)
class ExpectedWait:
    """For jobs of so many nodes and so long a limit, at most."""

    nodes: int
    limit_s: int
    wait_s: int


@dataclass(frozen=True, kw_only=True)
class Place:
    """A partition."""

    name: str
    shapes: tuple[NodeShape, ...]
    waits: tuple[ExpectedWait, ...] = ()
    """From the fewest nodes and shortest limit on."""

    def wait_s(self, job: Demand) -> int:
        """Of the first row that covers the job, else of the last."""
        limit_s = job.limit_s or 0
        for row in self.waits:
            if job.nodes <= row.nodes and limit_s <= row.limit_s:
                return row.wait_s
        return self.waits[-1].wait_s if self.waits else NEVER_S

    def can_run(self, job: Demand) -> bool:
        """On equal nodes, with the same share on each; a job without GPUs only on nodes without."""
        return any(_can_run(shape, job) for shape in self.shapes)


def _can_run(shape: NodeShape, job: Demand) -> bool:
    many = job.nodes
    return (
        many <= shape.count
        and job.gpus <= shape.gpus * many
        and job.cpus <= shape.cpus * many
        and job.memory_mib <= shape.memory_mib * many
        and (job.gpus > 0) == (shape.gpus > 0)
        and job.gpu_type in ("", shape.gpu_type)
    )


def places_of(places: Sequence[Place], job: Demand, allowed: Collection[str]) -> list[str]:
    """Partitions that it may go to, the one with the shortest forecast wait first; of equal ones in
    the table's order. Empty: none can run it.
    """
    fitting = [each for each in places if each.name in allowed and each.can_run(job)]
    return [each.name for each in sorted(fitting, key=lambda each: each.wait_s(job))]
