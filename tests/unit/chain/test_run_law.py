"""How long a link runs, by what the chain's earlier links did."""

from dataclasses import replace

import pytest

from mirage.chain.run_law import MOST_LINKS, run_law
from mirage.domain import Job, JobState, Run, RunLaw
from tests.links import link

H = 3600
LIMIT_S = 48 * H
JOB = Job(
    job_id=99,
    user="alice",
    partition="gpu",
    state=JobState.RUNNING,
    nodes=1,
    submit_s=0,
    time_limit_s=LIMIT_S,
    start_s=0,
)


def links(*runs_h, state=JobState.COMPLETED, pause_s=60):
    """A chain's links, one after the other."""
    found, at_s = [], 0
    for segment, run_h in enumerate(runs_h, start=1):
        end_s = at_s + round(run_h * H)
        found.append(link(segment, state=state, time_limit_s=LIMIT_S, start_s=at_s, end_s=end_s))
        at_s = end_s + pause_s
    return found


def test_without_earlier_links_it_runs_to_its_expected_limit():
    assert run_law([], JOB) == RunLaw((LIMIT_S,), (1.0,), 0)
    assert run_law([], replace(JOB, lead_s=300)) == RunLaw((LIMIT_S - 360,), (1.0,), 0)
    assert run_law([], replace(JOB, time_limit_s=None)) is None


def test_links_that_end_by_themselves_tell_how_long_the_next_one_runs():
    law = run_law(links(20, 22, 20), JOB)
    assert law.runs_s == (20 * H, 22 * H, LIMIT_S)
    assert law.shares == pytest.approx((0.5, 0.25, 0.25))
    assert (law.early, law.median_s) == (3, 20 * H)


def test_a_link_that_has_run_longer_than_the_earlier_ones_runs_to_its_limit():
    law = run_law(links(20, 22, 20), JOB)
    assert law.after(21 * H).shares == pytest.approx((0.5, 0.5))
    assert law.after(23 * H).median_s == LIMIT_S
    assert law.after(60 * H) == RunLaw((LIMIT_S,), (1.0,), 3)


def test_a_run_that_a_successor_cut_short_is_censored():
    """It would have run for 20 h at least: of two later ends one is at 30 h."""
    first, second = links(20, 30)
    second = replace(second, start_s=first.end_s - 60, end_s=first.end_s - 60 + 30 * H)
    law = run_law([first, second], JOB)
    assert law.runs_s == (30 * H, LIMIT_S)
    assert law.shares == pytest.approx((0.5, 0.5))


def test_a_run_that_the_present_link_cut_short_is_censored():
    first, present = links(20, 1)
    present = replace(present, job_id=JOB.job_id, start_s=first.end_s - 60, end_s=None)
    assert run_law([first, present], JOB) == RunLaw((LIMIT_S,), (1.0,), 0)
    at_once = replace(present, start_s=first.end_s, eligible_s=first.end_s - 60)
    assert run_law([first, at_once], JOB).early == 0, "it ended in the second in which it was asked"
    by_slurm = replace(at_once, eligible_s=first.end_s)
    assert run_law([first, by_slurm], JOB).runs_s == (20 * H, LIMIT_S)


def test_a_successor_that_gets_the_node_of_a_link_with_the_usual_end_did_not_ask():
    first, second, third = links(20, 21, 1)
    at_once = replace(third, start_s=second.end_s, eligible_s=second.end_s - 60, end_s=None)
    assert run_law([first, second, at_once], JOB).runs_s == (20 * H, 21 * H, LIMIT_S)
    short = replace(second, end_s=second.start_s + 5 * H)
    asked = replace(at_once, start_s=short.end_s, eligible_s=short.end_s - 60)
    assert run_law([first, short, asked], JOB).runs_s == (20 * H, LIMIT_S)


def test_a_successor_that_was_requeued_has_asked_if_one_of_its_runs_was_there():
    first, second = links(20, 1)
    requeued = replace(
        second,
        runs=(run_of(second, first.end_s - 60, first.end_s + 30),),
        submit_s=first.end_s + 31,
        start_s=first.end_s + 2 * H,
        end_s=None,
    )
    assert run_law([first, requeued], JOB) == RunLaw((LIMIT_S,), (1.0,), 0)
    later = replace(requeued, runs=(run_of(second, first.end_s + 60, first.end_s + 90),))
    assert run_law([first, later], JOB).early == 1


def test_each_run_of_a_requeued_link_counts_by_its_own_length():
    """Preempted after 5 h, which says that it runs for 5 h at least, it then ended after 20 h."""
    (first,) = links(20)
    runs = (run_of(first, 0, 5 * H, JobState.PREEMPTED),)
    twice = replace(first, runs=runs, submit_s=5 * H, start_s=6 * H, end_s=26 * H)
    assert run_law([twice], JOB).runs_s == (20 * H, LIMIT_S)


@pytest.mark.parametrize("is_resumed", [True, False], ids=["resumed", "paused"])
def test_a_link_that_its_owner_paused_did_not_end_by_itself(is_resumed):
    first, second = links(20, 1)
    held = replace(second, was_held=True, job_id=JOB.job_id, end_s=None)
    held = (
        replace(held, start_s=first.end_s + 2 * H, eligible_s=first.end_s + H)
        if is_resumed
        else replace(held, start_s=None, eligible_s=None)
    )
    assert run_law([first, held], JOB) == RunLaw((LIMIT_S,), (1.0,), 0)
    earlier = replace(held, start_s=first.end_s + 60, eligible_s=first.end_s - H)
    assert run_law([first, earlier], JOB).early == 1, "it was resumed before that end"


def run_of(link, start_s, end_s, state=JobState.REQUEUED):
    return Run(submit_s=start_s, eligible_s=start_s, start_s=start_s, end_s=end_s, state=state)


def test_a_link_that_was_asked_shortly_before_its_limit_did_not_end_early():
    whole, late, third = links(48, 46, 1)
    at_once = replace(third, start_s=late.end_s, eligible_s=late.end_s - 60, end_s=None)
    assert run_law([whole, late, at_once], JOB).early == 0


@pytest.mark.parametrize(
    "state", [JobState.CANCELLED, JobState.NODE_FAIL, JobState.PREEMPTED, JobState.UNKNOWN]
)
def test_what_others_ended_tells_no_habit(state):
    assert run_law(links(5, 5, 5, state=state), JOB).runs_s == (LIMIT_S,)


def test_a_link_with_a_shorter_limit_did_not_end_early():
    """Backfill gave it 8 h, and it used them."""
    (short,) = links(8)
    law = run_law([replace(short, time_limit_s=8 * H)], JOB)
    assert law == RunLaw((LIMIT_S,), (1.0,), 0)
    whole = replace(short, end_s=LIMIT_S + 30)
    assert run_law([whole], JOB) == RunLaw((LIMIT_S,), (1.0,), 0)


def test_only_the_newest_links_count():
    law = run_law(links(*[10] * 30, *[20] * MOST_LINKS), JOB)
    assert law.runs_s == (20 * H, LIMIT_S)
