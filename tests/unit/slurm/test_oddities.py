"""A job with values that can't be used costs nobody else anything, and its owner is named in the
log.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pytest

from mirage.daemon.metrics import Metrics
from mirage.domain import ChainState, Job, Oddity, ReleaseOutcome
from mirage.errors import ClusterNonsense, ClusterUnavailable, Unreadable
from mirage.slurm import oddities
from mirage.slurm.commands import CommandCluster
from mirage.slurm.runner import CommandResult, Runner
from tests.unit.daemon.test_app import World, release
from tests.unit.slurm.test_parsing import lines_of, sacct_rows, squeue_rows

NOW = 1_000_000
ENDLESS = {"tres-alloc": "cpu=1,gres/gpu=1000000000000000000"}
BROKEN = {"TimeLimit": "soon"}


@dataclass
class Script:
    """Commands that answer with these rows, and keep what they were run with."""

    queue: list[dict[str, str]] = field(default_factory=list)
    records: str = ""
    lines: bytes = b""
    calls: list[tuple[Sequence[str], Mapping[str, str]]] = field(default_factory=list)

    def execute(
        self, argv: Sequence[str], env: Mapping[str, str], _timeout_s: float, _limit: int
    ) -> CommandResult:
        self.calls.append((argv, env))
        if argv[0] == "squeue":
            nonce = env["SQUEUE_FORMAT2"].split(",")[0].removeprefix("JobID:")
            return CommandResult(
                stdout=squeue_rows(*self.queue, nonce=nonce), stderr="", returncode=0
            )
        if argv[0] == "sinfo":
            return CommandResult(stdout="n1|gpu|idle|\n", stderr="", returncode=0)
        if "-P" in argv:
            return CommandResult(stdout=self.records, stderr="", returncode=0)
        return CommandResult(
            stdout=self.lines.decode(errors="replace"), stderr="", returncode=0, raw=self.lines
        )

    def cluster(self) -> CommandCluster:
        return CommandCluster(
            Runner({"SQUEUE_FORMAT2": "a user's own"}, execute=self.execute), now_s=lambda: NOW
        )


def test_a_snapshot_has_everybody_elses_jobs_and_says_whose_is_left_out() -> None:
    slurm = Script([{"JobID": "6"}, BROKEN, ENDLESS | {"JobID": "8", "UserName": "eve"}])
    snapshot = slurm.cluster().snapshot()
    assert set(snapshot.by_id) == {6, 8}
    assert snapshot.present == {6, 7, 8}
    assert [(odd.job_id, odd.user, odd.is_set_apart) for odd in snapshot.oddities] == [
        (7, "alice", True),
        (8, "eve", False),
    ]


def test_a_job_that_is_asked_for_and_can_not_be_read_is_not_gone() -> None:
    cluster = Script([{"JobID": "6"}, BROKEN]).cluster()
    with pytest.raises(
        Unreadable, match=r"job 7 of alice is left out: its TimeLimit is 'soon'.*change it"
    ) as caught:
        cluster.jobs([6, 7])
    assert set(caught.value.jobs) == {6}
    assert isinstance(caught.value, ClusterNonsense)
    assert set(cluster.jobs([6])) == {6}


def test_a_record_that_can_not_be_read_does_not_hide_the_others() -> None:
    slurm = Script(
        records=sacct_rows(
            {"JobIDRaw": "6"}, {"TimelimitRaw": "soon"}, {"JobIDRaw": "8", "ReqTRES": ""}
        )
    )
    assert [job.job_id for job in slurm.cluster().accounting(0, NOW)] == [6, 8]


def test_the_tag_of_a_submission_is_that_of_its_own_record() -> None:
    tag = "mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=1"
    forged = lines_of((7, f"sbatch --comment={tag}")).decode()
    slurm = Script(
        records=sacct_rows({"JobIDRaw": "6"}, {"JobIDRaw": "7"}, {"JobIDRaw": "8"}),
        lines=lines_of(
            (6, f"sbatch --comment={tag} job.sh"), (7, "sbatch é job.sh"), (8, 40 * "é" + forged)
        ).replace("é".encode(), b"\xe9 "),
    )
    found = {job.job_id: job.comment for job in slurm.cluster().submissions(0, NOW, ["alice"])}
    assert found[6] == tag
    assert found[7] == ""


def test_nobody_can_read_the_separator_in_proc_and_it_is_new_each_time() -> None:
    slurm = Script([{}])
    cluster = slurm.cluster()
    for _ in range(3):
        cluster.snapshot()
        cluster.jobs([7])
    formats = {env["SQUEUE_FORMAT2"] for argv, env in slurm.calls if argv[0] == "squeue"}
    nonces = {text.split(",")[0].partition(":")[2] for text in formats}
    assert len(nonces) == 6
    for argv, env in slurm.calls:
        assert not any(nonce in word for word in argv for nonce in nonces)
        assert argv[0] == "squeue" or "SQUEUE_FORMAT2" not in env


def test_each_oddity_is_logged_once_and_a_flood_of_them_is_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster = Script([{"JobID": str(number)} | ENDLESS for number in range(1, 1000)]).cluster()
    for _ in range(3):
        cluster.snapshot()
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == oddities.MOST_LINES + 1
    assert lines[0].startswith("job 1 of alice is read with the largest number that can be meant")
    assert lines[-1] == f"{999 - oddities.MOST_LINES} more such values in jobs of alice"


def test_what_is_remembered_as_logged_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(oddities, "MOST_REMEMBERED", 5)
    log = oddities.OddityLog()
    log.report(
        [
            Oddity(job_id=number, user="eve", field="NumNodes", text="x", is_set_apart=True)
            for number in range(9)
        ]
    )
    assert [job_id for job_id, _ in log._fields] == [4, 5, 6, 7, 8]


# --- chains
# ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def world() -> World:
    return World()


def hide(world: World, monkeypatch: pytest.MonkeyPatch, *hidden: int) -> None:
    """From now on these jobs are in the queue and can't be read."""
    snapshot, jobs, accounting = (
        world.cluster.snapshot,
        world.cluster.jobs,
        world.cluster.accounting,
    )
    odd = tuple(
        Oddity(job_id=job_id, user="alice", field="TimeLimit", text="'soon'", is_set_apart=True)
        for job_id in hidden
    )

    def seen() -> object:
        found = snapshot()
        kept = tuple(job for job in found.jobs if job.job_id not in hidden)
        return replace(found, jobs=kept, oddities=odd)

    def asked(job_ids: Sequence[int]) -> dict[int, Job]:
        found = jobs([job_id for job_id in job_ids if job_id not in hidden])
        if lost := [each for each in odd if each.job_id in job_ids]:
            raise Unreadable(lost, found)
        return found

    def recorded(*args: object) -> list[Job]:
        return [job for job in accounting(*args) if job.job_id not in hidden]  # type: ignore[arg-type]

    monkeypatch.setattr(world.cluster, "snapshot", seen)
    monkeypatch.setattr(world.cluster, "jobs", asked)
    monkeypatch.setattr(world.cluster, "accounting", recorded)


@pytest.mark.parametrize("which", ["first", "second", "both"])
def test_a_chain_whose_job_can_not_be_read_is_neither_closed_nor_let_in(
    world: World, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    world.cycles()
    links = world.store.links("alice", "chain1")
    jobs = {"first": [world.first], "second": [world.second], "both": [world.first, world.second]}[
        which
    ]
    with monkeypatch.context() as patch:
        hide(world, patch, *jobs)
        world.cycles(8)  # the timer would let it in an hour before the end
        assert world.chain.state is ChainState.ACTIVE
        assert [link.job_id for link in world.store.links("alice", "chain1")] == [
            link.job_id for link in links
        ]
        assert world.store.intents(world.second) == []
    world.cycles(2)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def test_a_job_that_can_not_be_read_right_before_the_release_is_not_let_in(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles()
    jobs = world.cluster.jobs

    def unreadable(job_ids: Sequence[int]) -> dict[int, Job]:
        raise Unreadable(
            [
                Oddity(
                    job_id=world.second,
                    user="alice",
                    field="TimeLimit",
                    text="'soon'",
                    is_set_apart=True,
                )
            ],
            jobs(job_ids),
        )

    with monkeypatch.context() as patch:
        patch.setattr(world.cluster, "jobs", unreadable)
        world.cycles(8)
        assert world.store.intents(world.second) == []
    world.cycles()
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def test_an_open_intent_on_a_job_that_can_not_be_read_stops_nobody_elses_cycle(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.cycles()

    def lost(_job_id: int) -> None:
        raise ClusterUnavailable("no answer")

    with monkeypatch.context() as patch:
        patch.setattr(world.cluster, "release", lost)
        assert release(world)[0] is ReleaseOutcome.UNKNOWN
    with monkeypatch.context() as patch:
        hide(world, patch, world.second)
        assert world.daemon.run_cycle()
        assert len(world.store.open_intents()) == 1
    assert world.daemon.run_cycle()
    assert world.store.open_intents() == []


def test_metrics_count_them() -> None:
    metrics = Metrics("enforce", "timer")
    metrics.queue_read(
        Script([BROKEN, ENDLESS | {"JobID": "8"}, {"JobID": "9"}]).cluster().snapshot()
    )
    shown = {"unreadable": 1, "out_of_range": 1, "pending": 2, "running": 0}
    for state, jobs in shown.items():
        assert metrics.registry.get_sample_value("mirage_jobs", {"state": state}) == jobs
