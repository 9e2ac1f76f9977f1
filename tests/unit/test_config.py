import os
from pathlib import Path

import pytest

from mirage.config import Config, load_config, parse_config
from mirage.errors import InputError


def test_no_file_gives_the_defaults():
    assert load_config(None) == Config()


def test_values_are_read():
    config = parse_config(
        '[daemon]\npoll_s = 60\n[policy]\nname = "timer"\n[policy.timer]\nlead_s = 5\n'
    )
    assert (config.daemon.poll_s, config.policy.name, config.policy.timer.lead_s) == (
        60,
        "timer",
        5,
    )


def test_what_the_service_may_do_is_read():
    acting = parse_config('[acting]\nmode = "advise"\npartitions = ["gpu", "debug"]\n').acting
    assert (acting.mode, acting.partitions, acting.users) == ("advise", ("gpu", "debug"), ())


def test_a_model_is_read():
    policy = parse_config('[policy]\nname = "xgboost"\nmodel = "models/x/xgboost"\n').policy
    assert (policy.name, policy.model) == ("xgboost", "models/x/xgboost")


def test_look_ahead_is_no_policy():
    with pytest.raises(InputError, match=r"policy\.name: .*'lookahead'"):
        parse_config('[policy]\nname = "lookahead"\n')


@pytest.mark.parametrize(
    ("text", "where", "what"),
    [
        ("[daemon]\npoll_s = \n", "site.toml:2:10", "not TOML"),
        ('[daemon]\nstore = "x\n', "site.toml:2:", "not TOML"),
        (
            '[daemon]\n\npoll_s = "10"\n',
            "site.toml:3: daemon.poll_s",
            "expected a whole number, got '10' (str)",
        ),
        ("[daemon]\npoll_s = true\n", "site.toml:2: daemon.poll_s", "expected a whole number"),
        ("[daemon]\npoll_s = 0\n", "site.toml:2: daemon.poll_s", "expected at least 1"),
        (
            "[daemon]\npoll_s = 1000000001\n",
            "site.toml:2: daemon.poll_s",
            "expected at most 1000000000, got 1000000001",
        ),
        ("[daemon]\npol_s = 10\n", "site.toml:2: daemon.pol_s", "did you mean 'poll_s'?"),
        ("\n[demon]\nx = 1\n", "site.toml:2: demon", "did you mean 'daemon'?"),
        ("policy.timer.lead = 1\n", "site.toml:1: policy.timer.lead", "did you mean 'lead_s'?"),
        (
            '[policy]\nname = "oracel"\n',
            "site.toml:2: policy.name",
            "expected one of reactive, timer, avg",
        ),
        (
            '[daemon]\nstore = "sqlite:///"\n',
            "site.toml:2: daemon.store",
            "expected sqlite:///FILE",
        ),
        ('[daemon]\nstore = "mysql://x"\n', "site.toml:2: daemon.store", "expected sqlite:///FILE"),
        (
            '[acting]\nmode = "act"\n',
            "site.toml:2: acting.mode",
            "expected one of observe, advise, enforce, got 'act'",
        ),
        ('[acting]\nusers = "alice"\n', "site.toml:2: acting.users", "expected a list of names"),
        (
            '[acting]\nusers = ["alice", 3]\n',
            "site.toml:2: acting.users",
            "expected a list of names",
        ),
        (
            "[policy]\ntimer = 3\n",
            "site.toml:2: policy.timer",
            "expected a table [policy.timer], got 3 (int)",
        ),
    ],
)
def test_an_error_names_file_line_key_and_what_was_expected(text, where, what):
    with pytest.raises(InputError) as caught:
        parse_config(text, "site.toml")
    assert where in str(caught.value)
    assert what in str(caught.value)
    assert caught.value.exit_code == 2


def test_a_file_that_can_not_be_read(tmp_path):
    with pytest.raises(InputError, match="can't read the configuration"):
        load_config(tmp_path / "none.toml")
    (tmp_path / "latin.toml").write_bytes(b"# \xff\n")
    with pytest.raises(InputError, match="can't read the configuration"):
        load_config(tmp_path / "latin.toml")
    with pytest.raises(
        InputError, match=r"/dev/zero: can't read the configuration: .*a device, not a file"
    ):
        load_config(Path("/dev/zero"))
    assert load_config(Path(os.devnull)) == Config()
