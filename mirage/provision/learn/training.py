"""What the three neural trainings share: episodes to draw, progress, judging on validation, keeping
the best.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import TracebackType
from typing import Literal, NamedTuple, Self

import numpy as np
import torch
from torch import Tensor

from mirage.errors import InputError
from mirage.provision.learn.episode import Episode, Floats, Ints
from mirage.provision.learn.foundation import Network, Shape, Values
from mirage.provision.learn.model import Flags, release_by_mean
from mirage.provision.learn.points import Points, Prepared, prepare
from mirage.provision.learn.scaling import Scaling

Head = Literal["value", "policy"]
_CHUNK = 1024


class Progress(NamedTuple):
    """Told after each round."""

    stage: str
    """pretrain, expert 3, dqn, pg."""
    round: int
    rounds: int
    loss: float
    """Training loss; what it is made of differs between stages."""
    validation_h: float
    """Mean penalty on validation in hours, at e_I + e_O = 1; NaN: not judged in this round."""
    best_h: float


Report = Callable[[Progress], None]


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


class Draw:
    """Episodes to train on, in shuffled passes: each comes once before any comes again."""

    def __init__(
        self, episodes: Sequence[Episode], scaling: Scaling, generator: np.random.Generator
    ) -> None:
        self._episodes = prepare(episodes, scaling)
        if not self._episodes:
            raise InputError(
                "no training episode has a decision point; give longer predecessors or more"
                " episodes"
            )
        self._generator = generator
        self._order: list[int] = []

    def __call__(self, count: int) -> list[Prepared]:
        return [self._one() for _ in range(count)]

    def _one(self) -> Prepared:
        self._order = self._order or self._generator.permutation(len(self._episodes)).tolist()
        return self._episodes[self._order.pop()]


class Tastes(NamedTuple):
    """Penalty shares e_I / (e_I + e_O) of a training: one fixed, or drawn where the share is an
    input.
    """

    fixed: float | None
    low: float = 0.1
    high: float = 0.9
    judged: tuple[float, ...] = (0.2, 0.5, 0.8)
    """At which validation judges a model for all tastes: 1:4, 1:1 and 4:1."""

    def draw(self, generator: np.random.Generator, episodes: int, each: int) -> Floats:
        """(episodes, each), or (episodes, 1) where it is fixed."""
        if self.fixed is not None:
            return np.full((episodes, 1), self.fixed)
        return generator.uniform(self.low, self.high, (episodes, each))

    def judge(self, episodes: int) -> Floats:
        return np.tile(self.judged if self.fixed is None else [self.fixed], (episodes, 1))


MEMORIES = (1, 6, 12, 24)
"""Over how many decision points a V-head's mean may decide; the best on validation is taken. A
single point's Q-values err, and of a pair's hundred points the first one that errs in favour of a
release decides.
"""


def decide(network: Network, points: Points, shares: Floats, head: Head) -> Flags:
    """(S, m): where a network, without dropout, releases at each episode's shares (N, m)."""
    release = np.zeros((len(points.never), shares.shape[1]), dtype=np.bool_)
    release[points.decisions] = prefers_release(
        scores(network, points, shares, head, points.decisions), head
    )
    return release


def scores(network: Network, points: Points, shares: Floats, head: Head, slots: Ints) -> Floats:
    """(n, m, 2): what `score` says of n decision points at their episodes' shares (N, m), without
    dropout.
    """
    was_training = network.training
    network.eval()
    found = []
    with torch.no_grad():
        for part in chunks(slots):
            said = score(network, points.states(part), points.asked(shares, part), head)
            found.append(said.double().cpu().numpy())
    network.train(was_training)
    return np.concatenate(found)


def chunks(slots: Ints) -> list[Ints]:
    """So few at a time that memory is bounded."""
    return [slots[begin : begin + _CHUNK] for begin in range(0, len(slots), _CHUNK)]


def score(network: Network, states: Tensor, asked: Tensor, head: Head) -> Tensor:
    """(n, m, 2): Q-values or log-probabilities of submitting and of waiting."""
    return (
        network.values(states, asked).q if head == "value" else network.log_chances(states, asked)
    )


def prefers_release(said: Floats, head: Head) -> Flags:
    """Section 4.4: Q of submission larger than that of no-submission; a probability of submission
    of at least 1/2.
    """
    now, wait = said[..., 0], said[..., 1]
    preferred: Flags = now > wait if head == "value" else now >= wait
    return preferred


class Judge:
    """The mean penalty of a network's own decisions on the validation episodes, with the memory
    that serves it best.

    ``memory``: this one alone; None: a V-head's is the best of `MEMORIES`.
    """

    def __init__(
        self,
        validation: Sequence[Episode],
        scaling: Scaling,
        tastes: Tastes,
        device: torch.device,
        most: int,
        memory: int | None = 1,
    ) -> None:
        episodes = prepare(sorted(validation, key=lambda episode: episode.begin_s), scaling)
        if not episodes:
            raise InputError(
                "no validation episode has a decision point; validation is needed to stop in time"
            )
        spread = np.unique(
            np.linspace(0, len(episodes) - 1, min(most, len(episodes))).astype(np.int64)
        )
        self._points = Points([episodes[i] for i in spread], device)
        self._shares = tastes.judge(len(self._points))
        self._costs_h = self._points.costs_h(self._shares)
        self._memories = MEMORIES if memory is None else (memory,)

    def __call__(self, network: Network, head: Head) -> float:
        """Hours, at e_I + e_O = 1."""
        return self.best(network, head)[0]

    def best(self, network: Network, head: Head) -> tuple[float, int]:
        """The same, and the memory with which it is reached."""
        points = self._points
        said = scores(network, points, self._shares, head, points.decisions)
        if head == "policy":
            return self._cost_h(prefers_release(said, head)), 1
        gain = np.zeros(self._costs_h.shape)
        gain[points.decisions] = said[..., 0] - said[..., 1]
        first = points.first[points.episode]
        found = [
            (release_by_mean(gain, first, memory)[points.decisions], memory)
            for memory in self._memories
        ]
        return min((self._cost_h(release), memory) for release, memory in found)

    def _cost_h(self, decided: Flags) -> float:
        """Of releases at the decision points, (P, m)."""
        release = np.zeros(self._costs_h.shape, dtype=np.bool_)
        release[self._points.decisions] = decided
        stops = self._points.stops(release)[self._points.first]
        return float(np.take_along_axis(self._costs_h, stops, axis=0).mean())


class Best:
    """Keeps the weights that did best on validation; as a context it puts them back, also after
    Ctrl-C.
    """

    def __init__(self, network: Network, patience: int) -> None:
        self._network = network
        self._patience = patience
        self._weights: dict[str, Tensor] | None = None
        self._since = 0
        self.score = math.inf
        self.interrupted = False

    def offer(self, score: float) -> bool:
        """Takes the present weights if they are better; returns whether it is time to stop."""
        self._since += 1
        if score < self.score:
            self.score, self._since = score, 0
            self._weights = copy.deepcopy(self._network.state_dict())
        return self._since > self._patience

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> bool:
        if self._weights is None:
            return False
        if kind is None or issubclass(kind, KeyboardInterrupt):
            self._network.load_state_dict(self._weights)
            self.interrupted = kind is not None
            return True
        return False


def go_on(
    stage: str,
    train_round: Callable[[], float],
    rounds: int,
    best: Best,
    judge: Callable[[], float],
    progress: Report | None,
) -> Best:
    """Trains round after round, judging each, until the last, or nothing gets better, or Ctrl-C;
    keeps the best.
    """
    with best:
        for done in range(1, rounds + 1):
            loss = train_round()
            judged_h = judge()
            stop = best.offer(judged_h)
            if progress:
                progress(Progress(stage, done, rounds, loss, judged_h, best.score))
            if stop:
                break
    return best


def anneal(optimizer: torch.optim.Optimizer, highest: float, done: float) -> None:
    """Lets the learning rate fall to a tenth along a cosine; ``done``: from 0 to 1."""
    for group in optimizer.param_groups:
        group["lr"] = highest * (0.55 + 0.45 * math.cos(math.pi * done))


def backward(loss: Tensor) -> None:
    """torch's own method is not typed."""
    loss.backward()  # type: ignore[no-untyped-call]


def step(optimizer: torch.optim.Optimizer, loss: Tensor) -> None:
    """One gradient step."""
    optimizer.zero_grad()
    backward(loss)
    take(optimizer)


def take(optimizer: torch.optim.Optimizer) -> None:
    """The step along gradients that are there, clipped: waits have heavy tails, and one batch must
    not undo many.
    """
    torch.nn.utils.clip_grad_norm_(
        [item for group in optimizer.param_groups for item in group["params"]], 1.0
    )
    optimizer.step()


def gate_loss(found: Values, shape: Shape) -> Tensor:
    """Keeps a top-1 gate from sending everything to one expert (Switch transformer's balance loss);
    else 0.
    """
    if shape.gate != "top1":
        return found.q.new_zeros(())
    routed = torch.nn.functional.one_hot(found.gate.argmax(-1), shape.experts).float().mean(0)
    return 0.01 * shape.experts * (routed * found.gate.mean(0)).sum()
