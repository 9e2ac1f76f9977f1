"""PPO for policies over slots (Schulman et al. 2017), as the set policy learns.

A step is a slot with all its decisions: its advantage is that of each of them. The reward of a slot
is the time that its jobs lost, negated:

    -(time that jobs were there - time that their progress takes alone at its best shape)

Over an episode it sums up to minus (completion time - lower bound), so it is the objective itself,
and yet it comes in the slot in which the time is lost. `progress` is equation 1 instead.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from mirage.elastic.baselines import run_slot
from mirage.elastic.learn.online import Decisions, ExploringAct, Sequences
from mirage.elastic.network import Networks
from mirage.elastic.observation import KINDS, Encoder
from mirage.elastic.policy import BatchAllocator
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Floats, Ints
from mirage.rl.actor_critic import estimate_advantages, td_errors
from mirage.rl.fit import FitResult, Report, Stop, descend, fit, linear, set_rate
from mirage.rl.options import Count, Fraction, MethodOptions, Rate, Weight
from mirage.rl.policy import entropy, log_policy, log_prob_of
from mirage.rl.ppo import minibatches, normalised, ppo_loss


@dataclass(frozen=True, kw_only=True)
class ProximalOptions(MethodOptions):
    """Of PPO."""

    rounds: Count = 20
    """Rounds: an episode in each cluster, then gradient steps."""
    clusters: Count = 16
    """Clusters that decide side by side."""
    decisions: Count = 12000
    """Decisions of a round that are learnt from, drawn evenly."""
    batch: Count = 1024
    passes: Count = 2
    rate: Rate = 0.0005
    """Learning rate of Adam for the policy; falls to a tenth."""
    value_rate: Rate = 0.002
    value_passes: Count = 8
    warm_up: Count = 2
    """First rounds, in which only the value network learns."""
    discount: Fraction = 0.95
    """Of rewards, a slot."""
    trace: Fraction = 0.9
    """Lambda of generalized advantage estimation."""
    entropy: Weight = 0.002
    """Weight of the entropy in the loss; falls to 0."""
    reward: Literal["lost", "progress"] = "lost"


@dataclass(frozen=True, kw_only=True)
class SampledEpisode:
    """Of B clusters, T slots."""

    decisions: list[tuple[int, Decisions]]
    """With the number of their slot."""
    reward: Floats
    """[T, B]."""


def play(
    allocator: BatchAllocator, act: ExploringAct, world: ElasticWorld, *, reward: str
) -> SampledEpisode:
    """One episode in each cluster."""
    allocator.reset(world)
    decisions: list[tuple[int, Decisions]] = []
    rewards = []
    best = world.speed_table.max(axis=(1, 2))[world.type_index]
    while not world.over.all():
        slot, there = world.slot, world.active & ~world.over[:, None]
        act.decisions.clear()
        progress = run_slot(world, allocator)
        decisions += [(slot, each) for each in act.decisions]
        if reward == "progress":
            rewards.append(progress)
            continue
        present = np.where(np.isnan(world.finish), 1.0, world.finish - slot)
        lost = np.where(there, present - world.last_epochs / best, 0.0)
        rewards.append(-lost.sum(axis=1) / 10)
    return SampledEpisode(decisions=decisions, reward=np.stack(rewards))


def padded(parts: list[tuple[Floats, Bools]]) -> tuple[Tensor, Tensor]:
    """States [n, J, F] and places with a job [n, J] of different J, side by side."""
    most = max(state.shape[1] for state, _ in parts)
    count = sum(len(state) for state, _ in parts)
    states = torch.zeros(count, most, parts[0][0].shape[2])
    there = torch.zeros(count, most, dtype=torch.bool)
    done = 0
    for state, full in parts:
        states[done : done + len(state), : state.shape[1]] = torch.from_numpy(state)
        there[done : done + len(state), : state.shape[1]] = torch.from_numpy(full)
        done += len(state)
    return states, there


class ProximalLearner:
    """An episode in each cluster, then gradient steps, again and again."""

    def __init__(
        self,
        networks: Networks,
        encoder: Encoder,
        config: ElasticConfig,
        sequences: Sequences,
        *,
        places: int | None,
        options: ProximalOptions,
        seed: int,
    ) -> None:
        self._networks, self._config, self._options = networks, config, options
        self._sequences, self._seed = sequences, seed
        self._rng = np.random.default_rng(seed)
        self._act = ExploringAct(networks, options.clusters, exploration=0.0, random=0.0, seed=seed)
        self._allocator = BatchAllocator(name="ppo", encoder=encoder, act=self._act, places=places)
        self._policy_steps = torch.optim.Adam(networks.policy.parameters(), lr=options.rate)
        self._value_steps = torch.optim.Adam(networks.value.parameters(), lr=options.value_rate)

    def train_round(self, done: int) -> float:
        """Returns the mean reward of a slot, negated."""
        options = self._options
        sequences = self._sequences(options.clusters)
        world = ElasticWorld(self._config, sequences, seed=self._seed * 1000 + done)
        episode = play(self._allocator, self._act, world, reward=options.reward)
        advantage = self._advantages(episode)
        if done >= options.warm_up:
            self._improve(episode, advantage, (done - options.warm_up) / options.rounds)
        return -float(episode.reward.mean())

    def _advantages(self, episode: SampledEpisode) -> Floats:
        """[T, B]; and steps of the value network."""
        slots, clusters = episode.reward.shape
        first = np.full((slots, clusters), -1)
        parts: list[tuple[Floats, Bools]] = []
        count = 0
        for slot, each in episode.decisions:
            fresh = np.nonzero(first[slot, each.rows] < 0)[0]
            if len(fresh):
                first[slot, each.rows[fresh]] = count + np.arange(len(fresh))
                parts.append((each.state[fresh], each.there[fresh]))
                count += len(fresh)
        states, there = padded(parts)
        where = torch.from_numpy(first)
        known = where >= 0
        with torch.no_grad():
            found = self._networks.values(states, there)
        # A slot without decisions has no state; its value is taken as 0.
        values = torch.where(known, found[where.clamp_min(0)], torch.zeros(()))
        later = torch.cat([values[1:], torch.zeros(1, clusters)])
        reward = torch.from_numpy(episode.reward).float()
        ended = torch.zeros_like(known)
        ended[-1] = True
        errors = td_errors(reward, values, later, ended, self._options.discount)
        advantages = estimate_advantages(
            errors, values, ended, discount=self._options.discount, trace=self._options.trace
        )
        self._fit_values(states, there, advantages.value_target[known], where[known])
        return np.asarray(advantages.advantage.numpy(), dtype=np.float64)

    def _fit_values(self, states: Tensor, there: Tensor, target: Tensor, order: Tensor) -> None:
        goal = torch.zeros(len(states))
        goal[order] = target
        for rows in minibatches(len(states), 256, self._options.value_passes, self._rng):
            off = self._networks.values(states[rows], there[rows]) - goal[rows]
            descend(self._value_steps, off.square().mean(), most_norm=1.0)

    def _improve(self, episode: SampledEpisode, advantage: Floats, part: float) -> None:
        options = self._options
        set_rate(self._policy_steps, linear(options.rate, options.rate / 10, part))
        states, there, possible, columns = self._samples(episode, advantage)
        action = columns["action"].long()
        gains = normalised(columns["advantage"])
        for rows in minibatches(len(states), options.batch, options.passes, self._rng):
            log_probs = log_policy(self._networks.logits(states[rows], there[rows]), possible[rows])
            taken = log_prob_of(log_probs, action[rows])
            loss = ppo_loss(taken, columns["log_prob"][rows], gains[rows])
            loss = loss - linear(options.entropy, 0, part) * entropy(log_probs).mean()
            descend(self._policy_steps, loss, most_norm=0.5)

    def _samples(
        self, episode: SampledEpisode, advantage: Floats
    ) -> tuple[Tensor, Tensor, Tensor, dict[str, Tensor]]:
        total = sum(len(each.rows) for _, each in episode.decisions)
        share = min(self._options.decisions / total, 1.0)
        drawn: list[tuple[int, Decisions, Ints]] = []
        for slot, each in episode.decisions:
            rows = np.nonzero(self._rng.random(len(each.rows)) < share)[0]
            if len(rows):
                drawn.append((slot, each, rows))
        states, there = padded([(each.state[rows], each.there[rows]) for _, each, rows in drawn])
        most = states.shape[1]
        possible = torch.zeros(len(states), most * KINDS + 1, dtype=torch.bool)
        possible[:, -1] = True
        columns: dict[str, list[Floats]] = {"action": [], "log_prob": [], "advantage": []}
        done = 0
        for slot, each, rows in drawn:
            void = each.there.shape[1] * KINDS
            part = torch.from_numpy(each.possible[rows, :-1])
            possible[done : done + len(rows), :void] = part
            done += len(rows)
            action = np.where(each.action[rows] == void, most * KINDS, each.action[rows])
            columns["action"].append(action.astype(np.float64))
            columns["log_prob"].append(each.log_prob[rows])
            columns["advantage"].append(advantage[slot, each.rows[rows]])
        found = {name: torch.from_numpy(np.concatenate(each)) for name, each in columns.items()}
        return states, there, possible, {name: each.float() for name, each in found.items()}


def learn_proximal(
    learner: ProximalLearner,
    networks: Networks,
    options: ProximalOptions,
    *,
    score: Callable[[], float] | None = None,
    score_every: int = 5,
    progress: Report | None = None,
) -> FitResult:
    """Trains for `options.rounds` rounds; leaves the networks with the weights of the best score."""
    return fit(
        networks,
        learner.train_round,
        Stop(rounds=options.rounds),
        score=score,
        is_scored=lambda done: done % score_every == 0,
        score_first=True,
        stage="online",
        progress=progress,
    )
