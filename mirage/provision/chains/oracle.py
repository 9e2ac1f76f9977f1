"""What a policy that knows the future would do: the bound that `mirage demo` shows beside."""

from __future__ import annotations

from dataclasses import dataclass

from mirage.domain import Action, Mode
from mirage.ports import Advice, Observation
from slurm_sim import Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

FAR_S = 7 * DAY_S
LOOK_S = HOUR_S
"""It looks once an hour, since each look simulates days, and `LOOKS` times a link."""
LOOKS = 36
SPARE_S = 2400
"""So much later than the next look a service's successor must still be in time, since chains on one
cluster delay each other. With a quarter of it services are down for ten times as long.
"""


@dataclass(frozen=True)
class OraclePolicy:
    """Lets a successor in at the last look from which it takes over in time: a training's starts
    before its predecessor ends, a service's is ready by then.

    So it loses the least time first, and hands over no sooner than that takes. It forks the
    simulation, other users' later jobs included. It knows neither what its own later releases
    change nor those of other chains, and takes each link by itself: where that costs time, a rule
    that holds more nodes twice can be up for longer.
    """

    simulator: Simulator
    look_s: int = LOOK_S
    name: str = "oracle"

    def decide(self, observation: Observation) -> Advice:
        release, look_s = False, self._look_s(observation)
        if observation.now_s % look_s < observation.step_s:
            end_s = self._end_s(observation)
            release = end_s is not None and not self._can_wait(observation, end_s, look_s)
        return Advice(
            action=Action.RELEASE if release else Action.WAIT, reason="it knows the future"
        )

    def _look_s(self, observation: Observation) -> int:
        """Between two looks: whole steps."""
        limit_s, step_s = observation.predecessor.expected_limit_s, observation.step_s
        often_s = self.look_s if limit_s is None else min(self.look_s, limit_s // LOOKS)
        return max(1, often_s // step_s) * step_s

    def _end_s(self, observation: Observation) -> int | None:
        predecessor = observation.predecessor
        if predecessor.expected_end_s is not None:
            return predecessor.expected_end_s
        if not predecessor.is_queueing or predecessor.expected_limit_s is None:
            return None
        fork = self.simulator.fork()
        start_s = fork.run_until_start(predecessor.job_id, fork.now_s + FAR_S)
        return None if start_s is None else start_s + predecessor.expected_limit_s

    def _can_wait(self, observation: Observation, end_s: int, look_s: int) -> bool:
        """Whether a release at the next look is in time too. Who enters later starts no sooner, so
        no later look is better.
        """
        is_service = observation.mode is Mode.SERVICE
        fork = self.simulator.fork()
        fork.run_until(fork.now_s + look_s + (SPARE_S if is_service else 0))
        fork.drop_dependency(observation.successor.job_id)
        latest_s = end_s - (observation.handover_s if is_service else 0)
        start_s = fork.run_until_start(observation.successor.job_id, latest_s)
        return start_s is not None and start_s <= latest_s
