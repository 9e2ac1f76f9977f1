"""What the web page draws and counts, worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from mirage.chain.handoff import handoffs
from mirage.daemon.dismissed import Dismissed
from mirage.daemon.restraint import Code
from mirage.domain import (
    Action,
    Chain,
    ChainState,
    ClusterNode,
    Decision,
    Job,
    JobState,
    Link,
    Mode,
    Snapshot,
)
from mirage.store.memory import MemoryStore
from mirage.store.repository import SqlStore
from mirage.web.chains import PER_PAGE, chain_list, link_rows, paged, verdict, waiting_list, whole
from mirage.web.digest import digest
from mirage.web.timeline import DAY_S, Bar, Window, bars, in_words
from tests.queue_logs import SameWait
from tests.unit.daemon.test_impact import H

NOW = 1_800_000_000
CHAIN = Chain(chain_id="abc", user="ada", segments=5, created_s=NOW - DAY_S, updated_s=NOW)


def link(segment: int, start_h: float | None, end_h: float | None, **more: object) -> Link:
    """Times in hours from now."""
    start_s = None if start_h is None else NOW + int(start_h * H)
    end_s = None if end_h is None else NOW + int(end_h * H)
    state = JobState.TIMEOUT if end_s else JobState.RUNNING if start_s else JobState.PENDING
    known = Link(
        chain_id="abc",
        user="ada",
        segment=segment,
        job_id=10 + segment,
        predecessor_id=9 + segment if segment > 1 else None,
        state=state,
        partition="gpu",
        nodes=2,
        time_limit_s=10 * H,
        submit_s=NOW - 21 * H,
    )
    return replace(known, start_s=start_s, end_s=end_s, **more)


# --- timeline

WINDOW = Window(NOW - 20 * H, NOW + 5 * H, NOW)


def test_bars_are_shares_of_the_window() -> None:
    links = [
        link(1, -20, -15),
        link(2, -12.5, -2.5, eligible_s=NOW - 15 * H),
        link(3, -5, None, released_s=NOW - 10 * H),
        link(4, None, None),
    ]
    assert bars(CHAIN, links, WINDOW) == [
        Bar(kind="wait", x=20.0, width=10.0, title="link 2 in the queue (2 h 30 min)"),
        Bar(kind="wait", x=40.0, width=20.0, title="link 3 in the queue (5 h)"),
        Bar(kind="run", x=0.0, width=20.0, title="link 1 runs (5 h)", label="1"),
        Bar(kind="run", x=30.0, width=40.0, title="link 2 runs (10 h)", label="2"),
        Bar(kind="run", x=60.0, width=20.0, title="link 3 runs (5 h)", label="3"),
        Bar(kind="rest", x=80.0, width=20.0, title="link 3 may run on (5 h)"),
        Bar(kind="gap", x=20.0, width=10.0, title="interrupted before link 2 (2 h 30 min)"),
        Bar(kind="both", x=60.0, width=10.0, title="two links at once before link 3 (2 h 30 min)"),
    ]


def test_a_link_of_a_service_is_starting_until_it_is_ready() -> None:
    service = replace(CHAIN, mode=Mode.SERVICE)
    links = [
        link(1, -20, -10, ready_s=NOW - 19 * H),
        link(2, -12, -5, ready_s=NOW - 9 * H),
        link(3, -5, -4, ready_s=0),
        link(4, -2, None, ready_s=0),
    ]
    drawn = [
        (bar.kind, bar.x, bar.width) for bar in bars(service, links, WINDOW) if bar.kind != "rest"
    ]
    assert drawn == [
        ("wait", 0.0, 4.0),
        ("wait", 32.0, 12.0),
        ("wait", 60.0, 4.0),
        ("wait", 72.0, 8.0),
        ("run", 4.0, 36.0),
        ("run", 44.0, 16.0),
        ("gap", 40.0, 4.0),
        ("both", 32.0, 8.0),
        ("gap", 60.0, 4.0),
        ("gap", 60.0, 20.0),
    ]
    store = MemoryStore()
    states = [row.state for row in link_rows(store, service, links, WINDOW)]
    assert states == ["timeout", "timeout", "never ready", "starting"]


def test_what_lies_outside_is_cut_off_and_a_gap_may_last() -> None:
    links = [link(1, -40, -30), link(2, -26, -5), link(3, None, None)]
    assert bars(CHAIN, links, WINDOW) == [
        Bar(kind="run", x=0.0, width=60.0, title="link 2 runs (21 h)", label="2"),
        Bar(kind="gap", x=60.0, width=20.0, title="interrupted until now (5 h)"),
    ]
    over = replace(CHAIN, state=ChainState.DONE)
    assert [bar.kind for bar in bars(over, links, WINDOW)] == ["run"]


def test_the_words_say_what_the_drawing_shows() -> None:
    words = in_words(CHAIN, [link(1, -20, -15), link(2, -12.5, None), link(3, None, None)])
    assert words.startswith("Chain abc: link 1 ran from ")
    assert words.endswith(
        "until now; link 3 has not started; before link 2 interrupted for 2 h 30 min."
    )
    assert in_words(CHAIN, []) == "Chain abc: no link is known."


@pytest.mark.parametrize("length_s", [700, 3600, 5 * H, 30 * H, 40 * DAY_S])
def test_an_axis_has_a_few_ticks_within(length_s: int) -> None:
    ticks = Window(NOW - length_s, NOW, NOW).ticks()
    assert 2 <= len(ticks) <= 7
    assert all(0 < x <= 100 for x, _ in ticks)
    assert all(text for _, text in ticks)


def test_young_chains_fill_the_width() -> None:
    days = Window.of_days(3, NOW)
    assert days == Window(NOW - 3 * DAY_S, NOW + 3 * DAY_S // 4, NOW)
    assert days.from_first(NOW - 4 * H) == Window(NOW - 4 * H, NOW + H, NOW)
    assert days.from_first(NOW - 90 * DAY_S) == days
    assert days.from_first(NOW).start_s == NOW - 600


def test_a_whole_chain_fits_its_window() -> None:
    running, over = [link(1, -20, -15), link(2, -14, None)], [link(1, -20, -15), link(2, -14, -8)]
    assert whole(running, NOW).start_s < NOW - 20 * H
    assert whole(running, NOW).end_s > NOW
    assert NOW - 8 * H < whole(over, NOW).end_s < NOW - 7 * H
    assert whole([], NOW).start_s < NOW < whole([], NOW).end_s


# --- lists


@pytest.fixture
def store() -> SqlStore:
    store = SqlStore.open("sqlite://")
    for number in range(PER_PAGE + 5):
        chain = replace(
            CHAIN, chain_id=f"c{number:03}", user=("ada", "bea")[number % 2], created_s=NOW - number
        )
        if number < 4:
            chain = replace(chain, state=ChainState.DONE, updated_s=NOW - number * DAY_S)
        store.save_chain(chain)
        for each in (link(1, -3, None), link(2, None, None)):
            job_id = 100 * number + each.job_id
            before = each.predecessor_id and 100 * number + each.predecessor_id
            named = replace(
                each, chain_id=chain.chain_id, user=chain.user, job_id=job_id, predecessor_id=before
            )
            store.save_link(named)
    return store


def ids(
    store: SqlStore, user: str | None, page: int = 1, *, all_states: bool = True, days: int = 2
) -> list[str]:
    window = Window.of_days(days, NOW)
    return [
        row.chain.chain_id
        for row in chain_list(store, user, window, page, all_states=all_states).rows
    ]


def test_active_chains_come_first_and_old_ones_not_at_all(store: SqlStore) -> None:
    found = chain_list(store, None, Window.of_days(2, NOW), 1, all_states=True)
    assert (found.total, found.page, found.pages, len(found.rows)) == (PER_PAGE + 4, 1, 2, PER_PAGE)
    assert ids(store, None)[0] == "c004"
    assert ids(store, None, 2)[-3:] == ["c000", "c001", "c002"]
    assert ids(store, None, 99) == ids(store, None, 2)
    assert ids(store, None, days=1)[0] == "c004"
    assert "c003" not in ids(store, None, 2)
    assert "c001" not in ids(store, "bea", all_states=False)
    assert {chain_id for chain_id in ids(store, "ada") if int(chain_id[1:]) % 2} == set()


def test_chains_that_ended_badly_lately_are_shown_with_the_active_ones(store: SqlStore) -> None:
    for name, state, days in (
        ("bad", "failed", 2),
        ("lost", "used-up", 1),
        ("oldbad", "failed", 4),
        ("off", "cancelled", 1),
    ):
        store.save_chain(
            Chain(
                chain_id=name,
                user="zoe",
                segments=2,
                state=ChainState(state),
                updated_s=NOW - days * 24 * H,
            )
        )
    assert set(ids(store, "zoe", all_states=False, days=7)) == {"bad", "lost"}
    dismissed = Dismissed(now_s=lambda: NOW)
    bad = store.chain("zoe", "bad")
    assert bad
    dismissed.add(bad)
    window = Window.of_days(7, NOW)
    for all_states, chains in ((False, {"lost"}), (True, {"bad", "lost", "oldbad", "off"})):
        found = chain_list(store, "zoe", window, 1, all_states=all_states, dismissed=dismissed)
        assert {row.chain.chain_id for row in found.rows} == chains
    (lost,) = chain_list(store, "zoe", window, 1, all_states=False, dismissed=dismissed).rows
    assert not lost.is_alarm, "used up is no red alarm"
    assert not dismissed.has(replace(bad, updated_s=NOW + 1)), "it went on and ended again"


def test_the_replicas_of_a_service_are_one_row() -> None:
    store = SqlStore.open("sqlite://")
    for number in (2, 1, 3):
        user = "bea" if number == 3 else "ada"
        chain = replace(CHAIN, chain_id=f"r{number}", user=user, service="llm", replica=number)
        store.save_chain(replace(chain, mode=Mode.SERVICE, created_s=NOW - number))
        store.save_link(replace(link(1, -3, None), chain_id=f"r{number}", user=user, job_id=number))
    found = chain_list(store, None, Window.of_days(2, NOW), 1, all_states=True)
    assert found.total == 2
    (ada,) = [row for row in found.rows if row.chain.user == "ada"]
    assert [row.chain.chain_id for row in ada.replicas] == ["r1", "r2"]
    assert ada.service.startswith("2 of 2 replicas ready")


def test_a_list_is_read_page_by_page() -> None:
    assert paged([], 3) == (1, 1, [])
    assert paged(range(120), 3) == (3, 3, range(100, 120))
    assert paged(range(120), -5)[0] == 1


def test_waiting_links_with_their_last_decision(store: SqlStore) -> None:
    for minutes in (30, 20, 10):
        at_s = NOW - 60 * minutes
        store.add_decision(
            Decision(
                at_s=at_s,
                chain_id="c005",
                user="bea",
                predecessor_id=511,
                successor_id=512,
                policy="timer",
                action=Action.WAIT,
                reason=f"{minutes} min ago",
                inputs_hash="0" * 64,
            )
        )
    page, pages, found = waiting_list(store, "bea", 1, NOW)
    assert (page, pages) == (1, 1)
    assert {waiting.link.segment for waiting in found} == {2}
    told = {waiting.chain.chain_id: waiting.verdict for waiting in found}
    assert (told["c005"] and told["c005"].reason, told["c007"]) == ("10 min ago", None)
    assert "c001" not in told


def test_verdicts_speak_of_what_is_done() -> None:
    decided = Decision(
        at_s=NOW,
        chain_id="c",
        user="ada",
        predecessor_id=1,
        successor_id=2,
        policy="quantile",
        action=Action.RELEASE,
        reason="why",
        inputs_hash="0" * 64,
        remaining_s=4 * H,
        wait_p10_s=H,
        wait_p50_s=2 * H,
        wait_p90_s=6 * H,
    )
    free = verdict(decided)
    assert (free.words, free.restraint, free.reason) == ("Releases it", None, "why")
    assert free.x(free.axis_s) == 100
    assert free.x(6 * H) > free.x(4 * H) > free.x(2 * H) > free.x(H)
    held = verdict(
        replace(decided, reason="[observe: this service only observes] why", wait_p50_s=None)
    )
    assert held.words == "Would release it"
    assert held.restraint is not None
    assert held.restraint.code is Code.OBSERVE
    assert (held.reason, held.axis_s) == ("why", 0)


def test_a_link_that_made_room_has_handed_over() -> None:
    links = [link(1, -8, -2), link(2, -2.5, None)]
    assert handoffs(links)[0].cut_short_s == 4 * H
    store = SqlStore.open("sqlite://")
    assert [row.state for row in link_rows(store, CHAIN, links, WINDOW)] == [
        "handed over",
        "running",
    ]


@pytest.mark.parametrize(
    ("ready_h", "limit_h", "state", "said"),
    [
        (-2.5, 6, JobState.FAILED, "handed over"),  # a server that ends by SIGTERM at its limit
        (-2.5, 6, JobState.TIMEOUT, "timeout"),
        (-1, 9, JobState.FAILED, "failed"),  # it failed before the next one was ready
    ],
)
def test_a_services_link_hands_over_once_the_next_one_is_ready(
    ready_h: float, limit_h: int, state: JobState, said: str
) -> None:
    first = replace(link(1, -8, -2), time_limit_s=limit_h * H, state=state, exit_code=143)
    first = replace(first, ready_s=(first.start_s or 0) + 60)
    second = replace(link(2, -3, None), ready_s=int(NOW + ready_h * H))
    chain = replace(CHAIN, mode=Mode.SERVICE)
    rows = link_rows(SqlStore.open("sqlite://"), chain, [first, second], WINDOW)
    assert [row.state for row in rows] == [said, "running"]


# --- the queue


def test_the_queue_by_partition() -> None:
    def job(
        job_id: int,
        partition: str,
        reason: str = "",
        *,
        priority: int = 0,
        nodes: int = 1,
        user: str = "ada",
    ) -> Job:
        state = JobState.PENDING if reason else JobState.RUNNING
        known = Job(
            job_id=job_id,
            user=user,
            partition=partition,
            state=state,
            nodes=nodes,
            submit_s=NOW - 2 * H,
            time_limit_s=H,
            reason=reason,
            priority=priority,
        )
        if not reason:
            return replace(known, eligible_s=NOW - 2 * H, start_s=NOW - 2 * H + job_id)
        return replace(known, eligible_s=None if reason == "Dependency" else NOW - job_id)

    jobs = (
        job(1, "gpu"),
        job(3, "gpu"),
        job(5, "gpu,cpu", "Priority", priority=5, nodes=4),
        job(6, "gpu", "Resources", priority=9, user="bea"),
        job(7, "gpu", "Priority", priority=5, user="bea"),
        job(8, "gpu", "Dependency", priority=9),
    )
    nodes = (
        ClusterNode(name="a", partitions=("gpu",), up=True, idle=False),
        ClusterNode(name="b", partitions=("gpu", "cpu"), up=True, idle=True),
        ClusterNode(name="c", partitions=("gpu",), up=False, idle=False),
    )
    found = digest(Snapshot(at_s=NOW, jobs=jobs, nodes=nodes))
    assert (found.nodes, found.up, found.idle, found.running, found.pending) == (3, 2, 1, 2, 4)
    cpu, gpu = found.partitions
    assert (cpu.name, cpu.nodes, cpu.idle, cpu.queueing, cpu.queueing_nodes) == ("cpu", 1, 1, 1, 4)
    assert (gpu.nodes, gpu.up, gpu.idle, gpu.running, gpu.queueing, gpu.queueing_nodes) == (
        3,
        2,
        1,
        2,
        3,
        6,
    )
    assert (gpu.kept_back, gpu.longest_s, gpu.typical_s, cpu.typical_s) == (1, 7, 2, None)
    assert cpu.new_job_s is not None  # of its pool, which has the jobs of gpu
    learned: Any = SameWait(500.0)
    told = digest(Snapshot(at_s=NOW, jobs=jobs, nodes=nodes), learned).partitions
    assert [row.new_job_s for row in told] == [pytest.approx((500, 500))] * 2
    assert [job.job_id for job in found.jobs("bea")] == [6, 7]
    assert [job.job_id for job in found.jobs("ada")] == [1, 3, 5, 8]
    assert [job.job_id for job in found.jobs(None)] == [1, 3, 6, 5, 7, 8]
    assert found.jobs("nobody") == ()
    assert [found.ahead(job) for job in jobs] == [None, None, 1, 0, 1, None]
