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
SUBMIT = ("mirage-submit", "--json", "--mode=service", "--startup=5s", "-Jllm")
LIMIT_S = 180
APART_S = 20
"""A sixth of a link is 30 s; a decision comes each 2 s, and Slurm starts a job within some seconds."""


def status(site):
    return json.loads(site.run(ALICE, "mirage", "status", "llm", "--json").stdout)


def row_of(site):
    (row,) = status(site)["services"]
    return row


def ready(site):
    return row_of(site)["ready"]


def ends_of(site):
    """By replica: when its links ended."""
    return {
        chain["replica"]["number"]: [link["end"] for link in chain["links"] if link["end"]]
        for chain in status(site)["chains"]
    }


def test_three_replicas_end_apart_over_two_limits_though_one_is_killed(site, service):
    service.configure(policy="quantile")
    site.script(ALICE, "serve.sh", SERVICE)
    with service.running():
        submitted = json.loads(site.run(ALICE, *SUBMIT, "--replicas=3", "serve.sh").stdout)
        assert [one["replica"] for one in submitted["replicas"]] == [1, 2, 3]
        again = site.run(ALICE, *SUBMIT, "--replicas=3", "serve.sh", check=False)
        assert (again.returncode, "is there already" in again.stderr) == (2, True)
        until(lambda: ready(site) == 3, 90, "all three replicas")
        begun_s, fewest, killed = time.time(), 3, False
        while time.time() < begun_s + 2 * LIMIT_S + 30:
            row = row_of(site)
            fewest = min(fewest, row["ready"])
            if not killed and time.time() > begun_s + LIMIT_S:
                (job,) = row["replicas"][1]["jobs"][-1:]
                site.run(ALICE, "scancel", "--signal=KILL", "--full", str(job))
                killed = True
            time.sleep(1)
        row, ends = row_of(site), ends_of(site)
    pairs = itertools.combinations(ends.values(), 2)
    apart_s = min(abs(one - two) for a, b in pairs for one in a for two in b)
    print(f"fewest ready: {fewest}; ends {apart_s} s apart at least; {ends}; {row}")
    assert all(len(each) >= 2 for each in ends.values())
    assert apart_s >= APART_S
    assert fewest >= 1
    assert row["uptime"] == 1


def test_a_service_is_scaled_by_hand_and_by_the_requests_that_wait(site):
    """From 1 to 3 to 1; then from 0 to 1 by a gateway's file, and to 0 once nobody asks."""
    site.script(ALICE, "serve.sh", SERVICE)
    site.run(ALICE, *SUBMIT, "--replicas=1", "serve.sh")
    until(lambda: ready(site) == 1, 90, "the first replica")
    site.run(ALICE, "mirage", "scale", "llm", "3")
    until(lambda: ready(site) == 3, 90, "three replicas")
    said = site.run(ALICE, "mirage", "scale", "llm", "1").stdout
    assert said.count("to end") == 2
    until(lambda: len(row_of(site)["replicas"]) == 1 == ready(site), 60, "one replica")
    until(lambda: len(running(site)) == 1, 60, "the end of the other jobs")
    assert {chain["state"] for chain in status(site)["chains"]} == {"active"}
    site.run(ALICE, "mirage", "scale", "llm", "0..2", "--quiet=20s")
    folder = site.home(ALICE) / ".mirage" / "services" / "llm"
    agent = site.start(ALICE, "mirage", "agent", "--poll=5", log=site.home(ALICE) / "agent.log")
    try:
        asked(folder, waiting=0)
        until(lambda: asked(folder, waiting=0) and not running(site), 120, "nobody asks")
        begun_s = time.time()
        until(lambda: asked(folder, waiting=1) and ready(site) == 1, 120, "the first answer")
        print(f"ready {time.time() - begun_s:.0f} s after the first request")
    finally:
        agent.terminate()
        agent.wait(60)
    site.run(ALICE, "mirage", "cancel", "llm")
    until(lambda: not running(site), 60, "the end")


def running(site):
    return site.run(ALICE, "squeue", "-h", "-u", ALICE, "-t", "R,CG", "-o", "%A").stdout.split()


def asked(folder, waiting):
    """What a gateway writes."""
    counts = {"seen_s": time.time(), "since_s": 0, "open": 0, "waiting": waiting, "requests": 0}
    (folder / "demand.json").write_text(json.dumps(counts))
    return True
