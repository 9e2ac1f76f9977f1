"""When a handover of a service becomes known: once, with its second time."""

from dataclasses import replace

from mirage.daemon.handover_log import HandoverLog
from mirage.domain import Chain, JobState, Link, Mode
from mirage.store.memory import MemoryStore

CHAIN = Chain(chain_id="c1", user="alice", segments=5, mode=Mode.SERVICE)
FIRST = Link(
    chain_id="c1",
    user="alice",
    segment=1,
    job_id=11,
    predecessor_id=None,
    state=JobState.RUNNING,
    partition="gpu",
    nodes=1,
    time_limit_s=3600,
    submit_s=0,
    start_s=0,
    ready_s=30,
)
NEXT = replace(FIRST, segment=2, job_id=12, predecessor_id=11, start_s=900, ready_s=0)


def told(*seen: Link, mode=Mode.SERVICE) -> list[list[int]]:
    """The interruptions that each of these sightings, one a cycle, makes known."""
    store, log, found = MemoryStore(), HandoverLog(), []
    store.save_chain(replace(CHAIN, mode=mode))
    for link in seen:
        log.note(store.link_of_job(link.job_id), link)
        store.save_link(link)
        found.append([handoff.interruption_s for handoff in log.handovers(store)])
        log = HandoverLog()
    return found


def test_it_is_known_as_the_next_link_is_ready_and_not_again_at_its_end():
    over = replace(FIRST, end_s=905)
    ready = replace(NEXT, ready_s=920)
    assert told(FIRST, over, NEXT, ready, replace(ready, end_s=2000)) == [[], [], [], [15], []]
    assert told(FIRST, NEXT, ready, over, replace(ready, end_s=2000)) == [[], [], [], [15], []]


def test_a_link_that_is_never_ready_makes_it_known_by_its_end():
    over = replace(FIRST, end_s=905)
    assert told(FIRST, over, NEXT, replace(NEXT, end_s=950)) == [[], [], [], [45]]


def test_a_training_chains_is_known_at_the_start():
    over, started = replace(FIRST, end_s=800), replace(NEXT, ready_s=None)
    ended = replace(started, end_s=2000)
    assert told(FIRST, over, started, ended, mode=Mode.TRAIN) == [[], [], [100], []]
