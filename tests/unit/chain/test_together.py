"""For how much of the time one replica was up, and all."""

from __future__ import annotations

import pytest

from mirage.chain.together import Together, merged, together


def test_one_and_all_of_two() -> None:
    found = together([((0, 100), [(0, 40), (60, 100)]), ((0, 100), [(0, 70), (90, 100)])])
    assert found == Together(wall_s=100, one_s=100, all_s=40 + 10 + 10)


def test_a_time_without_any_counts_and_one_without_wanted_replicas_does_not() -> None:
    found = together([((0, 50), [(0, 40)]), ((80, 100), [(80, 100)])])
    assert found == Together(wall_s=70, one_s=60, all_s=60)
    assert found.one == pytest.approx(6 / 7)


def test_links_that_hand_over_are_up_once() -> None:
    assert merged([(50, 90), (0, 60), (95, 99), (99, 99)]) == [(0, 90), (95, 99)]
    assert together([((0, 100), [(0, 60), (50, 100)])]).all_s == 100


def test_a_replica_that_was_never_ready_is_not_waited_for() -> None:
    assert together([(None, []), ((0, 10), [(0, 10)])]).all == 1
    assert together([]).one is None
