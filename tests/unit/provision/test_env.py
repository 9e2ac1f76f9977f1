"""The Gymnasium environment: its observations, outcomes and rewards."""

from __future__ import annotations

import re
import warnings
from dataclasses import replace
from pathlib import Path

import gymnasium
import numpy as np
import pytest
from gymnasium.utils.env_checker import check_env
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.provision.env import Start, SubmitEnv, Task, equal_pair, live_start, starts
from mirage.provision.env.example import busy_cluster, busy_jobs
from mirage.provision.env.observation import Pool, observe, scales
from mirage.slurm.simulated import SimulatedCluster
from mirage.state.encoder import JobPair as StatePair
from mirage.state.encoder import encode, vector
from mirage.state.history import History
from slurm_sim import Simulator
from slurm_sim.config import Partition, Qos, whole_nodes
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.seconds import HOUR_S
from tests.sims import fast_simulator

DAY_S = 24 * HOUR_S
SHORT = Task(history=6)
SIZES = ("n1", "n2", "n3", "n4", "n5", "n6", "n7")
PARTITIONS = [
    Partition("main", SIZES[:4]),
    Partition("shared", SIZES[2:5], priority_tier=2),
    Partition("apart", SIZES[5:]),
]


@pytest.fixture(scope="module")
def busy() -> list[Start]:
    """Four starts on the busy cluster."""
    sim = Simulator(busy_cluster(), busy_jobs(0, 6))
    return starts(
        sim, equal_pair(2, 12 * HOUR_S), [DAY_S + 5 * HOUR_S * number for number in range(4)], SHORT
    )


def finish(
    env: SubmitEnv, submit_after: int | None, start: int = 0
) -> tuple[float, dict[str, object]]:
    """Reward and info of an episode that submits after so many steps (None: never)."""
    env.reset(seed=1, options={"start": start})
    for number in range(100_000):
        _, reward, terminated, truncated, info = env.step(np.int64(number == submit_after))
        if terminated or truncated:
            return reward, info
        assert reward == 0
    raise AssertionError("no end")


def test_the_defaults_are_the_papers() -> None:
    assert Task() == Task(step_s=600, history=144)


@st.composite
def workloads(draw: st.DrawFn) -> list[JobSpec]:
    return [
        JobSpec(
            nodes=draw(st.integers(1, 2)),
            time_limit_s=draw(st.one_of(st.none(), st.integers(1, 4000 * HOUR_S))),
            runtime_s=draw(st.integers(0, 9000)),
            user=draw(st.sampled_from("ab")),
            partition=draw(st.sampled_from(["main", "shared", "apart"])),
            submit_s=draw(st.integers(0, 3000)),
            held=draw(st.integers(0, 5)) == 0,
            begin_s=draw(st.one_of(st.none(), st.integers(0, 6000))),
        )
        for _ in range(draw(st.integers(0, 30)))
    ]


@given(workloads(), st.integers(0, 5000), st.sampled_from([None, 2]), st.booleans())
@settings(max_examples=12, deadline=None)
def test_a_row_is_what_the_encoder_makes_of_a_snapshot(
    jobs: list[JobSpec], at_s: int, most: int | None, node_fails: bool
) -> None:
    sim = fast_simulator(
        SIZES, PARTITIONS, None, jobs, qos=(Qos("normal", max_jobs_per_user=most),)
    )
    sim.run_until(at_s)
    if node_fails:
        sim.node_drain("n3")
    first = sim.submit(JobSpec(1, 3600, 2000, partition="main"))
    second = sim.submit(JobSpec(1, 7200, dependency=f"afterany:{first}", partition="main"))
    for wait_s in (0, 100, 1000, 4000):
        sim.run_until(sim.now_s + wait_s)
        snapshot = SimulatedCluster(sim).snapshot()
        pair = (
            StatePair(*SimulatedCluster(sim).jobs([first, second]).values())
            if wait_s < 4000
            else None
        )
        pool = Pool.of(sim.config, "shared")
        assert {snapshot.pool_of(name) for name in pool.partitions} == {snapshot.pool_of("main")}
        if pair is not None and pair.predecessor.job_id == first:
            expected = vector(encode(snapshot, snapshot.pool_of("main")), pair)
            np.testing.assert_array_equal(observe(sim, pool, (first, second)), expected)


def test_an_observation_is_the_history_of_the_pair() -> None:
    """As `mirage.state.history` has it, also the hours before the episode began."""
    jobs = busy_jobs(3, 4)
    pair = equal_pair(2, 6 * HOUR_S, 5 * HOUR_S)
    task = Task(history=12)
    env = SubmitEnv(starts(Simulator(busy_cluster(), jobs), pair, [DAY_S], task), task)
    seen, _ = env.reset(seed=0)
    sim = Simulator(busy_cluster(), jobs)
    history = History("batch", task.step_s, task.history)
    for time_s in range(DAY_S - 20 * 600, DAY_S + 30 * 600, 600):
        sim.run_until(time_s)
        if time_s == DAY_S:
            first = sim.submit(replace(pair.predecessor, requeue=False))
            second = sim.submit(
                replace(pair.successor, requeue=False, dependency=f"afterany:{first}")
            )
        if time_s > DAY_S:
            seen, *_ = env.step(np.int64(0))
        history.add(encode(SimulatedCluster(sim).snapshot(), "batch"))
        if time_s >= DAY_S:
            known = SimulatedCluster(sim).jobs([first, second])
            expected = history.matrix(StatePair(known[first], known[second]), time_s)
            np.testing.assert_array_equal(seen, expected)


def test_gymnasiums_check(busy: list[Start]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.filterwarnings("ignore", message=".*(spec|render).*")
        check_env(SubmitEnv(busy, SHORT))
        check_env(SubmitEnv(busy, replace(SHORT, history=1, skip_to_outcome=True)))


def test_it_is_registered() -> None:
    env = gymnasium.make("mirage/Submit-v0", task=SHORT)
    observation, info = env.reset(seed=3)
    assert observation.shape == (6, 40)
    assert info["action_mask"].tolist() == [1, 1]


def test_never_submitting_is_reactive(busy: list[Start]) -> None:
    reward, info = finish(SubmitEnv(busy, SHORT), None)
    assert info["submitted_s"] == -1
    assert info["overlap_s"] == 0
    assert info["interruption_s"] == info["successor_start_s"] - info["predecessor_end_s"] > 0
    assert reward == -info["interruption_s"] / HOUR_S


def test_submitting_at_once_overlaps_and_costs_by_the_weights(busy: list[Start]) -> None:
    for weight in (1.0, 3.0):
        reward, info = finish(SubmitEnv(busy, replace(SHORT, overlap_weight=weight)), 0)
        assert info["submitted_s"] == DAY_S
        assert info["overlap_s"] == info["predecessor_end_s"] - info["successor_start_s"] > 0
        assert info["interruption_s"] == 0
        assert reward == pytest.approx(-weight * info["overlap_s"] / HOUR_S)


def test_the_outcome_is_that_of_the_same_calls_on_the_simulator(busy: list[Start]) -> None:
    _, info = finish(SubmitEnv(busy, SHORT), 30, start=2)
    start = busy[2]
    sim = start.simulation.fork()
    sim.run_until(sim.now_s + 30 * 600)
    sim.drop_dependency(start.successor_id)
    sim.run_until(int(max(info["predecessor_end_s"], info["successor_start_s"])))
    assert info["predecessor_end_s"] == sim.job(start.predecessor_id).end_s
    assert info["successor_start_s"] == sim.job(start.successor_id).start_s


def test_after_the_submission_there_is_nothing_to_decide(busy: list[Start]) -> None:
    env = SubmitEnv(busy, SHORT)
    env.reset(seed=0)
    assert env.action_masks().tolist() == [1, 1]
    *_, info = env.step(np.int64(1))
    assert info["action_mask"].tolist() == env.action_masks().tolist() == [1, 0]
    *_, again = env.step(np.int64(1))
    assert again["submitted_s"] == info["submitted_s"] == info["time_s"] - 600


def test_skipping_gives_the_same_end(busy: list[Start]) -> None:
    for submit_after in (5, None):
        reward, info = finish(SubmitEnv(busy, SHORT), submit_after)
        skipped_reward, skipped = finish(
            SubmitEnv(busy, replace(SHORT, skip_to_outcome=True)), submit_after
        )
        assert skipped_reward == reward
        assert str(skipped) == str(info)


def test_the_seed_decides_everything(busy: list[Start]) -> None:
    def run(seed: int) -> list[object]:
        env = SubmitEnv(busy, SHORT)
        found: list[object] = [env.reset(seed=seed)[0].tolist()]
        for _ in range(5):
            found += [env.step(np.int64(0))[0].tolist(), env.reset()[0].tolist()]
        return found

    assert run(1) == run(1)
    assert run(1) != run(2)


def test_an_endless_episode_is_truncated() -> None:
    sim = Simulator(whole_nodes(2), [JobSpec(2, 100 * HOUR_S, submit_s=0)])
    task = Task(history=1, horizon_s=5 * HOUR_S)
    env = SubmitEnv(starts(sim, equal_pair(1, HOUR_S), [600], task), task)
    env.reset(seed=0)
    ends = [env.step(np.int64(0))[1:4] for _ in range(30)]
    assert ends[-1] == (0.0, False, True)
    assert not any(truncated for *_, truncated in ends[:-1])


def test_scaled_observations_are_small(busy: list[Start]) -> None:
    raw, _ = SubmitEnv(busy, SHORT).reset(seed=4)
    scaled, _ = SubmitEnv(busy, replace(SHORT, scaled=True)).reset(seed=4)
    assert raw.max() > 10_000
    assert scaled.max() < 40
    np.testing.assert_array_equal(scaled, raw * scales(busy[0].pool))
    assert scales(busy[0].pool)[[0, 6, 35, 39]] == pytest.approx(
        [1 / 16, 1 / DAY_S, 1 / DAY_S, 1 / 16]
    )


def test_a_pair_that_runs_already() -> None:
    sim = Simulator(
        whole_nodes(3), [JobSpec(1, 5 * HOUR_S, submit_s=0), JobSpec(3, HOUR_S, submit_s=60)]
    )
    sim.run_until(100)
    follower = sim.submit(JobSpec(1, HOUR_S, dependency="afterany:1"))
    sim.run_until(3000)
    task = Task(history=4)
    start = live_start(sim, 1, follower, task)
    assert start.history[:, 35].tolist() == [
        3000 - back * 600 - (sim.job(1).start_s or 0) for back in (3, 2, 1)
    ]
    assert start.history[:, 0].tolist() == [1, 1, 1]
    _, info = finish(SubmitEnv([start], task), 2)
    assert info["submitted_s"] == 3000 + 1200
    assert sim.now_s == 3000


@pytest.mark.parametrize("horizon_s", [Task.horizon_s, HOUR_S])
def test_after_its_end_an_episode_takes_no_step(busy: list[Start], horizon_s: int) -> None:
    """Its reward would count twice."""
    env = SubmitEnv(busy, replace(SHORT, horizon_s=horizon_s))
    finish(env, None)
    assert env.action_masks()[0] == 1
    for _ in range(2):
        with pytest.raises(SimulationError, match=r"the episode is over; call reset\(\) first"):
            env.step(np.int64(0))
    env.reset()
    env.step(np.int64(0))
    env.close()
    env.close()
    with pytest.raises(SimulationError, match=r"no episode has begun; call reset\(\) first"):
        env.step(np.int64(0))


def test_bad_input_is_refused(busy: list[Start]) -> None:
    env = SubmitEnv(busy, SHORT)
    with pytest.raises(SimulationError, match="call reset"):
        env.step(np.int64(0))
    env.reset()
    for action in (np.int64(2), -1, 1.0, None, "1", np.array([1]), np.float64(0)):
        with pytest.raises(
            SimulationError, match=re.escape(f"action {action}; give 0 (wait) or 1 (submit)")
        ):
            env.step(action)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="0 starts"):
        SubmitEnv([])
    for starts_given in ([None], busy[0], 5):
        with pytest.raises(SimulationError, match=r"starts(\[0\])? is .*; give a (list of )?Start"):
            SubmitEnv(starts_given)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="task is 600; give a Task"):
        SubmitEnv(busy, 600)  # type: ignore[arg-type]
    nan, inf = float("nan"), float("inf")
    wrong: list[dict[str, object]] = [
        {"step_s": 1.5},
        {"horizon_s": 0},
        {"history": 2.0},
        {"scaled": "x"},
    ]
    wrong += [
        {"skip_to_outcome": 1.5},
        {"scaled": 1},
        {"interruption_weight": nan},
        {"overlap_weight": inf},
    ]
    wrong += [
        {"overlap_weight": -1},
        {"overlap_weight": "1"},
        {"interruption_weight": None},
        {"overlap_weight": True},
    ]
    for more in wrong:
        with pytest.raises(SimulationError, match=rf"Task.{next(iter(more))} is"):
            Task(**more)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="5 rows of history, the task needs 143"):
        SubmitEnv(busy).reset()
    with pytest.raises(SimulationError, match="at 100 already"):
        starts(Simulator(whole_nodes(1), start_s=100), equal_pair(1, 60), [50])
    for start in (-1, len(busy), 0.5, "first"):
        with pytest.raises(
            SimulationError, match=f"start is {start!r}; there are {len(busy)}, counted from 0"
        ):
            env.reset(options={"start": start})
    sim = Simulator(whole_nodes(1), [JobSpec(1, 600), JobSpec(1, 600, dependency="afterany:1")])
    for shape in ((0, 40), (5, 7), (40,)):
        with pytest.raises(
            SimulationError,
            match=re.escape(f"history has shape {shape}; give (rows, 40), at least"),
        ):
            live_start(sim, 1, 2, history=np.zeros(shape, dtype=np.float32))
    with pytest.raises(SimulationError, match="step_s is 0"):
        Task(step_s=0)


def test_the_documentations_example_runs(capsys: pytest.CaptureFixture[str]) -> None:
    text = (Path(__file__).parents[3] / "docs" / "environments.md").read_text()
    exec(text.split("```python\n")[1].split("```")[0], {})
    reward, interruption_s, overlap_s = map(float, capsys.readouterr().out.split())
    assert reward == pytest.approx(-(interruption_s + overlap_s) / HOUR_S)
