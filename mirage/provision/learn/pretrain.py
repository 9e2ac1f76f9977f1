"""Supervised training of the foundation on observed rewards (paper, section 4.9.1): `transformer`
and `moe`.

A sample is a state *at a decision point*, the ordinal action, and the reward of equation 8 (in
hours, e_I + e_O = 1).

- Submit: the observed reward of submitting there.
- Wait: the observed reward of submitting at the later point that the network of this round thinks
  best (or never, if it
  thinks that better). So labels and network improve together, round by round: what is chosen is
  predicted, what is learnt was observed. The choice looks at later states, though not at outcomes:
  waiting looks a little too good.

  Two others were tried. The best reward still possible (``wait="hindsight"``) knows how the queue
  will turn out, which no policy does: waiting looks good as long as *some* later point would have
  been right, and the network releases far too late. The reward of the network's own later decisions
  makes it release too early: a network that often does so by mistake learns that waiting is worth
  little, and goes on.

Both methods submit where the predicted reward of submitting exceeds that of waiting, on average
over the last points (`training.MEMORIES`; in the paper, now): docs/decisions/0013.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirage.errors import InputError
from mirage.provision.learn.episode import STEP_S, Episode, Floats, Ints
from mirage.provision.learn.foundation import FORECAST, MOE, Network, Shape
from mirage.provision.learn.gate import weight_groups
from mirage.provision.learn.model import Flags
from mirage.provision.learn.neural import Memory, Neural, Serving
from mirage.provision.learn.points import Points
from mirage.provision.learn.scaling import Scaling
from mirage.provision.learn.training import MOST_NORM, Draw, Judge, Tastes, gate_loss, scores
from mirage.rl.fit import (
    Report,
    Stop,
    cosine,
    descend,
    fit,
    mean_loss,
    pick_device,
    seeded,
    set_rate,
)
from mirage.rl.options import Count, Fraction, MethodOptions, Range, Rate
from mirage.state.variables import PAIR
from slurm_sim.seconds import HOUR_S


@dataclass(frozen=True)
class PretrainOptions(MethodOptions):
    """Defaults are for some hundred episodes of 48 hours on two CPU cores: about three minutes (ten
    experts: eight).
    """

    shape: Shape = field(default_factory=Shape)
    share: Fraction | None = None
    """Train for this share e_I / (e_I + e_O) alone; None: the share is an input, and one model
    serves all tastes.
    """
    shares_each: Count = 2
    """Shares drawn for each episode and round, where it is an input."""
    rounds: Count = 30
    states: Count = 16384
    """States a round."""
    per_episode: Count = 144
    """Most states of one episode in a round: neighbours tell little new."""
    every: Count = 3
    """For the labels of waiting, only every third point is a candidate, from a random first one on:
    a third of the work, and a best point missed by ten minutes costs little.
    """
    batch: Count = 256
    rate: Rate = 2e-3
    """Adam's learning rate at its highest; it falls to a tenth along a cosine."""
    patience: Count = 10
    """Rounds without a better validation, after which it stops."""
    judged: Count = 96
    """Most validation episodes used after each round, evenly spread in time."""
    expert_rounds: Count = 6
    """Rounds of each expert alone, on its time slice, before gate and experts go on together."""
    wait: Literal["predicted", "hindsight"] = "predicted"
    """How the later point is chosen whose reward is that of waiting."""
    probes: Annotated[int, Range(2)] | None = None
    """Only this many evenly split decision points of each episode (the paper: 7); None: all."""
    moment: Literal["decision", "start"] = "decision"
    """start: the prototype's defect, for comparison: the history ends where the successor starts.
    Understated here, as an episode's rows end with its predecessor and never show the successor in
    the queue.
    """
    memory: Memory | None = None
    """Decision points whose mean Q-values decide in service; None: the best of `training.MEMORIES`
    on validation; 1: the present alone, as in the paper.
    """
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "auto":
            pick_device(self.device)

    @property
    def tastes(self) -> Tastes:
        return Tastes(self.share)

    def judge(self, validation: Sequence[Episode], scaling: Scaling, device: torch.device) -> Judge:
        """Of a V-head."""
        return Judge(validation, scaling, self.tastes, device, most=self.judged, memory=self.memory)

    @property
    def network_shape(self) -> Shape:
        """The shape with the inputs that the share asks for."""
        return replace(self.shape, penalty_input=self.share is None)

    @property
    def foundation(self) -> str:
        """The method's name: that of its foundation."""
        return "transformer" if self.shape.gate == "none" else "moe"


MOE_OPTIONS = PretrainOptions(shape=MOE, rounds=24, expert_rounds=4, judged=48)
"""For ten experts, which cost about six times as much a state, and need about as many gradient
steps as one: with a quarter of them they answer little to the penalties.
"""


@dataclass
class SupervisedLearner:
    """One network's supervised training, a round at a time."""

    network: Network
    draw: Draw
    options: PretrainOptions
    rounds: int
    generator: np.random.Generator
    device: torch.device

    def __post_init__(self) -> None:
        self._optimizer = torch.optim.Adam(weight_groups(self.network), fused=True)

    def round(self, done: int) -> float:
        """Draws episodes, labels their states by the present policy, learns them; returns the mean
        loss. ``done``: rounds before this one.
        """
        options = self.options
        each = min(options.per_episode, options.probes or options.per_episode)
        points = Points(self.draw(math.ceil(options.states / each)), self.device)
        shares = options.tastes.draw(self.generator, len(points), options.shares_each)
        slots = self._choose(points)
        labels = self._labels(points, shares, slots)
        set_rate(self._optimizer, options.rate * cosine(1.0, 0.1, done / self.rounds))
        self.network.train()
        order = self.generator.permutation(len(slots))
        lesson = Lesson.of(points, shares, slots[order], labels[order])
        count = math.ceil(len(order) / options.batch)
        return mean_loss([self._step(points, part) for part in lesson.split(count)])

    def _choose(self, points: Points) -> Ints:
        """Which slots to learn: at most so many of each episode, at random; or the probes."""
        if self.options.probes:
            return points.evenly(self.options.probes)
        shuffled = self.generator.permutation(points.decisions)
        shuffled = shuffled[np.argsort(points.episode[shuffled], kind="stable")]
        sizes = np.bincount(points.episode[shuffled])
        rank = np.arange(len(shuffled)) - np.repeat(np.cumsum(sizes) - sizes, sizes)
        return shuffled[rank < self.options.per_episode]

    def _labels(self, points: Points, shares: Floats, slots: Ints) -> Floats:
        """(n, m, 2): rewards, in the network's units, of submitting and of waiting at these slots."""
        costs_h = points.costs_h(shares)
        hindsight = self.options.wait == "hindsight"
        release = best_from_here(
            points, costs_h if hindsight else self._predicted_h(points, shares, slots)
        )
        wait_h = np.take_along_axis(costs_h, points.stops(release)[slots + 1], axis=0)
        return -np.stack([costs_h[slots], wait_h], axis=-1) / float(self.network.scale_h)

    def _predicted_h(self, points: Points, shares: Floats, slots: Ints) -> Floats:
        """(S, m): what the network thinks each slot costs; infinite where it is not asked."""
        # With probes nothing else was observed.
        asked = slots if self.options.probes else points.clock(self.options.every, self.generator)
        said_h = -scores(self.network, points, shares, "value", asked) * float(self.network.scale_h)
        predicted_h = np.full((len(points.never), shares.shape[1]), np.inf)
        predicted_h[asked] = said_h[..., 0]
        is_last = np.append(np.diff(points.episode[asked]) > 0, True)
        predicted_h[points.last_decision[points.episode[asked[is_last]]] + 1] = said_h[
            is_last, :, 1
        ]
        return predicted_h

    def _step(self, points: Points, lesson: Lesson) -> Tensor:
        found = self.network.values(*self._inputs(points, lesson))
        loss = torch.nn.functional.mse_loss(found.q, lesson.labels)
        balance = gate_loss(found, self.network.shape)
        descend(self._optimizer, loss + balance, most_norm=MOST_NORM)
        return loss.detach()

    def _inputs(self, points: Points, lesson: Lesson) -> tuple[Tensor, Tensor]:
        """States, and what they are asked with."""
        states = points.states(lesson.slots)
        if self.options.moment == "decision":
            return states, lesson.asked
        wrong = points.states(lesson.at_start).clone()
        wrong[:, :, PAIR] = states[:, -1:, PAIR]
        asked = lesson.asked.clone()
        asked[:, :, FORECAST] = lesson.forecast_at_start
        return wrong, asked


class Lesson(NamedTuple):
    """What n slots teach, on the device."""

    slots: Tensor
    """(n,)."""
    asked: Tensor
    """(n, m, 3)."""
    at_start: Tensor
    """(n,): for ``moment="start"``, the slots at which the successor starts."""
    forecast_at_start: Tensor
    """(n, m, 2): the forecasts there."""
    labels: Tensor
    """(n, m, 2)."""

    @classmethod
    def of(cls, points: Points, shares: Floats, slots: Ints, labels: Floats) -> Lesson:
        at_start = points.at_start[slots]
        return cls(
            points.on_device(slots),
            points.asked(shares, slots),
            points.on_device(at_start),
            points.asked(shares, at_start)[:, :, FORECAST],
            points.on_device(labels.astype(np.float32)),
        )

    def split(self, count: int) -> Iterator[Lesson]:
        """So many batches, nearly equal in size."""
        return map(Lesson._make, zip(*(part.tensor_split(count) for part in self), strict=True))


def best_from_here(points: Points, costs_h: Floats) -> Flags:
    """(S, m): whether a slot is as cheap as all that follow it in its episode: the first such slot
    is the cheapest.
    """
    parts = np.split(costs_h, points.first[1:])
    return np.concatenate(
        [part <= np.minimum.accumulate(part[::-1], axis=0)[::-1] for part in parts]
    )


def train_supervised(
    train: Sequence[Episode],
    validation: Sequence[Episode],
    options: PretrainOptions,
    progress: Report | None = None,
    seed: int = 0,
) -> Neural:
    """A transformer or a MoE that predicts rewards.

    Returns the weights that did best on validation, also after Ctrl-C. Raises InputError without
    episodes.
    """
    device = pick_device(options.device)
    untrained = new_model(train, options, seed)
    network, scaling = untrained.network.to(device), untrained.scaling
    with seeded(seed) as generator:
        if network.shape.experts > 1:
            _train_experts(network, train, scaling, options, generator, progress)
        judge = options.judge(validation, scaling, device)
        learner = SupervisedLearner(
            network=network,
            draw=Draw(train, scaling, generator),
            options=options,
            rounds=options.rounds,
            generator=generator,
            device=device,
        )
        result = fit(
            network,
            learner.round,
            Stop(rounds=options.rounds, patience=options.patience),
            score=lambda: judge(network, "value"),
            stage="pretrain",
            progress=progress,
        )
    serving = replace(
        untrained.serving, memory=judge.best(network, "value")[1], interrupted=result.interrupted
    )
    network.eval().cpu()
    return replace(untrained, serving=serving)


def new_model(train: Sequence[Episode], options: PretrainOptions, seed: int) -> Neural:
    """With random weights; the scaling, and the unit of the rewards, are those of the training
    part.
    """
    scaling = Scaling.fit(episode.rows for episode in train)
    with seeded(seed):
        network = Network(options.network_shape)
    cost_h = np.concatenate([episode.interruption_s + episode.overlap_s for episode in train]) / (
        2 * HOUR_S
    )
    network.scale_h.fill_(max(float(np.sqrt(np.mean(cost_h**2))), STEP_S / HOUR_S))
    return Neural(options.foundation, network.eval(), scaling, Serving("value", options.share))


def begin(
    train: Sequence[Episode],
    validation: Sequence[Episode],
    options: PretrainOptions,
    pretrained: bool,
    base: Neural | None,
    progress: Report | None,
    seed: int,
) -> Neural:
    """What the online methods start from: ``base``, or a pretrained network, or a random one."""
    if base is not None:
        if base.network.shape != options.network_shape or base.serving.share != options.share:
            raise InputError(
                f"{base.name} has another shape or penalty share than the options; pretrain with"
                " the same"
            )
        return base
    if pretrained:
        return train_supervised(train, validation, options, progress=progress, seed=seed)
    return new_model(train, options, seed)


def _train_experts(
    network: Network,
    train: Sequence[Episode],
    scaling: Scaling,
    options: PretrainOptions,
    generator: np.random.Generator,
    progress: Report | None,
) -> None:
    """Expert i on the i-th time slice of the training episodes (section 4.7), from weights of its
    own.
    """
    shape, device = network.shape, network.scale_h.device
    ordered = sorted(
        (episode for episode in train if len(episode)), key=lambda episode: episode.begin_s
    )
    if len(ordered) < shape.experts:
        raise InputError(
            f"{len(ordered)} episodes are too few for {shape.experts} time slices; give more"
            " episodes"
        )
    for i, part in enumerate(np.array_split(np.arange(len(ordered)), shape.experts)):
        alone = Network(replace(shape, experts=1, gate="none")).to(device)
        alone.scale_h.copy_(network.scale_h)
        learner = SupervisedLearner(
            network=alone,
            draw=Draw([ordered[j] for j in part], scaling, generator),
            options=options,
            rounds=options.expert_rounds,
            generator=generator,
            device=device,
        )
        stop = Stop(rounds=options.expert_rounds)
        fit(alone, learner.round, stop, stage=f"expert {i + 1}", progress=progress)
        network.adopt(alone, i)
