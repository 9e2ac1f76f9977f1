"""The judge of chains on a real Slurm finds what it looks for."""

from __future__ import annotations

import fcntl
from dataclasses import replace

import pytest

from benchmarks.real_chains_client import Answers, is_held
from benchmarks.real_chains_judge import (
    JobRecord,
    Note,
    figures,
    judge,
    parse_jobs,
    parse_notes,
    union_s,
    waits_h,
)
from benchmarks.real_chains_plan import HOUR_S, chain_plans, fault_times, kill_times, other_jobs

PLAN = chain_plans(12)[0]
END_S = 30 * HOUR_S


def link(segment, start_h, end_h, **more):
    record = JobRecord(
        job_id=100 + segment,
        name=PLAN.name,
        segment=segment,
        state="COMPLETED",
        nodes=1,
        eligible_s=0,
        start_s=int(start_h * HOUR_S),
        end_s=None if end_h is None else int(end_h * HOUR_S),
    )
    return replace(record, **more)


def note(what, segment, at_h, amount_s=0, **more):
    record = Note(
        what=what,
        segment=segment,
        job_id=100 + segment,
        at_s=int(at_h * HOUR_S),
        amount_s=amount_s,
    )
    return replace(record, **more)


JOBS = [link(1, 10, 18), link(2, 19, 27), link(3, 26.5, None)]
NOTES = [
    note("begin", 1, 10),
    note("saved", 1, 18, 8 * HOUR_S),
    note("begin", 2, 19, 8 * HOUR_S),
    note("saved", 2, 27, 16 * HOUR_S),
    note("begin", 3, 27, 16 * HOUR_S),
]


def test_figures():
    found = figures(PLAN, JOBS, NOTES, END_S)
    assert (found.wall_h, found.interrupted_h, found.handovers) == (20, 1, 2)
    assert found.twice_node_h == 0.5
    assert found.goodput == pytest.approx((19 - 2 / 6) / 20, abs=1e-4)
    assert found.worked == pytest.approx(19 / 20)
    assert found.cut_young == 0
    assert figures(PLAN, [link(1, 10, 11)], [], END_S).cut_young == 1
    assert figures(PLAN, [], [], END_S).wall_h == 0
    after = link(4, END_S / HOUR_S + 1, None)
    assert figures(PLAN, [*JOBS, after], NOTES, END_S) == found


def test_all_is_well():
    assert judge(PLAN, JOBS, NOTES, queued={PLAN.name}, end_s=END_S).is_good


@pytest.mark.parametrize(
    ("jobs", "notes", "queued", "kind"),
    [
        (JOBS, NOTES, set(), "lost"),
        ([*JOBS, replace(JOBS[2], job_id=7)], NOTES, {PLAN.name}, "doubled"),
        (JOBS, [*NOTES, replace(NOTES[4], job_id=7)], {PLAN.name}, "doubled"),
        (JOBS, [*NOTES, note("TWO-WRITERS", 3, 27)], {PLAN.name}, "writers"),
        (JOBS, [NOTES[0], *NOTES[2:]], {PLAN.name}, "unsaved"),
        (JOBS, [*NOTES[:4], note("begin", 3, 27, 8 * HOUR_S)], {PLAN.name}, "lost"),
    ],
)
def test_what_is_wrong_is_found(jobs, notes, queued, kind):
    verdict = judge(PLAN, jobs, notes, queued=queued, end_s=END_S)
    assert getattr(verdict, kind)
    assert not verdict.is_good


def test_records_are_read():
    line = "7|CANCELLED by 0|100|200|Unknown|2|chain00|sbatch -x /h/c/job.sh 3 6 chain00 plain"
    (job,) = parse_jobs(line)
    assert (job.segment, job.state, job.start_s, job.end_s, job.nodes) == (
        3,
        "CANCELLED",
        200,
        None,
        2,
    )
    assert parse_jobs("8|RUNNING|1|2|0|1|wrap|sbatch --wrap sleep")[0].segment == 0
    assert parse_notes("saved 2 9 50 7") == [
        Note(what="saved", segment=2, job_id=9, at_s=50, amount_s=7)
    ]


def test_times():
    assert union_s([(5, 9), (0, 4), (3, 6)]) == 9
    others = [link(0, 2, 3), link(0, 4, 5), link(0, 6, None)]
    assert waits_h(others) == {"jobs": 3, "p50": 4, "mean": 4, "p95": 4}


def test_silences_of_a_service_are_counted_from_its_first_answer():
    answers = Answers()
    for at_s, answered in enumerate("..oo..o.oo.."):
        answers.note(answered == "o", at_s)
    assert answers.as_json(12) == {
        "asked_s": 10,
        "silences": 3,
        "silent_s": 8,
        "longest_silent_s": 3,
    }
    assert Answers().as_json(12)["silent_s"] == 0


def test_a_service_answers_while_it_has_its_lock(tmp_path):
    file = tmp_path / "answers"
    assert not is_held(file)
    with file.open("a") as service:
        fcntl.flock(service, fcntl.LOCK_SH)
        assert is_held(file)
    assert not is_held(file)


def test_what_is_planned():
    assert {plan.mode for plan in chain_plans(12)} == {"train", "service"}
    jobs = other_jobs(72, 22, seed=1)
    assert jobs == other_jobs(72, 22, seed=1) != other_jobs(72, 22, seed=2)
    asked = sum(job.nodes * job.run_s for job in jobs) / (72 * HOUR_S)
    assert 22 <= asked <= 25
    assert len(kill_times(4, 72, 1)) == 4
    services = chain_plans(4, "service")
    assert {plan.mode for plan in services} == {"service"}
    assert sorted(plan.loads_s for plan in services) == [20, 60, 180, 480]
    assert all(at_s < 72 * HOUR_S and name == "a" for at_s, name in fault_times(3, ["a"], 72, 1))
