"""Which service a name means, where it is, and `mirage endpoint`."""

from __future__ import annotations

import json
import os
import pwd
from pathlib import Path
from types import SimpleNamespace

import pytest

from mirage.chain.demand import ServiceDemand, read_demand, write_demand
from mirage.chain.folder import mark_over
from mirage.cli import endpoint as verb
from mirage.cli.main import main
from mirage.errors import InputError
from mirage.gateway.endpoints import Endpoint, find_service
from tests.unit.gateway.rig import CHAIN, Server, Site


@pytest.fixture(autouse=True)
def no_slurm(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verb, "not_running", lambda _found, _owner: [])
    monkeypatch.setattr("mirage.gateway.endpoints._queue_of", lambda _owner: [])


def test_it_prints_where_each_ready_link_is(site: Site, capsys: pytest.CaptureFixture[str]) -> None:
    for number in (1, 2):
        site.chain(f"replica{number}", service="chat", replica=number)
    ports = sorted(Server(name).port for name in "ab")
    for number, port in enumerate(ports, 1):
        site.ready(port, chain_id=f"replica{number}")
    assert main(["endpoint", "chat"]) == 0
    assert capsys.readouterr().out == "".join(f"127.0.0.1:{port}\n" for port in ports)
    assert main(["endpoint", "chat", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["service"] == "chat"
    assert [one["replica"] for one in told["endpoints"]] == [1, 2]
    assert [one["port"] for one in told["endpoints"]] == ports


def test_none_that_is_ready_is_exit_code_1_and_no_such_service_is_2(
    site: Site, capsys: pytest.CaptureFixture[str]
) -> None:
    site.chain()
    assert main(["endpoint", "chat"]) == 1
    assert "no link of chat is ready" in capsys.readouterr().err
    closed = Server("gone")
    site.ready(closed.port)
    closed.stop()
    assert main(["endpoint", "chat"]) == 1
    assert "does the server listen on all addresses?" in capsys.readouterr().err
    assert main(["endpoint", "other"]) == 2
    assert "there is no service other" in capsys.readouterr().err


def test_a_job_that_slurm_does_not_run_is_no_endpoint(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.chain()
    site.ready(Server("stranger").port)
    monkeypatch.setattr(verb, "not_running", lambda found, _owner: list(found))
    assert main(["endpoint", "chat"]) == 1


def test_links_that_have_ended_and_files_that_are_not_ours_do_not_count(site: Site) -> None:
    folder = site.chain()
    site.ready(1, link=1)
    site.ready(2, link=2)
    (folder / "link.1").write_text("job=1\n")
    (folder / "endpoint.3").write_text("half a rec")
    (folder / "endpoint.x").write_text("{}")
    assert [one.port for one in find_service("chat", site.environ).endpoints()] == [2]


def test_two_services_of_one_name_are_not_mixed(site: Site) -> None:
    site.chain("aaaaaaaa")
    other = site.chain("bbbbbbbb")
    with pytest.raises(InputError, match="means 2 services: chain aaaaaaaa, chain bbbbbbbb"):
        find_service("chat", site.environ)
    site.ready(7, chain_id="bbbbbbbb")
    assert [one.port for one in find_service("bbbbbbbb", site.environ).endpoints()] == [7]
    mark_over(other, "cancelled", "by its owner")
    assert find_service("chat", site.environ).endpoints() == []


def test_a_chain_without_jobs_is_no_second_service(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`scancel` ended all its jobs, so its folder does not say that it is over."""
    site.chain("aaaaaaaa")
    site.chain("bbbbbbbb")
    site.ready(7, chain_id="bbbbbbbb")
    comment = "mirage/1 chain=bbbbbbbb seg=1/9 mode=service ei=1 eo=1 ready=0"
    queue = [SimpleNamespace(comment=comment)]
    monkeypatch.setattr("mirage.gateway.endpoints._queue_of", lambda _owner: queue)
    assert [one.port for one in find_service("chat", site.environ).endpoints()] == [7]


def test_training_chains_are_no_services(site: Site) -> None:
    site.chain(mode="train")
    with pytest.raises(InputError, match="there is no service chat"):
        find_service("chat", site.environ)


def test_another_user_s_service_is_seen_where_his_folders_may_be_read(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine = pwd.getpwuid(os.getuid())
    his = Site(tmp_path / "home" / ".mirage")
    his.chain()
    his.ready(5)
    home = pwd.struct_passwd((*mine[:5], str(tmp_path / "home"), mine[6]))
    monkeypatch.setattr(pwd, "getpwnam", lambda name: {"alice": home}[name])
    assert [one.port for one in find_service("alice/chat").endpoints()] == [5]
    with pytest.raises(InputError, match="there is no user bob"):
        find_service("bob/chat")

    def closed(_path: Path) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "iterdir", closed)
    with pytest.raises(InputError, match="alice's services are not yours to see"):
        find_service("alice/chat")


def test_an_ipv6_address_is_in_brackets() -> None:
    found = Endpoint(chain_id=CHAIN, replica=None, link=1, host="::1", port=80, ready_s=0, job_id=1)
    assert found.address == "[::1]:80"


def test_what_a_gateway_counts_is_read_as_it_was_written(site: Site) -> None:
    folder = site.home / "services" / "chat"
    folder.mkdir(parents=True)
    assert read_demand("chat") is None
    written = ServiceDemand(seen_s=100, since_s=50, requests=3, failed=1, up_s=25, replicas=1)
    write_demand(folder, written)
    assert read_demand("chat") == written
    assert written.uptime == 0.5
    assert written.is_fresh(now_s=120)
    assert not written.is_fresh(now_s=200)
    (folder / "demand.json").write_text("{")
    assert read_demand("chat") is None
