"""Answers of Slurm that do not agree, and those that only seem so."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.daemon.observers import AgreementLog
from mirage.domain import ClusterNode, Job, JobState, Oddity, Settings, Snapshot
from mirage.slurm.agreement import of_gpus, of_records, of_settings, of_snapshot
from mirage.slurm.resources import NodeUse
from slurm_sim.config import ClusterConfig, NodeSpec, Partition

NOW_S = 1_000_000


def node(name: str, state: str = "idle") -> ClusterNode:
    up = state.startswith(("idle", "alloc", "mixed"))
    return ClusterNode(name=name, partitions=("gpu",), up=up, idle=state == "idle", state=state)


def running(job_id: int, *names: str, **more: object) -> Job:
    job = Job(
        job_id=job_id,
        user="ann",
        partition="gpu",
        state=JobState.RUNNING,
        nodes=len(names),
        submit_s=NOW_S - 900,
        start_s=NOW_S - 800,
        time_limit_s=3600,
        node_names=names,
    )
    return replace(job, **more)  # type: ignore[arg-type]


def pending(job_id: int, reason: str = "Priority", **more: object) -> Job:
    job = running(job_id, state=JobState.PENDING, start_s=None, nodes=1, reason=reason)
    return replace(job, **more)  # type: ignore[arg-type]


def snapshot(*jobs: Job, states: str = "allocated idle", **more: object) -> Snapshot:
    nodes = tuple(node(f"n{nth}", state) for nth, state in enumerate(states.split(), start=1))
    return Snapshot(at_s=NOW_S, jobs=jobs, nodes=nodes, **more)  # type: ignore[arg-type]


def test_answers_that_agree() -> None:
    states = "allocated idle down drained"
    assert of_snapshot(snapshot(running(1, "n1"), pending(2), states=states)) == []
    assert of_snapshot(snapshot(states="idle idle")) == []
    assert of_snapshot(Snapshot(at_s=NOW_S, jobs=(running(1, "n1"),), nodes=())) == []


@pytest.mark.parametrize(
    ("seen", "kind", "words"),
    [
        (snapshot(), "hidden-jobs", "node n1 is in use; no job of squeue's has them"),
        (snapshot(pending(2), states="mixed# allocated"), "hidden-jobs", "2 nodes (n1, n2) are"),
        (
            snapshot(running(1, "n1", "x9")),
            "unlisted-nodes",
            "a job runs on nodes that sinfo does not list (job 1 of ann)",
        ),
        (
            snapshot(running(1, "n2"), running(2, "n3"), states="allocated idle idle"),
            "idle-nodes",
            "2 jobs run on nodes that sinfo says are idle (job 1 of ann, 2 of ann)",
        ),
        (snapshot(running(1, "n1", nodes=4)), "node-counts", "another number of nodes"),
        (
            snapshot(running(1, "n1"), pending(2, partition="old,older")),
            "partitions",
            "a job waits in partition old,older",
        ),
        (snapshot(running(1, "n1", start_s=NOW_S + 900)), "clock", "a job began 15 min from now"),
        (snapshot(running(1, "n1", time_limit_s=60)), "past-limits", "over 10 min beyond"),
        (
            snapshot(running(1, "n1"), pending(2, "ReqNodeNotAvail, Reserved for maintenance")),
            "reserved",
            "waits for ReqNodeNotAvail, Reserved for maintenance, though enough nodes are idle",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) and " " not in value else "",
)
def test_answers_that_do_not(seen: Snapshot, kind: str, words: str) -> None:
    found = {each.kind: each for each in of_snapshot(seen)}
    assert words in str(found[kind])
    assert "ann" not in found[kind].what
    assert found[kind].why.endswith(".")
    assert found[kind].do.endswith(".")


def test_what_only_seems_to_disagree() -> None:
    """Jobs that start or end between the two questions, and jobs that can't be read."""
    names = [f"n{number}" for number in range(1, 12)]
    jobs = [running(number, name) for number, name in enumerate(names[:-1], start=1)]
    assert of_snapshot(snapshot(*jobs, states=" ".join(["allocated"] * 11))) == []
    odd = Oddity(job_id=3, user="bob", field="TimeLimit", text="?", is_set_apart=True)
    assert of_snapshot(snapshot(oddities=(odd,))) == []
    assert of_snapshot(snapshot(running(1), states="allocated")) == []  # nodes that are not told
    kept = pending(2, "ReqNodeNotAvail, Reserved for maintenance", nodes=9)
    assert of_snapshot(snapshot(running(1, "n1"), kept)) == []
    assert of_snapshot(snapshot(running(1, "n1", time_limit_s=None))) == []


def test_gpus_that_no_job_is_counted_with() -> None:
    def use(name: str, free: int) -> NodeUse:
        return NodeUse(name=name, partitions=("gpu",), total=(4, 8, 0), free=(free, 8, 0))

    nodes = [use("n1", 2), use("n2", 0), use("n3", 4)]
    assert of_gpus(nodes, snapshot(running(1, "n1", gpus=2), running(2, "n2"))) == {"n2": 4}


def test_gpus_without_their_tres() -> None:
    live = ClusterConfig((NodeSpec("n1", gpus=4),), (Partition("gpu", ("n1",)),))

    def of(**parameters: str) -> list[str]:
        settings = Settings(version="26.05.5", parameters=parameters)
        return [each.what for each in of_settings(settings, live)]

    assert of(AccountingStorageTRES="cpu,mem,gres/gpu") == []
    assert of(AccountingStorageTRES="cpu,gres/gpu:a100") == []
    assert of() == []  # slurmrestd does not show it
    [words] = of(AccountingStorageTRES="cpu,mem")
    assert words == "nodes have 4 GPUs; AccountingStorageTRES does not list gres/gpu"


def test_jobs_that_run_for_ever_by_accounting() -> None:
    seen = snapshot(running(1, "n1"))
    young = running(4, "n2", start_s=NOW_S - 60)
    assert list(of_records([running(1, "n1"), young, running(5, end_s=NOW_S)], seen)) == []
    [found] = of_records([running(1, "n1"), running(7, "n2")], seen)
    assert str(found) == "a job runs by sacct, and squeue does not have it (job 7 of ann)"
    assert "runawayjobs" in found.do


def test_the_log_names_each_kind_once_while_it_lasts(caplog: pytest.LogCaptureFixture) -> None:
    log = AgreementLog()
    for _ in range(2):
        log.queue_read(snapshot())
        assert log.words == ""  # a single look may fall between two answers
        log.queue_read(snapshot(running(1, "n1")))
    assert caplog.text == ""
    for _ in range(4):
        log.queue_read(snapshot())
    assert len(caplog.records) == 1
    assert log.words.startswith("Slurm's answers disagree: sinfo says that node n1 is in use;")
    log.queue_read(snapshot(running(1, "n1")))
    assert log.words == ""
    once = AgreementLog(looks=1)
    once.queue_read(snapshot())
    assert len(caplog.records) == 2
    assert once.words
