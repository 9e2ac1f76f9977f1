"""Federated training over several clusters: A3C (Mnih et al. 2016; DL2, section 6.5, Figure 18).

Each cluster has its own jobs, its own learner and a copy of the weights. It sends gradients to one
centre, which takes a step as soon as they come, and answers with the new weights. So a cluster's
gradients are of weights that others have changed in between. After a slot a cluster takes as many
steps as it would alone, so that n clusters learn from n slots in the time of one. No job data
leaves a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from mirage.elastic.learn.online import NetworkSteps, OnlineLearner, OnlineOptions
from mirage.elastic.network import Networks
from mirage.rl.fit import FitResult, Report, Stop, fit

Weights = Mapping[str, Tensor]
MakeMember = Callable[[int], "FederatedMember"]
"""The number of a cluster -> its member."""


@dataclass(frozen=True, kw_only=True)
class MemberStep:
    """What a member sends."""

    gradients: list[Tensor]
    """Of a batch of what the cluster lived through."""
    ends_slot: bool
    """The last step before the member's next slot."""


class FederatedMember:
    """A cluster: runs a slot by the weights that it last got, then computes gradients."""

    def __init__(self, networks: Networks, learner: OnlineLearner, *, members: int) -> None:
        """``networks``: the learner's. ``members``: of the federation."""
        self._networks, self._learner, self._members = networks, learner, members
        self._left = 0

    def work(self, weights: Weights) -> MemberStep:
        """One gradient step with these weights, after a slot if the last one is used up."""
        torch.set_num_threads(1)
        self._networks.load_state_dict(dict(weights))
        if self._left == 0:
            self._run_slot()
        self._left -= 1
        return MemberStep(gradients=self._learner.gradients()[1], ends_slot=self._left == 0)

    def _run_slot(self) -> None:
        self._learner.run_slot(self._members)
        while self._learner.is_empty:
            self._learner.run_slot(self._members)
        self._left = self._learner.steps_of_slot


class Members:
    """All members in this process, one after the other, so that a training can be repeated."""

    def __init__(self, make: MakeMember, size: int) -> None:
        self.size = size
        self._members = [make(nth) for nth in range(size)]
        self._queue: deque[tuple[int, Weights]] = deque()

    def send(self, nth: int, weights: Weights) -> None:
        """Lets a member work with these weights."""
        self._queue.append((nth, weights))

    def receive(self) -> tuple[int, MemberStep]:
        """The next member that is done, in the order in which they were sent, and what it sends."""
        nth, weights = self._queue.popleft()
        return nth, self._members[nth].work(weights)


def learn_federated(
    pool: Members,
    networks: Networks,
    options: OnlineOptions,
    *,
    score: Callable[[], float] | None = None,
    score_every: int = 50,
    progress: Report | None = None,
) -> FitResult:
    """`options.slots` slots of all members together; leaves the weights of the best score."""
    steps = NetworkSteps(networks, options)
    for nth in range(pool.size):
        pool.send(nth, _copy(networks))

    def train_round(done: int) -> float:
        """Steps until a member has used up a slot; the norm of the last gradients."""
        while True:
            nth, step = pool.receive()
            steps.apply(step.gradients, done + 1)
            pool.send(nth, _copy(networks))
            if step.ends_slot:
                return _norm(step.gradients)

    return fit(
        networks,
        train_round,
        Stop(rounds=options.slots),
        score=score,
        is_scored=lambda done: done % score_every == 0,
        score_first=True,
        stage="federated",
        progress=progress,
    )


def _copy(networks: Networks) -> Weights:
    return {name: value.detach().clone() for name, value in networks.state_dict().items()}


def _norm(gradients: Sequence[Tensor]) -> float:
    return float(torch.stack([each.norm() for each in gradients]).norm())
