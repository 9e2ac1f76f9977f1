"""When a training chain's successor enters the queue: the moment that loses the least time.

In a training chain the predecessor saves a checkpoint and ends as its successor starts. So an
early start costs one handover, and a late start costs an interruption. Let W be the wait of the
successor, L the time that a link may run, a the predecessor's age at the release, and c the cost
of a handover. A link then lasts a + W, and c + max(0, a + W - L) of that is lost. By the renewal
reward theorem (Ross, Introduction to Probability Models, section 7.4) the share of time lost in
the long run is E[c + max(0, a + W - L)] / E[a + W]. Its least value over a is `least_loss`, g.
Releasing is right as soon as P(W > L - a) >= g: one more second of age then costs as much as it
gains. This is the newsvendor rule of `quantile.py` with penalties (1 - g, g).

Waits of days need several successors in the queue at once. While the predecessor itself waits, the
next one follows it after a fixed part of L (`STAGGER`), so that starts come about that often.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.chain.durations import format_duration
from mirage.chain.handoff import RECENT
from mirage.config import GoodputConfig
from mirage.domain import Action, Job, Mode, Penalties, RunLaw
from mirage.ports import Advice, BatchPolicy, Observation, Policy
from mirage.provision.policies.heuristics import (
    end_is_away,
    no_wait_known,
    nodes_are_free,
    not_yet,
)

Floats = NDArray[np.float64]

STAGGER = 1 / 3
"""Of a link's length: so long after its predecessor entered the queue the next one follows."""
LEAST_RUN = 1 / 3
"""Of a link's length: while a successor would more likely than not start before its predecessor is
that old, it is not released.
"""
TAIL = 1.5
"""A wait that is under way and longer than all known ones is taken to last so many times as long."""
MOST_SHORT = 2
"""With so many short links among the last handovers the known waits are not those of the chain."""
AGES = 48
"""The best age of a release is looked for at so many parts of a link's length."""
NAME = "goodput"


class WaitLaw(NamedTuple):
    """A distribution of waits with finitely many values."""

    waits_s: Floats
    """(n,), ascending."""
    shares: Floats
    """(n,), sums to 1."""

    def share_above(self, seconds: float) -> float:
        """P(W > seconds)."""
        return float(self.shares[self.waits_s > seconds].sum())

    def quantile(self, level: float) -> float:
        """The smallest wait that at least ``level`` of the waits do not exceed."""
        index = int(np.searchsorted(np.cumsum(self.shares), level - 1e-12))
        return float(self.waits_s[min(index, len(self.waits_s) - 1)])


def wait_law(ended_s: Floats, under_way_s: Floats) -> WaitLaw:
    """The law of waits from those that ended, and from those that last at least so long already.

    The product-limit estimate (Kaplan and Meier, 1958): waits under way are censored. Without them
    a growing queue would look shorter than it is, as only short waits have ended. What is left
    above the longest known wait stands at `TAIL` times it. ``ended_s`` must not be empty.
    """
    waits_s = np.concatenate([ended_s, under_way_s])
    is_known = np.concatenate([np.ones(len(ended_s), bool), np.zeros(len(under_way_s), bool)])
    order = np.lexsort((~is_known, waits_s))
    waits_s, is_known = waits_s[order], is_known[order]
    at_risk = np.arange(len(waits_s), 0, -1)
    left = np.cumprod(np.where(is_known, 1 - 1 / at_risk, 1.0))
    shares = (np.concatenate([[1.0], left[:-1]]) - left)[is_known]
    values_s = waits_s[is_known]
    if left[-1] > 1e-9:
        values_s = np.append(values_s, TAIL * waits_s[-1])
        shares = np.append(shares, left[-1])
    return WaitLaw(values_s, shares)


def least_loss(law: WaitLaw, runs: RunLaw, handover_s: float) -> float:
    """The least share of time that a chain can lose if each link is released at one age, (0, 1].

    ``runs``: how long links run by themselves. ``handover_s``: time lost by one handover.
    """
    ages_s = np.linspace(0, runs.runs_s[-1], AGES + 1)
    late_s, lasts_s = np.zeros_like(ages_s), np.zeros_like(ages_s)
    for run_s, share in zip(runs.runs_s, runs.shares, strict=True):
        # At the predecessor's end Slurm's own dependency lets the successor in.
        released_s = np.minimum(ages_s, run_s)[:, None]
        late_s += share * (np.maximum(released_s + law.waits_s - run_s, 0) @ law.shares)
        lasts_s += share * (released_s[:, 0] + law.waits_s @ law.shares)
    losses = (handover_s + late_s) / np.maximum(lasts_s, 1.0)
    return float(min(1.0, losses.min()))


@dataclass(frozen=True)
class Goodput:
    """Decides about the links of training chains."""

    config: GoodputConfig
    name: str = NAME

    def decide(self, observation: Observation) -> Advice:
        if observation.predecessor.is_queueing:
            return self._follow(observation)
        if advice := not_yet(observation) or too_many_short(observation):
            return advice
        law, words = self._law(observation)
        if law is None:
            return no_wait_known(observation)
        return would_start_now(observation) or self._weigh(observation, law, words)

    def _law(self, observation: Observation) -> tuple[WaitLaw | None, str]:
        alike = observation.waits.like(observation.successor, self.config.at_least)
        ended_s = alike.wait_s[-self.config.last :]
        if not len(ended_s):
            return None, ""
        under_way_s = [
            observation.now_s - job.eligible_s
            for job in _competitors(observation)
            if job.eligible_s is not None and alike.is_like(job)
        ]
        return wait_law(ended_s, np.array(under_way_s, dtype=np.float64)), alike.words

    def _weigh(self, observation: Observation, law: WaitLaw, words: str) -> Advice:
        length_s = observation.predecessor.expected_limit_s
        remaining_s = observation.remaining_s
        assert length_s is not None
        assert remaining_s is not None
        runs = observation.run_law or RunLaw((length_s,), (1.0,))
        loss = least_loss(law, runs, observation.handover_s)
        share = sum(part * law.share_above(end_s) for end_s, part in observation.ends)
        least_s = remaining_s - (1 - LEAST_RUN) * length_s
        is_too_soon = least_s > 0 and law.share_above(least_s) < 0.5
        release = share >= self.config.caution * loss and not is_too_soon
        late_s = sum(
            part * float(np.maximum(law.waits_s - end_s, 0) @ law.shares)
            for end_s, part in observation.ends
        )
        known = "" if observation.is_handover_known else ", not measured yet"
        cost = f"{format_duration(observation.handover_s)}{known}"
        chance = (
            f"it would rather start within {format_duration(least_s)}, which is too soon"
            if is_too_soon
            else f"a release is worth a handover ({cost}) from {self.config.caution * loss:.2%} on"
        )
        return Advice(
            action=Action.RELEASE if release else Action.WAIT,
            reason=f"{share:.2%} of {words} would wait longer; {chance}; {end_is_away(observation)}",
            wait_p10_s=law.quantile(0.1),
            wait_p50_s=law.quantile(0.5),
            wait_p90_s=law.quantile(0.9),
            expected_interruption_s=late_s,
            expected_overlap_s=0.0,
        )

    def _follow(self, observation: Observation) -> Advice:
        """The predecessor waits itself: the next link follows some time after it."""
        predecessor = observation.predecessor
        length_s, since_s = predecessor.expected_limit_s, predecessor.eligible_s
        if length_s is None or since_s is None:
            return Advice(action=Action.WAIT, reason="its predecessor has not started yet")
        waited_s, pause_s = observation.now_s - since_s, STAGGER * length_s
        return Advice(
            action=Action.RELEASE if waited_s >= pause_s else Action.WAIT,
            reason=f"its predecessor has waited for {format_duration(waited_s)}; the next link"
            f" follows it into the queue after {format_duration(pause_s)}",
        )


def too_many_short(observation: Observation) -> Advice | None:
    """Wait for the end while the chain's last handovers show that waits are shorter than known."""
    if observation.short_handovers < MOST_SHORT:
        return None
    return Advice(
        action=Action.WAIT,
        reason=f"[short-links] {observation.short_handovers} of this chain's last {RECENT}"
        " handovers ended a link below its least run time, so the next one is let in at the end;"
        f" {end_is_away(observation)}",
    )


def would_start_now(observation: Observation) -> Advice | None:
    """Wait while nodes are free and nobody queues: a release would start at once."""
    latest = observation.history.latest if observation.history else None
    remaining_s = observation.remaining_s or 0
    if latest is None or len(latest.queued) or latest.idle_nodes < observation.successor.nodes:
        return None
    if remaining_s <= observation.step_s:
        return None
    return Advice(
        action=Action.WAIT,
        reason=f"{nodes_are_free(latest.idle_nodes)} and nothing is queued, so it would start at"
        f" once, {format_duration(remaining_s)} too early",
        expected_interruption_s=0.0,
        expected_overlap_s=0.0,
    )


def _competitors(observation: Observation) -> Sequence[Job]:
    """The jobs that wait for nodes of the successor's pool."""
    snapshot = observation.snapshot
    if snapshot is None:
        return ()
    pool = snapshot.pool_of(observation.successor.partition)
    return [
        job for job in snapshot.jobs if job.is_queueing and snapshot.pool_of(job.partition) == pool
    ]


def is_for_goodput(observation: Observation) -> bool:
    """A training chain whose owner set no penalties of his own."""
    return observation.mode is Mode.TRAIN and observation.penalties == Penalties()


@dataclass(frozen=True)
class ByMode:
    """Implements `mirage.ports.BatchPolicy`: training chains by one policy, others by another.

    Its name is that of ``pair``; an advice names ``train`` where that decided.
    """

    pair: Policy
    train: Policy

    @property
    def name(self) -> str:
        return self.pair.name

    def decide(self, observation: Observation) -> Advice:
        return self.decide_all([observation])[0]

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        pairs = [each for each in observations if not is_for_goodput(each)]
        answers = iter(
            self.pair.decide_all(pairs)
            if isinstance(self.pair, BatchPolicy)
            else [self.pair.decide(each) for each in pairs]
        )
        return [
            replace(self.train.decide(each), policy=self.train.name)
            if is_for_goodput(each)
            else next(answers)
            for each in observations
        ]
