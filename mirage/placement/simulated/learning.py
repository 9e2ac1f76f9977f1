"""Algorithm 1: REINFORCE with a baseline over episodes of the same job sequence (section 4.5.2)."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch

from mirage.placement.simulated.jobs import PlacementJobs
from mirage.placement.simulated.paper import PaperAgent, PaperNetwork, paper_image
from mirage.placement.simulated.rollout import roll_out
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.topology import Floats
from mirage.rl.budget import is_over
from mirage.rl.fit import apply_gradients, backward, seeded
from mirage.rl.options import Count, Fraction, MethodOptions, Rate
from mirage.rl.policy import log_policy, log_prob_of
from mirage.rl.reinforce import discounted_returns, reinforce_loss, step_baseline

Loop = Literal["static", "stream"]
LOOPS: tuple[Loop, ...] = ("static", "stream")
_CHUNK = 2048
"""Steps whose gradients are computed at once; bounds the memory."""


@dataclass(frozen=True, kw_only=True)
class PaperOptions(MethodOptions):
    """Section 5.1's numbers; the text gives neither discount nor batch size."""

    loop: Loop = "static"
    """`static`: the same training sequences each epoch. `stream`: new ones every `fresh_epochs`."""
    epochs: Count = 50
    sequences: Count = 200
    """J: training sequences of an epoch; the paper's streaming loop has 60."""
    episodes: Count = 20
    """E: episodes of a sequence."""
    batch: Count = 1
    """B: sequences between two updates."""
    fresh_epochs: Count = 10
    steps: Count | None = None
    """Time steps of a training episode; none: the setting's T_max. Under an overload the slots are
    full from about step 20 on, so shorter episodes show the same states at a lower cost.
    """
    rate: Rate = 0.001
    """Adam's."""
    discount: Fraction = 0.99
    test_sequences: Count = 8
    """Sequences that learning curves are measured on, apart from all training."""
    test_every: Count = 20
    """Training sequences between two points of the curve."""


@dataclass(frozen=True, kw_only=True)
class PaperCurvePoint:
    """One point of figures 4 and 5."""

    sequences: int
    """Training sequences seen."""
    env_steps: int
    """Time steps of all training episodes."""
    seconds: float
    train_reward: float
    """Equation 16 over the training episodes since the point before (sampled actions)."""
    train_slowdown: float
    test_reward: float
    """Of the test sequences, each GPU to its most probable slot."""
    test_slowdown: float


@dataclass(kw_only=True)
class Training:
    """What came of it so far."""

    network: PaperNetwork
    curve: list[PaperCurvePoint] = field(default_factory=list)


def train_paper(
    setting: PlacementSetting,
    options: PaperOptions,
    *,
    seed: int,
    report: Callable[[Training], None] | None = None,
) -> Training:
    """Trains the paper's agent until its epochs or the budget (`mirage.rl.budget`) are over.

    ``report`` is called at each point of the curve. Raises InputError.
    """
    with seeded(seed) as rng:
        training = Training(network=PaperNetwork(paper_image(setting)))
        _Loop(setting, options, seed, training).run(rng, report)
    return training


class _Loop:
    def __init__(
        self, setting: PlacementSetting, options: PaperOptions, seed: int, training: Training
    ) -> None:
        self._setting, self._options, self._seed = setting, options, seed
        self._training = training
        self._optimizer = torch.optim.Adam(training.network.parameters(), lr=options.rate)
        self._test = setting.sequences(seed, "validation", options.test_sequences)
        most = setting.most_steps if options.steps is None else options.steps
        self._config = replace(setting.config, most_steps=min(most, setting.most_steps))
        self._env_steps = 0

    def run(
        self,
        rng: np.random.Generator,
        report: Callable[[Training], None] | None,
    ) -> None:
        began = time.monotonic()
        recent: list[tuple[float, float]] = []
        for done, sequence in enumerate(self._order(rng), start=1):
            recent.append(self._learn(sequence))
            if done % self._options.batch == 0:
                apply_gradients(self._optimizer)
                self._optimizer.zero_grad()
            spent = time.monotonic() - began
            late = is_over()
            if done % self._options.test_every == 0 or late:
                self._training.curve.append(self._point(done, spent, recent))
                recent = []
                if report:
                    report(self._training)
            if late:
                return

    def _order(self, rng: np.random.Generator) -> Iterator[PlacementJobs]:
        """The training sequences, shuffled in each epoch."""
        options, first = self._options, 0
        for epoch in range(options.epochs):
            if options.loop == "stream" and epoch and epoch % options.fresh_epochs == 0:
                first += options.sequences
            for nth in rng.permutation(options.sequences):
                yield self._setting.sequences(self._seed, "train", 1, first + int(nth))[0]

    def _learn(self, sequence: PlacementJobs) -> tuple[float, float]:
        """Adds a sequence's gradients; returns its mean first return and mean slowdown."""
        options, network = self._options, self._training.network
        world = PlacementWorld(self._config, [sequence] * options.episodes)
        seen, taken, rewards = [], [], []
        while not world.over.all():
            colours = network.image.colours(world)
            with torch.no_grad():
                logits = network(torch.from_numpy(network.image.scaled(colours)))
            # Adding Gumbel noise and taking the greatest draws from the softmax.
            noise = -torch.empty_like(logits).exponential_().log()
            choice = (logits + noise).argmax(dim=-1).numpy()
            seen.append(colours)
            taken.append(choice.astype(np.uint8))
            rewards.append(world.step(choice))
        table = np.array(rewards).T
        self._env_steps += table.size
        returns = discounted_returns(table, options.discount)
        self._add_gradients(
            np.concatenate(seen), np.concatenate(taken), returns - step_baseline(returns)
        )
        return float(table.sum(axis=1).mean()), float(np.nanmean(world.slowdowns()))

    def _add_gradients(self, seen: np.ndarray, taken: np.ndarray, advantages: Floats) -> None:
        options, network = self._options, self._training.network
        weights = torch.from_numpy(
            (advantages.T.reshape(-1) / (options.batch * options.episodes)).astype(np.float32)
        )
        for begin in range(0, len(seen), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            log_probs = log_policy(network(torch.from_numpy(network.image.scaled(seen[part]))))
            actions = torch.from_numpy(taken[part].astype(np.int64))
            joint = log_prob_of(log_probs, actions).sum(dim=-1)  # equation 7
            backward(reinforce_loss(joint, weights[part]))

    def _point(
        self, done: int, spent_s: float, recent: list[tuple[float, float]]
    ) -> PaperCurvePoint:
        tested = roll_out(PaperAgent(self._training.network), self._setting.config, self._test)
        reward, slowdown = np.mean(recent, axis=0)
        return PaperCurvePoint(
            sequences=done,
            env_steps=self._env_steps,
            seconds=spent_s,
            train_reward=float(reward),
            train_slowdown=float(slowdown),
            test_reward=float(tested.first_return.mean()),
            test_slowdown=float(tested.mean_slowdown.mean()),
        )
