"""What a policy that knows the future would do: the bound that `mirage demo` shows beside."""

from __future__ import annotations

from dataclasses import dataclass

from mirage.domain import Action
from mirage.ports import Advice, Observation
from slurm_sim import Simulator

FAR_S = 60 * 86_400


@dataclass(frozen=True)
class Oracle:
    """Lets the successor in at the last cycle from which it starts before its predecessor ends.

    It forks the simulation, other users' later jobs included. What its own later releases change it
    does not see.
    """

    simulator: Simulator
    name: str = "oracle"

    def decide(self, observation: Observation) -> Advice:
        end_s = self._end_s(observation)
        starts_s = self._start_s(observation, observation.step_s)
        release = end_s is not None and starts_s > end_s
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

    def _start_s(self, observation: Observation, later_s: int) -> int:
        fork = self.simulator.fork()
        fork.run_until(fork.now_s + later_s)
        fork.drop_dependency(observation.successor.job_id)
        start_s = fork.run_until_start(observation.successor.job_id, fork.now_s + FAR_S)
        return fork.now_s + FAR_S if start_s is None else start_s
