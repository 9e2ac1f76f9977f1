"""The policy for rounds: one inference gives all GPUs of a round.

The paper's policy adds one task after the other, from none, in each slot. With 64 GPUs in rounds of
a minute, and a restart for each job that is placed again, that is slow to ask and hard to learn.
Here the network says of each job how urgent it is, and how much it is worth to leave it alone. The
steepest ascent then gives the GPUs by these values:

    value_j(n) = exp(urgency_j) * s_j(n)^POWER * left_j^-HASTE * (1 - keep_j, where n changes)
    keep_j     = exp(stay_j) * KEEP * best_j^-1/2

with s_j(n) the job's speed on n GPUs over that on one, left_j its hours left on one, and best_j
those at its best shape: a restart costs a short job more. The network gives urgency and stay. A
network of zeros is that rule alone: training starts as a scheduler that is good already.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from mirage.elastic.measured.schedulers import RoundAllocator, ascend
from mirage.elastic.measured.world import MOST_GPUS, PolluxWorld
from mirage.elastic.network import SetBody
from mirage.elastic.world import Bools, Floats, Ints

POWER, HASTE, KEEP = 0.75, 0.5, 0.04
"""Chosen on workloads 1 to 4 and others like them (docs/decisions/0056-*.md)."""
LEAST_LEFT_S = 30.0
ACTIONS = 2
"""Urgency and stay."""
MOST_KEEP = 0.9
GRID = (2, 4, 8, 16, 32, 64)
"""GPUs at which a job's speeds are shown to the network."""
FEATURES = 17 + len(GRID)


@dataclass(frozen=True, kw_only=True)
class RoundView:
    """Active jobs of each cluster, J places, [B, J] each."""

    jobs: Ints
    there: Bools
    speedup: Floats
    """[B, J, MOST_GPUS + 1]: speed over that on one GPU, in the present epoch."""
    left_s: Floats
    """Seconds left on one GPU."""


def view(world: PolluxWorld) -> RoundView:
    """Of a round that has begun."""
    active = world.active & ~world.over[:, None]
    places = max(int(active.sum(axis=1).max()), 1)
    jobs = np.argsort(~active, axis=1, kind="stable")[:, :places]
    there = np.take_along_axis(active, jobs, axis=1)
    speeds = np.take_along_axis(world.speeds_by_gpus(), jobs[..., None], axis=1)
    speedup = np.maximum.accumulate(speeds, axis=2) / np.maximum(speeds[..., 1:2], 1e-12)
    left_s = np.take_along_axis(world.left_alone_s(), jobs, axis=1)
    return RoundView(
        jobs=jobs, there=there, speedup=speedup, left_s=np.maximum(left_s, LEAST_LEFT_S)
    )


def give_by_values(world: PolluxWorld, seen: RoundView, actions: Floats) -> None:
    """Gives the round's GPUs; ``actions``: [B, J, ACTIONS]."""
    urgency = np.exp(actions[..., 0])
    best_h = seen.left_s / 3600 / np.maximum(seen.speedup.max(axis=2), 1e-12)
    keep = np.minimum(KEEP * np.exp(actions[..., 1]) / np.sqrt(best_h), MOST_KEEP)
    value = seen.speedup**POWER * (urgency * (seen.left_s / 3600) ** -HASTE)[..., None]
    now = np.take_along_axis(world.last_workers, seen.jobs, axis=1)
    same = np.arange(MOST_GPUS + 1) == now[..., None]
    value = np.where(same, value, value * (1 - keep)[..., None])
    most = np.where(seen.there, np.take_along_axis(world.most_gpus, seen.jobs, axis=1), 0)
    given = np.zeros(world.arrival.shape, dtype=np.int64)
    np.put_along_axis(given, seen.jobs, ascend(value, most, world.total_gpus), axis=1)
    world.give(given)


def features(world: PolluxWorld, seen: RoundView) -> Floats:
    """[B, J, FEATURES], float32, of the order of 1; zeros where there is no job."""

    def pick(values: npt.ArrayLike) -> Floats:
        return np.take_along_axis(np.asarray(values, dtype=np.float64), seen.jobs, axis=1)

    there, left_h = seen.there, seen.left_s / 3600
    count = there.sum(axis=1, keepdims=True)
    gpus = pick(world.last_workers)
    most = pick(world.most_gpus)
    best = seen.speedup.max(axis=2)
    now = np.take_along_axis(seen.speedup, gpus.astype(np.int64)[..., None], axis=2)[..., 0]
    base = np.where(there, left_h**-HASTE, 0.0)
    shorter = (seen.left_s[:, :, None] > seen.left_s[:, None, :]) & there[:, None, :]
    load_h = np.where(there, left_h, 0.0).sum(axis=1, keepdims=True)
    columns = [
        np.log(left_h) / 3,
        np.log(left_h / best) / 3,
        pick(world.trained / world.epochs),
        np.log2(most + 1) / 6,
        gpus / MOST_GPUS * 4,
        np.log2(gpus + 1) / 6,
        (gpus == 0) + 0.0,
        now / best,
        pick(world.restart_left_s) / 30,
        np.log1p(np.maximum(pick(world.now_s - world.submitted_s), 0) / 600) / 3,
        np.log1p(pick(world.attained_gpu_s) / 3600) / 3,
        np.log1p(pick(world.placements)) / 2,
        pick((world.place > 0).sum(axis=2)) / 4,
        shorter.sum(axis=2) / np.maximum(count, 1),
        base / np.maximum(base.sum(axis=1, keepdims=True), 1e-9) * 4,
        np.log1p(count) / 3 + 0 * left_h,
        np.log1p(load_h) / 4 + 0 * left_h,
        *(np.log2(np.maximum(seen.speedup[..., number], 1e-3)) / 6 for number in GRID),
    ]
    found = np.where(there[..., None], np.stack(columns, axis=-1), 0.0)
    return found.astype(np.float32)


class ValueNetwork(nn.Module):
    """Urgency and stay of each job from its token and the mean one; zero when untrained. Training changes
    the linear part alone.
    """

    def __init__(self, width: int, layers: int, heads: int) -> None:
        super().__init__()
        self.body = SetBody(FEATURES, width, layers, heads)
        self.hidden = nn.Sequential(nn.Linear(2 * width, width), nn.ReLU())
        self.out = nn.Linear(width, ACTIONS)
        self.linear = nn.Linear(FEATURES, ACTIONS, bias=False)
        """Of a job's own features, beside what attention says."""
        for weights in (self.out.weight, self.out.bias, self.linear.weight):
            nn.init.zeros_(weights)

    def forward(self, state: Tensor, there: Tensor) -> Tensor:
        """[n, J, F], [n, J] -> means of the actions, [n, J, ACTIONS]."""
        tokens, mean = self.body(state, there)
        wide = mean.unsqueeze(1).expand_as(tokens)
        attended = self.out(self.hidden(torch.cat([tokens, wide], dim=-1)))
        return cast(Tensor, attended + self.linear(state))


@dataclass(kw_only=True)
class RuleRounds(RoundAllocator):
    """The rule alone, without a network: see the head of this file."""

    name: str = "greedy-rule"
    tunes: bool = True
    packs: bool = True

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        seen = view(world)
        give_by_values(world, seen, np.zeros((*seen.jobs.shape, ACTIONS)))


@dataclass(kw_only=True)
class SetRounds(RoundAllocator):
    """A trained policy in service: the most probable action in each round."""

    name: str = "set"
    tunes: bool = True
    packs: bool = True
    network: ValueNetwork

    @torch.no_grad()
    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        seen = view(world)
        state = torch.from_numpy(features(world, seen))
        actions = self.network(state, torch.from_numpy(with_one(seen.there)))
        give_by_values(world, seen, actions.numpy().astype(np.float64))


@dataclass(kw_only=True)
class LinearRounds(RoundAllocator):
    """Several policies at once, one for each cluster: the linear part of the network alone."""

    name: str = "linear"
    tunes: bool = True
    packs: bool = True
    weights: Floats
    """[B, FEATURES, ACTIONS]."""

    def give(self, world: PolluxWorld) -> None:
        """See `RoundAllocator`."""
        seen = view(world)
        give_by_values(world, seen, features(world, seen).astype(np.float64) @ self.weights)


def with_one(there: Bools) -> Bools:
    """Attention needs a place in each row: an empty cluster shows its first."""
    shown = there.copy()
    shown[~there.any(axis=1), 0] = True
    return shown
