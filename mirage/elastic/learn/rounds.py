"""Training of the set policy for rounds by PPO (Schulman et al. 2017), and the options of all its
learners. `rounds_evolution.py` has the default one.

A job's action is drawn at its first round and again every `hold` rounds, so that noise moves jobs
seldom. Most of the noise is linear in some features, with weights that last `window` rounds: it
stands for another policy, and lasts long enough to matter (state-dependent exploration:
Rueckstiess et al. 2008; Raffin et al. 2021). The reward of a round is the number of jobs in the
cluster, negated: its sum is the mean completion time.

Most of a return is the luck of arrivals. So each workload is played `copies` times, and a copy's
rewards and states count relative to the copies' mean at the same time (Mao et al. 2019, "Variance
reduction for reinforcement learning in input-driven environments"). The critic is linear in sums
over jobs of functions of their work left, and is fitted to the returns of all iterations. Each
job's action has its own clipped ratio; all share the advantage.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass, field
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mirage.elastic.learn.rounds_evolution import RoundsEvolution, RoundsEvolutionOptions
from mirage.elastic.pollux_schedulers import mean_completion_s
from mirage.elastic.pollux_world import PolluxConfig, PolluxWorld
from mirage.elastic.rounds import (
    ACTIONS,
    NOISY,
    RoundView,
    SetRounds,
    ValueNetwork,
    features,
    give_by_values,
    view,
)
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Bools, Floats, Ints
from mirage.rl.actor_critic import estimate_advantages, td_errors
from mirage.rl.fit import FitResult, Report, Stop, cosine, descend, fit, set_rate
from mirage.rl.options import Count, Fraction, MethodOptions, Rate
from mirage.rl.ppo import minibatches, normalised, ppo_loss

Draw = Callable[[int], Sequence[ElasticJobs]]
OWN_NOISE = 0.03
"""Variance of the part of the noise that is each job's own."""
AVERAGE = 0.5
"""Share of the older weights in the averaged network, which is the one that is kept."""
RIDGE = 1e-2
"""Keeps the linear critic's weights small."""
FORGETS = 0.7
"""Share of its data that the critic keeps from one iteration to the next."""
LEFT_H = (0.1, 1.0, 10.0, 100.0)
"""The critic sees the work left of each job up to these hours on one GPU."""


@dataclass(frozen=True, kw_only=True)
class RoundsOptions(MethodOptions):
    """Of one training."""

    learner: Literal["evolution", "ppo"] = "evolution"
    """Evolution strategies (`rounds_evolution.py`), or PPO."""
    evolution: RoundsEvolutionOptions = field(default_factory=RoundsEvolutionOptions)
    iterations: Count = 8
    """Times that workloads are played and learnt from."""
    workloads: Count = 6
    """Drawn in each iteration. The options from `copies` to `reach` are of PPO alone."""
    copies: Count = 4
    """Times that each is played, side by side."""
    rounds: Count = 640
    """Rounds of a workload that are played; the last jobs of it are few."""
    hold: Count = 10
    """Rounds for which a job's action holds."""
    window: Count = 40
    """Rounds for which the weights of the noise hold."""
    width: Count = 48
    layers: Count = 1
    heads: Count = 4
    passes: Count = 2
    """Times that each decision is used."""
    batch: Count = 256
    """Decisions of a gradient step."""
    rate: Rate = 0.002
    """Learning rate of Adam; falls to a tenth."""
    discount: Fraction = 0.998
    """Of rewards, a round. A long job is some 700 rounds in the cluster."""
    trace: Fraction = 0.97
    """Lambda of the generalised advantage."""
    reach: Fraction = 0.2
    """How far PPO's ratio counts."""
    validation: Count = 16
    """Workloads that choose the weights that are kept."""
    score_every: Count = 2
    """Iterations between two validations."""


@dataclass(frozen=True, kw_only=True)
class _Decisions:
    """Of the clusters in which some job was due for an action, [n] first."""

    nth_round: Ints
    cluster: Ints
    state: Tensor
    there: Tensor
    """Places with a job, [n, J]."""
    due: Tensor
    """Places whose action was drawn here, [n, J]."""
    action: Tensor
    log_prob: Tensor
    """[n, J]: of each job's action."""


class RoundsLearner:
    """Plays and learns."""

    def __init__(
        self,
        network: ValueNetwork,
        config: PolluxConfig,
        draw: Draw,
        options: RoundsOptions,
        *,
        seed: int,
    ) -> None:
        self.network, self.config, self._draw, self._options = network, config, draw, options
        self.averaged = deepcopy(network)
        """Its noise is less than that of single iterations."""
        self.critic = LinearCritic(copies=options.copies, discount=options.discount)
        self._rng = np.random.default_rng(seed)
        self._steps = torch.optim.Adam(self.network.parameters(), lr=options.rate)

    def train_round(self, done: int) -> float:
        """Plays workloads and takes PPO's steps; returns the mean number of jobs in the clusters."""
        options = self._options
        set_rate(self._steps, cosine(options.rate, options.rate / 10, done / options.iterations))
        decisions, reward, totals = self._play()
        found = self.critic.advantages(reward, totals, trace=options.trace)
        if done:  # else the critic knows nothing yet
            self._learn(decisions, found)
            with torch.no_grad():
                pairs = zip(self.averaged.parameters(), self.network.parameters(), strict=True)
                for kept, new in pairs:
                    kept.lerp_(new, 1 - AVERAGE)
        self.critic.learn(reward, totals)
        return float(-reward.mean())

    @torch.no_grad()
    def _play(self) -> tuple[_Decisions, Floats, Floats]:
        """Decisions; rewards [T, B]; and numbers of the states, [T + 1, B, n]."""
        options = self._options
        drawn = [each for each in self._draw(options.workloads) for _ in range(options.copies)]
        world = self.config.open(drawn)
        world.adapt(tunes=True, packs=True)
        actions = np.zeros((*world.arrival.shape, ACTIONS))
        known = np.zeros(world.arrival.shape, dtype=bool)
        weights = torch.zeros(world.clusters, len(NOISY), ACTIONS)
        decisions, totals, rewards = [], [], []
        for now in range(options.rounds):
            world.begin_slot()
            if now % options.window == 0:
                weights = torch.randn(world.clusters, len(NOISY), ACTIONS)
            due = world.active & (~known | (now % options.hold == 0))
            known |= due
            seen = view(world)
            if due.any():
                decisions.append(self._decide(world, seen, due, actions, weights))
            give_by_values(world, seen, np.take_along_axis(actions, seen.jobs[..., None], axis=1))
            totals.append(_totals(world))
            rewards.append(-world.active.sum(axis=1).astype(np.float64))
            world.end_slot()
        totals.append(_totals(world))
        return _joined(decisions), np.stack(rewards), np.stack(totals)

    def _decide(
        self, world: PolluxWorld, seen: RoundView, due: Bools, actions: Floats, weights: Tensor
    ) -> _Decisions:
        """Draws actions for the jobs [B, K] that are due, and writes them into [B, K, ACTIONS]."""
        rows = np.nonzero(due.any(axis=1))[0]
        places = np.take_along_axis(due, seen.jobs, axis=1) & seen.there
        state = torch.from_numpy(features(world, seen)[rows])
        there = torch.from_numpy(seen.there[rows])
        mean, spread = self._policy(state, there)
        noise = state[..., NOISY] @ weights[torch.from_numpy(rows)] / len(NOISY) ** 0.5
        noise = noise + OWN_NOISE**0.5 * torch.randn_like(mean)
        action = mean + spread / _size(state) * noise
        row, place = np.nonzero(places[rows])
        actions[rows[row], seen.jobs[rows[row], place]] = action[row, place].numpy()
        return _Decisions(
            nth_round=np.full(len(rows), world.slot),
            cluster=rows,
            state=state,
            there=there,
            due=torch.from_numpy(places[rows]),
            action=action,
            log_prob=_log_prob(action, mean, spread),
        )

    def _policy(self, state: Tensor, there: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and standard deviation of the actions."""
        spread = self.network.log_spread.clamp(-3.0, 0.5).exp()
        return self.network(state, there), spread * _size(state)

    def _learn(self, decisions: _Decisions, found: Floats) -> None:
        options = self._options
        advantage = normalised(
            torch.from_numpy(found[decisions.nth_round, decisions.cluster]).float()
        )
        columns = (
            decisions.state,
            decisions.there,
            decisions.due,
            decisions.action,
            decisions.log_prob,
        )
        for chosen in minibatches(len(advantage), options.batch, options.passes, self._rng):
            at = torch.from_numpy(chosen)
            state, there, due, action, old = (each[at] for each in columns)
            new = _log_prob(action, *self._policy(state, there))
            shared = advantage[at, None].expand_as(new)
            loss = ppo_loss(new[due], old[due], shared[due], options.reach)
            descend(self._steps, loss, most_norm=1.0)


class LinearCritic:
    """Value of a state less the mean value of the copies' states; arrays [T, B] and [T + 1, B, n].

    Copies of a workload stand side by side.
    """

    def __init__(self, *, copies: int, discount: float) -> None:
        self._copies, self._discount = copies, discount
        self.weights: Floats | None = None
        self._square: Floats | float = 0.0
        self._product: Floats | float = 0.0

    def values(self, totals: Floats) -> Floats:
        """[T + 1, B]; 0 before it has learnt."""
        states = self._relative(totals)
        if self.weights is None:
            return np.zeros(states.shape[:2])
        found: Floats = states @ self.weights
        return found

    def advantages(self, reward: Floats, totals: Floats, *, trace: float) -> Floats:
        """Generalised advantages of what was done in each round, [T, B]."""
        values = torch.from_numpy(self.values(totals))
        rewards = torch.from_numpy(self._relative(reward))
        never = torch.zeros_like(rewards, dtype=torch.bool)
        errors = td_errors(rewards, values[:-1], values[1:], never, self._discount)
        found = estimate_advantages(
            errors, values[:-1], never, discount=self._discount, trace=trace
        )
        return np.asarray(found.advantage.numpy(), dtype=np.float64)

    def learn(self, reward: Floats, totals: Floats) -> None:
        """Fits the returns; what comes after the last round is as the critic says until now."""
        returns = self._relative(reward)
        after = self.values(totals)[-1]
        for step in range(len(returns) - 1, -1, -1):
            after = returns[step] + self._discount * after
            returns[step] = after
        states = self._relative(totals)[:-1].reshape(-1, totals.shape[2])
        self._square = FORGETS * self._square + states.T @ states
        self._product = FORGETS * self._product + states.T @ returns.flatten()
        ridge = RIDGE * np.diag(np.diag(self._square) + 1e-9)
        weights = np.linalg.solve(self._square + ridge, self._product)
        self.weights = np.asarray(weights, dtype=np.float64)

    def _relative(self, values: Floats) -> Floats:
        grouped = values.reshape(len(values), -1, self._copies, *values.shape[2:])
        found: Floats = (grouped - grouped.mean(axis=2, keepdims=True)).reshape(values.shape)
        return found


def _totals(world: PolluxWorld) -> Floats:
    """[B, n]: jobs, jobs that run, and sums over jobs of their work left up to some hours."""
    left_h = np.where(world.active, world.left_alone_s(), 0.0) / 3600
    sums = [world.active, world.last_workers > 0, np.sqrt(left_h)]
    sums += [np.minimum(left_h, most) for most in LEFT_H]
    return np.stack([each.sum(axis=1) for each in sums], axis=1).astype(np.float64)


def _size(state: Tensor) -> Tensor:
    """Standard deviation of the noise of each job before it is scaled, [..., J, 1]."""
    return (state[..., NOISY].square().mean(dim=-1, keepdim=True) + OWN_NOISE).sqrt()


def _log_prob(action: Tensor, mean: Tensor, spread: Tensor) -> Tensor:
    """Of each job's actions together, up to a constant, [..., J]."""
    return -(((action - mean) / spread).square() / 2 + spread.log()).sum(dim=-1)


def _joined(parts: Sequence[_Decisions]) -> _Decisions:
    most = max(part.state.shape[1] for part in parts)

    def join(of: Callable[[_Decisions], Tensor]) -> Tensor:
        return torch.cat([_widened(of(part), most) for part in parts])

    return _Decisions(
        nth_round=np.concatenate([part.nth_round for part in parts]),
        cluster=np.concatenate([part.cluster for part in parts]),
        state=join(lambda part: part.state),
        there=join(lambda part: part.there),
        due=join(lambda part: part.due),
        action=join(lambda part: part.action),
        log_prob=join(lambda part: part.log_prob),
    )


def _widened(values: Tensor, places: int) -> Tensor:
    """With empty places up to this number, [n, places, ...]."""
    wide = torch.zeros((values.shape[0], places, *values.shape[2:]), dtype=values.dtype)
    wide[:, : values.shape[1]] = values
    return wide


def train_rounds(
    learner: RoundsLearner | RoundsEvolution,
    options: RoundsOptions,
    validation: Sequence[ElasticJobs],
    *,
    most_s: float | None = None,
    progress: Report | None = None,
) -> FitResult:
    """Leaves the network with the weights of the lowest mean completion time, in seconds."""

    def score() -> float:
        policy = SetRounds(network=learner.averaged)
        return float(mean_completion_s(policy, learner.config, validation).mean())

    return fit(
        learner.averaged,
        learner.train_round,
        Stop(rounds=options.iterations, most_s=most_s),
        score=score,
        is_scored=lambda done: done % options.score_every == 0,
        score_first=True,
        stage=options.learner,
        progress=progress,
    )
