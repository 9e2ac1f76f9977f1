"""What a policy that knows the future would do: the bound that `mirage demo` shows beside."""

from __future__ import annotations

from dataclasses import dataclass

from mirage.domain import Action
from mirage.ports import Advice, Observation
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

FAR_S = 7 * DAY_S
LOOK_S = HOUR_S
"""It looks once an hour: each look simulates days."""


@dataclass(frozen=True)
class OraclePolicy:
    """Lets the successor in at the last hour from which it starts before its predecessor ends.

    It forks the simulation, other users' later jobs included. What its own later releases change it
    does not see.
    """

    simulator: Simulator
    name: str = "oracle"

    def decide(self, observation: Observation) -> Advice:
        release = False
        if observation.now_s % LOOK_S < observation.step_s:
            end_s = self._end_s(observation)
            release = end_s is not None and not self._starts_by(observation, end_s)
        return Advice(
            action=Action.RELEASE if release else Action.WAIT, reason="it knows the future"
        )

    def _end_s(self, observation: Observation) -> int | None:
        predecessor = observation.predecessor
        if predecessor.expected_end_s is not None:
            return predecessor.expected_end_s
        if not predecessor.is_queueing or predecessor.expected_limit_s is None:
            return None
        fork = self.simulator.fork()
        start_s = fork.run_until_start(predecessor.job_id, fork.now_s + FAR_S)
        return None if start_s is None else start_s + predecessor.expected_limit_s

    def _starts_by(self, observation: Observation, end_s: int) -> bool:
        """Whether it starts before ``end_s`` if it is let in when this policy looks again."""
        fork = self.simulator.fork()
        fork.run_until(fork.now_s + LOOK_S)
        fork.drop_dependency(observation.successor.job_id)
        return fork.run_until_start(observation.successor.job_id, end_s) is not None
