"""A search each time step for who runs, on how many GPUs, and on which: sizes first, then places.

1. Sizes: the greatest sum of what each job gains from its number of GPUs, by dynamic programming,
   as if no link were shared (equation 3 with a share factor of 1).
2. Places: the largest jobs first, each into the smallest gap that holds it. Who keeps its size may
   keep its GPUs.
3. Moves, until time is up or none helps: a job goes elsewhere, two change places, a job gives up or
   takes GPUs; judged with shared links (equations 12 and 13).

What a job gains is the share of its remaining work that the step does, by its length: what ends
soon and is short counts most for the mean slowdown.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from mirage.placement.packing import best_fit
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.speed import MinibatchCosts, SpeedLaw
from mirage.placement.topology import Bools, Floats, Ints, Topology

_DENSE_SIZES = 16
_GROWTH = 1.25
NEVER = -1e18


@dataclass(frozen=True, kw_only=True)
class Queue:
    """The jobs of one cluster that may run at a time step, J of them."""

    rows: Ints
    """Where they stand in the world, [J]."""
    asked: Ints
    """GPUs that they ask for, [J]."""
    length: Ints
    """Length that was asked for, time steps, [J]."""
    waited: Ints
    """Time steps since their arrival, [J]."""
    held: Bools
    """Their GPUs of the step before, [J, M]."""
    left: Floats
    """FLOPs that they still have to compute, [J]."""
    costs: MinibatchCosts
    """[J]."""
    lost_s: Floats
    """Seconds of this step that a job loses unless it keeps its GPUs, [J]."""


def queue_of(world: PlacementWorld, cluster: int) -> Queue:
    """The jobs in the slots of a cluster."""
    rows = np.nonzero(world.filled[cluster])[0]
    jobs = world.slot_job[cluster, rows]
    held = world.assigned[cluster, rows]
    price = world.config.price
    again = np.where(world.started[cluster, rows], price.pause_s + price.restart_s, 0.0)
    return Queue(
        rows=rows,
        asked=world.gpus[cluster, jobs],
        length=world.length[cluster, jobs],
        waited=world.time - world.arrival[cluster, jobs],
        held=held,
        left=(world.total - world.done)[cluster, jobs],
        costs=world.costs(cluster, jobs),
        lost_s=np.where(held.any(axis=1), price.move_s, again),
    )


@dataclass(kw_only=True)
class Planner:
    """The search as a scheduler. It has learned nothing."""

    name: str = "search"
    leaves_slots: bool = False
    elastic: bool = True
    """Whether a job may get more or fewer GPUs than it asks for."""
    most_moves: int = 4
    """Of step 3, in a decision."""
    most_s: float = 0.02
    """Time after which step 3 ends, seconds."""
    law: SpeedLaw | None = None
    """What the search believes of speeds; None: the world's own law."""
    _sizes: Ints = field(init=False, repr=False)

    def reset(self, world: PlacementWorld) -> None:
        self._sizes = tried_sizes(len(world.config.topology))

    def decide(self, world: PlacementWorld) -> Ints:
        actions = np.full((world.clusters, world.assigned.shape[-1]), world.rows)
        for cluster in np.nonzero(~world.over)[0]:
            queue = queue_of(world, int(cluster))
            if len(queue.rows):
                owner = self.plan(world, queue)
                given = owner >= 0
                actions[cluster, given] = queue.rows[owner[given]]
        return actions

    def plan(self, world: PlacementWorld, queue: Queue) -> Ints:
        """The job of each GPU as an index of the queue, -1 for none, [M]."""
        until_s = time.perf_counter() + self.most_s
        search = _Search(world, self.law or world.law, queue)
        sizes = search.best_sizes(self._sizes, self.elastic)
        starts = [places(world.config.topology, queue, sizes, keep=True)]
        if not queue.lost_s.any():
            starts.append(places(world.config.topology, queue, sizes, keep=False))
        scores = search.scores(np.stack(starts))
        owner, score = starts[int(scores.argmax())], float(scores.max())
        for _ in range(self.most_moves):
            moves = list(search.moves(owner, self.elastic))
            if not moves or time.perf_counter() > until_s:
                break
            scores = search.scores(np.stack(moves))
            if scores.max() <= score + 1e-12:
                break
            owner, score = moves[int(scores.argmax())], float(scores.max())
        return owner


def tried_sizes(gpus: int) -> Ints:
    """Numbers of GPUs that are tried: all up to 16, then ever sparser, [S]."""
    sizes = list(range(1, min(_DENSE_SIZES, gpus) + 1))
    while sizes[-1] < gpus:
        sizes.append(min(int(sizes[-1] * _GROWTH), gpus))
    return np.array(sizes)


def best_sum(gains: Floats, sizes: Ints, gpus: int) -> Ints:
    """The GPUs of each job, [J], with the greatest sum of gains and at most ``gpus`` in all.

    ``gains`` [J, S + 1]: of no GPU, and of each of ``sizes`` [S]; by dynamic programming.
    """
    best, chosen = np.zeros(gpus + 1), []
    before = np.arange(gpus + 1)[:, None] - np.concatenate([[0], sizes])
    possible = before >= 0
    before = np.maximum(before, 0)
    for own in gains:
        total = np.where(possible, best[before] + own, NEVER)
        choice = total.argmax(axis=1)
        chosen.append(choice)
        best = np.take_along_axis(total, choice[:, None], axis=1)[:, 0]
    found, left = np.zeros(len(gains), dtype=np.int64), gpus
    for job in reversed(range(len(gains))):
        choice = chosen[job][left]
        found[job] = sizes[choice - 1] if choice else 0
        left -= found[job]
    return found


def places(topology: Topology, queue: Queue, sizes: Ints, *, keep: bool) -> Ints:
    """The job of each GPU, -1 for none, [M], for jobs of these sizes [J]; the largest job first,
    each into the smallest gap. ``keep``: who has its size already stays where it is.
    """
    owner = np.full(len(topology), -1)
    stays = keep & (sizes == queue.held.sum(axis=1)) & (sizes > 0)
    for job in np.nonzero(stays)[0]:
        owner[queue.held[job]] = job
    for job in np.argsort(-sizes, kind="stable"):
        if sizes[job] and not stays[job]:
            owner[best_fit(topology, owner < 0, int(sizes[job]))] = job
    return owner


class _Search:
    def __init__(self, world: PlacementWorld, law: SpeedLaw, queue: Queue) -> None:
        self._topology, self._law, self._queue = world.config.topology, law, queue
        self._step_s = world.config.model.step_s
        self._weight = 1.0 / queue.length
        self._index = np.arange(len(queue.rows))[:, None]
        self._held_sizes = queue.held.sum(axis=1)

    def _gain(self, speed: Floats, seconds: Floats) -> Floats:
        """[..., J]."""
        share = np.minimum(speed * np.maximum(seconds, 0.0) / self._queue.left, 1.0)
        found: Floats = self._weight * share
        return found

    def scores(self, owners: Ints) -> Floats:
        """The sum of the jobs' gains with shared links, [L, M] -> [L]."""
        queue = self._queue
        assigned = owners[:, None, :] == self._index
        speed = self._law.speeds(assigned, queue.costs)
        same = (assigned == queue.held).all(axis=-1)
        total: Floats = self._gain(speed, self._step_s - np.where(same, 0.0, queue.lost_s)).sum(
            axis=1
        )
        return total

    # --- sizes

    def best_sizes(self, tried: Ints, elastic: bool) -> Ints:
        """GPUs of each job, 0: it waits, [J]."""
        gains, sizes = self._size_gains(tried, elastic)
        return best_sum(gains, sizes, len(self._topology))

    def _size_gains(self, tried: Ints, elastic: bool) -> tuple[Floats, Ints]:
        """What each job gains from no GPU and from each size, [J, S + 1], and the sizes [S]."""
        queue = self._queue
        sizes = tried if elastic else np.unique(queue.asked)
        n = sizes[:, None]
        lost_s = np.where(n == self._held_sizes, 0.0, queue.lost_s)
        gains = self._gain(self._law.packed(n, queue.costs), self._step_s - lost_s).T
        if not elastic:
            gains = np.where(sizes == queue.asked[:, None], gains, NEVER)
        return np.concatenate([np.zeros((len(gains), 1)), gains], axis=1), sizes

    # --- places

    def moves(self, owner: Ints, elastic: bool) -> Iterator[Ints]:
        """For the jobs that spread over racks, which are those that share links between racks."""
        racks = self._topology.racks(owner == self._index)
        spread = np.nonzero(racks > 1)[0]
        free = owner < 0
        for job in spread[:4]:
            mine = owner == job
            size = int(mine.sum())
            without = np.where(mine, -1, owner)
            yield self._placed(without, [(int(job), size)])
            others = [int(other) for other in np.unique(owner[~free]) if other != job]
            for other in others[:6]:
                theirs = owner == other
                pair = sorted(
                    [(int(job), size), (other, int(theirs.sum()))], key=lambda each: -each[1]
                )
                yield self._placed(np.where(theirs, -1, without), pair)
            if elastic:
                for fewer in self._fewer(without, size):
                    yield self._placed(without, [(int(job), fewer)])

    def _fewer(self, without: Ints, size: int) -> list[int]:
        """The sizes that the rack with the most room holds, and half."""
        room = int(np.bincount(self._topology.rack_of[without < 0]).max(initial=0))
        return sorted({min(room, size - 1), size // 2} - {0})

    def _placed(self, owner: Ints, jobs: list[tuple[int, int]]) -> Ints:
        new = owner.copy()
        for job, size in jobs:
            new[best_fit(self._topology, new < 0, size)] = job
        return new
