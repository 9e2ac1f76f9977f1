"""Schedulers without learning. Each gives all tasks of a slot again, one by one.

Each is built as its source means it. Where the published DL2 code is weaker, that version is there
too, as `NAME-published`: it stops at the first task that does not fit, and each job may take all
that is allowed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from mirage.elastic.even_places import place_evenly
from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.world import (
    STOP,
    Bools,
    ElasticWorld,
    Floats,
    Ints,
    TaskKind,
    estimated_left,
)


class Allocator(Protocol):
    """Chooses the next task of a slot, in all clusters at once."""

    name: str

    def reset(self, world: ElasticWorld) -> None:
        """Called at the start of an episode."""

    def begin_slot(self, world: ElasticWorld) -> None:
        """Called as a slot begins, before its first task."""

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """The job, or -1 for no further task, and the `TaskKind`, [B] each."""


def run_slot(world: ElasticWorld, scheduler: Allocator) -> Floats:
    """Gives a slot's tasks and runs it; returns the reward, [B]."""
    world.begin_slot()
    give_tasks(world, scheduler)
    return world.end_slot()


def give_tasks(world: ElasticWorld, scheduler: Allocator) -> None:
    """Gives tasks in a slot that has begun, until no cluster takes one more."""
    scheduler.begin_slot(world)
    going = ~world.over
    while going.any():
        job, kind = scheduler.choose(world)
        going &= world.add(np.where(going, job, STOP), kind)
    if isinstance(scheduler, Ascent) and scheduler.places_evenly:
        place_evenly(world)


Score = Callable[[ElasticWorld], Floats]
"""Whose turn is next, [B, K]: the highest."""


def _oldest(world: ElasticWorld) -> Floats:
    jobs = world.arrival.shape[1]
    return np.asarray(-(world.arrival + np.arange(jobs) / jobs), dtype=np.float64)


def _poorest(world: ElasticWorld) -> Floats:
    """DRF: least dominant share first."""
    return np.negative(world.dominant_share())


def _shortest(world: ElasticWorld) -> Floats:
    """SRTF: least time left at the job's own best shape, by its owner's epochs."""
    best = world.speed_table.max(axis=(1, 2))[world.type_index]
    return np.asarray(-estimated_left(world) / best, dtype=np.float64)


def _least_fraction(world: ElasticWorld) -> Floats:
    return np.negative(estimated_left(world) / world.estimate)


def _tetris(world: ElasticWorld) -> Floats:
    """Alignment less remaining work, both over their means (Grandl et al. 2014, section 3.3)."""
    return _alignment(world) - _normal_work(world)


def _tetris_published(world: ElasticWorld) -> Floats:
    return _alignment(world) + _normal_work(world)


def _alignment(world: ElasticWorld) -> Floats:
    """TaskDemand of a bundle times what is free, each as a share of the cluster."""
    one = np.ones(world.arrival.shape, dtype=np.int64)
    gpus = world.free_gpus.sum(axis=1, keepdims=True) / max(world.total_gpus, 1)
    cpus = world.free_cpus.sum(axis=1, keepdims=True) / max(world.total_cpus, 1)
    wanted_gpus, wanted_cpus = world.tasks_demand(one, one * world.has_ps)
    score = (
        wanted_gpus / max(world.total_gpus, 1) * gpus
        + wanted_cpus / max(world.total_cpus, 1) * cpus
    )
    return _over_mean(score, world.active)


def _normal_work(world: ElasticWorld) -> Floats:
    left = estimated_left(world) / world.speed_table.max(axis=(1, 2))[world.type_index]
    return _over_mean(left, world.active)


def _over_mean(values: Floats, of: Bools) -> Floats:
    count = np.maximum(of.sum(axis=1, keepdims=True), 1)
    mean = np.where(of, values, 0.0).sum(axis=1, keepdims=True) / count
    scaled: Floats = values / np.maximum(mean, 1e-12)
    return scaled


@dataclass(kw_only=True)
class RankedAllocator:
    """The job with the highest score gets a bundle, up to its shape; then the next."""

    name: str
    score: Score
    published: bool = False

    def reset(self, world: ElasticWorld) -> None:
        """Finds the shape that each job takes at most."""
        self._workers, self._ps = _shapes(world, published=self.published)

    def begin_slot(self, world: ElasticWorld) -> None:
        """Keeps nothing."""

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """See `Allocator`."""
        score, kind = self._scores(world)
        job = score.argmax(axis=1)
        rows = np.arange(world.clusters)
        return np.where(np.isfinite(score[rows, job]), job, STOP), kind[rows, job]

    def best(self, world: ElasticWorld) -> tuple[Bools, Ints]:
        """All jobs that share the highest score, and the `TaskKind` that each would get, [B, K]."""
        score, kind = self._scores(world)
        top = score.max(axis=1, keepdims=True)
        return np.asarray(np.isfinite(score) & (score >= top - 1e-12), dtype=np.bool_), kind

    def _scores(self, world: ElasticWorld) -> tuple[Floats, Ints]:
        """-inf for who gets nothing; the `TaskKind` of who would; [B, K]."""
        kind = np.where(
            ~world.has_ps | (world.ps >= self._ps),
            TaskKind.WORKER,
            np.where(world.workers >= self._workers, TaskKind.PS, TaskKind.BUNDLE),
        )
        wants = world.active & ((world.workers < self._workers) | (world.ps < self._ps))
        fits = np.take_along_axis(world.allowed(), kind[..., None], axis=2)[..., 0]
        candidates = wants if self.published else wants & fits
        return np.where(candidates, self.score(world), -np.inf), kind


def _shapes(world: ElasticWorld, *, published: bool) -> tuple[Ints, Ints]:
    """Workers and PSs that each job takes at most, [B, K] each.

    As its owner would ask, who measured the job once: the smallest shape within 2 % of its best
    speed. Published: equal numbers, all that is allowed.
    """
    config = world.config
    if published:
        workers = np.full(world.arrival.shape, config.most_workers)
        return workers, np.where(world.has_ps, config.most_ps, 0)
    shapes = [_smallest_good(table) for table in world.speed_table]
    chosen = np.array(shapes)[world.type_index]
    return chosen[..., 0], chosen[..., 1]


def _smallest_good(table: Floats) -> tuple[int, int]:
    good = np.argwhere(table >= 0.98 * table.max())
    ps, workers = min(good.tolist(), key=lambda shape: (shape[0] + shape[1], shape[1]))
    return workers, ps


_MOVES: tuple[tuple[int, int], ...] = ((1, 0), (0, 1), (1, 1), (2, 0), (0, 2))
"""Workers and PSs that a move adds."""
_MOVE_KINDS = (
    (TaskKind.WORKER,),
    (TaskKind.PS,),
    (TaskKind.BUNDLE,),
    (TaskKind.WORKER, TaskKind.WORKER),
    (TaskKind.PS, TaskKind.PS),
)


@dataclass(kw_only=True)
class Ascent:
    """Steepest ascent, by gains of moves that add one or two tasks.

    ``objective``: `reward` (equation 1: epochs over estimated epochs) or `time` (Optimus: fall of
    the remaining time). ``per_share``: gains over the dominant share that a move takes.
    """

    name: str
    objective: str
    per_share: bool = True
    pairs: bool = True
    """Also moves of two tasks."""
    published: bool = False
    places_evenly: bool = False
    """Tasks are placed as Optimus does once all are chosen; else one by one, as the world does."""
    estimates: SpeedEstimates | None = None
    """Speeds as learnt from what was seen; None: the true ones."""

    def reset(self, world: ElasticWorld) -> None:
        """Starts with no move under way."""
        if self.estimates:
            self.estimates.reset(world)
        self._second = np.full(world.clusters, STOP)
        self._second_kind = np.zeros(world.clusters, dtype=np.int64)

    def begin_slot(self, world: ElasticWorld) -> None:
        """Takes in the speeds of the slot before."""
        if self.estimates:
            self.estimates.observe(world)
        self._second[:] = STOP

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """See `Allocator`. The second task of a move comes right after its first."""
        gains = np.stack([self._gain(world, nth) for nth in range(len(self._moves))], axis=-1)
        flat = gains.reshape(world.clusters, -1)
        best = flat.argmax(axis=1)
        job, move = np.divmod(best, len(self._moves))
        rows = np.arange(world.clusters)
        found = flat[rows, best] > 1e-12
        first = np.array([kinds[0] for kinds in _MOVE_KINDS])[move]
        kind = np.where(self._second >= 0, self._second_kind, first)
        chosen = np.where(self._second >= 0, self._second, np.where(found, job, STOP))
        two = found & (self._second < 0) & (move >= 3)
        self._second = np.where(two, job, STOP)
        self._second_kind = first
        return chosen, kind

    @property
    def _moves(self) -> tuple[tuple[int, int], ...]:
        return _MOVES if self.pairs else _MOVES[:3]

    def _gain(self, world: ElasticWorld, nth: int) -> Floats:
        more_workers, more_ps = _MOVES[nth]
        workers, ps = world.workers + more_workers, world.ps + more_ps
        gain = self._value(world, workers, ps) - self._value(world, world.workers, world.ps)
        if self.per_share:
            share = world.share_of(workers, ps) - world.dominant_share()
            gain = gain / np.maximum(share, 1 / (4 * max(world.total_cpus, world.total_gpus)))
        possible = world.active if self.published else world.allowed()[..., _MOVE_KINDS[nth][0]]
        if self.published and _MOVE_KINDS[nth] == (TaskKind.BUNDLE,):
            # Its jobs start with a bundle; later only single tasks are tried.
            possible = possible & (world.workers == 0)
        if len(_MOVE_KINDS[nth]) == 2:
            possible = possible & world.two_fit(_MOVE_KINDS[nth][0])
        return np.where(possible, gain, -np.inf)

    def _value(self, world: ElasticWorld, workers: Ints, ps: Ints) -> Floats:
        speed = (self.estimates or world).speed_of(workers, ps)
        if self.objective == "reward":
            return np.asarray(speed / world.estimate, dtype=np.float64)
        left = estimated_left(world)
        # A job without speed counts as one that is very slow, so that its first bundle is a gain.
        slow = 1e-3 * world.speed_table.max(axis=(1, 2))[world.type_index]
        return np.asarray(-left / np.maximum(speed, slow), dtype=np.float64)


def baseline(name: str, *, seed: int = 0) -> Allocator:
    """A scheduler by its name. Raises KeyError."""
    return _BASELINES[name](seed)


def _ranked(name: str, score: Score, *, published: bool = False) -> Callable[[int], Allocator]:
    return lambda _seed: RankedAllocator(name=name, score=score, published=published)


def _optimus(name: str, estimates: SpeedEstimates | None = None) -> Ascent:
    return Ascent(name=name, objective="time", pairs=False, places_evenly=True, estimates=estimates)


_BASELINES: dict[str, Callable[[int], Allocator]] = {
    "drf": _ranked("drf", _poorest),
    "fifo": _ranked("fifo", _oldest),
    "srtf": _ranked("srtf", _shortest),
    "tetris": _ranked("tetris", _tetris),
    "optimus": lambda seed: _optimus("optimus", estimates=SpeedEstimates(seed=seed)),
    "optimus-oracle": lambda _seed: _optimus("optimus-oracle"),
    "greedy": lambda _seed: Ascent(name="greedy", objective="reward"),
    "greedy-learnt": lambda seed: Ascent(
        name="greedy-learnt", objective="reward", estimates=SpeedEstimates(seed=seed)
    ),
    "drf-published": _ranked("drf-published", _poorest, published=True),
    "fifo-published": _ranked("fifo-published", _oldest, published=True),
    "srtf-published": _ranked("srtf-published", _least_fraction, published=True),
    "tetris-published": _ranked("tetris-published", _tetris_published, published=True),
    "optimus-published": lambda _seed: Ascent(
        name="optimus-published", objective="time", pairs=False, per_share=False, published=True
    ),
}
BASELINES = tuple(_BASELINES)
