"""The command-line adapter on a real Slurm: the contract, and what only a real one can show."""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from mirage.domain import JobState
from mirage.errors import AccountingUnavailable
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from tests.contract.cluster_contract import ClusterContract
from tests.contract.mover_contract import MoverContract
from tests.contract.site import Site, ids

pytestmark = pytest.mark.slurm


class RealSite(Site):
    alice, bob, operator = "mirage-alice", "mirage-bob", "mirage"

    def __init__(self, slurm: Path, scratch: Path) -> None:
        self.slurm = slurm  # its bin/ has the commands, where its release is not the machine's own
        self.conf = slurm / "etc" / "slurm.conf"
        self.scratch = scratch
        self.root = CommandCluster(Runner(self.env(self.conf)))
        self.nodes = len(self.root.snapshot().nodes)

    def env(self, conf: Path) -> dict[str, str]:
        # Defaults for sbatch that leave no files behind, wherever the tests run.
        commands = {"SLURM_CONF": str(conf), "PATH": f"{self.slurm}/bin:{os.environ['PATH']}"}
        return os.environ | commands | {"SBATCH_OUTPUT": "/dev/null", "TZ": "Asia/Tokyo"}

    def cluster(self, user: str, conf: Path | None = None) -> CommandCluster:
        become = ["setpriv", f"--reuid={user}", f"--regid={user}", "--init-groups", "--"]
        return CommandCluster(Runner(self.env(conf or self.conf), retries=0, prefix=become))

    def down(self) -> CommandCluster:
        return self.cluster(self.alice, self.changed("SlurmctldPort=9", "AccountingStoragePort=9"))

    def changed(self, *lines: str, without: str = "#") -> Path:
        """A slurm.conf with these lines more, and without those that start so."""
        conf = self.scratch / "slurm.conf"
        kept = [line for line in self.conf.read_text().splitlines() if not line.startswith(without)]
        conf.write_text("\n".join([*kept, *lines, ""]))
        return conf

    def script(self, run_s: int, exit_code: int) -> str:
        script = self.scratch / f"job-{run_s}-{exit_code}.sh"
        script.write_text(f"#!/bin/sh\n#SBATCH --chdir=/tmp\nsleep {run_s}\nexit {exit_code}\n")
        return str(script)

    def pause(self) -> None:
        time.sleep(0.25)

    def clean(self) -> None:
        """Ends all jobs, and waits until the nodes are free again."""
        self.root.cancel([job.job_id for job in self.root.snapshot().jobs])
        self.until(
            lambda: (
                not self.root.snapshot().jobs
                and all(node.idle for node in self.root.snapshot().nodes)
            ),
            lambda: f"an idle cluster: {self.root.snapshot()}",
        )


@pytest.fixture(scope="module")
def real_site(real_slurm: Path) -> Iterator[RealSite]:
    with tempfile.TemporaryDirectory(
        dir="/var/tmp"
    ) as scratch:  # users can't enter pytest's own folders
        Path(scratch).chmod(0o755)
        yield RealSite(Path(real_slurm), Path(scratch))


@pytest.fixture
def site(real_site: RealSite) -> Iterator[RealSite]:
    real_site.clean()
    yield real_site
    real_site.clean()


class TestCommandsOnSlurm(ClusterContract):
    pass


class TestMovesOnSlurm(MoverContract):
    pass


def test_the_release_is_the_one_that_was_asked_for(
    site: RealSite, record_testsuite_property: Callable[[str, object], None]
) -> None:
    version = site.root.settings().version
    record_testsuite_property("slurm", version)  # scripts/test-releases reads it
    assert version.startswith((site.slurm / "etc" / "version").read_text().strip() + ".")


def test_the_tasks_of_an_array_are_jobs_of_their_own(site: RealSite) -> None:
    site.fill()
    array = site.submit("--array=1-5:2")
    tasks = [job for job in site.root.snapshot().jobs if job.user == site.alice]
    assert [job.array_task for job in tasks] == ["1", "3", "5"]
    assert ids(tasks) == {array}
    assert set(site.root.jobs([array])) == {array}


def test_a_waiting_job_shows_the_cpus_and_the_memory_that_it_asks_for(site: RealSite) -> None:
    job_id = site.submit(
        "--begin=now+1hour", "--nodes=2", "--ntasks-per-node=1", "--cpus-per-task=2", "--mem=100M"
    )
    (job,) = site.root.jobs([job_id]).values()
    assert (job.nodes, job.cpus, job.memory_mib) == (2, 4, 200)


def test_a_requeued_job_has_a_record_for_each_start(site: RealSite) -> None:
    job = site.reaches(site.submit("--requeue"), JobState.RUNNING)
    subprocess.run(["scontrol", "requeue", str(job.job_id)], env=site.env(site.conf), check=True)
    waiting = site.reaches(job.job_id, JobState.PENDING)
    assert (waiting.start_s, waiting.end_s, waiting.eligible_s) == (None, None, None)
    window = (job.submit_s, job.submit_s + 3600, [job.job_id])
    site.until(lambda: len(site.root.accounting(*window)) == 2, lambda: "two records")
    first, second = site.root.accounting(*window)
    assert (first.state, first.start_s) == (JobState.REQUEUED, job.start_s)
    assert second.start_s is None


def test_a_drained_node_is_not_up_and_leaves_an_event(site: RealSite) -> None:
    started_s = site.root.snapshot().at_s
    name = site.root.snapshot().nodes[-1].name
    scontrol = ["scontrol", "update", f"NodeName={name}"]
    try:
        subprocess.run(
            [*scontrol, "State=DRAIN", "Reason=test"], env=site.env(site.conf), check=True
        )
        assert [node.name for node in site.root.snapshot().nodes if not node.up] == [name]
        site.until(
            lambda: bool(site.root.node_events(started_s, started_s + 60)), lambda: "the event"
        )
        (event,) = site.root.node_events(started_s, started_s + 60)
        assert (event.node, event.end_s) == (name, None)
    finally:
        subprocess.run([*scontrol, "State=RESUME"], env=site.env(site.conf), check=True)


def test_a_site_without_accounting(site: RealSite) -> None:
    conf = site.changed(
        "AccountingStorageType=accounting_storage/none", without="AccountingStorage"
    )
    cluster = site.cluster(site.alice, conf)
    with pytest.raises(AccountingUnavailable, match="accounting storage is disabled"):
        cluster.accounting(1, 2)
    with pytest.raises(AccountingUnavailable, match="accounting_storage"):
        cluster.node_events(1, 2)


def test_the_environment_of_a_job_is_the_users_own(site: RealSite) -> None:
    """Our settings for reading (C locale, UTC, times in seconds) must not end up in jobs."""
    told = site.scratch / "told"
    told.touch()
    told.chmod(0o666)
    script = site.scratch / "env.sh"
    script.write_text(f"#!/bin/sh\necho $TZ $SLURM_TIME_FORMAT $SLURM_BITSTR_LEN >{told}\n")
    site.reaches(site.cluster(site.alice).submit([], str(script)), JobState.COMPLETED)
    assert told.read_text() == "Asia/Tokyo\n"
