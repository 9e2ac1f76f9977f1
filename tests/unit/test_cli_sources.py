"""What `mirage status` takes over from an agent's store."""

from __future__ import annotations

import pytest

from mirage.cli.sources import _copy
from mirage.domain import JobState, Outcome
from mirage.store.repository import SqlStore
from tests.unit.test_store import a_chain, a_decision, a_link

OVER, WAITING = 11, 12


@pytest.mark.parametrize(("asked", "copied"), [(None, [WAITING]), (WAITING, [WAITING]), (OVER, [OVER, WAITING])])
def test_decisions_on_links_that_are_over_come_only_where_they_are_asked_for(
    asked: int | None, copied: list[int]
) -> None:
    """A year of them would be read for nothing."""
    with SqlStore.open("sqlite://") as source, SqlStore.open("sqlite://") as target:
        source.save_chain(a_chain())
        source.save_link(a_link(OVER, state=JobState.COMPLETED))
        source.save_link(a_link(WAITING, state=JobState.PENDING, segment=2))
        for job_id in (OVER, WAITING):
            source.add_decision(a_decision(job_id, at_s=1000))
            source.close_intent(source.open_intent(a_decision(job_id, at_s=2000), 2000), Outcome.RELEASED, "", 2001)
        _copy(source, target, asked)
        assert target.chains() == source.chains()
        assert target.links("alice", "c1") == source.links("alice", "c1")
        there = [job_id for job_id in (OVER, WAITING) if target.decisions(job_id, limit=10)]
        assert there == copied
        for job_id in copied:
            assert target.decisions(job_id, limit=10) == source.decisions(job_id, limit=10)
            assert [it.outcome for it in target.intents(job_id)] == [Outcome.RELEASED]
