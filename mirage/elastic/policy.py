"""A trained policy as an allocator: batch after batch of jobs, until each says void (section 4.1)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor

from mirage.elastic.network import Networks
from mirage.elastic.observation import (
    EMPTY,
    KINDS,
    ElasticObservation,
    Encoder,
    batch_of,
    observe,
    task_of,
)
from mirage.elastic.world import ElasticWorld, Ints
from mirage.rl.policy import log_policy, sample_actions

Act = Callable[[ElasticObservation, Ints], Ints]
"""A batch of each cluster, and the rows that ask -> the actions of these rows."""


@dataclass(kw_only=True)
class BatchAllocator:
    """Asks ``act`` for one action after the other. See `Allocator`."""

    name: str
    encoder: Encoder
    act: Act
    places: int
    """J."""
    shuffle: np.random.Generator | None = None
    """Jobs of a batch in a random order, as in a training; None: by arrival."""
    _nth: Ints = field(init=False)
    _jobs: Ints = field(init=False)

    def reset(self, world: ElasticWorld) -> None:
        """See `Allocator`."""
        self.encoder.reset(world)

    def begin_slot(self, world: ElasticWorld) -> None:
        """See `Allocator`."""
        self.encoder.begin_slot(world)
        self._nth = np.zeros(world.clusters, dtype=np.int64)
        count = (world.active & ~world.over[:, None]).sum(axis=1)
        self._batches = -(-count // self.places)
        self._jobs = self._ordered(batch_of(world, self.places, self._nth))

    def _ordered(self, jobs: Ints) -> Ints:
        if self.shuffle is None:
            return jobs
        order = np.where(jobs >= 0, self.shuffle.random(jobs.shape), 2.0).argsort(axis=1)
        return np.take_along_axis(jobs, order, axis=1)

    def choose(self, world: ElasticWorld) -> tuple[Ints, Ints]:
        """See `Allocator`. A batch ends by void, or as nothing more fits."""
        job = np.full(world.clusters, EMPTY)
        kind = np.zeros(world.clusters, dtype=np.int64)
        waiting = self._nth < self._batches
        while waiting.any():
            seen = observe(world, self.encoder, self._jobs)
            rows = np.nonzero(waiting & seen.possible[:, :-1].any(axis=1))[0]
            action = np.full(world.clusters, self.places * KINDS)
            if len(rows):
                action[rows] = self.act(seen, rows)
            asked, kinds = task_of(self._jobs, action)
            given = waiting & (asked >= 0)
            job[given], kind[given] = asked[given], kinds[given]
            waiting &= ~given
            self._nth += waiting
            if waiting.any():
                following = self._ordered(batch_of(world, self.places, self._nth))
                self._jobs = np.where(waiting[:, None], following, self._jobs)
            waiting &= self._nth < self._batches
        return job, kind


@dataclass(kw_only=True)
class NetworkAct:
    """Actions by a network: sampled, or the most probable ones."""

    networks: Networks
    generator: torch.Generator | None = None
    """Samples with it; None: the most probable action, as in service."""

    def __call__(self, seen: ElasticObservation, rows: Ints) -> Ints:
        """See `Act`."""
        log_probs = log_probs_of(self.networks, *as_tensors(seen, rows))
        best = log_probs.argmax(dim=-1)
        chosen = sample_actions(log_probs, self.generator) if self.generator else best
        return np.asarray(chosen.numpy(), dtype=np.int64)


def as_tensors(seen: ElasticObservation, rows: Ints) -> tuple[Tensor, Tensor, Tensor]:
    """State [n, J, F], places with a job [n, J], possible actions [n, 3 J + 1]."""
    return (
        torch.from_numpy(seen.state[rows]),
        torch.from_numpy(seen.jobs[rows] >= 0),
        torch.from_numpy(seen.possible[rows]),
    )


@torch.no_grad()
def log_probs_of(networks: Networks, state: Tensor, there: Tensor, possible: Tensor) -> Tensor:
    """Log-probabilities of all actions, [n, 3 J + 1]."""
    return log_policy(networks.logits(state, there), possible)


def learned(
    name: str,
    networks: Networks,
    encoder: Encoder,
    places: int,
    *,
    seed: int | None = None,
) -> BatchAllocator:
    """A policy in service; ``seed``: samples its actions instead of taking the best."""
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    act = NetworkAct(networks=networks, generator=generator)
    return BatchAllocator(name=name, encoder=encoder, act=act, places=places)
