"""Intervals of independent situations, and where figures come from."""

from pathlib import Path

import numpy as np

from mirage.figures.provenance import file_record, provenance
from mirage.figures.resample import mean_interval, ratio_interval


def test_an_interval_holds_the_truth_in_about_95_of_100_cases() -> None:
    random = np.random.default_rng(1)
    held = 0
    for _ in range(200):
        low, high = mean_interval(random.normal(2.0, 1.0, size=40), resamples=400)
        held += low <= 2.0 <= high
    assert 0.88 <= held / 200 <= 0.99


def test_a_ratio_of_pairs_is_sharper_than_the_values() -> None:
    random = np.random.default_rng(2)
    below = random.uniform(1, 100, size=30)
    low, high = ratio_interval(0.9 * below, below)
    assert abs(low - 0.9) < 1e-9
    assert abs(high - 0.9) < 1e-9
    wide = mean_interval(below)
    assert wide[1] - wide[0] > 5


def test_where_figures_come_from(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("jobs")
    record = provenance(
        ["mirage", "x y"],
        inputs={"trace": file_record(tmp_path / "t.csv", jobs=3)},
        split={"trained_s": [0, 1]},
        seed=7,
        started_s=0,
        wall_s=1.23,
    )
    assert record["command"] == "mirage 'x y'"
    assert (record["trace"]["file"], record["trace"]["jobs"]) == ("t.csv", 3)
    assert (record["seed"], record["split"]) == (7, {"trained_s": [0, 1]})
    assert record["started"] == "1970-01-01T00:00:00+00:00"
    assert "numpy" in record["versions"]
