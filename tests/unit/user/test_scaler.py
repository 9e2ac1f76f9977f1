"""How many replicas run, by load."""

from __future__ import annotations

import json
import logging
import os
import time
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread

import pytest

from mirage.chain.folder import chain_folder, mark_over, mark_paused
from mirage.chain.service import (
    ScaleRule,
    ServiceRecord,
    living_replicas,
    make_services_folder,
    read_service,
    service_folder,
    write_service,
)
from mirage.user import scaler
from mirage.user.scaler import kept_needs, need_of, read_state, scale_once, wanted_replicas

NOW = 1_790_000_000
RULE = ScaleRule(least=0, most=4, target=8, quiet_s=600)


@pytest.mark.parametrize(
    ("load", "waiting", "need"),
    [(0, 0, 0), (0, 1, 1), (0.1, 0, 1), (8, 0, 1), (8.5, 0, 2), (1e300, 0, 4)],
)
def test_the_load_is_shared_by_replicas_of_the_target(load: float, waiting: int, need: int) -> None:
    assert need_of(RULE, load, waiting) == need


def test_it_becomes_larger_at_once() -> None:
    assert wanted_replicas(RULE, [(NOW, 3)], now=0) == 3


def test_it_becomes_smaller_by_what_a_whole_quiet_time_needed() -> None:
    needs = [(NOW, 3), (NOW + 300, 2), (NOW + 599, 1)]
    assert wanted_replicas(RULE, needs, now=3) == 3
    needs = kept_needs([*needs, (NOW + 601, 1)], 600)
    assert wanted_replicas(RULE, needs, now=3) == 3, "three were needed at its begin"
    needs = kept_needs([(NOW, 3), *((NOW + at, 2) for at in range(10, 720, 10))], 600)
    assert wanted_replicas(RULE, needs, now=3) == 2


def test_a_load_that_swings_starts_and_ends_nothing() -> None:
    needs: list[tuple[int, int]] = []
    found = []
    for step in range(400):
        needs = kept_needs([*needs, (NOW + 10 * step, 2 + step % 2)], 600)
        found.append(wanted_replicas(RULE, needs, now=found[-1] if found else 1))
    assert found == [2] + [3] * 399
    assert len(needs) <= 62


def test_looks_that_are_far_apart_prove_no_quiet() -> None:
    needs = kept_needs([(NOW, 4), (NOW + 10, 4), (NOW + 9999, 0)], 600)
    assert needs == [(NOW + 9999, 0)]
    assert wanted_replicas(RULE, needs, now=4) == 4


def test_cron_looks_often_enough_to_prove_a_quiet_time() -> None:
    needs: list[tuple[int, int]] = []
    for at_s, need in ((NOW, 3), (NOW + 600, 1), (NOW + 1205, 1)):
        needs = kept_needs([*needs, (at_s, need)], 600)
    assert wanted_replicas(RULE, needs, now=3) == 1


def test_a_rule_that_was_changed_holds_at_once() -> None:
    assert wanted_replicas(replace(RULE, most=2), [(NOW, 0)], now=4) == 2
    assert wanted_replicas(replace(RULE, least=2), [(NOW, 2)], now=0) == 2


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service `llm` of 0 to 4 replicas; its replicas are folders alone."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("MIRAGE_HOME", raising=False)
    make_services_folder()

    def submit(record: ServiceRecord, number: int) -> str:
        folder = chain_folder(f"replica{number:02}")
        folder.mkdir(exist_ok=True)
        (folder / "chain").write_text(f"service={record.name}\nreplica={number}\nsubmitted=1\n")
        return f"Submitted replica {number}"

    monkeypatch.setattr("mirage.user.replicas._submit", submit)
    service(RULE)
    return tmp_path


def service(rule: ScaleRule) -> None:
    record = ServiceRecord(
        name="llm",
        words=["serve.sh"],
        source="/serve.sh",
        cwd="/",
        environ={"PATH": os.environ["PATH"]},
        rule=rule,
        wanted=0,
    )
    write_service(record, b"#!/bin/sh\n")


def demand(at_s: int, **counts: int) -> None:
    found = {
        "seen_s": at_s,
        "since_s": at_s,
        "open": 0,
        "waiting": 0,
        "requests": 0,
        "failed": 0,
    } | counts
    (service_folder("llm") / "demand.json").write_text(json.dumps(found))


def numbers() -> list[int]:
    return [one.number for one in living_replicas().get("llm", [])]


def test_the_first_request_that_waits_starts_a_replica(home: Path) -> None:
    demand(NOW)
    assert scale_once(NOW) == []
    demand(NOW + 10, waiting=1)
    assert scale_once(NOW + 10) == ["Submitted replica 1"]
    assert scale_once(NOW + 20) == []
    demand(NOW + 30, open=20, waiting=1, requests=30)
    assert scale_once(NOW + 30) == ["Submitted replica 2", "Submitted replica 3"]
    record = read_service("llm")
    assert record is not None
    assert record.wanted == 3


def test_requests_between_two_looks_keep_it_awake(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[int] = []
    monkeypatch.setattr(
        "mirage.user.replicas._end", lambda _record, _living, count: ended.append(count) or []
    )
    for step in range(140):
        at_s = NOW + 10 * step
        demand(at_s, waiting=int(step == 0), requests=min(step, 70))
        scale_once(at_s)
        if ended:
            break
    assert numbers() == [1]
    assert 1300 <= 10 * step <= 1320, "ten minutes after the last request"


@pytest.mark.parametrize(
    ("command", "said"),
    [
        ("sleep 60", "took longer than"),
        ("(setsid sleep 60 &) ; sleep 60", "took longer than"),
        ("yes", "more than 1 MiB of output"),
        ("exit 3", "ended with exit code 3"),
        ("echo many", "printed 'many': expected one number"),
        ("echo 1 2", "printed '1 2': expected one number"),
        ("echo nan", "printed 'nan'"),
        ("echo -1", "printed '-1'"),
        ("true", "printed ''"),
    ],
)
def test_a_command_that_tells_no_load_scales_nothing(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    command: str,
    said: str,
) -> None:
    monkeypatch.setattr(scaler, "MEASURE_S", 0.5 if "sleep" in command else 60)
    service(replace(RULE, scale_on=command))
    begun_s = time.monotonic()
    with caplog.at_level(logging.WARNING):
        assert scale_once(NOW) == []
    assert time.monotonic() - begun_s < 45
    (line,) = caplog.messages
    assert "service llm: nothing is scaled: --scale-on" in line
    assert said in line
    assert said in read_state("llm").problem
    assert numbers() == []


def test_a_command_tells_the_load(home: Path) -> None:
    service(replace(RULE, scale_on='echo " 17 "; test "$MIRAGE_SERVICE" = llm'))
    assert len(scale_once(NOW)) == 3


class _Prometheus(BaseHTTPRequestHandler):
    answer: bytes = b""

    def do_GET(self) -> None:
        assert self.path == "/api/v1/query?query=sum%28up%29"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(self.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.mark.parametrize(
    ("answer", "replicas", "said"),
    [
        ('{"data":{"resultType":"vector","result":[{"metric":{},"value":[1,"12.5"]}]}}', 2, ""),
        ('{"data":{"resultType":"scalar","result":[1,"3"]}}', 1, ""),
        ('{"data":{"resultType":"vector","result":[]}}', 0, "0 samples: expected one"),
        ('{"data":{"resultType":"scalar","result":[1,"NaN"]}}', 0, "expected one number"),
        ("<html>", 0, "--scale-on 'sum(up)' at http://127.0.0.1"),
    ],
)
def test_a_query_of_prometheus_tells_the_load(
    home: Path, answer: str, replicas: int, said: str
) -> None:
    handler = type("Handler", (_Prometheus,), {"answer": answer.encode()})
    with HTTPServer(("127.0.0.1", 0), handler) as server:
        Thread(target=server.handle_request, daemon=True).start()
        url = f"http://127.0.0.1:{server.server_port}/"
        service(replace(RULE, scale_on="sum(up)", prometheus=url))
        scale_once(NOW)
    assert len(numbers()) == replicas
    assert said in read_state("llm").problem


def test_without_a_gateway_that_counts_nothing_is_scaled(home: Path) -> None:
    assert scale_once(NOW) == []
    assert "no gateway counts its requests" in read_state("llm").problem
    demand(NOW - 3600, waiting=5)
    scale_once(NOW)
    assert "no gateway counts its requests" in read_state("llm").problem
    (service_folder("llm") / "demand.json").write_text("[]")
    scale_once(NOW)
    assert "no gateway counts its requests" in read_state("llm").problem


def test_a_replica_that_failed_is_not_replaced_at_once(home: Path) -> None:
    now_s = int(time.time())
    demand(now_s, waiting=1)
    scale_once(now_s)
    mark_over(chain_folder("replica01"), "failed", "crash loop: 3 links in a row")
    assert scale_once(now_s + 10) == []
    assert "replica 1 failed less than 10 min ago: crash loop" in read_state("llm").problem
    demand(now_s + 601, waiting=1)
    assert scale_once(now_s + 601) == ["Submitted replica 1"]


def test_a_paused_service_is_left_alone(home: Path) -> None:
    demand(NOW, waiting=1)
    scale_once(NOW)
    mark_paused(chain_folder("replica01"), NOW)
    demand(NOW + 10, open=99)
    assert scale_once(NOW + 10) == []
    assert read_state("llm").problem == "it is paused"


def test_a_record_that_cant_be_read_keeps_no_other_service_from_it(
    home: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = service_folder("broken")
    folder.mkdir()
    (folder / "service.json").write_text("{")
    demand(NOW, waiting=1)
    assert scale_once(NOW) == ["Submitted replica 1"]
    assert "service broken: nothing is scaled: " in caplog.text


def test_a_fixed_number_is_left_to_its_owner(home: Path) -> None:
    service(ScaleRule(least=2, most=2))
    demand(NOW, waiting=9)
    assert scale_once(NOW) == []
