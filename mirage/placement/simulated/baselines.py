"""Schedulers without learning, on the same world as the agents.

`random`, `sjf`, `tetris`: the paper's (section 5.3), on DeepRM's allocator: no preemption, the
first free GPUs by number, reserved ahead within the image's rows. The others are what a good
engineer would build; they may pause jobs, as the agents may.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from mirage.placement.packing import best_fit
from mirage.placement.simulated.world import PlacementWorld
from mirage.placement.topology import Bools, Floats, Ints, Topology


class Placer(Protocol):
    """Decides each time step which job has which GPU."""

    name: str
    leaves_slots: bool
    """Whether it needs a world with `leave_slots`."""

    def reset(self, world: PlacementWorld) -> None:
        """Called at the start of an episode."""

    def decide(self, world: PlacementWorld) -> Ints:
        """The row of each GPU's job, or `world.rows` for none, [B, M]."""


@dataclass(kw_only=True)
class _Reservation:
    row: int
    gpus: Ints
    start_step: int


Rule = Callable[[PlacementWorld, int, Ints, int, np.random.Generator], Ints]
"""PlacementWorld, cluster, waiting slots, free GPUs, random numbers -> the slots, first choice first."""


def _random(
    _world: PlacementWorld, _cluster: int, slots: Ints, _free: int, rng: np.random.Generator
) -> Ints:
    return rng.permutation(slots)


def _shortest(
    world: PlacementWorld, cluster: int, slots: Ints, _free: int, _rng: np.random.Generator
) -> Ints:
    return slots[np.argsort(world.length[cluster, world.slot_job[cluster, slots]], kind="stable")]


def _tetris(
    world: PlacementWorld, cluster: int, slots: Ints, free: int, _rng: np.random.Generator
) -> Ints:
    """Greatest request times free GPUs: with one resource, the greatest request."""
    product = world.gpus[cluster, world.slot_job[cluster, slots]] * free
    return slots[np.argsort(-product, kind="stable")]


RULES: dict[str, Rule] = {"random": _random, "sjf": _shortest, "tetris": _tetris}


@dataclass(kw_only=True)
class Reserving:
    """Picks jobs by a rule; gives each the first free GPUs, all from one time step on.

    A job is taken if it would end within the image's rows, by its length; else it waits.
    """

    name: str
    seed: int = 0
    leaves_slots: bool = True
    _rule: Rule = field(init=False)

    def __post_init__(self) -> None:
        self._rule = RULES[self.name]

    def reset(self, world: PlacementWorld) -> None:
        self._rng = np.random.default_rng(self.seed)
        self._reserved: list[list[_Reservation]] = [[] for _ in range(world.clusters)]

    def decide(self, world: PlacementWorld) -> Ints:
        gpus = world.assigned.shape[-1]
        actions = np.full((world.clusters, gpus), world.rows)
        for cluster in np.nonzero(~world.over)[0]:
            self._decide_one(world, int(cluster), actions[cluster])
        return actions

    def _decide_one(self, world: PlacementWorld, cluster: int, action: Ints) -> None:
        free_at = np.full(len(action), world.time)
        for row in np.nonzero(world.assigned[cluster].any(axis=-1))[0]:
            held = world.assigned[cluster, row]
            action[held] = row
            free_at[held] = world.time + _steps_left(world, cluster, int(row))
        for each in self._start(cluster, world.rows, action):
            free_at[each.gpus] = (
                world.time + world.length[cluster, world.slot_job[cluster, each.row]]
            )
        for each in self._reserved[cluster]:
            length = int(world.length[cluster, world.slot_job[cluster, each.row]])
            free_at[each.gpus] = np.maximum(free_at[each.gpus], each.start_step) + length
        for slot, gpus, start in self._choices(world, cluster, free_at, action):
            place = world.commit(cluster, slot)
            if place is None:
                return
            if start == world.time:
                action[gpus] = place
            else:
                self._reserved[cluster].append(_Reservation(row=place, gpus=gpus, start_step=start))

    def _start(self, cluster: int, nobody: int, action: Ints) -> list[_Reservation]:
        """Reserved jobs start as soon as all their GPUs are free, in the order of reservation."""
        left, started = [], []
        claimed = np.zeros(len(action), dtype=bool)
        for each in self._reserved[cluster]:
            if (action[each.gpus] == nobody).all() and not claimed[each.gpus].any():
                action[each.gpus] = each.row
                started.append(each)
            else:
                left.append(each)
            claimed[each.gpus] = True
        self._reserved[cluster] = left
        return started

    def _choices(
        self, world: PlacementWorld, cluster: int, free_at: Ints, action: Ints
    ) -> Iterator[tuple[int, Ints, int]]:
        """Jobs that can be placed, one after the other: slot, GPUs, first time step."""
        horizon = world.time + world.config.model.rows
        refused: set[int] = set()
        while True:
            slots = np.nonzero(world.filled[cluster, : world.config.slots])[0]
            jobs = world.slot_job[cluster, slots]
            slots = slots[[int(job) not in refused for job in jobs]]
            if not len(slots):
                return
            free = int((action == world.rows).sum())
            slot = int(self._rule(world, cluster, slots, free, self._rng)[0])
            job = int(world.slot_job[cluster, slot])
            start = int(np.sort(free_at)[world.gpus[cluster, job] - 1])
            if start + world.length[cluster, job] > horizon:
                refused.add(job)
                continue
            gpus = np.nonzero(free_at <= start)[0][: world.gpus[cluster, job]]
            free_at[gpus] = start + world.length[cluster, job]
            yield slot, gpus, start


def _steps_left(world: PlacementWorld, cluster: int, row: int) -> int:
    job = world.slot_job[cluster, row]
    left = world.total[cluster, job] - world.done[cluster, job]
    each_step = world.speed[cluster, row] * world.config.model.step_s
    return max(1, int(np.ceil(left / each_step))) if each_step > 0 else 1


Order = Callable[[PlacementWorld, Floats], Floats]
"""PlacementWorld, GPU-steps that each row's job has had [B, rows] -> its place in line; lowest first."""


def _arrival(world: PlacementWorld, _service: Floats) -> Floats:
    return np.asarray(world.of_slots(world.arrival), dtype=np.float64)


def _time_left(world: PlacementWorld, _service: Floats) -> Floats:
    """SRTF: the time left alone on one rack with the GPUs that it asks for."""
    return world.remaining() / np.asarray(world.of_slots(world.idle_cost), dtype=np.float64)


LAS_QUEUE_GPU_STEPS = 20.0
"""Tiresias: jobs with less service than this go first; each queue by arrival (its section 3.2)."""


def _attained(world: PlacementWorld, service: Floats) -> Floats:
    late = 1e6 * (service >= LAS_QUEUE_GPU_STEPS)
    return late + _arrival(world, service)


ORDERS: dict[str, Order] = {"best-fit": _arrival, "srtf": _time_left, "las": _attained}


@dataclass(kw_only=True)
class Preemptive:
    """Jobs in an order get the GPUs that they ask for, packed close; who does not fit is skipped.

    A job that runs keeps its GPUs while its turn comes before they are gone. `best-fit` (arrival
    order) so pauses nobody, since nobody comes before who runs.
    """

    name: str
    leaves_slots: bool = False
    _order: Order = field(init=False)

    def __post_init__(self) -> None:
        self._order = ORDERS[self.name]

    def reset(self, world: PlacementWorld) -> None:
        self._service = np.zeros(world.arrival.shape)

    def decide(self, world: PlacementWorld) -> Ints:
        service = np.asarray(world.of_slots(self._service), dtype=np.float64)
        rank = np.where(world.filled, self._order(world, service), np.inf)
        if self.name == "best-fit":
            rank = rank - 1e9 * world.assigned.any(axis=-1)
        actions = np.full((world.clusters, world.assigned.shape[-1]), world.rows)
        for cluster in np.nonzero(~world.over)[0]:
            self._decide_one(world, int(cluster), np.argsort(rank[cluster], kind="stable"), actions)
        return actions

    def _decide_one(self, world: PlacementWorld, cluster: int, order: Ints, actions: Ints) -> None:
        free = np.ones(actions.shape[1], dtype=bool)
        chosen = _chosen(world, cluster, order, len(free))
        for row in chosen:
            held = world.assigned[cluster, row]
            if held.any():
                actions[cluster, held] = row
                free &= ~held
        for row in chosen:
            job = world.slot_job[cluster, row]
            if not world.assigned[cluster, row].any():
                gpus = best_fit(world.config.topology, free, int(world.gpus[cluster, job]))
                actions[cluster, gpus] = row
                free[gpus] = False
            self._service[cluster, job] += world.gpus[cluster, job]


def _chosen(world: PlacementWorld, cluster: int, order: Ints, gpus: int) -> list[int]:
    """The rows that run: in order, each that still fits by its number of GPUs."""
    chosen = []
    for row in order:
        if not world.filled[cluster, row]:
            break
        wanted = int(world.gpus[cluster, world.slot_job[cluster, row]])
        if wanted <= gpus:
            chosen.append(int(row))
            gpus -= wanted
    return chosen


@dataclass(kw_only=True)
class Greedy:
    """Steepest ascent on equation 4 from the present assignment, by the moves of `improve`."""

    name: str = "greedy"
    leaves_slots: bool = False
    elastic: bool = True
    """Whether a job may get more or fewer GPUs than it asks for."""
    most_moves: int = 24
    """Moves in a time step, for each 32 GPUs."""

    def reset(self, world: PlacementWorld) -> None:
        """Keeps nothing."""

    def decide(self, world: PlacementWorld) -> Ints:
        gpus = world.assigned.shape[-1]
        actions = np.full((world.clusters, gpus), world.rows)
        moves = self.most_moves * max(1, gpus // 32)
        for cluster in np.nonzero(~world.over)[0]:
            assigned = improve(
                world, int(cluster), world.assigned[cluster], moves, elastic=self.elastic
            )
            held = assigned.any(axis=0)
            actions[cluster, held] = assigned.argmax(axis=0)[held]
        return actions


_CHUNK = 256
"""Moves that are judged at once; bounds the memory."""


def improve(
    world: PlacementWorld, cluster: int, assigned: Bools, most_moves: int, *, elastic: bool = True
) -> Bools:
    """The moves that raise equation 4 most, one after the other, until none does.

    ``assigned`` [rows, M]. Moves: a GPU to a job or to none (if ``elastic``); two GPUs change
    places; a job starts on the best free GPUs, as many as it asks for; a job is paused. Ends after
    ``most_moves``.
    """
    score = world.rewards_of(cluster, assigned[None])[0]
    for _ in range(most_moves):
        moves = _moves(world, cluster, assigned, elastic)
        if not len(moves):
            break
        scores = np.concatenate(
            [
                world.rewards_of(cluster, moves[begin : begin + _CHUNK])
                for begin in range(0, len(moves), _CHUNK)
            ]
        )
        best = int(scores.argmax())
        if scores[best] <= score + 1e-12:
            break
        assigned, score = moves[best], scores[best]
    return assigned


def _moves(world: PlacementWorld, cluster: int, assigned: Bools, elastic: bool) -> Bools:
    """Of moves that differ only by GPUs that are alike, the first. [L, rows, M]."""
    rows, gpus = assigned.shape
    owner = np.where(assigned.any(axis=0), assigned.argmax(axis=0), rows)
    jobs = [*np.nonzero(world.filled[cluster])[0], rows]
    kinds = _kinds(world.config.topology, owner)
    owners = []
    if elastic:
        for gpu in np.sort(np.unique(kinds, return_index=True)[1]):
            for job in jobs:
                if job != owner[gpu]:
                    new = owner.copy()
                    new[gpu] = job
                    owners.append(new)
    for gpu, other in _pairs(world.config.topology, owner, kinds):
        new = owner.copy()
        new[gpu], new[other] = owner[other], owner[gpu]
        owners.append(new)
    owners += _whole_jobs(world, cluster, owner)
    table = np.array(owners).reshape(-1, gpus)
    stacked: Bools = table[:, None, :] == np.arange(rows)[:, None]
    return stacked


def _kinds(topology: Topology, owner: Ints) -> Ints:
    """Equal for GPUs that are alike, [M]: of one job, in sockets, nodes and racks that jobs share
    in the same way. Sockets, nodes and racks themselves are alike, as in all simulated topologies.
    """
    kinds = owner
    for places in (topology.socket_of, topology.node_of, topology.rack_of):
        order = np.lexsort((kinds, places))
        sizes = np.bincount(places)
        begins = np.cumsum(sizes) - sizes
        content = np.full((len(sizes), sizes.max()), -1)
        nth = np.arange(len(kinds)) - begins[places[order]]
        content[places[order], nth] = kinds[order]
        of_place = np.unique(content, axis=0, return_inverse=True)[1].reshape(-1)
        names = of_place[places] * (kinds.max() + 1) + kinds
        kinds = np.unique(names, return_inverse=True)[1].reshape(-1)
    return kinds


def _pairs(topology: Topology, owner: Ints, kinds: Ints) -> Iterator[tuple[int, int]]:
    """Two GPUs of different jobs; of pairs of the same kinds, equally far apart, the first."""
    first, second = np.triu_indices(len(owner), 1)
    differ = owner[first] != owner[second]
    first, second = first[differ], second[differ]
    apart = np.zeros(len(first), dtype=np.int64)
    for places in (topology.socket_of, topology.node_of, topology.rack_of):
        apart += places[first] != places[second]
    low, high = np.minimum(kinds[first], kinds[second]), np.maximum(kinds[first], kinds[second])
    names = (low * (kinds.max() + 1) + high) * 4 + apart
    chosen = np.sort(np.unique(names, return_index=True)[1])
    yield from zip(first[chosen].tolist(), second[chosen].tolist(), strict=True)


def _whole_jobs(world: PlacementWorld, cluster: int, owner: Ints) -> list[Ints]:
    """Each job started with all that it asks for, if that is free; each running job paused."""
    found = []
    free = owner == world.rows
    for row in np.nonzero(world.filled[cluster])[0]:
        new = owner.copy()
        wanted = int(world.gpus[cluster, world.slot_job[cluster, row]])
        if (owner == row).any():
            new[owner == row] = world.rows
        elif free.sum() >= wanted:
            new[best_fit(world.config.topology, free, wanted)] = row
        else:
            continue
        found.append(new)
    return found


def baseline(name: str, *, seed: int = 0) -> Placer:
    """A scheduler by its name. Raises KeyError."""
    if name in RULES:
        return Reserving(name=name, seed=seed)
    if name in ORDERS:
        return Preemptive(name=name)
    if name in GREEDY:
        return Greedy(name=name, elastic=name == "greedy")
    raise KeyError(name)


GREEDY = ("greedy", "greedy-as-asked")
"""The second gives each job what it asks for, or nothing."""
BASELINES = (*RULES, *ORDERS, *GREEDY)
