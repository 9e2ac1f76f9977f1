"""What must hold whatever fails: no link lost, none twice, the chain's state true, and Slurm's
fallback in force.
"""

from __future__ import annotations

import json
import sqlite3
import time

import pytest

from tests.slurm.conftest import Service
from tests.slurm.site import ALICE, BOB, BUSY, Site, until

pytestmark = pytest.mark.slurm

WORK = "#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nexec sleep 300\n"


@pytest.fixture
def chain(site: Site) -> tuple[str, int, int]:
    """(chain id, running first link, waiting successor) of a chain of Alice's with 2 segments."""
    return start_chain(site)


def start_chain(site: Site, *options: str, script: str = WORK) -> tuple[str, int, int]:
    name, jobs = site.submit_chain(
        ALICE, "--segments", "2", *options, site.script(ALICE, "work.sh", script)
    )
    first, second = jobs
    until(lambda: site.state(first) != "PENDING", 30, "the first link to start")
    return name, first, second


def until_file(site: Site, name: str) -> str:
    """A script that ends once this file is in Alice's home, where it is not yet."""
    path = site.home(ALICE) / name
    path.unlink(missing_ok=True)
    return WORK.replace("exec sleep 300", f"until [ -e {path} ]; do sleep 0.3; done")


def released(site: Site, job_id: int) -> bool:
    return site.job(job_id).get("Dependency") == "(null)"


def outcomes(service: Service, job_id: int) -> list[object]:
    rows = service.query(
        "select outcome from intents join decisions using (decision_id) "
        f"where successor_id = {job_id} order by intent_id"
    )
    return [row["outcome"] for row in rows]


def assert_no_link_lost_or_twice(site: Site, chain: str, jobs: tuple[int, ...]) -> None:
    """``jobs``: of the first links. A chain whose links are handed over early has more of them."""
    found = site.chain_jobs(ALICE, chain)
    assert [found[segment] for segment in range(1, len(jobs) + 1)] == [[job] for job in jobs]
    assert {len(each) for each in found.values()} == {1}
    assert sorted(found) == list(range(1, len(found) + 1))


def test_a_chain_that_is_over_before_anybody_saw_it_is_known_from_its_folder(site):
    name, _first, second = start_chain(site, script=WORK.replace("exec sleep 300", "exit 3"))
    until(lambda: site.state(second) == "CANCELLED", 30, "the successor to be cancelled")
    (report,) = json.loads(site.run(ALICE, "mirage", "status", name, "--json").stdout)["chains"]
    assert (report["state"], report["links"][0]["exit_code"]) == ("failed", 3)
    assert "exit code 3" in report["reason"]
    assert site.run(BOB, "mirage", "status", name, check=False).returncode == 2


@pytest.mark.parametrize("point", ["before-intent", "after-intent", "after-act"])
def test_the_daemon_is_killed_in_the_middle_of_a_release(site, service, chain, point):
    name, first, second = chain
    assert service.start(point).wait(30 * BUSY) == -9
    acted = point == "after-act"
    assert released(site, second) is acted
    assert outcomes(service, second) == ([] if point == "before-intent" else [None])
    with service.running():
        until(lambda: "released" in outcomes(service, second), 30, "the release to be verified")
        assert released(site, second)
    assert (
        outcomes(service, second)
        == {
            "before-intent": ["released"],
            "after-intent": ["not done", "released"],
            "after-act": ["released"],
        }[point]
    )
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_with_the_daemon_dead_the_chain_goes_on_reactively(site, service):
    seen = site.home(ALICE) / "seen"
    seen.unlink(missing_ok=True)
    # The successor goes on until the daemon has come: one that is over before is known from its
    # folder alone.
    wait = f"sh -c '[ $MIRAGE_SEGMENT = 1 ] || until [ -e {seen} ]; do sleep 0.3; done'"
    name, first, second = start_chain(site, script=WORK.replace("sleep 300", wait))
    until(lambda: site.state(second) == "RUNNING", 40, "Slurm to start the successor")
    assert site.state(first) == "COMPLETED"
    with service.running():  # it comes back late and sees what happened
        until(lambda: service.chain_state(name) == "active", 30, "the daemon to see the chain")
        seen.touch()
        service.wait_for(name, "done")
    assert_no_link_lost_or_twice(site, name, (first, second))


def failed_in_accounting(site, since):
    """Whether slurmdbd knows that a job from this one on has failed."""
    asked = site.run(
        "root", "sacct", "-nXP", "-u", ALICE, "-S", "now-1hours", "-o", "JobIDRaw,State"
    )
    jobs = (
        line.split("|") for line in asked.stdout.splitlines()
    )  # a state may be "CANCELLED by 1001"
    return any(int(job_id) >= since and state == "FAILED" for job_id, state in jobs)


def test_links_that_lived_while_nobody_looked_are_in_the_store_and_the_crash_loop_is_no_success(
    site, service
):
    service.configure(lead_s=1)  # nothing to let in early
    go = site.home(ALICE) / "go"
    go.unlink(missing_ok=True)
    script = site.script(
        ALICE,
        "loop.sh",
        f"#!/bin/sh\n#SBATCH -N1 -t5 -o /dev/null\nuntil [ -e {go} ]; do sleep 0.2; done\n",
    )
    options = ("--segments=9", "--max-short=3", "--min-runtime=4min")
    chain, jobs = site.submit_chain(ALICE, *options, script)
    with service.running():
        until(lambda: service.chain_state(chain) == "active", 30, "the daemon to see the chain")
    go.touch()
    until(
        lambda: '"failed"' in site.run(ALICE, "mirage", "status", chain, "--json").stdout,
        90,
        "the crash loop",
    )
    until(lambda: not site.run("root", "squeue", "-h").stdout.strip(), 60, "all jobs to end")
    until(
        lambda: failed_in_accounting(site, jobs[0]),
        240,
        "slurmdbd to have the last link, which comes late",
    )
    with service.running():
        service.wait_for(chain, "failed")
    links = service.query(
        f"select segment, job_id, state from links where chain_id = '{chain}' order by segment"
    )
    assert [row["segment"] for row in links[:3]] == [1, 2, 3]
    assert [row["job_id"] for row in links[:2]] == jobs
    assert [row["state"] for row in links[:3]] == ["COMPLETED", "COMPLETED", "FAILED"]


def test_slurmctld_is_killed_and_restarted_mid_chain(site, service, chain):
    name, first, second = chain
    service.configure(lead_s=1)  # nothing to do until slurmctld is back
    with service.running():
        until(lambda: service.chain_state(name) == "active", 30, "the daemon to see the chain")
        time.sleep(
            8
        )  # slurmctld saves its state every few seconds; what is younger it loses when it is killed
        site.slurm("kill", "slurmctld")
        until(lambda: "cycle skipped" in service.log.read_text(), 60, "a cycle without slurmctld")
        assert service.chain_state(name) == "active"
        service.stop()
    service.configure()
    with service.running():
        until(
            lambda: service.log.read_text().count("cycle skipped") > 1,
            60,
            "a cycle after the restart",
        )
        site.slurm("start", "slurmctld")
        # Until slurmdbd has answered the new slurmctld, it refuses: "the DB index is being set, try
        # again in a bit".
        until(lambda: "released" in outcomes(service, second), 180, "the release")
        until(lambda: site.state(first) in ("COMPLETED", "CANCELLED", "FAILED"), 60, "the handover")
    assert_no_link_lost_or_twice(site, name, (first, second))
    assert site.state(second) in ("RUNNING", "COMPLETING", "COMPLETED")  # the next one may be there


def test_without_slurmdbd_a_chain_is_still_released_and_followed(site, service):
    site.slurm("stop", "slurmdbd")
    try:
        name, first, second = start_chain(site, script=until_file(site, "released"))
        with service.running():
            until(lambda: "released" in outcomes(service, second), 60, "the release")
            (site.home(ALICE) / "released").touch()
            service.wait_for(name, "done", 90)
    finally:
        site.slurm("start", "slurmdbd")
    assert "accounting" in service.log.read_text()
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_the_user_cancels_the_predecessor(site, service, chain):
    """A plain scancel keeps Slurm's meaning: the successor starts."""
    name, first, second = chain
    service.configure(lead_s=1)
    with service.running():
        until(lambda: service.chain_state(name) == "active", 30, "the daemon to see the chain")
        site.run(ALICE, "scancel", str(first))
        until(lambda: site.state(second) == "RUNNING", 40, "the successor to start")
        assert service.chain_state(name) == "active"
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_the_predecessor_fails_at_once(site, service):
    service.configure(lead_s=1)
    with service.running():
        name, first, second = start_chain(site, script=f"{until_file(site, 'seen')}exit 3\n")
        until(lambda: service.chain_state(name) == "active", 30, "the daemon to see the chain")
        (site.home(ALICE) / "seen").touch()
        service.wait_for(name, "failed")
    until(lambda: site.state(first) == "FAILED", 30, "the first link's end")
    until(lambda: site.state(second) == "CANCELLED", 30, "the end of the second")
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_the_predecessor_is_requeued(site, service, chain):
    """Slurm does not fire afterany for a requeue: the pair stays as it is, and goes on when the
    link runs again.
    """
    name, first, second = chain
    service.configure(lead_s=1)
    with service.running():
        until(lambda: service.chain_state(name) == "active", 30, "the daemon to see the chain")
        site.run(ALICE, "scontrol", "requeue", str(first))
        until(lambda: site.job(first).get("Restarts") == "1", 30, "the requeue")
        assert site.state(second) == "PENDING"
        assert not released(site, second)

        def runs_again() -> bool:
            # slurmctld sets the begin time (in 2 minutes) only when the old run has left its nodes.
            if site.state(first) == "PENDING":
                site.run("root", "scontrol", "update", f"JobId={first}", "StartTime=now")
            return site.state(first) == "RUNNING"

        until(runs_again, 60, "the link to run again", every_s=2)
        assert service.chain_state(name) == "active"
    service.configure()
    with service.running():
        until(lambda: "released" in outcomes(service, second), 60, "the release")
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_the_successor_has_started_already_when_we_act(site, service, chain):
    """The daemon decided on a snapshot; the owner was faster. That is no failure, and nothing is
    done twice.
    """
    name, first, second = chain
    assert service.start("after-intent").wait(30 * BUSY) == -9
    site.run(ALICE, "scontrol", "update", f"JobId={second}", "Dependency=")
    until(lambda: site.state(second) == "RUNNING", 40, "the successor to start")
    with service.running():
        until(lambda: outcomes(service, second) != [None], 40, "the open intent to be closed")
    # Which of the two it says depends on whether the owner's drop and the predecessor's end fell
    # into one second.
    assert outcomes(service, second)[0] in ("released", "already released")
    assert len(outcomes(service, second)) == 1
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_the_database_is_locked(site, service, chain):
    name, first, second = chain
    service.configure(lead_s=1)
    with service.running():
        until(lambda: service.chain_state(name) == "active", 30, "the daemon to see the chain")
    service.configure()
    lock = sqlite3.connect(service.store, isolation_level=None)
    lock.execute("begin exclusive")
    with service.running():
        until(
            lambda: "lock" in service.log.read_text().lower(),
            60,
            "a cycle that finds the database locked",
        )
        time.sleep(3)
        assert not released(site, second), "nothing is done that can't be written down first"
        lock.execute("rollback")
        lock.close()
        until(
            lambda: "released" in outcomes(service, second), 60, "the release once the lock is gone"
        )
    assert_no_link_lost_or_twice(site, name, (first, second))


def test_the_daemon_leaves_alone_who_did_not_opt_in(site, service, chain):
    """A chain made by hand, and a stranger's job that names Alice's chain and her job as its
    predecessor.
    """
    name, first, second = chain
    script = site.script(BOB, "work.sh", WORK)
    by_hand = _sbatch(site, script, f"--dependency=afterany:{first}")
    forged = _sbatch(
        site,
        script,
        f"--dependency=afterany:{first}",
        f"--comment=mirage/1 chain={name} seg=2/2 pred={first} mode=train ei=1 eo=1",
    )
    with service.running():
        until(
            lambda: "released" in outcomes(service, second), 40, "the release of the true successor"
        )
        time.sleep(5)
        rows = service.query(f"select distinct user from decisions where successor_id = {forged}")
    assert rows == []
    text = service.log.read_text()
    assert f"job {by_hand}:" not in text
    assert f"job {forged}:" not in text


def _sbatch(site: Site, script: str, *options: str) -> int:
    return int(site.run(BOB, "sbatch", "--parsable", *options, script).stdout.split(";")[0])


def test_another_user_sees_nothing_and_can_do_nothing(site, service, chain):
    name, first, second = chain
    with service.running():
        until(
            lambda: site.socket.exists() and service.chain_state(name),
            30,
            "the daemon to see the chain",
        )
        assert name in site.run(ALICE, "mirage", "status", name).stdout
        assert name not in site.run(BOB, "mirage", "status", "--all").stdout
        for words in (["status", name], ["explain", str(second)], ["history", name]):
            refused = site.run(BOB, "mirage", *words, check=False)
            assert refused.returncode == 2, refused
            assert name not in refused.stdout
        for words in (["cancel", name], ["done", name]):
            assert site.run(BOB, "mirage", *words, check=False).returncode == 2
    for path in (service.store, site.home(ALICE) / ".mirage" / "chains" / name / "script"):
        refused = site.run(BOB, "cat", str(path), check=False)
        assert refused.returncode == 1
        assert "Permission denied" in refused.stderr
    assert site.state(first) != "CANCELLED"


def test_a_second_daemon_on_the_same_store_is_refused(site, service):
    with service.running():
        until(lambda: site.socket.exists(), 30, "the daemon")
        second = site.run(
            "mirage",
            "mirage",
            "daemon",
            "--config",
            str(service.folder / "mirage.toml"),
            check=False,
        )
        assert second.returncode != 0
        assert str(service.process.pid) in second.stderr
