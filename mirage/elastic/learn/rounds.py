"""Training of the policy for rounds by evolution strategies (Salimans et al. 2017).

Only the network's linear part is trained: one number for each feature and action. Pairs of weights,
one the mirror of the other, are played on the same drawn workloads. The difference of their mean
completion times is the gradient's estimate, so there is no credit to assign to single rounds.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch

from mirage.elastic.pollux_schedulers import mean_completion_s
from mirage.elastic.pollux_world import PolluxConfig
from mirage.elastic.rounds import ACTIONS, FEATURES, LinearRounds, SetRounds, ValueNetwork
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Floats
from mirage.rl.fit import FitResult, Report, Stop, fit, linear
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
        self._options, self._iterations = options.evolution, options.iterations
        self._workloads = options.workloads
        self._rng = np.random.default_rng(seed)

    def train_round(self, done: int) -> float:
        """An iteration; returns the mean completion time of all weights tried, in seconds."""
        options, part = self._options, done / self._iterations
        spread = linear(options.spread, options.spread / 2, part)
        weights = self.network.linear.weight.detach().numpy().T.astype(np.float64)
        noise = self._rng.standard_normal((options.pairs, FEATURES, ACTIONS))
        found = self._play(weights + spread * np.concatenate([noise, -noise]))
        gains = found[options.pairs :] - found[: options.pairs]
        gains = gains / max(float(np.sqrt((gains**2).mean())), 1e-12)
        step = spread * linear(options.rate, options.rate / 3, part)
        change = step * np.tensordot(gains, noise, axes=1) / options.pairs
        with torch.no_grad():
            self.network.linear.weight += torch.from_numpy(change.T.astype(np.float32))
        return float(found.mean())

    def _play(self, weights: Floats) -> Floats:
        """Mean completion time of each of the weights [P, FEATURES, ACTIONS], seconds, [P]."""
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
