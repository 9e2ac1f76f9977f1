"""What a job gains by being kept off a partition, and agents that learn it.

At an arrival the simulated cluster is forked: once the job goes to all partitions that it fits in
(`-p A,B`), and once for each of these to all others. Run times and the next `AHEAD` arrivals are those of the
stream, the same in all forks, and each of these arrivals goes to all partitions. The difference of
the summed completion times, of all jobs that are there or arrive, is the advantage: exact for this
stream. The network learns its mean, since it sees neither run times nor arrivals.

Policy iteration: from the second round on, the streams are routed by the agents of the round before,
so that they learn what they then meet. A margin of each partition, chosen on other streams, is taken
off the values: noise must keep no job off a partition.

At last the agents are proven on other streams, those of a history if one is given. If jobs are not
over sooner than by `-p A,B`, beyond chance, all are silent. Networks don't learn from a history:
its single gains are small and scatter too much (docs/decisions/0099).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import nn

from mirage.rl.budget import is_over
from mirage.rl.fit import descend, seeded
from mirage.routing.agent import Agent, Layer
from mirage.routing.arrivals import (
    ArrivalHistory,
    StreamJob,
    Streams,
    draw_streams,
    read_history,
)
from mirage.routing.flavors import PartitionKind
from mirage.routing.network import AgentOptions, TrainedAgents, make_network, to_agent
from mirage.routing.proof import PROOFS, Proof, mean_s, prove
from mirage.routing.state import Variant, choice_blocks, job_features
from mirage.routing.stream import (
    Arriving,
    Stream,
    StreamRule,
    agents_rule,
    everywhere,
)
from slurm_sim.seconds import HOUR_S

STREAMS, ROUNDS = 40, 2
"""In all, and rounds of policy iteration, which share them evenly."""
AHEAD = 30
"""Arrivals that a fork sees."""
SHARE = 0.3
"""Of the arrivals at which the forks are made."""
MOST_H = 24.0
"""A larger gain or loss counts as this."""
STEPS = 1500
"""Gradient steps after each round, from the weights of the round before."""
TRIALS = 12
"""Streams on which the margins are chosen."""
FIRST_MARGIN_H = 2.0
"""Of all rounds but the last."""
MORE = 3
"""So many times as many streams has the second look of a proof."""
NEVER_H = 1000.0
"""As a margin: no job is kept off."""
MARGINS_H = (0.0, 2.0, 6.0)
OPTIONS = AgentOptions(hidden=(16, 8), rate=3e-3, batch=256)


class Gain(NamedTuple):
    """One partition at one arrival."""

    partition: int
    inputs: list[float]
    gain_h: float


def gains_at(stream: Stream, asked: Arriving, coming: Sequence[StreamJob]) -> list[Gain]:
    """What the job that arrives gains by being kept off each partition that it would go to."""
    job, ahead = stream.jobs[stream.count], stream.ahead(coming)
    total_s: dict[str, int] = {}

    def completion_s(partitions: str) -> int:
        if partitions not in total_s:
            tried = ahead.fork()
            tried.submit(job, partitions)
            total_s[partitions] = tried.total_s()
        return total_s[partitions]

    usual = everywhere(asked)
    fits = {index for index, _ in asked.fitting}
    flavors = [
        kind.flavor_of(job.demand) if index in fits else None
        for index, kind in enumerate(stream.kinds)
    ]
    blocks = choice_blocks(asked.states, flavors, asked.now_s)
    found = []
    for index, (kind, flavor) in enumerate(zip(stream.kinds, flavors, strict=True)):
        if flavor is not None:
            gain_s = completion_s(usual) - completion_s(everywhere(asked.without(kind.name)))
            inputs = blocks + job_features(kind, flavor, job.demand.limit_s)
            found.append(Gain(index, inputs, gain_s / HOUR_S))
    return found


def gains_of(
    kinds: Sequence[PartitionKind],
    jobs: Sequence[StreamJob],
    rule: StreamRule,
    random: np.random.Generator,
) -> list[Gain]:
    """Of a share of a stream's arrivals; the rule routes the stream."""
    stream, found = Stream(kinds, jobs), list[Gain]()
    for number, job in enumerate(jobs):
        asked = stream.arrive(job)
        if len(asked.fitting) > 1:
            asked = stream.with_forecasts(asked, job)
        if len(asked.fitting) > 1 and random.random() < SHARE:
            coming = jobs[number + 1 : number + 1 + AHEAD]
            found += gains_at(stream, _some_of(asked, random), coming)
        stream.submit(job, rule(asked))
    return found


def _some_of(asked: Arriving, random: np.random.Generator) -> Arriving:
    """Of more than two partitions sometimes one less: the agents are asked so after one has kept the
    job off its own.
    """
    names = [state.kind.name for _, state in asked.fitting]
    if len(names) > 2 and random.random() < 0.5:
        return asked.without(str(random.choice(names)))
    return asked


@dataclass
class Learner:
    """One partition's network and all gains that it has seen."""

    kind: PartitionKind
    network: nn.Sequential
    options: AgentOptions

    def fit(self, gains: Sequence[Gain], random: np.random.Generator) -> None:
        """Least squares on the gains, bounded by `MOST_H`."""
        if not gains:
            return
        inputs = torch.tensor([gain.inputs for gain in gains])
        wanted = torch.tensor([gain.gain_h for gain in gains]).clamp(-MOST_H, MOST_H)
        optimizer = torch.optim.AdamW(
            self.network.parameters(), lr=self.options.rate, weight_decay=1e-2
        )
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        for _ in range(STEPS):
            rows = torch.from_numpy(random.integers(len(gains), size=self.options.batch))
            found = self.network(inputs[rows]).squeeze(1)
            descend(optimizer, nn.functional.mse_loss(found, wanted[rows]))
            schedule.step()

    def agent(self) -> Agent:
        return to_agent(self.kind, Variant.CHOICE, self.network)


def with_margin(agent: Agent, margin_h: float) -> Agent:
    """The agent with its value lowered."""
    last = agent.layers[-1]
    lowered = Layer(last.weights, tuple(value - margin_h for value in last.bias))
    return replace(agent, layers=(*agent.layers[:-1], lowered))


def train_on_streams(
    kinds: Sequence[PartitionKind],
    *,
    streams: int | None,
    trace: Path | None,
    seed: int,
    report: Callable[[str], None],
    options: AgentOptions = OPTIONS,
) -> TrainedAgents:
    """Trains all agents; those that are not proven are silent. Raises InputError for a bad trace."""
    history = read_history(trace).part(test=False) if trace else None
    count = streams or STREAMS
    with seeded(seed) as random:
        learners, gains = _learned(kinds, count, random, options, report)
        agents = [learner.agent() for learner in learners]
        report(f"margins on {TRIALS} streams, then the proof on {PROOFS}: longer than the training")
        margins_h = _margins(kinds, agents, draw_streams(kinds, None, TRIALS, random))
        agents = [with_margin(*each) for each in zip(agents, margins_h, strict=True)]
        proof = _proof(kinds, agents, history, random)
    if not proof.holds:
        agents = [with_margin(agent, NEVER_H) for agent in agents]
    verdict = "proven" if proof.holds else "not proven: agents are silent"
    report(f"margins: {margins_h} h; to -p A,B: {proof}, {verdict}")
    facts = options.plain | {"rounds": ROUNDS, "ahead": AHEAD, "steps": STEPS, "gains": gains}
    judge = f"the first part of {trace.name}" if trace else "other bursts"
    return TrainedAgents(
        agents=tuple(agents),
        lesson=f"{count} streams of bursts; proof on {judge}",
        facts=facts | {"margins_h": margins_h, "proof": str(proof), "verdict": verdict},
    )


def _proof(
    kinds: Sequence[PartitionKind],
    agents: Sequence[Agent],
    history: ArrivalHistory | None,
    random: np.random.Generator,
) -> Proof:
    """A second look on more streams where the first one leaves it open."""
    proof = prove(kinds, agents, draw_streams(kinds, history, PROOFS, random))
    if proof.ratio < 1 and not proof.holds:
        proof = prove(kinds, agents, draw_streams(kinds, history, MORE * PROOFS, random))
    return proof


def _learned(
    kinds: Sequence[PartitionKind],
    streams: int,
    random: np.random.Generator,
    options: AgentOptions,
    report: Callable[[str], None],
) -> tuple[list[Learner], int]:
    """The learners, and the number of gains that they have seen."""
    learners = [
        Learner(kind, make_network(kind, Variant.CHOICE, options.hidden, len(kinds)), options)
        for kind in kinds
    ]
    gains: list[Gain] = []
    rule: StreamRule = everywhere
    for number in range(ROUNDS):
        for jobs in draw_streams(kinds, None, max(streams // ROUNDS, 1), random).jobs:
            gains += gains_of(kinds, jobs, rule, random)
        for index, learner in enumerate(learners):
            learner.fit([gain for gain in gains if gain.partition == index], random)
        report(f"round {number + 1}/{ROUNDS}: {len(gains)} gains")
        if is_over():
            break
        rule = agents_rule([with_margin(one.agent(), FIRST_MARGIN_H) for one in learners])
    return learners, len(gains)


def _margins(
    kinds: Sequence[PartitionKind], agents: Sequence[Agent], streams: Streams
) -> list[float]:
    """Of each partition in turn the margin with the least mean completion on these streams."""
    margins_h = [NEVER_H] * len(agents)
    least_s = float(np.mean(mean_s(kinds, everywhere, streams)))
    for index in range(len(agents)):
        for margin in MARGINS_H:
            tried = [*margins_h[:index], margin, *margins_h[index + 1 :]]
            rule = agents_rule([with_margin(*each) for each in zip(agents, tried, strict=True)])
            found_s = float(np.mean(mean_s(kinds, rule, streams)))
            if found_s < least_s:
                margins_h, least_s = tried, found_s
    return margins_h
