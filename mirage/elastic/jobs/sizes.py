"""Each slot's decision: how many workers and PSs each elastic job gets.

A scheduler of `mirage.elastic.baselines`, or a trained one of the same interface, chooses on a
world that has the live cluster's free GPUs and CPUs and the live jobs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from mirage.elastic.baselines import Allocator, baseline
from mirage.elastic.jobs.typed import LikeEncoder
from mirage.elastic.speed import Floats, JobType, TaskDemand
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Ints, TaskKind
from mirage.errors import InputError

POLICIES = {name: name for name in ("greedy", "drf", "fifo", "srtf", "tetris")} | {
    "optimus": "optimus-oracle"
}
"""The controller's word -> the baseline. Speeds are learnt by the controller (`speeds.py`), so the
baselines that take them as given are used.
"""


@dataclass(frozen=True, kw_only=True)
class Sizes:
    """Tasks of a job."""

    workers: int
    servers: int


@dataclass(frozen=True, kw_only=True)
class LiveJob:
    """An elastic job as a scheduler sees it."""

    name: str
    epochs: float
    """By the owner's estimate."""
    trained: float
    """Epochs."""
    steps_per_s: Floats
    """As is believed, [P + 1, W + 1]."""
    steps_per_epoch: int
    least: Sizes
    most: Sizes
    sizes: tuple[int, ...] = ()
    """Numbers of workers that it can use; empty: all."""
    present: Sizes = Sizes(workers=0, servers=0)
    """What it has now."""
    ran_slots: int = 0
    """Slots in which it trained, as far as they were measured."""
    like: str = ""
    """The type of a training that it is like, by its owner; empty: none is named."""
    worker: TaskDemand
    server: TaskDemand


@dataclass(frozen=True, kw_only=True)
class FreeNode:
    """What of a node the elastic jobs may have together."""

    gpus: int
    cpus: int


def policy_named(name: str) -> Allocator:
    """A rule, or the trained policy in a model folder. Raises InputError."""
    if name in POLICIES:
        return baseline(POLICIES[name])
    if not Path(name).is_dir():
        raise InputError(
            f"--policy {name}: unknown; there are {', '.join(POLICIES)}, or give the folder of a"
            " trained model"
        )
    return _trained(Path(name))


def _trained(folder: Path) -> Allocator:
    """The paper's policy, which knows jobs by the types of its training."""
    from mirage.elastic.model import load_model
    from mirage.elastic.policy import learned
    from mirage.elastic.settings import SETTINGS

    model = load_model(folder)
    about = model.about
    if about.setting not in SETTINGS:
        raise InputError(
            f"--policy {folder}: its setting {about.setting!r} was a file, so the units of its"
            f" inputs are not known; train it in one of {', '.join(SETTINGS)}"
        )
    config = SETTINGS[about.setting]().world
    encoder = LikeEncoder(
        types=about.types, most_workers=config.most_workers, most_ps=config.most_ps
    )
    return learned(model.name, model.networks, encoder, about.places)


def types_known(policy: Allocator) -> tuple[str, ...]:
    """The types by which the policy knows jobs, named in `speed.like`; empty: by their speeds."""
    encoder = getattr(policy, "encoder", None)
    return encoder.types if isinstance(encoder, LikeEncoder) else ()


def decide_sizes(
    jobs: Sequence[LiveJob],
    nodes: Sequence[FreeNode],
    policy: Allocator,
    *,
    slot_s: float,
    most_gpus: int | None = None,
) -> dict[str, Sizes]:
    """The tasks of each job in the slot that begins, by its name.

    ``jobs``: oldest first. A job's least size is given first, and is its own even where it does
    not fit now; one of a type that the policy does not know gets no more. ``most_gpus``: of all
    jobs together.
    """
    if not jobs or not nodes:
        return {job.name: job.least for job in jobs}
    if types := types_known(policy):
        policy.encoder.likes = [job.like for job in jobs]  # type: ignore[attr-defined]
        jobs = [job if job.like in types else replace(job, most=job.least) for job in jobs]
    world = live_world(jobs, nodes, slot_s=slot_s, most_gpus=most_gpus)
    policy.reset(world)
    policy.begin_slot(world)
    going = True
    while going:
        job, kind = policy.choose(world)
        going = bool(world.add(job, kind)[0])
    found = {
        job.name: Sizes(
            workers=max(int(world.workers[0, nth]), job.least.workers),
            servers=max(int(world.ps[0, nth]), job.least.servers),
        )
        for nth, job in enumerate(jobs)
    }
    return _usable(jobs, found)


def _usable(jobs: Sequence[LiveJob], found: dict[str, Sizes]) -> dict[str, Sizes]:
    """Sizes that the jobs can use. What a job has too much goes to those that gain most by it."""
    spare = 0
    for job in jobs:
        now = found[job.name].workers
        kept = max((size for size in (0, *job.sizes) if size <= now), default=0)
        kept = max(kept, job.least.workers) if job.sizes else now
        spare += (now - kept) * job.worker.gpus
        found[job.name] = replace(found[job.name], workers=kept)
    while True:
        steps = [step for job in jobs if (step := _next_step(job, found[job.name], spare))]
        if not steps:
            return found
        _gain, gpus, name, workers = max(steps)
        spare -= gpus
        found[name] = replace(found[name], workers=workers)


def _next_step(job: LiveJob, now: Sizes, spare: int) -> tuple[float, int, str, int] | None:
    """Gain of equation 1 a GPU, GPUs, name and size of the next larger size, if it fits and gains."""
    larger = [size for size in job.sizes if now.workers < size <= job.most.workers]
    gpus = (larger[0] - now.workers) * job.worker.gpus if larger else 0
    if not larger or not 0 < gpus <= spare:
        return None
    before, after = job.steps_per_s[now.servers, [now.workers, larger[0]]]
    gain = float(after - before) / (job.epochs * job.steps_per_epoch) / gpus
    return (gain, gpus, job.name, larger[0]) if gain > 0 else None


def live_world(
    jobs: Sequence[LiveJob],
    nodes: Sequence[FreeNode],
    *,
    slot_s: float = 1200.0,
    most_gpus: int | None = None,
) -> ElasticWorld:
    """A slot that begins, in which each job has its least size already. See `decide_sizes`."""
    world = _LiveWorld(jobs, nodes, slot_s=slot_s, most_gpus=most_gpus)
    world.workers = np.array([[job.present.workers for job in jobs]])
    world.ps = np.array([[job.present.servers for job in jobs]])
    world.begin_slot()
    _give_least(world, jobs)
    return world


def _give_least(world: _LiveWorld, jobs: Sequence[LiveJob]) -> None:
    for nth, job in enumerate(jobs):
        for kind, count in ((TaskKind.PS, job.least.servers), (TaskKind.WORKER, job.least.workers)):
            for _ in range(count):
                world.add(np.array([nth]), np.array([kind]))


class _LiveWorld(ElasticWorld):
    """One cluster with the live jobs, what is free of its nodes, and each job's own bounds."""

    def __init__(
        self,
        jobs: Sequence[LiveJob],
        nodes: Sequence[FreeNode],
        *,
        slot_s: float,
        most_gpus: int | None,
    ) -> None:
        self._free: tuple[Ints, Ints] = (
            np.array([[node.gpus for node in nodes]]),
            np.array([[node.cpus for node in nodes]]),
        )
        self._most = np.array([[(job.most.workers, job.most.servers) for job in jobs]])
        self._most_gpus = np.inf if most_gpus is None else most_gpus
        largest = _largest(jobs, nodes)
        count = len(jobs)
        estimate = np.array([job.epochs for job in jobs])
        config = ElasticConfig(
            types=[_job_type(job) for job in jobs],
            servers=len(nodes),
            gpus_per_server=largest.gpus,
            cpus_per_server=largest.cpus,
            slot_s=slot_s,
            most_workers=max(job.most.workers for job in jobs),
            most_ps=max(job.most.servers for job in jobs),
        )
        sequence = ElasticJobs(
            arrival_slot=np.zeros(count, dtype=np.int64),
            type_index=np.arange(count),
            epochs=estimate * 2,  # who has passed the estimate is not over
            estimate=estimate,
        )
        super().__init__(config, [sequence])
        self.ran_slots = np.array([[job.ran_slots for job in jobs]])
        self.trained = np.minimum(np.array([[job.trained for job in jobs]]), self.epochs * 0.99)

    def _clear(self) -> None:
        super()._clear()
        self.free_gpus, self.free_cpus = (free.copy() for free in self._free)

    def _find_allowed(self) -> Bools:
        fits = super()._find_allowed()
        worker = fits[..., 0] & (self.workers < self._most[..., 0]) & self._within_gpus(1)
        ps = fits[..., 1] & (self.ps < self._most[..., 1])
        return np.stack([worker, ps, worker & ps & fits[..., 2]], axis=-1)

    def two_fit(self, kind: TaskKind) -> Bools:
        """See `ElasticWorld.two_fit`."""
        task = int(kind == TaskKind.PS)
        number = self.ps if task else self.workers
        within = number + 2 <= self._most[..., task]
        return super().two_fit(kind) & within & (bool(task) | self._within_gpus(2))

    def _within_gpus(self, more: int) -> Bools:
        used = self.tasks_demand(self.workers, self.ps)[0].sum()
        return np.asarray(used + more * self._task_gpus[..., 0] <= self._most_gpus, dtype=np.bool_)


def _largest(jobs: Sequence[LiveJob], nodes: Sequence[FreeNode]) -> FreeNode:
    """No task is larger, nor any node: a task that fits nowhere now may be given later."""
    demands = [each for job in jobs for each in (job.worker, job.server)]
    return FreeNode(
        gpus=max([node.gpus for node in nodes] + [each.gpus for each in demands]),
        cpus=max([node.cpus for node in nodes] + [each.cpus for each in demands]),
    )


def _job_type(job: LiveJob) -> JobType:
    return JobType(
        name=job.name,
        steps_per_s=job.steps_per_s,
        batches_per_epoch=job.steps_per_epoch,
        worker=job.worker,
        ps=job.server,
    )
