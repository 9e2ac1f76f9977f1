from dataclasses import replace

import pytest

from mirage.daemon.chain_end import (
    FORGET_AFTER_S,
    LAG_S,
    LOST_AFTER_S,
    RECORDED_AFTER_S,
    chain_end,
    is_job_of,
    is_lost,
    lost_chain_end,
    lost_link,
)
from mirage.domain import USED_UP_EXIT, Chain, ChainState, Job, JobState, Link

CHAIN = Chain(chain_id="abc123", user="alice", segments=3)


def link(segment, state, *, start=True, exit_code=0):
    return Link(
        chain_id="abc123",
        user="alice",
        segment=segment,
        job_id=100 + segment,
        predecessor_id=None,
        state=state,
        partition="gpu",
        nodes=1,
        time_limit_s=60,
        submit_s=0,
        start_s=segment * 100 if start else None,
        end_s=segment * 100 + 60,
        exit_code=exit_code,
    )


def queued_cancelled(segment):
    """By the link before, as that one ended."""
    before_s = (segment - 1) * 100 + 60
    return replace(link(segment, JobState.CANCELLED, start=False), end_s=before_s)


def cancelled_waiting(segment):
    """By a person, while no link ran."""
    return link(segment, JobState.CANCELLED, start=False)


S = JobState


@pytest.mark.parametrize(
    ("links", "state", "words"),
    [
        ([link(1, S.COMPLETED), link(2, S.RUNNING)], None, ""),
        ([link(1, S.COMPLETED), link(2, S.PENDING, start=False)], None, ""),
        (
            [link(1, S.TIMEOUT), link(2, S.TIMEOUT), link(3, S.COMPLETED)],
            ChainState.DONE,
            "link 3 ",
        ),
        (
            [link(1, S.TIMEOUT), link(2, S.TIMEOUT), link(3, S.TIMEOUT)],
            ChainState.USED_UP,
            "the work may be unfinished (more links: mirage extend abc123 --segments +1)",
        ),
        ([link(1, S.COMPLETED), queued_cancelled(2)], ChainState.DONE, "ended early"),
        ([link(2, S.COMPLETED)], ChainState.DONE, "link 2 (job 102) completed"),
        (
            [link(1, S.COMPLETED), cancelled_waiting(2)],
            ChainState.CANCELLED,
            "link 2 (job 102) was cancelled while it waited",
        ),
        ([link(1, S.FAILED, exit_code=3), queued_cancelled(2)], ChainState.FAILED, "exit code 3"),
        ([link(1, S.FAILED), link(2, S.COMPLETED), link(3, S.COMPLETED)], ChainState.DONE, ""),
        ([link(1, S.OUT_OF_MEMORY), queued_cancelled(2)], ChainState.FAILED, "OUT_OF_MEMORY"),
        ([link(1, S.CANCELLED), queued_cancelled(2)], ChainState.CANCELLED, "link 1 "),
        (
            [link(1, S.TIMEOUT), queued_cancelled(2)],
            ChainState.CANCELLED,
            "successor was cancelled",
        ),
        (
            [queued_cancelled(1), queued_cancelled(2)],
            ChainState.CANCELLED,
            "before any link started",
        ),
        ([link(1, S.NODE_FAIL)], ChainState.FAILED, "NODE_FAIL"),
        (
            [link(2, S.TIMEOUT)],
            ChainState.FAILED,
            "had queued no successor (to go on: mirage resume abc123, else mirage-submit)",
        ),
        (
            [link(3, S.FAILED, exit_code=USED_UP_EXIT)],
            ChainState.USED_UP,
            "the signal before its time limit: the work may be unfinished"
            " (more links: mirage extend abc123 --segments +1)",
        ),
        ([link(2, S.FAILED, exit_code=USED_UP_EXIT)], ChainState.USED_UP, "link 2 "),
        (
            [link(2, S.FAILED, exit_code=USED_UP_EXIT), queued_cancelled(3)],
            ChainState.CANCELLED,
            "successor was cancelled",
        ),
        ([], None, ""),
    ],
)
def test_how_a_chain_ended(links, state, words):
    ended = chain_end(CHAIN, links, 999)
    assert (ended.state if ended else None) is state
    if ended:
        assert words in ended.reason
        assert ended.updated_s == 999


def test_a_link_that_nobody_knows_is_lost_soon_once_a_later_one_runs():
    waiting, later = link(2, S.PENDING, start=False), link(3, S.RUNNING)
    others, now_s = [link(1, S.TIMEOUT), later], (later.start_s or 0) + RECORDED_AFTER_S
    assert is_lost(waiting, others, now_s, 0)
    assert not is_lost(waiting, others, now_s - 1, 0), "accounting may be late"
    assert not is_lost(waiting, others[:1], now_s, LOST_AFTER_S - 1)
    assert not is_lost(later, others[:1], now_s, LOST_AFTER_S), "it runs"


def test_a_chain_whose_next_link_slurm_has_lost_is_not_done():
    ended = chain_end(replace(CHAIN, reason=lost_link(3)), [link(2, S.COMPLETED)], 999)
    assert ended.state is ChainState.FAILED
    assert "link 3 is not in Slurm any more (to go on: mirage resume abc123)" in ended.reason
    again = chain_end(replace(CHAIN, reason=lost_link(2)), [link(2, S.COMPLETED)], 999)
    assert again.state is ChainState.DONE, "link 2 was queued again"


def test_a_chain_whose_jobs_nobody_knows_is_given_up_after_a_day():
    alive = [link(1, S.RUNNING)]
    end_s = 100 + 60
    assert lost_chain_end(CHAIN, alive, {101}, end_s + FORGET_AFTER_S - 1) is None
    lost = lost_chain_end(CHAIN, alive, {101}, end_s + FORGET_AFTER_S)
    assert lost.state is ChainState.UNKNOWN


@pytest.mark.parametrize(("runaway", "patience_s"), [({101}, LAG_S), (set(), FORGET_AFTER_S)])
def test_later_links_tell_how_a_chain_ended_once_accounting_can_not_be_behind(runaway, patience_s):
    first = replace(link(1, S.RUNNING), end_s=None)
    links = [first, link(2, S.FAILED, exit_code=1)]
    since_s = 100 + 60 if not runaway else 200 + 60
    assert lost_chain_end(CHAIN, links, runaway, since_s + patience_s - 1) is None
    ended = lost_chain_end(CHAIN, links, runaway, since_s + patience_s)
    assert (ended.state, ended.reason[:6]) == (ChainState.FAILED, "link 2")


def test_without_a_length_a_link_that_completes_is_the_last_one():
    ended = chain_end(replace(CHAIN, length="done"), [link(1, S.COMPLETED)], 999)
    assert ended.state is ChainState.DONE


def job(**changes):
    fields = {"job_id": 103, "user": "alice", "partition": "gpu", "state": S.PENDING, "nodes": 1}
    return Job(**fields | {"submit_s": 0} | changes)


@pytest.mark.parametrize(
    ("is_the_link", "found"),
    [
        (True, job(comment="mirage/1 chain=abc123 seg=3/3 pred=102 mode=train ei=1 eo=1")),
        (True, job(comment="", state=S.CANCELLED)),
        (False, job(comment="", user="carol")),
        (False, job(comment="mirage/1 chain=other1 seg=3/3 pred=102 mode=train ei=1 eo=1")),
        (False, job(comment="mirage/1 chain=abc123 seg=2/3 pred=102 mode=train ei=1 eo=1")),
        (False, job(comment="", submit_s=7)),
    ],
)
def test_an_id_is_no_identity(is_the_link, found):
    """A slurmctld that was killed has given the id of link 3 to another job."""
    assert is_job_of(link(3, S.PENDING, start=False), found) is is_the_link


def test_a_link_whose_script_changed_its_comment_is_known_after_a_requeue():
    assert is_job_of(link(3, S.RUNNING), job(comment="epoch 7", submit_s=7))
