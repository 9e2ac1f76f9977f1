"""The paper's two baselines (section 6) and the fixed lead that users set up by hand today."""

from __future__ import annotations

from dataclasses import dataclass

from mirage.chain.durations import format_duration
from mirage.domain import Action
from mirage.ports import Advice, Observation


def now_is_nearest(remaining_s: int, step_s: int, lead_s: float) -> bool:
    """Whether now is the best instant on offer for a release ``lead_s`` before the predecessor's
    end.

    On offer are now, the later decision points, and the end itself, where Slurm's own dependency
    releases the job at no cost. So a lead of 0 is never released early, and a lead between two
    decision points goes to the nearer one.
    """
    if lead_s <= 0:
        return False
    later_s = max(remaining_s - step_s, 0)
    return remaining_s <= lead_s or remaining_s - lead_s < abs(later_s - lead_s)


def end_is_away(observation: Observation) -> str:
    """How far the end is that a policy aims at, and what ends the predecessor there, for its
    reason.
    """
    left, lead_s = format_duration(observation.remaining_s or 0), observation.predecessor.lead_s
    law = observation.run_law
    if law is not None and observation.predecessor.usual_run_s is not None:
        links = "an earlier link" if law.early == 1 else f"{law.early} earlier links"
        return f"its predecessor should end in {left}, as {links} did before the limit"
    if not lead_s:
        return f"its predecessor's limit is {left} away"
    return (
        f"its predecessor's signal, {format_duration(lead_s)} before its limit, may come in {left}"
    )


def nodes_are_free(count: int) -> str:
    """`1 node is free`, `2 nodes are free`."""
    return "1 node is free" if count == 1 else f"{count} nodes are free"


def not_yet(observation: Observation) -> Advice | None:
    """The advice where there is no end to aim at; None where there is one."""
    if observation.remaining_s is not None:
        return None
    if not observation.predecessor.state.has_nodes:
        return Advice(action=Action.WAIT, reason="its predecessor has not started yet")
    return Advice(
        action=Action.WAIT, reason="its predecessor has no time limit, so its end is unknown"
    )


def no_wait_known(observation: Observation) -> Advice:
    """Wait for the end: nothing tells how long the successor would wait."""
    return Advice(
        action=Action.WAIT,
        reason="no job that competes for the nodes of partition"
        f" {observation.successor.partition} has been seen to start yet, so no wait is known",
    )


def aim(observation: Observation, lead_s: float, why: str) -> Advice:
    """Release at the decision point nearest to ``lead_s`` before the predecessor's end."""
    remaining_s = observation.remaining_s
    assert remaining_s is not None
    release = now_is_nearest(remaining_s, observation.step_s, lead_s)
    return Advice(
        action=Action.RELEASE if release else Action.WAIT,
        reason=f"{why}; {end_is_away(observation)}",
    )


@dataclass(frozen=True)
class Reactive:
    """Never acts: Slurm's `afterany` lets the successor in when its predecessor ends (paper,
    section 6).
    """

    name: str = "reactive"

    def decide(self, observation: Observation) -> Advice:  # noqa: ARG002 - the protocol's signature
        return Advice(
            action=Action.WAIT, reason="the reactive policy leaves it to Slurm's dependency"
        )


@dataclass(frozen=True)
class Timer:
    """A fixed lead before the predecessor's limit, as overlapping chains are made by hand."""

    lead_s: int
    name: str = "timer"

    def decide(self, observation: Observation) -> Advice:
        why = f"it is to enter the queue {format_duration(self.lead_s)} before the end"
        run_s = observation.predecessor.expected_limit_s
        if run_s is not None and self.lead_s >= run_s:
            why += (
                f", which is its predecessor's whole run of {format_duration(run_s)}: such a lead"
                " ends each link as it starts, so set a shorter one (policy.timer.lead_s)"
            )
        return not_yet(observation) or aim(observation, self.lead_s, why)


@dataclass(frozen=True)
class Average:
    """The mean wait of the jobs that started last is the lead (paper, section 6: `avg`)."""

    last: int
    name: str = "avg"

    def decide(self, observation: Observation) -> Advice:
        if advice := not_yet(observation):
            return advice
        waits_s = observation.waits.wait_s[-self.last :]
        if not len(waits_s):
            return Advice(
                action=Action.WAIT, reason="no job has been seen to start yet, so no wait is known"
            )
        mean_s = float(waits_s.mean())
        where = observation.waits.partitions(len(waits_s))
        why = (
            f"the last {len(waits_s)} jobs to start in {where} waited {format_duration(mean_s)} on"
            " average"
        )
        return aim(observation, mean_s, why)
