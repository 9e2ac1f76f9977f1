"""When a training chain's successor enters the queue: the moment that loses the least time.

In a training chain the predecessor saves a checkpoint and ends as its successor starts. So an
early start costs one handover, and a late start costs an interruption. Let W be the wait of the
successor, L the time that a link may run, a the predecessor's age at the release, and c the cost
of a handover. A link then lasts a + W, and c + max(0, a + W - L) of that is lost. By the renewal
reward theorem (Ross, Introduction to Probability Models, section 7.4) the share of time lost in
the long run is E[c + max(0, a + W - L)] / E[a + W]. Its least value over a is `least_loss`, g.
Releasing is right as soon as P(W > L - a) >= g: one more second of age then costs as much as it
gains. This is the newsvendor rule of `quantile.py` with penalties (1 - g, g). `wait_law.py` has the
law of W.

Two bounds hold besides. A successor that would more likely than not start before its predecessor is
rather old is not released (`least_run_s`). And waits beyond a link need several successors in the
queue at once: while the predecessor itself waits, the next one follows it after a fixed part of L
(`SPACING`), so that starts come about that often. Closer ones start together as the queue drains,
and end each other young.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.chain.durations import format_duration
from mirage.chain.handoff import LEAST_PART, RECENT
from mirage.config import GoodputConfig
from mirage.domain import Action, RunLaw
from mirage.ports import Advice, Observation
from mirage.provision.policies.heuristics import (
    end_is_away,
    no_wait_known,
    nodes_are_free,
    not_yet,
)
from mirage.provision.policies.queue_state import QueueState
from mirage.provision.policies.wait_law import WaitLaw, least_loss

SPACING = 3 / 5
"""Of a link's length: so long after its predecessor entered the queue the next one follows."""
LEAST_RUN, MOST_RUN = 1 / 3, 2 / 3
"""Of a link's length: the bounds of `least_run_s`."""
WORTH = 5
"""An early start costs a handover, and what others wait for meanwhile. Together they are taken for so
many handovers.
"""
MOST_SHORT = 2
"""With so many short links among the last handovers the known waits are not those of the chain."""
LEAST_AFTER_SHORT = 1 / LEAST_PART
"""Of a link's length: after short links a predecessor runs for so long before the next release.
What is let in then ends no link too early.
"""
NAME = "goodput"


@dataclass(frozen=True)
class Goodput:
    """Decides about the links of training chains."""

    config: GoodputConfig
    name: str = NAME

    def decide(self, observation: Observation) -> Advice:
        if observation.predecessor.is_queueing:
            return follow(observation, SPACING)
        if advice := not_yet(observation) or too_many_short(observation):
            return advice
        alike = observation.waits.like(observation.successor, self.config.at_least)
        if not len(alike.wait_s):
            return no_wait_known(observation)
        if advice := would_start_now(observation):
            return advice
        queue = QueueState.of(observation, alike, self.config.last)
        return _weighed(observation, queue.law(observation), alike.words, queue.exceeds_known)


def _weighed(observation: Observation, law: WaitLaw, words: str, exceeds_known: bool) -> Advice:
    length_s = observation.predecessor.expected_limit_s
    remaining_s = observation.remaining_s
    assert length_s is not None
    assert remaining_s is not None
    runs = observation.run_law or RunLaw((length_s,), (1.0,))
    loss = least_loss(law, runs, observation.handover_s)
    share = sum(part * law.share_above(end_s) for end_s, part in observation.ends)
    run_s = (
        LEAST_RUN * length_s
        if exceeds_known
        else least_run_s(law, length_s, observation.handover_s)
    )
    least_s = remaining_s - length_s + run_s
    is_too_soon = least_s > 0 and law.share_above(least_s) < 0.5
    release = (exceeds_known or share >= loss) and not is_too_soon
    late_s = sum(
        part * float(np.maximum(law.waits_s - end_s, 0) @ law.shares)
        for end_s, part in observation.ends
    )
    known = "" if observation.is_handover_known else ", assumed: not measured"
    cost = f"{format_duration(observation.handover_s)}{known}"
    chance = (
        f"it would probably start within {format_duration(least_s)}, which is too soon"
        if is_too_soon
        else "more work is queued than any of them found, so it may wait longer than all"
        if exceeds_known
        else f"a release is worth a handover ({cost}) from {loss:.2%} on"
    )
    return Advice(
        action=Action.RELEASE if release else Action.WAIT,
        reason=f"{share:.2%} of {words} would wait longer than its predecessor has left;"
        f" {chance}; {end_is_away(observation)}",
        wait_p10_s=law.quantile(0.1),
        wait_p50_s=law.quantile(0.5),
        wait_p90_s=law.quantile(0.9),
        expected_interruption_s=late_s,
        expected_overlap_s=0.0,
    )


def least_run_s(law: WaitLaw, length_s: int, handover_s: int) -> float:
    """While a successor would more likely than not start before its predecessor has run for so long,
    it is not released.

    The predecessor runs until its successor would start in time but for `WORTH` times the share of a
    handover in a link; for a third of its length at least, and for two thirds at most.
    """
    level = max(0.5, 1 - WORTH * handover_s / length_s)
    run_s = length_s - law.quantile(level)
    return min(max(run_s, LEAST_RUN * length_s), MOST_RUN * length_s)


def follow(observation: Observation, spacing: float) -> Advice:
    """Release behind a predecessor that has itself waited for ``spacing``, a part of a link's length:
    a single successor may not start in time.
    """
    predecessor = observation.predecessor
    length_s, since_s = predecessor.expected_limit_s, predecessor.eligible_s
    if length_s is None or since_s is None:
        return Advice(action=Action.WAIT, reason="its predecessor has not started yet")
    waited_s, pause_s = observation.now_s - since_s, spacing * length_s
    waited = f"its predecessor has waited for {format_duration(waited_s)}"
    if waited_s >= pause_s:
        reason = f"{waited}, so a single successor may not start in time"
        return Advice(action=Action.RELEASE, reason=reason)
    after = f"the next link follows it into the queue after {format_duration(pause_s)}"
    return Advice(action=Action.WAIT, reason=f"{waited}; {after}")


def too_many_short(observation: Observation) -> Advice | None:
    """Let the predecessor work for a part of its time while the chain's last handovers show that
    waits are shorter than known. Not to its end: meanwhile a queue may grow.
    """
    length_s = observation.predecessor.expected_limit_s
    if observation.short_handovers < MOST_SHORT or length_s is None:
        return None
    least_s = int(LEAST_AFTER_SHORT * length_s) + observation.idle_s
    if length_s - (observation.remaining_s or 0) >= least_s:
        return None
    return Advice(
        action=Action.WAIT,
        reason=f"[short-links] {observation.short_handovers} of this chain's last {RECENT}"
        " handovers ended a link below its least run time, so the next one is let in when its"
        f" predecessor has run for {format_duration(least_s)} or later; {end_is_away(observation)}",
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
