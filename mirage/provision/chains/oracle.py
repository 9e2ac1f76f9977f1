"""What a policy that knows the future would do: the bound that `mirage demo` shows beside."""

from __future__ import annotations

from dataclasses import dataclass

from mirage.domain import Action, Mode
from mirage.ports import Advice, Observation
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

FAR_S = 7 * DAY_S
LOOK_S = HOUR_S
"""It looks once an hour: each look simulates days."""


@dataclass(frozen=True)
class OraclePolicy:
    """Lets a training chain's successor in at the last hour from which it starts before its
    predecessor ends, and a service's where its penalty is least (paper, equation 8).

    It forks the simulation, other users' later jobs included. What its own later releases change it
    does not see.
    """

    simulator: Simulator
    look_s: int = LOOK_S
    name: str = "oracle"

    def decide(self, observation: Observation) -> Advice:
        release = False
        if observation.now_s % self.look_s < observation.step_s:
            end_s = self._end_s(observation)
            release = end_s is not None and self._is_due(observation, end_s)
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

    def _is_due(self, observation: Observation, end_s: int) -> bool:
        """Whether a release when this policy looks again would start after ``end_s``, and cost a
        service more than one now. Who enters later starts no sooner, so no later look is better.
        """
        if self._start_s(observation, self.look_s, end_s) is not None:
            return False
        now_s = self._start_s(observation, 0, end_s)
        if now_s is None or observation.mode is Mode.TRAIN:
            return True
        later_s = self._start_s(observation, self.look_s, end_s + FAR_S) or end_s + FAR_S
        penalties = observation.penalties
        return penalties.interruption * (later_s - end_s) > penalties.overlap * (end_s - now_s)

    def _start_s(self, observation: Observation, in_s: int, until_s: int) -> int | None:
        """When the successor starts if it is let in after ``in_s``; None: not by ``until_s``."""
        fork = self.simulator.fork()
        fork.run_until(fork.now_s + in_s)
        fork.drop_dependency(observation.successor.job_id)
        found: int | None = fork.run_until_start(observation.successor.job_id, until_s)
        return found
