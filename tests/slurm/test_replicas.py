"""Services of several replicas on a real Slurm: they end apart, and are scaled."""

from __future__ import annotations

import itertools
import json
import time

import pytest

from tests.slurm.site import ALICE, until

pytestmark = pytest.mark.slurm

SERVICE = """#!/bin/sh
#SBATCH -N1 -t3 -o /dev/null
trap 'exit 0' TERM
sleep 3
touch "$MIRAGE_READY_FILE"
while :; do sleep 1 & wait $!; done
"""
SUBMIT = ("mirage-submit", "--json", "--mode=service", "--startup=5s")
LIMIT_S = 180
APART_S = 15
"""A sixth of a link is 30 s; a decision comes each 2 s, and Slurm starts a job within some seconds."""


@pytest.fixture
def name():
    """Of a service; a test that runs again must not meet its first one."""
    return f"llm{time.time_ns()}"


def status(site, name):
    return json.loads(site.run(ALICE, "mirage", "status", name, "--json").stdout)


def row_of(site, name):
    (row,) = status(site, name)["services"]
    return row


def ready(site, name):
    return row_of(site, name)["ready"]


def ends_of(site, name):
    """By replica: when its links ended."""
    return {
        chain["replica"]["number"]: [link["end"] for link in chain["links"] if link["end"]]
        for chain in status(site, name)["chains"]
    }


def test_three_replicas_end_apart_over_two_limits_though_one_is_killed(site, service, name):
    service.configure(policy="quantile")
    site.script(ALICE, "serve.sh", SERVICE)
    with service.running():
        submitted = json.loads(
            site.run(ALICE, *SUBMIT, "-J", name, "--replicas=3", "serve.sh").stdout
        )
        assert [one["replica"] for one in submitted["replicas"]] == [1, 2, 3]
        again = site.run(ALICE, *SUBMIT, "-J", name, "--replicas=3", "serve.sh", check=False)
        assert (again.returncode, "is there already" in again.stderr) == (2, True)
        until(lambda: ready(site, name) == 3, 90, "all three replicas")
        begun_s, fewest, killed_s = time.time(), 3, 0.0
        while time.time() < begun_s + 2 * LIMIT_S + 30:
            row = row_of(site, name)
            fewest = min(fewest, row["ready"])
            if not killed_s and time.time() > begun_s + LIMIT_S:
                (job,) = row["replicas"][1]["jobs"][-1:]
                site.run(ALICE, "scancel", "--signal=KILL", "--full", str(job))
                killed_s = time.time()
            time.sleep(1)
        row, ends = row_of(site, name), ends_of(site, name)
    planned = [  # each but the end of the killed link
        [end_s for end_s in each if abs(end_s - killed_s) > 10] for each in ends.values()
    ]
    pairs = itertools.combinations(planned, 2)
    apart_s = min(abs(one - two) for a, b in pairs for one in a for two in b)
    print(f"fewest ready: {fewest}; ends {apart_s} s apart at least; {ends}; {row}")
    assert all(len(each) >= 2 for each in ends.values())
    assert apart_s >= APART_S
    assert fewest >= 2
    assert row["uptime"] == 1


def test_a_service_is_scaled_by_hand_and_by_the_requests_that_wait(site, name):
    """From 1 to 3 to 1; then from 0 to 1 by a gateway's file, and to 0 once nobody asks."""
    site.script(ALICE, "serve.sh", SERVICE)
    site.run(ALICE, *SUBMIT, "-J", name, "--replicas=1", "serve.sh")
    until(lambda: ready(site, name) == 1, 90, "the first replica")
    site.run(ALICE, "mirage", "scale", name, "3")
    until(lambda: ready(site, name) == 3, 90, "three replicas")
    said = site.run(ALICE, "mirage", "scale", name, "1").stdout
    assert said.count("to end") == 2
    until(lambda: len(row_of(site, name)["replicas"]) == 1 == ready(site, name), 60, "one replica")
    until(lambda: len(running(site)) == 1, 60, "the end of the other jobs")
    assert {chain["state"] for chain in status(site, name)["chains"]} == {"active"}
    shown = site.run(ALICE, "mirage", "history", "--all").stdout
    assert shown.count("scaled down") == 2
    site.run(ALICE, "mirage", "scale", name, "1..2", "--scale-on", "echo 2", "--target", "1")
    site.run(ALICE, "mirage", "agent", "--once")
    until(lambda: ready(site, name) == 2, 90, "the replica that cron's agent starts")
    site.run(ALICE, "mirage", "scale", name, "1")
    until(lambda: len(running(site)) == 1, 60, "the end of the other job")
    site.run(ALICE, "mirage", "scale", name, "0..2", "--quiet=20s")
    folder = site.home(ALICE) / ".mirage" / "services" / name
    agent = site.start(ALICE, "mirage", "agent", "--poll=5", log=site.home(ALICE) / "agent.log")
    try:
        asked(folder, waiting=0)
        until(lambda: asked(folder, waiting=0) and not running(site), 120, "nobody asks")
        begun_s = time.time()
        until(lambda: asked(folder, waiting=1) and ready(site, name) == 1, 120, "the first answer")
        print(f"ready {time.time() - begun_s:.0f} s after the first request")
    finally:
        agent.terminate()
        agent.wait(60)
    site.run(ALICE, "mirage", "cancel", name)
    until(lambda: not running(site), 60, "the end")


def running(site):
    return site.run(ALICE, "squeue", "-h", "-u", ALICE, "-t", "R,CG", "-o", "%A").stdout.split()


def asked(folder, waiting):
    """What a gateway writes."""
    counts = {"seen_s": time.time(), "since_s": 0, "open": 0, "waiting": waiting, "requests": 0}
    (folder / "demand.json").write_text(json.dumps(counts))
    return True
