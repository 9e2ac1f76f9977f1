"""Verbs on a service of several replicas by its name, and `mirage scale`."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import pytest

from mirage.chain.folder import mark_over
from mirage.chain.service import (
    ScaleRule,
    ServiceRecord,
    make_services_folder,
    read_service,
    write_service,
)
from mirage.cli.chain_argument import for_each_replica
from mirage.cli.main import main
from mirage.daemon.impact import Impact
from mirage.errors import InputError
from mirage.user.chain_names import replicas_of, resolve_chain, resolve_chains
from mirage.user.scaler import read_state


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service `llm` of three replicas, of which the first was ended and started again."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("MIRAGE_SOCKET", str(tmp_path / "no.sock"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("MIRAGE_HOME", raising=False)
    make_services_folder()
    for at_s, (chain, number) in enumerate(
        (("old111", 1), ("chain3", 3), ("chain2", 2), ("chain1", 1))
    ):
        folder = tmp_path / ".mirage" / "chains" / chain
        folder.mkdir()
        record = f"segments=9\nmode=service\nname=llm\nservice=llm\nreplica={number}\n"
        (folder / "chain").write_text(f"{record}submitted={at_s}\n")
    mark_over(tmp_path / ".mirage" / "chains" / "old111", "done", "scaled")
    rule = ScaleRule(least=3, most=3)
    record = ServiceRecord(
        name="llm", words=[], source="/x", cwd="/", environ={}, rule=rule, wanted=3
    )
    write_service(record, b"")
    return tmp_path


def test_a_services_name_means_all_its_replicas_and_a_number_one(home: Path) -> None:
    assert resolve_chains("llm") == ["chain1", "chain2", "chain3"]
    assert resolve_chains("chain2") == ["chain2"]
    assert resolve_chain("llm:2") == "chain2"
    with pytest.raises(InputError, match="llm:7: no service of yours called llm has"):
        resolve_chain("llm:7")


def test_of_a_service_that_is_over_all_replicas_are_meant(home: Path) -> None:
    for chain in ("chain1", "chain2", "chain3"):
        mark_over(home / ".mirage" / "chains" / chain, "cancelled", "by its owner")
    assert [one.chain_id for one in replicas_of("llm")] == ["old111", "chain1", "chain2", "chain3"]
    assert resolve_chain("llm:1") == "chain1"


def test_a_verb_acts_on_each_replica_though_one_fails(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seen = []

    @for_each_replica("chain", alone="follow")
    def run(args: argparse.Namespace) -> int:
        seen.append(args.chain)
        if args.chain == "chain2":
            raise InputError("no")
        return 0

    assert run(argparse.Namespace(chain="llm", verb="pause", follow=False)) == 2
    assert seen == ["chain1", "chain2", "chain3"]
    said = capsys.readouterr()
    assert "replica 3 of service llm:" in said.out
    assert said.err == "mirage pause: no\n"
    assert run(argparse.Namespace(chain="chain3", verb="pause", follow=True)) == 0
    with pytest.raises(InputError, match="--follow takes one replica, such as llm:1"):
        run(argparse.Namespace(chain="llm", verb="logs", follow=True))


def test_the_status_of_one_service_has_its_row_alone(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.cli.status.find_chains", lambda _chain: ([], ""))
    rule = ScaleRule(least=0, most=2)
    asleep = ServiceRecord(
        name="asleep", words=[], source="/x", cwd="/", environ={}, rule=rule, wanted=0
    )
    write_service(asleep, b"")
    assert main(["status", "asleep"]) == 0
    said = capsys.readouterr().out
    assert "service asleep" in said
    assert "no replica runs: nobody asks" in said
    assert "llm" not in said
    assert main(["status", "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)["services"]
    assert [(row["service"], row["ready"], row["wanted"]) for row in rows] == [
        ("asleep", 0, 0),
        ("llm", 0, 3),
    ]


def test_a_record_that_cant_be_read_keeps_nothing_else_from_being_shown_and_can_be_ended(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mirage.cli.status.find_chains", lambda _chain: ([], ""))
    path = home / ".mirage" / "services" / "llm" / "service.json"
    path.write_text('{"name": 1')
    (home / ".mirage" / "chains" / "chain1" / "chain").write_text("service=llm\nreplica=x\n")
    assert main(["status"]) == 0
    assert main(["scale", "llm", "2"]) == 2
    assert "service.json: can't be read" in capsys.readouterr().err
    monkeypatch.setattr("mirage.cli.cancel.queue", lambda: None)
    monkeypatch.setattr("mirage.cli.cancel.end_chains", lambda *_, **__: {})
    assert main(["cancel", "llm"]) == 0
    assert not path.exists()


def test_scale_names_the_server_of_the_environment_unless_it_is_a_command(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MIRAGE_PROMETHEUS", "http://site:9090")
    words = ["scale", "llm", "3..4", "--scale-on", "sum(x)", "--target", "1"]
    assert main(words) == 0
    assert "by load: sum(x) at http://site:9090, 1 a replica" in capsys.readouterr().out
    assert main([*words, "--prometheus", ""]) == 0
    assert "by load: sum(x), 1 a replica" in capsys.readouterr().out


def test_scale_shows_what_there_is(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["scale", "llm"]) == 0
    assert capsys.readouterr().out.startswith("service llm: 3 of 3 replicas: 1 (chain chain1), 2")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["none", "2"], "there is no service of several replicas called none"),
        (["../x"], "can't be called '../x'"),
        (["llm", "many"], "--replicas: 'many' is neither a number"),
        (["llm", "4..2"], "is neither a number"),
        (["llm", "--target", "2"], "--target needs a range"),
        (["llm", "2", "--target", "2"], "--target needs a range"),
        (["llm", "1..3", "--scale-on", "x"], "--scale-on needs --target X"),
    ],
)
def test_wrong_input_changes_nothing(
    home: Path, capsys: pytest.CaptureFixture[str], words: list[str], said: str
) -> None:
    before = read_service("llm")
    assert main(["scale", *words]) == 2
    assert said in capsys.readouterr().err
    assert read_service("llm") == before


def test_a_rule_is_changed_and_what_it_allows_already_stays(
    home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["llm", "1..4", "--scale-on", "echo 3", "--target", "1", "--quiet", "1min"]
    assert main(["scale", *words]) == 0
    record = read_service("llm")
    assert record is not None
    assert record.rule == ScaleRule(least=1, most=4, scale_on="echo 3", target=1, quiet_s=60)
    assert record.wanted == 3
    assert "between 1 and 4 by load: echo 3, 1 a replica" in capsys.readouterr().out


@pytest.mark.parametrize(("mode", "load"), [("enforce", 2), ("observe", None)])
def test_an_agent_of_cron_scales_if_it_may_act(
    home: Path, monkeypatch: pytest.MonkeyPatch, mode: str, load: float | None
) -> None:
    monkeypatch.setattr("mirage.cli.serve.serve", lambda _options: True)
    assert main(["scale", "llm", "1..4", "--scale-on", "echo 2", "--target", "1"]) == 0
    assert main(["agent", "--once", "--mode", mode]) == 0
    assert read_state("llm").load == load


def test_the_report_has_a_row_a_service(
    home: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = int(time.time())
    stands = {"service": "llm", "user": "ada", "number": 1, "chain": "chain1", "state": "active"}
    served = [[now_s - 30 * 86400, now_s - 6 * 86400], [now_s - 5 * 86400, None]]
    replica = stands | {"stands": "ready", "jobs": [7], "next_handover": now_s, "served": served}
    monkeypatch.setattr("mirage.cli.report.find_chains", lambda: ([{"replica": replica}], ""))
    monkeypatch.setattr("mirage.cli.report.read_impact", lambda *_: Impact())
    assert main(["report", "--json"]) == 0
    (row,) = json.loads(capsys.readouterr().out)["by_service"]
    assert (row["service"], row["ready"], row["wanted"]) == ("llm", 1, 3)
    assert row["uptime"] == row["uptime_all"] == pytest.approx(6 / 7, abs=1e-3)
    assert main(["report"]) == 0
    assert "llm      ada        1       3  85.71%  85.71%" in capsys.readouterr().out
