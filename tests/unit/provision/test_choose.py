"""`mirage when --choose`: each place that a script's owner may use, by when its job would finish."""

from __future__ import annotations

from pathlib import Path

import pytest

from mirage.chain.batch_script import parse_script
from mirage.cli.main import main
from mirage.domain import Job, JobState, Snapshot
from mirage.provision.starts.choose import choices
from mirage.provision.starts.finish import Speeds
from mirage.provision.starts.forecaster import QueueView
from mirage.provision.starts.options import shape_of
from mirage.slurm.entitlements import Entitlement, entries, partition_rules
from mirage.slurm.resources import NodeUse
from mirage.slurm.survey import JobLimits
from slurm_sim import ClusterConfig, NodeSpec, Params, Partition

NOW_S, HOUR = 1_700_000_000, 3600
RULES = """\
PartitionName=fast AllowGroups=ALL AllowAccounts=ALL AllowQos=ALL State=UP Hidden=NO
PartitionName=slow AllowAccounts=ALL DenyQos=high State=UP Hidden=NO
PartitionName=paid AllowAccounts=rich AllowQos=ALL State=UP Hidden=NO
PartitionName=down AllowAccounts=ALL AllowQos=ALL State=DOWN Hidden=NO
"""


def limits(account: str, qos: str) -> JobLimits:
    return JobLimits(
        user="alice",
        account=account,
        partition="",
        qos=qos,
        max_jobs=None,
        max_submit=None,
        group_jobs=None,
        group_submit=None,
    )


def script(*lines: str) -> bytes:
    return "\n".join(["#!/bin/sh", *(f"#SBATCH {line}" for line in lines), "true", ""]).encode()


def test_entries_are_what_slurm_lets_in() -> None:
    found = list(entries(partition_rules(RULES), [limits("maths", "normal,high")]))
    assert [(each.partition, each.qos) for each in found] == [
        ("fast", "normal"),
        ("fast", "high"),
        ("slow", "normal"),
    ]
    rich = list(entries(partition_rules(RULES), [limits("rich", "normal")]))
    assert [each.partition for each in rich] == ["fast", "slow", "paid"]
    assert [each.account for each in entries(partition_rules(RULES), [])] == ["", ""]


NAMES = {"fast": ("n1", "n2"), "slow": ("n3", "n4")}
CLUSTER = ClusterConfig(
    tuple(NodeSpec(name, cpus=8, gpus=2) for names in NAMES.values() for name in names),
    (
        Partition("fast", NAMES["fast"], billing_weight_gpus=10.0),
        Partition("slow", NAMES["slow"], max_time_s=12 * HOUR, billing_weight_gpus=1.0),
    ),
    Params(),
)
NODES = [
    NodeUse(name=name, partitions=(part,), total=(2, 8, 8000), free=(0, 0, 0), gpu_type=kind)
    for part, kind in (("fast", "a100"), ("slow", "v100"))
    for name in NAMES[part]
]


def past(name: str, number: int, wait_s: int) -> Job:
    start_s = NOW_S - 3 * HOUR - number
    return Job(
        job_id=number,
        user="bob",
        partition=name,
        state=JobState.COMPLETED,
        nodes=1,
        submit_s=start_s - wait_s,
        eligible_s=start_s - wait_s,
        start_s=start_s,
        end_s=NOW_S - HOUR,
        time_limit_s=4 * HOUR,
    )


def test_the_earliest_finish_comes_first_and_costs_are_by_weights() -> None:
    records = [past("fast", n, 3 * HOUR) for n in range(1, 41)]
    records += [past("slow", n, HOUR) for n in range(101, 141)]
    view = QueueView(
        snapshot=Snapshot(at_s=NOW_S, jobs=(), nodes=()), user="alice", ask_records=lambda: records
    )
    allowed = [
        Entitlement(partition=name, account="maths", qos=qos)
        for name in ("fast", "slow")
        for qos in ("normal", "high")
    ]

    def found(asked: bytes, speed: float = 0.5) -> list[tuple[str, str, int, float]]:
        rows = choices(
            shape_of(parse_script(asked).options, CLUSTER),
            allowed,
            view,
            CLUSTER,
            NODES,
            speeds=Speeds({"v100": speed}),
            usage={"high": 2.0},
        )
        return [
            (
                row.finish.partition,
                ",".join(entry.qos for entry in row.entries),
                round(row.finish.finish_s[1] / HOUR),
                round(row.billing_h, 3),
            )
            for row in rows
        ]

    asked = script("-t 4:00:00", "--gres=gpu:1")
    assert found(asked) == [
        ("fast", "normal", 7, 44.0),  # a CPU and a GPU, 11 billing units
        ("fast", "high", 7, 88.0),
        ("slow", "normal", 9, 16.0),  # twice as long
        ("slow", "high", 9, 32.0),
    ]
    assert [row[0] for row in found(asked, speed=1.0)][:2] == ["slow", "slow"]
    assert {row[0] for row in found(script("-t 20:00:00"))} == {"fast"}  # slow: 12 h at most
    assert {row[0] for row in found(script("-t 1:00:00", "--gres=gpu:v100:1"))} == {"slow"}
    assert {row[1] for row in found(script("-t 1:00:00", "-q high"))} == {"high"}
    assert found(script("-t 1:00:00", "-N3")) == []


def test_a_script_that_is_not_there_is_one_clear_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["when", "--choose", str(tmp_path / "none.sbatch")]) == 2
    assert "none.sbatch" in capsys.readouterr().err
