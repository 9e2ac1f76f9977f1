"""Which runs of a requeued job count, and what they cost. By hand."""

from dataclasses import replace

from mirage.chain.handoff import handoffs
from mirage.chain.progress import chain_progress
from mirage.chain.runs import link_after, link_of_runs, start_of
from mirage.domain import Job, JobState
from tests import links

S = JobState
LIMIT_S = 240


def record(job_id, state, submit_s, start_s=None, end_s=None):
    return Job(
        job_id=job_id,
        user="alice",
        partition="gpu",
        state=state,
        nodes=1,
        submit_s=submit_s,
        eligible_s=submit_s,
        start_s=start_s,
        end_s=end_s,
        time_limit_s=LIMIT_S,
    )


def link(segment, state=S.RUNNING, *, submit_s=0, start_s=None, end_s=None):
    return links.link(
        segment,
        job_id=segment,
        predecessor_id=segment - 1 or None,
        state=state,
        time_limit_s=LIMIT_S,
        submit_s=submit_s,
        start_s=start_s,
        end_s=end_s,
    )


FIRST = link(1, start_s=10)
SECOND = link(2, submit_s=11, start_s=189)
WORKED = record(1, S.REQUEUED, 0, 10, 190)
WAITS = record(1, S.PENDING, 191)
GHOST = record(1, S.COMPLETED, 191, 400, 401)


def times(found):
    return [(run.state, run.start_s, run.end_s) for run in found.each_run]


def test_a_link_whose_successor_took_over_is_over_while_its_job_waits_to_start_for_nothing():
    found = link_of_runs(FIRST, [WORKED, WAITS], [FIRST, SECOND])
    assert times(found) == [(S.REQUEUED, 10, 190)]
    assert found.is_over
    assert not found.is_waiting
    (handover,) = handoffs([found, SECOND])
    assert (handover.interruption_s, handover.overlap_s, handover.cut_short_s) == (0, 1, 60)


def test_the_later_empty_start_does_not_replace_the_one_that_worked():
    whole = [WORKED, GHOST]
    assert times(link_of_runs(FIRST, whole, [FIRST, SECOND])) == [(S.REQUEUED, 10, 190)]
    unseen = link(1, S.PENDING, submit_s=191)
    assert times(link_of_runs(unseen, whole, [unseen, SECOND])) == [(S.REQUEUED, 10, 190)]


def test_without_accounting_what_a_cycle_saw_stays_and_the_new_submission_ends_it():
    for now in (WAITS, GHOST):
        found = link_of_runs(FIRST, [now], [FIRST, SECOND])
        assert times(found) == [(S.REQUEUED, 10, 191)]
    assert times(link_of_runs(found, [WORKED, GHOST], [found, SECOND])) == [(S.REQUEUED, 10, 190)]


def test_a_link_that_is_requeued_before_a_later_one_took_over_goes_on():
    preempted = record(1, S.PREEMPTED, 0, 10, 190)
    waits = link_of_runs(FIRST, [preempted, WAITS], [FIRST, link(2)])
    assert times(waits) == [(S.PREEMPTED, 10, 190), (S.PENDING, None, None)]
    assert waits.is_waiting
    again = link_of_runs(waits, [record(1, S.RUNNING, 191, 220)], [waits, link(2)])
    over = link_of_runs(again, [record(1, S.TIMEOUT, 191, 220, 460)], [again, link(2)])
    assert times(over) == [(S.PREEMPTED, 10, 190), (S.TIMEOUT, 220, 460)]
    second = link(2, start_s=465)
    own, handover = handoffs([over, second])
    assert (own.is_requeue, own.interruption_s, own.overlap_s) == (True, 30, 0)
    assert (handover.is_requeue, handover.interruption_s) == (False, 5)
    progress = chain_progress([over, second], until_s=500)
    assert (progress.wall_s, progress.interrupted_s, progress.held_twice_s) == (490, 35, 0)


def test_a_later_link_that_ended_before_has_not_taken_over():
    """It was asked to end while it waited for the first one to save."""
    gone = link(2, S.CANCELLED, submit_s=11, start_s=100, end_s=150)
    found = link_of_runs(FIRST, [WORKED, WAITS], [FIRST, gone])
    assert found.is_waiting
    assert len(found.runs) == 1


def test_who_let_the_first_run_in_does_not_count_for_the_next_one():
    released = replace(FIRST, released_s=5)
    found = link_of_runs(released, [record(1, S.RUNNING, 191, 220)], [released])
    assert [run.released_s for run in found.each_run] == [5, None]
    assert found.released_s == 5


def test_a_requeued_job_that_leaves_its_nodes_keeps_its_start():
    """`squeue` of 22.05 shows the time of the requeue as StartTime until the nodes are free."""
    leaving = record(1, S.COMPLETING, 0, 190)
    assert start_of(leaving, FIRST) == 10
    assert start_of(leaving, None) == 190
    assert start_of(record(1, S.COMPLETING, 191, 220), FIRST) == 220
    assert start_of(record(1, S.RUNNING, 0, 12), FIRST) == 12, "its nodes were booting"
    assert link_of_runs(FIRST, [leaving], [FIRST]).start_s == 10


def test_a_run_that_accounting_does_not_have_yet_stays_as_the_cycles_saw_it():
    """Requeued twice, within seconds."""
    once = link_of_runs(FIRST, [WORKED, record(1, S.RUNNING, 191, 220)], [FIRST])
    twice = link_of_runs(once, [WORKED, record(1, S.PENDING, 231)], [once])
    assert times(twice) == [
        (S.REQUEUED, 10, 190),
        (S.REQUEUED, 220, 231),
        (S.PENDING, None, None),
    ]


TAG = "mirage/1 chain=abc123 seg=1/5 mode=service ei=1 eo=1"


def said(job, ready_s):
    return replace(job, comment=f"{TAG} ready={ready_s} -- mine")


def test_when_a_run_was_ready_is_its_jobs_word_and_stays_known_when_nobody_says_it_any_more():
    running = record(1, S.RUNNING, 0, 10)
    assert link_after(FIRST, replace(running, comment=TAG)).ready_s is None
    assert link_after(FIRST, said(running, 0)).ready_s == 0
    ready = link_after(FIRST, said(running, 40))
    assert ready.ready_s == 40
    assert ready.down_s == 0
    ready = link_after(ready, said(running, "40 down=86"))
    for comment in ("", "of my own", f"{TAG} ready=0"):
        assert link_after(ready, replace(WORKED, comment=comment)).ready_s == 40
        assert link_after(ready, replace(WORKED, comment=comment)).down_s == 86


def test_each_run_of_a_requeued_job_was_ready_at_a_time_of_its_own():
    ready = replace(FIRST, ready_s=40, down_s=5)
    again = record(1, S.RUNNING, 191, 220)
    found = link_of_runs(ready, [WORKED, said(again, "40 down=5")], [ready])
    assert [run.ready_s for run in found.each_run] == [40, 0]
    assert [run.down_s for run in found.each_run] == [5, 0]
    found = link_of_runs(found, [WORKED, said(again, 260)], [found])
    assert [run.ready_s for run in found.each_run] == [40, 260]
    waits = link_of_runs(ready, [WORKED, said(WAITS, 40)], [ready])
    assert [run.ready_s for run in waits.each_run] == [40, None]
