"""What the present queue tells of a start: the same in training and in service, and nothing that
only a trace knows.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from mirage.domain import Penalties
from mirage.errors import InputError
from mirage.ports import Observation
from mirage.provision.learn.drawing import EpisodePlan, fixed_pair
from mirage.provision.learn.features import features_of
from mirage.provision.learn.forecast import LONGEST_S, forecast_s
from mirage.provision.learn.model import States
from mirage.provision.learn.sampler import USER, LabelledEpisode, label
from mirage.provision.policies.live_forecast import CYCLE_S, LiveForecast
from mirage.slurm.lookahead import Known, simulator_from
from mirage.slurm.simulated import SimulatedCluster
from mirage.state.likeness import Waits
from slurm_sim import Simulator
from slurm_sim.config import NodeAction, NodeChange, Params, whole_nodes
from slurm_sim.jobs import JobSpec, State
from tests.learn_site import DAY_S, EPOCH_S, HOUR_S, background, fair_background
from tests.reference.simulator import ReferenceSimulator as Reference

BUSY_S = EPOCH_S + 12 * DAY_S + 77
ENGINES = pytest.mark.parametrize("engine", [Simulator, Reference])


@ENGINES
def test_the_future_is_forgotten(engine) -> None:
    """Who would come or cancel, which node would fail, and how long jobs really run."""
    cluster = replace(whole_nodes(2), node_changes=(NodeChange(200, "n1", NodeAction.DOWN),))
    jobs = [
        JobSpec(1, 3600, 60),
        JobSpec(1, 7200, 60, cancel_s=300),
        JobSpec(2, 3600, 60, submit_s=10),
        JobSpec(2, 3600, 60, submit_s=500),
    ]
    sim = engine(cluster, jobs)
    sim.run_until(30)
    ahead = sim.fork()
    ahead.forget_future()
    assert ahead.run() == []
    assert [(job.job_id, job.state) for job in ahead.finished()] == [
        (number, State.TIMEOUT) for number in (1, 2, 3)
    ]
    assert [job.end_s for job in ahead.finished()] == pytest.approx(
        [3600, 7200, 7200 + 3600], abs=90
    )
    assert not ahead.outages()
    sim.run_until(150)
    assert sim.job(1).state is State.COMPLETED, "the original goes on as before"


@ENGINES
def test_whoever_is_submitted_afterwards_comes(engine) -> None:
    sim = engine(whole_nodes(1), [JobSpec(1, 600, 60)])
    sim.run_until(10)
    sim.forget_future()
    late = sim.submit(JobSpec(1, 600, 60))
    assert sim.run_until_start(late, 10_000) >= 600


def running_pair(sim) -> tuple[int, int]:
    first = sim.submit(JobSpec(1, 4 * HOUR_S, user=USER, exclusive=True))
    second = sim.submit(
        JobSpec(1, 4 * HOUR_S, user=USER, exclusive=True, dependency=f"afterany:{first}")
    )
    return first, second


def test_a_forecast_is_the_turn_in_the_queue_by_limits() -> None:
    sim = Simulator(whole_nodes(2))
    _, successor = running_pair(sim)
    sim.submit(JobSpec(1, 3 * HOUR_S, 600))
    sim.run_until(120)
    waiting = sim.submit(JobSpec(1, 2 * HOUR_S, 60, priority=10**6))
    sim.run_until(150)
    assert forecast_s(sim, successor) == pytest.approx(4 * HOUR_S - 150, abs=90), (
        "after who waits, not after a minute"
    )
    assert sim.job(waiting).state is State.PENDING
    assert sim.job(successor).reason == "Dependency", "nothing has changed"


def test_what_never_starts_is_told_as_the_longest_wait() -> None:
    sim = Simulator(whole_nodes(1))
    _, successor = running_pair(sim)
    sim.run_until(60)
    sim.node_drain(sim.node_names[0])
    assert forecast_s(sim, successor) == LONGEST_S


@pytest.mark.parametrize(
    "site", [background(), fair_background()], ids=["first come", "fair-share"]
)
def test_the_service_makes_the_forecasts_of_training(site) -> None:
    """From a snapshot alone: by the priorities that Slurm shows now, without the phases of its
    timers.
    """
    plan = EpisodePlan(BUSY_S, fixed_pair(4, 6 * HOUR_S))
    labelled = label(site, plan)
    assert isinstance(labelled, LabelledEpisode)
    episode = labelled.episode
    assert episode.forecast_s.shape == episode.decision_s.shape
    assert episode.forecast_s.max() > HOUR_S, "it is a busy time"
    sim = site.warm(plan.begin_s, plan.warm_up, plan.begin_s + 10 * DAY_S)
    spec = {"user": USER, "requeue": False, "exclusive": True}
    first = sim.submit(JobSpec(*plan.pair.predecessor, **spec))
    second = sim.submit(JobSpec(*plan.pair.successor, dependency=f"afterany:{first}", **spec))
    live_forecast = LiveForecast(site.cluster)
    off_s = []
    for point in range(0, len(episode), 4):
        sim.run_until(int(episode.decision_s[point]))
        snapshot = SimulatedCluster(sim).snapshot()
        pair = snapshot.by_id[first], snapshot.by_id[second]
        observation = Observation(
            now_s=sim.now_s,
            step_s=600,
            predecessor=pair[0],
            successor=pair[1],
            penalties=Penalties(),
            waits=Waits([]),
            snapshot=snapshot,
        )
        off_s.append(abs(live_forecast.of(observation) - int(episode.forecast_s[point])))
    assert np.median(off_s) <= 60
    assert np.mean(np.array(off_s) > 600) <= 0.25, "another timer's phase can cost a turn"


def test_with_its_timers_a_snapshot_gives_the_very_second() -> None:
    site = background()
    sim = site.warm(
        BUSY_S, EpisodePlan(BUSY_S, fixed_pair(4, 6 * HOUR_S)).warm_up, BUSY_S + 10 * DAY_S
    )
    _, successor = running_pair(sim)
    for _ in range(10):
        sim.step(HOUR_S // 2)
        if sim.job(successor).state is not State.PENDING:
            break
        known = Known(timers=sim.timers())
        again = simulator_from(SimulatedCluster(sim).snapshot(), site.cluster, known)
        assert forecast_s(again, successor) == forecast_s(sim, successor)


@pytest.mark.parametrize("priority", [5, 5000])
def test_a_successor_keeps_the_priority_that_slurm_shows(priority: int) -> None:
    """It must not overtake a queue whose users have used more than someone of whom the simulator
    knows nothing.
    """
    params = Params(priority_weight_fairshare=10_000)
    sim = Simulator(whole_nodes(1, params))
    first = sim.submit(JobSpec(1, HOUR_S, user="alice"))
    sim.submit(JobSpec(1, HOUR_S, user="bob", priority=100))
    second = sim.submit(
        JobSpec(1, HOUR_S, user="alice", dependency=f"afterany:{first}", priority=priority)
    )
    sim.run_until(60)
    live_forecast, snapshot = LiveForecast(sim.config), SimulatedCluster(sim).snapshot()
    pair = snapshot.by_id[first], snapshot.by_id[second]
    observation = Observation(
        now_s=sim.now_s,
        step_s=600,
        predecessor=pair[0],
        successor=pair[1],
        penalties=Penalties(),
        waits=Waits([]),
        snapshot=snapshot,
    )
    turns = 1 if priority > 100 else 2
    assert live_forecast.of(observation) == pytest.approx(turns * HOUR_S - 60, abs=120)


def test_without_a_snapshot_there_is_no_forecast() -> None:
    sim = Simulator(whole_nodes(1))
    ids = running_pair(sim)
    snapshot = SimulatedCluster(sim).snapshot()
    pair = [snapshot.by_id[each] for each in ids]
    with pytest.raises(InputError, match="no snapshot"):
        LiveForecast(sim.config).of(
            Observation(
                now_s=0,
                step_s=600,
                predecessor=pair[0],
                successor=pair[1],
                penalties=Penalties(),
                waits=Waits([]),
            )
        )


def test_the_forecasts_of_a_cycle_take_a_bounded_time() -> None:
    sim, now = Simulator(whole_nodes(1)), [100.0]
    ids = running_pair(sim)
    live_forecast = LiveForecast(sim.config, clock=lambda: now[0])

    def ask(snapshot) -> int:
        pair = [snapshot.by_id[each] for each in ids]
        return live_forecast.of(
            Observation(
                now_s=0,
                step_s=600,
                predecessor=pair[0],
                successor=pair[1],
                penalties=Penalties(),
                waits=Waits([]),
                snapshot=snapshot,
            )
        )

    first, second = SimulatedCluster(sim).snapshot(), SimulatedCluster(sim).snapshot()
    wait_s = ask(first)
    now[0] += CYCLE_S + 1
    with pytest.raises(InputError, match="forecasts are over"):
        ask(first)
    assert ask(second) == wait_s, "the next cycle has its own time"


def test_features_need_forecasts() -> None:
    states = States(np.zeros((1, 144, 40), dtype=np.float32), np.array([600]), np.ones((1, 2)))
    with pytest.raises(InputError, match="forecast"):
        features_of(states)
