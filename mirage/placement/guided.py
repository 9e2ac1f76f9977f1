"""Trains the scalable agent: its advice to the search by PPO, its choice of GPUs from the search.

An episode's reward is, each time step, minus the sum of 1 / length over the jobs in the system: its
sum is minus the sum of all slowdowns (equation 17). Equation 4 instead: `reward=throughput`. The
baseline is equation 9's, over episodes of the same sequence.
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

from mirage.placement.planner import Planner
from mirage.placement.rollout import roll_out
from mirage.placement.scalable import NetworkGuide, ScalableNetwork, Scene, as_advice
from mirage.placement.setting import PlacementSetting
from mirage.placement.topology import Floats
from mirage.placement.world import Ints, PlacementWorld, Price
from mirage.rl.fit import BestWeights, descend, seeded
from mirage.rl.options import Count, Fraction, MethodOptions, Rate, Weight
from mirage.rl.ppo import minibatches, normalised, ppo_loss
from mirage.rl.reinforce import discounted_returns, step_baseline


@dataclass(frozen=True, kw_only=True)
class GuidedOptions(MethodOptions):
    """Defaults take about half a minute an update on one core."""

    updates: Count = 60
    sequences: Count = 3
    """Job sequences of an update."""
    episodes: Count = 6
    """Episodes of each."""
    jobs: Count = 60
    """Jobs of a training sequence."""
    loads: tuple[Weight, ...] = (0.7, 0.9, 1.5, 2.0)
    """Drawn from for each update."""
    prices_s: tuple[Weight, ...] = (0.0, 20.0)
    """Of a pause, a restart and a move; drawn from for each update."""
    reward: Literal["slowdown", "throughput"] = "slowdown"
    rate: Rate = 0.002
    discount: Fraction = 0.9
    passes: Count = 3
    batch: Count = 256
    imitation: Weight = 0.3
    """Weight of learning the search's choice of GPUs."""
    validation_every: Count = 5
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
    """Mean absolute advice."""


@dataclass(kw_only=True)
class GuidedTraining:
    network: ScalableNetwork
    curve: list[GuidedPoint] = field(default_factory=list)


@dataclass(kw_only=True)
class _Memory:
    """What the episodes of an update saw and did; lists have an entry a time step."""

    scenes: list[Scene] = field(default_factory=list)
    advice: list[Tensor] = field(default_factory=list)
    log_probs: list[Tensor] = field(default_factory=list)
    targets: list[Tensor] = field(default_factory=list)
    clusters: list[Ints] = field(default_factory=list)
    rewards: list[Floats] = field(default_factory=list)


def train_guided(
    setting: PlacementSetting,
    options: GuidedOptions,
    *,
    seed: int,
    most_s: float | None = None,
    report: Callable[[GuidedTraining], None] | None = None,
) -> GuidedTraining:
    """Trains until all updates or ``most_s`` are over; leaves the best weights on the validation
    sequences. ``report`` is called at each point of the curve.
    """
    with seeded(seed) as rng:
        training = GuidedTraining(network=ScalableNetwork())
        loop = _GuidedLoop(setting, options, seed, training)
        loop.run(rng, most_s, report)
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
        self._optimizer = torch.optim.Adam(network.parameters(), lr=options.rate)
        self.best = BestWeights(network)
        self._env_steps = 0
        self._plain: list[float] = []

    def run(
        self,
        rng: np.random.Generator,
        most_s: float | None,
        report: Callable[[GuidedTraining], None] | None,
    ) -> None:
        began, options = time.monotonic(), self._options
        for done in range(1, options.updates + 1):
            memory = self._episodes(rng, done)
            agreement, size = self._improve(memory, rng)
            spent = time.monotonic() - began
            late = most_s is not None and spent >= most_s
            if done % options.validation_every == 0 or done == options.updates or late:
                score = self._score()
                self.best.offer(score)
                self._training.curve.append(
                    GuidedPoint(
                        updates=done,
                        env_steps=self._env_steps,
                        seconds=spent,
                        guided_slowdown=score,
                        agreement=agreement,
                        advice=size,
                    )
                )
                if report:
                    report(self._training)
            if late:
                return

    # --- episodes

    def _episodes(self, rng: np.random.Generator, nth: int) -> _Memory:
        options = self._options
        load, price_s = rng.choice(options.loads), rng.choice(options.prices_s)
        setting = with_load(self._setting, float(load), float(price_s))
        drawn = setting.sequences(
            self._seed, "train", options.sequences, first=nth * options.sequences
        )
        world = PlacementWorld(
            setting.config, [each for each in drawn for _ in range(options.episodes)]
        )
        self._planner.reset(world)
        memory = _Memory()
        while not world.over.all():
            self._step(world, memory)
        self._env_steps += sum(map(len, memory.clusters))
        return memory

    @torch.no_grad()
    def _step(self, world: PlacementWorld, memory: _Memory) -> None:
        clusters, scene, queues = self._guide.see(world)
        actions = np.full((world.clusters, world.assigned.shape[-1]), world.rows)
        if scene is not None:
            network = self._training.network
            mean, logits = network(scene)
            sampled = mean + network.spread.exp() * torch.randn_like(mean)
            advice = as_advice(clusters, queues, sampled, logits)
            targets = np.full((len(queues), actions.shape[1]), world.rows)
            for nth, (cluster, queue) in enumerate(zip(clusters, queues, strict=True)):
                owner = self._planner.plan(world, queue, replace(advice[int(cluster)], owner=None))
                given = owner >= 0
                actions[cluster, given] = queue.rows[owner[given]]
                targets[nth, given] = owner[given]
            memory.scenes.append(scene)
            memory.advice.append(sampled)
            memory.log_probs.append(_log_prob(network, mean, sampled))
            memory.targets.append(torch.from_numpy(targets))
        memory.clusters.append(clusters)
        throughput = world.step(actions)
        memory.rewards.append(
            throughput if self._options.reward == "throughput" else -_slowing(world)
        )

    def _advantages(self, memory: _Memory) -> Tensor:
        """Of each entry of all scenes in turn."""
        options = self._options
        returns = discounted_returns(np.array(memory.rewards).T, options.discount)
        by_sequence = returns.reshape(options.sequences, options.episodes, -1)
        table = np.concatenate([each - step_baseline(each) for each in by_sequence])
        entries = [
            table[clusters, step] for step, clusters in enumerate(memory.clusters) if len(clusters)
        ]
        return normalised(torch.from_numpy(np.concatenate(entries)).float())

    # --- updates

    def _improve(self, memory: _Memory, rng: np.random.Generator) -> tuple[float, float]:
        """Returns the agreement with the search and the size of the advice, before the update."""
        network, options = self._training.network, self._options
        scene = _joined(memory.scenes)
        advice, old = torch.cat(memory.advice), torch.cat(memory.log_probs)
        targets, advantages = torch.cat(memory.targets), self._advantages(memory)
        agreement, size = [], []
        for picked in minibatches(len(advice), options.batch, options.passes, rng):
            part = torch.from_numpy(picked)
            mean, logits = network(_part(scene, part))
            filled = scene.filled[part]
            log_probs = _log_prob(network, mean, advice[part])
            each = advantages[part, None].expand_as(log_probs)
            loss = ppo_loss(log_probs[filled], old[part][filled], each[filled])
            loss = loss + options.imitation * functional.cross_entropy(
                logits.flatten(0, 1), targets[part].flatten()
            )
            descend(self._optimizer, loss, most_norm=1.0)
            agreement.append(float((logits.argmax(dim=-1) == targets[part]).float().mean()))
            size.append(float(mean.detach()[filled].abs().mean()))
        return float(np.mean(agreement)), float(np.mean(size))

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


def _slowing(world: PlacementWorld) -> Floats:
    """What the last time step added to the sum of slowdowns, [B]."""
    there = (world.arrival < world.time) & (
        (world.finish_step < 0) | (world.finish_step >= world.time)
    )
    total: Floats = np.where(there, 1 / world.length, 0.0).sum(axis=1)
    return total


def _log_prob(network: ScalableNetwork, mean: Tensor, advice: Tensor) -> Tensor:
    """Of each job's advice under the normal distribution around its mean, up to a constant."""
    score = (advice - mean) / network.spread.exp()
    return (-0.5 * score**2 - network.spread).sum(dim=-1)


def _joined(scenes: Sequence[Scene]) -> Scene:
    return Scene(
        jobs=torch.cat([each.jobs for each in scenes]),
        gpus=torch.cat([each.gpus for each in scenes]),
        owner=torch.cat([each.owner for each in scenes]),
        filled=torch.cat([each.filled for each in scenes]),
    )


def _part(scene: Scene, part: Tensor) -> Scene:
    return Scene(
        jobs=scene.jobs[part],
        gpus=scene.gpus[part],
        owner=scene.owner[part],
        filled=scene.filled[part],
    )
