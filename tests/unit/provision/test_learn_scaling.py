"""Input scaling: what is learned, what stays visible, what is cut."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.provision.learn.scaling import ELAPSED, LIMIT, Scaling, forecast_inputs
from mirage.state.variables import VARIABLES

LIMIT_S = 48 * 3600
_JOBS = 0


def rows(count: int = 500) -> np.ndarray:
    generator = np.random.default_rng(0)
    made = generator.uniform(0, 5000, (count, len(VARIABLES))).astype(np.float32)
    made[:, LIMIT] = LIMIT_S
    made[:, ELAPSED] = generator.uniform(0, LIMIT_S, count)
    return made


def test_training_rows_get_mean_zero_and_deviation_one() -> None:
    raw = rows()
    scaled = Scaling.fit([raw[:200], raw[200:]]).apply(raw)
    changing = [column for column in range(len(VARIABLES)) if column != LIMIT]
    assert np.allclose(scaled[:, changing].mean(axis=0), 0, atol=1e-4)
    assert np.allclose(scaled[:, changing].std(axis=0), 1, atol=1e-3)
    assert np.allclose(scaled[:, LIMIT], 0, atol=1e-4)


def test_ten_minutes_near_the_end_stay_visible() -> None:
    scaling = Scaling.fit([rows()])
    raw = rows(2)
    raw[:, ELAPSED] = LIMIT_S - 600, LIMIT_S - 1200
    ten, twenty = scaling.apply(raw)[:, ELAPSED]
    assert twenty - ten > 0.3


def test_ten_minutes_of_a_forecast_beyond_the_time_left_are_seen_and_a_fortnight_stays_near_one() -> (
    None
):
    remaining_s = np.array([7200, 7200, 7200])
    seen = forecast_inputs(np.array([6600, 7800, 14 * 86_400]), remaining_s)
    assert seen.shape == (3, 2)
    assert seen[1, 1] - seen[0, 1] > 0.1
    assert seen[0, 1] == -seen[1, 1]
    assert 2 < seen[2].min() < seen[2].max() < 4


def test_an_outlier_is_cut_and_does_not_move_the_rest() -> None:
    raw = rows()
    outlier = raw.copy()
    outlier[0, _JOBS] = 1e9
    scaling = Scaling.fit([raw])
    assert scaling.apply(outlier)[0, _JOBS] == 8
    assert np.array_equal(scaling.apply(outlier)[1:], scaling.apply(raw)[1:])


def test_the_raw_rows_are_left_as_they_are() -> None:
    raw = rows()
    before = raw.copy()
    Scaling.fit([raw]).apply(raw)
    assert np.array_equal(raw, before)


def test_nothing_to_learn_from_is_refused() -> None:
    with pytest.raises(InputError, match="no training rows"):
        Scaling.fit([])


@pytest.mark.parametrize(("mean", "spread"), [(np.nan, 1.0), (0.0, 0.0), (0.0, -1.0)])
def test_impossible_scaling_is_refused(mean: float, spread: float) -> None:
    with pytest.raises(InputError, match="scaling"):
        Scaling(np.full(len(VARIABLES), mean), np.full(len(VARIABLES), spread))


def test_scaling_of_another_width_is_refused() -> None:
    with pytest.raises(InputError, match="40 finite numbers"):
        Scaling(np.zeros(39), np.ones(39))
