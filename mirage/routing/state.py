"""What an agent sees: a partition's servers, its queue, the arriving job; and the numbers made of
it.

`lua/mirage_decide.lua` computes the same numbers by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from mirage.routing.flavors import Flavor, PartitionKind

QUEUE_UNIT = 8
"""So many queued jobs of a flavour are a feature of 1,"""
QUEUE_PART = 4
"""and so is queued work that would keep all GPUs busy for this part of the longest limit."""


class Variant(str, Enum):
    """What agents see, and what they choose."""

    PAPER = "paper"
    """Free GPUs, CPUs and memory a server (section 5.2); impossible actions are punished, not
    masked. A server is chosen.
    """
    CHOICE = "choice"
    """Counts of all partitions, the job's forecast wait in each, and the job. Chosen is whether it is
    kept off this partition; the value is what that gains over going to all that it fits in.
    """


BLOCK, OF_JOB = 10, 2
"""Features of each partition and of the job, `Variant.CHOICE`."""


@dataclass
class Server:
    """One server: what is free of what it has, and when, by limits, its next and its last job end
    (0: it has none).
    """

    name: str
    total: tuple[int, int, int]
    """GPUs, CPUs, MiB."""
    free: tuple[int, int, int]
    next_end_s: int = 0
    last_end_s: int = 0
    up: bool = True

    def has_room(self, flavor: Flavor) -> bool:
        gpus, cpus, memory_mib = share(flavor)
        return (
            self.up and self.free[0] >= gpus and self.free[1] >= cpus and self.free[2] >= memory_mib
        )

    def take(self, flavor: Flavor, end_s: int) -> None:
        gpus, cpus, memory_mib = share(flavor)
        self.free = (self.free[0] - gpus, self.free[1] - cpus, self.free[2] - memory_mib)
        self.next_end_s = min(self.next_end_s or end_s, end_s)
        self.last_end_s = max(self.last_end_s, end_s)


def share(flavor: Flavor) -> tuple[int, int, int]:
    """What a job of this flavour takes on each of its servers."""
    many = flavor.servers
    return -(-flavor.gpus // many), -(-flavor.cpus // many), -(-flavor.memory_mib // many)


@dataclass
class PartitionState:
    """A partition now."""

    kind: PartitionKind
    servers: list[Server]
    queued: list[int] = field(default_factory=list)
    """Waiting jobs of each flavour,"""
    queued_s: int = 0
    """and the GPU-seconds that they may take, by their limits; of a job that waits in several
    partitions each has its part.
    """
    waits_s: list[int] = field(default_factory=list)
    """How long a job of each flavour is forecast to wait here."""

    @classmethod
    def empty(cls, kind: PartitionKind) -> PartitionState:
        total = (kind.gpus, kind.cpus, kind.memory_mib)
        servers = [
            Server(f"{kind.name}-{number + 1}", total, total) for number in range(kind.servers)
        ]
        return cls(kind, servers, [0] * len(kind.flavors), 0, [0] * len(kind.flavors))

    def places(self, flavor: int) -> list[int]:
        """Where a job of this flavour can run now: servers, or 0 for all of them together."""
        wanted = self.kind.flavors[flavor]
        if wanted.servers > 1:
            return [0] if all(server.has_room(wanted) for server in self.servers) else []
        return [place for place, server in enumerate(self.servers) if server.has_room(wanted)]

    def wait(self, flavor: int, limit_s: int) -> None:
        """A job more in the queue."""
        self.queued[flavor] += 1
        self.queued_s += self.kind.flavors[flavor].gpus * limit_s

    def take(self, flavor: int, place: int, end_s: int) -> None:
        wanted = self.kind.flavors[flavor]
        for server in self.servers if wanted.servers > 1 else [self.servers[place]]:
            server.take(wanted, end_s)

    def may_start(self, flavor: int) -> bool:
        """Whether a job of this flavour would start now: there is room, and nobody waits."""
        return not any(self.queued) and bool(self.places(flavor))


def width(kind: PartitionKind, variant: Variant, partitions: int = 1) -> int:
    """How many features an agent of this partition sees; ``partitions``: how many there are."""
    return 3 * kind.servers if variant is Variant.PAPER else BLOCK * partitions + OF_JOB


def possible(state: PartitionState, flavor: int) -> dict[int, int | None]:
    """Actions for a job of this flavour that can be carried out now -> place (None: it waits).

    It waits only if nothing is free.
    """
    actions, places = state.kind.actions, state.places(flavor)
    if not places:
        return {actions.queue(flavor): None}
    return {actions.run(flavor, place): place for place in places}


def features(state: PartitionState) -> list[float]:
    """(width,), of `Variant.PAPER`: the free share of each server's GPUs, CPUs and memory."""
    return [
        free / total
        for server in state.servers
        for free, total in zip(server.free, server.total, strict=True)
    ]


def choice_blocks(
    states: Sequence[PartitionState], flavors: Sequence[int | None], now_s: int
) -> list[float]:
    """(BLOCK * partitions,): what all agents see of the partitions. ``flavors``: the job's in each;
    None, and zeros here: it may not go there, or does not fit.
    """
    seen: list[float] = []
    for state, flavor in zip(states, flavors, strict=True):
        seen += [0.0] * BLOCK if flavor is None else _block(state, flavor, now_s)
    return seen


def job_features(kind: PartitionKind, flavor: int, limit_s: int | None) -> list[float]:
    """(OF_JOB,): what a partition's agent sees of the job, after the partitions."""
    limit = kind.flavors[flavor].limit_s if limit_s is None else limit_s
    return [_left(limit, kind.longest_s), kind.flavors[flavor].gpus / kind.flavors[-1].gpus]


def _queued_work(state: PartitionState) -> float:
    """GPU-seconds that waiting jobs may take, a GPU."""
    unit_s = state.kind.longest_s / QUEUE_PART
    return min(state.queued_s / sum(server.total[0] for server in state.servers), unit_s) / unit_s


def _block(state: PartitionState, flavor: int, now_s: int) -> list[float]:
    """The job fits; servers with room for it; it would start now; free GPUs; when, by limits,
    servers get room: the first one's next end, the first empty one, and the mean; waiting jobs and
    their work; the forecast wait.

    Servers that are down have no room, and never get any.
    """
    longest_s, many = state.kind.longest_s, len(state.servers)
    up = [server for server in state.servers if server.up]
    rooms = sum(server.has_room(state.kind.flavors[flavor]) for server in up)
    gpus = sum(server.total[0] for server in state.servers)
    nexts = [_within(server.next_end_s - now_s, longest_s) for server in up]
    lasts = [_within(server.last_end_s - now_s, longest_s) for server in up]
    unit = QUEUE_UNIT * many / 2
    return [
        1.0,
        rooms / many,
        1.0 if state.may_start(flavor) else 0.0,
        sum(server.free[0] for server in up) / gpus,
        min(nexts, default=longest_s) / longest_s,
        min(lasts, default=longest_s) / longest_s,
        (sum(lasts) + (many - len(up)) * longest_s) / many / longest_s,
        min(sum(state.queued), unit) / unit,
        _queued_work(state),
        _left(state.waits_s[flavor], longest_s),
    ]


def _left(seconds: int, longest_s: int) -> float:
    return _within(seconds, longest_s) / longest_s


def _within(seconds: int, longest_s: int) -> int:
    return min(max(seconds, 0), longest_s)


def best(values: Sequence[float], actions: Sequence[int]) -> int:
    """The action of the highest value; of equal ones the first."""
    chosen = actions[0]
    for action in actions:
        if values[action] > values[chosen]:
            chosen = action
    return chosen
