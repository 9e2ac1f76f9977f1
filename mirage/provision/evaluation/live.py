"""An episode lived through once more, for policies that look at the cluster itself at each decision
point.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mirage.domain import Penalties
from mirage.errors import MirageError
from mirage.ports import Observation
from mirage.provision.evaluation.case import Case
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import EpisodePlan
from mirage.provision.learn.sampler import PATIENCE_S, submit_pair
from mirage.slurm.simulated import SimulatedCluster


@dataclass
class LiveEpisode:
    """The simulation of a case at its decision points, which are visited in their order."""

    case: Case
    simulation: Any
    predecessor_id: int
    successor_id: int

    @classmethod
    def of(cls, case: Case, background: Background, plan: EpisodePlan) -> LiveEpisode:
        """At the predecessor's submission. The pair is submitted as
        `mirage.provision.learn.sampler` does it.

        With fair-share it matters how many users are known, and so until when submissions are: as
        long as the sampler knew them. Raises MirageError if the past comes out otherwise.
        """
        limit_s = plan.begin_s + plan.pair.predecessor.time_limit_s
        for patience_s in PATIENCE_S:
            live = cls._begun(
                case, background, plan, min(limit_s + patience_s, background.log.last_s)
            )
            if live._repeats():
                return live
        raise MirageError(
            "A simulation did not repeat itself, so nothing can look ahead from it; report this."
        )

    @classmethod
    def _begun(
        cls, case: Case, background: Background, plan: EpisodePlan, until_s: int
    ) -> LiveEpisode:
        simulation = background.warm(plan.begin_s, plan.warm_up, until_s)
        return cls(case, simulation, *submit_pair(simulation, plan))

    def _repeats(self) -> bool:
        """Whether the predecessor starts when it did."""
        ahead = self.simulation.fork()
        ahead.run_until(int(self.case.episode.decision_s[0]))
        return bool(ahead.job(self.predecessor_id).start_s == self.case.episode.predecessor_start_s)

    def observe(self, point: int, penalties: Penalties) -> Observation:
        """As `Case.observe`, with the jobs themselves and a snapshot."""
        self.simulation.run_until(int(self.case.episode.decision_s[point]))
        snapshot = SimulatedCluster(self.simulation).snapshot()
        predecessor, successor = (
            snapshot.by_id[each] for each in (self.predecessor_id, self.successor_id)
        )
        observation = self.case.observe(point, penalties)
        return replace(observation, predecessor=predecessor, successor=successor, snapshot=snapshot)
