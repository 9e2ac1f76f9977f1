"""Clusters of elastic training jobs in time slots, many beside each other on arrays.

Names of axes: B clusters, K jobs of a sequence, S servers. In a slot a scheduler adds tasks one by
one (section 4.1), then the slot runs:

    world = ElasticWorld(config, sequences)
    while not world.over.all():
        world.begin_slot()
        while ...:
            world.add(job, kind)        # one task or bundle in each cluster
        reward = world.end_slot()

Servers have GPUs and CPU cores. Tasks of a slot are placed as they are added.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Literal, get_args

import numpy as np
import numpy.typing as npt

from mirage.elastic.speed import JobType
from mirage.elastic.workload import ElasticJobs
from mirage.errors import InputError

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
STOP = -1
"""As the job that gets the next task: none does."""
PlacementRule = Literal["own-first", "balanced"]
NOBODY = -1


class TaskKind(IntEnum):
    """What one action adds to a job (section 4.1). The void action adds nothing."""

    WORKER = 0
    PS = 1
    BUNDLE = 2
    """A worker and a PS."""


@dataclass(frozen=True, kw_only=True)
class ElasticConfig:
    """The rules of the clusters. The defaults are the paper's testbed: 13 servers, slots of 20
    minutes, known speeds, scaling without a cost.
    """

    types: Sequence[JobType]
    servers: int = 13
    gpus_per_server: int = 2
    cpus_per_server: int = 8
    slot_s: float = 1200.0
    most_workers: int = 12
    """Workers of a job."""
    most_ps: int = 12
    placement: PlacementRule = "own-first"
    """`own-first`: on servers that the job has already, then on empty ones, then the least used.
    `balanced`: the least used server first, as in the paper (section 6.1).
    """
    interference: float = 0.0
    """Share of its speed that a job loses for each other job on its fullest server."""
    variation: float = 0.0
    """A job's speed in a slot is off by at most this share, either way (Figure 13)."""
    scaling_s: float = 0.0
    """Seconds that a running job stands still for each task added or removed."""
    capacity: Callable[[int], int] | None = None
    """Servers that are there in a slot; None: all."""
    most_slots: int = 10_000
    """An episode ends then at the latest."""

    def __post_init__(self) -> None:
        if not self.types:
            raise InputError("elastic world: no job types")
        for name in ("servers", "slot_s", "most_workers", "most_slots"):
            if not getattr(self, name) > 0:
                raise InputError(f"elastic world: {name} must be above 0")
        for name in ("gpus_per_server", "cpus_per_server", "interference", "scaling_s", "most_ps"):
            if not getattr(self, name) >= 0:
                raise InputError(f"elastic world: {name} must not be negative")
        if not 0 <= self.variation < 1:
            raise InputError(f"elastic world: variation must be in [0, 1), not {self.variation}")
        if self.placement not in get_args(PlacementRule):
            names = " or ".join(get_args(PlacementRule))
            raise InputError(f"elastic world: placement {self.placement!r}: {names}")
        for kind in self.types:
            self._check_fits(kind)

    def open(self, sequences: Sequence[ElasticJobs], *, seed: int = 0) -> ElasticWorld:
        """Clusters of these rules, with a job sequence each."""
        return ElasticWorld(self, sequences, seed=seed)

    def _check_fits(self, kind: JobType) -> None:
        for task, demand in (("worker", kind.worker), ("PS", kind.ps)):
            if demand and (
                demand.gpus > self.gpus_per_server or demand.cpus > self.cpus_per_server
            ):
                raise InputError(
                    f"job type {kind.name}: a {task} needs {demand.gpus} GPUs and {demand.cpus}"
                    f" CPUs; a server has {self.gpus_per_server} and {self.cpus_per_server}"
                )
        shape = kind.steps_per_s[: self.most_ps + 1, : self.most_workers + 1]
        if not shape.any():
            raise InputError(
                f"job type {kind.name}: no speed with up to {self.most_workers} workers and"
                f" {self.most_ps} PSs"
            )


class ElasticWorld:
    """B clusters with a job sequence each."""

    def __init__(
        self,
        config: ElasticConfig,
        sequences: Sequence[ElasticJobs],
        *,
        seed: int = 0,
    ) -> None:
        if not sequences or len({len(sequence) for sequence in sequences}) != 1:
            raise InputError("elastic world: give one or more sequences of the same number of jobs")
        self.config = config
        self._seed = seed
        self.arrival: Ints = np.stack([each.arrival_slot for each in sequences])
        self.type_index: Ints = np.stack([each.type_index for each in sequences])
        self.epochs: Floats = np.stack([each.epochs for each in sequences])
        self.estimate: Floats = np.stack([each.estimate for each in sequences])
        if self.type_index.min() < 0 or self.type_index.max() >= len(config.types):
            raise InputError(f"elastic world: a job's type must be 0 to {len(config.types) - 1}")
        self.speed_table = self._tables()
        """Epochs a slot by type, PSs and workers, [types, P + 1, W + 1]."""
        demands = np.array([_demands(kind) for kind in config.types])[self.type_index]
        self._task_gpus, self._task_cpus = demands[..., 0, :], demands[..., 1, :]
        self._of_size = [self._jobs_of_size(task) for task in (0, 1)]
        self.has_ps = np.array([kind.ps is not None for kind in config.types])[self.type_index]
        self._all = np.arange(self.clusters)
        self.reset()

    def _tables(self) -> Floats:
        config = self.config
        table = np.zeros((len(config.types), config.most_ps + 1, config.most_workers + 1))
        for nth, kind in enumerate(config.types):
            part = kind.steps_per_s[: config.most_ps + 1, : config.most_workers + 1]
            table[nth, : part.shape[0], : part.shape[1]] = (
                part * config.slot_s / kind.batches_per_epoch
            )
        return table

    @property
    def clusters(self) -> int:
        """B."""
        return len(self.arrival)

    def reset(self) -> None:
        """Back to slot 0 with nothing done."""
        shape = self.arrival.shape
        self._rng = np.random.default_rng(self._seed)
        self.slot = 0
        self.trained = np.zeros(shape)
        """Epochs done, [B, K]."""
        self.finish = np.full(shape, np.nan)
        """When each job ended, in slots and fractions, [B, K]; NaN: not yet."""
        self.ran_slots = np.zeros(shape, dtype=np.int64)
        """Slots in which each job had a working shape, [B, K]."""
        self.workers = np.zeros(shape, dtype=np.int64)
        self.ps = np.zeros(shape, dtype=np.int64)
        self.last_workers = np.zeros(shape, dtype=np.int64)
        """Of the slot before."""
        self.last_ps = np.zeros(shape, dtype=np.int64)
        self.last_epochs = np.zeros(shape)
        """Epochs that each job trained in the slot before, as a scheduler may measure them."""
        self._clear()

    def _clear(self) -> None:
        gpus, cpus = self.capacity_by_server().T
        shape = (self.clusters, self.config.servers)
        self.free_gpus = np.broadcast_to(gpus, shape).copy()
        self.free_cpus = np.broadcast_to(cpus, shape).copy()
        self.jobs_on = np.zeros(shape, dtype=np.int64)
        """Jobs with a task on each server, [B, S]."""
        self.is_on = np.zeros((*self.arrival.shape, self.config.servers), dtype=bool)
        """Whether a job has a task on a server, [B, K, S]."""
        self.neighbours = np.zeros(self.arrival.shape, dtype=np.int64)
        """Other jobs on the fullest server of each job, [B, K]."""
        self._room: dict[tuple[int, int], Bools] = {}
        self._allowed: Bools | None = None
        self._among: Bools | None = None

    @property
    def active(self) -> Bools:
        """Jobs that have arrived and not ended, [B, K]."""
        return np.asarray((self.arrival <= self.slot) & np.isnan(self.finish), dtype=np.bool_)

    @property
    def over(self) -> Bools:
        """Clusters whose jobs have all ended, or whose time is up, [B]."""
        ended = ~np.isnan(self.finish).any(axis=1)
        return np.asarray(ended | (self.slot >= self.config.most_slots), dtype=np.bool_)

    @property
    def total_gpus(self) -> int:
        """GPUs of a whole cluster."""
        return self.config.servers * self.config.gpus_per_server

    @property
    def total_cpus(self) -> int:
        """CPU cores of a whole cluster."""
        return self.config.servers * self.config.cpus_per_server

    def dominant_share(self) -> Floats:
        """The largest share of a resource that each job has in this slot, [B, K]."""
        return self.share_of(self.workers, self.ps)

    def share_of(self, workers: Ints, ps: Ints) -> Floats:
        """The dominant share of these numbers of tasks, [B, K]."""
        gpus, cpus = self.tasks_demand(workers, ps)
        share: Floats = np.maximum(gpus / max(self.total_gpus, 1), cpus / max(self.total_cpus, 1))
        return share

    def tasks_demand(self, workers: Ints, ps: Ints) -> tuple[Ints, Ints]:
        """GPUs and CPU cores of these numbers of tasks, [B, K] each."""
        gpus = workers * self._task_gpus[..., 0] + ps * self._task_gpus[..., 1]
        cpus = workers * self._task_cpus[..., 0] + ps * self._task_cpus[..., 1]
        return gpus, cpus

    def two_fit(self, kind: TaskKind) -> Bools:
        """Whether two tasks of each job fit and are within its bounds, [B, K]."""
        task = int(kind == TaskKind.PS)
        most = self.config.most_ps if task else self.config.most_workers
        found = np.zeros(self.arrival.shape, dtype=bool)
        for (gpus, cpus), same in self._of_size[task]:
            each = np.full(self.free_cpus.shape, 2)
            for free, size in ((self.free_gpus, gpus), (self.free_cpus, cpus)):
                if size:
                    each = np.minimum(each, free // size)
            found |= same & (each.sum(axis=1) >= 2)[:, None]
        return found & ((self.ps if task else self.workers) + 2 <= most)

    def speed_of(self, workers: Ints, ps: Ints) -> Floats:
        """Epochs a slot by the table, without noise and interference, [B, K]."""
        inside = (workers <= self.config.most_workers) & (ps <= self.config.most_ps)
        table = self.speed_table[
            self.type_index,
            np.minimum(ps, self.config.most_ps),
            np.minimum(workers, self.config.most_workers),
        ]
        return np.where(inside, table, 0.0)

    def begin_slot(self) -> None:
        """All tasks are given again; those of the slot before are in `last_workers`, `last_ps`."""
        self.last_workers, self.last_ps = self.workers, self.ps
        self.workers = np.zeros_like(self.workers)
        self.ps = np.zeros_like(self.ps)
        self._clear()

    def allowed(self) -> Bools:
        """What may be added to which job, [B, K, 3] by `TaskKind`: active, within bounds, and fits."""
        if self._allowed is None:
            self._allowed = self._find_allowed()
        return self._allowed

    def limit_to(self, among: Bools | None) -> None:
        """Only these jobs, [B, K], may get tasks for now; None: all (batches of section 4.1)."""
        self._among = among
        self._allowed = None

    def _find_allowed(self) -> Bools:
        active = self.active & ~self.over[:, None]
        if self._among is not None:
            active &= self._among
        worker = active & (self.workers < self.config.most_workers) & self._fits(0)
        ps = active & self.has_ps & (self.ps < self.config.most_ps) & self._fits(1)
        return np.stack([worker, ps, worker & ps & self._both_fit(worker & ps)], axis=-1)

    def _fits(self, task: int) -> Bools:
        """Whether a server has room for the task of each job, [B, K]."""
        found = np.zeros(self.arrival.shape, dtype=bool)
        for size, same in self._of_size[task]:
            found |= same & self._fits_on(size).any(axis=1, keepdims=True)
        return found

    def _jobs_of_size(self, task: int) -> list[tuple[tuple[int, int], Bools]]:
        gpus, cpus = self._task_gpus[..., task], self._task_cpus[..., task]
        kinds = self.config.types
        demands = [kind.worker if task == 0 else kind.ps for kind in kinds]
        sizes = sorted({(demand.gpus, demand.cpus) for demand in demands if demand})
        return [(size, (gpus == size[0]) & (cpus == size[1])) for size in sizes]

    def _both_fit(self, wanted: Bools) -> Bools:
        """Whether the PS still fits once the worker has its server, [B, K]."""
        found = np.zeros(self.arrival.shape, dtype=bool)
        for size, same in self._of_size[1]:
            # A worker takes room of one server, so with two a PS finds one.
            found |= wanted & same & (self._fits_on(size).sum(axis=1, keepdims=True) > 1)
        rows, jobs = np.nonzero(wanted & ~found)
        if len(rows):
            server = self._servers_for(rows, jobs, 0)
            each = np.arange(len(rows))
            room = np.ones((len(rows), self.config.servers), dtype=bool)
            for all_free, demand in (
                (self.free_gpus, self._task_gpus),
                (self.free_cpus, self._task_cpus),
            ):
                free, task = all_free[rows], demand[rows, jobs]
                free[each, server] -= task[:, 0]
                room &= free >= task[:, 1:]
            found[rows, jobs] = room.any(axis=1)
        return found

    def _fits_on(self, size: tuple[int, int]) -> Bools:
        """The servers with room for a task of these GPUs and CPU cores, [B, S]."""
        if size not in self._room:
            self._room[size] = (self.free_gpus >= size[0]) & (self.free_cpus >= size[1])
        return self._room[size]

    def _servers_for(self, rows: Ints, jobs: Ints, task: int) -> Ints:
        """Where the next task of each of these jobs goes, [n]. Where none has room it means nothing."""
        gpus, cpus = self._task_gpus[rows, jobs, task], self._task_cpus[rows, jobs, task]
        free_gpus, free_cpus = self.free_gpus[rows], self.free_cpus[rows]
        fits = (free_gpus >= gpus[:, None]) & (free_cpus >= cpus[:, None])
        rank = free_gpus / max(self.config.gpus_per_server, 1)
        rank = rank + free_cpus / max(self.config.cpus_per_server, 1)
        if self.config.placement == "own-first":
            rank += 8 * self.is_on[rows, jobs] + 4 * (self.jobs_on[rows] == 0)
        return np.asarray(np.where(fits, rank, -1.0).argmax(axis=1), dtype=np.int64)

    def add(self, job: Ints, kind: Ints) -> Bools:
        """Adds a task or bundle to one job of each cluster, [B] each; job -1: nothing.

        Returns where it was done, [B]. What does not fit or is not allowed is not done, in whole.
        """
        rows = np.nonzero(job >= 0)[0]
        done = np.zeros(self.clusters, dtype=bool)
        if not len(rows):
            return done
        fits = self.allowed()[rows, job[rows], kind[rows]]
        rows = rows[fits]
        done[rows] = True
        for task, also in ((0, TaskKind.WORKER), (1, TaskKind.PS)):
            some = rows[(kind[rows] == also) | (kind[rows] == TaskKind.BUNDLE)]
            if len(some):
                self._place(some, job[some], task)
        return done

    def _place(self, rows: Ints, job: Ints, task: int) -> None:
        gpus, cpus = self._task_gpus[rows, job, task], self._task_cpus[rows, job, task]
        server = self._servers_for(rows, job, task)
        self.free_gpus[rows, server] -= gpus
        self.free_cpus[rows, server] -= cpus
        (self.ps if task else self.workers)[rows, job] += 1
        self.jobs_on[rows, server] += ~self.is_on[rows, job, server]
        self.is_on[rows, job, server] = True
        others = self.is_on[rows, :, server] * (self.jobs_on[rows, server] - 1)[:, None]
        self.neighbours[rows] = np.maximum(self.neighbours[rows], others)
        self._room = {}
        self._allowed = None

    def capacity_by_server(self) -> Ints:
        """GPUs and CPU cores of each server in this slot, [S, 2]."""
        config = self.config
        there = config.servers if config.capacity is None else config.capacity(self.slot)
        if not 0 <= there <= config.servers:
            raise InputError(f"elastic world: capacity of slot {self.slot} is {there} servers")
        up = np.arange(config.servers) < there
        found: Ints = up[:, None] * np.array([config.gpus_per_server, config.cpus_per_server])
        return found

    def task_demands(self, cluster: int) -> Ints:
        """What a worker and a PS of each job take, [K, 2, 2]: task, then GPUs and CPU cores."""
        return np.stack([self._task_gpus[cluster], self._task_cpus[cluster]], axis=-1)

    def set_places(self, cluster: int, place: Ints) -> None:
        """Places the tasks that one cluster's jobs have: workers and PSs by server, [K, 2, S]."""
        taken = np.einsum("kts,ktr->sr", place, self.task_demands(cluster))
        free = self.capacity_by_server() - taken
        self.free_gpus[cluster], self.free_cpus[cluster] = free[:, 0], free[:, 1]
        self.is_on[cluster] = place.any(axis=1)
        self.jobs_on[cluster] = self.is_on[cluster].sum(axis=0)
        others = self.is_on[cluster] * (self.jobs_on[cluster] - 1)
        self.neighbours[cluster] = others.max(axis=1)
        self._room, self._allowed = {}, None

    def end_slot(self) -> Floats:
        """Runs the slot; returns equation 1's reward: epochs trained over estimated epochs, [B]."""
        speed = self.speed_of(self.workers, self.ps) * self._disturbance()
        share = np.maximum(1 - self._standstill_s() / self.config.slot_s, 0.0)
        gained = np.where(self.active & ~self.over[:, None], speed * share, 0.0)
        left = self.epochs - self.trained
        ends = (gained > 0) & (gained >= left * (1 - 1e-12))
        fraction = np.divide(left, gained, out=np.ones_like(left), where=gained > 0)
        self.finish = np.where(ends, self.slot + np.minimum(fraction, 1.0), self.finish)
        gained = np.where(ends, left, gained)
        self.ran_slots += gained > 0
        self.trained += gained
        self.last_epochs = gained
        self.slot += 1
        self._allowed = None
        reward: Floats = (gained / self.estimate).sum(axis=1)
        return reward

    def _disturbance(self) -> Floats:
        factor = np.ones(self.arrival.shape)
        if self.config.variation:
            factor += self.config.variation * self._rng.uniform(-1, 1, self.arrival.shape)
        if self.config.interference:
            factor *= np.maximum(1 - self.config.interference * self.neighbours, 0.05)
        return factor

    def _standstill_s(self) -> Floats:
        if not self.config.scaling_s:
            return np.zeros(self.arrival.shape)
        changed = np.abs(self.workers - self.last_workers) + np.abs(self.ps - self.last_ps)
        return np.where(self.ran_slots > 0, changed * self.config.scaling_s, 0.0)

    def completion_slots(self) -> Floats:
        """From arrival to end of each job, in slots and fractions, [B, K].

        Jobs that have not ended count to the last slot.
        """
        end: Floats = np.where(np.isnan(self.finish), self.slot, self.finish)
        return end - self.arrival

    def bound_slots(self) -> Floats:
        """Lower bound of `completion_slots`: each job alone at its best shape, [B, K]."""
        best = self.speed_table.max(axis=(1, 2))[self.type_index]
        bound: Floats = self.epochs / best
        return bound


def _demands(kind: JobType) -> tuple[tuple[int, int], tuple[int, int]]:
    """((worker GPUs, PS GPUs), (worker CPUs, PS CPUs))."""
    ps = kind.ps
    return (kind.worker.gpus, ps.gpus if ps else 0), (kind.worker.cpus, ps.cpus if ps else 0)


def estimated_left(world: ElasticWorld) -> Floats:
    """Epochs left by the owner's estimate. Who is past it counts as having a twentieth left."""
    left: Floats = np.maximum(world.estimate - world.trained, world.estimate / 20)
    return left
