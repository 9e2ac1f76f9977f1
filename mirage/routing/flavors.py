"""Partitions of equal GPU servers, and the flavours (sizes of jobs) that each offers: data, in
TOML.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib import resources
from pathlib import Path
from typing import Any

from mirage.errors import InputError
from slurm_sim.files import read_text
from slurm_sim.formats import parse_toml
from slurm_sim.seconds import HOUR_S


@dataclass(frozen=True)
class Demand:
    """What a job asks for, in whole. ``limit_s`` None: the flavour's."""

    gpus: int
    cpus: int = 1
    memory_mib: int = 0
    limit_s: int | None = None
    nodes: int = 1
    gpu_type: str = ""
    """Empty: any."""


@dataclass(frozen=True)
class Flavor:
    """A size of jobs; resources are those of the whole job, spread evenly over its servers."""

    name: str
    gpus: int
    cpus: int
    memory_mib: int
    limit_s: int
    servers: int = 1

    def covers(self, demand: Demand) -> bool:
        return (
            demand.gpus <= self.gpus
            and demand.cpus <= self.cpus
            and demand.memory_mib <= self.memory_mib
            and demand.nodes <= self.servers
            and (demand.limit_s is None or demand.limit_s <= self.limit_s)
        )


@dataclass(frozen=True)
class PartitionKind:
    """A partition: equal servers with these GPUs, CPUs, memory and watts each; flavours from small
    to large.
    """

    name: str
    servers: int
    gpus: int
    cpus: int
    memory_mib: int
    idle_w: float
    busy_w: float
    flavors: tuple[Flavor, ...]
    speeds: tuple[float, ...] = (1.0,)
    """How fast jobs of streams run here, of each type in turn; the unit is the same in all
    partitions.
    """

    @cached_property
    def longest_s(self) -> int:
        """The longest limit, the unit of remaining times."""
        return max(flavor.limit_s for flavor in self.flavors)

    def rate(self, flavor: Flavor) -> float:
        """The paper's lambda: a flavour's share of the whole partition."""
        return flavor.gpus / (self.servers * self.gpus)

    def flavor_of(self, demand: Demand) -> int | None:
        """Index of the smallest flavour that covers the demand; None: the job does not fit here."""
        return next(
            (index for index, flavor in enumerate(self.flavors) if flavor.covers(demand)), None
        )

    @cached_property
    def actions(self) -> Actions:
        """Of agents that choose a server."""
        return Actions([self.servers if flavor.servers == 1 else 1 for flavor in self.flavors])


class Actions:
    """Numbers of a partition's actions (section 5.2): each flavour on each server, then queueing
    each flavour.

    A flavour of several servers takes all of the partition's, so it has one place to run.
    """

    def __init__(self, places: Sequence[int]) -> None:
        """``places``: of each flavour."""
        self.places = tuple(places)
        self._first = tuple(sum(self.places[:index]) for index in range(len(self.places)))
        self._queues = sum(self.places)
        self.count = self._queues + len(self.places)

    def run(self, flavor: int, place: int) -> int:
        return self._first[flavor] + place

    def queue(self, flavor: int) -> int:
        return self._queues + flavor

    def of(self, flavor: int) -> tuple[int, ...]:
        """All actions for a job of this flavour; the last one queues it."""
        first = self._first[flavor]
        return (*range(first, first + self.places[flavor]), self.queue(flavor))

    def place(self, flavor: int, action: int) -> int | None:
        """Where an action runs a job of this flavour; None: it queues it."""
        return None if self.is_queue(action) else action - self._first[flavor]

    def is_queue(self, action: int) -> bool:
        return action >= self._queues


def paper_partitions() -> tuple[PartitionKind, ...]:
    """The paper's A100 and V100."""
    text = resources.files("mirage.routing").joinpath("flavors.toml").read_text(encoding="utf-8")
    return parse_partitions(text, "flavors.toml")


def load_partitions(path: Path | None) -> tuple[PartitionKind, ...]:
    """Partitions from a TOML file (docs/routing.md); None: the paper's. Raises InputError."""
    if path is None:
        return paper_partitions()
    try:
        return parse_partitions(read_text(path), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(
            f"{path}: can't be read ({error}); give a flavors.toml (docs/routing.md)."
        ) from error


def parse_partitions(text: str, name: str) -> tuple[PartitionKind, ...]:
    """Raises InputError that names the partition and the key."""
    try:
        tree = parse_toml(text)
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"{name}: not TOML: {error}") from error
    if not tree:
        raise InputError(f"{name}: no partition in it; give a table for each (docs/routing.md).")
    kinds = tuple(_partition(name, key, value) for key, value in tree.items())
    other = next((kind for kind in kinds if len(kind.speeds) != len(kinds[0].speeds)), None)
    if other is not None:
        raise InputError(
            f"{name}: [{other.name}]: speeds: {len(other.speeds)} types of jobs,"
            f" {len(kinds[0].speeds)} in [{kinds[0].name}]; give as many in each."
        )
    return kinds


def _partition(file: str, name: str, table: Any) -> PartitionKind:
    where = f"{file}: [{name}]"
    listed = table.get("flavors") if isinstance(table, Mapping) else None
    if not isinstance(listed, list) or not listed:
        raise InputError(f"{where}: flavors: give at least one [[{name}.flavors]].")
    flavors = tuple(_flavor(f"{where} flavors", item) for item in listed)
    kind = PartitionKind(
        name,
        servers=_whole(where, table, "servers"),
        gpus=_whole(where, table, "gpus"),
        cpus=_whole(where, table, "cpus"),
        memory_mib=_whole(where, table, "memory_mib"),
        idle_w=_watts(where, table, "idle_w"),
        busy_w=_watts(where, table, "busy_w"),
        flavors=flavors,
        speeds=_speeds(where, table.get("speeds", [1.0])),
    )
    _check_sizes(where, kind)
    return kind


def _check_sizes(where: str, kind: PartitionKind) -> None:
    for flavor in kind.flavors:
        if flavor.servers not in (1, kind.servers):
            raise InputError(
                f"{where}: {flavor.name}: servers is {flavor.servers}; give 1 or all"
                f" {kind.servers}."
            )
        for key in ("gpus", "cpus", "memory_mib"):
            if getattr(flavor, key) > flavor.servers * getattr(kind, key):
                raise InputError(
                    f"{where}: {flavor.name}: more {key} than {flavor.servers} server(s) have."
                )
    if [flavor.gpus for flavor in kind.flavors] != sorted(flavor.gpus for flavor in kind.flavors):
        raise InputError(f"{where}: flavors: list them from the fewest GPUs to the most.")


def _flavor(where: str, item: Mapping[str, Any]) -> Flavor:
    name = item.get("name")
    if not isinstance(name, str) or not name or len(name.split()) != 1:
        raise InputError(f"{where}: name: expected one word, got {name!r}.")
    gpus, cpus, memory_mib, servers = (
        _whole(f"{where} {name}", {"servers": 1} | dict(item), key)
        for key in ("gpus", "cpus", "memory_mib", "servers")
    )
    return Flavor(
        name=name,
        gpus=gpus,
        cpus=cpus,
        memory_mib=memory_mib,
        limit_s=_limit_s(f"{where} {name}", item),
        servers=servers,
    )


def _limit_s(where: str, item: Mapping[str, Any]) -> int:
    """From `limit_h`, hours; 0.5 is half an hour."""
    value = item.get("limit_h")
    if (
        not isinstance(value, int | float)
        or isinstance(value, bool)
        or not 60 <= value * HOUR_S < 2**31
    ):
        raise InputError(
            f"{where}: limit_h: expected hours, at least a minute (0.017), got {value!r}."
        )
    return round(value * HOUR_S)


def _whole(where: str, table: Mapping[str, Any], key: str) -> int:
    value = table.get(key)
    if type(value) is not int or not 1 <= value < 2**31:
        raise InputError(f"{where}: {key}: expected a whole number from 1, got {value!r}.")
    return value


def _watts(where: str, table: Mapping[str, Any], key: str) -> float:
    value = table.get(key)
    if not isinstance(value, int | float) or isinstance(value, bool) or not 0 <= value < 1e9:
        raise InputError(f"{where}: {key}: expected watts, got {value!r}.")
    return float(value)


def _speeds(where: str, values: object) -> tuple[float, ...]:
    if not isinstance(values, list) or not values or not all(map(_is_speed, values)):
        raise InputError(
            f"{where}: speeds: expected a list of numbers from 0.01 to 100, got {values!r}."
        )
    return tuple(map(float, values))


def _is_speed(value: object) -> bool:
    return isinstance(value, int | float) and type(value) is not bool and 0.01 <= value <= 100
