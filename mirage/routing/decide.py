"""The routing decision, in plain Python: the reference that `lua/mirage_decide.lua` must agree with
in every choice.

Pure: everything comes in as arguments. Of the partitions that the user may use and that have a
flavour for the job:

- an agent of `Variant.CHOICE` may keep it off its partition, where it expects a gain by that: one
  after the other, the largest gain first. The job goes to all of the rest, and Slurm starts it where
  it first can;
- an agent of `Variant.PAPER` chooses a server: the job goes where the value of its best action is
  highest, and if that is to wait, to all.

Jobs that these agents are not for, and all jobs where there are none, are `places.py`'s.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite

from mirage.errors import MirageError
from mirage.routing.agent import Agent
from mirage.routing.flavors import Demand
from mirage.routing.places import Place
from mirage.routing.state import (
    PartitionState,
    Variant,
    best,
    choice_blocks,
    features,
    job_features,
    possible,
)

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
    """Of agents."""
    places: tuple[Place, ...] = ()

    def is_stale(self, now_s: int) -> bool:
        return not -CLOCK_S <= now_s - self.at_s <= self.valid_s


@dataclass(frozen=True)
class Choice:
    """Where a job goes."""

    partitions: tuple[str, ...]
    """The first one is where it is expected; several: Slurm starts it where it first can."""
    flavors: tuple[int, ...]
    """Its flavour in each of them."""
    place: int | None
    """The server that it would take in the first one (0 for all of them); None: it has to wait."""

    @property
    def names(self) -> str:
        """For `sbatch -p`."""
        return ",".join(self.partitions)


@dataclass(frozen=True)
class RoutedJob:
    """A job that was routed since the table was made."""

    at_s: int
    choice: Choice
    limit_s: int


@dataclass(frozen=True)
class _Fit:
    """A partition that the job may go to: its number, and the job's flavour there."""

    index: int
    state: PartitionState
    flavor: int


def decide(
    table: Table, agents: Sequence[Agent], demand: Demand, allowed: Collection[str]
) -> Choice | None:
    """The choice, or None: no partition that is allowed has a flavour for the job. Of equal
    partitions the first.

    Times are counted from when the table was made, so that what an agent sees of a partition stays
    until it changes.
    """
    fits = [
        _Fit(index, state, flavor)
        for index, state in enumerate(table.partitions)
        if state.kind.name in allowed and (flavor := state.kind.flavor_of(demand)) is not None
    ]
    if not fits:
        return None
    if agents[0].variant is Variant.PAPER:
        return _by_actions(fits, agents)
    return _to_all(_kept(table, fits, agents, demand.limit_s))


def _to_all(fits: Sequence[_Fit]) -> Choice:
    return Choice(
        tuple(fit.state.kind.name for fit in fits), tuple(fit.flavor for fit in fits), None
    )


def _kept(
    table: Table, fits: Sequence[_Fit], agents: Sequence[Agent], limit_s: int | None
) -> list[_Fit]:
    """The partitions that no agent keeps the job off."""
    left = list(fits)
    while len(left) > 1:
        blocks = _blocks(table, left)
        most, worst = 0.0, None
        for fit in left:
            agent = agents[fit.index]
            job = job_features(fit.state.kind, fit.flavor, limit_s)
            value = agent.values(blocks + job)[0]
            _check_finite(value, agent)
            if value > most:
                most, worst = value, fit
        if worst is None:
            break
        left.remove(worst)
    return left


def _blocks(table: Table, fits: Sequence[_Fit]) -> list[float]:
    flavors: list[int | None] = [None] * len(table.partitions)
    for fit in fits:
        flavors[fit.index] = fit.flavor
    return choice_blocks(table.partitions, flavors, table.at_s)


def _by_actions(fits: Sequence[_Fit], agents: Sequence[Agent]) -> Choice:
    highest, chosen = None, _to_all(fits)
    for fit in fits:
        agent = agents[fit.index]
        can = possible(fit.state, fit.flavor)
        values = agent.values(features(fit.state))
        action = best(values, list(can))
        _check_finite(values[action], agent)
        if highest is None or values[action] > highest:
            highest, place = values[action], can[action]
            alone = Choice((fit.state.kind.name,), (fit.flavor,), place)
            chosen = _to_all(fits) if place is None else alone
    return chosen


def _check_finite(value: float, agent: Agent) -> None:
    if not isfinite(value):
        raise MirageError(
            f"agent of {agent.kind.name}: a value is not a finite number; train it again."
        )


def limit_of(table: Table, choice: Choice, demand: Demand) -> int:
    """How long the job may run: as it says, or as its flavour does."""
    kind = next(state.kind for state in table.partitions if state.kind.name == choice.partitions[0])
    return kind.flavors[choice.flavors[0]].limit_s if demand.limit_s is None else demand.limit_s


def corrected(table: Table, routed: Iterable[RoutedJob]) -> Table:
    """The table as it would be with these jobs in it: started where they were placed, or waiting in
    each of their partitions.

    Of the second in which the cluster was looked at they count too: better one job twice than a
    burst unseen.
    """
    partitions = {state.kind.name: state for state in deepcopy(table.partitions)}
    for job in routed:
        if job.at_s < table.at_s:
            continue
        place, names = job.choice.place, job.choice.partitions
        first = partitions.get(names[0])
        if first and place is not None and place in first.places(job.choice.flavors[0]):
            first.take(job.choice.flavors[0], place, job.at_s + job.limit_s)
            continue
        for name, flavor in zip(names, job.choice.flavors, strict=True):
            if name in partitions:
                partitions[name].wait(flavor, job.limit_s // len(names))
    return replace(table, partitions=tuple(partitions.values()))
