"""Deep Q-learning (Mnih et al.; paper, sections 2.2, 4.8, 4.9.2): `transformer-dqn`, `moe-dqn`.

Online, on fresh episodes, after the pretraining. Each round puts fresh episodes into the replay
memory, draws episodes of it again, and takes gradient steps on random batches of their states,
towards the Bellman target of equation 4,

    Q(s, submit) -> r          Q(s, wait) -> discount * max_a Q'(s', a)

where Q' is the target network, a copy that follows every few steps, and the reward of waiting is 0.

What is ours, and why:
- Epsilon is the share of *episodes* that explore: they release at a point drawn evenly over all of
  theirs. With 288
  decisions an episode, a per-step epsilon of 1 % would release nearly all of them by chance, and
  would never learn what follows after waiting past a point where the policy releases.
- A fork of the simulator gives the exact reward of submitting at every visited state: both actions
  are learned there.
- ``ahead``: the target looks that many waits ahead (n-step return) along a policy's decisions: if
  it releases before, the target is the reward seen there, else Q' of the state reached. With 1,
  news travels back from the outcome by only one decision for each copy of the target network.
- ``outcomes``: the decisions are those of the *present* network, made again for each round, with the
  memory that it is served with. Waiting changes nothing but time, so every state's outcome is
  known, and all states are learnt. Stored decisions are older and noisier, so that waiting looks
  worse than it is, and the policy releases ever earlier. With ``ahead=1`` and ``outcomes=stored``
  the target is equation 4 to the letter, on the states that were visited: the paper's variant.
- The discount is 1: an episode always ends, and a smaller one would make a late interruption look
  small, so it
  rewards putting off.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirage.provision.learn.episode import Episode, Floats, Ints
from mirage.provision.learn.foundation import Network
from mirage.provision.learn.gate import weight_groups
from mirage.provision.learn.model import Flags
from mirage.provision.learn.neural import Neural
from mirage.provision.learn.points import Points, PreparedEpisode
from mirage.provision.learn.pretrain import PretrainOptions, begin
from mirage.provision.learn.training import MOST_NORM, Draw, decide, gate_loss
from mirage.rl.fit import (
    Report,
    Stop,
    cosine,
    descend,
    fit,
    linear,
    mean_loss,
    pick_device,
    seeded,
    set_rate,
)
from mirage.rl.options import Count, Fraction, MethodOptions, Rate
from mirage.rl.targets import TargetNetwork, td_targets


@dataclass(frozen=True)
class DqnOptions(MethodOptions):
    """Defaults are for episodes of 48 hours on two CPU cores: about three minutes online (ten
    experts: ten).
    """

    pretrain: PretrainOptions = field(default_factory=PretrainOptions)
    """Foundation, penalty share and device; and the supervised phase, unless it is skipped."""
    pretrained: bool = True
    """False: begin with random weights."""
    replay: bool = True
    """False: learn each round's own states in the order of time, then forget them."""
    rounds: Count = 40
    episodes: Count = 16
    """Fresh episodes a round."""
    memory: Count = 256
    """Episodes that the replay memory holds."""
    outcomes: Literal["present", "stored"] = "present"
    """Whose decisions the target looks ahead along: the present network's, at all states; or those
    stored as the episode was visited, at the visited ones.
    """
    replayed: Count = 48
    """Episodes of the memory whose states are learnt in a round, where outcomes are present."""
    updates: Count = 40
    """Gradient steps a round."""
    batch: Count = 256
    rate: Rate = 1e-4
    """Adam's learning rate at its highest; it falls to a tenth along a cosine. At five times this
    the first rounds undo what pretraining learnt.
    """
    epsilon: Fraction = 0.5
    """Share of exploring episodes in the first round;"""
    epsilon_end: Fraction = 0.1
    """in the last; between them it falls evenly."""
    discount: Fraction = 1.0
    """Of one decision to the next."""
    ahead: Count = 12
    """Decisions that the Bellman target looks ahead: two hours."""
    sync: Count = 40
    """Gradient steps between copies to the target network."""
    patience: Count = 15
    """Rounds without a better validation, after which it stops."""


class EpisodeRollout(NamedTuple):
    """One episode under the policy of its round. M: penalty shares it was lived at, T: decision points."""

    episode: PreparedEpisode
    shares: Floats
    """(M,)."""
    release: Flags
    """(T + 1, M): what the policy decided at each point."""
    visited: Flags
    """(T + 1,): points up to the release, whichever share's was last."""


class RolloutStates:
    """The visited states of some rollouts, and what followed them, to be drawn from in any order."""

    def __init__(self, rollouts: Sequence[EpisodeRollout], device: torch.device) -> None:
        self.points = Points([rollout.episode for rollout in rollouts], device)
        self.shares: Floats = np.stack([rollout.shares for rollout in rollouts])
        visited = np.concatenate([rollout.visited for rollout in rollouts])
        self.visited: Ints = np.flatnonzero(visited & ~self.points.never)
        self._rewards_h = -self.points.costs_h(self.shares)
        self._stops = self.points.stops(np.concatenate([rollout.release for rollout in rollouts]))

    def rewards_h(self, slots: Ints) -> Floats:
        """(n, m): of submitting at slots (n,), or at one for each share, (n, m)."""
        return np.take_along_axis(self._rewards_h, slots.reshape(len(slots), -1), axis=0)

    def after(self, slots: Ints, ahead: int) -> Future:
        """What follows waiting at decision points (n,), up to so many decisions later."""
        horizon = slots + ahead
        stops = self._stops[slots + 1]
        over = (stops < horizon[:, None]) | (self.points.never[stops] & (stops == horizon[:, None]))
        # Where the episode ends before the horizon it is over, and any of its points will do.
        reached = np.minimum(horizon, self.points.last_decision[self.points.episode[slots]])
        return Future(
            over,
            np.take_along_axis(self._rewards_h, stops, axis=0),
            stops - slots[:, None],
            reached,
        )


class Future(NamedTuple):
    over: Flags
    """(n, m): the policy releases before the horizon, or the episode ends."""
    reward_h: Floats
    """(n, m): what it then got."""
    waits: Ints
    """(n, m): after so many waits."""
    reached: Ints
    """(n,): the decision point at the horizon, for where it is not over."""


@dataclass(kw_only=True)
class DqnLearner:
    """The Q-network, its target network and its memory.

    The memory holds whole rollouts: their states overlap in all but ten minutes of a day, so that
    rows of their own (`mirage.rl.replay`) would take 144 times the room.
    """

    network: Network
    draw: Draw
    options: DqnOptions
    generator: np.random.Generator
    device: torch.device
    points: int = 1
    """Decision points over whose mean it decides in service (`training.MEMORIES`)."""

    def __post_init__(self) -> None:
        self._memory: deque[EpisodeRollout] = deque(maxlen=self.options.memory)
        self._target = TargetNetwork(self.network, self.options.sync)
        self._optimizer = torch.optim.Adam(weight_groups(self.network), fused=True)

    def round(self, done: int) -> float:
        """Plays fresh episodes, then learns from the memory; returns the mean loss. ``done``: rounds
        before this one.
        """
        if not self.options.replay:
            self._memory.clear()
        self._memory.extend(self.play(self.draw(self.options.episodes), self.epsilon(done)))
        replay = RolloutStates(self._replayed(), self.device)
        decay = cosine(1.0, 0.1, done / self.options.rounds)
        set_rate(self._optimizer, self.options.rate * decay)
        self.network.train()
        batches = self._batches(replay.visited)
        lesson = self._lesson(replay, np.concatenate(batches))
        parts = lesson.split([len(batch) for batch in batches])
        return mean_loss([self._update(replay.points, part) for part in parts])

    def epsilon(self, done: int) -> float:
        """The share of exploring episodes after this many rounds."""
        part = done / max(self.options.rounds - 1, 1)
        return linear(self.options.epsilon, self.options.epsilon_end, part)

    def _replayed(self) -> Sequence[EpisodeRollout]:
        """What is learnt in a round."""
        if self.options.outcomes == "stored":
            return self._memory
        count = min(self.options.replayed, len(self._memory))
        chosen = self.generator.choice(len(self._memory), count, replace=False)
        rollouts = [self._memory[number] for number in chosen]
        points = Points([rollout.episode for rollout in rollouts], self.device)
        shares = np.stack([rollout.shares for rollout in rollouts])
        release = decide(self.network, points, shares, "value", self.points)
        return [
            rollout._replace(release=decided, visited=np.ones(len(decided), dtype=np.bool_))
            for rollout, decided in zip(rollouts, points.split(release), strict=True)
        ]

    def play(self, episodes: Sequence[PreparedEpisode], epsilon: float) -> list[EpisodeRollout]:
        """Rolls the present policy out, epsilon-greedily."""
        points = Points(episodes, self.device)
        recipe = self.options.pretrain
        shares = recipe.tastes.draw(self.generator, len(points), recipe.shares_each)
        release = decide(self.network, points, shares, "value", self.points)
        visited = (
            np.arange(len(points.never)) <= self._ends(points, release, epsilon)[points.episode]
        )
        each = zip(episodes, shares, points.split(release), points.split(visited), strict=True)
        return [EpisodeRollout(*parts) for parts in each]

    def _ends(self, points: Points, release: Flags, epsilon: float) -> Ints:
        """(N,): the slot up to which each episode is played, epsilon-greedily."""
        greedy = points.stops(release)[points.first].max(axis=1)
        explored = self.generator.integers(points.first, points.last_decision + 2)
        explores = self.generator.random(len(points)) < epsilon
        ends: Ints = np.where(explores, explored, greedy)
        return ends

    def _batches(self, visited: Ints) -> list[Ints]:
        size, updates = self.options.batch, self.options.updates
        if self.options.replay:
            return list(self.generator.choice(visited, (updates, size)))
        return np.array_split(visited, math.ceil(len(visited) / size))[:updates]

    def _lesson(self, replay: RolloutStates, slots: Ints) -> LookaheadLesson:
        return LookaheadLesson.of(replay, slots, self.options, float(self.network.scale_h))

    def _update(self, points: Points, lesson: LookaheadLesson) -> Tensor:
        found = self.network.values(points.states(lesson.slots), lesson.asked)
        loss = torch.nn.functional.mse_loss(found.q, self._targets(points, lesson))
        balance = gate_loss(found, self.network.shape)
        descend(self._optimizer, loss + balance, most_norm=MOST_NORM)
        self._target.count_step()
        return loss.detach()

    def _targets(self, points: Points, lesson: LookaheadLesson) -> Tensor:
        """(n, m, 2): the rewards, in the network's units, that Q of submitting and of waiting
        should be.
        """
        with torch.no_grad():
            found = self._target.network.values(points.states(lesson.reached), lesson.asked_there)
            later = found.q.amax(dim=-1).double()
        discount = self.options.discount**self.options.ahead
        wait = td_targets(lesson.reward, later, lesson.over, discount)
        return torch.stack([lesson.submit, wait], dim=-1).float()


class LookaheadLesson(NamedTuple):
    """What n slots teach, on the device; rewards in the network's units."""

    slots: Tensor
    """(n,)."""
    asked: Tensor
    """(n, m, 3)."""
    submit: Tensor
    """(n, m): the reward of submitting."""
    over: Tensor
    """(n, m): the policy releases before the horizon, or the episode ends."""
    reward: Tensor
    """(n, m): what it then got, discounted; 0 where it is not over."""
    reached: Tensor
    """(n,): the slots at the horizon."""
    asked_there: Tensor
    """(n, m, 3)."""

    @classmethod
    def of(
        cls, replay: RolloutStates, slots: Ints, options: DqnOptions, unit_h: float
    ) -> LookaheadLesson:
        """``unit_h``: of the network's rewards."""
        points = replay.points
        future = replay.after(slots, options.ahead)
        discounted = options.discount**future.waits * (future.reward_h / unit_h)
        return cls(
            points.on_device(slots),
            points.asked(replay.shares, slots),
            points.on_device(replay.rewards_h(slots) / unit_h),
            points.on_device(future.over),
            points.on_device(np.where(future.over, discounted, 0.0)),
            points.on_device(future.reached),
            points.asked(replay.shares, future.reached),
        )

    def split(self, sizes: list[int]) -> Iterator[LookaheadLesson]:
        """Batches of these sizes."""
        edges = np.cumsum(sizes)[:-1].tolist()
        return map(
            LookaheadLesson._make, zip(*(part.tensor_split(edges) for part in self), strict=True)
        )


def train_dqn(
    train: Sequence[Episode],
    validation: Sequence[Episode],
    options: DqnOptions,
    fresh: Sequence[Episode] | None = None,
    progress: Report | None = None,
    seed: int = 0,
    base: Neural | None = None,
) -> Neural:
    """Pretrains, or goes on from ``base``, then learns online from ``fresh`` episodes (without:
    ``train``).

    Returns the weights of the online round that did best on validation, also after Ctrl-C. Those
    before the online phase do not count, so the result is what online learning made. Raises
    InputError without episodes, or for a base of another shape or taste.
    """
    begun = begin(train, validation, options.pretrain, options.pretrained, base, progress, seed)
    if base is None and begun.serving.interrupted:
        return replace(begun, name=f"{begun.name}-dqn")
    device = pick_device(options.pretrain.device)
    network = deepcopy(begun.network).to(device)
    with seeded(seed) as generator:
        draw = Draw(train if fresh is None else fresh, begun.scaling, generator)
        # The memory is the same in training and in service: that of the network that it starts from.
        recipe = replace(options.pretrain, memory=begun.serving.memory)
        judge = recipe.judge(validation, begun.scaling, device)
        learner = DqnLearner(
            network=network,
            draw=draw,
            options=options,
            generator=generator,
            device=device,
            points=begun.serving.memory,
        )
        result = fit(
            network,
            learner.round,
            Stop(rounds=options.rounds, patience=options.patience),
            score=lambda: judge(network, "value"),
            stage="dqn",
            progress=progress,
        )
    serving = replace(begun.serving, interrupted=result.interrupted)
    return Neural(f"{begun.name}-dqn", network.eval().cpu(), begun.scaling, serving)
