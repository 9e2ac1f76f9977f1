"""Training networks with a law head: `transformer-law`, `moe-law`.

Beyond the paper, whose foundation predicts rewards (`pretrain.py`). Every decision point's exact
wait is known, so the law is learnt by a proper score, and no policy is needed to make labels.

- The training time is cut into as many blocks as there are networks. Each network stops early by
  another block, and learns from the episodes that share no time with it. So all of the time is
  learnt from, and the networks differ.
- Months hold few independent situations, so a network has learnt them by heart within some
  hundred steps. It is therefore scored every few steps, not every few thousand.
- Experts of a mixture learn their own time slice first (paper, section 4.7), then all together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.provision.learn.episode import Episode, Ints
from mirage.provision.learn.features import features
from mirage.provision.learn.gate import BALANCE, balance_loss, weight_groups
from mirage.provision.learn.law import DURATIONS_S
from mirage.provision.learn.law_model import LawModel
from mirage.provision.learn.law_network import LawNetwork, LawShape, score_loss
from mirage.provision.learn.model import DEFAULT_TRAITS
from mirage.provision.learn.points import Points, prepare
from mirage.provision.learn.samples import apart
from mirage.provision.learn.scaling import Scaling, SummaryScaling
from mirage.provision.learn.training import MOST_NORM
from mirage.rl.fit import (
    FitResult,
    Report,
    Stop,
    cosine,
    descend,
    fit,
    pick_device,
    seeded,
    set_rate,
)
from mirage.rl.options import Count, MethodOptions, Rate, Weight
from slurm_sim.seconds import HOUR_S

FEWEST_BLOCKS = 5
"""A network alone stops early by a fifth of the time, too."""
_CHUNK = 1024
_SCORED = 4
"""Of the decision points that could be learnt from, every so many is scored."""
_BETWEEN_H = np.diff(DURATIONS_S, prepend=0) / HOUR_S


@dataclass(frozen=True)
class LawOptions(MethodOptions):
    """Defaults are for some hundred episodes on one CPU core: about two minutes (ten experts: five)."""

    shape: LawShape = field(default_factory=LawShape)
    networks: Count = 5
    every: Count = 3
    """Of each episode every so many decision points are learnt from; neighbours are nearly equal.
    """
    steps: Count = 300
    """Gradient steps of each network at most."""
    scored: Count = 50
    """Steps between two scores on the held-out block."""
    patience: Count = 3
    """Scores without a better one, after which it stops."""
    batch: Count = 256
    rate: Rate = 1e-3
    """AdamW's learning rate at its highest; it falls to a tenth along a cosine."""
    decay: Weight = 1e-2
    """AdamW's weight decay."""
    balance: Weight = BALANCE
    """Weight of the loss that keeps all experts of a mixture in use (`gate.py`)."""
    expert_steps: Count = 60
    """Steps of each expert of a mixture alone, on its time slice."""
    device: str = "auto"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.device != "auto":
            pick_device(self.device)

    @property
    def method(self) -> str:
        return "moe-law" if self.shape.experts > 1 else "transformer-law"


MIXTURE = LawOptions(shape=LawShape(experts=10, width=32, heads=2, feedforward=64), networks=2)
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
        chosen = [episode for episode in episodes if len(episode)]
        raw = np.concatenate([features(each.windows, each.forecast_s) for each in chosen])
        waits_s = np.concatenate([each.waits_s[:-1] for each in chosen])
        self._summaries = torch.from_numpy(summaries.apply(raw)).to(device)
        exceeded = (waits_s[:, None] > DURATIONS_S).astype(np.float32)
        self._exceeded = torch.from_numpy(exceeded).to(device)
        self.episode: Ints = self._points.episode[self._points.decisions]
        """(P,): whose decision point each is."""

    def __len__(self) -> int:
        return len(self.episode)

    def loss(self, network: LawNetwork, rows: Ints, balance: float) -> Tensor:
        """Of decision points, (n,)."""
        states = self._points.states(self._points.decisions[rows])
        said = network(states, self._summaries[rows])
        loss = score_loss(said.longer, self._exceeded[rows])
        return loss + balance * balance_loss(said.gate)

    @torch.no_grad()
    def score(self, network: LawNetwork, rows: Ints) -> float:
        """Mean continuous ranked probability score in hours, up to the longest duration."""
        network.eval()
        sums = 0.0
        for part in np.array_split(rows, -(-len(rows) // _CHUNK)):
            states = self._points.states(self._points.decisions[part])
            chances = network(states, self._summaries[part]).longer.exp()
            squared = (chances - self._exceeded[part]) ** 2
            sums += float((squared.double().cpu().numpy() * _BETWEEN_H).sum())
        return sums / len(rows)


@dataclass
class LawLearner:
    """One network's training; a round is as many steps as lie between two scores."""

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
        first = done * self.options.scored
        steps = range(first, min(first + self.options.scored, self.steps))
        return float(np.mean([self._step(step) for step in steps]))

    def _step(self, step: int) -> float:
        set_rate(self._optimizer, self.options.rate * cosine(1.0, 0.1, step / self.steps))
        rows = self.generator.choice(self.rows, self.options.batch)
        loss = self.points.loss(self.network, rows, self.options.balance)
        descend(self._optimizer, loss, most_norm=MOST_NORM)
        return float(loss.detach())

    @property
    def rounds(self) -> int:
        return -(-self.steps // self.options.scored)


def train_law(
    train: Sequence[Episode], options: LawOptions, progress: Report | None = None, seed: int = 0
) -> LawModel:
    """Returns each network with the weights that did best on its own held-out block, also after
    Ctrl-C. Raises InputError for too few episodes.
    """
    ordered = sorted((each for each in train if len(each)), key=lambda each: each.begin_s)
    parts = _parts(ordered, options)
    device = pick_device(options.device)
    raw = [features(each.windows[::6], each.forecast_s[::6]) for each in ordered]
    scaling = Scaling.fit(each.rows for each in ordered)
    summaries = SummaryScaling.fit(np.concatenate(raw))
    points = LawPoints(ordered, scaling, summaries, device)
    networks, interrupted = [], False
    for number, (learned, held_out) in enumerate(parts):
        training = _Training(points, options, f"network {number + 1}", progress)
        with seeded(len(parts) * seed + number) as generator:
            network = LawNetwork(options.shape).to(device)
            result = training.run(network, learned, held_out, generator)
        networks.append(network.eval().cpu())
        if interrupted := result.interrupted:
            break
    traits = replace(DEFAULT_TRAITS, interrupted=interrupted)
    return LawModel(options.method, nn.ModuleList(networks), scaling, summaries, traits)


def _parts(ordered: Sequence[Episode], options: LawOptions) -> list[tuple[Ints, Ints]]:
    """Of each network: the numbers of the episodes to learn from, and of those to stop by."""
    numbers = {id(each): number for number, each in enumerate(ordered)}
    blocks = np.array_split(np.arange(len(ordered)), max(options.networks, FEWEST_BLOCKS))
    parts = []
    for block in blocks[: options.networks]:
        others = apart(ordered, [ordered[number] for number in block])
        learned = np.array([numbers[id(each)] for each in others], dtype=np.int64)
        if not len(block) or len(learned) < options.shape.experts:
            raise InputError(
                f"{len(ordered)} episodes can't be cut into {len(blocks)} parts of the time that do"
                " not overlap; give episodes of a longer time."
            )
        parts.append((learned, block))
    return parts


@dataclass(frozen=True)
class _Training:
    """What all networks of an ensemble are trained with."""

    points: LawPoints
    options: LawOptions
    stage: str
    progress: Report | None

    def run(
        self, network: LawNetwork, learned: Ints, held_out: Ints, generator: np.random.Generator
    ) -> FitResult:
        """``learned``, ``held_out``: numbers of episodes."""
        if network.shape.experts > 1:
            self._train_experts(network, learned, generator)
        judged = self._rows(held_out)[::_SCORED]
        learner = self._learner(network, learned, self.options.steps, generator)
        return fit(
            network,
            learner.round,
            Stop(rounds=learner.rounds, patience=self.options.patience),
            score=lambda: self.points.score(network, judged),
            stage=self.stage,
            progress=self.progress,
        )

    def _train_experts(
        self, network: LawNetwork, learned: Ints, generator: np.random.Generator
    ) -> None:
        """Expert i on the i-th time slice of the episodes to learn from."""
        device = next(network.parameters()).device
        slices = np.array_split(learned, network.shape.experts)
        for number, (expert, part) in enumerate(zip(network.experts, slices, strict=True)):
            alone = LawNetwork(replace(network.shape, experts=1)).to(device)
            alone.experts[0] = expert
            learner = self._learner(alone, part, self.options.expert_steps, generator)
            stop = Stop(rounds=learner.rounds)
            stage = f"{self.stage}, expert {number + 1}"
            fit(alone, learner.round, stop, stage=stage, progress=self.progress)

    def _learner(
        self, network: LawNetwork, episodes: Ints, steps: int, generator: np.random.Generator
    ) -> LawLearner:
        return LawLearner(
            network=network,
            points=self.points,
            rows=self._rows(episodes),
            options=self.options,
            steps=steps,
            generator=generator,
        )

    def _rows(self, episodes: Ints) -> Ints:
        """Every so many-th decision point of these episodes."""
        rows = np.flatnonzero(np.isin(self.points.episode, episodes))
        return rows[:: self.options.every]
