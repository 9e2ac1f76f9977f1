"""What the three neural trainings share: episodes to draw, penalty shares, and the judge, by whose
penalty on validation `mirage.rl.fit` keeps the best weights and stops.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

import numpy as np
import torch
from torch import Tensor

from mirage.errors import InputError
from mirage.provision.learn.episode import Episode, Floats, Ints
from mirage.provision.learn.foundation import Network, Shape, Values
from mirage.provision.learn.gate import Mixing
from mirage.provision.learn.model import Flags, release_by_mean
from mirage.provision.learn.points import Points, PreparedEpisode, prepare
from mirage.provision.learn.scaling import Scaling

Head = Literal["value", "policy"]
_CHUNK = 1024
MOST_NORM = 1.0
"""Of a gradient step: waits have heavy tails, and one batch must not undo many."""


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

    def __call__(self, count: int) -> list[PreparedEpisode]:
        return [self._one() for _ in range(count)]

    def _one(self) -> PreparedEpisode:
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


def decide(network: Network, points: Points, shares: Floats, head: Head, memory: int = 1) -> Flags:
    """(S, m): where a network, without dropout, releases at each episode's shares (N, m).

    ``memory``: decision points over whose mean a V-head decides.
    """
    release = np.zeros((len(points.never), shares.shape[1]), dtype=np.bool_)
    said = scores(network, points, shares, head, points.decisions)
    release[points.decisions] = (
        prefers_release(said, head)
        if memory == 1
        else mean_release(points, said[..., 0] - said[..., 1], memory)
    )
    return release


def mean_release(points: Points, gains: Floats, memory: int) -> Flags:
    """(P, m): where the mean gain of the last decision points is above 0, of gains (P, m)."""
    of_slots = np.zeros((len(points.never), gains.shape[1]))
    of_slots[points.decisions] = gains
    first = points.first[points.episode]
    return release_by_mean(of_slots, first, memory)[points.decisions]


def scores(network: Network, points: Points, shares: Floats, head: Head, slots: Ints) -> Floats:
    """(n, m, 2): what `score` says of n decision points at their episodes' shares (N, m), without
    dropout.
    """
    was_training = network.training
    network.eval()
    with torch.no_grad():
        edges = list(range(_CHUNK, len(slots), _CHUNK))
        whole = points.on_device(slots), points.asked(shares, slots)
        parts = [each.tensor_split(edges) for each in whole]
        said = [
            score(network, points.states(at), asked, head) for at, asked in zip(*parts, strict=True)
        ]
    network.train(was_training)
    found: Floats = torch.cat(said).double().cpu().numpy()
    return found


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

    ``most``: episodes to judge by. ``memory``: this one alone; None: a V-head's is the best of
    `MEMORIES`.
    """

    def __init__(
        self,
        validation: Sequence[Episode],
        scaling: Scaling,
        tastes: Tastes,
        device: torch.device,
        *,
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
        gains = said[..., 0] - said[..., 1]
        found = [(mean_release(points, gains, memory), memory) for memory in self._memories]
        return min((self._cost_h(release), memory) for release, memory in found)

    def _cost_h(self, decided: Flags) -> float:
        """Of releases at the decision points, (P, m)."""
        release = np.zeros(self._costs_h.shape, dtype=np.bool_)
        release[self._points.decisions] = decided
        stops = self._points.stops(release)[self._points.first]
        return float(np.take_along_axis(self._costs_h, stops, axis=0).mean())


def gate_loss(found: Values, shape: Shape) -> Tensor:
    """Keeps a gate from sending everything to one expert; 0 without a gate.

    Of a dense one the balance loss of `gate.py`; of a top-1 gate Switch transformer's.
    """
    if shape.gate == "none":
        return found.q.new_zeros(())
    if shape.gate != "top1":
        return Mixing().loss(found.gate)
    routed = torch.nn.functional.one_hot(found.gate.argmax(-1), shape.experts).float().mean(0)
    return 0.01 * shape.experts * (routed * found.gate.mean(0)).sum()
