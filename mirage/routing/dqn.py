"""Deep Q-learning of one partition's agent on the paper's episodes (section 5.1, equation 6).

    Q(s, a) -> r + discount * max over the next decision's actions of Q'(s', a')

Q' is the target network, a copy that follows every few updates.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from mirage.rl.budget import is_over
from mirage.rl.fit import descend, seeded
from mirage.rl.replay import Column, ReplayMemory
from mirage.rl.targets import TargetNetwork, best_values, td_targets, values_of
from mirage.routing.agent import Agent
from mirage.routing.episode import EpisodeOutcome, PartitionEpisode, draw_episode
from mirage.routing.flavors import PartitionKind
from mirage.routing.network import AgentOptions, make_network, to_agent
from mirage.routing.state import Variant, best, features, width


class Transition(NamedTuple):
    """One decision and what followed. ``after`` None: the episode's last."""

    inputs: Sequence[float]
    action: int
    reward: float
    after: Sequence[float] | None
    after_actions: Sequence[int]


class PartitionLearner:
    """One partition's network, its target network, its memory."""

    def __init__(
        self,
        kind: PartitionKind,
        options: AgentOptions,
        random: np.random.Generator,
    ) -> None:
        self.kind, self.options, self.random = kind, options, random
        self.network = make_network(kind, Variant.PAPER, options.hidden)
        self._target = TargetNetwork(self.network, options.sync)
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=options.rate)
        inputs, self._actions = width(kind, Variant.PAPER), kind.actions.count
        self._memory = ReplayMemory(
            options.memory,
            {
                "inputs": Column((inputs,)),
                "action": Column(dtype=np.int64),
                "reward": Column(),
                "after": Column((inputs,)),
                # Of the decision after; none: there is no such decision.
                "possible": Column((self._actions,), np.bool_),
            },
        )

    def values(self, inputs: Sequence[float]) -> list[float]:
        """(actions,)."""
        with torch.no_grad():
            found: list[float] = self.network(torch.tensor(inputs, dtype=torch.float32)).tolist()
        return found

    def remember(self, step: Transition) -> None:
        possible = np.zeros(self._actions, np.bool_)
        possible[list(step.after_actions)] = True
        self._memory.add(
            inputs=step.inputs,
            action=step.action,
            reward=step.reward,
            after=0.0 if step.after is None else step.after,
            possible=possible,
        )

    def update(self) -> None:
        """One gradient step on a random batch, once there is enough to remember."""
        if len(self._memory) < self.options.batch:
            return
        rows = self._memory.tensors(self._memory.sample(self.options.batch, self.random))
        with torch.no_grad():
            later = best_values(self._target.network(rows["after"]), rows["possible"])
        over = ~rows["possible"].any(dim=1)
        targets = td_targets(rows["reward"], later, over, self.options.discount)
        chosen = values_of(self.network(rows["inputs"]), rows["action"])
        descend(self._optimizer, nn.functional.smooth_l1_loss(chosen, targets))
        self._target.count_step()

    def play(self, episode: PartitionEpisode, epsilon: float) -> EpisodeOutcome:
        """Answers an episode's questions, epsilon-greedily, and learns after each."""
        question = episode.question
        assert question is not None
        inputs = features(question.state)
        while question is not None:
            possible = question.possible
            if self.random.random() < epsilon:
                action = int(self.random.choice(possible))
            else:
                action = best(self.values(inputs), possible)
            reward = episode.answer(action)
            question = episode.question
            after = features(question.state) if question else None
            after_actions = question.possible if question else ()
            self.remember(Transition(inputs, action, reward, after, after_actions))
            self.update()
            inputs = after or inputs
        return episode.finish()

    def agent(self) -> Agent:
        return to_agent(self.kind, Variant.PAPER, self.network)


OutcomeReport = Callable[[int, EpisodeOutcome], None]
"""Takes each episode's number and outcome."""


def train_on_episodes(
    kind: PartitionKind,
    episodes: int = 1000,
    options: AgentOptions | None = None,
    seed: int = 1,
    report: OutcomeReport | None = None,
) -> Agent:
    """The paper's training: an agent on episodes of five jobs, punished for what is impossible."""
    options = options or AgentOptions()
    with seeded(seed) as random:
        learner = PartitionLearner(kind, options, random)
        for number in range(episodes):
            jobs = draw_episode(kind, random)
            episode = PartitionEpisode(kind, jobs, masked=False)
            outcome = learner.play(episode, options.epsilon(number / episodes))
            if report:
                report(number, outcome)
            if is_over():
                break
    return learner.agent()
