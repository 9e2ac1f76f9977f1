"""Services of several replicas as one row each."""

from __future__ import annotations

from dataclasses import replace

from mirage.daemon.services import in_words, no_replica, replica_json, service_rows
from mirage.domain import Chain, ChainState, JobState, Link, Mode
from tests.unit.daemon.test_handover_log import FIRST

NOW = 1_790_000_000
LINK = replace(
    FIRST,
    chain_id="chain1",
    user="ada",
    time_limit_s=7200,
    submit_s=NOW - 1000,
    start_s=NOW - 1000,
    ready_s=NOW - 1000,
)
CHAIN = Chain(
    chain_id="chain1", user="ada", segments=9, mode=Mode.SERVICE, service="llm", replica=1
)


def replica(number: int, link: Link = LINK, state: ChainState = ChainState.ACTIVE):
    chain = replace(CHAIN, chain_id=f"chain{number}", replica=number, state=state)
    return replica_json(chain, [replace(link, job_id=10 + number)], NOW)


def test_a_row_says_how_many_are_ready_and_when_the_next_one_hands_over() -> None:
    starting = replace(LINK, ready_s=0, start_s=NOW - 10)
    (row,) = service_rows([replica(2, starting), replica(1), None], NOW)
    assert (row["ready"], row["wanted"], row["user"]) == (1, 2, "ada")
    assert [(each["number"], each["stands"]) for each in row["replicas"]] == [
        (1, "ready"),
        (2, "starting"),
    ]
    assert row["next_handover"] == NOW - 1000 + 7200
    assert in_words(row).startswith(
        "1 of 2 replicas ready, up 100.00% (all of them: 100.00%), next"
    )


def test_up_time_is_of_one_and_of_all() -> None:
    late = replace(LINK, ready_s=NOW - 400)
    died = replace(LINK, state=JobState.NODE_FAIL, end_s=NOW - 500)
    (row,) = service_rows([replica(1, died), replica(2, late)], NOW)
    assert row["wall_s"] == 1000
    assert (row["uptime"], row["uptime_all"]) == (0.9, 0.5)


def test_a_replica_that_was_scaled_down_is_neither_shown_nor_missed() -> None:
    gone = replace(LINK, state=JobState.COMPLETED, end_s=NOW - 500)
    (row,) = service_rows([replica(1), replica(2, gone, ChainState.DONE)], NOW)
    assert (row["ready"], row["wanted"], row["uptime_all"]) == (1, 1, 1)
    assert [each["number"] for each in row["replicas"]] == [1]


def test_a_replica_that_failed_is_missed() -> None:
    gone = replace(LINK, state=JobState.FAILED, end_s=NOW - 500)
    (row,) = service_rows([replica(1), replica(2, gone, ChainState.FAILED)], NOW, {"llm": 2})
    assert (row["ready"], row["wanted"], row["uptime"], row["uptime_all"]) == (1, 2, 1, 0.5)


def test_of_a_period_only_its_time_counts_and_services_that_ended_in_it_are_told() -> None:
    died = replace(LINK, state=JobState.NODE_FAIL, end_s=NOW - 500)
    gone = replace(LINK, state=JobState.COMPLETED, end_s=NOW - 600)
    (row,) = service_rows([replica(1, died), replica(2)], NOW, since_s=NOW - 800)
    assert (row["wall_s"], row["uptime"], row["uptime_all"]) == (800, 1, 3 / 8)
    over = replica(1, gone, ChainState.DONE)
    (row,) = service_rows([over], NOW, since_s=NOW - 800)
    assert (row["wall_s"], row["uptime"]) == (200, 1)
    assert not service_rows([over], NOW, since_s=NOW - 600)


def test_services_of_two_users_are_two_rows() -> None:
    other = replica_json(replace(CHAIN, user="bea"), [LINK], NOW)
    assert [row["user"] for row in service_rows([replica(1), other], NOW)] == ["ada", "bea"]


def test_a_service_that_is_over_has_no_row_and_one_that_sleeps_has() -> None:
    gone = replace(LINK, state=JobState.COMPLETED, end_s=NOW)
    over = replica(1, gone, ChainState.DONE)
    assert not service_rows([over], NOW)
    (row,) = service_rows([over], NOW, {"llm": 0})
    assert in_words(row) == in_words(no_replica("llm", "ada", 0)) == "no replica runs: nobody asks"


def test_a_chain_of_its_own_is_no_replica() -> None:
    assert replica_json(replace(CHAIN, service=None, replica=None), [LINK], NOW) is None
