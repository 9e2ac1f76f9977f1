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


def metrics(port):
    with urlopen(f"http://127.0.0.1:{port}/metrics") as answer:
        return answer.read().decode().replace("mirage_", "")
