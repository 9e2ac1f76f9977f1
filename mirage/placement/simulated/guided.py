"""Trains the scalable agent in two stages.

1. Imitation: its choice of GPUs is fitted to what the search decides; so its tokens learn what
   matters in a cluster.
2. Reinforcement: the layer that gives advice, by parameter-exploring policy gradients (Sehnke et
   al. 2010), REINFORCE on a normal distribution of that layer's weights. Each episode acts with one
   draw. Draws come in pairs of opposite signs on the same job sequence, so each is the other's
   baseline: noise of single decisions, of which an episode has thousands, plays no part.

An episode's reward is minus its mean slowdown (equation 17), or with `reward=throughput` the sum of
equation 4.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from mirage.placement.simulated.planner import Planner
from mirage.placement.simulated.rollout import roll_out
from mirage.placement.simulated.scalable import (
    NetworkGuide,
    ScalableNetwork,
    Scene,
    as_advice,
    joined,
)
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.simulated.world import PlacementWorld, Price
from mirage.placement.topology import Floats, Ints
from mirage.rl.budget import is_over
from mirage.rl.fit import BestWeights, descend, seeded
from mirage.rl.options import Count, MethodOptions, Rate, Weight
from mirage.rl.ppo import minibatches


@dataclass(frozen=True, kw_only=True)
class GuidedOptions(MethodOptions):
    """Defaults take about ten seconds an update on one core."""

    imitation: Count = 8
    """Updates of the first stage."""
    updates: Count = 60
    """Of both stages."""
    sequences: Count = 2
    """Job sequences of an update."""
    pairs: Count = 4
    """Pairs of episodes of each sequence."""
    jobs: Count = 60
    """Jobs of a training sequence."""
    loads: tuple[Weight, ...] = (0.7, 0.9, 1.5, 2.0)
    """One is drawn for each update."""
    prices_s: tuple[Weight, ...] = (0.0, 20.0)
    """Of a pause, a restart and a move; one is drawn for each update."""
    reward: Literal["slowdown", "throughput"] = "slowdown"
    imitation_rate: Rate = 0.002
    rate: Rate = 0.01
    spread: Weight = 0.05
    """Standard deviation of the explored weights."""
    passes: Count = 3
    batch: Count = 256
    validation_every: Count = 6
    validation_sequences: Count = 3


@dataclass(frozen=True, kw_only=True)
class GuidedPoint:
    """One point of the learning curve."""

    updates: int
    env_steps: int
    seconds: float
    guided_slowdown: float
    """Mean of the validation settings; each as a ratio to the search without a guide."""
    agreement: float
    """Share of the GPUs for which the network alone chooses the search's job."""
    advice: float
    """Mean absolute weight of the layer that gives advice."""


@dataclass(kw_only=True)
class GuidedTraining:
    network: ScalableNetwork
    curve: list[GuidedPoint] = field(default_factory=list)


def train_guided(
    setting: PlacementSetting,
    options: GuidedOptions,
    *,
    seed: int,
    report: Callable[[GuidedTraining], None] | None = None,
) -> GuidedTraining:
    """Trains until all updates or the budget (`mirage.rl.budget`) are over; leaves the best weights on the validation
    sequences. ``report`` is called at each point of the curve.
    """
    with seeded(seed) as rng:
        training = GuidedTraining(network=ScalableNetwork())
        loop = _GuidedLoop(setting, options, seed, training)
        loop.run(rng, report)
        loop.best.restore()
    return training


def with_load(setting: PlacementSetting, load: float, price_s: float) -> PlacementSetting:
    price = Price(pause_s=price_s, restart_s=price_s, move_s=price_s)
    return replace(setting, load=load, price=price)


class _GuidedLoop:
    def __init__(
        self, setting: PlacementSetting, options: GuidedOptions, seed: int, training: GuidedTraining
    ) -> None:
        workload = replace(setting.workload, jobs=options.jobs)
        self._setting = replace(setting, workload=workload)
        self._options, self._seed, self._training = options, seed, training
        network = training.network
        self._guide = NetworkGuide(network)
        self._planner = Planner(most_moves=0)
        layer = list(network.advice.parameters())
        rest = [each for each in network.parameters() if all(each is not own for own in layer)]
        self._imitator = torch.optim.Adam(rest, lr=options.imitation_rate)
        self._explorer = torch.optim.Adam(layer, lr=options.rate)
        self.best = BestWeights(network)
        self._env_steps, self._agreement = 0, 0.0
        self._plain: list[float] = []

    def run(
        self,
        rng: np.random.Generator,
        report: Callable[[GuidedTraining], None] | None,
    ) -> None:
        began, options = time.monotonic(), self._options
        for done in range(1, options.updates + 1):
            if done <= options.imitation:
                self._imitate(rng, done)
            else:
                self._explore(rng, done)
            spent = time.monotonic() - began
            late = is_over()
            scored = done % options.validation_every == 0 or done == options.imitation
            if scored or done == options.updates or late:
                self._note(done, spent)
                if report:
                    report(self._training)
            if late:
                return

    def _note(self, done: int, spent_s: float) -> None:
        score = self._score()
        self.best.offer(score)
        self._training.curve.append(
            GuidedPoint(
                updates=done,
                env_steps=self._env_steps,
                seconds=spent_s,
                guided_slowdown=score,
                agreement=self._agreement,
                advice=float(self._training.network.advice.weight.detach().abs().mean()),
            )
        )

    def _world(self, rng: np.random.Generator, nth: int) -> PlacementWorld:
        """Pairs of clusters beside each other, those of a sequence in a row."""
        options = self._options
        load, price_s = rng.choice(options.loads), rng.choice(options.prices_s)
        setting = with_load(self._setting, float(load), float(price_s))
        drawn = setting.sequences(
            self._seed, "train", options.sequences, first=nth * options.sequences
        )
        world = PlacementWorld(
            setting.config, [each for each in drawn for _ in range(2 * options.pairs)]
        )
        self._planner.reset(world)
        return world

    # --- the first stage

    def _imitate(self, rng: np.random.Generator, nth: int) -> None:
        world = self._world(rng, nth)
        scenes: list[Scene] = []
        targets: list[Tensor] = []
        while not world.over.all():
            _, scene, _ = self._guide.see(world)
            actions = self._planner.decide(world)
            if scene is not None:
                scenes.append(scene)
                targets.append(_targets(world, actions))
            world.step(actions)
            self._env_steps += world.clusters
        self._fit(joined(scenes), torch.cat(targets), rng)

    def _fit(self, scene: Scene, targets: Tensor, rng: np.random.Generator) -> None:
        options = self._options
        agreement = []
        for picked in minibatches(len(targets), options.batch, options.passes, rng):
            part = torch.from_numpy(picked)
            _, logits = self._training.network(_part(scene, part))
            loss = functional.cross_entropy(logits.flatten(0, 1), targets[part].flatten())
            descend(self._imitator, loss, most_norm=1.0)
            agreement.append(float((logits.argmax(dim=-1) == targets[part]).float().mean()))
        self._agreement = float(np.mean(agreement))

    # --- the second stage

    def _explore(self, rng: np.random.Generator, nth: int) -> None:
        options, layer = self._options, self._training.network.advice
        world = self._world(rng, nth)
        half = torch.randn(options.sequences, options.pairs, *_shape(layer))
        noise = torch.stack([half, -half], dim=2).flatten(0, 2)
        rewards = self._episodes(world, options.spread * noise)
        paired = rewards.reshape(options.sequences, options.pairs, 2)
        gain = (paired[..., 0] - paired[..., 1]) / (2 * options.spread)
        gain = gain / (np.abs(gain).mean() + 1e-9)
        climb = (torch.from_numpy(gain).float()[..., None, None] * half).mean(dim=(0, 1))
        layer.weight.grad, layer.bias.grad = -climb[:, :-1], -climb[:, -1]
        self._explorer.step()

    @torch.no_grad()
    def _episodes(self, world: PlacementWorld, shifts: Tensor) -> Floats:
        """Each cluster's reward with its shift of the layer's weights, [B]."""
        network = self._training.network
        total = np.zeros(world.clusters)
        while not world.over.all():
            clusters, scene, queues = self._guide.see(world)
            actions = np.full((world.clusters, world.assigned.shape[-1]), world.rows)
            if scene is not None:
                tokens, logits = network.look(scene)
                own = shifts[torch.from_numpy(clusters)]
                moved = tokens @ own[:, :, :-1].transpose(1, 2) + own[:, None, :, -1]
                advice = as_advice(clusters, queues, network.advice(tokens) + moved, logits)
                for cluster, queue in zip(clusters, queues, strict=True):
                    owner = self._planner.plan(
                        world, queue, replace(advice[int(cluster)], owner=None)
                    )
                    given = owner >= 0
                    actions[cluster, given] = queue.rows[owner[given]]
            total += world.step(actions)
            self._env_steps += world.clusters
        if self._options.reward == "throughput":
            return total
        return np.asarray(-np.nanmean(world.slowdowns(), axis=1))

    # --- validation

    def _score(self) -> float:
        """The mean ratio of the mean slowdown with a guide to that without, over the settings."""
        options = self._options
        cases = [
            with_load(self._setting, load, price)
            for load in (options.loads[0], options.loads[-1])
            for price in (options.prices_s[0], options.prices_s[-1])
        ]
        if not self._plain:
            self._plain = self._slowdowns(cases, None)
        return float(np.mean(np.array(self._slowdowns(cases, self._guide)) / self._plain))

    def _slowdowns(
        self, cases: Sequence[PlacementSetting], guide: NetworkGuide | None
    ) -> list[float]:
        count = self._options.validation_sequences
        found = []
        for case in cases:
            jobs = case.sequences(self._seed, "validation", count)
            rollout = roll_out(Planner(guide=guide, most_s=1.0), case.config, jobs)
            found.append(float(rollout.mean_slowdown.mean()))
        return found


def _shape(layer: torch.nn.Linear) -> tuple[int, int]:
    """Of weights and bias together."""
    return layer.out_features, layer.in_features + 1


def _targets(world: PlacementWorld, actions: Ints) -> Tensor:
    """The index in its cluster's queue of each GPU's job; `world.rows`: none. [b, M].

    Of the clusters that `NetworkGuide.see` saw.
    """
    clusters = np.nonzero(~world.over & world.filled.any(axis=1))[0]
    # The queue has the filled rows in their order.
    index = np.cumsum(world.filled[clusters], axis=1) - 1
    index = np.append(index, np.full((len(clusters), 1), world.rows), axis=1)
    return torch.from_numpy(np.take_along_axis(index, actions[clusters], axis=1))


def _part(scene: Scene, part: Tensor) -> Scene:
    return Scene(
        jobs=scene.jobs[part],
        gpus=scene.gpus[part],
        owner=scene.owner[part],
        filled=scene.filled[part],
    )
