"""Networks with a law head: the chances of the successor's wait, for `mlp-law`, `transformer-law`,
`moe-law`.

The paper's head says two Q-values (`foundation.py`). This one says the law of the wait, as the
trees do, and the exact stopping rule decides (`law.py`). So the network learns neither the time
left, nor the penalties, nor the kink of the reward where the wait is the time left.

- Input are 72 summaries (`features.py`), normalised. The raw 5,760 numbers are learnt by heart
  within some hundred steps. Of the summaries alone a multilayer perceptron makes hazards.
- A transformer also reads the history. Its tokens are means over patches of rows. The summaries
  ask them, as one more token. The answer is a correction, zero at first, of the perceptron's.
- The head says a hazard for each of `law.DURATIONS_S`: the chance that the wait ends before it,
  given that it is longer than the one before (discrete-time survival: Kvamme and Borgan 2021).
  The chances of a longer wait are products of what is left, so they never rise.
- A mixture weighs the experts' chances with its gate: the law of a mixture is the mixture of laws
  (Jacobs et al. 1991).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mirage.provision.learn.episode import HISTORY, STEP_S
from mirage.provision.learn.experts import at_once, in_turn
from mirage.provision.learn.features import NAMES
from mirage.provision.learn.foundation import Block, EncoderShape, Size
from mirage.provision.learn.gate import Gate
from mirage.provision.learn.law import DURATIONS_S
from mirage.state.variables import VARIABLES


@dataclass(frozen=True)
class LawShape(EncoderShape):
    """What fixes the tensors of a network with a law head. Over one expert, a dense gate weighs
    their laws.
    """

    patch: Size = 24
    layers: Size = 1
    feedforward: Size = 128
    history: bool = True
    """Whether a transformer reads the history; False: a multilayer perceptron of the summaries
    alone, which has neither patches, width, heads nor layers.
    """


class LawExpert(nn.Module):
    """Summaries become hazards."""

    def __init__(self, shape: LawShape) -> None:
        super().__init__()
        self.summary = nn.Sequential(_layer(len(NAMES), shape), _layer(shape.feedforward, shape))
        self.hazard = nn.Linear(shape.feedforward, len(DURATIONS_S))
        self.reader = HistoryReader(shape) if shape.history else None

    def forward(self, states: Tensor | None, summaries: Tensor) -> Tensor:
        """Logits of hazards, (n, durations), of scaled histories, (n, 144, 40), for a transformer,
        and of scaled summaries, (n, 72).
        """
        known = self.summary(summaries)
        logits: Tensor = self.hazard(known)
        return logits if self.reader is None else logits + self.reader(states, known)


class HistoryReader(nn.Module):
    """One transformer: a history corrects what its summaries say."""

    def __init__(self, shape: LawShape) -> None:
        super().__init__()
        self.patch = shape.patch
        self.embedding = nn.Linear(len(VARIABLES), shape.width)
        self.position = nn.Parameter(torch.randn(HISTORY // shape.patch, shape.width) * 0.02)
        self.encoder = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.question = nn.Linear(shape.feedforward, shape.width)
        self.reader = Block(shape)
        self.norm = nn.LayerNorm(shape.width)
        self.correction = nn.Linear(shape.width, len(DURATIONS_S), bias=False)
        nn.init.zeros_(self.correction.weight)

    def forward(self, states: Tensor, known: Tensor) -> Tensor:
        """Corrections, (n, durations), of scaled histories, (n, 144, 40), and what two layers made
        of the summaries, (n, feedforward).
        """
        patches = states.reshape(len(states), -1, self.patch, len(VARIABLES)).mean(2)
        tokens: Tensor = self.embedding(patches) + self.position
        for block in self.encoder:
            tokens = block(tokens)
        read = self.norm(self.reader(self.question(known)[:, None], tokens))[:, 0]
        correction: Tensor = self.correction(read)
        return correction


def _layer(inputs: int, shape: LawShape) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inputs, shape.feedforward), nn.ReLU(), nn.Dropout(shape.dropout))


class LogChances(NamedTuple):
    longer: Tensor
    """(n, durations): logarithms of the chances that the wait is longer."""
    gate: Tensor
    """(n, experts): the experts' weights."""


class LawNetwork(nn.Module):
    """One expert, or several whose laws a gate mixes."""

    def __init__(self, shape: LawShape) -> None:
        super().__init__()
        self.shape = shape
        self.experts = nn.ModuleList(LawExpert(shape) for _ in range(shape.experts))
        self.gate = Gate(len(NAMES), shape.experts) if shape.experts > 1 else None

    def forward(self, states: Tensor | None, summaries: Tensor) -> LogChances:
        """Of scaled histories, (n, 144, 40), or None without transformers, and of scaled summaries,
        (n, 72).
        """
        run = at_once if summaries.is_cuda and len(self.experts) > 1 else in_turn
        logits = run(self.experts, (states, summaries))
        laws = nn.functional.logsigmoid(-logits).cumsum(-1)
        if self.gate is None:
            return LogChances(laws[0], summaries.new_ones(len(summaries), 1))
        weights: Tensor = self.gate(summaries)
        mixed = torch.stack(list(laws), 1) + weights.log()[:, :, None]
        return LogChances(mixed.logsumexp(1), weights)


def score_loss(longer: Tensor, exceeded: Tensor) -> Tensor:
    """Mean continuous ranked probability score (Gneiting and Raftery 2007) of the logarithm of the
    wait in decision steps, as a share of the longest duration.

    It is the mean pinball loss over all quantiles. In hours, the few long waits would be all that
    is learnt. ``longer``: logarithms of chances, (n, durations); ``exceeded``: (n, durations), 1
    where the wait was longer.
    """
    squared = (longer.exp() - exceeded) ** 2
    return (squared * _weights(longer.device)).sum(1).mean()


@cache
def _weights(device: torch.device) -> Tensor:
    """(durations,): what each counts."""
    tamed = np.log1p(DURATIONS_S / STEP_S)
    shares = np.diff(tamed, prepend=0) / tamed[-1]
    return torch.from_numpy(shares).float().to(device)
