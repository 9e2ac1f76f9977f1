"""Policy gradient by REINFORCE (paper, sections 2.3, 4.9.2, equation 6): `transformer-pg`,
`moe-pg`.

Online, on fresh episodes, after the pretraining. Each round draws episodes and climbs the gradient
of equation 6: the sum of grad log pi(action | state) over a rollout's decisions, times its reward
less a baseline; and that of the visited states' entropy, with a weight that falls to 0.

- Waiting changes nothing but time, and every decision point's outcome is known. So the expectation
  over all rollouts of an episode is a sum over its decision points, and equation 6 is taken exactly
  (``gradient``). The paper's is sampled: some rollouts of each episode, action by action.
- The policy decides at every decision point in training, as in service (``every``).
- The baseline of an episode is the expected reward; of a sampled rollout the mean reward of the
  *other* rollouts of the same episode. Neither depends on the rollout's actions, so the gradient
  stays unbiased, and what differs between episodes, most of the variance, is gone.
- The reward comes at the end and is not discounted: each decision of a rollout is credited with all
  of it (section
  4.5).
- The P-head begins as a soft copy of what the pretrained V-head would do (``warm``). From nothing,
  on a cluster that is
  mostly idle, it learns within a few rounds that never submitting is good on average, and then
  tries nothing else.
- Without pretraining it begins with a small probability of releasing at any state. At one half, no
  rollout would ever
  get past an episode's first hour, and nothing could be learnt about the rest.
- Rollouts of past policies can't be used again: equation 6 holds for the present policy's. So there
  is no replay here,
  although section 4.8 mentions policy networks.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Annotated, Literal

import numpy as np
import torch
from torch import Tensor

from mirage.provision.learn.episode import Episode, Floats, Ints
from mirage.provision.learn.foundation import Network
from mirage.provision.learn.gate import weight_groups
from mirage.provision.learn.neural import Neural
from mirage.provision.learn.points import Points
from mirage.provision.learn.pretrain import PretrainOptions, begin
from mirage.provision.learn.training import MOST_NORM, Draw, Judge, chunks, scores
from mirage.rl.fit import (
    Report,
    Stop,
    apply_gradients,
    backward,
    cosine,
    descend,
    fit,
    linear,
    pick_device,
    seeded,
    set_rate,
)
from mirage.rl.options import Count, MethodOptions, Range, Rate, Weight
from mirage.rl.policy import entropy
from mirage.rl.reinforce import entropy_loss, others_baseline, reinforce_loss


@dataclass(frozen=True)
class PgOptions(MethodOptions):
    """Defaults are for episodes of 48 hours on two CPU cores: about five minutes online."""

    pretrain: PretrainOptions = field(default_factory=PretrainOptions)
    """Foundation, penalty share and device; and the supervised phase, unless it is skipped."""
    pretrained: bool = True
    """False: begin with random weights."""
    tune: bool = True
    """Whether the foundation learns online too; False: the P-head alone, as in section 4.9."""
    gradient: Literal["exact", "sampled"] = "exact"
    """exact: of the expected reward. sampled: of rollouts, as in the paper."""
    rounds: Count = 400
    """Gradient steps."""
    episodes: Count = 8
    """Fresh episodes a round."""
    every: Count = 1
    """Of an episode's decision points every so many, from a random first one on; in service it is
    asked at every one.
    """
    rollouts: Annotated[int, Range(2)] = 16
    """Sampled rollouts of each episode, at each penalty share."""
    scored: Count = 20
    """Rounds between two scores on the validation episodes."""
    rate: Rate = 1e-3
    """Adam's learning rate at its highest; it falls to a tenth along a cosine."""
    entropy: Weight = 1e-3
    """Weight of the entropy bonus of a visited state in the first round; it falls evenly to 0."""
    warm: Annotated[int, Range(0)] = 10
    """Rounds in which the P-head learns, before it climbs, what the pretrained V-head would do; 0:
    none.
    """
    warm_rate: Rate = 1e-3
    """Adam's learning rate in them."""
    temperature_h: Annotated[float, Range(0, low_open=True)] = 0.25
    """How soft the copy is: a difference of Q-values of so many hours makes an action e times as
    likely.
    """
    first_chance: Annotated[float, Range(0, 1, low_open=True, high_open=True)] = 0.03
    """With which a P-head that is not warmed up releases at any state."""
    sampled: bool = False
    """Serve by sampling, as the paper does; False: release where submitting is at least as likely
    as waiting.
    """
    patience: Count = 8
    """Scores without a better one, after which it stops."""


@dataclass
class PgLearner:
    """The P-head, and the rounds of its training."""

    network: Network
    draw: Draw
    options: PgOptions
    generator: np.random.Generator
    device: torch.device

    def __post_init__(self) -> None:
        with torch.no_grad():
            self.network.choice.weight.zero_()
            chance = self.options.first_chance
            self.network.choice.bias.copy_(torch.tensor([math.log(chance), math.log(1 - chance)]))
        # Dropout stays off: rollouts and gradient must be of the same policy.
        self.network.eval()
        self.network.requires_grad_(self.options.tune)
        for item in self.network.policy_parameters():
            item.requires_grad_()
        self._optimizer = self._adam(self.options.rate)

    def _adam(self, rate: float) -> torch.optim.Optimizer:
        groups = (
            weight_groups(self.network)
            if self.options.tune
            else [{"params": self.network.policy_parameters()}]
        )
        optimizer = torch.optim.Adam(groups, lr=rate, fused=True)
        set_rate(optimizer, rate)
        return optimizer

    def warm_up(self, teacher: Network) -> None:
        """Learns the teacher's V-head softly: cross-entropy to the softmax of its Q-values."""
        recipe, heat = self.options.pretrain, self.options.temperature_h / float(teacher.scale_h)
        optimizer = self._adam(
            self.options.warm_rate
        )  # its own: these gradients are no measure of those to come
        for _ in range(self.options.warm):
            points = Points(self.draw(self.options.episodes), self.device)
            shares = recipe.tastes.draw(self.generator, len(points), recipe.shares_each)
            slots = self.generator.permutation(points.clock(self.options.every, self.generator))
            for batch in np.array_split(slots, math.ceil(len(slots) / recipe.batch)):
                asked = points.states(batch), points.asked(shares, batch)
                with torch.no_grad():
                    wanted = (teacher.values(*asked).q / heat).softmax(-1)
                loss = -(wanted * self.network.log_chances(*asked)).sum(-1).mean()
                descend(optimizer, loss, most_norm=MOST_NORM)

    def round(self, done: int) -> float:
        """Climbs once on fresh episodes; returns their mean penalty in hours. ``done``: rounds
        before this one.
        """
        points = Points(self.draw(self.options.episodes), self.device)
        recipe = self.options.pretrain
        shares = recipe.tastes.draw(self.generator, len(points), recipe.shares_each)
        asked = points.clock(self.options.every, self.generator)
        part = done / self.options.rounds
        set_rate(self._optimizer, self.options.rate * cosine(1.0, 0.1, part))
        bonus = self.options.entropy * linear(1.0, 0.0, part)
        if self.options.gradient == "exact":
            return self._climb_exactly(points, shares, asked, bonus)
        costs_h = points.costs_h(shares)
        ends = self._sample(points, self._chances(points, shares, asked))
        spent_h = np.take_along_axis(costs_h, ends.reshape(-1, ends.shape[2]), axis=0).reshape(
            ends.shape
        )
        credit = Credit.of(points, ends, advantages(-spent_h))
        self._climb(points, shares, asked, credit, bonus)
        return float(spent_h.mean())

    def _climb_exactly(self, points: Points, shares: Floats, asked: Ints, bonus: float) -> float:
        """One step along the gradient of the expected reward; ``bonus``: as in `_climb`."""
        logs = self.network.log_chances(points.states(asked), points.asked(shares, asked))
        chances = np.zeros((len(points.never), shares.shape[1]))
        chances[asked] = logs[..., 0].detach().double().exp().cpu().numpy()
        chances[points.never] = 1
        costs_h = points.costs_h(shares)
        credit = Credit.expected(points, chances, -costs_h)
        self._optimizer.zero_grad()
        backward(self._loss(logs, credit, asked, bonus))
        apply_gradients(self._optimizer, most_norm=MOST_NORM)
        return float((points.ends(chances) * costs_h).sum() / shares.size)

    def _loss(self, logs: Tensor, credit: Credit, slots: Ints, bonus: float) -> Tensor:
        """Of log-probabilities, (n, m, 2), at slots, (n,)."""
        weights = torch.from_numpy(credit.actions[slots].astype(np.float32)).to(self.device)
        visits = torch.from_numpy(credit.visits[slots].astype(np.float32)).to(self.device)
        return reinforce_loss(logs, weights) + entropy_loss(entropy(logs), bonus * visits)

    def _chances(self, points: Points, shares: Floats, asked: Ints) -> Floats:
        """(S, m): the probability of releasing at each slot, 0 where the rollouts don't decide."""
        chances = np.zeros((len(points.never), shares.shape[1]))
        chances[asked] = np.exp(scores(self.network, points, shares, "policy", asked)[..., 0])
        return chances

    def _sample(self, points: Points, chances: Floats) -> Ints:
        """(rollouts, N, m): the slot at which each rollout of each episode ends."""
        drawn = [
            self.generator.random(chances.shape) < chances for _ in range(self.options.rollouts)
        ]
        return np.stack([points.stops(release)[points.first] for release in drawn])

    def _climb(
        self, points: Points, shares: Floats, asked: Ints, credit: Credit, bonus: float
    ) -> None:
        """One step; ``bonus``: the weight of a visited state's entropy."""
        self._optimizer.zero_grad()
        for slots in chunks(asked[credit.visits[asked].any(axis=1)]):
            logs = self.network.log_chances(points.states(slots), points.asked(shares, slots))
            backward(self._loss(logs, credit, slots, bonus))
        apply_gradients(self._optimizer, most_norm=MOST_NORM)


@dataclass(frozen=True)
class Credit:
    """What equation 6 weighs the gradients with, as means over rollouts. S: slots, m: penalty
    shares.
    """

    actions: Floats
    """(S, m, 2): of log pi(submit), log pi(wait): summed advantages of the rollouts that did it
    there.
    """
    visits: Floats
    """(S, m): the share of rollouts that came there, over episodes."""

    @classmethod
    def of(cls, points: Points, ends: Ints, advantage: Floats) -> Credit:
        """``ends``, ``advantage``: (rollouts, N, m), the slot at which each rollout ended and what
        it is worth.
        """
        shape = (len(points.never), ends.shape[2])
        submit, ended = np.zeros(shape), np.zeros(shape)
        share = np.broadcast_to(np.arange(ends.shape[2]), ends.shape)
        np.add.at(submit, (ends, share), advantage)
        np.add.at(ended, (ends, share), 1.0)
        rollouts = ends.size
        wait = points.later(submit) / rollouts
        return cls(
            np.stack([submit / rollouts, wait], axis=-1), (points.later(ended) + ended) / rollouts
        )

    @classmethod
    def expected(cls, points: Points, chances: Floats, rewards: Floats) -> Credit:
        """Of all rollouts, each as likely as it is.

        ``chances``: (S, m), of a release at each slot that is reached, 1 at `never`; ``rewards``:
        (S, m), of a release there.
        """
        ends = points.ends(chances)
        mean = np.add.reduceat(ends * rewards, points.first)[points.episode]
        worth = ends * (rewards - mean)
        spread = math.sqrt(float((worth * (rewards - mean)).sum() / max(ends.sum(), 1e-9)))
        submit = worth / max(spread, 1e-9) / ends.sum()
        shares = ends / ends.sum()
        return cls(np.stack([submit, points.later(submit)], axis=-1), points.later(shares) + shares)


def advantages(rewards: Floats) -> Floats:
    """(rollouts, N, m): reward less the mean of the same episode's other rollouts, scaled to a
    deviation of 1.
    """
    difference = rewards - others_baseline(rewards)
    result: Floats = difference / max(float(difference.std()), 1e-9)
    return result


def train_pg(
    train: Sequence[Episode],
    validation: Sequence[Episode],
    options: PgOptions,
    fresh: Sequence[Episode] | None = None,
    progress: Report | None = None,
    seed: int = 0,
    base: Neural | None = None,
) -> Neural:
    """Pretrains, or goes on from ``base``, then learns online from ``fresh`` episodes (without:
    ``train``).

    Returns the weights whose deterministic decisions did best on validation, also after Ctrl-C.
    Raises InputError without episodes, or for a base of another shape or taste.
    """
    begun = begin(train, validation, options.pretrain, options.pretrained, base, progress, seed)
    if base is None and begun.serving.interrupted:
        raise KeyboardInterrupt  # the P-head has learnt nothing yet, so there is nothing to keep
    device = pick_device(options.pretrain.device)
    network = deepcopy(begun.network).to(device)
    with seeded(seed) as generator:
        draw = Draw(train if fresh is None else fresh, begun.scaling, generator)
        learner = PgLearner(network, draw, options, generator, device)
        pretrain = options.pretrain
        judge = Judge(validation, begun.scaling, pretrain.tastes, device, most=pretrain.judged)
        if options.pretrained or base is not None:
            learner.warm_up(deepcopy(begun.network).to(device))
        result = fit(
            network,
            learner.round,
            Stop(rounds=options.rounds, patience=options.patience),
            score=lambda: judge(network, "policy"),
            is_scored=lambda done: done % options.scored == 0 or done == options.rounds,
            score_first=True,
            stage="pg",
            progress=progress,
        )
    serving = replace(begun.serving, decides="policy", sampled=options.sampled, seed=seed, memory=1)
    serving = replace(serving, interrupted=result.interrupted)
    return Neural(f"{begun.name}-pg", network.eval().cpu(), begun.scaling, serving)
