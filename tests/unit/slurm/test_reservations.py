"""`scontrol show reservation`, and when a job fits beside what it shows."""

from __future__ import annotations

import pytest

from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.slurm import oddities, rest_records
from mirage.slurm.reservations import (
    hindrance,
    parse_reservations,
    reservation_of,
    with_reservations,
)
from slurm_sim.config import ClusterConfig, NodeSpec, Partition, Reservation

NOW_S, HOUR_S = 1_000_000, 3600
SHOWN = (
    "ReservationName=maint1 StartTime=1003600 EndTime=1032400 Duration=08:00:00 Nodes=n[1-4]"
    " NodeCnt=4 CoreCnt=16 Features=(null) PartitionName=(null)"
    " Flags=MAINT,IGNORE_JOBS,SPEC_NODES,ALL_NODES TRES=cpu=16 Users=root,bob Groups=(null)"
    " Accounts=(null) Licenses=(null) State=INACTIVE BurstBuffer=(null) MaxStartDelay=(null)\n"
)
MAINT = Reservation("maint1", 1_003_600, 1_032_400, ("n1", "n2", "n3", "n4"), ("root", "bob"))


def reserved(start_h: float, end_h: float, *names: str) -> Reservation:
    return Reservation(
        f"r{start_h}", NOW_S + int(start_h * HOUR_S), NOW_S + int(end_h * HOUR_S), names
    )


def test_what_scontrol_shows(monkeypatch: pytest.MonkeyPatch, caplog) -> None:
    monkeypatch.setattr(oddities, "_noted", set())
    licences = SHOWN.replace("Nodes=n[1-4]", "Nodes=(null)").replace("maint1", "licences")
    strange = SHOWN.replace("EndTime=1032400", "EndTime=never").replace("maint1", "strange")
    assert parse_reservations(SHOWN + licences + strange + "a newer line\n") == (MAINT,)
    assert len(caplog.records) == 1
    assert "strange can't be read and is left out" in caplog.text
    assert parse_reservations("No reservations in the system\n") == ()


def test_what_slurmrestd_shows() -> None:
    record = {
        "name": "maint1",
        "start_time": {"set": True, "number": 1_003_600},
        "end_time": {"set": True, "number": 1_032_400},
        "node_list": "n[1-4]",
        "users": "root,bob",
    }
    assert reservation_of(rest_records.reservation(record)) == MAINT
    old = record | {"start_time": 1_003_600, "end_time": 1_032_400}  # v0.0.38
    assert reservation_of(rest_records.reservation(old)) == MAINT


@pytest.mark.parametrize(
    ("nodes", "limit_s", "found", "wait_h"),
    [
        (4, HOUR_S, [], None),
        (4, HOUR_S, [reserved(1, 9, "n1")], None),  # it ends as the reservation begins
        (4, HOUR_S + 60, [reserved(1, 9, "n1")], 9),
        (3, HOUR_S + 60, [reserved(1, 9, "n1")], None),  # the other nodes are enough
        (4, None, [reserved(100, 101, "n4")], 101),  # no time limit
        (2, HOUR_S, [reserved(-1, 2, "n1", "n2", "n3")], 2),  # under way, so its nodes are not up
        (4, 2 * HOUR_S, [reserved(1, 2, "n1"), reserved(3, 5, "n2")], 5),
        (2, 2 * HOUR_S, [reserved(1, 2, "n1"), reserved(3, 5, "n2")], None),
        (4, HOUR_S, [reserved(-9, -1, "n1")], None),  # it is over
        (5, HOUR_S, [reserved(0, 1, "n1")], None),  # it never fits, which others say
        (1, HOUR_S, [reserved(0, 1, "x1")], None),  # another partition's
    ],
)
def test_when_a_job_fits(
    nodes: int, limit_s: int | None, found: list[Reservation], wait_h: float | None
) -> None:
    kept = {name for each in found if each.start_s <= NOW_S for name in each.nodes}
    every = tuple(
        ClusterNode(
            name=name,
            partitions=("other",) if name == "x1" else ("gpu",),
            up=name not in kept,
            idle=name not in kept,
        )
        for name in ("n1", "n2", "n3", "n4", "x1")
    )
    job = Job(
        job_id=7,
        user="ann",
        partition="gpu,none",
        state=JobState.PENDING,
        nodes=nodes,
        submit_s=NOW_S,
        time_limit_s=limit_s,
    )
    seen = hindrance(job, Snapshot(at_s=NOW_S, jobs=(job,), nodes=every), found)
    assert (seen and seen.wait_s / HOUR_S) == wait_h


def test_a_cluster_with_the_reservations_of_its_nodes() -> None:
    nodes = (NodeSpec("n1"), NodeSpec("n2"))
    cluster = ClusterConfig(nodes, (Partition("gpu", ("n1", "n2")),))
    own = with_reservations(cluster, [MAINT, reserved(0, 1, "x1")])
    assert [each.nodes for each in own.reservations] == [("n1", "n2")]
