"""The figures of service pairs."""

from __future__ import annotations

from typing import Any

import pytest

from benchmarks.service_pairs import at, month, summary


def pair(seed: int, reactive_h: float, ours: tuple[float, float]) -> dict[str, Any]:
    """The oracle starts every successor in time."""
    outcome = {
        "interruption_h": ours[0],
        "overlap_h": ours[1],
        "oracle_interruption_h": 0.0,
        "oracle_overlap_h": 0.0,
        "fallback": 0,
    }
    plan = {"interruption_h": 0.0, "overlap_h": 0.0}
    return {
        "seed": seed,
        "reactive_h": reactive_h,
        "plan": plan,
        "1:1": outcome,
        "4:1": outcome,
    }


def test_cut_and_regret_are_shares_of_what_reactive_loses():
    found = summary([pair(1, 20, (2, 1)), pair(1, 10, (0, 3)), pair(2, 10, (10, 0))], "1:1")
    assert found["cut"] == pytest.approx(1 - 12 / 40)
    assert found["cuts"] == [0.93, 0.0]
    assert found["regret"] == pytest.approx(16 / 40)
    assert found["oracle_cut"] == 1.0


def test_an_interruption_weighs_by_its_penalty():
    found = summary([pair(1, 20, (2, 4))], "4:1")
    assert found["regret"] == pytest.approx((4 * 2 + 4) / (4 * 20))


def test_where_little_is_to_be_gained_there_is_no_regret():
    assert summary([pair(1, 0.2, (0, 1))], "1:1")["regret"] is None


def test_a_month_ends_as_the_next_begins():
    assert month("2022-12") == (at("2022-12-01"), at("2023-01-01"))
