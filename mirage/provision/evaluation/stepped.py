"""Policies that take seconds for a decision: asked on the live simulation, and not at every point.

The service asks every ten minutes. Here such a policy is asked again half-way to the moment at
which it would have to release for the successor to start in time if the wait were its own p50, or
its p90 where interruption counts more than overlap: ever more often, and at every point at the end.
A queue that grows in between is noticed later than in service, so its figures are rather too bad.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mirage.domain import Action, Penalties
from mirage.ports import Policy
from mirage.provision.evaluation.case import Case
from mirage.provision.evaluation.protocol import ReleaseChoice
from mirage.provision.learn.episode import STEP_S


@dataclass(frozen=True)
class SteppedChooser:
    policy: Policy
    name: str
    minds_penalties: bool = True
    is_slow: bool = True

    def choose(
        self, case: Case, penalties: Penalties, *, with_quantiles: bool = False
    ) -> ReleaseChoice:
        episode, live = case.episode, case.live()
        wait_quantiles_s, chosen, point = np.full((len(episode), 3), np.nan), len(episode), 0
        while point < len(episode):
            advice = self.policy.decide(live.observe(point, penalties))
            quantiles = (advice.wait_p10_s, advice.wait_p50_s, advice.wait_p90_s)
            wait_quantiles_s[point] = [np.nan if value is None else value for value in quantiles]
            if advice.action is Action.RELEASE:
                chosen = point
                break
            wait_s = (
                advice.wait_p90_s
                if penalties.interruption > penalties.overlap
                else advice.wait_p50_s
            )
            point += _steps(int(episode.remaining_s[point]), wait_s)
        return ReleaseChoice(chosen, wait_quantiles_s if with_quantiles else None)


def _steps(remaining_s: int, wait_s: float | None) -> int:
    """Decision points until it is asked again."""
    slack_s = 0.0 if wait_s is None else remaining_s - wait_s
    return max(1, int(slack_s / 2 / STEP_S))
