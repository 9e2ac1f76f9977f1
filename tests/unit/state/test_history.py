"""The 144 steps: which are kept, which fill which row, and how they are stored."""

from __future__ import annotations

import zlib
from dataclasses import replace

import numpy as np
import pytest

from mirage.domain import Job, JobState
from mirage.errors import InputError
from mirage.state.encoder import HistoryStep, JobMatrix, vector
from mirage.state.history import BrokenStep, History, JobPair, decode_step, encode_step

NOW = 6_000_000
STEP = 600
IDLE = 38
PREDECESSOR_ELAPSED = 35

PREDECESSOR = Job(
    job_id=1,
    user="u",
    partition="gpu",
    state=JobState.RUNNING,
    nodes=8,
    submit_s=0,
    time_limit_s=7200,
    eligible_s=NOW - 1500,
    start_s=NOW - 1000,
)
PAIR = JobPair(
    PREDECESSOR,
    Job(
        job_id=2,
        user="u",
        partition="gpu",
        state=JobState.PENDING,
        nodes=8,
        submit_s=0,
        time_limit_s=7200,
        reason="Dependency",
    ),
)
NOBODY = JobMatrix.of([], [], [], [])


def step(at_s: int, idle: int = 0, jobs: int = 3) -> HistoryStep:
    many = range(jobs)
    return HistoryStep(
        at_s=at_s,
        queued=JobMatrix.of(many, many, many, many),
        running=NOBODY,
        idle_nodes=idle,
        up_nodes=99,
    )


def history(*times: int, length: int = 4) -> History:
    """Steps at NOW + each time, which show that time's index as their idle nodes."""
    result = History("gpu", STEP, length)
    for index, at_s in enumerate(times):
        result.add(step(NOW + at_s, index))
    return result


def idle(kept: History, now_s: int = NOW) -> list[float]:
    return [float(value) for value in kept.matrix(PAIR, now_s)[:, IDLE]]


def test_rows_are_oldest_first_and_end_at_the_decision() -> None:
    kept = history(-1800, -1200, -600, 0)
    assert idle(kept) == [0, 1, 2, 3]
    assert kept.is_complete(NOW)


def test_each_row_is_the_vector_of_its_step() -> None:
    kept = history(-1800, -1200, -600, 0)
    assert np.array_equal(
        kept.matrix(PAIR, NOW), np.stack([vector(step, PAIR) for step in kept.steps])
    )


def test_default_matrix_is_144_by_40() -> None:
    kept = History("gpu")
    kept.add(step(NOW))
    assert kept.matrix(PAIR, NOW).shape == (144, 40)


def test_many_pairs_at_once_are_the_same_as_one_by_one() -> None:
    kept = history(-1800, -1100, -600, 0)
    other = JobPair(PAIR.successor, PAIR.predecessor)
    assert np.array_equal(
        kept.matrices([PAIR, other], NOW), [kept.matrix(PAIR, NOW), kept.matrix(other, NOW)]
    )


def test_what_was_asked_before_changes_no_answer() -> None:
    pairs = [
        JobPair(replace(PREDECESSOR, job_id=number), replace(PREDECESSOR, job_id=number + 1))
        for number in (1, 4, 7)
    ]
    kept = history()
    for cycle, some in enumerate(([0, 1], [1, 2], [2, 0], [0, 1, 2])):
        now_s = NOW + cycle * STEP
        kept.add(step(now_s, idle=cycle, jobs=9 + cycle))
        if cycle == 2:
            kept.add(step(now_s, idle=50, jobs=5))  # another look at the same instant
        fresh = History("gpu", STEP, length=4)
        for each in kept.steps:
            fresh.add(each)
        asked = [pairs[index] for index in some]
        assert np.array_equal(kept.matrices(asked, now_s), fresh.matrices(asked, now_s))


def test_frequent_polls_leave_one_step_a_slot_and_the_newest() -> None:
    kept = history(*range(-3600, 301, 60))
    assert [step.at_s - NOW for step in kept.steps] == [-2400, -1800, -1200, -600, 0, 300]
    assert idle(kept, NOW + 300) == [30, 40, 50, 65]
    assert kept.is_complete(NOW + 300)


def test_only_the_first_step_of_a_slot_is_worth_saving() -> None:
    kept = History("gpu", STEP, 4)
    assert [kept.add(step(NOW + at_s)) for at_s in (0, 60, 599, 600, 660)] == [
        True,
        False,
        False,
        True,
        False,
    ]
    assert not kept.add(step(NOW - 10 * STEP)), "too old to be of use"


def test_steps_may_come_in_any_order() -> None:
    times = [-1800, -1190, -600, -20, 0]
    assert [step.at_s for step in history(*times).steps] == [
        step.at_s for step in history(*reversed(times)).steps
    ]


def test_a_missing_step_is_filled_by_the_one_before_and_not_known_when_too_old() -> None:
    kept = history(-1800, -600, 0)
    assert idle(kept) == [0, 0, 1, 2]
    assert kept.is_complete(NOW)
    kept = history(-1800, 0)
    assert idle(kept) == [0, 0, 0, 1]
    assert kept.known(NOW) == 0.75


def test_before_the_first_step_rows_repeat_it_and_are_not_known() -> None:
    kept = history(-600, 0)
    assert idle(kept) == [0, 0, 0, 1]
    assert kept.known(NOW) == 0.5
    assert not kept.is_complete(NOW)


def test_the_pair_is_exact_at_each_row_whatever_the_age_of_its_step() -> None:
    assert list(history(-1700).matrix(PAIR, NOW)[:, PREDECESSOR_ELAPSED]) == [0, 0, 400, 1000]
    assert list(history(-1700).matrix(PAIR, NOW)[:, 32]) == [0, 8, 8, 8]


def test_an_empty_history_says_so() -> None:
    empty = History("gpu")
    assert empty.known(NOW) == 0
    with pytest.raises(InputError, match="'gpu' is empty"):
        empty.matrix(PAIR, NOW)


def test_a_stored_step_comes_back_equal() -> None:
    tables = [
        JobMatrix.of([9, 3, 2**40], [1, 2, 3], [60, 0, 10**9], [4, 5, 6]),
        JobMatrix.of([7], [8], [9], [10]),
    ]
    before = HistoryStep(at_s=NOW, queued=tables[0], running=tables[1], idle_nodes=5, up_nodes=6)
    after = decode_step(encode_step(before))
    assert encode_step(after) == encode_step(before)
    assert np.array_equal(vector(after, PAIR), vector(before, PAIR))
    assert np.array_equal(after.queued.ids, [3, 9, 2**40])


@pytest.mark.parametrize(
    ("payload", "reason"),
    [
        (b"", "does not begin"),
        (encode_step(step(NOW))[:7] + b"\x02" + encode_step(step(NOW))[8:], "does not begin"),
        (encode_step(step(NOW))[:-1], "incomplete"),
        (encode_step(step(NOW))[:8] + b"garbage", "header"),
        (encode_step(step(NOW))[:8] + zlib.compress(b"short"), "requires a buffer"),
        (
            encode_step(step(NOW))[:8]
            + zlib.compress(zlib.decompress(encode_step(step(NOW))[8:])[:-4]),
            "do not fit",
        ),
        (
            encode_step(step(NOW))[:8]
            + zlib.compress(zlib.decompress(encode_step(step(NOW))[8:])[:-1] + b"\xff"),
            "negative",
        ),
    ],
)
def test_a_broken_payload_is_one_clear_error(payload: bytes, reason: str) -> None:
    with pytest.raises(BrokenStep, match=reason):
        decode_step(payload)
