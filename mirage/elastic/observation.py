"""What a policy sees and may do: jobs in batches of J, in the order of their arrival (section 4.1).

An action is 3 n + kind for the job in place n, or 3 J: void, no more for this batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol, TypeVar

import numpy as np
import numpy.typing as npt

from mirage.elastic.speed import JobType
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Floats, Ints, TaskKind

KINDS = len(TaskKind)
EMPTY = -1
ADDED_WORKERS, ADDED_PS = np.array([1, 0, 1]), np.array([0, 1, 1])
"""By `TaskKind`."""
SLOTS_SCALE = 24.0
"""Divides slots and remaining slots, so that inputs are of the order of 1."""


class Encoder(Protocol):
    """Describes jobs by numbers."""

    name: str

    def size(self, types: int, /) -> int:
        """F: numbers for each job, in a world of so many job types."""

    def reset(self, world: ElasticWorld) -> None:
        """Called at the start of an episode."""

    def begin_slot(self, world: ElasticWorld) -> None:
        """Called as a slot begins, before its first task."""

    def encode(self, world: ElasticWorld, jobs: Ints) -> Floats:
        """[B, J, F], float32, of the jobs [B, J] in the middle of a slot; -1 gives zeros."""


@dataclass(frozen=True, kw_only=True)
class ElasticObservation:
    """One batch of each of B clusters."""

    state: Floats
    """[B, J, F], float32."""
    possible: Bools
    """[B, 3 J + 1]; the void action always is."""
    jobs: Ints
    """[B, J]: the job in each place; -1: the place is empty."""
    workers: Ints
    """[B, J]."""
    ps: Ints
    """[B, J]."""


class PaperEncoder:
    """The state of section 4.1: type (one-hot), slots run, epochs left, dominant share, workers, PSs.

    Epochs left are divided by the type's epochs a slot at its best shape, so that inputs of all
    types have one scale. Slots are logarithms, since some jobs are far longer than most. Shares are
    relative to an equal share.
    """

    name = "paper"

    def size(self, types: int) -> int:
        """See `Encoder`."""
        return types + 5

    def reset(self, world: ElasticWorld) -> None:
        """Keeps nothing."""

    def begin_slot(self, world: ElasticWorld) -> None:
        """Keeps nothing."""

    def encode(self, world: ElasticWorld, jobs: Ints) -> Floats:
        """See `Encoder`."""
        there = jobs >= 0
        config = world.config
        best = world.speed_table.max(axis=(1, 2))[world.type_index]
        left = np.maximum(world.estimate - world.trained, 0) / best
        running = np.maximum(there.sum(axis=1, keepdims=True), 1)
        numbers = [
            np.log1p(pick(world.ran_slots, jobs)) / 3,
            np.log1p(pick(left, jobs)) / 3,
            pick(world.dominant_share(), jobs) * running,
            pick(world.workers, jobs) / config.most_workers,
            pick(world.ps, jobs) / max(config.most_ps, 1),
        ]
        kind = (pick(world.type_index, jobs)[..., None] == np.arange(len(config.types))) + 0.0
        state = np.concatenate([kind, np.stack(numbers, axis=-1)], axis=-1)
        return np.where(there[..., None], state, 0.0).astype(np.float32)

    def after(self, config: ElasticConfig, state: Floats) -> Floats:
        """Inputs of each job with one more task of each `TaskKind`, [n, J, 3, F], float32.

        An action changes its job's tasks and share, and nothing else of the state.
        """
        types = len(config.types)
        found = np.repeat(state[:, :, None, :], KINDS, axis=2)
        found[..., types + 3] += ADDED_WORKERS / config.most_workers
        found[..., types + 4] += ADDED_PS / max(config.most_ps, 1)
        workers = found[..., types + 3] * config.most_workers
        ps = found[..., types + 4] * max(config.most_ps, 1)
        demand = np.array([_demands(kind) for kind in config.types])
        demand = demand / np.maximum(
            [config.servers * config.gpus_per_server, config.servers * config.cpus_per_server], 1
        )
        mine = np.einsum("njt,tab->njab", state[..., :types], demand)[:, :, None]
        share = (workers[..., None] * mine[..., 0, :] + ps[..., None] * mine[..., 1, :]).max(
            axis=-1
        )
        running = state[..., :types].any(axis=-1).sum(axis=1)
        found[..., types + 2] = share * running[:, None, None]
        return found


def _demands(kind: JobType) -> tuple[tuple[int, int], tuple[int, int]]:
    """GPUs and CPU cores of a worker and of a PS."""
    ps = kind.ps
    return (kind.worker.gpus, kind.worker.cpus), (ps.gpus, ps.cpus) if ps else (0, 0)


N = TypeVar("N", np.int64, np.float64)


def pick(values: npt.NDArray[N], jobs: Ints) -> npt.NDArray[N]:
    """Of values of all jobs [B, K] those of the jobs [B, J]."""
    return np.take_along_axis(values, np.maximum(jobs, 0), axis=1)


def batch_of(world: ElasticWorld, places: int, nth: Ints) -> Ints:
    """The jobs of the ``nth`` [B] batch of the active ones, [B, J]; -1: none."""
    active = world.active & ~world.over[:, None]
    turn = active.cumsum(axis=1) - 1 - nth[:, None] * places
    found = np.full((world.clusters, places), EMPTY)
    row, job = np.nonzero(active & (turn >= 0) & (turn < places))
    found[row, turn[row, job]] = job
    return found


def observe(world: ElasticWorld, encoder: Encoder, jobs: Ints) -> ElasticObservation:
    """The state of a batch [B, J] in the middle of a slot."""
    clusters, places = jobs.shape
    there = jobs >= 0
    allowed = np.take_along_axis(world.allowed(), np.maximum(jobs, 0)[..., None], axis=1)
    possible = np.ones((clusters, places * KINDS + 1), dtype=bool)
    possible[:, :-1] = (allowed & there[..., None]).reshape(clusters, -1)
    return ElasticObservation(
        state=encoder.encode(world, jobs),
        possible=possible,
        jobs=jobs,
        workers=np.where(there, pick(world.workers, jobs), 0),
        ps=np.where(there, pick(world.ps, jobs), 0),
    )


def task_of(jobs: Ints, action: Ints) -> tuple[Ints, Ints]:
    """The job, or -1 for void, and the `TaskKind` of actions [B] on a batch [B, J]."""
    places = jobs.shape[1]
    void = action >= places * KINDS
    place, kind = np.divmod(np.where(void, 0, action), KINDS)
    return np.where(void, EMPTY, jobs[np.arange(len(action)), place]), kind
