"""The newsvendor rule on the law of a successor's wait, without a trained model.

Releasing with ``lead`` seconds to go costs e_i * E[(W - lead)+] + e_o * E[(lead - W)+] for a wait W
and the user's penalties e_i (interruption) and e_o (overlap); the best lead is the wait's quantile
at e_i / (e_i + e_o). W's law is that of the like jobs which found about as much work queued as
there is now (`queue_state.py`), which training chains use too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mirage.chain.durations import format_duration
from mirage.domain import Action, Penalties
from mirage.ports import Advice, Observation
from mirage.provision.policies.heuristics import (
    end_is_away,
    no_wait_known,
    nodes_are_free,
    not_yet,
)
from mirage.provision.policies.queue_state import QueueState
from mirage.provision.policies.wait_law import WaitLaw


@dataclass(frozen=True)
class Quantile:
    last: int
    at_least: int
    name: str = "quantile"

    def decide(self, observation: Observation) -> Advice:
        if advice := not_yet(observation):
            return advice
        alike = observation.waits.like(observation.successor, self.at_least)
        if not len(alike.wait_s):
            return no_wait_known(observation)
        if advice := _would_start_now(observation):
            return advice
        queue = QueueState.of(observation, alike, self.last)
        return _advise(observation, queue, alike.words)


def _would_start_now(observation: Observation) -> Advice | None:
    """Wait while nodes are free and nobody queues: whatever others waited before, a release would
    start at once.
    """
    latest = observation.history.latest if observation.history else None
    remaining_s = observation.remaining_s or 0
    if (
        latest is None
        or len(latest.queued)
        or latest.idle_nodes < observation.successor.nodes
        or remaining_s == 0
    ):
        return None
    left = format_duration(remaining_s)
    return Advice(
        action=Action.WAIT,
        reason=f"{nodes_are_free(latest.idle_nodes)} and nothing is queued, so it would start at once,"
        f" {left} too early",
        expected_interruption_s=0.0,
        expected_overlap_s=float(remaining_s),
    )


def expected_costs(law: WaitLaw, lead_s: float) -> tuple[float, float]:
    """Mean interruption and mean overlap in seconds of a release ``lead_s`` before the
    predecessor's end.
    """
    gap_s = law.waits_s - lead_s
    late_s, early_s = np.maximum(gap_s, 0) @ law.shares, np.maximum(-gap_s, 0) @ law.shares
    return float(late_s), float(early_s)


def penalty(law: WaitLaw, lead_s: float, penalties: Penalties) -> float:
    """Expected penalty of a release ``lead_s`` before the end (paper, equation 8, negated)."""
    interruption_s, overlap_s = expected_costs(law, lead_s)
    return penalties.interruption * interruption_s + penalties.overlap * overlap_s


def penalty_in(delay_s: float, law: WaitLaw, observation: Observation) -> float:
    """Expected penalty of a release after ``delay_s``, over the ends that the predecessor may have.

    One that has ended by then has let its successor in at its end.
    """
    return sum(
        share * penalty(law, max(end_s - delay_s, 0), observation.penalties)
        for end_s, share in observation.ends
    )


def least_later(law: WaitLaw, observation: Observation) -> float:
    """The least expected penalty of a release at a later decision point.

    With one end the penalty is convex in the time left, so the next point decides.
    """
    ends, step_s = observation.ends, observation.step_s
    last = 1 if len(ends) == 1 else max(1, math.ceil(ends[-1][0] / step_s))
    return min(penalty_in(k * step_s, law, observation) for k in range(1, last + 1))


def _advise(observation: Observation, queue: QueueState, words: str) -> Advice:
    law = queue.law_of_backlog
    remaining_s, penalties = observation.remaining_s, observation.penalties
    assert remaining_s is not None
    level = penalties.interruption / (penalties.interruption + penalties.overlap)
    lead_s, p10, p50, p90 = (law.quantile(at) for at in (level, 0.1, 0.5, 0.9))
    queued = "" if queue.work is None else ", with about as much work queued as now"
    # Decisions come every step_s: where the quantile lies between two of them, the cheaper one is
    # taken.
    penalty_now_s = penalty_in(0, law, observation)
    penalty_later_s = least_later(law, observation)
    is_due = len(observation.ends) == 1 and remaining_s <= lead_s
    release = lead_s > 0 and (is_due or penalty_now_s < penalty_later_s)
    costs = [(share, *expected_costs(law, end_s)) for end_s, share in observation.ends]
    interruption_s = sum(share * late_s for share, late_s, _ in costs)
    overlap_s = sum(share * early_s for share, _, early_s in costs)
    return Advice(
        action=Action.RELEASE if release else Action.WAIT,
        reason=f"{len(law.waits_s)} {words} waited {format_duration(law.waits_s[0])} to"
        f" {format_duration(law.waits_s[-1])}{queued} (the {level:.0%} quantile is"
        f" {format_duration(lead_s)}); {end_is_away(observation)}",
        wait_p10_s=p10,
        wait_p50_s=p50,
        wait_p90_s=p90,
        expected_interruption_s=interruption_s,
        expected_overlap_s=overlap_s,
        penalty_now_s=penalty_now_s,
        penalty_later_s=penalty_later_s,
    )
