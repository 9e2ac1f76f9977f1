"""What an agent sees: a partition's servers, its queue, the arriving job; and the numbers made of
it.

`lua/mirage_decide.lua` computes the same numbers by the same operations in the same order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum

from mirage.routing.flavors import Actions, Flavor, PartitionKind

QUEUE_UNIT = 8
"""So many queued jobs of a flavour are a feature of 1,"""
QUEUE_PART = 4
"""and so is queued work that would keep all GPUs busy for this part of the longest limit."""


class Variant(str, Enum):
    """What agents see and whether impossible actions are masked."""

    PAPER = "paper"
    """Free GPUs, CPUs and memory a server (section 5.2); impossible actions are punished, not
    masked.
    """
    OURS = "ours"
    """Also when servers become free, the queue and the arriving job; impossible actions are masked.
    """
    COUNTS = "counts"
    """The same, but servers are counted, not listed: as large for a hundred servers as for two."""


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
    """and the GPU-seconds that they may take, by their limits."""

    @classmethod
    def empty(cls, kind: PartitionKind) -> PartitionState:
        total = (kind.gpus, kind.cpus, kind.memory_mib)
        servers = [
            Server(f"{kind.name}-{number + 1}", total, total) for number in range(kind.servers)
        ]
        return cls(kind, servers, [0] * len(kind.flavors))

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

    def tightest(self, places: Sequence[int]) -> int:
        """Of servers the one with the fewest free GPUs; of equal ones the first."""
        return min(places, key=lambda place: self.servers[place].free[0])


def width(kind: PartitionKind, variant: Variant) -> int:
    """How many features an agent of this partition sees."""
    flavors = len(kind.flavors)
    sizes = {
        Variant.PAPER: 3 * kind.servers,
        Variant.OURS: 5 * kind.servers + 2 * flavors + 2,
        Variant.COUNTS: 3 * flavors + 6,
    }
    return sizes[variant]


def actions_of(kind: PartitionKind, variant: Variant) -> Actions:
    return kind.shared_actions if variant is Variant.COUNTS else kind.actions


def possible(state: PartitionState, variant: Variant, flavor: int) -> dict[int, int | None]:
    """Actions for a job of this flavour that can be carried out now -> place (None: it waits).

    It waits only if nothing is free. An agent that chooses no server has the tightest one.
    """
    actions, places = actions_of(state.kind, variant), state.places(flavor)
    if not places:
        return {actions.queue(flavor): None}
    if variant is Variant.COUNTS:
        return {actions.run(flavor, 0): state.tightest(places)}
    return {actions.run(flavor, place): place for place in places}


def features(
    state: PartitionState, variant: Variant, flavor: int, limit_s: int | None = None, now_s: int = 0
) -> list[float]:
    """(width,): each from 0 to 1, first the partition's, then the job's. ``limit_s`` None: the
    flavour's limit.
    """
    if variant is Variant.PAPER:
        return _free(state)
    longest_s = state.kind.longest_s
    if variant is Variant.COUNTS:
        seen, unit = _counts(state, now_s), QUEUE_UNIT * state.kind.servers / 2
    else:
        seen, unit = _free(state), QUEUE_UNIT
        for server in state.servers:
            seen.append(_left(server.next_end_s - now_s, longest_s))
            seen.append(_left(server.last_end_s - now_s, longest_s))
    seen.extend(min(count, unit) / unit for count in state.queued)
    unit_s = longest_s / QUEUE_PART
    seen.append(
        min(state.queued_s / sum(server.total[0] for server in state.servers), unit_s) / unit_s
    )
    seen.extend(1.0 if index == flavor else 0.0 for index in range(len(state.queued)))
    seen.append(
        _left(state.kind.flavors[flavor].limit_s if limit_s is None else limit_s, longest_s)
    )
    return seen


def _free(state: PartitionState) -> list[float]:
    return [
        free / total
        for server in state.servers
        for free, total in zip(server.free, server.total, strict=True)
    ]


def _counts(state: PartitionState, now_s: int) -> list[float]:
    """Servers with room for each flavour, free GPUs, and when, by limits, servers get room: the
    first, and on average.

    Servers that are down have no room, and never get any.
    """
    longest_s, many = state.kind.longest_s, len(state.servers)
    up = [server for server in state.servers if server.up]
    seen = [sum(server.has_room(flavor) for server in up) / many for flavor in state.kind.flavors]
    seen.append(
        sum(server.free[0] for server in up) / sum(server.total[0] for server in state.servers)
    )
    nexts = [_within(server.next_end_s - now_s, longest_s) for server in up]
    lasts = [_within(server.last_end_s - now_s, longest_s) for server in up]
    seen.append(min(nexts, default=longest_s) / longest_s)
    seen.append(min(lasts, default=longest_s) / longest_s)
    seen.append((sum(lasts) + (many - len(up)) * longest_s) / many / longest_s)
    return seen


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
