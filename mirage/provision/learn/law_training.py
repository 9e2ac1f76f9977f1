"""Training networks with a law head: `mlp-law`, `transformer-law`, `moe-law`.

Beyond the paper, whose foundation predicts rewards (`pretrain.py`). Every decision point's exact
wait is known, so the law is learnt by a proper score, and no policy is needed to make labels.

- Months hold few independent situations, so a network has learnt them by heart within some
  hundred steps. Training ends after a number of steps, found by cross-validation. A held-out part
  to stop by would be a fifth of these situations.
- The networks of an ensemble differ by their first weights and their batches.
- Experts of a mixture learn their own time slice first (paper, section 4.7), then all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.provision.learn.episode import Episode, Ints
from mirage.provision.learn.features import features
from mirage.provision.learn.gate import Mixing, weight_groups
from mirage.provision.learn.law import DURATIONS_S
from mirage.provision.learn.law_model import LawModel
from mirage.provision.learn.law_network import LawNetwork, LawShape, score_loss
from mirage.provision.learn.model import DEFAULT_TRAITS
from mirage.provision.learn.points import Points, prepare
from mirage.provision.learn.scaling import Scaling, SummaryScaling
from mirage.provision.learn.training import MOST_NORM
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
from mirage.rl.options import Count, MethodOptions, Rate, Weight

ROUND = 50
"""Steps between two reports of progress."""


@dataclass(frozen=True)
class LawOptions(MethodOptions):
    """Defaults are for some hundred episodes on one CPU core: under a minute (ten experts: two)."""

    shape: LawShape = field(default_factory=LawShape)
    networks: Count = 5
    every: Count = 3
    """Of each episode every so many decision points are learnt from; neighbours are nearly equal.
    """
    steps: Count = 300
    """Gradient steps of each network."""
    batch: Count = 256
    rate: Rate = 1e-3
    """AdamW's learning rate at its highest; it falls to a tenth along a cosine."""
    decay: Weight = 1e-2
    """AdamW's weight decay."""
    mixing: Mixing = field(default_factory=Mixing)
    """What a mixture's gate is held to."""
    expert_steps: Count = 40
    """Steps of each expert of a mixture alone, on its time slice."""
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "auto":
            pick_device(self.device)

    @property
    def method(self) -> str:
        if self.shape.experts > 1:
            return "moe-law"
        return "transformer-law" if self.shape.history else "mlp-law"


TRANSFORMER = LawOptions()
PERCEPTRON = LawOptions(shape=LawShape(history=False), steps=400, batch=512, decay=1e-3)
"""Of the summaries alone: a step costs a tenth."""
MIXTURE = LawOptions(
    shape=LawShape(experts=10, patch=24, width=32, heads=2, feedforward=64), networks=2
)
"""Ten smaller experts (paper, section 4.7), which cost four times as much a step as one network."""


class LawPoints:
    """Decision points of some episodes, ready to be learnt."""

    def __init__(
        self,
        episodes: Sequence[Episode],
        scaling: Scaling,
        summaries: SummaryScaling,
        device: torch.device,
    ) -> None:
        self._points = Points(prepare(episodes, scaling), device)
        self._slots = self._points.on_device(self._points.decisions)
        chosen = [episode for episode in episodes if len(episode)]
        raw = np.concatenate([features(each.windows, each.forecast_s) for each in chosen])
        waits_s = np.concatenate([each.waits_s[:-1] for each in chosen])
        self._summaries = self.on_device(summaries.apply(raw))
        self._exceeded = self.on_device((waits_s[:, None] > DURATIONS_S).astype(np.float32))

    def __len__(self) -> int:
        return len(self._summaries)

    def on_device(self, array: NDArray[Any]) -> Tensor:
        """A copy on the device."""
        return self._points.on_device(array)

    def loss(self, network: LawNetwork, rows: Tensor, mixing: Mixing) -> Tensor:
        """Of decision points, (n,), on the device."""
        states = self._points.states(self._slots[rows]) if network.shape.history else None
        said = network(states, self._summaries[rows])
        return score_loss(said.longer, self._exceeded[rows]) + mixing.loss(said.gate)


@dataclass
class LawLearner:
    """One network's training; a round is `ROUND` steps."""

    network: LawNetwork
    points: LawPoints
    rows: Ints
    """Decision points to learn from."""
    options: LawOptions
    steps: int
    generator: np.random.Generator

    def __post_init__(self) -> None:
        self._optimizer = torch.optim.AdamW(
            weight_groups(self.network), weight_decay=self.options.decay, fused=True
        )

    def round(self, done: int) -> float:
        """``done``: rounds before this one. Returns the mean loss."""
        self.network.train()
        first = done * ROUND
        steps = range(first, min(first + ROUND, self.steps))
        drawn = [self.generator.choice(self.rows, self.options.batch) for _ in steps]
        batches = self.points.on_device(np.stack(drawn))
        return mean_loss([self._step(*each) for each in zip(steps, batches, strict=True)])

    def _step(self, step: int, rows: Tensor) -> Tensor:
        set_rate(self._optimizer, self.options.rate * cosine(1.0, 0.1, step / self.steps))
        loss = self.points.loss(self.network, rows, self.options.mixing)
        descend(self._optimizer, loss, most_norm=MOST_NORM)
        return loss.detach()


def train_law(
    train: Sequence[Episode], options: LawOptions, progress: Report | None = None, seed: int = 0
) -> LawModel:
    """After Ctrl-C the networks that are ready. Raises InputError for too few episodes."""
    ordered = sorted((each for each in train if len(each)), key=lambda each: each.begin_s)
    if len(ordered) < options.shape.experts:
        raise InputError(
            f"{len(ordered)} episodes with a decision point are too few for"
            f" {options.shape.experts} time slices; give more episodes"
        )
    raw = [features(each.windows[::6], each.forecast_s[::6]) for each in ordered]
    scaling = Scaling.fit(each.rows for each in ordered)
    summaries = SummaryScaling.fit(np.concatenate(raw))
    device = pick_device(options.device)
    points = LawPoints(ordered, scaling, summaries, device)
    networks: list[LawNetwork] = []
    interrupted = False
    try:
        for number in range(options.networks):
            training = _Training(points, options, f"network {number + 1}", progress)
            with seeded(options.networks * seed + number) as generator:
                network = LawNetwork(options.shape).to(device)
                training.run(network, generator)
            networks.append(network.eval().cpu())
    except KeyboardInterrupt:
        if not networks:
            raise
        interrupted = True
    traits = replace(DEFAULT_TRAITS, interrupted=interrupted)
    return LawModel(options.method, nn.ModuleList(networks), scaling, summaries, traits)


@dataclass(frozen=True)
class _Training:
    """What all networks of an ensemble are trained with."""

    points: LawPoints
    options: LawOptions
    stage: str
    progress: Report | None

    def run(self, network: LawNetwork, generator: np.random.Generator) -> None:
        rows = np.arange(0, len(self.points), self.options.every)
        if network.shape.experts > 1:
            self._train_experts(network, rows, generator)
        self._fit(network, rows, self.options.steps, generator, self.stage)

    def _train_experts(
        self, network: LawNetwork, rows: Ints, generator: np.random.Generator
    ) -> None:
        """Expert i on the i-th time slice: decision points are in the order of time."""
        device = next(network.parameters()).device
        slices = np.array_split(rows, network.shape.experts)
        for number, (expert, part) in enumerate(zip(network.experts, slices, strict=True)):
            alone = LawNetwork(replace(network.shape, experts=1)).to(device)
            alone.experts[0] = expert
            stage = f"{self.stage}, expert {number + 1}"
            self._fit(alone, part, self.options.expert_steps, generator, stage)

    def _fit(
        self,
        network: LawNetwork,
        rows: Ints,
        steps: int,
        generator: np.random.Generator,
        stage: str,
    ) -> None:
        learner = LawLearner(
            network=network,
            points=self.points,
            rows=rows,
            options=self.options,
            steps=steps,
            generator=generator,
        )
        rounds = Stop(rounds=-(-steps // ROUND))
        fit(network, learner.round, rounds, stage=stage, progress=self.progress)
