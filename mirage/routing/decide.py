"""The routing decision, in plain Python: the reference that `lua/mirage_decide.lua` must agree with
in every choice.

Pure: everything comes in as arguments. A job goes to the partition whose agent's best possible
action has the highest value, among the partitions that the user may use and that have a flavour for
it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite

from mirage.errors import MirageError
from mirage.routing.agent import Agent
from mirage.routing.flavors import Demand
from mirage.routing.state import PartitionState, best, features, possible

CLOCK_S = 60
"""A table that is younger than now by more than this is no better than a stale one."""


@dataclass(frozen=True)
class Table:
    """What the daemon publishes. ``at_s``: when the cluster was looked at; ``valid_s``: for how
    long that counts.
    """

    at_s: int
    valid_s: int
    partitions: tuple[PartitionState, ...]

    def is_stale(self, now_s: int) -> bool:
        return not -CLOCK_S <= now_s - self.at_s <= self.valid_s


@dataclass(frozen=True)
class Choice:
    """Where a job goes. ``place``: the server that the agent would take (0 for all of them); None:
    it has to wait.
    """

    partition: str
    flavor: int
    place: int | None
    fits: tuple[str, ...] = ()
    """All partitions that it may go to and that have a flavour for it."""

    @property
    def everywhere(self) -> str:
        """For `sbatch -p`: all of these, the chosen one first."""
        return ",".join((self.partition, *(name for name in self.fits if name != self.partition)))


@dataclass(frozen=True)
class RoutedJob:
    """A job that was routed since the table was made."""

    at_s: int
    choice: Choice
    limit_s: int


def decide(
    table: Table, agents: Sequence[Agent], demand: Demand, allowed: Collection[str]
) -> Choice | None:
    """The choice, or None: no partition that is allowed has a flavour for the job. Of equal
    partitions the first.

    Times are counted from when the table was made, so that what an agent sees of a partition stays
    until it changes.
    """
    chosen: tuple[float, Choice] | None = None
    fits: list[str] = []
    for state, agent in zip(table.partitions, agents, strict=True):
        flavor = state.kind.flavor_of(demand)
        if state.kind.name not in allowed or flavor is None:
            continue
        fits.append(state.kind.name)
        value, place = _judge(state, agent, flavor, demand.limit_s, table.at_s)
        if chosen is None or value > chosen[0]:
            chosen = (value, Choice(state.kind.name, flavor, place))
    return replace(chosen[1], fits=tuple(fits)) if chosen else None


def _judge(
    state: PartitionState, agent: Agent, flavor: int, limit_s: int | None, at_s: int
) -> tuple[float, int | None]:
    """The highest value of what a partition can do with a job now, and the place: it waits only if
    nothing is free.
    """
    can = possible(state, agent.variant, flavor)
    values = agent.values(features(state, agent.variant, flavor, limit_s, at_s))
    action = best(values, list(can))
    if not isfinite(values[action]):
        raise MirageError(
            f"agent of {state.kind.name}: a value is not a finite number; train it again."
        )
    return values[action], can[action]


def limit_of(table: Table, choice: Choice, demand: Demand) -> int:
    """How long the job may run: as it says, or as its flavour does."""
    kind = next(state.kind for state in table.partitions if state.kind.name == choice.partition)
    return kind.flavors[choice.flavor].limit_s if demand.limit_s is None else demand.limit_s


def corrected(table: Table, routed: Iterable[RoutedJob]) -> Table:
    """The table as it would be with these jobs in it: started where they were placed, or waiting.

    Of the second in which the cluster was looked at they count too: better one job twice than a
    burst unseen.
    """
    partitions = {state.kind.name: state for state in deepcopy(table.partitions)}
    for job in routed:
        state = partitions.get(job.choice.partition)
        if state is None or job.at_s < table.at_s:
            continue
        place, flavor = job.choice.place, job.choice.flavor
        if place is not None and place in state.places(flavor):
            state.take(flavor, place, job.at_s + job.limit_s)
        else:
            state.wait(flavor, job.limit_s)
    return replace(table, partitions=tuple(partitions.values()))
