"""The contract of ports.Store, on dictionaries, and on SqlStore in memory, in a file, and on
database servers.
"""

# ruff: noqa: PT012 - the blocks that fail here are transactions of several statements

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from sqlalchemy import Engine, event, text

from mirage.domain import (
    Action,
    Chain,
    ChainState,
    Decision,
    JobState,
    Link,
    Mode,
    Penalties,
    ReleaseOutcome,
    Run,
)
from mirage.errors import InputError, StoreError
from mirage.ports import LastingStore, Store
from mirage.store import schema, sqlite
from mirage.store.memory import MemoryStore
from mirage.store.repository import SqlStore
from tests.databases import SERVERS, fresh_database


def a_chain(chain_id: str = "c1", user: str = "alice", **changes: object) -> Chain:
    return replace(Chain(chain_id=chain_id, user=user, segments=4), **changes)  # type: ignore[arg-type]


def a_link(job_id: int = 11, chain_id: str = "c1", user: str = "alice", **changes: object) -> Link:
    link = Link(
        chain_id=chain_id,
        user=user,
        segment=1,
        job_id=job_id,
        predecessor_id=None,
        state=JobState.PENDING,
        partition="gpu",
        nodes=8,
        time_limit_s=3600,
        submit_s=100,
    )
    return replace(link, **changes)  # type: ignore[arg-type]


def a_decision(successor_id: int = 12, at_s: int = 1000, **changes: object) -> Decision:
    decision = Decision(
        at_s=at_s,
        chain_id="c1",
        user="alice",
        predecessor_id=11,
        successor_id=successor_id,
        policy="timer",
        action=Action.RELEASE,
        reason="3 h are left",
        inputs_hash="ab" * 32,
    )
    return replace(decision, **changes)  # type: ignore[arg-type]


@pytest.fixture(params=["memory", "file", *SERVERS])
def lasting(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[LastingStore]:
    with fresh_database(request.param, tmp_path) as url, SqlStore.open(url) as opened:
        yield opened


@pytest.fixture(params=["dictionaries", "memory", "file", *SERVERS])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    if request.param == "dictionaries":
        yield MemoryStore()
        return
    with fresh_database(request.param, tmp_path) as url, SqlStore.open(url) as opened:
        yield opened


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = sqlite.memory_engine()
    schema.bring_up_to_date(made, "in memory")
    yield made
    made.dispose()


RUN = Run(submit_s=1, eligible_s=None, start_s=2, end_s=3, state=JobState.REQUEUED, exit_code=1)


class Oops(Exception):
    pass


def test_a_chain_comes_back_as_it_was_saved(store: Store) -> None:
    full = Chain(
        chain_id="c1",
        user="alice",
        segments=5,
        mode=Mode.SERVICE,
        penalties=Penalties(2.5, 0.1),
        state=ChainState.FAILED,
        reason="exit code 3",
        created_s=10,
        updated_s=2**33,
        uptime=0.9995,
        handover_s=480,
    )
    store.save_chain(full)
    assert store.chain("alice", "c1") == full
    assert store.chain("bob", "c1") is None


def test_saving_a_chain_again_replaces_it_and_no_other(store: Store) -> None:
    store.save_chain(a_chain())
    store.save_chain(a_chain(user="bob"))
    store.save_chain(a_chain(segments=9))
    assert store.chain("alice", "c1") == a_chain(segments=9)
    assert store.chain("bob", "c1") == a_chain(user="bob")
    assert len(store.chains()) == 2


def test_chains_are_newest_first_and_active_ones_oldest_first(store: Store) -> None:
    for number, state in enumerate(
        [ChainState.ACTIVE, ChainState.DONE, ChainState.ACTIVE, ChainState.CANCELLED]
    ):
        store.save_chain(
            a_chain(f"c{number}", ("alice", "bob")[number % 2], created_s=number, state=state)
        )
    assert [chain.chain_id for chain in store.chains()] == ["c3", "c2", "c1", "c0"]
    assert [chain.chain_id for chain in store.chains("bob")] == ["c3", "c1"]
    assert [chain.chain_id for chain in store.active_chains()] == ["c0", "c2"]


def test_a_link_comes_back_as_it_was_saved(store: Store) -> None:
    store.save_chain(a_chain())
    full = Link(
        chain_id="c1",
        user="alice",
        segment=2,
        job_id=2**26,
        predecessor_id=11,
        state=JobState.TIMEOUT,
        partition="gpu,long",
        nodes=8,
        time_limit_s=None,
        submit_s=1,
        eligible_s=2,
        start_s=3,
        end_s=4,
        ready_s=2**33,
        down_s=86,
        was_held=True,
        exit_code=137,
        released_s=5,
        lead_s=300,
        reason="",
        dependency="after:11",
        runs=(RUN, RUN._replace(start_s=9, state=JobState.PREEMPTED, ready_s=11, down_s=7)),
    )
    store.save_link(full)
    assert store.links("alice", "c1") == [full]
    assert store.link_of_job(2**26) == full
    assert store.link_of_job(1) is None


def test_saving_a_link_again_replaces_it(store: Store) -> None:
    store.save_chain(a_chain())
    store.save_link(a_link())
    store.save_link(a_link(state=JobState.RUNNING, start_s=7))
    assert store.links("alice", "c1") == [a_link(state=JobState.RUNNING, start_s=7)]


def test_links_are_by_segment_and_retries_as_submitted(store: Store) -> None:
    store.save_chain(a_chain())
    for job_id, segment, submit_s in [(14, 2, 300), (13, 3, 400), (12, 2, 200), (11, 1, 100)]:
        store.save_link(a_link(job_id, segment=segment, submit_s=submit_s))
    assert [link.job_id for link in store.links("alice", "c1")] == [11, 12, 14, 13]


def test_open_links_are_those_of_active_chains_whose_job_is_not_over(store: Store) -> None:
    store.save_chain(a_chain("on"))
    store.save_chain(a_chain("off", state=ChainState.CANCELLED))
    for job_id, state in enumerate(JobState):
        store.save_link(a_link(job_id, "on", state=state))
        store.save_link(a_link(100 + job_id, "off", state=state))
    assert {link.state for link in store.open_links()} == {
        state for state in JobState if not state.is_over
    }
    assert {link.chain_id for link in store.open_links()} == {"on"}


def test_a_link_whose_run_was_over_as_slurm_requeued_its_job_is_not_open(
    store: Store,
) -> None:
    store.save_chain(a_chain())
    store.save_link(a_link(1, state=JobState.REQUEUED, start_s=3, end_s=4))
    store.save_link(a_link(2, state=JobState.REQUEUED, runs=(RUN,)))
    assert [link.job_id for link in store.open_links()] == [2]


def test_a_job_id_that_slurm_used_twice_means_the_newer_link(store: Store) -> None:
    for chain_id, submit_s in [("old", 1), ("new", 2)]:
        store.save_chain(a_chain(chain_id))
        store.save_link(a_link(11, chain_id, submit_s=submit_s))
    found = store.link_of_job(11)
    assert found is not None
    assert found.chain_id == "new"


def test_a_link_without_its_chain_is_an_error_that_says_so(store: Store) -> None:
    with pytest.raises(StoreError, match="A link needs its chain"):
        store.save_link(a_link())
    assert store.link_of_job(11) is None


def test_chains_since_a_time_are_active_or_have_changed(store: Store) -> None:
    for name, state, updated_s in [
        ("on", ChainState.ACTIVE, 1),
        ("old", ChainState.DONE, 9),
        ("new", ChainState.DONE, 10),
    ]:
        store.save_chain(a_chain(name, state=state, updated_s=updated_s))
    assert {chain.chain_id for chain in store.chains(since_s=10)} == {"on", "new"}


def test_writes_stay_together_or_none_does(store: Store) -> None:
    store.save_chain(a_chain())
    with pytest.raises(Oops), store.transaction():
        store.save_chain(a_chain(segments=9))
        store.save_link(a_link())
        raise Oops
    assert store.chains() == [a_chain()]
    assert store.links("alice", "c1") == []
    with store.transaction():
        store.save_link(a_link())
    assert store.links("alice", "c1") == [a_link()]


def test_decisions_are_newest_first_and_limited(store: Store) -> None:
    full = a_decision(
        remaining_s=60,
        wait_p10_s=1.5,
        wait_p50_s=1 / 3,
        wait_p90_s=1e9,
        expected_interruption_s=0.0,
        expected_overlap_s=2.0,
    )
    for at_s in (1, 2, 2, 3):
        store.add_decision(replace(full, at_s=at_s))
    store.add_decision(a_decision(successor_id=99))
    assert [decision.at_s for decision in store.decisions(12)] == [3, 2, 2, 1]
    assert store.decisions(12, limit=1) == [replace(full, at_s=3)]


def test_gains_are_by_pair_and_oldest_first_of_one_policy_alone(store: Store) -> None:
    for at_s, gain in ((30, -0.5), (10, 1 / 3), (20, None), (5, 9.0)):
        store.add_decision(a_decision(at_s=at_s, policy="moe", gain=gain))
    store.add_decision(a_decision(at_s=40, policy="quantile", gain=1.0))
    store.open_intent(
        a_decision(at_s=40, policy="moe", predecessor_id=98, successor_id=99, gain=2.0), 40
    )
    one = a_decision()
    assert store.gains("moe", 10) == {
        (one.predecessor_id, one.successor_id): [(10, 1 / 3), (30, -0.5)],
        (98, 99): [(40, 2.0)],
    }
    assert store.gains("moe", 41) == {}


def test_an_intent_is_open_until_it_is_closed(store: Store) -> None:
    first = store.open_intent(a_decision(), 1001)
    second = store.open_intent(a_decision(at_s=2000), 2001)
    assert first.intent_id != second.intent_id
    assert (first.decision, first.created_s, first.outcome) == (a_decision(), 1001, None)
    assert store.open_intents() == [first, second]
    assert store.decisions(12) == [second.decision, first.decision]

    store.close_intent(first, ReleaseOutcome.REFUSED, "Invalid user id", 1002)
    closed = replace(
        first, outcome=ReleaseOutcome.REFUSED, detail="Invalid user id", finished_s=1002
    )
    assert store.open_intents() == [second]
    assert store.intents(12) == [second, closed]
    assert store.intents(99) == []


def test_the_first_outcome_of_an_intent_stays(store: Store) -> None:
    intent = store.open_intent(a_decision(), 1)
    store.close_intent(intent, ReleaseOutcome.RELEASED, "", 2)
    with pytest.raises(StoreError, match=rf"intent {intent.intent_id} is not open"):
        store.close_intent(intent, ReleaseOutcome.UNKNOWN, "", 3)
    assert [found.outcome for found in store.intents(12)] == [ReleaseOutcome.RELEASED]


def test_steps_are_replaced_read_and_dropped_by_time(store: Store) -> None:
    for at_s in (600, 0, 1200):
        store.save_step("gpu", at_s, b"old")
        store.save_step("cpu", at_s, b"other")
    store.save_step("gpu", 600, b"\0new")
    assert store.steps("gpu", 600) == [(600, b"\0new"), (1200, b"old")]
    store.drop_steps(1200)
    assert store.steps("gpu", 0) == [(1200, b"old")]
    assert store.steps("cpu", 0) == [(1200, b"other")]


def test_names_that_differ_in_case_or_accents_or_a_final_space_are_different(
    lasting: LastingStore,
) -> None:
    names = ["alice", "Alice", "alicé", "alice ", "\N{GRINNING FACE}"]
    for number, name in enumerate(names):
        lasting.save_chain(a_chain(user=name, created_s=number))
    assert [chain.user for chain in reversed(lasting.chains())] == names


def test_a_step_may_be_long(lasting: LastingStore) -> None:
    payload = bytes(range(256)) * 4096
    lasting.save_step("gpu", 0, payload)
    assert lasting.steps("gpu", 0) == [(0, payload)]


def test_what_is_old_is_pruned_and_the_rest_stays(lasting: LastingStore) -> None:
    for at_s in (1, 2, 3, 100):
        lasting.add_decision(a_decision(at_s=at_s))
    open_intent = lasting.open_intent(a_decision(at_s=2), 2)
    done = lasting.open_intent(a_decision(13, at_s=3), 3)
    lasting.close_intent(done, ReleaseOutcome.RELEASED, "", 4)
    for number, (state, updated_s) in enumerate(
        [
            (ChainState.DONE, 5),
            (ChainState.ACTIVE, 5),
            (ChainState.FAILED, 50),
            (ChainState.DONE, 51),
        ]
    ):
        lasting.save_chain(
            a_chain(f"c{number}", state=state, updated_s=updated_s, created_s=number)
        )
        lasting.save_link(a_link(number, f"c{number}"))
    lasting.save_step("gpu", 1, b"")
    assert lasting.prune(100, 51) == 6
    assert lasting.prune(100, 51) == 0
    assert [decision.at_s for decision in lasting.decisions(12)] == [100, 2]
    assert lasting.decisions(13) == []
    assert lasting.intents(13) == []
    assert lasting.open_intents() == [open_intent]
    assert [chain.chain_id for chain in lasting.chains()] == ["c3", "c1"]
    assert [lasting.link_of_job(number) is not None for number in range(4)] == [
        False,
        True,
        False,
        True,
    ]
    assert lasting.steps("gpu", 0) == [(1, b"")]


def test_pruning_takes_the_oldest_first_and_few_at_once(lasting: LastingStore) -> None:
    for at_s in (3, 1, 2):
        lasting.add_decision(a_decision(at_s=at_s))
    assert lasting.prune(100, 0, limit=2) == 2
    assert [decision.at_s for decision in lasting.decisions(12)] == [3]


def test_a_transaction_that_fails_leaves_nothing(store: Store) -> None:
    store.save_chain(a_chain())
    with pytest.raises(Oops), store.transaction():
        store.save_chain(a_chain(segments=9))
        store.open_intent(a_decision(), 1)
        assert store.chain("alice", "c1") == a_chain(segments=9), (
            "a transaction sees its own writes"
        )
        raise Oops
    assert store.chain("alice", "c1") == a_chain()
    assert store.open_intents() == []
    assert store.decisions(12) == []


def test_an_inner_transaction_that_fails_is_undone_alone(store: Store) -> None:
    with store.transaction():
        store.save_chain(a_chain("before"))
        with pytest.raises(Oops), store.transaction():
            store.save_chain(a_chain("inside"))
            raise Oops
        with store.transaction():
            store.save_chain(a_chain("after"))
    assert {chain.chain_id for chain in store.chains()} == {"before", "after"}


def test_an_inner_transaction_goes_with_the_outer_one(store: Store) -> None:
    with pytest.raises(Oops), store.transaction():
        with store.transaction():
            store.save_chain(a_chain())
        raise Oops
    assert store.chains() == []


@pytest.mark.parametrize("nested", [False, True])
def test_a_failed_write_ends_the_whole_transaction_even_if_its_error_is_caught(
    lasting: LastingStore, nested: bool
) -> None:
    def fail() -> None:
        if not nested:
            return lasting.save_link(a_link(chain_id="missing"))
        with lasting.transaction():
            return lasting.save_link(a_link(chain_id="missing"))

    with pytest.raises(StoreError, match="nothing was written"), lasting.transaction():
        lasting.save_chain(a_chain())
        with pytest.raises(StoreError):
            fail()
        with pytest.raises(StoreError):
            lasting.save_chain(a_chain("c2"))
    assert lasting.chains() == []
    lasting.save_chain(a_chain("c3"))
    assert len(lasting.chains()) == 1


def test_a_full_disk_leaves_nothing_of_the_transaction(engine: Engine) -> None:
    store = SqlStore(engine)
    with engine.connect() as connection:
        connection.execute(text("PRAGMA max_page_count=40"))
    with pytest.raises(StoreError), store.transaction():
        store.save_chain(a_chain())
        with pytest.raises(StoreError, match="Make room"):
            store.save_step("gpu", 0, bytes(1_000_000))
        with pytest.raises(StoreError):
            store.save_chain(a_chain("c2"))
    assert store.chains() == []


def test_a_value_that_no_database_takes_is_a_store_error(lasting: LastingStore) -> None:
    with pytest.raises(StoreError):
        lasting.save_chain(a_chain(segments=object()))


def test_a_word_of_a_newer_release_is_a_store_error(engine: Engine) -> None:
    store = SqlStore(engine)
    store.save_chain(a_chain())
    with engine.begin() as connection:
        connection.execute(text("UPDATE chains SET mode = 'swarm'"))
    with pytest.raises(StoreError, match="swarm"):
        store.chains()


def test_a_reading_thread_never_sees_half_a_transaction(lasting: LastingStore) -> None:
    """Nor does it disturb the writer: its writes, in pairs, are all there at the end."""
    reads, written = threading.Event(), threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not written.wait(0.001):
            seen.append(len(lasting.steps("gpu", 0)))
            reads.set()

    reader = threading.Thread(target=read)
    reader.start()
    assert reads.wait(120)
    for number in range(50):
        with lasting.transaction():
            lasting.save_step("gpu", 2 * number, b"one")
            lasting.save_step("gpu", 2 * number + 1, b"two")
    written.set()
    reader.join()
    assert len(lasting.steps("gpu", 0)) == 100
    assert not [count for count in seen if count % 2]


def test_two_writing_threads_take_turns(lasting: LastingStore) -> None:
    def write(pool: str) -> None:
        for number in range(30):
            with lasting.transaction():
                lasting.save_step(pool, number, b"")

    threads = [threading.Thread(target=write, args=(pool,)) for pool in ("gpu", "cpu")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(lasting.steps("gpu", 0)) == len(lasting.steps("cpu", 0)) == 30


def test_what_a_start_and_a_cycle_ask_is_found_by_index(engine: Engine) -> None:
    store = SqlStore(engine)
    asked: list[tuple[str, tuple[object, ...]]] = []

    @event.listens_for(engine, "before_cursor_execute")
    def _note(
        _c: object, _cursor: object, sql: str, values: tuple[object, ...], *_: object
    ) -> None:
        if sql.startswith(("SELECT", "UPDATE", "DELETE")):
            asked.append((sql, values))

    store.active_chains()
    store.open_links()
    store.open_intents()
    store.links("alice", "c1")
    store.link_of_job(11)
    store.decisions(12)
    store.intents(12)
    store.steps("gpu", 0)
    store.drop_steps(0)
    store.prune(0, 0)
    store.save_chain(a_chain())
    store.save_link(a_link())
    store.close_intent(store.open_intent(a_decision(), 1), ReleaseOutcome.RELEASED, "", 2)
    assert len(asked) == 14
    event.remove(engine, "before_cursor_execute", _note)
    with engine.connect() as connection:
        for sql, values in asked:
            plan = [
                row.detail
                for row in connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)
            ]
            assert all(
                step.startswith(("SEARCH", "USE TEMP B-TREE", "LIST SUBQUERY")) for step in plan
            ), (sql, plan)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("not a url with a secret", "not a URL of a store"),
        ("postgresql://alice:secret@db:port/mirage", "not a URL of a store"),
        ("mysql://alice:secret@db/mirage", "mysql:// is not known"),
        ("mariadb://alice:secret@db", "host or database is missing"),
        ("postgresql://alice:secret@db?sslpassword=secret", "host or database is missing"),
        ("sqlite://host/file", "expected sqlite:////absolute/path"),
        ("sqlite:///file?mode=ro", "expected sqlite:////absolute/path"),
    ],
)
def test_a_wrong_url_is_refused(url: str, expected: str) -> None:
    with pytest.raises(InputError, match=expected) as caught:
        SqlStore.open(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("scheme", ["postgresql", "mariadb"])
def test_a_server_that_does_not_answer_is_one_clear_error(scheme: str) -> None:
    with pytest.raises(
        StoreError,
        match=rf"Store {scheme}://alice:\*\*\*@127.0.0.1:1/mirage: .* goes on when it does",
    ) as got:
        SqlStore.open(f"{scheme}://alice:hunter2@127.0.0.1:1/mirage")
    assert "hunter2" not in str(got.value)
    assert "\n" not in str(got.value)
