"""Chains that their owners extend, pause, resume and read, on a real Slurm. Several run side by
side.
"""

from __future__ import annotations

import json
import time

import pytest

from tests.slurm.site import ALICE, BOB, until

pytestmark = pytest.mark.slurm

WORK = """#!/bin/sh
#SBATCH -N1 -t5 --signal=B:USR1@30
trap 'echo "saved $MIRAGE_SEGMENT"; exit 0' USR1
echo "works $MIRAGE_SEGMENT of $MIRAGE_SEGMENTS"
until [ -e "$HOME/go.$MIRAGE_CHAIN_ID.$MIRAGE_SEGMENT" ]; do sleep 0.2 & wait $!; done
echo "ends $MIRAGE_SEGMENT"
"""
PATIENCE_S = 150
"""Each look starts processes, which takes seconds on a loaded machine: bounds are not speeds."""
TELL = 'echo "$MIRAGE_EVENT: $MIRAGE_REASON" >>"$HOME/told.$MIRAGE_CHAIN_ID"; exit 7'


def let_end(site, chain, segment):
    site.run(ALICE, "touch", f"go.{chain}.{segment}")


def record(site, chain, name):
    path = site.home(ALICE) / ".mirage" / "chains" / chain / name
    return path.read_text() if path.exists() else ""


def job_of(site, chain, segment):
    return next(iter(site.chain_jobs(ALICE, chain).get(segment, [])), 0)


def reason(site, job):
    return site.run("root", "squeue", "-h", "-j", str(job), "-o", "%r", check=False).stdout


def runs(site, chain, segment):
    """The link's script has begun to work; its job id."""
    job = job_of(site, chain, segment)
    output = site.run(ALICE, "mirage", "logs", chain, check=False).stdout
    return f"works {segment} of" in output and site.state(job) == "RUNNING" and job


def mirage(site, *words, user=ALICE, code=0):
    done = site.run(user, "mirage", *words, check=False)
    assert done.returncode == code, (words, done)
    return done.stdout + done.stderr


def test_a_chain_grows_while_its_last_link_runs_and_after_it_ended(site, tmp_path):
    script = site.script(ALICE, "work.sh", WORK)
    mail = ["--mail-type=END", "--mail-user=alice@example.org", f"--notify={TELL}"]
    one, _ = site.submit_chain(ALICE, "--segments=1", "--output=%x-%j.out", *mail, script)
    shared = f"front-{time.time_ns()}.log"
    mailing = WORK.replace(
        "#SBATCH", "#SBATCH --mail-type=FAIL --mail-user=front@example.org\n#SBATCH", 1
    )
    words = ["--segments=2", "--up-front", f"--output={shared}", "--open-mode=append"]
    front, fronts = site.submit_chain(ALICE, *words, site.script(ALICE, "front.sh", mailing))
    assert all(site.job(job)["MailUser"] == "front@example.org" for job in fronts)
    for chain in (one, front):
        until(lambda chain=chain: runs(site, chain, 1), PATIENCE_S, "the first links")

    assert "has 2 time limits now (before: 1 time limit)" in mirage(
        site, "extend", one, "--segments", "+1"
    )
    assert "queued link 3" in mirage(site, "extend", front, "--total-time", "15")
    assert site.job(job_of(site, front, 3))["Dependency"].startswith(
        f"afterany:{job_of(site, front, 2)}"
    )
    assert site.job(job_of(site, front, 3))["MailUser"] == "front@example.org"
    assert "can't have 2 links" in mirage(site, "extend", front, "--segments", "2", code=2)
    assert "no chain of yours has this id" in mirage(
        site, "extend", one, "--segments", "9", user=BOB, code=2
    )
    second = until(lambda: job_of(site, one, 2), PATIENCE_S, "the link that the last one queued")
    assert site.job(second)["MailUser"] == "alice@example.org"
    assert site.job(second)["MailType"] == "END"

    log = tmp_path / "follow"
    follower = site.start(ALICE, "mirage", "logs", "-f", front, log=log)
    for segment in (1, 2, 3):
        let_end(site, front, segment)
    for segment in (1, 2):
        let_end(site, one, segment)
    until(
        lambda: "all 2 links have run" in record(site, one, "done"),
        PATIENCE_S,
        "the end of the chain",
    )
    told = site.home(ALICE) / f"told.{one}"
    until(lambda: told.exists() and told.read_text(), PATIENCE_S, "the notification")
    assert told.read_text() == "ended: all 2 links have run\n"
    until(
        lambda: site.state(second) == "COMPLETED",
        PATIENCE_S,
        "its end: a command that fails changes nothing",
    )

    until(
        lambda: "all 3 links have run" in record(site, front, "done"),
        PATIENCE_S,
        "the end of the other chain",
    )
    assert follower.wait(PATIENCE_S) == 0
    lines = [line for line in log.read_text().splitlines() if not line.startswith("mirage:")]
    assert lines[0] == f"==> link 1: {site.home(ALICE)}/{shared} <=="
    words = [f"{what} {segment}" for segment in (1, 2, 3) for what in ("works", "ends")]
    assert [" ".join(line.split()[:2]) for line in lines if line[:5] in ("works", "ends ")] == words

    assert "has 3 time limits now (before: 2 time limits); queued link 3" in mirage(
        site, "extend", one, "--segments", "3"
    )
    until(lambda: runs(site, one, 3), PATIENCE_S, "the link of the chain that had ended")
    output = mirage(site, "logs", one)
    assert [line for line in output.splitlines() if line.startswith("==>")] == [
        f"==> link {segment}: {site.home(ALICE)}/work.sh-{job_of(site, one, segment)}.out <=="
        for segment in (1, 2, 3)
    ]
    head = f"mirage logs {one} | head -1"
    assert site.run(ALICE, "sh", "-c", head).stderr == ""


def test_a_paused_chain_keeps_its_place_and_goes_on(site, service):
    script = site.script(ALICE, "work.sh", WORK)
    service.configure(policy="reactive")
    with service.running():
        again, (stubborn, _) = site.submit_chain(ALICE, "--segments=2", "--no-requeue", script)
        chain, (first, second) = site.submit_chain(ALICE, "--segments=3", script)
        last, _ = site.submit_chain(ALICE, "--segments=1", script)
        until(lambda: runs(site, again, 1), 40, "the first link")
        mirage(site, "pause", again)
        # A running link that starts again, as after a node's failure: it goes back to the queue.
        site.run("root", "scontrol", "update", f"JobId={stubborn}", "Requeue=1")
        site.run("root", "scontrol", "requeue", str(stubborn))
        site.run("root", "scontrol", "update", f"JobId={stubborn}", "Requeue=0")
        for each in (chain, last):
            until(lambda each=each: runs(site, each, 1), 40, "the first links")

        said = mirage(site, "pause", chain)
        assert f"held job {second}; job {first} runs on to its end" in said
        assert "no chain of yours has this id" in mirage(site, "pause", chain, user=BOB, code=2)
        assert "it has one link more" in mirage(site, "pause", "--now", last)
        service.wait_for(chain, "paused")
        assert "paused the chain" in mirage(site, "explain", str(second))
        assert f"chain {chain} paused" in mirage(site, "status", chain)

        until(
            lambda: "how=paused" in record(site, last, "link.1"),
            30,
            "the link that was asked to end",
        )
        assert "saved 1" in mirage(site, "logs", last)
        let_end(site, chain, 1)
        until(lambda: site.state(first) == "COMPLETED", 40, "the running link's end")
        until(lambda: "in held state" in reason(site, stubborn), 60, "the requeued link to go back")
        assert site.job(stubborn)["Requeue"] == "0"
        assert (site.state(second), site.job(second)["Reason"]) == ("PENDING", "JobHeldUser")
        assert service.chain_state(chain) == "paused"

        resumed_s = int(time.time())
        for each in (again, chain, last):
            assert "goes on" in mirage(site, "resume", each)
        assert "is not paused" in mirage(site, "resume", chain)
        assert until(lambda: runs(site, chain, 2), 40, "the second link") == second
        until(lambda: runs(site, last, 2), 40, "the link that was added")
        until(lambda: runs(site, again, 1), 60, "the requeued link")
        service.wait_for(chain, "active")
        assert [len(jobs) for jobs in site.chain_jobs(ALICE, chain).values()] == [1, 1, 1]
        (report,) = json.loads(mirage(site, "history", chain, "--json"))["chains"]
        ended, started = report["links"][0]["end"], report["links"][1]["start"]
        assert report["links"][1]["interruption_s"] <= started - resumed_s < started - ended


LOOKS_OFTEN = """
import sys
import mirage.chain.script as script
script.LOOK_AHEAD_S = script.CONFIRM_AFTER_S = 2
from mirage.cli.submit import main
sys.exit(main())
"""


def test_a_chain_keeps_several_successors_and_the_first_to_start_takes_over(site):
    """Its owner lets them in here, where the service would."""
    script = site.script(ALICE, "work.sh", WORK)
    words = ["--json", "--ahead=3", "--segments=4", script]
    said = site.run(ALICE, str(site.bin / "python"), "-c", LOOKS_OFTEN, *words).stdout
    chain = json.loads(said)["chain"]
    first = until(lambda: runs(site, chain, 1), 40, "the first link")
    second = job_of(site, chain, 2)
    assert job_of(site, chain, 3) == 0, "link 2 does not compete yet"
    site.run(ALICE, "scontrol", "hold", str(second))
    site.run(ALICE, "scontrol", "update", f"JobId={second}", "Dependency=")
    third = until(lambda: job_of(site, chain, 3), 30, "a further successor")
    assert site.job(third)["Dependency"].startswith(f"afterany:{second}")
    site.run(ALICE, "scontrol", "update", f"JobId={third}", "Dependency=")
    until(lambda: runs(site, chain, 3), 60, "link 3, though link 2 still waits")
    until(lambda: site.state(second) == "CANCELLED", 20, "the end of link 2, whose turn is over")
    until(lambda: site.state(first) == "COMPLETED", 40, "the end of link 1")
    assert "saved 1" in mirage(site, "logs", chain)
    fourth = until(lambda: job_of(site, chain, 4), 30, "the next link")
    assert site.job(fourth)["Dependency"].startswith(f"afterany:{third}")
    let_end(site, chain, 3)
    until(lambda: runs(site, chain, 4), 60, "link 4")
    mirage(site, "cancel", chain)
