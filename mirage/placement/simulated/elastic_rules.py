"""Rules of a few lines that choose numbers of GPUs, to compare the search with.

They know what the search knows of speeds and of work left, and place jobs as it does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.placement.simulated.planner import Queue, places, queue_of
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.topology import Floats, Ints

ELASTIC_RULES = ("relative-gain", "srtf-elastic")
ENOUGH = 0.7
"""Of the best speed; chosen on five sequences of seed 5, which no test uses, of 0.6 to 1."""


@dataclass(kw_only=True)
class ElasticRule:
    """`relative-gain`: the next GPU goes to the job whose time left it shortens by the largest
    share, divided by the job's length. `srtf-elastic`: the job with the least time left takes the fewest
    GPUs with `ENOUGH` of its best speed, then the next job.
    """

    name: str
    leaves_slots: bool = False

    def reset(self, world: PlacementWorld) -> None:
        """Keeps nothing."""

    def decide(self, world: PlacementWorld) -> Ints:
        topology = world.config.topology
        actions = np.full((world.clusters, len(topology)), world.rows)
        sizes_of = _by_gain if self.name == "relative-gain" else _by_time_left
        for cluster in np.nonzero(~world.over)[0]:
            queue = queue_of(world, int(cluster))
            if len(queue.rows):
                speed = world.law.packed(np.arange(len(topology) + 1)[:, None], queue.costs).T
                owner = places(topology, queue, sizes_of(queue, speed), keep=True)
                actions[cluster, owner >= 0] = queue.rows[owner[owner >= 0]]
        return actions


def _by_gain(queue: Queue, speed: Floats) -> Ints:
    """GPUs of each job, [J]; ``speed`` [J, M + 1], of 0 to M GPUs. Where the next GPU alone brings
    nothing, the cheapest number that does counts, by GPU.
    """
    jobs, most = speed.shape
    sizes = np.zeros(jobs, dtype=np.int64)
    share = speed / (queue.left * queue.length)[:, None]
    left = most - 1
    while left:
        more = np.arange(most) - sizes[:, None]
        gain = (share - share[np.arange(jobs), sizes][:, None]) / np.maximum(more, 1)
        gain[(more < 1) | (more > left)] = 0.0
        job, size = np.unravel_index(int(gain.argmax()), gain.shape)
        if gain[job, size] <= 0:
            break
        left -= int(size - sizes[job])
        sizes[job] = size
    return sizes


def _by_time_left(queue: Queue, speed: Floats) -> Ints:
    sizes = np.zeros(len(speed), dtype=np.int64)
    left = speed.shape[1] - 1
    for job in np.argsort(queue.left / speed.max(axis=1), kind="stable"):
        reached = speed[job, : left + 1]
        sizes[job] = int((reached >= ENOUGH * reached.max()).argmax())
        left -= int(sizes[job])
    return sizes
