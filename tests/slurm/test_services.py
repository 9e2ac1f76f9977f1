"""Seconds without an answer of a service beside what is recorded and shown of them, on a real Slurm."""

from __future__ import annotations

import json
import re
import signal
import threading
import time
from urllib.request import urlopen

import pytest

from benchmarks.real_chains_client import Answers, is_held
from tests.slurm.site import ALICE, free_port, until

pytestmark = pytest.mark.slurm

# It answers while it has the lock.
SERVICE = """#!/bin/sh
#SBATCH -N1 -t1 -o /dev/null
sleep 20
exec 9>>"$HOME/answers"
flock -s 9
touch "$MIRAGE_READY_FILE"
sleep 600 9>&- & wait $!
"""


class Client(threading.Thread):
    """Asks each second."""

    def __init__(self, file) -> None:
        super().__init__(daemon=True)
        self.file, self.answers, self.stopped = file, Answers(), threading.Event()

    def run(self) -> None:
        while not self.stopped.wait(1):
            self.answers.note(is_held(self.file), time.time())


def report_of(site, user, chain):
    (report,) = json.loads(site.run(user, "mirage", "history", chain, "--json").stdout)["chains"]
    return report


def states_of(site, chain):
    return [link["readiness"] for link in report_of(site, ALICE, chain)["links"]]


def test_what_is_told_of_a_services_interruptions_is_what_its_users_saw(site, service):
    """Slurm alone lets the links in, so each handover takes its start-up of 20 s. The daemon is
    killed meanwhile.
    """
    port = free_port()
    service.configure(mode="observe", metrics=f"127.0.0.1:{port}")
    client = Client(site.home(ALICE) / "answers")
    site.script(ALICE, "serve.sh", SERVICE)
    with service.running():
        done = site.run(
            ALICE, "mirage-submit", "--json", "--mode=service", "--segments=3", "serve.sh"
        )
        chain = json.loads(done.stdout)["chain"]
        client.start()
        until(lambda: "starting" in states_of(site, chain), 60, "the first link's start")
        until(lambda: states_of(site, chain)[0] == "ready", 60, "the first link")
        until(lambda: states_of(site, chain)[1] == "starting", 150, "the second link's start")
        assert "is not ready yet" in site.run(ALICE, "mirage", "status", chain).stdout
        service.stop(signal.SIGKILL)
        until(lambda: states_of(site, chain)[1] == "ready", 60, "the second link")
    with service.running():
        until(lambda: states_of(site, chain)[2] == "ready", 200, "the third link")
        until(lambda: len(client.answers.silences_s) == 2, 30, "its answer")
        client.stopped.set()
        silences_s = client.answers.silences_s
        report = report_of(site, ALICE, chain)
        until(lambda: "interruption_seconds_count 2" in metrics(port), 30, "the metrics")
        told = re.search(r"interruption_seconds_sum (\S+)", metrics(port))
    gaps_s = [link["interruption_s"] for link in report["links"][1:]]
    print(f"silent for {silences_s} s; history: {gaps_s}; metrics: {told[1]}")
    assert all(abs(gap - silence) <= 2 for gap, silence in zip(gaps_s, silences_s, strict=True))
    assert min(silences_s) >= 20
    assert float(told[1]) == sum(gaps_s) == report["service"]["down_s"]
    assert report["service"]["longest_gap_s"] == max(gaps_s)


def test_on_an_idle_queue_a_service_answers_through_its_handovers(site, service):
    """Nobody else queues. Links of a minute take 20 s to be ready, as their owner says."""
    service.configure(policy="quantile")
    client = Client(site.home(ALICE) / "answers")
    site.script(ALICE, "serve.sh", SERVICE)
    words = ["--json", "--mode=service", "--startup=20s", "--segments=3", "serve.sh"]
    with service.running():
        chain = json.loads(site.run(ALICE, "mirage-submit", *words).stdout)["chain"]
        client.start()
        until(lambda: states_of(site, chain)[2:3] == ["ready"], 240, "the third link")
        explained = site.run(ALICE, "mirage", "explain", chain).stdout
    client.stopped.set()
    report = report_of(site, ALICE, chain)
    print(f"silent for {client.answers.silences_s} s\n{explained}")
    assert all(silence <= 2 for silence in client.answers.silences_s)
    assert report["service"]["down_s"] == 0
    assert "A link is ready 20 s after its start" in explained


HANGS = """#!/bin/sh
#SBATCH -N1 -t5 -o /dev/null
cd "$HOME" && python3 -m http.server $MIRAGE_PORT & echo $! >"$HOME/server"; wait $!
"""


def test_a_server_that_hangs_starts_again_and_its_silence_is_recorded(site, service):
    pid = site.home(ALICE) / "server"
    pid.unlink(missing_ok=True)
    site.script(ALICE, "hangs.sh", HANGS)
    words = ["--mode=service", "--port=free", "--health-http=/", "--segments=1", "hangs.sh"]
    chain = json.loads(site.run(ALICE, "mirage-submit", "--json", *words).stdout)["chain"]
    until(lambda: states_of(site, chain) == ["ready"], 90, "the server")
    first, hung_s = pid.read_text(), time.time()
    site.run("root", "kill", "-STOP", first.strip())
    until(lambda: pid.read_text() != first, 120, "the server's next start")
    until(lambda: report_of(site, ALICE, chain)["service"]["down_s"], 60, "its record")
    away_s, told_s = time.time() - hung_s, report_of(site, ALICE, chain)["service"]["down_s"]
    print(f"away for {away_s:.0f} s at most; told: {told_s} s")
    assert 20 <= told_s <= away_s + 1, "whole seconds"
    assert site.run(ALICE, "mirage", "cancel", chain).returncode == 0


FAILS = """#!/bin/sh
#SBATCH -N1 -t5 -o /dev/null
[ $MIRAGE_SEGMENT != 2 ] || exit 7
touch "$HOME/serves.$MIRAGE_SEGMENT"
sleep 600 & wait $!
"""


def test_a_link_that_failed_beside_one_that_serves_does_not_keep_the_next_one_back(site, service):
    """Whatever --on-failure says. Slurm lets the next one in as the one that serves is killed."""
    home = site.home(ALICE)
    for file in home.glob("serves.*"):
        file.unlink()
    site.script(ALICE, "fails.sh", FAILS)
    check = '--health-command=[ -e "$HOME/serves.$MIRAGE_SEGMENT" ]'
    words = ["--mode=service", check, "--health-count=1", "--on-failure=stop", "--segments=3"]
    done = site.run(ALICE, "mirage-submit", "--json", *words, "fails.sh")
    chain = json.loads(done.stdout)["chain"]
    folder = home / ".mirage" / "chains" / chain
    until((folder / "ready.1").exists, 60, "link 1")
    first, second = ((folder / f"queued.{link}").read_text().strip() for link in (1, 2))
    site.run(ALICE, "scontrol", "update", f"JobId={second}", "Dependency=")
    until((folder / "link.2").exists, 60, "link 2 to fail")
    third = (folder / "queued.3").read_text().strip()
    until(lambda: "?after" in site.job(int(third))["Dependency"], 60, "link 3's pause")
    assert site.job(int(third))["JobState"] == "PENDING"
    assert not (folder / "failed").exists()
    site.run(ALICE, "scancel", first)
    until((folder / "ready.3").exists, 45, "link 3, long before its pause is over")
    site.run(ALICE, "mirage", "cancel", chain)


def metrics(port):
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode().replace("mirage_", "")
