"""Cross-validation of methods: regrets and paired differences."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import numpy as np
import pytest

from benchmarks.kept import kept
from benchmarks.learning_cv import Case, add_seeds, kept_file, mean_penalties, summary
from mirage.provision.learn.card import TASTES
from mirage.provision.learn.episode import Floats
from slurm_sim.seconds import HOUR_S
from tests.toy import Toy

QUANTILE = Case(method="quantile")
QUEUE = Toy(limit_h=20, most_jobs=300)
EPISODES = [QUEUE.episode(number) for number in range(60)][::-1]
COSTS = [
    [each.costs_s(taste) / (taste.interruption + taste.overlap) / HOUR_S for each in EPISODES]
    for taste in TASTES
]
BEST = np.array([[cost.min() for cost in costs] for costs in COSTS])
NEVER = np.array([[cost[-1] for cost in costs] for costs in COSTS])


def test_regret_is_0_for_the_oracle_and_1_for_reactive() -> None:
    for mine, regret in ((BEST, 0.0), (NEVER, 1.0), ((BEST + NEVER) / 2, 0.5)):
        rows = [row for row in summary(mine, None, EPISODES) if "regret" in row]
        assert {row["load"] for row in rows} == {"heavy", "medium", "heavy and medium", "all"}
        assert all(row["regret"] == pytest.approx(regret, abs=1e-3) for row in rows)


def test_differences_are_paired_and_have_intervals() -> None:
    rows = list(summary(BEST, (BEST + NEVER) / 2, EPISODES))
    whole = next(row for row in rows if row["load"] == "all")
    assert whole["difference"] == pytest.approx(-0.5, abs=1e-3)
    assert whole["difference_95"] == [-0.5, -0.5]


def test_no_regret_where_there_is_less_than_an_hour_to_save() -> None:
    light = [row for row in summary(NEVER, None, EPISODES) if row["load"] == "light"]
    assert light
    assert not any("regret" in row for row in light)


def keep(folder: Path, seed: int, spent: Floats) -> None:
    kept(kept_file(QUANTILE, folder, seed), lambda: {"spent": spent})


def test_several_seeds_are_compared_by_their_mean_and_told_apart(tmp_path: Path) -> None:
    keep(tmp_path, 1, BEST)
    keep(tmp_path, 2, NEVER)
    args = Namespace(samples=tmp_path, seeds=[1, 2])
    mine = mean_penalties(QUANTILE, args)
    lines = list(summary(mine, None, EPISODES))
    add_seeds(lines, QUANTILE, args, EPISODES)
    whole = next(line for line in lines if line["load"] == "all")
    assert (whole["regret"], whole["of_seeds"]) == (pytest.approx(0.5, abs=1e-3), [0.0, 1.0])
    assert not any("of_seeds" in line for line in lines if line["load"] == "light")
