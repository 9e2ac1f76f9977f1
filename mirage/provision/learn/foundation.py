"""The paper's network (sections 4.3, 4.6, 4.7; figures 5 and 6): a foundation, a V-head and a
P-head.

Input is the scaled state matrix, flattened, and the ordinal action variable: 144 x 40 + 1 = 5761
numbers, one more where the penalty share is an input, and two for the forecast from the present
queue (decision 0013). The paper's hyperparameters stand in a figure that the text does not have;
ours are small enough for two CPU cores.

- `Expert`: a transformer encoder over the history. A token is `patch` consecutive rows, as in a
  vision transformer:
  attention is between hours, not between ten minutes, and costs patch^2 less.
- The action enters as one more token, which attends to the history and is not attended to. So the
  history is encoded
  once, and asking for both actions, or for many penalty shares, costs next to nothing.
- `Foundation`: one expert, or several that a gate mixes (`gate.py`). Expert i's features are multiplied by its
  gate weight and
  stand side by side; a head's single linear map of them is the weighted sum of the experts' own
  Q-values (equation 7).
- The heads share the foundation and have their own embedding of what is asked, as in section 4.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal, NamedTuple

import torch
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.provision.learn.episode import HISTORY
from mirage.provision.learn.experts import at_once, in_turn
from mirage.provision.learn.gate import Gate
from mirage.rl.options import MethodOptions, Range
from mirage.state.variables import VARIABLES

STATE = HISTORY * len(VARIABLES)
SHARE, FORECAST = slice(0, 1), slice(1, 3)
"""What a state is asked about, the action aside: e_I / (e_I + e_O); the forecast and how far it
exceeds the time left (`scaling.forecast_inputs`).
"""
SUBMIT, WAIT, NEITHER = 1.0, -1.0, 0.0
"""The ordinal action variable (section 4.3); the P-head always gets 0."""
_LARGEST = 4096
"""Of any hyperparameter: a file that asks for more is damaged."""
Size = Annotated[int, Range(1, _LARGEST)]


@dataclass(frozen=True)
class Shape(MethodOptions):
    """What fixes the network's tensors."""

    patch: Size = 12
    """Rows a token: 12 are two hours."""
    width: Size = 48
    heads: Size = 4
    layers: Size = 2
    feedforward: Size = 96
    dropout: Annotated[float, Range(0, 1, high_open=True)] = 0.1
    experts: Size = 1
    penalty_input: bool = True
    """Whether e_I / (e_I + e_O) is an input: one number more than the paper's 5761."""
    forecast_input: bool = True
    """Whether the successor's wait as the present queue tells it is one: two numbers more."""
    gate: Literal["none", "balanced", "dense", "top1"] = "none"
    """none: a plain transformer. dense: the softmax-weighted mean of all experts, with weights from
    the 5,760 numbers, as in the published code. balanced: the same from normalised summaries
    (`gate.py`). top1: the likeliest expert alone.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.experts * self.layers > _LARGEST:
            raise InputError(
                f"{self.experts} experts of {self.layers} layers are too many; give at most"
                f" {_LARGEST}"
            )
        if HISTORY % self.patch:
            raise InputError(
                f"patch is {self.patch}; give a divisor of the {HISTORY} rows of the state matrix"
            )
        if self.width % self.heads:
            raise InputError(f"width {self.width} must be a multiple of heads {self.heads}")
        if self.gate == "none" and self.experts > 1:
            raise InputError(f"{self.experts} experts need a gate: balanced, dense or top1")

    @property
    def inputs(self) -> int:
        """Numbers a state is given as: from 5761 (the paper's) to 5764."""
        return STATE + self.question

    @property
    def question(self) -> int:
        """How many of them do not belong to the matrix."""
        return 1 + self.penalty_input + 2 * self.forecast_input


MOE = Shape(experts=10, gate="balanced", patch=24, width=32, heads=2, layers=1, feedforward=64)
"""Ten smaller experts (paper, section 4.7)."""


class Attention(nn.Module):
    """Multi-head attention, spelt out: on a CPU and short sequences 2 to 3 times as fast as torch's
    own.
    """

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.query = nn.Linear(width, width)
        self.key_value = nn.Linear(width, 2 * width)
        self.out = nn.Linear(width, width)

    def forward(self, asking: Tensor, asked: Tensor) -> Tensor:
        n, rows, width = asking.shape
        query = self.query(asking).view(n, rows, self.heads, -1).transpose(1, 2)
        key, value = (
            self.key_value(asked).view(n, asked.shape[1], 2, self.heads, -1).permute(2, 0, 3, 1, 4)
        )
        weights = (query @ key.transpose(-1, -2) * (width // self.heads) ** -0.5).softmax(-1)
        result: Tensor = self.out((weights @ value).transpose(1, 2).reshape(n, rows, width))
        return result


class Block(nn.Module):
    """Attention and a feed-forward net, each behind a layer norm, and each added to its input."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.before_attention = nn.LayerNorm(shape.width)
        self.attention = Attention(shape.width, shape.heads)
        self.before_forward = nn.LayerNorm(shape.width)
        self.feed_forward = nn.Sequential(
            nn.Linear(shape.width, shape.feedforward),
            nn.ReLU(),
            nn.Linear(shape.feedforward, shape.width),
        )
        self.dropout = nn.Dropout(shape.dropout)

    def forward(self, tokens: Tensor, asked: Tensor | None = None) -> Tensor:
        """``asked``: what to attend to; None: the tokens themselves."""
        normed = self.before_attention(tokens)
        tokens = tokens + self.dropout(self.attention(normed, normed if asked is None else asked))
        result: Tensor = tokens + self.dropout(self.feed_forward(self.before_forward(tokens)))
        return result


class Expert(nn.Module):
    """One transformer: the history becomes tokens, and questions about it become features."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.patches = HISTORY // shape.patch
        self.embedding = nn.Linear(shape.patch * len(VARIABLES), shape.width)
        self.position = nn.Parameter(torch.randn(self.patches, shape.width) * 0.02)
        self.encoder = nn.ModuleList(Block(shape) for _ in range(shape.layers))
        self.action = nn.Linear(shape.question, shape.width)
        self.policy = nn.Linear(shape.question, shape.width)
        self.reader = Block(shape)
        self.norm = nn.LayerNorm(shape.width)

    def forward(
        self, states: Tensor, questions: Tensor, head: Literal["action", "policy"]
    ) -> Tensor:
        """Features, (n, m, width), of m questions, (n, m, 1 to 4), about each of n scaled states,
        (n, 5760).
        """
        tokens: Tensor = self.embedding(states.view(len(states), self.patches, -1)) + self.position
        for block in self.encoder:
            tokens = block(tokens)
        asked = self.action(questions) if head == "action" else self.policy(questions)
        # A question starts from the newest token: the moment of the decision.
        result: Tensor = self.norm(self.reader(tokens[:, -1:] + asked, tokens))
        return result


_BACK = (6, 36, HISTORY - 1)
"""Rows back: an hour, six hours, a day."""
_SUMMARIES = (2 + len(_BACK)) * len(VARIABLES)


def summaries(states: Tensor) -> Tensor:
    """Of scaled states, (n, 144, 40): the newest row, the day's mean, and changes since; (n, 200)."""
    now = states[:, -1]
    changes = [now - states[:, HISTORY - 1 - back] for back in _BACK]
    return torch.cat([now, states.mean(1), *changes], dim=-1)


class ExpertMixture(NamedTuple):
    features: Tensor
    """(n, m, experts * width)."""
    gate: Tensor
    """(n, experts): softmax probabilities."""


class Foundation(nn.Module):
    """One expert, or several behind a gate."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.experts = nn.ModuleList(Expert(shape) for _ in range(shape.experts))
        self.gate: nn.Linear | Gate | None = None
        if shape.gate == "balanced":
            self.gate = Gate(_SUMMARIES, shape.experts)
        elif shape.gate != "none":
            self.gate = nn.Linear(STATE, shape.experts)
            # Nearly equal weights at first; not quite, since a top-1 gate must not have ties.
            nn.init.normal_(self.gate.weight, std=0.01 / STATE**0.5)
            nn.init.zeros_(self.gate.bias)

    def forward(
        self, states: Tensor, questions: Tensor, head: Literal["action", "policy"]
    ) -> ExpertMixture:
        """Of scaled states, (n, 5760), and m questions about each, (n, m, 1 to 4)."""
        gate = self.weights(states)
        if self.shape.gate == "top1":
            return ExpertMixture(self._sparse(states, questions, head, gate), gate)
        run = at_once if states.is_cuda and len(self.experts) > 1 else in_turn
        features = run(self.experts, (states, questions, head))
        parts = features * gate.T[:, :, None, None]
        return ExpertMixture(torch.cat(list(parts), dim=-1), gate)

    def weights(self, states: Tensor) -> Tensor:
        """(n, experts): the gate's softmax, of scaled states, (n, 5760)."""
        if self.gate is None:
            return states.new_ones(len(states), 1)
        if isinstance(self.gate, Gate):
            mixed: Tensor = self.gate(summaries(states.view(len(states), HISTORY, -1)))
            return mixed
        logits: Tensor = self.gate(states)
        return logits.softmax(-1)

    def _sparse(
        self, states: Tensor, questions: Tensor, head: Literal["action", "policy"], gate: Tensor
    ) -> Tensor:
        """Each state through its likeliest expert alone, the other experts' features zero.

        The weight is 1 going forward; going back the gate learns as if it were its probability
        (Switch transformer).
        """
        best, chosen = gate.max(dim=-1)
        weight = best / best.detach()
        width = self.shape.width
        features = states.new_zeros(*questions.shape[:2], len(self.experts) * width)
        for i, expert in enumerate(self.experts):
            mine = (chosen == i).nonzero()[:, 0]
            if len(mine):
                part = expert(states[mine], questions[mine], head) * weight[mine, None, None]
                features[mine, :, i * width : (i + 1) * width] = part
        return features


class Values(NamedTuple):
    q: Tensor
    """(n, m, 2): predicted reward of submitting now and of waiting, at each of m penalty shares."""
    gate: Tensor
    """(n, experts)."""


class Network(nn.Module):
    """Foundation, V-head and P-head. Rewards are in units of `scale_h` hours, with e_I + e_O = 1."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.foundation = Foundation(shape)
        features = shape.experts * shape.width
        # No bias: the last layer norm has one for each expert, so that an expert's Q-value mixes as
        # a whole.
        self.value = nn.Linear(features, 1, bias=False)
        self.choice = nn.Linear(features, 2)
        self.scale_h: Tensor
        self.register_buffer("scale_h", torch.ones(()))

    def forward(self, inputs: Tensor) -> Tensor:
        """The V-head on the paper's flat input, (n, 5761 to 5764): (n,) Q-values."""
        states, question = inputs[:, :STATE], inputs[:, None, STATE:]
        mixed: ExpertMixture = self.foundation(states, question, "action")
        q: Tensor = self.value(mixed.features)[:, 0, 0]
        return q

    def values(self, states: Tensor, asked: Tensor) -> Values:
        """Both actions' Q-values of scaled states, (n, 144, 40), asked at m shares and forecasts,
        (n, m, 3).
        """
        questions = self._questions(asked, (SUBMIT, WAIT))
        mixed: ExpertMixture = self.foundation(
            states.reshape(len(states), STATE), questions, "action"
        )
        return Values(self.value(mixed.features).view(*asked.shape[:2], 2), mixed.gate)

    def log_chances(self, states: Tensor, asked: Tensor) -> Tensor:
        """The P-head: log-probabilities, (n, m, 2), of submitting and of waiting (softmax of a
        linear map).
        """
        questions = self._questions(asked, (NEITHER,))
        mixed: ExpertMixture = self.foundation(
            states.reshape(len(states), STATE), questions, "policy"
        )
        logits: Tensor = self.choice(mixed.features)
        return logits.log_softmax(-1)

    def policy_parameters(self) -> list[nn.Parameter]:
        """What belongs to the P-head alone: its embedding and its linear map."""
        return [
            item
            for name, item in self.named_parameters()
            if name.startswith("choice.") or ".policy." in name
        ]

    @torch.no_grad()
    def adopt(self, alone: Network, i: int) -> None:
        """Makes a network of a single expert the i-th expert, with its part of the V-head."""
        width = self.shape.width
        self.foundation.experts[i].load_state_dict(alone.foundation.experts[0].state_dict())
        self.value.weight[:, i * width : (i + 1) * width] = alone.value.weight

    def _questions(self, asked: Tensor, actions: tuple[float, ...]) -> Tensor:
        """(n, m * actions, 1 to 4): the action, and of what else is asked the inputs that the shape
        has.
        """
        parts = [asked.new_tensor(actions)[:, None].expand(*asked.shape[:2], len(actions), 1)]
        if self.shape.penalty_input:
            parts.append(2 * asked[..., None, SHARE] - 1)  # centred: an even taste adds nothing
        if self.shape.forecast_input:
            parts.append(asked[..., None, FORECAST])
        return torch.cat(
            [part.expand(*parts[0].shape[:3], part.shape[-1]) for part in parts], dim=-1
        ).flatten(1, 2)
