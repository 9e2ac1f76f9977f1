"""Schedulers of Pollux's comparison (section 5.3), as its public simulator means them.

`tiresias` and `optimus-pollux` follow that simulator; their results check `PolluxWorld`.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.measured.pollux import packed
from mirage.elastic.measured.world import MOST_GPUS, PolluxWorld
from mirage.elastic.world import STOP, ElasticWorld, Floats, Ints
from mirage.errors import InputError

DEMOTION_GPU_S = 3600 * 16
"""GPU seconds after which Tiresias moves a job to its second queue."""


MOST_STEP = 16
"""GPUs that `ascend` adds at once: a job that gains nothing by one may gain by eight."""


@dataclass(kw_only=True)
class RoundAllocator:
    """Gives all GPUs of a round at once, in all clusters. See `Allocator`."""

    name: str
    tunes: bool = False
    packs: bool = False
    """See `PolluxWorld.adapt`."""

    def reset(self, world: ElasticWorld) -> None:
        """See `Allocator`."""
        pollux_world(world, self.name).adapt(tunes=self.tunes, packs=self.packs)

    def begin_slot(self, world: ElasticWorld) -> None:
        """See `Allocator`."""
        if world.active.any():
            self.give(pollux_world(world, self.name))

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """See `Allocator`: all is given already."""
        return np.full(world.clusters, STOP), np.zeros(world.clusters, dtype=np.int64)

    def give(self, world: PolluxWorld) -> None:
        """Gives by `PolluxWorld.give` or `give_places`."""
        raise NotImplementedError


def pollux_world(world: ElasticWorld, name: str) -> PolluxWorld:
    """Raises InputError for a world of another setting."""
    if not isinstance(world, PolluxWorld):
        raise InputError(f"scheduler {name!r} needs setting pollux")
    return world


@dataclass(kw_only=True)
class Tiresias(RoundAllocator):
    """Two queues by attained service, first come first served in each, with preemption.

    Each job gets the GPUs that its user asked for, or none. A job that does not fit lets later ones
    pass.
    """

    name: str = "tiresias"

    def reset(self, world: ElasticWorld) -> None:
        """Nobody has run."""
        super().reset(world)
        self._ran_s = np.zeros(world.arrival.shape)
        self._running = np.zeros(world.arrival.shape, dtype=bool)
        self._demoted = np.full(world.arrival.shape, np.inf)
        """When each job was demoted."""

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        self._ran_s += self._running * world.config.slot_s
        late = self._ran_s * world.request >= DEMOTION_GPU_S
        self._demoted = np.where(late & np.isinf(self._demoted), world.now_s, self._demoted)
        queue = ~np.isinf(self._demoted)
        jobs = np.arange(world.arrival.shape[1])
        given = np.zeros(world.arrival.shape, dtype=np.int64)
        rank = np.zeros(world.arrival.shape, dtype=np.int64)
        for cluster, active in enumerate(world.active):
            key = np.where(queue[cluster], self._demoted[cluster], -1.0)
            order = np.lexsort((jobs, key))
            rank[cluster, order] = jobs
            left = world.total_gpus
            for job in order[active[order]]:
                if world.request[cluster, job] <= left:
                    given[cluster, job] = world.request[cluster, job]
                    left -= given[cluster, job]
        self._running = given > 0
        world.give(given)
        world.order = rank


@dataclass(kw_only=True)
class PolluxOptimus(RoundAllocator):
    """Optimus with an oracle: each job a GPU, then the next to whom its time left falls most.

    It knows the true step time on the fewest nodes and the steps that are left at the user's batch
    size.
    """

    name: str = "optimus-pollux"
    _steps: dict[tuple[str, int], Floats] = field(default_factory=dict, init=False)

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        given = np.zeros(world.arrival.shape, dtype=np.int64)
        for cluster, active in enumerate(world.active):
            jobs = np.nonzero(active)[0]
            if len(jobs):
                given[cluster, jobs] = self._share(world, cluster, jobs)
        world.give(given)

    def _share(self, world: PolluxWorld, cluster: int, jobs: Ints) -> Ints:
        batches = [world.batches[kind] for kind in world.type_index[cluster, jobs]]
        step_s = np.stack([self._step_s(world, *batch) for batch in batches])
        left = np.array(
            [
                world.applications[kind].iterations_left(batch, int(epoch))
                for kind, epoch, (_, batch) in zip(
                    world.type_index[cluster, jobs],
                    world.epoch[cluster, jobs],
                    batches,
                    strict=True,
                )
            ]
        )
        gains = (step_s[:, :-1] - step_s[:, 1:]) * left[:, None]
        most = world.most_gpus[cluster, jobs]
        free = world.total_gpus
        given = np.zeros(len(jobs), dtype=np.int64)
        given[:free] = 1
        free -= int(given.sum())
        rows = np.arange(len(jobs))
        while free > 0:
            gain = np.where((given >= 1) & (given < most), gains[rows, given - 1], 0.0)
            best = int(gain.argmax())
            if gain[best] <= 0:
                break
            given[best] += 1
            free -= 1
        return given

    def _step_s(self, world: PolluxWorld, name: str, batch: int | None) -> Floats:
        """Seconds of a step with 1 to MOST_GPUS + 1 GPUs."""
        if batch is None:
            raise ValueError("optimus-pollux needs the batch sizes of the users")
        if (name, batch) not in self._steps:
            app = next(app for app in world.applications if app.name == name)
            seconds = np.full(MOST_GPUS + 1, 1e12)
            for gpus in range(1, min(app.most_gpus(batch), MOST_GPUS) + 1):
                cut = app.cut(batch, gpus)
                more = max(1, cut.more_passes) if gpus == 1 else cut.more_passes
                step_s, sync_s = app.seconds(packed(gpus), np.array([cut.samples]))[0]
                seconds[gpus - 1] = step_s + (step_s - sync_s) * more
            self._steps[name, batch] = seconds
        return self._steps[name, batch]


@dataclass(kw_only=True)
class GreedyRounds(RoundAllocator):
    """The steepest ascent of equation 1 on known speeds, in steps of one to sixteen GPUs.

    ``keep``: share by which a job's value falls if its number of GPUs changes, so that a small gain
    moves nobody. 0: the plain greedy, for which a restart costs nothing.
    """

    name: str = "greedy"
    tunes: bool = True
    packs: bool = True
    keep: float = 0.0

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        value = np.maximum.accumulate(world.speeds_by_gpus(), axis=2) / world.estimate[..., None]
        same = np.arange(MOST_GPUS + 1) == world.last_workers[..., None]
        value = np.where(same, value, value * (1 - self.keep))
        world.give(ascend(value, np.where(world.active, world.most_gpus, 0), world.total_gpus))


def ascend(values: Floats, most: Ints, gpus: int) -> Ints:
    """GPUs of each job, [B, J]: always the step of 1 to MOST_STEP with the greatest gain a GPU.

    ``values``: [B, J, MOST_GPUS + 1], of each job with 0 to MOST_GPUS GPUs. ``most``: [B, J].
    """
    numbers = np.arange(values.shape[2] + MOST_STEP)
    padded = np.concatenate([values, np.repeat(values[..., -1:], MOST_STEP, axis=2)], axis=2)
    padded = np.where(numbers <= most[..., None], padded, -np.inf)
    given = np.zeros(most.shape, dtype=np.int64)
    free = np.full(len(most), gpus)
    rows = np.arange(len(most))
    gain, step = _best_steps(padded, given, free[:, None])
    while True:
        job = gain.argmax(axis=1)
        going = rows[(gain[rows, job] > 1e-15) & (free > 0)]
        if not len(going):
            return given
        chosen = job[going]
        taken = step[going, chosen]
        fits = taken <= free[going]
        tight = going[~fits]
        if len(tight):  # the best step of some job is wider than what is left
            gain[tight], step[tight] = _best_steps(padded[tight], given[tight], free[tight, None])
        going, chosen, taken = going[fits], chosen[fits], taken[fits]
        given[going, chosen] += taken
        free[going] -= taken
        gain[going, chosen], step[going, chosen] = _best_steps(
            padded[going, chosen], given[going, chosen], free[going]
        )


def _best_steps(padded: Floats, given: Ints, free: Ints) -> tuple[Floats, Ints]:
    """The greatest gain a GPU and the step that has it, in the shape of ``given``."""
    steps = np.arange(1, MOST_STEP + 1)
    before = np.take_along_axis(padded, given[..., None], axis=-1)
    after = np.take_along_axis(padded, given[..., None] + steps, axis=-1)
    gains = np.where(steps <= free[..., None], (after - before) / steps, -np.inf)
    best = gains.argmax(axis=-1)
    return np.take_along_axis(gains, best[..., None], axis=-1)[..., 0], best + 1
