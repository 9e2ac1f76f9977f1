"""Services of several replicas: what `mirage-submit --replicas` puts into the queue."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mirage.chain.batch_script import parse_script
from mirage.chain.folder import mark_over
from mirage.chain.sbatch import take_options
from mirage.chain.service import (
    ScaleRule,
    first_limit_s,
    forget_service,
    living_replicas,
    parse_rule,
    read_service,
    service_names,
    turn,
)
from mirage.chain.service_bounds import gpus_of
from mirage.chain.tag import ChainTag, parse_tag
from mirage.cli.submit import main
from mirage.errors import InputError
from tests.unit.chain.test_submit import Site, option
from tests.unit.chain.test_submit import site as site

SERVICE = ["--mode", "service", "--startup", "60s", "-J", "llm", "--time", "3:00:00"]


def tags(site: Site) -> list[ChainTag]:
    found = [parse_tag(option(words, "comment")) for words in site.sbatch_calls()]
    return [tag for tag in found if tag]


def test_replicas_are_chains_of_one_name_whose_first_links_end_apart(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SERVICE, "--replicas", "3", "train.sbatch"]) == 0
    assert [(tag.service, tag.replica, tag.segment) for tag in tags(site)] == [
        ("llm", replica, segment) for replica in (1, 2, 3) for segment in (1, 2)
    ]
    calls = site.sbatch_calls()
    assert len({tag.chain_id for tag in tags(site)}) == 3
    times = [[word for word in words if word.startswith("--time=")] for words in calls]
    assert times == [[], [], ["--time=02:00:00"], [], ["--time=01:00:00"], []]
    said = capsys.readouterr()
    assert said.out.count("of service llm: chain ") == 3
    assert "2 more handovers, once" in said.err


def test_where_a_service_watches_no_first_link_is_shorter(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It keeps them apart by handovers, for which the predecessor waits."""
    monkeypatch.setattr("mirage.cli.submit_service.is_watched", lambda: True)
    assert main([*SERVICE, "--replicas", "3", "train.sbatch"]) == 0
    assert not any(word.startswith("--time=") for words in site.sbatch_calls() for word in words)
    assert "more handovers, once" not in capsys.readouterr().err


def test_a_replica_that_is_refused_is_told_with_those_that_run(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.refuse(3, "sbatch: error: no")
    assert main([*SERVICE, "--replicas", "3", "train.sbatch"]) == 1
    said = capsys.readouterr().err
    assert "replica 1 of 3 of service llm is submitted, the next one is not" in said
    assert "`mirage scale llm 3` submits the rest" in said
    assert [one.number for one in living_replicas()["llm"]] == [1]


def test_nothing_stays_where_the_first_replica_is_refused(site: Site) -> None:
    site.refuse(1, "sbatch: error: no")
    assert main([*SERVICE, "--replicas", "3", "train.sbatch"]) == 1
    assert not service_names()
    assert not site.folders()


def test_a_second_service_of_one_name_is_refused(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*SERVICE, "--replicas", "2", "train.sbatch"]) == 0
    assert main([*SERVICE, "--replicas", "2", "train.sbatch"]) == 2
    assert "a service llm is there already, with 2 replicas" in capsys.readouterr().err
    for one in living_replicas()["llm"]:
        mark_over(site.chains / one.chain_id, "cancelled", "by its owner")
    assert main([*SERVICE, "--replicas", "2", "train.sbatch"]) == 0


def test_a_service_is_not_forgotten_while_a_replica_is_started(site: Site) -> None:
    assert main([*SERVICE, "--replicas", "0..2", "train.sbatch"]) == 0
    with ThreadPoolExecutor() as pool:
        with turn("llm"):
            forgotten = pool.submit(forget_service, "llm")
            assert main(["--replica", "llm:1", *SERVICE, "train.sbatch"]) == 0
            assert not forgotten.done()
        forgotten.result(60)
    assert read_service("llm") is None
    assert [one.number for one in living_replicas()["llm"]] == [1]


def test_a_service_that_begins_with_none_keeps_how_it_was_submitted(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    load = ["--scale-on", "cat n", "--target", "1", "--prometheus", ""]
    words = [*SERVICE, "--replicas", "0..4", *load, "train.sbatch"]
    assert main(words) == 0
    assert not site.sbatch_calls()
    record = read_service("llm")
    assert record is not None
    assert (record.words, record.wanted) == (words, 0)
    path = site.chains.with_name("services") / "llm" / "service.json"
    assert path.stat().st_mode & 0o777 == 0o600
    assert "between 0 and 4 replicas run by load" in capsys.readouterr().err
    assert main(words) == 2  # it is there, though nothing runs


def test_a_further_replica_runs_the_script_of_the_submission(site: Site) -> None:
    assert main([*SERVICE, "--replicas", "1..4", "train.sbatch"]) == 0
    site.write("train.sbatch", "#!/bin/sh\nanother\n")
    assert main(["--replica", "llm:2", *SERVICE, "--replicas", "1..4", "train.sbatch"]) == 0
    (one, two) = living_replicas()["llm"]
    assert (one.number, two.number) == (1, 2)
    copies = [(site.chains / each.chain_id / "script").read_bytes() for each in (one, two)]
    assert copies[0] == copies[1]


def test_json_has_the_replicas(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*SERVICE, "--replicas", "2", "--json", "train.sbatch"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert (shown["service"], [one["replica"] for one in shown["replicas"]]) == ("llm", [1, 2])
    assert [job["job_id"] for job in shown["replicas"][1]["jobs"]] == [103, 104]


def test_a_sites_bounds_are_told_at_submission(
    site: Site, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = site.root / "mirage.toml"
    file.write_text("[services]\nmost_replicas = 8\nmost_gpus = 6\n")
    monkeypatch.setattr("mirage.config_sources.SITE_FILE", file)
    assert main([*SERVICE, "--replicas", "9", "train.sbatch"]) == 2
    assert "9 replicas (0 now), and this site allows 8 a user" in capsys.readouterr().err
    assert main([*SERVICE, "--replicas", "3", "--gres=gpu:4", "train.sbatch"]) == 2
    assert "12 GPUs (0 now), and this site allows 6 a user" in capsys.readouterr().err
    assert main([*SERVICE, "--replicas", "3", "--gres=gpu:2", "train.sbatch"]) == 0
    assert main([*SERVICE, "-Jx", "--replicas", "1", "--gpus=1", "train.sbatch"]) == 2
    assert "7 GPUs (6 now)" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("words", "gpus"),
    [
        ("", 0),
        ("--gpus=3", 3),
        ("--gpus=a100:2,v100:1", 3),
        ("--gpus-per-node=a100:4 -N2", 8),
        ("--gpus-per-task=1 -n 6", 6),
        ("--gres=gpu:a100:2,shard:4 --nodes=3-5", 6),
        ("--gres=gpu", 1),
    ],
)
def test_gpus_are_read_from_sbatchs_options(words: str, gpus: int) -> None:
    rest, options = words.split(), []
    while rest:
        found, taken = take_options(rest)
        options += found
        rest = rest[taken:]
    assert gpus_of(options) == gpus


def test_gpus_of_the_script_count(site: Site) -> None:
    script = parse_script(b"#!/bin/sh\n#SBATCH --gres=gpu:2\n")
    assert gpus_of(script.options) == 2


@pytest.mark.parametrize(
    ("own", "rule"),
    [
        ({"replicas": "3"}, ScaleRule(least=3, most=3)),
        ({"replicas": "0..4"}, ScaleRule(least=0, most=4)),
        (
            {"replicas": "1..8", "scale-on": "load", "target": "2.5", "quiet": "5min"},
            ScaleRule(least=1, most=8, scale_on="load", target=2.5, quiet_s=300),
        ),
    ],
)
def test_the_rule_is_as_given(own: dict[str, str], rule: ScaleRule) -> None:
    assert parse_rule(own) == rule


@pytest.mark.parametrize(
    "own",
    [
        {"replicas": "0"},
        {"replicas": "4..1"},
        {"replicas": "99"},
        {"replicas": "many"},
        {"replicas": "3", "scale-on": "x", "target": "1"},
        {"replicas": "1..3", "scale-on": "x"},
        {"replicas": "1..3", "scale-on": " ", "target": "1"},
        {"replicas": "1..3", "target": "0"},
        {"replicas": "1..3", "target": "nan"},
        {"replicas": "1..3", "prometheus": "http://p"},
        {"replicas": "1..3", "scale-on": "q", "target": "1", "prometheus": "p:9090"},
        {"replicas": "1..3", "quiet": "soon"},
    ],
)
def test_wrong_rules_are_refused(own: dict[str, str]) -> None:
    with pytest.raises(InputError):
        parse_rule(own)


@pytest.mark.parametrize(
    ("own", "url"),
    [
        ({}, ""),
        ({"scale-on": "q", "target": "1"}, "http://site:9090"),
        ({"scale-on": "q", "target": "1", "prometheus": ""}, ""),
        ({"scale-on": "q", "target": "1", "prometheus": "http://mine"}, "http://mine"),
    ],
)
def test_the_environment_names_the_server_of_queries(
    monkeypatch: pytest.MonkeyPatch, own: dict[str, str], url: str
) -> None:
    monkeypatch.setenv("MIRAGE_PROMETHEUS", "http://site:9090")
    assert parse_rule({"replicas": "1..3", **own}).prometheus == url
    if url == "http://site:9090":
        monkeypatch.setenv("MIRAGE_PROMETHEUS", "site:9090")
        with pytest.raises(InputError, match="MIRAGE_PROMETHEUS: 'site:9090' is no URL"):
            parse_rule({"replicas": "1..3", **own})


@pytest.mark.parametrize("name", ["a b", "-x", "a/b", "é", "a" * 65])
def test_a_name_that_is_no_word_is_refused(site: Site, name: str) -> None:
    words = ["--mode", "service", "--startup", "1min", f"--job-name={name}", "--replicas", "2"]
    assert main([*words, "train.sbatch"]) == 2
    assert not site.sbatch_calls()


def test_options_of_services_need_one(site: Site, tmp_path: Path) -> None:
    assert main(["--replicas", "2", "train.sbatch"]) == 2
    assert main([*SERVICE, "--target", "2", "train.sbatch"]) == 2
    assert main([*SERVICE, "--replica", "no:2", "train.sbatch"]) == 2
    assert not site.sbatch_calls()


@pytest.mark.parametrize(
    ("limit_s", "number", "of", "least_s", "first_s"),
    [
        (None, 2, 3, 0, None),
        (10_800, 1, 3, 0, None),
        (10_800, 2, 3, 0, 7_200),
        (10_800, 3, 3, 0, 3_600),
        (10_800, 4, 3, 0, None),  # a whole limit: it begins at another time anyway
        (10_800, 3, 3, 5_000, 5_040),
        (600, 2, 2, 1_200, None),
    ],
)
def test_first_limits_are_spread(
    limit_s: int | None, number: int, of: int, least_s: int, first_s: int | None
) -> None:
    assert first_limit_s(limit_s, number, of, least_s) == first_s
