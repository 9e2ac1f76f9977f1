"""The soak's judge finds what it looks for: a check that can't fail would say nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.conformance.soak_chains import KINDS, Plan, plans
from tests.conformance.soak_check import (
    Evidence,
    Record,
    accepted_jobs,
    judge,
    parse_journal,
    parse_sacct,
    runaway,
)
from tests.conformance.soak_faults import QUIET_S, faults

PLAN = Plan("soak00", "mirage-alice", "exit", 2, 90, 3000, 2, 0, None)
GOOD = Evidence(
    PLAN,
    "done",
    2,
    [
        Record(1, "soak00", 1, "COMPLETED", 100, 3100),
        Record(2, "soak00", 2, "COMPLETED", 3101, 6101),
    ],
    [("begin", 1, 1, 101), ("end", 1, 1, 3100), ("begin", 2, 2, 3102), ("end", 2, 2, 6100)],
    "done",
    "done",
    {1: "COMPLETED", 2: "COMPLETED"},
    set(),
)


def test_a_chain_as_it_should_be():
    assert judge(GOOD).is_good


def test_a_link_that_never_worked_is_lost():
    verdict = judge(replace(GOOD, journal=GOOD.journal[:2]))
    assert verdict.lost == ["links [2] never worked"]


@pytest.mark.parametrize(
    "changes",
    [
        {"records": [*GOOD.records, Record(3, "soak00", 2, "CANCELLED", None, 6101)]},
        {"journal": [*GOOD.journal, ("begin", 2, 3, 6200)]},
        {"journal": [*GOOD.journal, ("TWO-WRITERS", 2, 2, 3102)]},
    ],
)
def test_a_second_job_for_a_link_and_a_second_writer_are_seen(changes):
    assert judge(replace(GOOD, **changes)).twice


@pytest.mark.parametrize(
    "changes",
    [
        {"marker": "failed"},
        {"marker": ""},
        {"stored": "active"},
        {"stored": ""},
        {"journal": [*GOOD.journal, ("begin", 9, 3, 6200)]},
        {"queued": {3}},
        {"kept": {1: "COMPLETED"}},
        {"kept": {1: "COMPLETED", 2: "RUNNING"}},
    ],
)
def test_an_end_that_is_not_true_is_seen(changes):
    assert judge(replace(GOOD, **changes)).untrue


def test_what_is_known_is_told_apart():
    unseen = judge(
        replace(GOOD, records=[Record(2, "soak00", 2, "COMPLETED", 1, 60)], stored="", kept={})
    )
    assert unseen.is_good
    assert unseen.known


def test_a_job_that_only_slurmdbd_still_has_is_not_left_over():
    records = [*GOOD.records[:1], Record(2, "soak00", 2, "RUNNING", 3101, None)]
    assert judge(replace(GOOD, records=records)).is_good
    assert runaway(records, set()) == [2]
    assert runaway(records, {2}) == []


def test_what_the_witnesses_say():
    line = (
        "7|CANCELLED by 0|1|Unknown|soak03|sbatch --time=90 --dependency=afterany:6 /h/c/job.sh 2 6"
        " soak03 exit 1 2"
    )
    assert parse_sacct(line) == [Record(7, "soak03", 2, "CANCELLED", 1, None)]
    assert parse_sacct(line.replace("soak03|", "other|")) == []
    assert parse_journal("begin 1 7 99\nbroken\n") == [("begin", 1, 7, 99)]
    assert accepted_jobs(["[x] _slurm_rpc_submit_batch_job: JobId=7 InitPrio=1 usec=9"]) == {7}


def test_plans_and_faults_are_drawn_by_their_seed():
    drawn = plans(50, 24, 1)
    assert drawn == plans(50, 24, 1) != plans(50, 24, 2)
    assert {plan.kind for plan in drawn} == set(KINDS)
    assert sum(KINDS.values()) == 50
    assert all(fault.at_s <= 24 * 3600 - QUIET_S for fault in faults(4, 24, 1))


@pytest.mark.parametrize(("kind", "is_good"), [("limit", True), ("scancel", True), ("exit", False)])
def test_who_leaves_at_the_own_signal_makes_no_mark(kind: str, is_good: bool):
    ended = replace(GOOD.records[-1], state="FAILED")
    seen = replace(
        GOOD,
        plan=replace(PLAN, kind=kind),
        marker="",
        stored="used-up",
        records=[*GOOD.records[:-1], ended],
        kept=GOOD.kept | {ended.job_id: "FAILED"},
    )
    assert judge(seen).is_good is is_good
    assert judge(replace(seen, stored="done")).untrue
