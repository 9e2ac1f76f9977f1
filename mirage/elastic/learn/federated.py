"""Federated training over several clusters: A3C (Mnih et al. 2016; DL2, section 6.5, Figure 18).

Each cluster has its own jobs, its own learner and a copy of the weights. It sends gradients to one
centre, which takes a step as soon as they come, and answers with the new weights. So a cluster's
gradients are of weights that others have changed in between. No job data leaves a cluster.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from mirage.elastic.learn.online import NetworkSteps, OnlineLearner, OnlineOptions
from mirage.elastic.network import Networks
from mirage.provision.learn.parallel import ray_module
from mirage.rl.fit import FitResult, Report, Stop, fit

Weights = Mapping[str, Tensor]
MakeMember = Callable[[int], "FederatedMember"]
"""The number of a cluster -> its member."""


class FederatedMember:
    """A cluster: acts by the weights that it last got."""

    def __init__(self, networks: Networks, learner: OnlineLearner) -> None:
        """``networks``: the learner's."""
        self._networks, self._learner = networks, learner

    def work(self, weights: Weights) -> list[Tensor]:
        """One slot with these weights; the gradients of a batch of what the cluster lived through."""
        torch.set_num_threads(1)
        self._networks.load_state_dict(dict(weights))
        self._learner.run_slot()
        while self._learner.is_empty:
            self._learner.run_slot()
        return self._learner.gradients()[1]


class MemberPool(Protocol):
    """Members at work."""

    size: int

    def send(self, nth: int, weights: Weights) -> None:
        """Lets a member work with these weights."""

    def receive(self) -> tuple[int, list[Tensor]]:
        """The next member that is done, and its gradients."""


class LocalPool:
    """All members in this process, one after the other: for tests, and to repeat a training."""

    def __init__(self, make: MakeMember, size: int) -> None:
        self.size = size
        self._members = [make(nth) for nth in range(size)]
        self._queue: deque[tuple[int, Weights]] = deque()

    def send(self, nth: int, weights: Weights) -> None:
        """See `MemberPool`."""
        self._queue.append((nth, weights))

    def receive(self) -> tuple[int, list[Tensor]]:
        """See `MemberPool`: in the order in which they were sent."""
        nth, weights = self._queue.popleft()
        return nth, self._members[nth].work(weights)


class RayPool:
    """Each member is an actor of a Ray cluster. Raises InputError where Ray is not installed."""

    def __init__(self, make: MakeMember, size: int, address: str | None = None) -> None:
        ray = ray_module()
        self.size = size
        self._ray = ray
        if not ray.is_initialized():
            ray.init(
                address=None if address == "local" else address,
                include_dashboard=False,
                log_to_driver=False,
            )
        actor = ray.remote(num_cpus=0)(_RayMember)
        self._members: list[Any] = [actor.remote(make, nth) for nth in range(size)]
        self._work: dict[Any, int] = {}

    def send(self, nth: int, weights: Weights) -> None:
        """See `MemberPool`."""
        self._work[self._members[nth].work.remote(weights)] = nth

    def receive(self) -> tuple[int, list[Tensor]]:
        """See `MemberPool`: in the order in which they are done."""
        (done,), _ = self._ray.wait(list(self._work))
        return self._work.pop(done), self._ray.get(done)


class _RayMember:
    def __init__(self, make: MakeMember, nth: int) -> None:
        self._member = make(nth)

    def work(self, weights: Weights) -> list[Tensor]:
        return self._member.work(weights)


def learn_federated(
    pool: MemberPool,
    networks: Networks,
    options: OnlineOptions,
    *,
    score: Callable[[], float] | None = None,
    score_every: int = 50,
    progress: Report | None = None,
) -> FitResult:
    """`options.slots` steps of the centre; leaves it with the weights of the best score."""
    steps = NetworkSteps(networks, options)
    for nth in range(pool.size):
        pool.send(nth, _copy(networks))

    def train_round(done: int) -> float:
        nth, gradients = pool.receive()
        steps.apply(gradients, done + 1)
        pool.send(nth, _copy(networks))
        return _norm(gradients)

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
