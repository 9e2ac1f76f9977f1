"""Simple rules for the links of a chain, as yardsticks: no law of waits, no learning.

They look a quarter of an hour into the simulation's future, which no service can. So they are
rather better here than on a site.
"""

from __future__ import annotations

from dataclasses import dataclass

from mirage.chain.durations import format_duration, parse_duration
from mirage.domain import Action
from mirage.errors import InputError
from mirage.ports import Advice, Observation
from slurm_sim import Simulator

SOON_S = 900
"""A successor that would start so soon is not released while its predecessor has longer left."""
AFTER, AHEAD = "after", "ahead"


@dataclass(frozen=True, kw_only=True)
class ChainRule:
    """`after:D`: a successor, once its predecessor has run for D. `ahead:N:D`: up to N successors
    in the queue, one more each D.
    """

    name: str
    ahead: int
    """Successors in the queue at most."""
    pause_s: int
    is_staggered: bool
    """Whether the pause begins as the predecessor enters the queue, not as it starts."""

    @classmethod
    def of(cls, words: str) -> ChainRule | None:
        """None: another method's name. Raises InputError."""
        kind, *values = words.split(":")
        if kind not in (AFTER, AHEAD):
            return None
        try:
            count, pause = ("1", *values) if kind == AFTER else values
            ahead, pause_s = int(count), parse_duration(pause)
        except ValueError as error:
            raise InputError(
                f"--methods {words}: expected after:12h, or ahead:3:20h ({error})."
            ) from error
        if ahead < 1 or pause_s < 0:
            raise InputError(f"--methods {words}: expected at least 1 successor.")
        return cls(name=words, ahead=ahead, pause_s=pause_s, is_staggered=kind == AHEAD)

    @property
    def about(self) -> str:
        """One line for people."""
        every = format_duration(self.pause_s)
        return (
            f"up to {self.ahead} successors in the queue, one more each {every}"
            if self.is_staggered
            else f"one successor, {every} after its predecessor's start"
        )


@dataclass(frozen=True)
class RulePolicy:
    """The rule in one simulation. Implements `mirage.ports.Policy`."""

    rule: ChainRule
    simulator: Simulator

    @property
    def name(self) -> str:
        return self.rule.name

    def decide(self, observation: Observation) -> Advice:
        predecessor = observation.predecessor
        since_s = predecessor.eligible_s if self.rule.is_staggered else predecessor.start_s
        is_due = since_s is not None and observation.now_s - since_s >= self.rule.pause_s
        release = is_due and not self._is_too_early(observation)
        return Advice(
            action=Action.RELEASE if release else Action.WAIT, reason=f"the rule {self.rule.name}"
        )

    def _is_too_early(self, observation: Observation) -> bool:
        if observation.remaining_s is None or observation.remaining_s <= SOON_S:
            return False
        fork = self.simulator.fork()
        fork.drop_dependency(observation.successor.job_id)
        found = fork.run_until_start(observation.successor.job_id, fork.now_s + SOON_S)
        return found is not None
