"""Training of the policy for rounds by evolution strategies (`mirage.rl.evolution`).

Only the network's linear part is trained: one number for each feature and action. All weights of an
iteration are played on the same drawn workloads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from mirage.elastic.measured.rounds import LinearRounds, SetRounds, ValueNetwork
from mirage.elastic.measured.schedulers import mean_completion_s
from mirage.elastic.measured.world import PolluxConfig
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Floats
from mirage.rl.evolution import Evolution
from mirage.rl.fit import FitResult, Report, Stop, fit
from mirage.rl.options import Count, MethodOptions, Rate


@dataclass(frozen=True, kw_only=True)
class RoundsEvolutionOptions(MethodOptions):
    """Of the weights that are tried."""

    pairs: Count = 6
    """Pairs of weights of an iteration."""
    spread: Rate = 0.1
    """Standard deviation of what is added to each weight; falls to a half."""
    rate: Rate = 1.0
    """Length of a step in units of `spread`; falls to a third."""


@dataclass(frozen=True, kw_only=True)
class RoundsOptions(MethodOptions):
    """Of one training."""

    evolution: RoundsEvolutionOptions = field(default_factory=RoundsEvolutionOptions)
    iterations: Count = 8
    """Times that workloads are played and learnt from."""
    workloads: Count = 6
    """Drawn in each iteration."""
    width: Count = 48
    layers: Count = 1
    heads: Count = 4
    validation: Count = 16
    """Workloads that choose the weights that are kept."""
    score_every: Count = 2
    """Iterations between two validations."""


class RoundsLearner:
    """Plays and learns."""

    def __init__(
        self,
        network: ValueNetwork,
        config: PolluxConfig,
        draw: Callable[[int], Sequence[ElasticJobs]],
        options: RoundsOptions,
        *,
        seed: int,
    ) -> None:
        self.network, self.config, self._draw = network, config, draw
        self._iterations, self._workloads = options.iterations, options.workloads
        self._evolution = Evolution(
            weights=[network.linear.weight.detach().T],  # as `LinearRounds` has them
            pairs=options.evolution.pairs,
            spread=options.evolution.spread,
            rate=options.evolution.rate,
            random=np.random.default_rng(seed),
        )

    def train_round(self, done: int) -> float:
        """An iteration; returns the mean completion time of all weights tried, in seconds."""
        return self._evolution.generation(done / self._iterations, self._play)

    def _play(self, tried: list[Floats]) -> Floats:
        """Mean completion time of each of the weights [P, FEATURES, ACTIONS], seconds, [P]."""
        (weights,) = tried
        workloads = list(self._draw(self._workloads))
        policy = LinearRounds(weights=np.repeat(weights, len(workloads), axis=0))
        found = mean_completion_s(policy, self.config, workloads * len(weights))
        mean: Floats = found.reshape(len(weights), -1).mean(axis=1)
        return mean


def train_rounds(
    learner: RoundsLearner,
    options: RoundsOptions,
    validation: Sequence[ElasticJobs],
    *,
    progress: Report | None = None,
) -> FitResult:
    """Leaves the network with the weights of the lowest mean completion time, in seconds."""

    def score() -> float:
        policy = SetRounds(network=learner.network)
        return float(mean_completion_s(policy, learner.config, validation).mean())

    return fit(
        learner.network,
        learner.train_round,
        Stop(rounds=options.iterations),
        score=score,
        is_scored=lambda done: done % options.score_every == 0,
        score_first=True,
        stage="evolution",
        progress=progress,
    )
