"""Which samples a step trains on, and with which random numbers: by step and micro-shard alone."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from mirage.elastic.runtime.protocol import TrainingJob


class Batches:
    """The samples of each micro-shard of each step. Each epoch has an order of its own."""

    def __init__(self, job: TrainingJob) -> None:
        self._job = job
        self._epoch = -1
        self._order: NDArray[np.int64] = np.empty(0, dtype=np.int64)

    def indices(self, step: int, shard: int) -> list[int]:
        """Positions in the data set."""
        job = self._job
        epoch, place = divmod(step, job.epoch_steps)
        if epoch != self._epoch:
            generator = np.random.default_rng([job.seed, epoch])
            self._order, self._epoch = generator.permutation(job.samples), epoch
        first = place * job.batch_size + job.batch_size * shard // job.micro_shards
        last = place * job.batch_size + job.batch_size * (shard + 1) // job.micro_shards
        return [int(index) for index in self._order[first:last]]


def seed_generators(job: TrainingJob, step: int, shard: int) -> None:
    """Dropout and augmentation draw the same numbers whoever computes the micro-shard."""
    words: Any = np.random.SeedSequence([job.seed, step, shard]).generate_state(2)
    torch.manual_seed(int(words[0]))
    np.random.seed(int(words[1]))  # what data sets use
    random.seed(int(words[1]))
