"""Training on streams: all partitions' agents together, on the wait that each routed job then has.

    Q_p(s_p, a) -> -wait + discount * max over partitions p' and their possible actions a' of
    Q'_p'(s'_p', a')

Each agent sees its own partition and the arriving job only; the partition with the highest value
gets the job, so values of different agents are comparable: all are the waiting, in days, that the
choice brings to this job and, discounted, to those that arrive next. The waits are known when the
stream is over; it is remembered then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from mirage.routing.agent import Agent
from mirage.routing.arrivals import StreamJob, draw_stream, read_history
from mirage.routing.dqn import DqnOptions, make_network, to_agent
from mirage.routing.flavors import PartitionKind
from mirage.routing.lessons import Taught
from mirage.routing.state import (
    PartitionState,
    Variant,
    actions_of,
    best,
    features,
    possible,
    width,
)
from mirage.routing.stream import (
    EVERYWHERE,
    Arriving,
    Stream,
    StreamOutcome,
    StreamRule,
    route_stream,
)

STREAMS = 80
UPDATES = 300
"""After each stream."""
TRIALS, TRIED_EVERY = 8, 5
"""In the second half, after so many streams, the agents are tried on so many others; the best ones
are kept.
"""
DAY_S = 86400.0
LONGEST_D = 10.0
"""A longer wait counts as this many days."""
OPTIONS = replace(
    DqnOptions(), hidden=(16, 8), discount=0.8, rate=1e-3, epsilon_end=0.05, memory=40_000
)


class View(NamedTuple):
    """What one agent sees of an arriving job, and its best possible action."""

    inputs: list[float]
    possible: list[int]


def view(state: PartitionState, variant: Variant, asked: Arriving) -> View | None:
    """None: the partition has no flavour for the job."""
    flavor = state.kind.flavor_of(asked.demand)
    if flavor is None:
        return None
    can = list(possible(state, variant, flavor))
    return View(features(state, variant, flavor, asked.demand.limit_s, asked.now_s), can)


def agents_rule(agents: Sequence[Agent], *, wait_everywhere: bool = False) -> StreamRule:
    """The partition of the highest value, as `mirage.routing.decide.decide` has it.

    ``wait_everywhere``: a job that can't start there now goes to all partitions.
    """

    def rule(asked: Arriving) -> str:
        highest, chosen, waits = -np.inf, "", False
        for agent, state in zip(agents, asked.states, strict=True):
            seen = view(state, agent.variant, asked)
            if seen is None:
                continue
            values = agent.values(seen.inputs)
            action = best(values, seen.possible)
            if values[action] > highest:
                highest, chosen = values[action], state.kind.name
                waits = actions_of(state.kind, agent.variant).is_queue(action)
        return EVERYWHERE if waits and wait_everywhere else chosen

    return rule


@dataclass
class Choice:
    """One decision of a stream: what all agents saw, and who got the job."""

    views: list[View]
    partition: int
    action: int
    reward_d: float = 0.0


class Team:
    """The agents' networks, their target networks and their memory."""

    def __init__(
        self,
        kinds: Sequence[PartitionKind],
        variant: Variant,
        options: DqnOptions,
        random: np.random.Generator,
    ) -> None:
        self.kinds, self.variant, self.options, self.random = kinds, variant, options, random
        self.networks = nn.ModuleList(make_network(kind, variant, options.hidden) for kind in kinds)
        self._targets = deepcopy(self.networks)
        self._optimizer = torch.optim.Adam(self.networks.parameters(), lr=options.rate)
        self._updates = self._count = 0
        self._best_d, self._best = np.inf, deepcopy(self.networks.state_dict())
        size = options.memory
        self._seen = [np.zeros((size, width(kind, variant)), np.float32) for kind in kinds]
        self._possible = [
            np.zeros((size, actions_of(kind, variant).count), np.bool_) for kind in kinds
        ]
        self._partition, self._action = np.zeros(size, np.int64), np.zeros(size, np.int64)
        self._reward, self._last = np.zeros(size, np.float32), np.zeros(size, np.bool_)

    def choose(self, asked: Arriving, epsilon: float) -> Choice:
        views = [view(state, self.variant, asked) for state in asked.states]
        seen = [each for each in views if each is not None]
        assert len(seen) == len(views), "streams hold only jobs that fit everywhere"
        values = [self._value(index, each) for index, each in enumerate(seen)]
        explores = self.random.random() < epsilon
        partition = (
            int(self.random.integers(len(seen)))
            if explores
            else int(np.argmax([v for v, _ in values]))
        )
        return Choice(seen, partition, values[partition][1])

    def _value(self, partition: int, seen: View) -> tuple[float, int]:
        with torch.no_grad():
            values = self.networks[partition](
                torch.tensor(seen.inputs, dtype=torch.float32)
            ).tolist()
        action = best(values, seen.possible)
        return values[action], action

    def remember(self, choices: Sequence[Choice]) -> None:
        """A stream's decisions in order: each is followed by the next one in the memory."""
        for number, choice in enumerate(choices):
            slot = self._count % self.options.memory
            self._count += 1
            for index, seen in enumerate(choice.views):
                self._seen[index][slot] = seen.inputs
                self._possible[index][slot] = False
                self._possible[index][slot, seen.possible] = True
            self._partition[slot], self._action[slot] = choice.partition, choice.action
            self._reward[slot], self._last[slot] = choice.reward_d, number == len(choices) - 1

    def update(self) -> None:
        """One gradient step on a random batch."""
        filled = min(self._count, self.options.memory)
        slots = self.random.integers(filled, size=self.options.batch)
        after = (slots + 1) % filled
        targets = self._worth(slots, after)
        loss = torch.zeros(())
        for index, network in enumerate(self.networks):
            mine = np.flatnonzero(self._partition[slots] == index)
            q = network(torch.from_numpy(self._seen[index][slots[mine]]))
            chosen = q.gather(1, torch.from_numpy(self._action[slots[mine]])[:, None])[:, 0]
            loss = loss + nn.functional.mse_loss(chosen, targets[mine], reduction="sum") / len(
                slots
            )
        self._optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.networks.parameters(), 1.0)
        self._optimizer.step()
        self._updates += 1
        if self._updates % self.options.sync == 0:
            self._targets.load_state_dict(self.networks.state_dict())

    def _worth(self, slots: NDArray[np.int64], after: NDArray[np.int64]) -> Tensor:
        with torch.no_grad():
            each = [
                network(torch.from_numpy(self._seen[index][after]))
                .masked_fill(torch.from_numpy(~self._possible[index][after]), -torch.inf)
                .max(dim=1)
                .values
                for index, network in enumerate(self._targets)
            ]
        later = torch.stack(each).max(dim=0).values
        later = torch.where(torch.from_numpy(self._last[slots]), torch.zeros_like(later), later)
        worth: Tensor = torch.from_numpy(self._reward[slots]) + self.options.discount * later
        return worth

    def slow_down(self, done: float) -> None:
        """The learning rate falls evenly to a tenth; ``done``: part of the training, 0 to 1."""
        for group in self._optimizer.param_groups:
            group["lr"] = self.options.rate * (1 - 0.9 * done)

    def offer(self, wait_d: float) -> None:
        """Keeps the present agents if they did better than those before."""
        if wait_d < self._best_d:
            self._best_d, self._best = wait_d, deepcopy(self.networks.state_dict())

    def take_best(self) -> None:
        self.networks.load_state_dict(self._best)

    def agents(self) -> tuple[Agent, ...]:
        made = []
        for kind, network in zip(self.kinds, self.networks, strict=True):
            assert isinstance(network, nn.Sequential)
            made.append(to_agent(kind, self.variant, network))
        return tuple(made)


def live(team: Team, jobs: Sequence[StreamJob], epsilon: float) -> StreamOutcome:
    """A stream, lived through and remembered."""
    stream, choices = Stream(team.kinds, jobs), []
    for job in jobs:
        choices.append(team.choose(stream.arrive(job), epsilon))
        stream.submit(job, team.kinds[choices[-1].partition].name)
    outcome = stream.finish()
    for choice, wait_s in zip(choices, outcome.wait_s, strict=True):
        choice.reward_d = -min(wait_s / DAY_S, LONGEST_D)
    team.remember(choices)
    return outcome


def _tried(team: Team, trials: Sequence[Sequence[StreamJob]]) -> float:
    """Mean wait, days."""
    rule = agents_rule(team.agents())
    waits = [np.mean(route_stream(team.kinds, jobs, rule).wait_s) for jobs in trials]
    return float(np.mean(waits)) / DAY_S


def teach_on_streams(
    kinds: Sequence[PartitionKind],
    variant: Variant,
    streams: int | None,
    trace: Path | None,
    seed: int,
    told: Callable[[str], None],
    options: DqnOptions = OPTIONS,
) -> Taught:
    """Trains all agents together. Raises InputError for a bad trace."""
    torch.manual_seed(seed)
    random, count = np.random.default_rng(seed), streams or STREAMS
    history = read_history(trace).part(test=False) if trace else None
    team = Team(kinds, variant, options, random)
    trials = [draw_stream(kinds, history, random) for _ in range(TRIALS)]
    for number in range(count):
        outcome = live(team, draw_stream(kinds, history, random), options.epsilon(number / count))
        team.slow_down(number / count)
        for _ in range(UPDATES):
            team.update()
        told(f"stream {number + 1}/{count}: mean wait {np.mean(outcome.wait_s) / 3600:.1f} h")
        if number + 1 == count or (number >= count // 2 and number % TRIED_EVERY == 0):
            team.offer(_tried(team, trials))
    team.take_best()
    source = f"the first part of {trace.name} and bursts" if trace else "bursts"
    facts = asdict(options) | {
        "hidden": list(options.hidden),
        "updates": UPDATES,
        "jobs_each": len(outcome.wait_s),
    }
    return Taught(team.agents(), f"{count} streams from {source}", facts)
