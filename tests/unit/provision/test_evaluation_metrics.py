"""Figures that can be checked by hand, and intervals that hold what they promise."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirage.domain import Penalties
from mirage.figures.resample import DAY_S, Blocks, correlation_time, spells
from mirage.provision.evaluation.calibration import bins, coverages
from mirage.provision.evaluation.comparison import CURVE, MethodInfo, Setup, compare
from mirage.provision.evaluation.metrics import EDGES_H, Group, ratio_text
from mirage.provision.evaluation.protocol import ORACLE, REACTIVE, EpisodeTrial
from mirage.provision.learn.episode import STEP_S, Episode, PairJob, PairSpec
from slurm_sim.seconds import HOUR_S

EVEN, WARY = Penalties(1, 1), Penalties(4, 1)
LIMIT_S = 48 * HOUR_S


def episode(begin_s, waits_h, nodes=1):
    """Three decision points, 20, 10 and 1 h before the end; the wait of a release at each, and of
    none.
    """
    decision_s = begin_s + LIMIT_S - HOUR_S * np.array([20, 10, 1])
    starts_s = np.append(decision_s, begin_s + LIMIT_S) + (HOUR_S * np.array(waits_h)).astype(
        np.int64
    )
    link = PairJob(nodes, LIMIT_S, LIMIT_S)
    rows = np.zeros((146, 1), dtype=np.float32)
    return Episode(
        PairSpec(link, link),
        begin_s,
        begin_s,
        begin_s + LIMIT_S,
        rows,
        decision_s,
        starts_s,
        0 * decision_s,
    )


def trial(begin_s, waits_h, choices, nodes=1, wait_quantiles_s=None):
    found = episode(begin_s, waits_h, nodes)
    points = {
        (name, each): {"mine": choices, REACTIVE: 3}.get(name, found.best(each))
        for name in ("mine", REACTIVE, ORACLE)
        for each in (EVEN, WARY, *CURVE)
    }
    return EpisodeTrial(
        found, points, {"mine": wait_quantiles_s} if wait_quantiles_s is not None else {}
    )


def group(trials):
    return Group(trials, resamples=200, seed=1)


HEAVY = trial(
    0, [18, 12, 14, 15], 1, nodes=2
)  # 2 h late at point 1; best: 2 h early at point 0 or 2 h late
LIGHT = trial(10 * DAY_S, [0, 0, 0.5, 1], 2, nodes=2)  # half an hour early


def test_a_summary_by_hand():
    row = group([HEAVY, LIGHT]).summary("mine", WARY, "all")
    assert row.episodes == 2
    assert row.interruption_h.value == pytest.approx(1.0)
    assert row.overlap_h.value == pytest.approx(0.25)
    assert row.penalty_h.value == pytest.approx((4 * 2 + 0.5) / 2)
    assert row.zero_interruption.value == 0.5
    assert row.under_10_min.value == 0.5
    assert row.node_hours_wasted.value == pytest.approx(0.5)
    assert row.node_hours_wasted_total == pytest.approx(1.0)
    assert row.reduction is not None
    assert row.reduction.value == pytest.approx(1 - 2 / 16)
    assert row.outcomes == (0, 1, 0, 0, 1, 0, 0)
    assert row.interruption_h.low is None, "two episodes are no basis for an interval"


def test_regret_is_what_is_left_of_the_distance_to_the_oracle():
    both = group([HEAVY, LIGHT])
    # 4:1. Reactive: 60 and 4. Best: 2 h early (2) and half an hour early (0.5). Mine: 8 and 0.5.
    regret = both.summary("mine", WARY, "all").regret
    assert regret is not None
    assert regret.value == pytest.approx((8.5 - 2.5) / (64 - 2.5))
    assert both.summary(ORACLE, WARY, "all").regret.value == 0
    assert both.summary(REACTIVE, WARY, "all").regret.value == 1


def test_without_anything_to_gain_there_is_no_regret():
    calm = trial(0, [0, 0, 0, 0], 3)
    row = group([calm]).summary("mine", EVEN, "light")
    assert row.regret is None
    assert row.reduction is None


def test_load_classes_are_those_of_the_reactive_wait():
    both = group([HEAVY, LIGHT])
    assert both.present == ["heavy", "light", "all"]
    assert [both.summary("mine", EVEN, load).episodes for load in both.present] == [1, 1, 2]


def test_a_difference_and_its_reverse():
    found = group([HEAVY, LIGHT]).difference("mine", REACTIVE, WARY, "all")
    assert found.interruption_h.value == pytest.approx((2 - 15 + 0 - 1) / 2)
    assert found.penalty_h.value == pytest.approx((8.5 - 64) / 2)
    back = found.reversed()
    assert (back.method, back.than) == (REACTIVE, "mine")
    assert back.penalty_h.value == -found.penalty_h.value


@given(st.lists(st.floats(-100, 100), min_size=1, max_size=30))
def test_each_episode_has_one_outcome(late_h):
    from mirage.provision.evaluation.metrics import _by_outcome

    counts = _by_outcome(np.array(late_h))
    assert sum(counts) == len(late_h)
    assert counts[3] == sum(abs(each) < EDGES_H[3] for each in late_h)
    assert sum(counts[:3]) == sum(each >= EDGES_H[3] for each in late_h)


# --- intervals


def test_independent_values_are_worth_themselves_and_a_random_walk_far_less():
    random = np.random.default_rng(0)
    noise = random.normal(size=400)
    assert correlation_time(noise) < 2
    assert correlation_time(np.cumsum(noise)) > 20
    smooth = np.convolve(
        random.normal(size=2000), np.ones(10), mode="valid"
    )  # each value shares 9 with the next
    assert 6 < correlation_time(smooth) < 15


@pytest.mark.parametrize(("values", "expected"), [([], 1), ([3.0], 1), ([3.0] * 7, 7)])
def test_correlation_time_of_next_to_nothing(values, expected):
    assert correlation_time(np.array(values)) == expected


@given(st.lists(st.tuples(st.integers(0, 100), st.integers(0, 20)), max_size=20))
def test_spells_are_groups_of_spans_less_than_a_day_apart(halves):
    spans = [(first * DAY_S // 2, (first + length) * DAY_S // 2) for first, length in halves]
    groups: list[set[tuple[int, int]]] = []
    for span in spans:
        near = [group for group in groups if any(_near(span, other) for other in group)]
        groups = [group for group in groups if group not in near] + [{span}.union(*near)]
    begin, end = (np.array([span[side] for span in spans], dtype=np.int64) for side in (0, 1))
    assert spells(begin, end) == len(groups)


def _near(one, other):
    return one[0] < other[1] + DAY_S and other[0] < one[1] + DAY_S


def blocks(values, every_s=4 * HOUR_S, resamples=400, seed=1):
    return Blocks.of(every_s * np.arange(len(values)), np.asarray(values), resamples, seed)


def test_blocks_are_three_days_or_longer_where_the_queue_remembers_longer():
    random = np.random.default_rng(2)
    assert blocks(random.normal(size=300)).length == 18
    assert blocks(np.cumsum(random.normal(size=300))).length == 42
    assert blocks(np.cumsum(random.normal(size=300))).length_s == 7 * DAY_S


def test_every_resample_has_as_many_episodes():
    counts = blocks(np.random.default_rng(3).normal(size=100)).counts
    assert counts.shape == (400, 100)
    assert np.all(counts.sum(axis=1) == 100)
    assert np.allclose(counts.mean(axis=0), 1, atol=0.2)


def test_no_interval_from_two_blocks():
    found = blocks(np.random.default_rng(4).normal(size=36))
    ones = np.ones(36)
    assert found.interval(ones, ones, np.arange(36) >= 0) is None


def test_intervals_cover_the_truth_though_neighbours_are_alike():
    """A plain bootstrap's would hold it in a third of the cases."""
    hits = 0
    for seed in range(60):
        random = np.random.default_rng(seed)
        values = np.convolve(random.normal(size=600 + 11), np.ones(12) / 12, mode="valid")
        low, high = blocks(values, resamples=200).interval(values, np.ones(600), np.full(600, True))
        hits += low <= 0 <= high
    assert hits >= 50


def test_the_seed_fixes_the_interval():
    values = np.random.default_rng(5).normal(size=200)
    everywhere = np.full(200, True)
    one, same, other = (
        blocks(values, seed=seed).interval(values, np.ones(200), everywhere) for seed in (1, 1, 2)
    )
    assert one == same != other


# --- calibration


def test_a_quantile_that_equals_the_wait_is_both_below_and_at_most():
    waits_s = np.array([18, 12, 14]) * HOUR_S
    wait_quantiles_s = np.stack([waits_s - 1, waits_s, waits_s + 1], axis=1).astype(float)
    found = {
        row.quantile: row
        for row in coverages(
            group([trial(0, [18, 12, 14, 15], 1, wait_quantiles_s=wait_quantiles_s)]), "mine"
        )
    }
    assert [found[name].below.value for name in ("p10", "p50", "p90")] == [0, 0, 1]
    assert [found[name].at_most.value for name in ("p10", "p50", "p90")] == [0, 1, 1]
    assert found["p50"].points == 3


def test_who_tells_nothing_is_not_judged():
    assert not list(coverages(group([HEAVY]), "mine"))
    assert not list(bins(group([HEAVY]), "mine"))


def test_a_comparison_has_every_method_in_every_class_for_all_penalties():
    setup = Setup(0, STEP_S, 2, (2,), LIMIT_S, "trace", resamples=50)
    methods = [MethodInfo(name, "rule", "") for name in (REACTIVE, "mine", ORACLE)]
    found = compare(setup, methods, [LIGHT, HEAVY], {2: {"history_ends": 1}})
    assert found.headline == "mine"
    assert len(found.summary) == 3 * 3 * 2
    assert len(found.differences) == 3 * 3 * 2
    assert {point.penalties for point in found.tradeoff} == {ratio_text(each) for each in CURVE}
    assert found.busiest(2) == "heavy"
    oracle = [
        point.interruption_h
        for point in found.tradeoff
        if (point.method, point.load) == (ORACLE, "all")
    ]
    assert oracle == sorted(oracle, reverse=True), (
        "the more an interruption weighs, the less of it is best"
    )
    assert [row.spells for row in found.situations] == [1, None, None]
