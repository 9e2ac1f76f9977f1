"""Episodes as flat arrays: every vectorised pass against a plain loop."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.errors import InputError
from mirage.provision.learn.points import Points, prepare
from mirage.provision.learn.scaling import Scaling
from tests.toy import Toy

CPU = torch.device("cpu")
EPISODES = [Toy(limit_h=hours).episode(hours) for hours in (1, 3, 2)]
SCALING = Scaling.fit(episode.rows for episode in EPISODES)
POINTS = Points(prepare(EPISODES, SCALING), CPU)
SLOTS = len(POINTS.never)
FLAGS = st.lists(st.booleans(), min_size=SLOTS, max_size=SLOTS)


def spans() -> list[tuple[int, int]]:
    """First and `never` slot of each episode."""
    ends = np.cumsum([len(episode) + 1 for episode in EPISODES])
    return [
        (int(end) - len(episode) - 1, int(end) - 1)
        for end, episode in zip(ends, EPISODES, strict=True)
    ]


def test_each_slots_state_is_its_episodes_window() -> None:
    for episode, (first, never) in zip(EPISODES, spans(), strict=True):
        expected = SCALING.apply(episode.windows)
        assert np.array_equal(POINTS.states(np.arange(first, never)).numpy(), expected)


def test_costs_are_equation_8() -> None:
    shares = np.array([[0.2, 0.5], [0.5, 0.5], [0.8, 0.1]])
    costs_h = POINTS.costs_h(shares)
    for i, (episode, (first, never)) in enumerate(zip(EPISODES, spans(), strict=True)):
        for j, share in enumerate(shares[i]):
            expected = (share * episode.interruption_s + (1 - share) * episode.overlap_s) / 3600
            assert np.allclose(costs_h[first : never + 1, j], expected)


@given(FLAGS)
@settings(max_examples=50, deadline=None)
def test_a_rollout_ends_at_the_first_release_or_never(flags: list[bool]) -> None:
    release = np.array(flags)[:, None]
    stops = POINTS.stops(release)[:, 0]
    for first, never in spans():
        for slot in range(first, never + 1):
            assert stops[slot] == next((k for k in range(slot, never) if flags[k]), never)


@given(st.lists(st.integers(-5, 5), min_size=SLOTS, max_size=SLOTS))
@settings(max_examples=50, deadline=None)
def test_later_sums_what_follows_in_the_episode(values: list[int]) -> None:
    later = POINTS.later(np.array(values, dtype=np.float64)[:, None])[:, 0]
    for first, never in spans():
        for slot in range(first, never + 1):
            assert later[slot] == sum(values[slot + 1 : never + 1])


def test_probes_are_evenly_split_from_the_first_to_the_last_decision() -> None:
    probes = POINTS.evenly(4)
    for first, never in spans():
        own = probes[(probes >= first) & (probes < never)]
        assert (own[0], own[-1], len(own)) == (first, never - 1, 4)
        assert np.ptp(np.diff(own)) <= 1


def test_the_clock_strikes_every_so_many_points_from_a_random_one_on() -> None:
    generator = np.random.default_rng(0)
    seen: set[int] = set()
    for _ in range(40):
        asked = POINTS.clock(5, generator)
        for first, never in spans():
            own = asked[(asked >= first) & (asked < never)]
            assert (np.diff(own) == 5).all()
            seen.add(int(own[0]) - first)
    assert seen == {0, 1, 2, 3, 4}


def test_the_successors_start_is_the_decision_point_before_it() -> None:
    for episode, (first, never) in zip(EPISODES, spans(), strict=True):
        for slot in range(first, never + 1):
            point = POINTS.at_start[slot] - first
            started_s = episode.successor_start_s[slot - first]
            assert episode.decision_s[point] <= started_s
            assert point == len(episode) - 1 or started_s < episode.decision_s[point + 1]


def test_no_decision_points_at_all_are_refused() -> None:
    with pytest.raises(InputError, match="decision point"):
        Points([], CPU)
