"""The policy `gain` learns by evolution strategies (`mirage.rl.evolution`).

All weights of a generation run the same fresh job sequences, whose speeds vary alike (common random
numbers), and each is worth its mean completion time. So what a task given in one slot does to the
slots after it is in the difference of a pair: no reward has to be shared out among decisions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from mirage.elastic.baselines import run_slot
from mirage.elastic.fitting import SpeedEstimates
from mirage.elastic.gain_policy import GainAllocator, GainNetwork, GainWeights
from mirage.elastic.learn.online import Sequences
from mirage.elastic.world import ElasticConfig, ElasticWorld, Floats
from mirage.rl.evolution import Evolution
from mirage.rl.fit import FitResult, Report, Stop, fit
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
        self._options, self._sequences = options, sequences
        self._config = replace(config, most_slots=options.slots)
        self._knows_speeds, self._seed = knows_speeds, seed
        self._evolution = Evolution(
            weights=list(network.parameters()),
            pairs=options.pairs,
            spread=options.spread,
            rate=options.rate,
            random=np.random.default_rng(seed),
        )

    def train_round(self, done: int) -> float:
        """A generation; returns the mean completion time of all weights tried, slots."""
        part = done / self._options.generations
        return self._evolution.generation(part, lambda tried: self._try(tried, done))

    def _try(self, tried: list[Floats], done: int) -> Floats:
        """Mean completion time of each network, [C]."""
        copies = len(tried[0])
        world = ElasticWorld(
            self._config,
            self._sequences(self._options.sequences),
            seed=self._seed * 1000 + done,
            copies=copies,
        )
        linear_part, into, out = (each.astype(np.float32) for each in tried)
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
