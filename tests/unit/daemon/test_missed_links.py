"""Which links no cycle can have seen, and what accounting's answer says of them."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.daemon.missed_links import LATE_S, missing_since_s, read_answer
from mirage.domain import Chain, Job, JobState, Link

S = JobState
CHAIN = Chain(chain_id="abc123", user="alice", segments=4)
KEY = ("alice", "abc123")
LATER_S = 1000


def link(segment: int, state: JobState, *, start: bool = True) -> Link:
    return Link(
        chain_id="abc123",
        user="alice",
        segment=segment,
        job_id=100 + segment,
        predecessor_id=99 + segment if segment > 1 else None,
        state=state,
        partition="gpu",
        nodes=1,
        time_limit_s=60,
        submit_s=segment * 100 - 90,
        start_s=segment * 100 if start else None,
        end_s=segment * 100 + 60,
    )


def record(
    segment: int, state: JobState, job_id: int = 0, chain: str = "abc123", user: str = "alice"
) -> Job:
    pred = f" pred={99 + segment}" if segment > 1 else ""
    comment = f"mirage/1 chain={chain} seg={segment}/4{pred} mode=train ei=1 eo=1"
    times = {"start_s": segment * 100, "end_s": segment * 100 + 60 if state.is_over else None}
    return Job(
        job_id=job_id or 100 + segment,
        user=user,
        partition="gpu",
        state=state,
        nodes=1,
        submit_s=segment * 100 - 90,
        comment=comment,
        **times,
    )


@pytest.mark.parametrize(
    ("links", "since_s"),
    [
        ([], None),
        ([link(1, S.TIMEOUT), link(2, S.RUNNING)], None),
        ([link(1, S.TIMEOUT), link(2, S.CANCELLED, start=False)], None),  # the chain ended early
        ([link(4, S.TIMEOUT), link(3, S.TIMEOUT), link(2, S.TIMEOUT), link(1, S.TIMEOUT)], None),
        ([link(1, S.TIMEOUT), link(2, S.COMPLETED)], 200),  # what link 2 queued
        ([link(3, S.RUNNING)], 210),  # link 2 queued it
        ([link(1, S.TIMEOUT), link(4, S.RUNNING)], 100),
        ([link(1, S.PENDING, start=False), link(4, S.TIMEOUT)], 10),
    ],
)
def test_since_when_links_are_missing(links, since_s):
    assert missing_since_s(CHAIN, links) == since_s


def test_links_that_nobody_saw_are_taken_from_accounting():
    jobs = [
        record(1, S.TIMEOUT),
        record(2, S.FAILED),
        record(3, S.COMPLETED),
        record(3, S.COMPLETED, 201, chain="other1"),
        record(3, S.COMPLETED, 202, user="bob"),
        Job(job_id=203, user="alice", partition="gpu", state=S.COMPLETED, nodes=1, submit_s=200),
    ]
    answer = read_answer(jobs, {KEY: [link(1, S.TIMEOUT)]}, LATER_S)
    assert [(found.segment, found.job_id, found.state) for found in answer.links] == [
        (2, 102, S.FAILED),
        (3, 103, S.COMPLETED),
    ]
    assert answer.links[0].predecessor_id == 101
    assert answer.incomplete == set()


@pytest.mark.parametrize(
    "jobs",
    [
        [],
        [record(1, S.TIMEOUT)],  # of link 2 it knows nothing yet
        [record(1, S.TIMEOUT), record(2, S.RUNNING)],
        [record(2, S.TIMEOUT), record(3, S.PENDING)],
    ],
)
def test_while_accounting_is_behind_nothing_is_settled(jobs):
    assert read_answer(
        jobs, {KEY: [link(1, S.TIMEOUT), link(2, S.TIMEOUT)]}, LATER_S
    ).incomplete == {KEY}


def test_what_ended_just_now_may_have_a_successor_that_accounting_lacks_yet():
    jobs, known = [record(1, S.TIMEOUT), record(2, S.COMPLETED)], {KEY: [link(1, S.TIMEOUT)]}
    end_s = jobs[-1].end_s
    assert read_answer(jobs, known, end_s + LATE_S - 1).incomplete == {KEY}
    assert read_answer(jobs, known, end_s + LATE_S).incomplete == set()


def test_a_record_that_never_ends_does_not_unsettle_what_came_later():
    """A slurmctld that is killed takes with it what it had not told slurmdbd."""
    jobs = [record(1, S.RUNNING), record(2, S.TIMEOUT)]
    assert (
        read_answer(jobs, {KEY: [link(1, S.TIMEOUT), link(2, S.TIMEOUT)]}, LATER_S).incomplete
        == set()
    )


def test_of_a_requeued_link_all_runs_are_known():
    first = replace(record(2, S.REQUEUED), submit_s=10)
    (found,) = read_answer([record(2, S.TIMEOUT), first], {KEY: []}, LATER_S).links
    assert [run.state for run in found.each_run] == [S.REQUEUED, S.TIMEOUT]
