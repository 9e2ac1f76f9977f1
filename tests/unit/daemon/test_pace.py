"""When a service looks next, and what it says of links that are too short for that."""

from __future__ import annotations

import logging
import os
from dataclasses import replace

import pytest

from mirage.chain.tag import ChainTag, format_tag
from mirage.daemon.pace import NewChains, Pace
from mirage.domain import Job, JobState, Mode, Penalties, Snapshot

TAG = ChainTag(
    chain_id="abcdef12",
    segment=1,
    segments=3,
    predecessor_id=None,
    mode=Mode.TRAIN,
    penalties=Penalties(),
)


def job(job_id: int, limit_s: int | None, user: str = "alice") -> Job:
    return Job(
        job_id=job_id,
        user=user,
        partition="gpu",
        state=JobState.RUNNING,
        nodes=1,
        submit_s=0,
        time_limit_s=limit_s,
        comment=format_tag(TAG),
    )


def shown(*jobs: Job) -> Snapshot:
    return Snapshot(at_s=0, jobs=jobs, nodes=())


@pytest.mark.parametrize(
    ("limits_s", "every_s"),
    [((), 600), ((None,), 600), ((48 * 3600,), 600), ((3600, 1800), 90), ((240,), 12), ((60,), 10)],
)
def test_an_agent_looks_as_often_as_its_shortest_link_needs(limits_s, every_s):
    pace = Pace(600, "alice")
    others = job(99, 60, "bob"), replace(job(98, 60), comment="")
    pace.look(shown(*others, *(job(n, limit_s) for n, limit_s in enumerate(limits_s, start=1))))
    assert pace.poll_s == every_s
    pace.look(shown(*others))
    assert pace.poll_s == 600


def test_who_looks_more_often_than_that_keeps_to_it():
    pace = Pace(5, "alice")
    pace.look(shown(job(1, 60)))
    assert pace.poll_s == 5


def test_links_that_are_too_short_are_said_once(caplog):
    caplog.set_level(logging.WARNING)
    daemon = Pace(600, None)
    for _ in range(3):
        daemon.look(shown(job(1, 1800)))
    assert daemon.poll_s == 600, "a daemon's look is for all users"
    assert [record.message for record in caplog.records] == [
        "links of 30 min are short for a look every 10 min: the next one may be let in up to 10"
        " min late"
    ]
    caplog.clear()
    agent = Pace(600, "alice")
    agent.look(shown(job(1, 240)))
    assert not caplog.records
    agent.look(shown(job(1, 120)))
    assert "links of 2 min are short for a look every 10 s" in caplog.text


def test_a_new_chain_makes_two_looks_due(tmp_path):
    """Its folder is there before its jobs are."""
    folder = tmp_path / "chains"
    is_due = NewChains(folder)
    assert not is_due()
    folder.mkdir()
    assert [is_due() for _ in range(4)] == [True, True, False, False]
    os.utime(folder, ns=(1, 1))
    assert is_due()
