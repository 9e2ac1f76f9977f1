"""Rows of a simulation: the core's are those that the service's encoder makes."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.provision.env.example import busy_cluster, busy_jobs
from mirage.provision.env.observation import COLUMNS, Pool, core_pool, walk
from mirage.slurm.simulated import SimulatedCluster
from mirage.state.encoder import JobPair as StatePair
from mirage.state.encoder import encode
from mirage.state.encoder import vector as state_vector
from slurm_sim.jobs import JobSpec


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
