"""Deep Q-learning of one partition's agent (section 5.1, equation 6), and what both kinds of
lessons share.

    Q(s, a) -> r + discount * max over the next decision's actions of Q'(s', a')

Q' is the target network, a copy that follows every few updates. All values begin at 0, as in the
paper. The paper gives neither network nor settings; ours are in `DqnOptions`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.routing.agent import Agent, Layer
from mirage.routing.episode import Episode, Outcome, draw_episode
from mirage.routing.flavors import PartitionKind
from mirage.routing.state import Variant, actions_of, best, features, width

Floats = NDArray[np.float32]


@dataclass(frozen=True)
class DqnOptions:
    """Defaults train an agent on 1000 of the paper's episodes in about ten seconds on one core."""

    hidden: tuple[int, ...] = (24, 12)
    """Small, because slurmctld waits while the plugin evaluates them."""
    rate: float = 1e-3
    """Adam's."""
    discount: float = 0.9
    """From one decision to the next."""
    batch: int = 64
    memory: int = 20_000
    """Decisions that are remembered."""
    sync: int = 200
    """Updates between copies to the target network."""
    epsilon_end: float = 0.02
    explore: float = 0.5
    """Part of the training over which epsilon falls from 1 to `epsilon_end`."""

    def __post_init__(self) -> None:
        if min(self.batch, self.memory, self.sync, *self.hidden) < 1:
            raise InputError("hidden, batch, memory and sync: give at least 1 each")
        for name in ("discount", "epsilon_end", "explore"):
            if not 0 <= getattr(self, name) <= 1:
                raise InputError(f"{name} is {getattr(self, name)}; give a number from 0 to 1")

    def epsilon(self, done: float) -> float:
        """At this part, 0 to 1, of the training."""
        return max(self.epsilon_end, 1 - (1 - self.epsilon_end) * done / max(self.explore, 1e-9))


class Step(NamedTuple):
    """One decision and what followed. ``after`` None: the episode's last."""

    inputs: Sequence[float]
    action: int
    reward: float
    after: Sequence[float] | None
    after_actions: Sequence[int]


def make_network(kind: PartitionKind, variant: Variant, hidden: Sequence[int]) -> nn.Sequential:
    """Linear layers with ReLU between them; the last one's weights are 0."""
    sizes = [width(kind, variant), *hidden, actions_of(kind, variant).count]
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(sizes):
        layers += [nn.Linear(inputs, outputs), nn.ReLU()]
    last = layers[-2]
    assert isinstance(last, nn.Linear)
    nn.init.zeros_(last.weight)
    nn.init.zeros_(last.bias)
    return nn.Sequential(*layers[:-1])


def to_agent(kind: PartitionKind, variant: Variant, network: nn.Sequential) -> Agent:
    """The network in plain Python, float32 weights as exact doubles."""
    linear = [layer for layer in network if isinstance(layer, nn.Linear)]
    return Agent(kind, variant, tuple(_layer(layer) for layer in linear))


def _layer(linear: nn.Linear) -> Layer:
    rows = linear.weight.detach().double().T.tolist()
    return Layer(tuple(tuple(row) for row in rows), tuple(linear.bias.detach().double().tolist()))


class Learner:
    """A network, its target network, its memory."""

    def __init__(
        self,
        kind: PartitionKind,
        variant: Variant,
        options: DqnOptions,
        random: np.random.Generator,
    ) -> None:
        self.kind, self.variant, self.options, self.random = kind, variant, options, random
        self.network = make_network(kind, variant, options.hidden)
        self._target = deepcopy(self.network)
        self._optimizer = torch.optim.Adam(self.network.parameters(), lr=options.rate)
        self._updates = 0
        self._count = 0
        inputs, actions = width(kind, variant), actions_of(kind, variant).count
        self._inputs = np.zeros((options.memory, inputs), np.float32)
        self._after = np.zeros((options.memory, inputs), np.float32)
        self._action = np.zeros(options.memory, np.int64)
        self._reward = np.zeros(options.memory, np.float32)
        self._possible = np.zeros((options.memory, actions), np.bool_)
        """Of the decision after; none: there is no such decision."""

    def values(self, inputs: Sequence[float]) -> list[float]:
        """(actions,)."""
        with torch.no_grad():
            found: list[float] = self.network(torch.tensor(inputs, dtype=torch.float32)).tolist()
        return found

    def remember(self, step: Step) -> None:
        slot = self._count % self.options.memory
        self._count += 1
        self._inputs[slot], self._action[slot], self._reward[slot] = (
            step.inputs,
            step.action,
            step.reward,
        )
        self._possible[slot] = False
        if step.after is not None:
            self._after[slot] = step.after
            self._possible[slot, list(step.after_actions)] = True

    def update(self) -> None:
        """One gradient step on a random batch, once there is enough to remember."""
        filled = min(self._count, self.options.memory)
        if filled < self.options.batch:
            return
        slots = self.random.integers(filled, size=self.options.batch)
        q = self.network(torch.from_numpy(self._inputs[slots]))
        chosen = q.gather(1, torch.from_numpy(self._action[slots])[:, None])[:, 0]
        loss = nn.functional.smooth_l1_loss(chosen, self._targets(slots))
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        self._optimizer.step()
        self._updates += 1
        if self._updates % self.options.sync == 0:
            self._target.load_state_dict(self.network.state_dict())

    def _targets(self, slots: NDArray[np.int64]) -> Tensor:
        possible = torch.from_numpy(self._possible[slots])
        with torch.no_grad():
            later = self._target(torch.from_numpy(self._after[slots]))
        later = later.masked_fill(~possible, -torch.inf).max(dim=1).values
        later = torch.where(possible.any(dim=1), later, torch.zeros_like(later))
        targets: Tensor = torch.from_numpy(self._reward[slots]) + self.options.discount * later
        return targets

    def agent(self) -> Agent:
        return to_agent(self.kind, self.variant, self.network)


Told = Callable[[int, Outcome], None]
"""Is given each episode's number and outcome."""


def train_on_episodes(
    kind: PartitionKind,
    variant: Variant,
    episodes: int = 1000,
    options: DqnOptions | None = None,
    seed: int = 1,
    told: Told | None = None,
) -> Agent:
    """The paper's training: an agent on episodes of five jobs; `Variant.PAPER` is punished for what
    is impossible.
    """
    torch.manual_seed(seed)
    random = np.random.default_rng(seed)
    learner = Learner(kind, variant, options or DqnOptions(), random)
    for number in range(episodes):
        epsilon = learner.options.epsilon(number / episodes)
        outcome = _live(
            learner,
            Episode(kind, draw_episode(kind, random), masked=variant is Variant.OURS),
            epsilon,
        )
        if told:
            told(number, outcome)
    return learner.agent()


def _live(learner: Learner, episode: Episode, epsilon: float) -> Outcome:
    question = episode.question
    assert question is not None
    inputs = features(question.state, learner.variant, question.flavor, now_s=question.now_s)
    while question is not None:
        explores = learner.random.random() < epsilon
        possible = question.possible
        action = (
            int(learner.random.choice(possible))
            if explores
            else best(learner.values(inputs), possible)
        )
        reward = episode.answer(action)
        question = episode.question
        after = (
            features(question.state, learner.variant, question.flavor, now_s=question.now_s)
            if question
            else None
        )
        learner.remember(Step(inputs, action, reward, after, question.possible if question else ()))
        learner.update()
        inputs = after or inputs
    return episode.finish()
