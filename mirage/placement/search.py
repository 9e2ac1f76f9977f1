"""A search for good GPUs of given jobs: who runs where, and who waits (equation 4, with moves).

It needs no trained model. `propose` is for people and for `mirage place advise`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from mirage.errors import InputError
from mirage.placement.packing import best_fit
from mirage.placement.speed import SpeedModel, speeds
from mirage.placement.topology import Bools, Floats, Topology
from mirage.placement.world import Ints


@dataclass(frozen=True, kw_only=True)
class PlacementJob:
    """A job that has GPUs or waits for them."""

    name: str
    gpus: int
    """GPUs that it asks for; it gets so many or none."""
    held: tuple[int, ...] = ()
    """The GPUs that it has, as indices of the topology; empty: it waits."""
    minibatch_distance: float
    """FLOPs of a minibatch on one GPU (`SpeedModel.minibatch_distance`)."""
    reduction_per_root_s: float
    """`SpeedModel.reduction_per_root_s` of its gradient."""
    weight: float = 1.0
    """What its progress is worth beside that of the others."""
    may_move: bool = True
    """Whether it may get other GPUs, or none. False: it stays as it is, a constraint."""
    may_pause: bool = True
    """Whether it may lose its GPUs to others; only where it may move."""


@dataclass(frozen=True, kw_only=True)
class Proposal:
    """The best placement that was found. All in the order of the jobs."""

    held: tuple[tuple[int, ...], ...]
    """The GPUs of each job; empty: it waits."""
    speeds_now: Floats
    """FLOPS of each job as it is (equation 3), [J]."""
    speeds_after: Floats
    """FLOPS of each job as proposed, [J]."""
    moves: int
    """Steps of the search that made it better."""
    is_complete: bool
    """Whether no single further move would help; False: the time was up before."""


def propose(
    topology: Topology,
    jobs: Sequence[PlacementJob],
    *,
    model: SpeedModel | None = None,
    available: Bools | None = None,
    most_s: float = 1.0,
) -> Proposal:
    """Steepest ascent on equation 4 from the placement that there is; anytime, by single moves.

    A move: a waiting job starts, or takes the GPUs of a job that is paused; a job goes to free GPUs
    as a whole or with one GPU; two jobs change a GPU. A job's speed counts as a share of its speed
    alone on one rack, times its weight, so that a job of much arithmetic does not outweigh others.
    ``available`` [M]: GPUs that may be given at all (None: all); those that jobs hold count as so.

    Raises InputError for a GPU that two jobs hold or that is not there, and for a job that asks for
    more GPUs than there are.
    """
    model = model or SpeedModel()
    _check(topology, jobs)
    board = _Board(topology, jobs, model, available)
    owner, moves, complete = board.climb(time.monotonic() + most_s)
    return Proposal(
        held=tuple(tuple(np.nonzero(owner == nth)[0].tolist()) for nth in range(len(jobs))),
        speeds_now=board.speeds(board.start[None])[0],
        speeds_after=board.speeds(owner[None])[0],
        moves=moves,
        is_complete=complete,
    )


def _check(topology: Topology, jobs: Sequence[PlacementJob]) -> None:
    owner: dict[int, str] = {}
    for job in jobs:
        if not 1 <= job.gpus <= len(topology):
            raise InputError(
                f"job {job.name} asks for {job.gpus} GPUs; {topology.source} has {len(topology)}"
            )
        for gpu in job.held:
            if not 0 <= gpu < len(topology):
                raise InputError(f"job {job.name} holds GPU {gpu}, which {topology.source} lacks")
            if gpu in owner:
                name = topology.gpus[gpu].name
                raise InputError(f"jobs {owner[gpu]} and {job.name} both hold GPU {name}")
            owner[gpu] = job.name


class _Board:
    """Jobs on GPUs. An owner [M] is a job's index, `nobody` (free) or -1 (not to be given)."""

    def __init__(
        self,
        topology: Topology,
        jobs: Sequence[PlacementJob],
        model: SpeedModel,
        available: Bools | None,
    ) -> None:
        self.topology, self.jobs, self.model = topology, jobs, model
        self.nobody = len(jobs)
        self._index = np.arange(len(jobs))[:, None]
        self._distance = np.array([job.minibatch_distance for job in jobs], dtype=np.float64)
        self._per_root_s = np.array([job.reduction_per_root_s for job in jobs], dtype=np.float64)
        wanted = np.array([job.gpus for job in jobs], dtype=np.int64)
        alone_s = model.training_s(self._distance) + model.rack_reduction_s(
            self._per_root_s, wanted
        )
        self._weight = np.array([job.weight for job in jobs], dtype=np.float64)
        self._gain = self._weight * alone_s / (self._distance * wanted)
        given = np.ones(len(topology), dtype=bool) if available is None else available
        self.start: Ints = np.where(given, self.nobody, -1)
        for nth, job in enumerate(jobs):
            self.start[list(job.held)] = nth

    def speeds(self, owners: Ints) -> Floats:
        """[L, M] -> FLOPS [L, J]."""
        return speeds(
            self.model,
            self.topology,
            owners[:, None, :] == self._index,
            minibatch_distance=self._distance,
            per_root_s=self._per_root_s,
        )

    def scores(self, owners: Ints) -> Floats:
        """Equation 4 with each job's speed as a share of that alone; who waits costs its weight."""
        speed = self.speeds(owners)
        found: Floats = np.where(speed > 0, speed * self._gain, -self._weight).sum(axis=1)
        return found

    def climb(self, until_s: float) -> tuple[Ints, int, bool]:
        owner, moves = self.start, 0
        score = float(self.scores(owner[None])[0]) if self.jobs else 0.0
        while True:
            best: Ints | None = None
            for batch in _batches(self._moves(owner)):
                scores = self.scores(batch)
                nth = int(scores.argmax())
                if scores[nth] > score + 1e-9:
                    best, score = batch[nth], float(scores[nth])
                if time.monotonic() > until_s:
                    return (owner, moves, False) if best is None else (best, moves + 1, False)
            if best is None:
                return owner, moves, True
            owner, moves = best, moves + 1

    def _moves(self, owner: Ints) -> Iterator[Ints]:
        free = owner == self.nobody
        loose = [nth for nth, job in enumerate(self.jobs) if job.may_move]
        runs = [nth for nth in loose if (owner == nth).any()]
        for nth in loose:
            mine = owner == nth
            wanted = self.jobs[nth].gpus
            if (free | mine).sum() >= wanted:
                yield self._placed(owner, nth, free | mine, wanted)
            if mine.any():
                yield from self._single(owner, nth, runs)
            else:
                for other in runs:
                    open_to = free | (owner == other)
                    if self.jobs[other].may_pause and open_to.sum() >= wanted:
                        without = np.where(owner == other, self.nobody, owner)
                        yield self._placed(without, nth, open_to, wanted)

    def _placed(self, owner: Ints, job: int, open_to: Bools, wanted: int) -> Ints:
        new = np.where(owner == job, self.nobody, owner)
        new[best_fit(self.topology, open_to, wanted)] = job
        return new

    def _single(self, owner: Ints, job: int, runs: Sequence[int]) -> Iterator[Ints]:
        """One GPU of the job for a free one, or for one of a later job that may move."""
        partners = [self.nobody, *(other for other in runs if other > job)]
        others = np.nonzero(np.isin(owner, partners))[0]
        for mine in np.nonzero(owner == job)[0]:
            for other in others:
                new = owner.copy()
                new[mine], new[other] = owner[other], job
                yield new


def _batches(moves: Iterator[Ints], size: int = 256) -> Iterator[Ints]:
    batch: list[Ints] = []
    for move in moves:
        batch.append(move)
        if len(batch) == size:
            yield np.stack(batch)
            batch = []
    if batch:
        yield np.stack(batch)
