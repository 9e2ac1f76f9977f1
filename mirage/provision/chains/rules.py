"""Simple rules for the links of a chain, as yardsticks: no law of waits, no learning.

Those with a pause look a quarter of an hour into the simulation's future, which no service can. So
they are rather better here than on a site.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from fractions import Fraction

from mirage.chain.durations import format_duration, parse_duration
from mirage.domain import Action
from mirage.errors import InputError
from mirage.ports import Advice, Observation, Policy
from mirage.provision.policies.heuristics import Timer
from slurm_sim import Simulator

SOON_S = 900
"""A successor that would start so soon is not released while its predecessor has longer left."""
LEAD, AFTER, AHEAD = "lead", "after", "ahead"
_PARTS = re.compile(r"(\d*)L(?:/([1-9]\d*))?")


@dataclass(frozen=True, kw_only=True)
class ChainRule:
    """`lead:D`: a successor, D before its predecessor's limit. `after:D`: a successor, once its
    predecessor has run for D. `ahead:N:D`: up to N successors in the queue, one more each D. D is a
    duration; but of a lead it may be a part of a link's length L: `5L/12`.
    """

    name: str
    ahead: int
    """Successors in the queue at most."""
    pause_s: int = 0
    pause_links: Fraction = Fraction(0)
    """The pause in lengths of a link, in place of seconds."""
    is_staggered: bool = False
    """Whether the pause begins as the predecessor enters the queue, not as it starts."""
    lead_s: int | None = None
    """Before the predecessor's limit, in place of a pause."""

    @classmethod
    def of(cls, words: str) -> ChainRule | None:
        """None: another method's name. Raises InputError."""
        kind, *values = words.split(":")
        if kind not in (LEAD, AFTER, AHEAD):
            return None
        try:
            count, pause = values if kind == AHEAD else ("1", *values)
            ahead, parts = int(count), None if kind == LEAD else _PARTS.fullmatch(pause)
            pause_s = 0 if parts else parse_duration(pause)
        except ValueError as error:
            raise InputError(
                f"--methods {words}: expected lead:3h, after:12h, ahead:3:20h or ahead:3:5L/12,"
                f" where L is a link's length ({error})."
            ) from error
        if ahead < 1 or pause_s < 0:
            raise InputError(f"--methods {words}: expected at least 1 successor.")
        if kind == LEAD:
            return cls(name=words, ahead=1, lead_s=pause_s)
        links = Fraction(int(parts[1] or 1), int(parts[2] or 1)) if parts else Fraction(0)
        return cls(
            name=words,
            ahead=ahead,
            pause_s=pause_s,
            pause_links=links,
            is_staggered=kind == AHEAD,
        )

    def pause_after_s(self, length_s: int | None) -> float:
        """The pause after a link of this length. Without a limit a link has no parts: no end."""
        if not self.pause_links:
            return self.pause_s
        return float(self.pause_links * length_s) if length_s is not None else float("inf")

    def policy(self, simulator: Simulator) -> Policy:
        """In one simulation."""
        if self.lead_s is not None:
            return Timer(self.lead_s, self.name)
        return RulePolicy(self, simulator)

    @property
    def about(self) -> str:
        """One line for people."""
        if self.lead_s is not None:
            return f"one successor, {format_duration(self.lead_s)} before its predecessor's limit"
        every = (
            f"{self.pause_links} of a link's length"
            if self.pause_links
            else format_duration(self.pause_s)
        )
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
        pause_s = self.rule.pause_after_s(predecessor.expected_limit_s)
        is_due = since_s is not None and observation.now_s - since_s >= pause_s
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
