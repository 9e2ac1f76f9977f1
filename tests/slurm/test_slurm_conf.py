"""What a real slurmctld makes of a slurm.conf, and what we read in it, for files drawn as sites
write them.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from slurm_sim.clusters import scheduler, slurm_conf
from tests.conformance.slurm_confs import KINDS, drawn
from tests.conformance.slurm_judge import Case, judge, why_not

pytestmark = [
    pytest.mark.slurm,
    pytest.mark.skipif(bool(why_not()), reason=why_not() or "there is a judge"),
]
SEED = 31
PARTITION = (
    "PartitionName=batch Nodes=ALL Default=YES DefMemPerCPU=0 State=UP OverSubscribe=NO"
    " MaxTime=INFINITE\n"
)


@pytest.fixture(autouse=True)
def clean_queue() -> None:
    """No queue is needed here: each slurmctld is started for one file, beside the site's."""


def test_drawn_files_are_read_as_slurmctld_reads_them() -> None:
    cases = [drawn(kind, SEED, number) for kind in KINDS for number in range(3)]
    with ThreadPoolExecutor(4) as at_once:
        verdicts = list(at_once.map(judge, cases))
    assert [
        (verdict.case.name, verdict.differences) for verdict in verdicts if verdict.differences
    ] == []
    assert any(verdict.ran for verdict in verdicts)
    assert any(not verdict.ran for verdict in verdicts)


@pytest.mark.parametrize("order", ["CPUs=256 {} Procs=128", "Procs=128 {} CPUs=256"])
def test_cpus_and_procs_on_one_line(order: str) -> None:
    attributes = order.format("Sockets=2 CoresPerSocket=64 ThreadsPerCore=2")
    text = (
        f"SelectType=select/cons_tres\nGresTypes=gpu\nNodeName=dgx01 Gres=gpu:8 {attributes}"
        " RealMemory=1000000\n"
    )
    verdict = judge(Case("cpus", {"slurm.conf": text + PARTITION}))
    assert (verdict.ran, verdict.differences) == (True, ())


def test_the_judge_sees_a_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    """In what scontrol shows, in what slurmctld's log says, and where it refuses a file."""
    wrong = scheduler.NumberOption("default_queue_depth", 0, 10**9, unit=2)
    monkeypatch.setattr(scheduler, "OPTIONS", {**scheduler.OPTIONS, "default_queue_depth": wrong})
    text = "SchedulerParameters=default_queue_depth=7\nNodeName=n1 CPUs=4\n" + PARTITION
    [difference] = judge(Case("log", {"slurm.conf": text})).differences
    assert difference.startswith(
        "default_queue_depth, partition_job_depth, sched_max_job_start: file (14, 0, 0), live "
    )
    monkeypatch.setattr(slurm_conf, "with_defaults", lambda own, _: own)
    text = "NodeName=DEFAULT CPUs=4\nNodeName=n1\n" + PARTITION
    assert judge(Case("node", {"slurm.conf": text})).differences == (
        "nodes: n1: cpus: file 1, live 4",
    )
    monkeypatch.setattr(slurm_conf, "check_numbers", lambda *_: None)
    [difference] = judge(
        Case("refused", {"slurm.conf": "TreeWidth=wide\nNodeName=n1\n" + PARTITION})
    ).differences
    assert difference.startswith("slurmctld refuses it, we read it: error: TreeWidth value")
