"""Evolution strategies, as the policy `gain` learns (Salimans et al. 2017).

A generation tries weights on either side of the present ones, in antithetic pairs. All run the same
fresh job sequences, whose speeds vary alike (common random numbers), and each is worth its mean
completion time. So what a task given in one slot does to the slots after it is in the difference of
a pair: no reward has to be shared out among decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from mirage.elastic.baselines import run_slot
from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.gain_policy import GainAllocator, GainNetwork, GainWeights, Singles
from mirage.elastic.learn.online import Sequences
from mirage.elastic.world import ElasticConfig, ElasticWorld, Floats
from mirage.rl.fit import FitResult, Report, Stop, fit, linear
from mirage.rl.options import Count, MethodOptions, Rate


@dataclass(frozen=True, kw_only=True)
class EvolutionOptions(MethodOptions):
    """Of evolution strategies."""

    hidden: Count = 4
    """Units of the network's hidden layer."""
    generations: Count = 12
    pairs: Count = 8
    """Antithetic pairs of weights in a generation."""
    sequences: Count = 12
    """Fresh job sequences of a generation."""
    slots: Count = 20
    """Of an episode. What is left of a job then counts as running alone at its best shape."""
    spread: Rate = 0.15
    """Standard deviation of the weights that are tried; falls to half."""
    rate: Rate = 1.0
    """Step in units of `spread`; falls to a third."""
    validation: Count = 12
    """Sequences that choose the weights that are kept."""
    score_every: Count = 4
    """Generations between two validations."""


def completion_with_rest(world: ElasticWorld) -> Floats:
    """Mean completion time of each cluster, [B]; see `EvolutionOptions.slots`."""
    best = world.speed_table.max(axis=(1, 2))[world.type_index]
    rest = np.maximum(world.slot, world.arrival) + (world.epochs - world.trained) / best
    finish = np.where(np.isnan(world.finish), rest, world.finish)
    found: Floats = (finish - world.arrival).mean(axis=1)
    return found


class EvolutionLearner:
    """One generation after the other."""

    def __init__(
        self,
        network: GainNetwork,
        config: ElasticConfig,
        sequences: Sequences,
        *,
        knows_speeds: bool,
        options: EvolutionOptions,
        seed: int,
    ) -> None:
        self._network, self._options, self._sequences = network, options, sequences
        self._config = replace(config, most_slots=options.slots)
        self._knows_speeds, self._seed = knows_speeds, seed
        self._rng = np.random.default_rng(seed)

    def train_round(self, done: int) -> float:
        """A generation; returns the mean completion time of all weights tried, slots."""
        options = self._options
        part = done / options.generations
        spread = linear(options.spread, options.spread / 2, part)
        parts = [each.detach().numpy() for each in self._network.parameters()]
        noise = [self._rng.standard_normal((options.pairs, *each.shape)) for each in parts]
        tried = [
            (each + spread * np.concatenate([off, -off])).astype(np.float32)
            for each, off in zip(parts, noise, strict=True)
        ]
        slots = self._try(tried, done)
        gains = slots[options.pairs :] - slots[: options.pairs]
        gains = gains / max(float(np.sqrt((gains**2).mean())), 1e-12)
        step = spread * linear(options.rate, options.rate / 3, part)
        with torch.no_grad():
            for weight, off in zip(self._network.parameters(), noise, strict=True):
                change = np.tensordot(gains, off, axes=1) / options.pairs
                weight.add_(torch.from_numpy(change.astype(np.float32)), alpha=step)
        return float(slots.mean())

    def _try(self, tried: list[Singles], done: int) -> Floats:
        """Mean completion time of each network, [C]."""
        copies = len(tried[0])
        world = ElasticWorld(
            self._config,
            self._sequences(self._options.sequences),
            seed=self._seed * 1000 + done,
            copies=copies,
        )
        linear_part, into, out = tried
        allocator = GainAllocator(
            weights=GainWeights(linear=linear_part, into=into, out=out),
            estimates=None if self._knows_speeds else SpeedEstimates(seed=self._seed * 1000 + done),
        )
        allocator.reset(world)
        while not world.over.all():
            run_slot(world, allocator)
        found: Floats = completion_with_rest(world).reshape(copies, -1).mean(axis=1)
        return found


def learn_by_evolution(
    learner: EvolutionLearner,
    network: GainNetwork,
    options: EvolutionOptions,
    *,
    score: Callable[[], float] | None = None,
    progress: Report | None = None,
) -> FitResult:
    """Trains for `options.generations`; leaves the network with the weights of the best score."""
    return fit(
        network,
        learner.train_round,
        Stop(rounds=options.generations),
        score=score,
        is_scored=lambda done: done % options.score_every == 0,
        score_first=True,
        stage="evolution",
        progress=progress,
    )
