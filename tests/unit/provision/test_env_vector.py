"""The vector environment: equal to single ones side by side, and the core's lanes equal to the
reference's.
"""

from __future__ import annotations

import re
from dataclasses import replace

import gymnasium
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from mirage.provision.env import Start, SubmitEnv, SubmitVectorEnv, Task, equal_pair, starts
from mirage.provision.env import vector as vector_module
from mirage.provision.env.example import busy_cluster, busy_jobs, make_simulation
from mirage.provision.env.observation import COLUMNS, Pool, core_pool, walk
from mirage.provision.env.vector import CoreLanes, PythonLanes
from mirage.slurm.simulated import SimulatedCluster
from mirage.state.encoder import JobPair as StatePair
from mirage.state.encoder import encode
from mirage.state.encoder import vector as state_vector
from slurm_sim.errors import SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.reference.simulator import ReferenceSimulator
from slurm_sim.seconds import HOUR_S

TASK = Task(history=5, step_s=1800)
PAIR = equal_pair(2, 6 * HOUR_S, 5 * HOUR_S)
BEGINS_S = [12 * HOUR_S + 3 * HOUR_S * number for number in range(4)]
COUNT = 3


@pytest.fixture(scope="module")
def busy() -> list[Start]:
    return starts(ReferenceSimulator(busy_cluster(), busy_jobs(0, 3)), PAIR, BEGINS_S, TASK)


@pytest.fixture(scope="module")
def core_busy() -> list[Start]:
    """The same on the core."""
    simulation = make_simulation(busy_cluster(), busy_jobs(0, 3))
    found = starts(simulation, PAIR, BEGINS_S, TASK)
    if not vector_module._has_core_lanes(found):
        pytest.skip("the C++ core with its lanes is not installed")
    return found


def actions(steps: int) -> list[np.ndarray]:
    rng = np.random.default_rng(7)
    return [(rng.random(COUNT) < 0.1).astype(np.int64) for _ in range(steps)]


def assert_equal_steps(one: tuple[object, ...], other: tuple[object, ...]) -> None:
    *arrays, infos = one
    *others, other_infos = other
    for left, right in zip(arrays, others, strict=True):
        np.testing.assert_array_equal(left, right)
    assert set(infos) == set(other_infos)  # type: ignore[call-overload]
    for name in infos:  # type: ignore[attr-defined]
        np.testing.assert_array_equal(infos[name], other_infos[name])  # type: ignore[index]


@pytest.mark.parametrize(
    "task", [TASK, replace(TASK, scaled=True, history=1, skip_to_outcome=True)]
)
def test_it_equals_single_environments(busy: list[Start], task: Task) -> None:
    ours = SubmitVectorEnv(COUNT, busy, task)
    theirs = SyncVectorEnv([lambda: SubmitEnv(busy, task)] * COUNT)
    assert (
        ours.metadata["autoreset_mode"]
        is theirs.metadata["autoreset_mode"]
        is AutoresetMode.NEXT_STEP
    )
    assert ours.observation_space == theirs.observation_space
    assert ours.action_space == theirs.action_space
    assert ours.single_observation_space == theirs.single_observation_space
    assert_equal_steps(ours.reset(seed=5), theirs.reset(seed=5))
    ends = 0
    for action in actions(60):
        mine = ours.step(action)
        assert_equal_steps(mine, theirs.step(action))
        ends += int(mine[2].sum())
    assert ends >= COUNT, "some episodes ended and began anew"


@pytest.mark.parametrize(
    "task",
    [
        TASK,
        replace(TASK, history=1, scaled=True),
        replace(TASK, skip_to_outcome=True, interruption_weight=2.5),
        replace(TASK, horizon_s=4 * HOUR_S, step_s=600, overlap_weight=0.3),
    ],
)
def test_the_cores_lanes_equal_the_references(
    busy: list[Start], core_busy: list[Start], task: Task
) -> None:
    core = SubmitVectorEnv(COUNT, core_busy, task)
    reference = SubmitVectorEnv(COUNT, busy, task, PythonLanes)
    assert isinstance(core._lanes, CoreLanes)
    assert_equal_steps(core.reset(seed=2), reference.reset(seed=2))
    for action in actions(60):
        assert_equal_steps(core.step(action), reference.step(action))


def test_steps_write_into_the_callers_arrays(busy: list[Start]) -> None:
    env, other = SubmitVectorEnv(COUNT, busy, TASK), SubmitVectorEnv(COUNT, busy, TASK)
    out = env.buffers()
    first, _ = env.reset(seed=1, out=out)
    other.reset(seed=1)
    assert first is out.observations
    for action in actions(5):
        observations, rewards, *_ = env.step(action, out=out)
        assert observations is out.observations
        assert rewards is out.rewards
        np.testing.assert_array_equal(observations, other.step(action)[0])


def test_without_out_each_step_has_arrays_of_its_own(busy: list[Start]) -> None:
    env = SubmitVectorEnv(COUNT, busy, TASK)
    first, _ = env.reset(seed=1)
    kept = first.copy()
    env.step(np.zeros(COUNT, dtype=np.int64))
    np.testing.assert_array_equal(first, kept)


def test_it_is_registered(busy: list[Start]) -> None:
    env = gymnasium.make_vec(
        "mirage/Submit-v0",
        num_envs=2,
        vectorization_mode="vector_entry_point",
        starts=busy,
        task=TASK,
    )
    observations, infos = env.reset(seed=0, options={"start": 1})
    assert env.observation_space.contains(observations)
    assert infos["time_s"].tolist() == [BEGINS_S[1]] * 2


def test_bad_input_is_refused(busy: list[Start]) -> None:
    env = SubmitVectorEnv(COUNT, busy, TASK)
    with pytest.raises(SimulationError, match="call reset"):
        env.step(np.zeros(COUNT, dtype=np.int64))
    env.reset(seed=0)
    for wrong in (
        np.zeros(2, dtype=np.int64),
        np.full(COUNT, 2),
        np.full(COUNT, 0.9),
        np.full(COUNT, None),
        np.zeros(COUNT),
        "000",
    ):
        with pytest.raises(SimulationError, match="each 0"):
            env.step(wrong)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="2 seeds for 3"):
        env.reset(seed=[1, 2])
    for count in (0, 2.0, "2", None, True):
        with pytest.raises(SimulationError, match=f"num_envs is {count!r}; give "):
            SubmitVectorEnv(count, busy)  # type: ignore[arg-type]
    for seed in (1.5, "1", True, -1):
        for given in (seed, [seed] * COUNT):
            with pytest.raises(SimulationError, match=f"seed is {seed!r}; give "):
                env.reset(seed=given)  # type: ignore[arg-type]
    with pytest.raises(SimulationError, match="starts is 5; give a list of Start"):
        SubmitVectorEnv(COUNT, 5)  # type: ignore[arg-type]


@pytest.mark.parametrize("lanes", [PythonLanes, CoreLanes])
def test_only_buffers_are_written_into(core_busy: list[Start], lanes: type[PythonLanes]) -> None:
    env = SubmitVectorEnv(COUNT, core_busy, TASK, lanes=lanes)
    out = env.buffers()
    read_only = np.zeros(COUNT)
    read_only.flags.writeable = False
    odd = [
        replace(out, rewards=np.zeros(COUNT, dtype=np.float32)),
        replace(out, rewards=read_only),
        replace(out, rewards=np.zeros(2 * COUNT)[::2]),
        replace(out, facts=[1, 2]),
        SubmitVectorEnv(COUNT + 1, core_busy, TASK).buffers(),
    ]
    for act in (
        lambda out: env.reset(seed=1, out=out),
        lambda out: env.step(np.zeros(COUNT, dtype=np.int64), out=out),
    ):
        for wrong in ((1, 2), (), [], 0):
            with pytest.raises(SimulationError, match=re.escape(f"out is {wrong}; give a Buffers")):
                act(wrong)
        for other in odd:
            with pytest.raises(
                SimulationError, match=r"the arrays of out have other .*; use buffers\(\)"
            ):
                act(other)
        act(out)


def test_numpys_seeds_are_seeds(busy: list[Start]) -> None:
    env = SubmitVectorEnv(COUNT, busy, TASK)
    first, _ = env.reset(seed=3)
    assert np.array_equal(env.reset(seed=np.int64(3))[0], first)  # type: ignore[arg-type]
    assert np.array_equal(env.reset(seed=[np.int64(3), 4, 5])[0], first)  # type: ignore[list-item]


def test_a_closed_one_does_nothing(busy: list[Start]) -> None:
    env = SubmitVectorEnv(COUNT, busy, TASK)
    env.reset(seed=0)
    env.close()
    env.close()
    with pytest.raises(SimulationError, match="this environment is closed; make a new one"):
        env.step(np.zeros(COUNT, dtype=np.int64))
    with pytest.raises(SimulationError, match="this environment is closed; make a new one"):
        env.reset()


def test_a_walk_in_the_core_sees_what_the_reference_sees() -> None:
    cluster, jobs = busy_cluster(), busy_jobs(3, 3)
    pool, times_s = Pool.of(cluster, None), list(range(20_000, 150_000, 600))
    seen = []
    for sim in (make_simulation(cluster, jobs), ReferenceSimulator(cluster, jobs)):
        sim.run_until(10_000)
        first = sim.submit(JobSpec(2, 20_000, user="chain"))
        pair = first, sim.submit(JobSpec(1, 30_000, user="chain", dependency=f"afterany:{first}"))
        without, with_pair = sim.fork(), sim.fork()
        seen.append((walk(without, pool, None, times_s), walk(with_pair, pool, pair, times_s)))
    assert np.array_equal(seen[0][0], seen[1][0])
    assert np.array_equal(seen[0][1], seen[1][1])
    assert seen[0][1][:, [32, 33, 35, 36, 37]].any(axis=0).all()


def test_the_cores_row_is_what_the_encoder_makes_of_a_snapshot() -> None:
    simulator = pytest.importorskip("slurm_sim.simulator").Simulator
    cluster = busy_cluster()
    sim = simulator(cluster, busy_jobs(3, 3))
    pool = Pool.of(cluster, None)
    sim.run_until(40_000)
    first = sim.submit(JobSpec(2, 20_000, user="chain"))
    second = sim.submit(JobSpec(1, 30_000, user="chain", dependency=f"afterany:{first}"))
    for wait_s in (0, 600, 5_000, 9_000):
        sim.run_until(sim.now_s + wait_s)
        site = SimulatedCluster(sim)
        snapshot, pair = site.snapshot(), StatePair(*site.jobs([first, second]).values())
        (partition,) = pool.partitions
        expected = state_vector(encode(snapshot, snapshot.pool_of(partition)), pair)
        (row,) = walk(sim.fork(), pool, (first, second), [sim.now_s])
        np.testing.assert_array_equal(row, expected)
        assert expected[:38:16].any()


def test_the_core_puts_columns_where_the_table_has_them() -> None:
    core = pytest.importorskip("slurm_sim.core._core")
    cluster = busy_cluster()
    sim = pytest.importorskip("slurm_sim.simulator").Simulator(cluster, busy_jobs(3, 3))
    sim.run_until(60_000)
    given = (sim._core, *core_pool(cluster, Pool.of(cluster, None)), 0, 0)
    now_s = np.array([60_000])
    row, other = np.zeros((1, 40), np.float32), np.full((1, 42), -1, np.float32)
    core.walk(*given, COLUMNS, now_s, row)
    core.walk(*given, (42, 24, 8, 2, 0), now_s, other)
    np.testing.assert_array_equal(other[0, 24:40], row[0, :16])
    np.testing.assert_array_equal(other[0, 8:24], row[0, 16:32])
    np.testing.assert_array_equal(other[0, :2], row[0, 38:])
    assert row[0, 16:].any()
    assert (other[0, 40:] == -1).all()
    with pytest.raises(ValueError, match="columns must be"):
        core.walk(*given, (40, 0, 16, 32, 39), now_s, row)
