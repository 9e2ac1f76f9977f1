"""Schedulers that know of a job what it showed: its step times, and how well its batches work.

They know neither the work left nor anything of other jobs of the same application: what Pollux knows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.measured.goodput import JobProfile
from mirage.elastic.measured.rounds import Weights, give_by_value
from mirage.elastic.measured.schedulers import RoundAllocator
from mirage.elastic.measured.world import GPUS_PER_NODE, MOST_GPUS, PolluxWorld
from mirage.elastic.world import ElasticWorld, Ints

FIRST, EXPLORE = 2, 8
"""GPUs that a job may have at first, and times what it ran on later."""
WEIGHTS = Weights(power=0.9, haste=0.25, keep=0.04)
START_H, GROWTH = 0.5, 1.0
"""Hours on one GPU that a job is believed to have left as it starts, and for each hour done. Chosen
on workloads 1 to 4.
"""


@dataclass(kw_only=True)
class MeasuringRounds(RoundAllocator):
    """Keeps a profile of each job."""

    tunes: bool = True
    first: int = 1
    explore: int = 2
    """Pollux explores no faster than twice what a job ran on."""
    profiles: dict[tuple[int, int], JobProfile] = field(default_factory=dict, init=False)
    """By cluster and job."""

    def reset(self, world: ElasticWorld) -> None:
        """Forgets all jobs."""
        super().reset(world)
        self.profiles = {}

    def measure(self, world: PolluxWorld, cluster: int, jobs: Ints) -> None:
        """Takes in what these jobs showed in the round before."""
        for job in jobs.tolist():
            app = world.applications[world.type_index[cluster, job]]
            profile = self.profiles.setdefault(
                (cluster, job), JobProfile(app=app, first=self.first, growth=self.explore)
            )
            place = world.place[cluster, job]
            cut = world.chosen_batch.get((cluster, job))
            if cut and place.any() and world.last_epochs[cluster, job] > 0:
                shape = tuple(place[place > 0].tolist())
                seconds = app.seconds(shape, np.array([cut.samples]))[0]
                epoch = int(world.epoch[cluster, job])
                profile.observe(len(shape), sum(shape), cut, seconds, epoch)

    def choose_batches(self, world: PolluxWorld, cluster: int, jobs: Ints, place: Ints) -> None:
        """The batch of each job that is best by its profile on these GPUs by node, [J, S]."""
        for job, nodes in zip(jobs.tolist(), place, strict=True):
            if nodes.any():
                several = bool(np.count_nonzero(nodes) > 1)
                cut = self.profiles[cluster, job].cut(several, int(nodes.sum()))
                world.choose_batch(cluster, job, cut)


@dataclass(kw_only=True)
class LearntRounds(MeasuringRounds):
    """The rule of `rounds.py` on what was measured. A job that has done much is believed to have
    much left: the longer jobs ran, the longer they run on.
    """

    name: str = "learnt-rule"
    packs: bool = True
    first: int = FIRST
    explore: int = EXPLORE
    weights: Weights = WEIGHTS
    start_h: float = START_H
    growth: float = GROWTH

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        speedup = np.zeros((*world.arrival.shape, MOST_GPUS + 1))
        left_h = np.ones(world.arrival.shape)
        for cluster, active in enumerate(world.active & ~world.over[:, None]):
            jobs = np.nonzero(active)[0]
            self.measure(world, cluster, jobs)
            for job in jobs.tolist():
                profile = self.profiles[cluster, job]
                alone, speedup[cluster, job] = profile.by_gpus(GPUS_PER_NODE)
                done_h = world.progress[cluster, job] / alone / 3600 if alone else 0.0
                left_h[cluster, job] = self.start_h + self.growth * done_h
        give_by_value(world, speedup, left_h, self.weights)
        self._choose(world)

    def _choose(self, world: PolluxWorld) -> None:
        for cluster, gpus in enumerate(world.workers):
            jobs = np.nonzero(gpus)[0]
            place = world.place[cluster, jobs]
            for nodes, number in zip(place, gpus[jobs], strict=True):
                if nodes.sum() != number:  # it will be placed on the fewest nodes
                    nodes[:] = 0
                    whole, rest = divmod(int(number), GPUS_PER_NODE)
                    nodes[:whole] = GPUS_PER_NODE
                    nodes[whole : whole + 1] += rest
            self.choose_batches(world, cluster, jobs, place)
