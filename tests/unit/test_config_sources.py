"""Files, environment and command line: which one wins, who said what, and what is never shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.config import Config, DaemonConfig, parse_config
from mirage.config_sources import load, show, store_url, user_file, with_store
from mirage.errors import InputError


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "mirage.toml"


def write(file: Path, text: str) -> str:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)
    return str(file)


def test_without_anything_there_are_the_defaults(file: Path) -> None:
    loaded = load(None, file, {})
    assert loaded.config == Config()
    assert loaded.origins == {}


def test_a_file_that_was_named_must_be_there(file: Path) -> None:
    with pytest.raises(InputError, match=f"{file}: can't read"):
        load(file, file, {})


def test_the_later_wins_flag_before_environment_before_parts_before_file(file: Path) -> None:
    write(
        file,
        "[daemon]\npoll_s = 1\n[policy.timer]\nlead_s = 1\n[policy.avg]\nlast ="
        " 1\n[cluster]\ntimeout_s = 1\n",
    )
    write(
        file.parent / "conf.d" / "10-site.toml",
        "[daemon]\npoll_s = 2\n[policy.timer]\nlead_s = 2\n[policy.avg]\nlast = 2\n",
    )
    write(file.parent / "conf.d" / "20-more.toml", "policy.timer.lead_s = 3\ndaemon.poll_s = 3\n")
    (file.parent / "conf.d" / "30-not-this.toml~").write_text("broken")
    environ = {
        "MIRAGE__POLICY__TIMER__LEAD_S": "4",
        "MIRAGE__DAEMON__POLL_S": "4",
        "MIRAGE_HOME": "/x",
    }
    loaded = load(None, file, environ, {("daemon", "poll_s"): 5, ("policy", "name"): None})
    config = loaded.config
    assert (config.cluster.timeout_s, config.policy.avg.last) == (1, 2)
    assert (config.policy.timer.lead_s, config.daemon.poll_s) == (4, 5)
    assert config.policy.name == Config().policy.name
    assert loaded.origins["policy", "avg", "last"] == str(file.parent / "conf.d" / "10-site.toml")
    assert loaded.origins["policy", "timer", "lead_s"] == "MIRAGE__POLICY__TIMER__LEAD_S"
    assert loaded.origins["daemon", "poll_s"] == "the command line"


def test_parts_count_without_the_main_file_too(file: Path) -> None:
    write(file.parent / "conf.d" / "a.toml", "daemon.poll_s = 7\n")
    assert load(None, file, {}).config.daemon.poll_s == 7


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        (
            "MIRAGE__DAEMON__POLL_S",
            "soon",
            "MIRAGE__DAEMON__POLL_S: daemon.poll_s: expected a whole number, got 'soon'",
        ),
        (
            "MIRAGE__DAEMON__POLL_S",
            "0",
            "MIRAGE__DAEMON__POLL_S: daemon.poll_s: expected at least 1",
        ),
        ("MIRAGE__DAEMON__POL_S", "1", "did you mean 'poll_s'?"),
        ("MIRAGE__DEMON__POLL_S", "1", "did you mean 'daemon'?"),
        ("MIRAGE__DAEMON", "1", "expected a table [daemon]"),
        ("MIRAGE__POLICY__NAME", "oracel", "expected one of reactive"),
        ("MIRAGE__", "1", "unknown key"),
    ],
)
def test_a_wrong_variable_is_named(file: Path, name: str, value: str, said: str) -> None:
    with pytest.raises(InputError) as caught:
        load(None, file, {name: value})
    assert said in str(caught.value)
    assert name in str(caught.value)


def test_a_text_that_looks_like_a_number_stays_a_text(file: Path) -> None:
    assert load(None, file, {"MIRAGE__POLICY__MODEL": "42"}).config.policy.model == "42"


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://alice:hunter2@db/mirage",
        "mariadb://alice:hunt@er2:hunter2@db/mirage",
        "postgresql://db/mirage?user=alice&password=hunter2",
        "postgresql://alice:hunter2@",
    ],
)
def test_what_is_printed_has_no_password_and_is_a_configuration(file: Path, url: str) -> None:
    write(file, f'[daemon]\nstore = "{url}"\n')
    loaded = load(None, file, {"MIRAGE__CLUSTER__BIN_DIR": '/opt/"slurm"'})
    printed = show(with_store(loaded, url))
    assert "hunt" not in printed
    assert f"# {file}" in printed
    again = parse_config(printed, "printed")
    assert again.cluster.bin_dir == '/opt/"slurm"'
    assert again.policy == loaded.config.policy


@pytest.mark.parametrize(
    "text", ['store = "oracle://alice:hunter2@db"', 'store = ["postgresql://alice:hunter2@db"]']
)
def test_an_error_about_the_store_does_not_show_it(file: Path, text: str) -> None:
    write(file, f"[daemon]\n{text}\n")
    with pytest.raises(InputError, match=f"{file}:2: daemon.store") as caught:
        load(None, file, {})
    assert "hunter2" not in str(caught.value)


def test_a_stores_url_may_lie_in_a_file_of_its_own(tmp_path: Path) -> None:
    secret = tmp_path / "store.url"
    secret.write_text("postgresql://alice:hunter2@db/mirage\n# a comment\n")
    with pytest.raises(InputError, match="others can read the password") as caught:
        store_url(DaemonConfig(store_file=str(secret)), "x")
    assert "hunter2" not in str(caught.value)
    secret.chmod(0o640)
    assert (
        store_url(DaemonConfig(store_file=str(secret)), "x")
        == "postgresql://alice:hunter2@db/mirage"
    )
    assert store_url(DaemonConfig(store="sqlite:///a"), "x") == "sqlite:///a"
    assert store_url(DaemonConfig(), "x") == "x"
    with pytest.raises(InputError, match="give one of them"):
        store_url(DaemonConfig(store="sqlite:///a", store_file=str(secret)), "x")
    with pytest.raises(InputError, match="can't be read"):
        store_url(DaemonConfig(store_file=str(tmp_path / "none")), "x")
    with pytest.raises(InputError, match="a device, not a file"):
        store_url(DaemonConfig(store_file="/dev/zero"), "x")
    secret.write_text("\n")
    with pytest.raises(InputError, match="expected the store's URL"):
        store_url(DaemonConfig(store_file=str(secret)), "x")


def test_an_agents_file_follows_the_xdg_specification() -> None:
    assert user_file({"XDG_CONFIG_HOME": "/x"}) == Path("/x/mirage/mirage.toml")
    assert user_file({}) == Path.home() / ".config" / "mirage" / "mirage.toml"


def test_a_configuration_that_may_not_be_looked_for_is_an_error(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(_path: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "exists", forbidden)
    with pytest.raises(
        InputError, match=r"mirage\.toml: can't be read: permission denied; name another one"
    ):
        load(None, file, {})
