"""The bound of who knows all waits, and the waits that it is made of."""

from __future__ import annotations

from itertools import combinations, pairwise

import numpy as np
import pytest

from benchmarks.chain_waits import bound, start_s, table
from mirage.domain import HANDOVER_S
from mirage.provision.chains.run import Scenario
from slurm_sim import JobSpec, Simulator
from slurm_sim.seconds import DAY_S, HOUR_S

LIMIT_S = 48 * HOUR_S


def at_once(*hours: float) -> list[tuple[int, int]]:
    """Releases that start without a wait."""
    return [(int(hour * HOUR_S), int(hour * HOUR_S)) for hour in hours]


def test_links_that_follow_without_a_gap_lose_their_handovers():
    goodput, handovers = bound(at_once(0, 40, 80), LIMIT_S, 120 * HOUR_S)
    assert handovers == 2
    assert goodput == pytest.approx(1 - 2 * HANDOVER_S / (120 * HOUR_S))


def test_a_start_that_saves_nothing_is_left_out():
    _, handovers = bound(at_once(0, 10, 20, 30, 48), LIMIT_S, 96 * HOUR_S)
    assert handovers == 1


def test_a_gap_between_starts_and_one_at_the_end_are_lost():
    goodput, _ = bound(at_once(0, 50), LIMIT_S, 100 * HOUR_S)
    assert goodput == pytest.approx(1 - (2 * HOUR_S + HANDOVER_S + 2 * HOUR_S) / (100 * HOUR_S))


def test_the_time_before_the_first_start_does_not_count():
    goodput, handovers = bound([(0, 10 * HOUR_S)], LIMIT_S, 58 * HOUR_S)
    assert (goodput, handovers) == (1.0, 0)


def lost_s(starts_s: list[int], end_s: int) -> int:
    gaps_s = [max(0, b - a - LIMIT_S) for a, b in pairwise(starts_s)]
    at_end_s = max(0, end_s - starts_s[-1] - LIMIT_S)
    return sum(gaps_s) + at_end_s + HANDOVER_S * (len(starts_s) - 1)


@pytest.mark.parametrize("seed", range(5))
def test_no_choice_of_starts_is_better(seed):
    random = np.random.default_rng(seed)
    starts_s = [0, *np.sort(random.integers(1, 300 * HOUR_S, 9)).tolist()]
    end_s = 320 * HOUR_S
    found, _ = bound([(start_s, start_s) for start_s in starts_s], LIMIT_S, end_s)
    best_s = min(
        lost_s([0, *chosen], end_s)
        for count in range(len(starts_s))
        for chosen in combinations(starts_s[1:], count)
    )
    assert found == pytest.approx(1 - best_s / end_s)


def test_the_table_tells_when_a_link_starts_that_enters_the_queue_then():
    scenario = Scenario(chains=1, lasts_s=DAY_S, warm_up_s=HOUR_S, link_nodes=2, limit_s=LIMIT_S)
    everybody = JobSpec(len(scenario.cluster.nodes), 12 * HOUR_S, user="ann", submit_s=0)
    simulator = Simulator(scenario.cluster, [everybody])
    pairs = table(scenario, simulator, 8 * HOUR_S, holding=False)
    assert [release for release, _ in pairs] == [HOUR_S, 9 * HOUR_S, 17 * HOUR_S]
    # The scheduler looks again within a minute of the end.
    waits_s = [start - release for release, start in pairs]
    assert 0 <= waits_s[0] - 11 * HOUR_S <= 60
    assert 0 <= waits_s[1] - 3 * HOUR_S <= 60
    assert waits_s[2] <= 60


def test_asking_for_a_start_leaves_the_simulation_as_it_is():
    scenario = Scenario(chains=1, link_nodes=1)
    simulator = Simulator(scenario.cluster, [])
    assert start_s(simulator, scenario) <= 60
    assert simulator.now_s == 0
    assert not simulator.pending()
