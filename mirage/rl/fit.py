"""Training by gradient: seeds, device, steps, schedules, and the loop of rounds around them.

`fit` trains a network round after round, scores it, stops when its score gets no better or time is
up, and leaves it with its best weights. What a round is, the learner says.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mirage.errors import InputError
from mirage.rl.budget import is_over


class Progress(NamedTuple):
    """One round of a training, for a learning curve."""

    stage: str
    """What is trained, as `pretrain` or `expert 3`."""
    round: int
    """From 1."""
    rounds: int
    """At most."""
    loss: float
    """Of the training; what it is made of differs between stages."""
    score: float
    """Of the network after this round, in the learner's unit, lower is better; NaN: not scored."""
    best: float
    """The best score until now; infinite: none."""


Report = Callable[[Progress], None]


class FitResult(NamedTuple):
    """How a training ended."""

    rounds: int
    """Completed."""
    score: float
    """That of the weights that the network has now; infinite: it was never scored."""
    interrupted: bool
    """Whether Ctrl-C ended it."""


class BestWeights:
    """The weights with the lowest score so far."""

    def __init__(self, network: nn.Module) -> None:
        self._network = network
        self._weights: dict[str, Tensor] | None = None
        self.score = math.inf

    @property
    def is_empty(self) -> bool:
        """Whether no score was below infinity yet."""
        return self._weights is None

    def offer(self, score: float) -> bool:
        """Keeps a copy of the present weights if they are better; NaN never is. Returns whether."""
        if not score < self.score:
            return False
        self.score = score
        self._weights = deepcopy(self._network.state_dict())
        return True

    def restore(self) -> None:
        """Puts the best weights into the network; does nothing if there are none."""
        if self._weights is not None:
            self._network.load_state_dict(self._weights)


@dataclass(frozen=True, kw_only=True)
class Stop:
    """When a training ends."""

    rounds: int
    """After this many rounds at the latest."""
    patience: int | None = None
    """After one more than this many scored rounds in a row that were no better; None: never."""
    most_s: float | None = None
    """After the first round that ends this many seconds or more after the start; None: never."""

    def is_due(self, worse: int, spent_s: float) -> bool:
        """``worse``: scored rounds in a row that were no better; ``spent_s``: since the start. The
        budget of `mirage.rl.budget` counts too.
        """
        out_of_patience = self.patience is not None and worse > self.patience
        is_late = self.most_s is not None and spent_s >= self.most_s
        return out_of_patience or is_late or is_over()


def fit(
    network: nn.Module,
    train_round: Callable[[int], float],
    stop: Stop,
    *,
    score: Callable[[], float] | None = None,
    is_scored: Callable[[int], bool] | None = None,
    score_first: bool = False,
    stage: str = "",
    progress: Report | None = None,
) -> FitResult:
    """Trains a network and leaves it with the weights of its best score, also after Ctrl-C.

    ``train_round`` takes the number of rounds done before it and returns a loss. ``score`` is lower
    for better weights; without it the last weights stay. ``is_scored`` takes the number of rounds
    done and says whether to score now; None: always. ``score_first``: the weights given count too. Ctrl-C before
    the first score raises KeyboardInterrupt: there is nothing worth keeping.
    """
    best, worse, done, interrupted = BestWeights(network), 0, 0, False
    row, began_s = partial(Progress, stage=stage, rounds=stop.rounds), time.monotonic()
    try:
        if score and score_first:
            best.offer(score())
        while done < stop.rounds:
            loss, scored = train_round(done), math.nan
            done += 1
            if score and (is_scored is None or is_scored(done)):
                scored = score()
                worse = 0 if best.offer(scored) else worse + 1
            if progress:
                progress(row(round=done, loss=loss, score=scored, best=best.score))
            if stop.is_due(worse, time.monotonic() - began_s):
                break
    except KeyboardInterrupt:
        if best.is_empty:
            raise
        interrupted = True
    best.restore()
    return FitResult(done, best.score, interrupted)


def pick_device(name: str) -> torch.device:
    """``auto``: a GPU where there is one. Raises InputError for a device that torch does not have."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        return torch.zeros(0, device=name).device
    except (RuntimeError, AssertionError) as error:
        raise InputError(
            f"device {name!r} can't be used ({error}); say auto, cpu or cuda"
        ) from None


@contextmanager
def seeded(seed: int) -> Iterator[np.random.Generator]:
    """Fixes torch's generators for a training and leaves those of the caller as they were."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield np.random.default_rng(seed)


def linear(begin: float, end: float, part: float) -> float:
    """A schedule that moves evenly from one value to another; ``part`` of the training, 0 to 1."""
    return begin + (end - begin) * part


def cosine(begin: float, end: float, part: float) -> float:
    """A schedule that moves along half a cosine (Loshchilov and Hutter 2017, without restarts)."""
    return (begin + end) / 2 + (begin - end) / 2 * math.cos(math.pi * part)


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """The learning rate of all parameters from now on; of a group with a `share` that share of it."""
    for group in optimizer.param_groups:
        group["lr"] = rate * group.get("share", 1.0)


def descend(
    optimizer: torch.optim.Optimizer, loss: Tensor, *, most_norm: float | None = None
) -> None:
    """One gradient step along the present loss alone; see `apply_gradients` for ``most_norm``."""
    optimizer.zero_grad()
    backward(loss)
    apply_gradients(optimizer, most_norm=most_norm)


def mean_loss(losses: Sequence[Tensor]) -> float:
    """Of the steps of a round, detached. It waits for the GPU once, not at each step."""
    return float(np.mean(torch.stack(list(losses)).tolist()))


def backward(loss: Tensor) -> None:
    """Adds a loss's gradients to those that are there (torch's own method is not typed)."""
    loss.backward()  # type: ignore[no-untyped-call]


def apply_gradients(optimizer: torch.optim.Optimizer, *, most_norm: float | None = None) -> None:
    """A step along gradients that `backward` has summed, scaled down to this norm if it is more.

    Targets with heavy tails need the clipping: one batch must not undo many.
    """
    if most_norm is not None:
        weights = [item for group in optimizer.param_groups for item in group["params"]]
        nn.utils.clip_grad_norm_(weights, most_norm)
    optimizer.step()
