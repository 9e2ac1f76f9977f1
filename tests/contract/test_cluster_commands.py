"""The command-line adapter on fake commands: the contract, what it costs, and commands that
misbehave.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from mirage.config import AdapterConfig
from mirage.domain import JobState
from mirage.errors import AccountingUnavailable, ClusterNonsense, ClusterUnavailable
from mirage.ports import Cluster
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import Runner
from tests.contract.cluster_contract import ClusterContract
from tests.contract.mover_contract import MoverContract
from tests.contract.site import Site
from tests.fakes.fake_slurm import COMMANDS, FakeSlurm

NOW = 1_800_000_000


class FakeSite(Site):
    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.slurm = FakeSlurm.create(folder, self.nodes, NOW)

    def cluster(self, user: str, timeout_s: float = 20) -> CommandCluster:
        env = {
            "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
            "FAKE_SLURM_DIR": str(self.folder),
            "FAKE_SLURM_USER": user,
            "SQUEUE_FORMAT": "%i",  # a user's own settings must not matter
            "SLURM_TIME_FORMAT": "%c",
        }
        return CommandCluster(Runner(env, timeout_s=timeout_s, backoff_s=0), now_s=self.slurm.now_s)

    def down(self) -> CommandCluster:
        for command in COMMANDS:
            self.slurm.misbehave(command, "down")
        return self.cluster(self.alice)

    def script(self, run_s: int, exit_code: int) -> str:
        script = self.folder / f"job-{run_s}-{exit_code}.sh"
        script.write_text(f"#!/bin/sh\nsleep {run_s}\nexit {exit_code}\n")
        return str(script)

    def pause(self) -> None:
        self.slurm.advance(1)

    def called(self) -> list[str]:
        """The commands since the last time, in order."""
        names = [call[0] for call in self.slurm.calls()]
        (self.folder / "calls").unlink(missing_ok=True)
        return names


@pytest.fixture
def site(tmp_path: Path) -> FakeSite:
    return FakeSite(tmp_path)


class TestCommandsOnFakes(ClusterContract):
    pass


class TestMovesOnFakes(MoverContract):
    pass


def test_a_snapshot_is_one_squeue_and_one_sinfo_whatever_the_queue(site: FakeSite) -> None:
    for _ in range(5):
        site.submit()
    site.called()
    assert len(site.cluster(site.alice).snapshot().jobs) == 5
    assert sorted(site.called()) == ["sinfo", "squeue"]


def test_many_jobs_are_one_squeue(site: FakeSite) -> None:
    submitted = [site.submit() for _ in range(5)]
    site.called()
    cluster = site.cluster(site.alice)
    assert set(cluster.jobs(submitted)) == set(submitted)
    assert site.called() == ["squeue"]
    assert set(cluster.jobs([*submitted, *range(1000, 3000)])) == set(submitted)
    assert site.called() == ["squeue"]


def test_accounting_of_very_many_jobs_has_no_endless_command_line(site: FakeSite) -> None:
    job_id = site.submit()
    site.called()
    records = site.cluster(site.alice).accounting(NOW, NOW + 9, [job_id, *range(1000, 3000)])
    assert [record.job_id for record in records] == [job_id]
    assert site.called() == ["sacct"] * 3


def test_nothing_is_asked_about_no_jobs(site: FakeSite) -> None:
    cluster = site.cluster(site.alice)
    cluster.jobs([])
    cluster.cancel([])
    cluster.accounting(0, 1, [])
    assert site.called() == []


def test_a_read_without_an_answer_is_tried_three_times_and_a_submission_once(
    site: FakeSite,
) -> None:
    cluster = site.down()
    for act, commands in (
        (cluster.settings, ["scontrol"] * 3),
        (lambda: cluster.release(1), ["scontrol"] * 3),
        (lambda: cluster.cancel([1]), ["scancel"]),
        (lambda: cluster.submit([], site.script(1, 0)), ["sbatch"]),
    ):
        with pytest.raises(ClusterUnavailable):
            act()
        assert site.called() == commands


def test_a_job_at_its_limit(site: FakeSite) -> None:
    job_id = site.submit("--time=1")
    site.slurm.advance(90)
    assert site.reaches(job_id, JobState.TIMEOUT).state.is_over


def test_node_events(site: FakeSite) -> None:
    with site.slurm.state() as state:
        state["events"] = [["n1", NOW - 50, NOW - 40], ["n2", NOW - 10, None]]
    cluster = site.cluster(site.alice)
    assert [event.node for event in cluster.node_events(NOW - 60, NOW)] == ["n1", "n2"]
    assert [event.node for event in cluster.node_events(NOW - 40, NOW - 20)] == ["n1"]
    assert [event.end_s for event in cluster.node_events(NOW - 10, NOW - 10)] == [None]


# --- misbehaviour
# ----------------------------------------------------------------------------------------------------

READS: dict[str, Callable[[Cluster], object]] = {
    "squeue": lambda cluster: cluster.snapshot(),
    "sinfo": lambda cluster: cluster.snapshot(),
    "sacct": lambda cluster: cluster.accounting(1, 2),
    "sacctmgr": lambda cluster: cluster.node_events(1, 2),
    "scontrol": lambda cluster: cluster.settings(),
}


@pytest.mark.parametrize("command", READS)
def test_garbage_is_nonsense_and_the_error_names_the_command(site: FakeSite, command: str) -> None:
    site.submit()
    site.slurm.misbehave(command, "garbage")
    with pytest.raises(ClusterNonsense, match=rf"^{command}.*line 1"):
        READS[command](site.cluster(site.alice))


def test_garbage_of_sbatch_is_nonsense(site: FakeSite) -> None:
    site.slurm.misbehave("sbatch", "garbage")
    with pytest.raises(ClusterNonsense, match="sbatch"):
        site.submit()


@pytest.mark.parametrize("command", ["sinfo", "scontrol"])
def test_an_empty_answer_is_nonsense_where_there_is_always_one(
    site: FakeSite, command: str
) -> None:
    site.slurm.misbehave(command, "empty")
    with pytest.raises(ClusterNonsense, match=command):
        READS[command](site.cluster(site.alice))


def test_an_empty_queue_is_legal(site: FakeSite) -> None:
    site.submit()
    site.slurm.misbehave("squeue", "empty")
    snapshot = site.cluster(site.alice).snapshot()
    assert snapshot.jobs == ()
    assert len(snapshot.nodes) == 4


@pytest.mark.parametrize("command", READS)
def test_a_command_that_hangs_is_given_up(site: FakeSite, command: str) -> None:
    site.slurm.misbehave(command, "hang")
    expected = AccountingUnavailable if command.startswith("sacct") else ClusterUnavailable
    with pytest.raises(expected, match=rf"{command}: no answer within 0.7 s"):
        READS[command](site.cluster(site.alice, timeout_s=0.7))


@pytest.mark.parametrize("command", READS)
def test_a_command_that_fails_says_why(site: FakeSite, command: str) -> None:
    site.slurm.misbehave(command, "fail")
    expected = AccountingUnavailable if command.startswith("sacct") else ClusterUnavailable
    with pytest.raises(expected, match=rf"{command} failed: .*something is wrong"):
        READS[command](site.cluster(site.alice))


def test_commands_that_are_not_installed_are_named(site: FakeSite) -> None:
    cluster = CommandCluster.from_config(AdapterConfig(bin_dir=str(site.folder / "nowhere")))
    with pytest.raises(ClusterUnavailable, match=r"squeue: no such command in .*nowhere"):
        cluster.snapshot()
    with pytest.raises(AccountingUnavailable, match="sacct: no such command"):
        cluster.accounting(1, 2)
