"""A trained model as the service's policy: all pairs of a cycle in one forward pass, and guards
around it.

Where the model can't be trusted the untrained `fallback` decides, and the advice's reason begins
with a code in brackets: `stale`, `incomplete`, `other-cluster`, `out-of-range`, `no-forecast`,
`model-failed`. These words stay as they are: people search for them.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from mirage.chain.durations import format_duration
from mirage.domain import Action
from mirage.errors import InputError
from mirage.ports import Advice, Observation, Policy
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.episode import STEP_S, Ints
from mirage.provision.learn.model import Assessment, Model, States, release_by_mean, would_start_now
from mirage.provision.learn.ranges import clipped, outside
from mirage.provision.policies.heuristics import end_is_away, not_yet
from mirage.state.encoder import JobPair, Vectors
from slurm_sim.errors import SimulationError
from slurm_sim.seconds import HOUR_S

if TYPE_CHECKING:
    from mirage.provision.policies.live_forecast import LiveForecast

log = logging.getLogger(__name__)

LEAST_KNOWN = 0.9
"""Share of the 144 rows that must be known: a poll or two may fail, hours may not."""
MOST_STEP_S = HOUR_S
"""A model is asked where decisions come so often, or more often."""
MOST_STEPS_OLD = 2
"""The newest row may be so many steps older than the decision."""
FAR_FACTOR = 2.0
"""Waits that differ by less tell the same, beside `STEP_S`."""
SIZES = (0.5, 1.1)
"""The pool may have so many times the nodes that the model was trained with: fewer when some are
down.
"""


@dataclass(frozen=True)
class LearnedPolicy:
    """Implements `mirage.ports.BatchPolicy`."""

    model: Model
    about: ProvisionAbout
    fallback: Policy
    live_forecast: LiveForecast | None = None
    """For a model that is asked with forecasts."""

    @property
    def name(self) -> str:
        return self.model.name

    def decide(self, observation: Observation) -> Advice:
        return self.decide_all([observation])[0]

    def decide_all(self, observations: Sequence[Observation]) -> list[Advice]:
        answers = [not_yet(observation) for observation in observations]
        problems = [unusable(observation, self.about) for observation in observations]
        asked = [i for i in range(len(observations)) if answers[i] is None and problems[i] is None]
        if asked:
            for index, answer in zip(
                asked, self._assessed([observations[i] for i in asked]), strict=True
            ):
                if isinstance(answer, Advice):
                    answers[index] = answer
                else:
                    problems[index] = answer
        given = zip(observations, answers, problems, strict=True)
        return [
            answer or fall_back(self.fallback, each, problem or "")
            for each, answer, problem in given
        ]

    def _assessed(self, observations: Sequence[Observation]) -> list[Advice | str]:
        """The model's advice, or why there is none."""
        states, far, problems = asked_states(observations, self.about, self.live_forecast)
        answers: list[Advice | str] = [*problems]
        inside = [index for index, words in enumerate(answers) if not words]
        if not inside:
            return answers
        try:
            asked = chosen(states, inside)
            said = self.model.assess(asked)
            is_far = any(far[index] for index in inside)
            at_edge = self.model.assess(at_edge_of(self.about, asked)) if is_far else said
            is_early = would_start_now(self.model, asked)
        except Exception as error:  # a model that fails must not leave users without an answer
            log.exception("model %s failed on %d pairs", self.name, len(inside))
            return [words or f"model-failed: {error!r}" for words in answers]
        for row, index in enumerate(inside):
            if far[index] and changes_answer(said, at_edge, row):
                answers[index] = f"out-of-range: {far[index]} changes the answer"
            else:
                used = at_edge if far[index] else said
                advice = self._advice(observations[index], used, row)
                answers[index] = _held_back(advice) if is_early[row] else advice
        return answers

    def _advice(self, observation: Observation, said: Assessment, row: int) -> Advice:
        memory = self.model.traits.memory
        if memory == 1 or said.gain is None:
            return _advice(self.name, observation, said, row, bool(said.release[row]))
        now_s, gain = observation.now_s, float(said.gain[row])
        oldest_s = now_s - memory * STEP_S
        before = [each for each in observation.gains if oldest_s < each[0] < now_s]
        # Polls may come more often than decision points, so the window is one of time.
        gains = np.array([[*(each for _, each in before), gain]]).T
        first = np.zeros(len(gains), dtype=np.int64)
        release = bool(release_by_mean(gains, first, len(gains))[-1, 0])
        since = (
            f"on average over the last {format_duration(now_s - before[0][0])}" if before else ""
        )
        return replace(
            _advice(self.name, observation, said, row, release, since), gain=_finite(gain)
        )


def asked_states(
    observations: Sequence[Observation], about: ProvisionAbout, live_forecast: LiveForecast | None
) -> tuple[States, list[str | None], list[str]]:
    """The states that a model is asked about; what is beyond training in each; and why it can't be
    asked. Empty words: nothing.
    """
    states = states_of(observations)
    far = outside(about.ranges, states.matrices, states.remaining_s)
    problems = [
        f"out-of-range: {words}" if np.isnan(matrix[-1]).any() else ""
        for words, matrix in zip(far, states.matrices, strict=True)
    ]
    if live_forecast is not None:
        found_s = _forecasts(live_forecast, observations, problems)
        states = replace(states, forecast_s=found_s)
    return states, far, problems


def at_edge_of(about: ProvisionAbout, states: States) -> States:
    """The states with what is beyond training at its edge."""
    matrices, remaining_s = clipped(about.ranges, states.matrices, states.remaining_s)
    return replace(states, matrices=matrices, remaining_s=remaining_s)


def _held_back(advice: Advice) -> Advice:
    """The advice without its release, which would start at once."""
    if advice.action is not Action.RELEASE:
        return advice
    why = "it would start at once by the queue's plan, so later, whatever the model says"
    return replace(advice, action=Action.WAIT, reason=f"{why} ({advice.reason})")


def changes_answer(said: Assessment, at_edge: Assessment, row: int) -> bool:
    """Whether a state beyond training makes another answer than one at the edge of training: the
    other choice, or a median wait that is over `FAR_FACTOR` times as long or as short.
    """
    if bool(said.release[row]) != bool(at_edge.release[row]):
        return True
    return is_far_from(said.wait_p50_s[row], at_edge.wait_p50_s[row])


def is_far_from(wait_s: float, other_s: float) -> bool:
    """Whether two waits tell different things."""
    waits_s = np.array([wait_s, other_s]) + STEP_S
    return bool(waits_s.max() > FAR_FACTOR * waits_s.min())


def _forecasts(
    live_forecast: LiveForecast, observations: Sequence[Observation], answers: list[str]
) -> Ints:
    """(n,), 0 where there is none; the answer then says why. Who is pressed most goes first, as
    time is bounded.
    """
    found = np.zeros(len(observations), dtype=np.int64)
    for index in sorted(
        range(len(observations)), key=lambda index: observations[index].remaining_s or 0
    ):
        try:
            found[index] = live_forecast.of(observations[index])
        except (InputError, SimulationError) as error:
            answers[index] = answers[index] or f"no-forecast: {error}"
    return found


def chosen(states: States, indices: Sequence[int]) -> States:
    """These of the states."""
    rows = list(indices)
    return replace(
        states,
        matrices=states.matrices[rows],
        remaining_s=states.remaining_s[rows],
        penalties=states.penalties[rows],
        forecast_s=None if states.forecast_s is None else states.forecast_s[rows],
    )


def unusable(observation: Observation, about: ProvisionAbout) -> str | None:
    """Why the observation is none that this model could be asked about: a code and the facts; None
    if it is one.
    """
    history = observation.history
    if history is None or history.latest is None:
        return "incomplete: nothing is known of the last 24 h"
    age_s = observation.now_s - history.latest.at_s
    if age_s > MOST_STEPS_OLD * history.step_s:
        return f"stale: the newest state is {format_duration(age_s)} old"
    if observation.step_s > MOST_STEP_S:
        every, most = map(format_duration, (observation.step_s, MOST_STEP_S))
        return f"incomplete: a cycle comes every {every}, the model needs one every {most}"
    if (known := history.known(observation.now_s, observation.step_s)) < LEAST_KNOWN:
        return f"incomplete: {known:.0%} of the last 24 h are known"
    nodes = history.latest.up_nodes
    if not is_of(about, history.pool, nodes):
        here = f"pool {history.pool} with {nodes} nodes up"
        return (
            f"other-cluster: this is {here}, the model is of {about.cluster} {about.pool} with"
            f" {about.nodes}"
        )
    return None


def is_of(about: ProvisionAbout, pool: str, nodes: int) -> bool:
    """Whether a model is of a pool of this name and about this many nodes."""
    least, most = (factor * about.nodes for factor in SIZES)
    return about.pool in ("", pool) and least <= nodes <= most


def fall_back(policy: Policy, observation: Observation, problem: str) -> Advice:
    """The fallback's advice, with the reason's code in front."""
    advice = policy.decide(observation)
    return replace(advice, reason=f"[{problem}] {advice.reason}")


def states_of(observations: Sequence[Observation]) -> States:
    """All running pairs at once; each history is asked once."""
    matrices: list[Vectors | None] = [None] * len(observations)
    groups: dict[tuple[int, int], list[int]] = defaultdict(list)
    for index, observation in enumerate(observations):
        groups[id(observation.history), observation.now_s].append(index)
    for (_, now_s), group in groups.items():
        history = observations[group[0]].history
        assert history is not None
        pairs = [
            JobPair(observations[index].predecessor, observations[index].successor)
            for index in group
        ]
        for index, matrix in zip(group, history.matrices(pairs, now_s), strict=True):
            matrices[index] = matrix
    return States(
        np.stack([matrix for matrix in matrices if matrix is not None]),
        np.array([observation.remaining_s for observation in observations], dtype=np.int64),
        np.array(
            [(each.penalties.interruption, each.penalties.overlap) for each in observations],
            dtype=np.float64,
        ),
        observations[0].step_s,
    )


def _advice(
    name: str,
    observation: Observation,
    assessment: Assessment,
    index: int,
    release: bool,
    since: str = "",
) -> Advice:
    quantiles = (assessment.wait_p10_s, assessment.wait_p50_s, assessment.wait_p90_s)
    # Sorted, since a model may have them cross; NaN goes last, and with it none is known.
    p10, p50, p90 = map(_finite, np.sort([values[index] for values in quantiles]))
    facts = [*_costs(assessment, index), *_waits(p10, p90), end_is_away(observation)]
    choice = f"{'now' if release else 'later'}{since and f' {since}'}"
    return Advice(
        action=Action.RELEASE if release else Action.WAIT,
        reason=f"{name}: better {choice} ({'; '.join(facts)})",
        wait_p10_s=p10,
        wait_p50_s=p50,
        wait_p90_s=p90,
        penalty_now_s=_finite(assessment.cost_now_s[index]),
        penalty_later_s=_finite(assessment.cost_wait_s[index]),
    )


def _finite(value: float) -> float | None:
    return float(value) if np.isfinite(value) else None


def _costs(assessment: Assessment, index: int) -> Iterable[str]:
    now_s, later_s = _finite(assessment.cost_now_s[index]), _finite(assessment.cost_wait_s[index])
    if now_s is not None and later_s is not None:
        yield f"expected penalty {format_duration(now_s)} now, {format_duration(later_s)} later"


def _waits(p10: float | None, p90: float | None) -> Iterable[str]:
    if p10 is not None and p90 is not None:
        yield f"it would wait {format_duration(p10)} to {format_duration(p90)}"
