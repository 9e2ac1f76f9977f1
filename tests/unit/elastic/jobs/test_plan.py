"""What is done about a job in a cycle."""

from __future__ import annotations

from dataclasses import replace

from mirage.domain import Job, JobState
from mirage.elastic.jobs.journal import ElasticRecord, ElasticTask
from mirage.elastic.jobs.plan import (
    Cancel,
    DrainTask,
    Finish,
    JobView,
    StopTraining,
    Submit,
    SubmitAllowance,
    plan,
)
from mirage.elastic.jobs.request import Role
from mirage.elastic.jobs.sizes import Sizes
from mirage.elastic.jobs.training import TrainingStatus
from tests.unit.elastic.jobs.site import NOW, REQUEST

TRAINING = TrainingStatus(
    state="training", step=1, steps=9, steps_per_s=None, loss=None, workers=1, servers=1
)
MANY = Sizes(workers=6, servers=2)


def plenty() -> SubmitAllowance:
    return SubmitAllowance(tasks=100, extras=100, gpus=100)


def view(tasks: str = "c1 s1 w1", **changes: object) -> JobView:
    """Of running tasks; `w2+` is an extra, `w2+?` a pending one."""
    record = ElasticRecord(
        ident="k3m9pq2xha", name="mnist", created_s=NOW - 900, deadline_s=NOW + 9000
    )
    jobs = {}
    for number, word in enumerate(tasks.split(), 100):
        name = word.strip("+?")
        record.tasks[name] = ElasticTask(
            name=name, is_extra="+" in word, submitted_s=NOW - 600, job_id=number, gpus=1
        )
        pending = "?" in word
        jobs[name] = Job(
            job_id=number,
            user="alice",
            partition="gpu",
            state=JobState.PENDING if pending else JobState.RUNNING,
            nodes=1,
            submit_s=NOW - 600,
            start_s=None if pending else NOW - 500,
            reason="Resources" if pending else "",
        )
    made = JobView(now_s=NOW, request=REQUEST, record=record, jobs=jobs, training=TRAINING)
    return replace(made, **changes)  # type: ignore[arg-type]


def test_what_is_missing_is_submitted_least_tasks_first() -> None:
    assert plan(view("c1"), Sizes(workers=2, servers=1), plenty()) == [
        Submit(role=Role.SERVER, is_extra=False),
        Submit(role=Role.WORKER, is_extra=False),
        Submit(role=Role.WORKER, is_extra=True),
    ]


def test_no_gpu_is_asked_for_before_the_coordinator_runs() -> None:
    submits = [Submit(role=Role.COORDINATOR, is_extra=False)]
    assert plan(view(""), MANY, plenty()) == submits
    assert plan(view("c1?"), MANY, plenty()) == []
    assert plan(view("s1 w1"), MANY, plenty()) == submits


def test_without_room_only_the_least_tasks_are_submitted() -> None:
    acts = plan(view("c1", grow=False), MANY, plenty())
    assert acts
    assert not any(isinstance(act, Submit) and act.is_extra for act in acts)


def test_an_allowance_is_kept_and_used_up() -> None:
    allowed = SubmitAllowance(tasks=3, extras=2, gpus=9)
    assert len(plan(view(), MANY, allowed)) == 2
    assert allowed.extras == 0


def test_surplus_is_drained_newest_extra_first_never_below_the_least() -> None:
    acts = plan(view("c1 s1 w1 w2+ w3+"), Sizes(workers=2, servers=1), plenty())
    assert acts == [DrainTask(task="w3", why="the policy gives the job fewer")]
    acts = plan(view("c1 s1 w1 w2+"), Sizes(workers=0, servers=0), plenty())
    assert [act.task for act in acts if isinstance(act, DrainTask)] == ["w2"]


def test_without_a_coordinator_that_answers_a_task_is_cancelled() -> None:
    there = view("c1 s1 w1 w2+", training=None)
    acts = plan(there, Sizes(workers=1, servers=1), plenty())
    assert acts == [Cancel(task="w2", why="the policy gives the job fewer")]


def test_a_task_whose_place_is_wanted_leaves_at_once() -> None:
    acts = plan(view("c1 s1 w1 w2+", give_back={"w2"}), MANY, plenty())
    assert DrainTask(task="w2", why="somebody queues for its place") in acts


def test_a_pending_extra_is_withdrawn_when_others_queue_or_after_its_patience() -> None:
    acts = plan(view("c1 s1 w1 w2+?", grow=False), Sizes(workers=2, servers=1), plenty())
    assert acts == [Cancel(task="w2", why="somebody queues for its place")]
    acts = plan(view("c1 s1 w1 w2+?"), Sizes(workers=2, servers=1), plenty())
    assert acts == [Cancel(task="w2", why="no place for it within 45 s (Resources)")]


def test_a_drained_task_is_cancelled_once_it_may_be_or_after_the_grace() -> None:
    there = view("c1 s1 w1 w2+")
    there.record.tasks["w2"].drained_s = NOW - 10
    small = Sizes(workers=1, servers=1)
    assert plan(there, small, plenty()) == []
    drained = replace(there, training=replace(TRAINING, drained=["w2"]))
    assert [type(act) for act in plan(drained, small, plenty())] == [Cancel]
    there.record.tasks["w2"].drained_s = NOW - 100
    (act,) = plan(there, small, plenty())
    assert isinstance(act, Cancel)
    assert "did not leave in time" in act.why


def test_a_cancellation_that_did_not_take_is_repeated() -> None:
    there = view("c1 s1 w1 w2+")
    there.record.tasks["w2"].cancelled_s = NOW - 100
    assert [type(act) for act in plan(there, Sizes(workers=1, servers=1), plenty())] == [Cancel]
    there.record.tasks["w2"].cancelled_s = NOW - 5
    assert plan(there, Sizes(workers=1, servers=1), plenty()) == []


def test_a_task_on_its_way_to_slurm_counts() -> None:
    there = view("c1 s1 w1 w2+")
    there.record.tasks["w2"].job_id = None
    still = replace(there, jobs={name: job for name, job in there.jobs.items() if name != "w2"})
    assert plan(still, Sizes(workers=2, servers=1), plenty()) == []


def test_the_end_saves_first_then_cancels() -> None:
    stopping = view("c1 s1 w1 w2+?", is_stop_asked=True)
    acts = plan(stopping, MANY, plenty())
    assert acts == [
        StopTraining(why="stopped: its owner stopped it"),
        Cancel(task="w2", why="its owner stopped it"),
    ]
    stopping.record.stop_s, stopping.record.why = NOW, "stopped: its owner stopped it"
    saved = replace(stopping, training=replace(TRAINING, state="stopped"))
    assert [type(act) for act in plan(saved, MANY, plenty())] == [Cancel] * 4
    late = replace(stopping, now_s=NOW + 61)
    assert [type(act) for act in plan(late, MANY, plenty())] == [StopTraining] + [Cancel] * 4


def test_a_job_without_tasks_is_finished() -> None:
    over = view("", is_stop_asked=True)
    assert plan(over, MANY, plenty()) == [Finish(state="stopped", why="its owner stopped it")]


def test_it_stops_before_its_time_is_up() -> None:
    there = view()
    there.record.deadline_s = NOW + 80
    assert plan(there, MANY, plenty())[0] == StopTraining(
        why="time limit: its time of 10:00:00 is up"
    )


def test_after_failures_in_a_row_no_extra_follows_while_others_run_well() -> None:
    there = view("c1 s1 w1")
    for number in (2, 3, 4):
        there.record.tasks[f"w{number}"] = ElasticTask(
            name=f"w{number}",
            is_extra=True,
            submitted_s=NOW - 100,
            job_id=200 + number,
            end="FAILED",
            start_s=NOW - 90,
            end_s=NOW - 80,
        )
    assert plan(there, Sizes(workers=3, servers=1), plenty()) == []
    later = replace(there, now_s=NOW + 600)
    assert len(plan(later, Sizes(workers=3, servers=1), plenty())) == 2
    alone = replace(there, jobs={name: job for name, job in there.jobs.items() if name != "w1"})
    assert isinstance(plan(alone, MANY, plenty())[0], StopTraining)
