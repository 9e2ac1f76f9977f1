"""The law of the wait that a trained model knows, for policies that weigh it themselves.

A model is asked under the guards of `learned.py`. Where one speaks, like jobs tell the law, and the
words begin with its code.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mirage.chain.durations import format_duration
from mirage.ports import Observation
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.law import Forecaster, Law
from mirage.provision.policies.forecasts import Forecast, WaitsOfLikeJobs
from mirage.provision.policies.learned import (
    LearnedPolicy,
    asked_states,
    at_edge_of,
    chosen,
    is_far_from,
    unusable,
)
from mirage.provision.policies.live_forecast import LiveForecast
from mirage.provision.policies.wait_law import WaitLaw

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class LearnedWaits:
    """Implements `mirage.provision.policies.forecasts.WaitSource`."""

    model: Forecaster
    about: ProvisionAbout
    like_jobs: WaitsOfLikeJobs
    live_forecast: LiveForecast | None
    name: str

    @classmethod
    def of(cls, policy: LearnedPolicy, like_jobs: WaitsOfLikeJobs) -> LearnedWaits | None:
        """Those of a policy's model; None: it knows no law."""
        if not isinstance(policy.model, Forecaster):
            return None
        return cls(
            model=policy.model,
            about=policy.about,
            like_jobs=like_jobs,
            live_forecast=policy.live_forecast,
            name=policy.name,
        )

    def forecasts(self, observations: Sequence[Observation]) -> list[Forecast | None]:
        """Models know pairs whose predecessor runs; like jobs tell of the others."""
        running = [each for each in observations if each.remaining_s is not None]
        found = iter(self._of_running(running))
        return [
            self._from(each, next(found)) if each.remaining_s is not None else self._from(each, "")
            for each in observations
        ]

    def _from(self, observation: Observation, said: WaitLaw | str) -> Forecast | None:
        """``said``: the model's law, or why there is none."""
        if isinstance(said, WaitLaw):
            low, high = (format_duration(said.quantile(level)) for level in (0.1, 0.9))
            return Forecast(said, f"{self.name} expects a wait of {low} to {high}")
        (forecast,) = self.like_jobs.forecasts([observation])
        if forecast is None or not said:
            return forecast
        return forecast._replace(words=f"[{said}] {forecast.words}")

    def _of_running(self, observations: Sequence[Observation]) -> list[WaitLaw | str]:
        said: list[WaitLaw | str] = [unusable(each, self.about) or "" for each in observations]
        usable = [at for at, problem in enumerate(said) if not problem]
        if usable:
            found = self._asked([observations[at] for at in usable])
            for at, answer in zip(usable, found, strict=True):
                said[at] = answer
        return said

    def _asked(self, observations: Sequence[Observation]) -> list[WaitLaw | str]:
        states, far, problems = asked_states(observations, self.about, self.live_forecast)
        answers: list[WaitLaw | str] = [*problems]
        inside = [at for at, problem in enumerate(problems) if not problem]
        if not inside:
            return answers
        asked = chosen(states, inside)
        try:
            laws = self.model.law(asked)
            edge = self.model.law(at_edge_of(self.about, asked))
        except Exception as error:  # a model that fails must not leave users without an answer
            log.exception("model %s failed on %d pairs", self.name, len(inside))
            return [problem or f"model-failed: {error!r}" for problem in problems]
        half = np.full(len(inside), 0.5)
        middles_s = zip(laws.quantile_s(half), edge.quantile_s(half), strict=True)
        for row, (at, (wait_s, at_edge_s)) in enumerate(zip(inside, middles_s, strict=True)):
            is_lost = far[at] and is_far_from(wait_s, at_edge_s)
            words = f"out-of-range: {far[at]} changes the answer"
            answers[at] = words if is_lost else wait_law_of(edge if far[at] else laws, row)
        return answers


def wait_law_of(laws: Law, row: int) -> WaitLaw:
    """One of the laws, its chance gathered in the middle of each piece: so the mean stays."""
    points_s, exceeded = laws.waits_s[row], laws.exceeded[row]
    shares = -np.diff(exceeded)
    likely = shares > 0
    middles_s = (points_s[1:] + points_s[:-1]) / 2
    return WaitLaw(middles_s[likely], shares[likely])
