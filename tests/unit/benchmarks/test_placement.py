"""The placement benchmark's bound is one."""

from __future__ import annotations

from itertools import permutations

import numpy as np
import pytest

pytest.importorskip("networkx", reason="the extra `placement` is not installed")
pytest.importorskip("torch", reason="the extra `placement` is not installed")

from benchmarks import placement


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
