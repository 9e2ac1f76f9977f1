"""The placement benchmarks' own worlds are those that they claim to be."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("networkx", reason="the extra `placement` is not installed")

from benchmarks import placement_deepshare, placement_measured

DATA = Path(__file__).parents[4] / "shared" / "data"
pytestmark = pytest.mark.skipif(not DATA.is_dir(), reason="no measured data here")


def test_deepshares_published_figures_come_out_to_the_digit():
    tables = placement_deepshare.read_tables(DATA / "deepshare")
    jobs = placement_deepshare.JOBS.split()
    assert len(jobs) == 256
    for name, key in (
        ("srtf as published", lambda job: job.done / job.samples),
        ("las as published", lambda job: -job.ran_s),
    ):
        schedule = placement_deepshare.in_order(key, skips=False)
        found = placement_deepshare.simulate(tables, schedule, published=True)
        expected = placement_deepshare.PUBLISHED[name]
        assert found["mean_running_s"] == pytest.approx(expected, abs=0.005)


def test_equation_12_is_exact_where_it_was_fitted():
    # A job that communicates on one node as sqrt(n), and on two with the paper's factor.
    steps = {"1": 1.0} | {
        name: 1.0 + 0.1 * np.sqrt(sum(map(int, name))) * (1 + 0.2 * (len(name) - 1))
        for name in ("2", "3", "4", "22", "44", "421")
    }
    assert placement_measured.root_s(steps) == pytest.approx(0.1)
    error = placement_measured.equation_12({("toy", 1): steps})["toy"]
    assert error["mean_absolute_error"] == pytest.approx(0.0)
    doubled = steps | {"22": 2 * steps["22"]}
    assert placement_measured.equation_12({("toy", 1): doubled})["toy"]["by_nodes"][2] < -0.2
