"""What any local user can do to the readings of everybody's jobs: on a real Slurm, by a plain user."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from mirage.domain import ClusterNode
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from slurm_sim.node_states import node_state
from tests.conformance.squeue_fuzz import Fuzz
from tests.conformance.squeue_spy import spying
from tests.slurm.site import ALICE, BOB, Site, until

pytestmark = pytest.mark.slurm


@pytest.fixture
def cluster(site: Site) -> CommandCluster:
    return CommandCluster(Runner(env=os.environ | site.environment("root")))


def test_the_job_of_the_issue_blinds_nobody(site: Site, service) -> None:
    """Cycles go on, another user's chain is let in, and the log says whose job it is."""
    nap = site.script(BOB, "nap.sh", "#!/bin/sh\nsleep 60\n")
    wild = [
        "sbatch",
        "--parsable",
        "-o/dev/null",
        "--gres=gpu:1000000000000000000",
        "--wrap",
        "hostname",
    ]
    held = int(site.run(ALICE, *wild[:2], "--hold", *wild[2:]).stdout)
    assert site.run(ALICE, *wild, check=False).returncode, "slurmctld refuses it without --hold"
    with service.running():
        chain, jobs = site.submit_chain(BOB, "--segments=2", "--time=30", "--nodes=1", nap)
        until(
            lambda: site.job(jobs[1]).get("Dependency") == "(null)",
            60,
            "the successor to be let in",
        )
    log = service.log.read_text()
    assert (
        f"job {held} of {ALICE} is read with the largest number that can be meant: its gpus is"
        in log
    )
    assert log.count(f"job {held} of ") == 1
    assert "cycle skipped" not in log
    assert chain


def test_a_refused_submission_stays_in_accounting_and_hides_nothing(
    site: Site, cluster: CommandCluster
) -> None:
    since_s = int(time.time()) - 60
    wild = ["sbatch", "-o/dev/null", "--gres=gpu:1000000000000000000", "--wrap", "hostname"]
    assert site.run(ALICE, *wild, check=False).returncode

    def recorded() -> bool:
        jobs = cluster.accounting(since_s, int(time.time()) + 5)
        return any(job.user == ALICE and job.gpus == 2**31 - 1 for job in jobs)

    until(recorded, 30, "slurmdbd to have its row")
    assert cluster.submissions(since_s, int(time.time()) + 5, [ALICE, BOB])


def test_no_value_that_a_user_can_choose_hides_a_job_of_another(site: Site, tmp_path: Path) -> None:
    fuzz = Fuzz(site, random.Random(7))
    fuzz.run(60, tmp_path)
    assert fuzz.problems == []
    assert fuzz.counts["taken"] > 20
    assert fuzz.counts["readings"] >= 20


def test_a_user_who_watches_every_command_line_can_not_forge_a_row(
    site: Site, cluster: CommandCluster
) -> None:
    with spying(site, cluster) as spy:
        for _ in range(15):
            now_s = int(time.time())
            snapshot = cluster.snapshot()
            assert (set(snapshot.by_id), snapshot.oddities) == ({spy.job_id}, ())
            assert set(cluster.jobs([spy.job_id])) == {spy.job_id}
            assert 666 not in {job.job_id for job in cluster.accounting(now_s - 600, now_s)}
            cluster.submissions(now_s - 600, now_s, [ALICE])
    assert spy.seen > 3
    assert spy.stolen == 0, "the separator can be read by anybody"


def test_sinfo_and_scontrol_agree_on_every_state_that_can_be_set(
    site: Site, cluster: CommandCluster
) -> None:
    def scontrol(*words: str) -> str:
        return site.run("root", "scontrol", *words).stdout

    def update(state: str, *more: str) -> None:
        scontrol("update", "NodeName=n1", f"State={state}", *more)

    def shows(state: str) -> ClusterNode:
        """The node, once scontrol shows this state; sinfo must show the same."""

        def agreed() -> ClusterNode | None:
            by_sinfo = next(node for node in cluster.snapshot().nodes if node.name == "n1")
            record = scontrol("show", "node", "-o", "n1")
            full = next(part for part in record.split() if part.startswith("State=")).removeprefix(
                "State="
            )
            if full != state or by_sinfo.state != full.lower():
                return None
            known = node_state(full)
            assert (by_sinfo.up, by_sinfo.idle) == (known.up, known.idle)
            return by_sinfo

        found = until(agreed, 30, f"n1 to be {state}", 0.1)
        assert isinstance(found, ClusterNode)
        return found

    def reserved(flags: str) -> str:
        words = ["Nodes=n1", "Users=root", "StartTime=now", "Duration=5", f"Flags={flags}"]
        return scontrol("create", "Reservation", *words).split()[-1]

    try:
        node = shows("IDLE")
        assert (node.up, node.idle) == (True, True)
        for state, full, back in (
            ("DRAIN", "IDLE+DRAIN", "RESUME"),
            ("DRAIN", "IDLE+DRAIN", "UNDRAIN"),
            ("FAIL", "IDLE+FAIL", "RESUME"),
        ):
            update(state, "Reason=test")
            node = shows(full)
            assert (node.up, node.idle) == (False, False), state
            update(back)
            shows("IDLE")
        update("DRAIN", "Reason=test")
        update("DOWN", "Reason=test")  # drained too: else the node comes back by itself
        node = shows("DOWN+DRAIN")
        assert (node.up, node.idle) == (False, False)
        update("RESUME")
        assert shows("IDLE").idle
        for flags, full, up in (
            ("MAINT,IGNORE_JOBS", "IDLE+MAINTENANCE+RESERVED", False),
            ("IGNORE_JOBS", "IDLE+RESERVED", True),
        ):
            name = reserved(flags)
            try:
                node = shows(full)
                assert (node.up, node.idle) == (up, False), flags
            finally:
                scontrol("delete", f"ReservationName={name}")
            shows("IDLE")
        nap = site.script(ALICE, "nap.sh", "#!/bin/sh\nsleep 60\n")
        site.run(ALICE, "sbatch", "-o/dev/null", "-w", "n1", nap)
        node = shows("ALLOCATED")
        assert (node.up, node.idle) == (True, False)
        update("DRAIN", "Reason=test")
        node = shows("ALLOCATED+DRAIN")
        assert (node.up, node.idle) == (False, False)
    finally:
        site.run("root", "scontrol", "update", "NodeName=n1", "State=RESUME", check=False)
