"""The placement benchmarks' own worlds are those that they claim to be."""

from __future__ import annotations

from itertools import permutations
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("networkx", reason="the extra `placement` is not installed")
pytest.importorskip("torch", reason="the extra `placement` is not installed")

import torch

from benchmarks import placement, placement_deepshare, placement_measured
from benchmarks import placement_deepshare_agents as agents
from mirage.placement.scalable import ScalableNetwork

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


def test_an_untrained_guide_leaves_deepshares_search_as_it_is():
    tables = placement_deepshare.read_tables(DATA / "deepshare")
    words = placement_deepshare.JOBS.split()[:8]
    plain = placement_deepshare.Rounds(tables, placement_deepshare.jobs_of(tables, words))
    schedule = placement_deepshare.search(tables)
    while plain.waiting:
        plain.run(schedule(plain.waiting, placement_deepshare.Cluster(tables=tables)))
    torch.set_num_threads(1)
    network = ScalableNetwork()
    guided = agents.run(tables, words, agents.guided(tables, network))
    assert guided.figures() == plain.figures()
    with torch.no_grad():  # a job that the guide likes more comes first
        network.advice.bias[:] = torch.tensor([0.0, 3.0])
    assert agents.run(tables, words, agents.guided(tables, network)).figures() != plain.figures()
    alone = agents.run(tables, words, agents.alone(tables, network))
    assert len(alone.ended) == 8


def test_no_order_of_jobs_is_below_the_bound_of_shared_gpus():
    rng = np.random.default_rng(4)
    for _ in range(20):
        need, arrival = rng.uniform(0.2, 3, 5), rng.integers(0, 4, 5)
        weight = rng.uniform(0.1, 1, 5)
        best = np.inf
        for order in permutations(range(5)):
            clock, total = 0.0, 0.0
            for job in order:
                clock = max(clock, arrival[job]) + need[job]
                total += weight[job] * (clock - arrival[job])
            best = min(best, total / 5)
        low = placement.shared(need, arrival, weight)
        assert 0.6 * best < low <= best + 1e-9
    # Both at once: the short one first, 1 and 3 steps.
    assert placement.shared(np.array([2.0, 1.0]), np.zeros(2), np.ones(2)) == pytest.approx(2.0)
