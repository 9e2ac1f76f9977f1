"""Which adapter a user's verb takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage import config_sources
from mirage.config import AdapterConfig
from mirage.errors import InputError
from mirage.slurm.commands import CommandCluster
from mirage.slurm.rest_cluster import RestCluster
from mirage.slurm.rest_survey import RestSurvey
from mirage.slurm.survey import Survey
from mirage.user.slurm_access import adapter_config, glance_of, slurm_of, slurm_user, survey_of

REST = '[cluster]\nadapter = "rest"\nrest_url = "http://127.0.0.1:9"\n'
TOKEN = "e30.eyJzdW4iOiAiYWxpY2UifQ.x"
"""Of alice."""


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without a configuration, on a site without one."""
    monkeypatch.setattr(config_sources, "SITE_FILE", tmp_path / "site" / "mirage.toml")
    (tmp_path / "site").mkdir()
    (tmp_path / "own" / "mirage").mkdir(parents=True)
    return tmp_path


def chosen(home: Path, **environ: str) -> AdapterConfig:
    return adapter_config({"XDG_CONFIG_HOME": str(home / "own"), **environ})


def test_without_a_configuration_the_commands_are_taken(home):
    config = chosen(home)
    assert type(slurm_of(config)) is type(glance_of(config)) is CommandCluster
    assert type(survey_of(config)) is Survey


def test_ones_own_configuration_decides(home):
    (home / "own" / "mirage" / "mirage.toml").write_text(REST)
    (home / "site" / "mirage.toml").write_text('[cluster]\nadapter = "commands"\n')
    config = chosen(home)
    assert type(slurm_of(config)) is type(glance_of(config)) is RestCluster
    assert type(survey_of(config)) is RestSurvey


def test_the_sites_adapter_is_taken_with_ones_own_token_only(home):
    site, token = home / "site" / "mirage.toml", home / "token"
    site.write_text(f'{REST}rest_token_file = "{token}"\n')
    assert chosen(home).adapter == "commands"
    by_variable = chosen(home, SLURM_JWT="a.b.c")
    assert (by_variable.adapter, by_variable.rest_token_file) == ("rest", "")
    token.write_text("a.b.c")
    assert chosen(home).rest_token_file == str(token)


def test_a_named_configuration_and_the_environment_go_before(home):
    named = home / "named.toml"
    named.write_text(REST)
    assert chosen(home, MIRAGE_CONFIG=str(named)).adapter == "rest"
    assert chosen(home, MIRAGE__CLUSTER__BIN_DIR="/opt/slurm/bin").bin_dir == "/opt/slurm/bin"
    named.write_text("[cluster]\nadapter = 3\n")
    with pytest.raises(InputError, match=r"named\.toml"):
        chosen(home, MIRAGE_CONFIG=str(named))


def test_slurm_sees_the_tokens_user(home):
    token = home / "token"
    token.touch(0o600)
    token.write_text(TOKEN)
    config = AdapterConfig(adapter="rest", rest_url="http://h:1", rest_token_file=str(token))
    assert slurm_user(config) == "alice"
