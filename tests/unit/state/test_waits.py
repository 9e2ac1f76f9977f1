"""The book of recent waits: each start once, bounded, and only waits for nodes."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import numpy as np
import pytest

from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.state.likeness import Waits
from mirage.state.waits import WaitBook

NOW = 1_700_000_000
NODES = (
    ClusterNode(name="n1", partitions=("gpu", "debug"), up=True, idle=True),
    ClusterNode(name="c1", partitions=("cpu",), up=True, idle=True),
)


def job(job_id: int, start_s: int | None = None, **changes: object) -> Job:
    state = JobState.PENDING if start_s is None else JobState.RUNNING
    plain = Job(
        job_id=job_id,
        user="u",
        partition="gpu",
        state=state,
        nodes=2,
        submit_s=NOW - 900,
        time_limit_s=3600,
        reason="Priority",
        eligible_s=NOW - 600,
        start_s=start_s,
    )
    return replace(plain, **changes)  # type: ignore[arg-type]


def observe(book: WaitBook, *jobs: Job, at_s: int = NOW) -> None:
    book.observe(Snapshot(at_s=at_s, jobs=jobs, nodes=NODES))


def seen(book: WaitBook, pool: str = "debug", since_s: int = 0) -> list[tuple[int, int]]:
    return [(sample.job_id, sample.wait_s) for sample in book.recent(pool, since_s)]


def test_each_start_is_noted_once_in_its_pool_oldest_first() -> None:
    book = WaitBook()
    observe(book, job(1, NOW - 100), job(2, NOW - 200), job(3), job(4, NOW, partition="cpu"))
    observe(book, job(1, NOW - 100), job(2, NOW - 200), job(3, NOW + 5), at_s=NOW + 10)
    assert seen(book) == [(2, 400), (1, 500), (3, 605)]
    assert seen(book, "cpu") == [(4, 600)]
    assert seen(book, "unknown") == []
    sample = book.recent("debug", 0)[0]
    assert (sample.partition, sample.nodes, sample.time_limit_s, sample.start_s) == (
        "gpu",
        2,
        3600,
        NOW - 200,
    )


def test_since_is_inclusive() -> None:
    book = WaitBook()
    observe(book, job(1, NOW - 100), job(2, NOW - 99))
    assert seen(book, since_s=NOW - 100) == [(1, 500), (2, 501)]
    assert seen(book, since_s=NOW - 99) == [(2, 501)]


def test_a_requeued_job_starts_again() -> None:
    book = WaitBook()
    observe(book, job(1, NOW - 100))
    observe(book, job(1, NOW + 300, eligible_s=NOW + 120), at_s=NOW + 300)
    assert seen(book) == [(1, 500), (1, 180)]


def test_accounting_records_add_to_what_was_seen() -> None:
    book = WaitBook()
    observe(book, job(1, NOW - 100))
    ended = job(5, NOW - 300, state=JobState.COMPLETED, end_s=NOW - 290)
    book.add([job(1, NOW - 100), ended], Snapshot(at_s=NOW, jobs=(), nodes=NODES))
    assert seen(book) == [(5, 300), (1, 500)]


@pytest.mark.parametrize(
    "record",
    [
        job(1),
        job(1, NOW, eligible_s=None),
        job(1, NOW - 9, state=JobState.CANCELLED, end_s=NOW - 9),  # cancelled while pending
        job(1, NOW - 8 * 86_400),
    ],
)
def test_records_without_a_recent_wait(record: Job) -> None:
    book = WaitBook()
    book.add([record], Snapshot(at_s=NOW, jobs=(), nodes=NODES))
    assert seen(book) == []


def test_a_wait_that_a_limit_caused_does_not_count() -> None:
    book = WaitBook()
    observe(
        book,
        job(1, reason="QOSMaxJobsPerUserLimit"),
        job(2, reason="Dependency"),
        job(3, reason="None"),
    )
    started = [job(job_id, NOW + 60) for job_id in (1, 2, 3)]
    observe(book, *started, at_s=NOW + 60)
    book.add(started, Snapshot(at_s=NOW + 120, jobs=(), nodes=NODES))
    assert [job_id for job_id, _ in seen(book)] == [2, 3]


def test_old_starts_are_forgotten_and_long_jobs_do_not_bring_them_back() -> None:
    book = WaitBook(keep_s=1000)
    observe(book, job(1, NOW), job(2, NOW + 5))
    observe(book, job(1, NOW), job(2, NOW + 5), at_s=NOW + 1001)
    assert seen(book) == [(2, 605)]


def test_no_more_than_the_newest_are_kept() -> None:
    book = WaitBook(most=2)
    for _ in range(2):
        observe(book, *(job(i, NOW + i) for i in (3, 1, 2)), at_s=NOW + 10)
        assert [job_id for job_id, _ in seen(book)] == [2, 3]


def test_columns_that_follow_those_of_the_last_cycle_are_those_made_afresh() -> None:
    book, random, waits = WaitBook(keep_s=6000, most=30), Random(1), Waits(())
    kinds = set()
    for cycle in range(60):
        at_s = NOW + 600 * cycle
        # Some are seen only a cycle or two after they started, so they belong before others.
        starts = [at_s - random.choice((30, 300, 900, 1800)) for _ in range(random.randrange(8))]
        partition = "gpu" if cycle < 40 else random.choice(("gpu", "debug"))
        jobs = [
            job(
                1000 * cycle + number,
                start_s,
                eligible_s=start_s - random.randrange(500),
                partition=partition,
                time_limit_s=random.choice((None, 3600)),
            )
            for number, start_s in enumerate(starts)
        ]
        observe(book, *jobs, at_s=at_s)
        samples = book.recent("debug", at_s - 6000)
        waits, plain = waits.followed_by(samples, {}), Waits(samples, {})
        assert list(waits) == list(plain)
        assert waits.wait_s.tolist() == plain.wait_s.tolist()
        assert waits.partitions() == plain.partitions()
        times_s = np.arange(at_s - 7000, at_s, 500.0)
        assert waits.backlog(times_s).tolist() == plain.backlog(times_s).tolist()
        like, plainly = (each.like(job(1, time_limit_s=3600), 5) for each in (waits, plain))
        assert (like.wait_s.tolist(), like.words) == (plainly.wait_s.tolist(), plainly.words)
        kinds.add(len(samples) == 30)
    assert kinds == {True, False}
