"""Clients without pause through `mirage gateway` on a real Slurm: handovers, a daemon and a gateway that are
killed, a server that is killed.
"""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from urllib.request import urlopen

import pytest

from benchmarks.real_services_client import Clients
from tests.slurm.site import ALICE, BOB, ROOT, free_port, until

pytestmark = pytest.mark.slurm

CHAT = """#!/bin/sh
#SBATCH -N1 -n1 -t10 -o {home}/chat.log --open-mode=append -J chat
#MIRAGE --mode=service --port=free --health-http=/health --health-count=1 --startup=10s
exec {python} {chat} --port "$MIRAGE_PORT" --token-s 0.05
"""


@pytest.fixture
def chat(site, tmp_path):
    """Submits the example's server as alice; her gateway passes requests on to it."""
    example = site.folder / "chat.py"
    example.write_text((ROOT / "docs" / "examples" / "chat.py").read_text())
    text = CHAT.format(home=site.home(ALICE), python=site.bin / "python", chat=example)
    chain, _ = site.submit_chain(ALICE, "--segments=6", site.script(ALICE, "chat.sh", text))
    return chain


def start_gateway(site, port: int, log: Path):
    gateway = site.start(ALICE, "mirage", "gateway", f"chat:{port}", log=log)
    until(lambda: log.exists() and "chat is at" in log.read_text(), 60, "the gateway")
    return gateway


def link_now(site) -> int:
    """The link that is listed, or 0."""
    done = site.run(ALICE, "mirage", "endpoint", "chat", "--json", check=False)
    found = json.loads(done.stdout)["endpoints"] if done.returncode == 0 else []
    return max((one["link"] for one in found), default=0)


def server_now(site) -> int:
    """The process that listens where clients are sent."""
    found = json.loads(site.run(ALICE, "mirage", "endpoint", "chat", "--json").stdout)
    words = f"chat.py --port {found['endpoints'][-1]['port']}"
    return int(site.run("root", "pgrep", "-f", words).stdout.split()[-1])


def demand_of(site) -> dict[str, float]:
    return json.loads((site.home(ALICE) / ".mirage/services/chat/demand.json").read_text())


def test_no_request_is_lost_in_a_handover_or_a_daemons_restart_and_a_dead_server_loses_its_own(
    site, service, chat, tmp_path
):
    service.configure(lead_s=600)  # each successor is let in at once
    port, log = free_port(), tmp_path / "gateway.log"
    gateway = start_gateway(site, port, log)
    token = (site.home(ALICE) / ".mirage/services/chat/token").read_text().strip()
    clients = Clients(port, token, streams=2, keep_alive=2, fresh=2)
    try:
        with service.running():
            clients.start()
            until(lambda: link_now(site) >= 2, 120, "the second link")
            service.stop(signal.SIGKILL)
            until(lambda: clients.links >= {"1", "2"}, 60, "answers of both links")
        with service.running():
            until(lambda: link_now(site) >= 3, 120, "the third link")
            until(lambda: clients.links >= {"3"}, 60, "answers of the third link")
        quiet = clients.told()
        print(f"handovers, daemon killed: {quiet}")
        assert clients.failures == []
        os.kill(server_now(site), signal.SIGKILL)
        until(lambda: len(clients.failures) > 0, 30, "the open requests to fail")
        count = clients.count
        until(lambda: clients.count > count + 20, 60, "answers after the server started again")
        print(f"a server killed: {clients.told()}")
        assert len(clients.failures) <= 6, "one for each client at most"
        until(lambda: demand_of(site)["requests"] >= clients.count - 6, 30, "the gateway's counts")
        assert demand_of(site)["failed"] <= 6
        gateway.kill()
        gateway.wait()
        failed = len(clients.failures)
        gateway = start_gateway(site, port, log)
        count = clients.count
        until(lambda: clients.count > count + 20, 60, "answers after the gateway started again")
        print(f"the gateway killed: {len(clients.failures) - failed} more failed")
    finally:
        clients.stop()
        gateway.terminate()
        gateway.wait()
        print(log.read_text()[-2000:])


def test_others_neither_see_a_service_nor_may_ask_it(site, chat, tmp_path):
    port, log = free_port(), tmp_path / "gateway.log"
    gateway = start_gateway(site, port, log)
    try:
        until(lambda: link_now(site) == 1, 120, "the first link")
        told = site.run(BOB, "mirage", "endpoint", f"{ALICE}/chat", check=False)
        assert told.returncode == 2
        assert "not yours to see" in told.stderr
        token = site.home(ALICE) / ".mirage/services/chat/token"
        assert site.run(BOB, "cat", str(token), check=False).returncode != 0
        asked = site.run(BOB, "curl", "-s", f"http://127.0.0.1:{port}/v1/models")
        assert "give a token of this service" in asked.stdout
        right = f"Authorization: Bearer {token.read_text().strip()}"
        asked = site.run(ALICE, "curl", "-s", "-H", right, f"http://127.0.0.1:{port}/v1/models")
        assert json.loads(asked.stdout)["data"][0]["id"] == "stub"
    finally:
        gateway.terminate()
        gateway.wait()


def test_a_job_that_is_killed_outright_leaves_no_address_to_a_stranger(site, chat, tmp_path):
    """Slurm kills it at once, so it can't take its endpoint file away."""
    until(lambda: link_now(site) == 1, 120, "the first link")
    folder = site.home(ALICE) / ".mirage" / "chains" / chat
    job = json.loads((folder / "endpoint.1").read_text())["job"]
    port = json.loads((folder / "endpoint.1").read_text())["port"]
    site.run(ALICE, "scancel", "--signal=KILL", "--full", str(job))
    until(lambda: site.state(job) not in ("RUNNING", "COMPLETING"), 60, "its end")
    stranger = site.start(BOB, "python3", "-m", "http.server", str(port), log=tmp_path / "log")
    try:
        until(lambda: _answers(port), 30, "the stranger")
        assert "link" not in site.run(ALICE, "mirage", "endpoint", "chat", check=False).stdout
        found = site.run(ALICE, "mirage", "endpoint", "chat", check=False)
        assert f":{port}" not in found.stdout
    finally:
        stranger.terminate()
        stranger.wait()


def _answers(port: int) -> bool:
    try:
        urlopen(f"http://127.0.0.1:{port}/", timeout=5).close()
    except OSError:
        time.sleep(0.2)
        return False
    return True


POSTGRES = next(iter(sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"))), None)


@pytest.mark.skipif(POSTGRES is None, reason="PostgreSQL is not installed (scripts/databases does)")
def test_a_database_is_handed_over_to_one_writer_and_keeps_what_it_took(site, service, tmp_path):
    """As docs/examples/postgres.sbatch is, but for its time limit and where the programs are."""
    service.configure(lead_s=600)
    home, port, log = site.home(ALICE), free_port(), tmp_path / "gateway.log"
    site.run(ALICE, "rm", "-rf", str(home / "postgres"))
    site.script(ALICE, ".postgres-password", "secret\n")
    text = (ROOT / "docs" / "examples" / "postgres.sbatch").read_text()
    path = f'export PATH="$PATH:{POSTGRES.parent}"\ndata='
    text = text.replace("24:00:00", "10:00").replace("\ndata=", f"\n{path}")
    site.submit_chain(ALICE, "--segments=2", site.script(ALICE, "postgres.sh", text))
    gateway = site.start(ALICE, "mirage", "gateway", f"postgres:{port}", "--tcp", log=log)
    url = f"postgresql://{ALICE}:secret@127.0.0.1:{port}/postgres"
    writers = ("pgrep", "-u", ALICE, "-fc", "^postgres -D")

    def sql(words: str) -> str:
        most = int(site.run("root", *writers, check=False).stdout)
        assert most <= 1, "two write at once"
        return site.run(ALICE, "psql", url, "-Atc", words).stdout.strip()

    try:
        until(lambda: log.exists() and "ready: " in log.read_text(), 60, "the gateway")
        sql("create table told (number int)")
        first = sql("select inet_server_port()")
        taken = 0
        with service.running():
            while sql("select inet_server_port()") == first:
                taken += 1
                assert sql(f"insert into told values ({taken})") == "INSERT 0 1"
        assert sql("select count(*) from told") == str(taken)
        print(f"{taken} rows over one handover")
    finally:
        gateway.terminate()
        gateway.wait()
        print(log.read_text()[-2000:], (home / "postgres.log").read_text()[-2000:])
