"""One budget for all trainings."""

from __future__ import annotations

import argparse

import pytest
from torch import nn

from mirage.cli.learning import add_minutes, budget_s
from mirage.rl import budget
from mirage.rl.fit import Stop, fit


def rounds(stop: Stop) -> int:
    return fit(nn.Linear(1, 1), lambda _done: 0.0, stop).rounds


def test_a_training_ends_with_the_budget_after_one_round() -> None:
    with budget.at_most(0):
        assert rounds(Stop(rounds=9)) == 1
        with budget.at_most(None):
            assert rounds(Stop(rounds=9)) == 9
        assert budget.is_over()
    assert rounds(Stop(rounds=9)) == 9


def test_minutes_are_given_in_one_way() -> None:
    parser = argparse.ArgumentParser()
    add_minutes(parser, "the training")
    assert budget_s(parser.parse_args(["--minutes", "0.5"])) == 30
    assert budget_s(parser.parse_args([])) is None
    for text in ("0", "-1", "soon", "nan", "inf"):
        with pytest.raises(SystemExit):
            parser.parse_args(["--minutes", text])
