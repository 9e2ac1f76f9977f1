"""Which chains need attention: each trouble at its edge, and the most urgent first."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.daemon.attention import ChainAlert, Trouble, attention, rank
from mirage.domain import Action, Chain, ChainState, Decision, JobState, Link, Mode, Penalties
from mirage.store.memory import MemoryStore

NOW, H = 1_000_000, 3600
CHAIN = Chain(
    chain_id="c1",
    user="alice",
    segments=5,
    mode=Mode.TRAIN,
    penalties=Penalties(),
    state=ChainState.ACTIVE,
    reason="",
    created_s=0,
    updated_s=NOW,
)
RUNNING = Link(
    chain_id="c1",
    user="alice",
    segment=1,
    job_id=11,
    predecessor_id=None,
    state=JobState.RUNNING,
    partition="gpu",
    nodes=1,
    time_limit_s=24 * H,
    submit_s=NOW - 23 * H,
    eligible_s=NOW - 23 * H,
    start_s=NOW - 22 * H,
)
WAITING = Link(
    chain_id="c1",
    user="alice",
    segment=2,
    job_id=12,
    predecessor_id=11,
    state=JobState.PENDING,
    partition="gpu",
    nodes=1,
    time_limit_s=24 * H,
    submit_s=NOW - 22 * H,
)
ENDED = replace(RUNNING, state=JobState.TIMEOUT, end_s=NOW - 2 * H)


def found(*links: Link, chain: Chain = CHAIN, p50_s: float | None = None) -> ChainAlert | None:
    store = MemoryStore()
    decision = Decision(
        at_s=NOW - 60,
        chain_id="c1",
        user="alice",
        predecessor_id=11,
        successor_id=12,
        policy="quantile",
        action=Action.WAIT,
        reason="x",
        inputs_hash="0",
        wait_p50_s=p50_s,
    )
    store.put(decision, None)
    return attention(chain, links, store, NOW)


def test_a_chain_that_goes_on_as_planned_needs_none() -> None:
    assert found(RUNNING, WAITING) is None
    assert found(RUNNING, WAITING, p50_s=2 * H) is None
    assert found(RUNNING) is None
    assert found(replace(WAITING, segment=1, predecessor_id=None)) is None
    assert found() is None


def test_no_link_runs_since_one_ended() -> None:
    trouble = found(ENDED, WAITING)
    assert trouble
    assert (trouble.trouble, trouble.size_s) == (Trouble.INTERRUPTED, 2 * H)
    assert trouble.words == "Interrupted for 2 h: no link runs since job 11 (link 1) ended."


def test_a_successor_that_is_expected_well_after_the_end() -> None:
    """2 h are left."""
    edge_s = 2 * H + 600 + 60
    assert found(RUNNING, WAITING, p50_s=edge_s) is None
    trouble = found(RUNNING, WAITING, p50_s=edge_s + 1)
    assert trouble
    assert trouble.trouble is Trouble.LATE
    long = found(RUNNING, WAITING, p50_s=5 * H + 60)
    assert long
    assert long.words == "Late: job 12 (link 2) is expected to start 3 h after job 11 ends."
    let_in = replace(WAITING, released_s=NOW - 4 * H)
    assert found(RUNNING, let_in, p50_s=5 * H) is None


def test_an_overdue_successor_starts_now_at_the_earliest() -> None:
    over_limit = replace(RUNNING, start_s=NOW - 26 * H)
    trouble = found(over_limit, replace(WAITING, released_s=NOW - 9 * H), p50_s=H)
    assert trouble
    assert (trouble.trouble, trouble.size_s) == (Trouble.LATE, 2 * H)


SERVICE = replace(CHAIN, mode=Mode.SERVICE, handover_s=300)
NEXT = replace(WAITING, state=JobState.RUNNING, start_s=NOW - 60, ready_s=0)


def test_a_service_is_interrupted_until_its_next_link_is_ready() -> None:
    ended = replace(RUNNING, state=JobState.TIMEOUT, end_s=NOW - 90, ready_s=NOW - 20 * H)
    trouble = found(ended, NEXT, chain=SERVICE)
    assert trouble
    assert (trouble.trouble, trouble.size_s) == (Trouble.INTERRUPTED, 90)
    assert trouble.words.endswith("no link is ready since job 11 (link 1) ended.")
    assert found(ended, replace(NEXT, ready_s=NOW - 5), chain=SERVICE) is None
    assert found(ended, replace(NEXT, ready_s=None), chain=SERVICE), "by its start-up of 5 min"
    assert found(ended, replace(NEXT, ready_s=None, start_s=NOW - 300), chain=SERVICE) is None
    assert found(replace(RUNNING, ready_s=NOW - 20 * H), NEXT, chain=SERVICE) is None


def test_the_start_up_of_a_service_is_part_of_what_is_late() -> None:
    running = replace(RUNNING, ready_s=NOW - 20 * H)
    edge_s = 2 * H + 600 + 60 - 300
    assert found(running, WAITING, chain=SERVICE, p50_s=edge_s) is None
    trouble = found(running, WAITING, chain=SERVICE, p50_s=edge_s + 1)
    assert trouble
    assert "is expected to be ready" in trouble.words


def test_a_first_link_that_is_not_ready_for_long_is_said() -> None:
    first = replace(RUNNING, start_s=NOW - 900, ready_s=0)
    assert found(first, chain=SERVICE) is None
    trouble = found(replace(first, start_s=NOW - 901), chain=SERVICE)
    assert trouble
    assert trouble.words == (
        "Late: job 11 (link 1) is not ready yet, 15 min 1 s after its start; a start takes 5 min."
    )


@pytest.mark.parametrize("state", [ChainState.FAILED, ChainState.UNKNOWN])
def test_a_bad_end(state: ChainState) -> None:
    trouble = found(ENDED, chain=replace(CHAIN, state=state, reason="link 1 exited with 1"))
    assert trouble
    assert trouble.trouble is Trouble.FAILED
    assert trouble.words == f"Ended as {state.value}: link 1 exited with 1."


@pytest.mark.parametrize("state", [ChainState.DONE, ChainState.CANCELLED, ChainState.PAUSED])
def test_what_its_owner_wanted_is_no_trouble(state: ChainState) -> None:
    assert found(ENDED, WAITING, chain=replace(CHAIN, state=state)) is None


def test_the_most_urgent_is_first() -> None:
    short = found(ENDED, WAITING)
    long = found(replace(ENDED, end_s=NOW - 9 * H), WAITING)
    failed = found(ENDED, chain=replace(CHAIN, state=ChainState.FAILED))
    late = found(RUNNING, WAITING, p50_s=9 * H)
    order = sorted(filter(None, [late, failed, short, long]), key=lambda each: each.rank)
    assert order == [long, short, failed, late]
    used_up = found(ENDED, chain=replace(CHAIN, state=ChainState.USED_UP, reason="link 4 of 4"))
    assert used_up
    assert used_up.words == "Its links are used up: link 4 of 4."
    assert used_up.rank > (rank(None), 0), "it comes after the chains that go on"
