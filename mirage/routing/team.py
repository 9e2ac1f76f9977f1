"""Deep Q-learning on streams: all partitions' agents together, on the wait that each routed job
then has.

    Q_p(s_p, a) -> -wait + discount * max over partitions p' and their possible actions a' of
    Q'_p'(s'_p', a')

Each agent sees its own partition and the arriving job only; the partition with the highest value
gets the job, so values of different agents are comparable: all are the waiting, in days, that the
choice brings to this job and, discounted, to those that arrive next. The waits are known when the
stream is over; it is remembered then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from mirage.rl.fit import Progress, Stop, descend, fit, linear, seeded, set_rate
from mirage.rl.replay import Column, Ints, ReplayMemory
from mirage.rl.targets import TargetNetwork, best_values, td_targets, values_of
from mirage.routing.agent import Agent
from mirage.routing.arrivals import ArrivalHistory, StreamJob, draw_stream, read_history
from mirage.routing.flavors import PartitionKind
from mirage.routing.network import AgentOptions, TrainedAgents, make_network, to_agent
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
from slurm_sim.seconds import DAY_S

STREAMS = 80
UPDATES = 300
"""After each stream."""
TRIALS, TRIAL_EVERY = 8, 5
"""Streams of a trial, and streams between trials, in the second half of the training. The agents
of the best trial are kept.
"""
LONGEST_D = 10.0
"""A longer wait counts as this many days."""
MOST_NORM = 1.0
"""Of a gradient step: waits have heavy tails."""
OPTIONS = AgentOptions(hidden=(16, 8), discount=0.8, rate=1e-3, epsilon_end=0.05, memory=40_000)


class AgentView(NamedTuple):
    """What one agent sees of an arriving job, and its best possible action."""

    inputs: list[float]
    possible: list[int]


def view(state: PartitionState, variant: Variant, asked: Arriving) -> AgentView | None:
    """None: the partition has no flavour for the job."""
    flavor = state.kind.flavor_of(asked.demand)
    if flavor is None:
        return None
    can = list(possible(state, variant, flavor))
    return AgentView(features(state, variant, flavor, asked.demand.limit_s, asked.now_s), can)


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
class StreamDecision:
    """What all agents saw of a job, and who got it."""

    views: list[AgentView]
    partition: int
    action: int
    reward_d: float = 0.0


class Team:
    """The agents' networks, their target networks and their memory."""

    def __init__(
        self,
        kinds: Sequence[PartitionKind],
        variant: Variant,
        options: AgentOptions,
        random: np.random.Generator,
    ) -> None:
        self.kinds, self.variant, self.options, self.random = kinds, variant, options, random
        self.networks = nn.ModuleList(make_network(kind, variant, options.hidden) for kind in kinds)
        self._target = TargetNetwork(self.networks, options.sync)
        self._optimizer = torch.optim.Adam(self.networks.parameters(), lr=options.rate)
        columns = {
            "partition": Column(dtype=np.int64),
            "action": Column(dtype=np.int64),
            "reward": Column(),
            "last": Column(dtype=np.bool_),
        }
        for index, kind in enumerate(kinds):
            columns[f"inputs {index}"] = Column((width(kind, variant),))
            columns[f"possible {index}"] = Column((actions_of(kind, variant).count,), np.bool_)
        self._memory = ReplayMemory(options.memory, columns)

    def choose(self, asked: Arriving, epsilon: float) -> StreamDecision:
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
        return StreamDecision(seen, partition, values[partition][1])

    def _value(self, partition: int, seen: AgentView) -> tuple[float, int]:
        with torch.no_grad():
            values = self.networks[partition](
                torch.tensor(seen.inputs, dtype=torch.float32)
            ).tolist()
        action = best(values, seen.possible)
        return values[action], action

    def remember(self, decisions: Sequence[StreamDecision]) -> None:
        """A stream's decisions in order: each is followed by the next one in the memory."""
        for number, decision in enumerate(decisions):
            row: dict[str, Any] = {
                "partition": decision.partition,
                "action": decision.action,
                "reward": decision.reward_d,
                "last": number == len(decisions) - 1,
            }
            for index, (kind, seen) in enumerate(zip(self.kinds, decision.views, strict=True)):
                can = np.zeros(actions_of(kind, self.variant).count, np.bool_)
                can[seen.possible] = True
                row |= {f"inputs {index}": seen.inputs, f"possible {index}": can}
            self._memory.add(**row)

    def update(self) -> None:
        """One gradient step on a random batch."""
        places = self._memory.sample(self.options.batch, self.random)
        rows, targets = self._memory.tensors(places), self._targets(places)
        loss = torch.zeros(())
        for index, network in enumerate(self.networks):
            mine = rows["partition"] == index
            chosen = values_of(network(rows[f"inputs {index}"][mine]), rows["action"][mine])
            apart = nn.functional.mse_loss(chosen, targets[mine], reduction="sum")
            loss = loss + apart / len(places)
        descend(self._optimizer, loss, most_norm=MOST_NORM)
        self._target.count_step()

    def _targets(self, places: Ints) -> Tensor:
        """(n,): what the values of the decisions at these places should be."""
        rows = self._memory.tensors(places, "cpu", "reward", "last")
        after = self._memory.tensors(self._memory.after(places))
        with torch.no_grad():
            each = [
                best_values(network(after[f"inputs {index}"]), after[f"possible {index}"])
                for index, network in enumerate(self._target.network)
            ]
        later = torch.stack(each).amax(dim=0)
        return td_targets(rows["reward"], later, rows["last"], self.options.discount)

    def slow_down(self, part: float) -> None:
        """The learning rate falls evenly to a tenth; ``part`` of the training, 0 to 1."""
        set_rate(self._optimizer, self.options.rate * linear(1.0, 0.1, part))

    def play(self, jobs: Sequence[StreamJob], epsilon: float) -> StreamOutcome:
        """Routes a stream, epsilon-greedily, and remembers it."""
        stream, decisions = Stream(self.kinds, jobs), []
        for job in jobs:
            decisions.append(self.choose(stream.arrive(job), epsilon))
            stream.submit(job, self.kinds[decisions[-1].partition].name)
        outcome = stream.finish()
        for decision, wait_s in zip(decisions, outcome.wait_s, strict=True):
            decision.reward_d = -min(wait_s / DAY_S, LONGEST_D)
        self.remember(decisions)
        return outcome

    def trial(self, streams: Sequence[Sequence[StreamJob]]) -> float:
        """Mean wait of a job, days, by the agents' best decisions."""
        rule = agents_rule(self.agents())
        waits = [np.mean(route_stream(self.kinds, jobs, rule).wait_s) for jobs in streams]
        return float(np.mean(waits)) / DAY_S

    def agents(self) -> tuple[Agent, ...]:
        made = []
        for kind, network in zip(self.kinds, self.networks, strict=True):
            assert isinstance(network, nn.Sequential)
            made.append(to_agent(kind, self.variant, network))
        return tuple(made)


def train_on_streams(
    kinds: Sequence[PartitionKind],
    variant: Variant,
    *,
    streams: int | None,
    trace: Path | None,
    seed: int,
    report: Callable[[str], None],
    options: AgentOptions = OPTIONS,
) -> TrainedAgents:
    """Trains all agents together. Raises InputError for a bad trace."""
    count = streams or STREAMS
    history = read_history(trace).part(test=False) if trace else None
    with seeded(seed) as random:
        team = Team(kinds, variant, options, random)
        trials = [draw_stream(kinds, history, random) for _ in range(TRIALS)]
        course = _Course(team, history, count)
        result = fit(
            team.networks,
            course.round,
            Stop(rounds=count),
            score=lambda: team.trial(trials),
            is_scored=course.is_trial,
            progress=lambda it: report(_words(it)),
        )
    if result.interrupted:
        raise KeyboardInterrupt
    source = f"the first part of {trace.name} and bursts" if trace else "bursts"
    facts = options.plain | {"updates": UPDATES, "jobs_each": course.jobs_each}
    return TrainedAgents(agents=team.agents(), lesson=f"{count} streams from {source}", facts=facts)


@dataclass
class _Course:
    """A team's rounds: a stream each, then updates."""

    team: Team
    history: ArrivalHistory | None
    streams: int
    jobs_each: int = 0

    def round(self, done: int) -> float:
        """Returns the mean wait of a job, hours."""
        part = done / self.streams
        jobs = draw_stream(self.team.kinds, self.history, self.team.random)
        outcome = self.team.play(jobs, self.team.options.epsilon(part))
        self.jobs_each = len(outcome.wait_s)
        self.team.slow_down(part)
        for _ in range(UPDATES):
            self.team.update()
        return float(np.mean(outcome.wait_s)) / 3600

    def is_trial(self, done: int) -> bool:
        number = done - 1
        is_late = number >= self.streams // 2
        return done == self.streams or (is_late and number % TRIAL_EVERY == 0)


def _words(progress: Progress) -> str:
    return f"stream {progress.round}/{progress.rounds}: mean wait {progress.loss:.1f} h"
