"""The routing decision, in plain Python: the reference that `lua/mirage_decide.lua` must agree with
in every choice.

Pure: everything comes in as arguments. Of the partitions that the user may use and that have a
flavour for the job:

- without agents it is kept off a slow partition where, by limits, it would be over sooner elsewhere.
  If the rest are equally fast it goes where it would start now, to the one with the tightest server.
  Else, and if it has to wait, it goes to all of the rest, and Slurm starts it where it first can;
- an agent of `Variant.CHOICE` may keep it off its partition, where it expects a gain by that: one
  after the other, the largest gain first, and the rule above decides among the rest;
- other agents choose a server: the job goes where the value of its best action is highest, and if
  that is to wait, to all.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from math import isfinite

from mirage.errors import MirageError
from mirage.routing.agent import Agent
from mirage.routing.flavors import Demand
from mirage.routing.state import (
    PartitionState,
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
    if agents[fits[0].index].variant.has_actions:
        return _by_actions(fits, agents, demand.limit_s, table.at_s)
    fast = _fast_enough(fits, demand.limit_s, table.at_s)
    return _by_room(_kept(table, fast, agents, demand.limit_s) if agents[0].layers else fast)


def _to_all(fits: Sequence[_Fit]) -> Choice:
    return Choice(
        tuple(fit.state.kind.name for fit in fits), tuple(fit.flavor for fit in fits), None
    )


def _by_room(fits: Sequence[_Fit]) -> Choice:
    """Of equally fast partitions best fit where there is room, else all; of others all, first the
    fastest in which it would start now.
    """
    ready = [fit for fit in fits if fit.state.may_start(fit.flavor)]
    if not ready:
        return _to_all(fits)
    found = min(ready, key=lambda fit: (-fit.state.kind.speed, _fewest_free(fit)))
    are_equal = len({fit.state.kind.speed for fit in fits}) == 1
    rest = [] if are_equal else [fit for fit in fits if fit is not found]
    return replace(_to_all([found, *rest]), place=_tightest(found))


def _fast_enough(fits: Sequence[_Fit], limit_s: int | None, at_s: int) -> list[_Fit]:
    """The partitions in which the job may start without being over later than elsewhere: the one
    where most time is lost goes first, and only where the rule would send the job.
    """
    left = list(fits)
    while len(left) > 1:
        names = _by_room(left).partitions
        most, worst = 0.0, None
        for fit in left:
            lost_s = _lost_s(fit, left, limit_s, at_s) if fit.state.kind.name in names else 0.0
            if lost_s > most:
                most, worst = lost_s, fit
        if worst is None:
            break
        left.remove(worst)
    return left


def _lost_s(fit: _Fit, fits: Sequence[_Fit], limit_s: int | None, at_s: int) -> float:
    """By how much the job is over later if it starts here now than if it waits for a faster
    partition, by limits; 0 or less: none is sooner.
    """
    speed, most = fit.state.kind.speed, 0.0
    limit = fit.state.kind.flavors[fit.flavor].limit_s if limit_s is None else limit_s
    for other in fits:
        if other.state.kind.speed > speed:
            saved_s = limit / speed - limit / other.state.kind.speed
            wait_s = 0.0 if other.state.may_start(other.flavor) else other.state.work_s(at_s)
            most = max(most, saved_s - wait_s)
    return most


def _tightest(fit: _Fit) -> int:
    return fit.state.tightest(fit.state.places(fit.flavor))


def _fewest_free(fit: _Fit) -> int:
    return fit.state.servers[_tightest(fit)].free[0]


def _kept(
    table: Table, fits: Sequence[_Fit], agents: Sequence[Agent], limit_s: int | None
) -> list[_Fit]:
    """The partitions that no agent keeps the job off. Only those are asked where the rule would
    send it.
    """
    left = list(fits)
    while len(left) > 1:
        blocks = _blocks(table, left)
        names = _by_room(left).partitions
        most, worst = 0.0, None
        for fit in left:
            if fit.state.kind.name in names:
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


def _by_actions(
    fits: Sequence[_Fit], agents: Sequence[Agent], limit_s: int | None, at_s: int
) -> Choice:
    highest, chosen = None, _to_all(fits)
    for fit in fits:
        agent = agents[fit.index]
        can = possible(fit.state, fit.flavor)
        values = agent.values(features(fit.state, agent.variant, fit.flavor, limit_s, at_s))
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
