"""Online reinforcement learning (section 4.3): actor-critic on a replay of the latest slots.

All decisions of a slot get its reward. Their temporal difference is

    delta = reward + discount * V(first state of the next slot) - V(state)

Two things differ from the published code, whose replayed samples have no importance weights and
whose critic's target is the reward alone. Here a sample counts by the clipped ratio of PPO (its
action's probability now to that when it was taken), and the target has the next slot's value.

The network has weights of its own for each place of a batch. So jobs are in a random order here,
unless the teacher went by arrival. An episode ends as half of its clusters are over: what is left
then has few jobs, and little to learn from.

Job-aware exploration: in one of three poor states, with probability `exploration`, the action is
the one that mends it (section 4.3).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from mirage.elastic.baselines import run_slot
from mirage.elastic.network import Networks
from mirage.elastic.observation import KINDS, ElasticObservation, Encoder
from mirage.elastic.policy import BatchAllocator, as_tensors, log_probs_of
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import Bools, ElasticConfig, ElasticWorld, Floats, Ints, TaskKind
from mirage.rl.actor_critic import td_errors
from mirage.rl.fit import FitResult, Report, Stop, apply_gradients, fit, linear, set_rate
from mirage.rl.options import Count, Fraction, MethodOptions, Rate, Weight
from mirage.rl.policy import entropy, log_policy, log_prob_of
from mirage.rl.ppo import normalised, ppo_loss
from mirage.rl.reinforce import MovingMean
from mirage.rl.replay import Column, ReplayMemory

POOR_RATIO = 10
"""Workers and PSs of a job that differ by more than this factor are a poor state."""
Sequences = Callable[[int], Sequence[ElasticJobs]]
"""A number -> so many new sequences, of one length."""


@dataclass(frozen=True, kw_only=True)
class OnlineOptions(MethodOptions):
    """What the text leaves open is chosen here."""

    slots: Count = 800
    """Slots of training."""
    clusters: Count = 16
    """Clusters that decide side by side."""
    updates: Count = 2
    """Gradient steps after each slot."""
    batch: Count = 512
    """Samples of a gradient step."""
    replay: Count = 8192
    """Samples that are kept."""
    rate: Rate = 0.0003
    """Learning rate of Adam for the policy; falls to a tenth."""
    value_rate: Rate = 0.001
    warm_up: Count = 60
    """First slots, in which only the value network learns."""
    warm_up_updates: Count = 10
    """Further gradient steps of the value network after each of them."""
    discount: Fraction = 0.9
    """Of rewards, a slot."""
    entropy: Weight = 0.003
    """Weight of the entropy in the loss; falls to 0."""
    exploration: Fraction = 0.4
    """Probability that a poor state is mended by rule."""
    critic: Literal["value", "mean"] = "value"
    """`mean`: the moving mean of rewards instead of a value network (Table 2)."""
    reward: Literal["all", "own"] = "all"
    """`own`: the epochs of the action's job alone (section 6.5)."""


def mending_action(seen: ElasticObservation) -> Ints:
    """The rule's action in each poor state, [B]; -1: the state is not poor, or it can't be done.

    Poor: a job with several workers and no PS; with several PSs and no worker; or with more than
    `POOR_RATIO` times as many of one as of the other.
    """
    workers, ps = seen.workers, seen.ps
    add_ps = ((workers > 1) & (ps == 0)) | ((ps > 0) & (workers > POOR_RATIO * ps))
    add_worker = ((ps > 1) & (workers == 0)) | ((workers > 0) & (ps > POOR_RATIO * workers))
    places = workers.shape[1]
    possible = seen.possible[:, :-1].reshape(-1, places, KINDS)
    wanted = np.zeros_like(possible)
    wanted[..., TaskKind.PS] = add_ps
    wanted[..., TaskKind.WORKER] = add_worker
    flat = (wanted & possible).reshape(len(workers), -1)
    return np.where(flat.any(axis=1), flat.argmax(axis=1), -1)


@dataclass(frozen=True, kw_only=True)
class Decisions:
    """Of n clusters in one inference."""

    rows: Ints
    """[n]: the clusters."""
    state: Floats
    there: Bools
    possible: Bools
    action: Ints
    log_prob: Floats
    """[n]: of the action, as it was taken."""
    job: Ints
    """[n]: who got a task; -1: void."""


class ExploringAct:
    """Acts by the policy and by the exploration rule; notes each decision. See `Act`."""

    def __init__(self, networks: Networks, exploration: float, seed: int) -> None:
        self._networks, self._exploration = networks, exploration
        self._rng = np.random.default_rng(seed)
        self.decisions: list[Decisions] = []

    def __call__(self, seen: ElasticObservation, rows: Ints) -> Ints:
        """See `Act`."""
        probs = log_probs_of(self._networks, *as_tensors(seen, rows)).exp().numpy()
        draws = self._rng.random((len(rows), 1)) * probs.sum(axis=1, keepdims=True)
        chosen = (probs.cumsum(axis=1) <= draws).sum(axis=1)
        chosen = np.minimum(chosen, probs.shape[1] - 1)
        mending = mending_action(seen)[rows]
        epsilon = np.where(mending >= 0, self._exploration, 0.0)
        chosen = np.where(self._rng.random(len(rows)) < epsilon, mending, chosen)
        probability = (1 - epsilon) * probs[np.arange(len(rows)), chosen]
        probability = probability + epsilon * (chosen == mending)
        places = seen.jobs.shape[1]
        place = np.minimum(chosen // KINDS, places - 1)
        self.decisions.append(
            Decisions(
                rows=rows,
                state=seen.state[rows],
                there=seen.jobs[rows] >= 0,
                possible=seen.possible[rows],
                action=chosen,
                log_prob=np.log(np.maximum(probability, 1e-12)),
                job=np.where(chosen >= places * KINDS, -1, seen.jobs[rows, place]),
            )
        )
        return chosen


class OnlineLearner:
    """One slot, then gradient steps, again and again."""

    def __init__(
        self,
        networks: Networks,
        encoder: Encoder,
        config: ElasticConfig,
        sequences: Sequences,
        *,
        places: int,
        options: OnlineOptions,
        shuffle: bool,
        seed: int,
    ) -> None:
        """``shuffle``: whether the jobs of a batch are in a random order."""
        self._networks, self._config, self._options = networks, config, options
        self._sequences, self._seed = sequences, seed
        self._rng = np.random.default_rng(seed)
        self._act = ExploringAct(networks, options.exploration, seed)
        self._allocator = BatchAllocator(
            name="explorer",
            encoder=encoder,
            act=self._act,
            places=places,
            shuffle=self._rng if shuffle else None,
        )
        features = encoder.size(len(config.types))
        self._memory = ReplayMemory(options.replay, _columns(places, features))
        self._steps = NetworkSteps(networks, options)
        self._mean = MovingMean()
        self._episodes = 0
        self._done = 0
        self._waiting: list[dict[str, Any]] = []
        self._begin_episode()

    def _begin_episode(self) -> None:
        sequences = self._sequences(self._options.clusters)
        self._world = ElasticWorld(self._config, sequences, seed=self._seed + self._episodes)
        self._allocator.reset(self._world)
        self._episodes += 1

    def train_round(self, _done: int) -> float:
        """One slot of experience in each cluster, then the gradient steps; the policy's loss."""
        self.run_slot()
        self._done += 1
        if self._done <= self._options.warm_up:
            for _ in range(self._options.warm_up_updates):
                self._improve_value()
        losses = [self.improve() for _ in range(self._options.updates)]
        return float(np.mean(losses))

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to learn from yet."""
        return len(self._memory) == 0

    def run_slot(self) -> None:
        """One slot of experience in each cluster."""
        if self._world.over.mean() >= 0.5:
            self._end_episode()
            self._begin_episode()
        world = self._world
        self._act.decisions.clear()
        reward = run_slot(world, self._allocator)
        first: dict[int, tuple[Floats, Bools]] = {}
        for each in self._act.decisions:
            for nth, row in enumerate(each.rows.tolist()):
                first.setdefault(row, (each.state[nth], each.there[nth]))
        self._remember(first)
        own = world.last_epochs / world.estimate
        for each in self._act.decisions:
            for nth, row in enumerate(each.rows.tolist()):
                gained = own[row, each.job[nth]] if each.job[nth] >= 0 else 0.0
                self._waiting.append(
                    {
                        "row": row,
                        "state": each.state[nth],
                        "there": each.there[nth],
                        "possible": each.possible[nth],
                        "action": each.action[nth],
                        "log_prob": each.log_prob[nth],
                        "reward": gained if self._options.reward == "own" else reward[row],
                    }
                )

    def _remember(self, first: dict[int, tuple[Floats, Bools]]) -> None:
        """Completes the samples of the slot before by the first state of this one."""
        for sample in self._waiting:
            after = first.get(sample.pop("row"))
            state, there = after or (sample["state"], sample["there"])
            self._memory.add(**sample, next_state=state, next_there=there, over=after is None)
        self._waiting = []

    def _end_episode(self) -> None:
        """Completes the samples of clusters that are over; forgets the last slot of the others."""
        over = self._world.over
        self._waiting = [sample for sample in self._waiting if over[sample["row"]]]
        self._remember({})

    def _improve_value(self) -> None:
        """One gradient step of the value network on a batch of the memory."""
        if self.is_empty or self._options.critic == "mean":
            return
        rows = self._memory.sample(self._options.batch, self._rng)
        loss = self._advantage(self._memory.tensors(rows))[1]
        gradients = torch.autograd.grad(loss, list(self._networks.value.parameters()))
        self._steps.apply_value(gradients)

    def improve(self) -> float:
        """One gradient step on a batch of the memory; returns the policy's loss."""
        if not len(self._memory):
            return 0.0
        loss, gradients = self.gradients()
        self._steps.apply(gradients, self._done)
        return loss

    def gradients(self) -> tuple[float, list[Tensor]]:
        """The policy's loss on a batch of the memory, and the gradients of all weights."""
        options = self._options
        columns = self._memory.tensors(self._memory.sample(options.batch, self._rng))
        delta, value_loss = self._advantage(columns)
        log_probs = log_policy(
            self._networks.logits(columns["state"], columns["there"]), columns["possible"]
        )
        taken = log_prob_of(log_probs, columns["action"])
        weight = linear(options.entropy, 0, min(self._done / options.slots, 1.0))
        policy_loss = ppo_loss(taken, columns["log_prob"], normalised(delta))
        policy_loss = policy_loss - weight * entropy(log_probs).mean()
        found = torch.autograd.grad(
            policy_loss + value_loss, list(self._networks.parameters()), materialize_grads=True
        )
        return float(policy_loss.detach()), list(found)

    def _advantage(self, columns: dict[str, Tensor]) -> tuple[Tensor, Tensor]:
        """Of the samples, and the loss of the value network (0 without one)."""
        if self._options.critic == "mean":
            reward = columns["reward"]
            return reward - self._mean.add(float(reward.mean())), torch.zeros(())
        values = self._networks.values(columns["state"], columns["there"])
        with torch.no_grad():
            later = self._networks.values(columns["next_state"], columns["next_there"])
        delta = td_errors(columns["reward"], values, later, columns["over"], self._options.discount)
        return delta.detach(), delta.square().mean()


class NetworkSteps:
    """Adam on both networks; in the first slots of a training on the value network alone."""

    def __init__(self, networks: Networks, options: OnlineOptions) -> None:
        self._networks, self._options = networks, options
        self._policy = torch.optim.Adam(networks.policy.parameters(), lr=options.rate)
        self._value = torch.optim.Adam(networks.value.parameters(), lr=options.value_rate)

    def apply_value(self, gradients: Sequence[Tensor]) -> None:
        """A step of the value network alone."""
        for weight, gradient in zip(self._networks.value.parameters(), gradients, strict=True):
            weight.grad = gradient
        apply_gradients(self._value, most_norm=1.0)

    def apply(self, gradients: Sequence[Tensor], done: int) -> None:
        """A step along the gradients of all weights, after ``done`` slots of training."""
        for weight, gradient in zip(self._networks.parameters(), gradients, strict=True):
            weight.grad = gradient
        options = self._options
        apply_gradients(self._value, most_norm=1.0)
        if done > options.warm_up:
            part = min(done / options.slots, 1.0)
            set_rate(self._policy, linear(options.rate, options.rate / 10, part))
            apply_gradients(self._policy, most_norm=1.0)


def _columns(places: int, features: int) -> dict[str, Column]:
    state, there = Column((places, features)), Column((places,), np.bool_)
    return {
        "state": state,
        "there": there,
        "possible": Column((places * KINDS + 1,), np.bool_),
        "action": Column((), np.int64),
        "log_prob": Column(),
        "reward": Column(),
        "next_state": state,
        "next_there": there,
        "over": Column((), np.bool_),
    }


def learn_online(
    learner: OnlineLearner,
    networks: Networks,
    options: OnlineOptions,
    *,
    score: Callable[[], float] | None = None,
    score_every: int = 50,
    progress: Report | None = None,
) -> FitResult:
    """Trains for `options.slots` slots; leaves the networks with the weights of the best score.

    ``score``: lower is better, on sequences of its own that are used for nothing else.
    """
    return fit(
        networks,
        learner.train_round,
        Stop(rounds=options.slots),
        score=score,
        is_scored=lambda done: done % score_every == 0,
        score_first=True,
        stage="online",
        progress=progress,
    )
