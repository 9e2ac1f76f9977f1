"""A model that is replaced under a running service."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path

import pytest

pytest.importorskip("xgboost", reason="the extra `train` is not installed")

from mirage.config import PolicyConfig
from mirage.errors import InputError
from mirage.models.shipped import shipped
from mirage.provision.policies.reloading import Reloading, version_of

FIRST, SECOND = (shipped(name) / "quantile" for name in ("kth-sp2", "ls6-a100"))


def point(link: Path, folder: Path) -> None:
    beside = link.with_name("beside")
    beside.symlink_to(folder)
    beside.replace(link)


def test_a_link_that_leads_elsewhere_is_noticed_at_the_next_decisions(tmp_path: Path) -> None:
    point(tmp_path / "m", FIRST)
    policy = Reloading(PolicyConfig(name="quantile", model=str(tmp_path / "m")))
    assert policy.model == {"folder": str(tmp_path / "m"), "version": version_of(FIRST)}
    assert policy.decide_all([]) == []
    assert policy.model["version"] == version_of(FIRST)
    point(tmp_path / "m", SECOND)
    assert policy.decide_all([]) == []
    assert policy.model["version"] == version_of(SECOND)


def test_one_that_can_not_be_read_leaves_the_old_one_at_work_and_is_told_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    shutil.copytree(FIRST, tmp_path / "m")
    policy = Reloading(PolicyConfig(name="quantile", model=str(tmp_path / "m")))
    recipe = (tmp_path / "m" / "recipe.toml").read_text()
    (tmp_path / "m" / "recipe.toml").write_text(recipe.replace("seed =", "sed ="))
    for _ in range(3):
        policy.decide_all([])
    shutil.rmtree(tmp_path / "m")
    for _ in range(3):
        policy.decide_all([])
    (tmp_path / "m").symlink_to("m")
    policy.decide_all([])
    (tmp_path / "m").unlink()
    assert policy.model["version"] == version_of(FIRST)
    assert len([record for record in caplog.records if record.levelno == logging.WARNING]) == 2
    shutil.copytree(SECOND, tmp_path / "m")
    policy.decide_all([])
    assert policy.model["version"] == version_of(SECOND)


def test_at_the_start_a_model_must_be_there(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="can't be read"):
        Reloading(PolicyConfig(name="quantile", model=str(tmp_path / "none")))
