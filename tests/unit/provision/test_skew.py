"""The service against the evaluation: the same matrix, forecast and advice for the same moment.

A simulated cluster is the Cluster port behind the daemon's own code, cycle by cycle. What can't be
the same is named in docs/retraining.md.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from mirage.chain.tag import ChainTag, format_tag
from mirage.daemon.cycle import Daemon
from mirage.daemon.restraint import Acting
from mirage.domain import ActingMode, Action, Mode, Penalties
from mirage.ports import Advice, Observation
from mirage.provision.evaluation.case import Case, PoolStarts
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.background import Background
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.episode import HISTORY, STEP_S, Episode, Vectors
from mirage.provision.learn.forecast import forecast_s
from mirage.provision.learn.model import DEFAULT_TRAITS, Assessment, States, Traits, releases
from mirage.provision.learn.sampler import USER, LabelledEpisode, label
from mirage.provision.policies.learned import LearnedPolicy, states_of
from mirage.provision.policies.quantile import Quantile
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from mirage.state.encoder import JobPair
from mirage.state.history import History
from mirage.store.repository import SqlStore
from slurm_sim import JobSpec, Simulator
from tests.learn_site import DAY_S, EPOCH_S, HOUR_S, background, fair_background

PLAN = EpisodePlan(EPOCH_S + 12 * DAY_S + 77, fixed_pair(4, 6 * HOUR_S))


class MatrixHistory(History):
    """A history as it was at one moment, for one pair: the daemon's own goes on."""

    def __init__(self, observation: Observation, matrix: Vectors) -> None:
        super().__init__("gpu")
        assert observation.history
        assert observation.history.latest
        self.add(observation.history.latest)
        self._matrix = matrix

    def matrices(self, pairs: Sequence[JobPair], now_s: int) -> Vectors:
        return self._matrix[None]

    def known(self, now_s: int, every_s: int = 0) -> float:
        return 1.0


@dataclass
class Recorder:
    """A policy that waits and keeps what it was given, and the forecast with the very timers."""

    site: Background
    simulation: Simulator
    name: str = "recorder"
    given: list[Observation] = field(default_factory=list)
    forecasts_s: list[int] = field(default_factory=list)
    matrices: list[Vectors] = field(default_factory=list)

    def decide(self, observation: Observation) -> Advice:
        if observation.remaining_s is not None and observation.now_s > PLAN.begin_s:
            assert observation.snapshot
            known = Known(timers=self.simulation.timers())
            ahead = simulator_from(observation.snapshot, self.site.cluster, known)
            matrix = states_of([observation]).matrices[0]
            self.matrices.append(matrix)
            self.given.append(replace(observation, history=MatrixHistory(observation, matrix)))
            self.forecasts_s.append(forecast_s(ahead, observation.successor.job_id))
        return Advice(action=Action.WAIT, reason="it only looks")


def serve(site: Background, episode: Episode) -> Recorder:
    """The daemon's cycles at the moments of the episode's rows."""
    at_s = PLAN.begin_s - PLAN.lead_s
    until_s = PLAN.begin_s + 10 * DAY_S
    simulation = site.start_at(at_s, PLAN.warm_up, site.log.between(at_s + 1, until_s)).simulation
    recorder = Recorder(site, simulation)
    daemon = Daemon(
        SimulatedCluster(simulation, user="mirage", operator=True),
        SqlStore.open("sqlite://"),
        SimulatedClock(simulation),
        recorder,
        poll_s=STEP_S,
        acting=Acting(mode=ActingMode.OBSERVE),
    )
    for time_s in range(
        int(episode.decision_s[0]) - (HISTORY - 1) * STEP_S, int(episode.decision_s[-1]) + 1, STEP_S
    ):
        if simulation.now_s < PLAN.begin_s <= time_s:
            simulation.run_until(PLAN.begin_s)
            submit(simulation)
        simulation.run_until(time_s)
        assert daemon.run_cycle()
    return recorder


def submit(simulation: Simulator) -> None:
    """The pair of the plan, as a chain's first two links."""
    tag = ChainTag(
        chain_id="skew01",
        segment=1,
        segments=2,
        predecessor_id=None,
        mode=Mode.SERVICE,
        penalties=Penalties(),
    )
    spec = {"user": USER, "requeue": False, "exclusive": True}
    first = simulation.submit(JobSpec(*PLAN.pair.predecessor, comment=format_tag(tag), **spec))
    comment = format_tag(replace(tag, segment=2, predecessor_id=first))
    after = f"afterany:{first}"
    simulation.submit(JobSpec(*PLAN.pair.successor, dependency=after, comment=comment, **spec))


@dataclass
class Sums:
    """A model whose answer depends on every number that it is given."""

    name: str = "sums"
    traits: Traits = DEFAULT_TRAITS

    def write(self, folder: Path) -> None:
        raise NotImplementedError

    def assess(self, states: States) -> Assessment:
        cost_s = states.matrices.sum(axis=(1, 2), dtype=np.float64) + states.remaining_s
        cost_s += states.penalties.sum(axis=1) + states.forecast_s
        release = states.forecast_s + states.remaining_s % 3 > states.remaining_s
        return Assessment(release, cost_s, cost_s / 2, cost_s / 5, cost_s / 3, cost_s)


ABOUT = ProvisionAbout(
    cluster="toy",
    pool="gpu",
    nodes=12,
    trace="",
    trace_sha256="",
    train_s=(0, 1),
    validation_s=(1, 2),
)


@pytest.mark.parametrize(
    "site", [background(), fair_background()], ids=["first come", "fair-share"]
)
def test_the_service_sees_and_says_what_the_evaluation_does(site: Background) -> None:
    labelled = label(site, PLAN)
    assert isinstance(labelled, LabelledEpisode)
    episode = labelled.episode
    recorder = serve(site, episode)
    assert [each.now_s for each in recorder.given] == episode.decision_s.tolist()
    assert [each.remaining_s for each in recorder.given] == episode.remaining_s.tolist()
    case = Case(episode, PoolStarts.none())
    forecasts = iter(recorder.forecasts_s)
    live_forecast: Any = SimpleNamespace(of=lambda _: next(forecasts))
    live = LearnedPolicy(Sums(), ABOUT, Quantile(100, 1), live_forecast)
    replayed = Sums().assess(States.of(episode))
    released = releases(Sums(), replayed, States.of(episode))
    for point, observation in enumerate(recorder.given):
        matrix = recorder.matrices[point]
        assert np.array_equal(matrix, episode.windows[point]), point
        assert np.array_equal(states_of([case.observe(point, Penalties())]).matrices[0], matrix)
        advice = live.decide(observation)
        assert (advice.action is Action.RELEASE) == released[point]
        assert advice.penalty_now_s == replayed.cost_now_s[point]
        assert advice.wait_p50_s == replayed.wait_p50_s[point]
    assert recorder.forecasts_s == episode.forecast_s.tolist()
