"""The cases of the ablations."""

from __future__ import annotations

import pytest

from benchmarks.ablations import CASES
from mirage.provision.learn.methods import METHODS
from mirage.rl.options import with_settings


@pytest.mark.parametrize("name", CASES)
def test_a_cases_settings_are_options_of_its_method(name: str) -> None:
    pytest.importorskip("torch", reason="the extra `train` is not installed")
    case = CASES[name]
    default = METHODS[case.method].default_options()
    assert (with_settings(default, case.settings) == default) is not bool(case.settings)
