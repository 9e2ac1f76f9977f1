"""When replicas hand over."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from mirage.chain.spread import apart_s, earlier_s


def test_replicas_that_end_together_hand_over_one_after_the_other() -> None:
    assert earlier_s({1: 900, 2: 900, 3: 900}, 100) == {1: 0, 2: 100, 3: 200}


def test_those_that_are_far_apart_run_to_their_ends() -> None:
    assert earlier_s({1: 300, 2: 900, 3: 600}, 100) == {1: 0, 2: 0, 3: 0}


def test_one_replica_is_never_moved() -> None:
    assert apart_s(3600, 1) == 0
    assert earlier_s({4: 10}, 0) == {4: 0}


@given(
    st.dictionaries(st.integers(1, 64), st.integers(0, 10**6), min_size=1, max_size=8),
    st.integers(0, 10**5),
)
def test_no_two_hand_over_closer_than_that_and_none_after_its_end(
    ends_s: dict[int, int], apart: int
) -> None:
    moved = earlier_s(ends_s, apart)
    times = sorted(end_s - moved[replica] for replica, end_s in ends_s.items())
    assert all(later - earlier >= apart for earlier, later in pairwise(times))
    assert min(moved.values()) == moved[max(ends_s, key=lambda one: (ends_s[one], -one))] == 0


def test_the_moves_take_less_than_half_a_link() -> None:
    for replicas in range(2, 9):
        gap_s = apart_s(172_800, replicas)
        assert (
            max(earlier_s(dict.fromkeys(range(1, replicas + 1), 172_800), gap_s).values()) < 86_400
        )
