"""The rows of several training seeds."""

from __future__ import annotations

import json

import pytest

from benchmarks.learning_seeds import CASES, RESULT
from mirage.provision.learn.methods import METHODS
from mirage.rl.options import with_settings


@pytest.mark.parametrize("name", CASES)
def test_a_cases_settings_are_options_of_its_method(name: str) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    case = CASES[name]
    default = METHODS[case.method].default_options()
    assert (with_settings(default, case.settings) == default) is not bool(case.settings)


def test_every_case_has_a_result_and_every_result_a_case() -> None:
    assert {row["method"] for row in json.loads(RESULT.read_text())} == set(CASES)
