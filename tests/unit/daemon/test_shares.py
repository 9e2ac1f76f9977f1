"""No user takes the site's releases, or fills the store: shares within the rate, one chain a job, a
bound on chains.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import pytest

from mirage.chain.tag import ChainTag, format_tag
from mirage.config import ActingConfig
from mirage.daemon import act
from mirage.daemon.chain_quota import ChainQuota
from mirage.daemon.execute import MOST_TIMES, in_turn
from mirage.daemon.report import explain
from mirage.daemon.restraint import Acting, Code
from mirage.daemon.socket import Source, ask, serving
from mirage.daemon.tick import Grounds, Release
from mirage.doctor.finding import Severity
from mirage.doctor.service import check_intake
from mirage.domain import (
    ActingMode,
    Action,
    Decision,
    Job,
    JobState,
    Mode,
    Penalties,
    ReleaseOutcome,
    Snapshot,
)
from mirage.errors import InputError
from mirage.store.repository import SqlStore
from slurm_sim.jobs import JobSpec
from slurm_sim.seconds import HOUR_S
from tests.unit.daemon.test_app import HOUR, World

ENFORCE = Acting(mode=ActingMode.ENFORCE, releases_per_minute=4)


def due(user: str, successor: int, remaining_s: int = 60) -> Release:
    decision = Decision(
        at_s=0,
        chain_id="chain1",
        user=user,
        predecessor_id=1,
        successor_id=successor,
        policy="p",
        action=Action.RELEASE,
        reason="",
        inputs_hash="0" * 64,
        remaining_s=remaining_s,
    )
    return Release(
        decision,
        Grounds(
            successor=Job(
                job_id=successor,
                user=user,
                partition="gpu",
                state=JobState.PENDING,
                nodes=1,
                submit_s=0,
            ),
            penalty_now_s=None,
            penalty_later_s=None,
            baseline={},
        ),
    )


def order(*releases: tuple[Release, int], **recent: int) -> list[int]:
    return [each.decision.successor_id for each in in_turn(releases, Counter(recent))]


def test_users_take_turns_within_a_cycle() -> None:
    bobs = [(due("bob", number, number), 0) for number in range(1, 5)]
    assert order(*bobs, (due("alice", 9, 500), 0)) == [1, 9, 2, 3, 4]
    assert order(*bobs, (due("alice", 9, 500), 0), bob=1) == [9, 1, 2, 3, 4]
    assert order((due("bob", 1), 1), (due("alice", 9, 500), 0), (due("bob", 2, 90), 0)) == [2, 9, 1]


def released_of(
    store: SqlStore, user: str, count: int, at_s: int = 1000, successor: int = 99
) -> None:
    for _ in range(count):
        decision = Decision(
            at_s=at_s,
            chain_id="c",
            user=user,
            predecessor_id=98,
            successor_id=successor,
            policy="p",
            action=Action.RELEASE,
            reason="",
            inputs_hash="0" * 64,
        )
        store.close_intent(store.open_intent(decision, at_s), ReleaseOutcome.RELEASED, "", at_s)


def test_a_user_leaves_releases_to_those_who_wait() -> None:
    store = SqlStore.open("sqlite://")
    released_of(store, "bob", 3)
    assert ENFORCE.momentary(1010, 1010, ENFORCE.recent(1010, store), "bob", {"bob"}) is None, (
        "an idle site's user may use all"
    )
    restraint = ENFORCE.momentary(1010, 1010, ENFORCE.recent(1010, store), "bob", {"alice", "bob"})
    assert restraint
    assert restraint.code is Code.RATE
    assert (
        ENFORCE.momentary(1010, 1010, ENFORCE.recent(1010, store), "alice", {"alice", "bob"})
        is None
    )
    released_of(store, "alice", 1)
    assert ENFORCE.momentary(1010, 1010, ENFORCE.recent(1010, store), "alice", {"alice"}), (
        "the site's rate holds for all"
    )


def test_no_more_than_half_is_left_to_others() -> None:
    store = SqlStore.open("sqlite://")
    released_of(store, "bob", 1)
    others = {f"user{number}" for number in range(20)}
    assert ENFORCE.momentary(1010, 1010, ENFORCE.recent(1010, store), "bob", others) is None
    released_of(store, "bob", 1)
    assert ENFORCE.momentary(1010, 1010, ENFORCE.recent(1010, store), "bob", others)


def test_the_log_names_who_takes_the_rate(caplog: pytest.LogCaptureFixture) -> None:
    world = World()
    world.restart(acting=replace(ENFORCE, releases_per_minute=2))
    world.cycles(6)
    released_of(world.store, "bob", 2, at_s=world.sim.now_s - 30)
    world.cycles(1, step_s=60)
    assert world.outcomes() == []
    assert "user bob had 2 of the last minute's 2 releases" in caplog.text


# --- a job that is made to wait again and again


def test_who_makes_a_job_wait_again_keeps_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    store = SqlStore.open("sqlite://")
    job = Job(job_id=99, user="bob", partition="gpu", state=JobState.PENDING, nodes=1, submit_s=900)
    released_of(store, "bob", 1, at_s=800)
    assert act.times_let_in(job, store) == 0, "another job that had this id"
    released_of(store, "bob", MOST_TIMES)
    assert act.times_let_in(job, store) == MOST_TIMES

    world = World()
    world.cycles(6)
    monkeypatch.setattr(
        act, "times_let_in", lambda job, _store: MOST_TIMES if job.job_id == world.second else 0
    )
    world.cycles(1)
    assert world.outcomes() == []
    told = explain(world.store, "alice", world.second)
    assert told["acting"] == "set-again"
    assert "its owner made it wait again" in told["explanation"]
    assert (
        "If Mirage stops" in told["explanation"] or "Slurm starts it after" in told["explanation"]
    )


def test_a_change_that_slurm_accepts_and_does_not_make_is_not_the_owners_doing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.cycles(6)
    monkeypatch.setattr(world.cluster, "release", lambda job_id: None)
    world.cycles(6, step_s=10)
    told = explain(world.store, "alice", world.second)
    assert told["acting"] == "no-effect"
    assert "accepted 3 releases within the hour, and it waits as before" in told["explanation"]
    assert len(world.outcomes()) == MOST_TIMES
    assert world.store.link_of_job(world.second).reason == "Dependency"
    job, now_s = world.cluster.snapshot().by_id[world.second], world.sim.now_s
    assert act.times_without_effect(job, world.store, now_s + HOUR_S) == 0, "then it is tried again"


def test_a_job_that_was_let_in_and_waits_again_is_not_said_to_queue() -> None:
    world = World()
    world.cycles(8)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]
    link = world.store.link_of_job(world.second)
    world.store.save_link(
        replace(link, state=JobState.PENDING, start_s=None, end_s=None, eligible_s=None)
    )
    assert (
        "was let into the queue by Mirage"
        in explain(world.store, "alice", world.second)["explanation"]
    )
    later = replace(
        world.store.decisions(world.second)[0], at_s=link.released_s + 5, action=Action.WAIT
    )
    world.store.add_decision(later)
    again = replace(
        link, state=JobState.PENDING, start_s=None, end_s=None, eligible_s=None, reason="Dependency"
    )
    world.store.save_link(replace(again, dependency=f"afterany:{world.first}(unfulfilled)"))
    assert "held back" in explain(world.store, "alice", world.second)["explanation"]


def test_a_link_has_one_successor_also_once_it_is_let_in() -> None:
    world = World()
    more = [world.submit(2, world.first) for _ in range(5)]
    world.cycles(10)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]
    assert [len(world.store.intents(job)) for job in more] == [0] * 5


# --- a job that changes its chain


def bobs_job(world: World, chain: str) -> int:
    return world.sim.submit(
        JobSpec(1, 2 * HOUR, None, user="bob", partition="gpu", comment=comment(chain))
    )


def comment(chain: str) -> str:
    return format_tag(
        ChainTag(
            chain_id=chain,
            segment=1,
            segments=2,
            predecessor_id=None,
            mode=Mode.TRAIN,
            penalties=Penalties(),
        )
    )


def shown_as(world: World, monkeypatch: pytest.MonkeyPatch, job_id: int, words: str) -> None:
    """Slurm shows this comment of a job."""
    cluster = type(world.cluster)

    def given(jobs: Iterable[Job]) -> tuple[Job, ...]:
        return tuple(replace(job, comment=words) if job.job_id == job_id else job for job in jobs)

    def snapshot() -> Snapshot:
        real = cluster.snapshot(world.cluster)
        return replace(real, jobs=given(real.jobs))

    def asked(job_ids: Collection[int]) -> dict[int, Job]:
        return {job.job_id: job for job in given(cluster.jobs(world.cluster, job_ids).values())}

    monkeypatch.setattr(world.cluster, "snapshot", snapshot)
    monkeypatch.setattr(world.cluster, "jobs", asked)


def test_a_job_is_in_one_chain_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    job = bobs_job(world, "shifty0")
    for number in range(6):
        shown_as(world, monkeypatch, job, comment(f"shifty{number}"))
        world.cycles(1, step_s=60)
        assert [chain.chain_id for chain in world.store.chains("bob")] == [f"shifty{number}"]
    shown_as(world, monkeypatch, job, "")
    world.cycles(1, step_s=60)
    shown_as(world, monkeypatch, job, comment("shifty9"))
    world.cycles(1, step_s=60)
    assert [chain.chain_id for chain in world.store.chains("bob")] == ["shifty9"]
    world.cycles(40)
    assert [chain.state.is_over for chain in world.store.chains("bob")] == [True], (
        "it ends with its job"
    )
    assert len(world.store.links("alice", "chain1")) == 2, "others' links stay"


def test_a_chain_that_loses_one_of_its_jobs_keeps_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = World()
    world.cycles(1)
    tag = ChainTag(
        chain_id="other1",
        segment=2,
        segments=2,
        predecessor_id=world.first,
        mode=Mode.TRAIN,
        penalties=Penalties(),
    )
    shown_as(world, monkeypatch, world.second, format_tag(tag))
    world.cycles(1)
    assert [link.job_id for link in world.store.links("alice", "chain1")] == [world.first]
    assert [link.job_id for link in world.store.links("alice", "other1")] == [world.second]


# --- how many chains


def test_new_chains_beyond_the_bound_are_left_to_slurm_for_an_hour(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    acting = Acting(mode=ActingMode.ENFORCE, chains_per_user_per_hour=3)
    quota = ChainQuota(3)
    world.restart(acting=acting, quota=quota)
    jobs = [bobs_job(world, f"chain{number}") for number in range(5)]
    with caplog.at_level(logging.WARNING):
        world.cycles(3, step_s=60)
    assert {chain.chain_id for chain in world.store.chains("bob")} == {"chain0", "chain1", "chain2"}
    assert world.chain is not None, "Alice's is watched"
    told = [
        record.getMessage()
        for record in caplog.records
        if "user bob has started" in record.getMessage()
    ]
    assert len(told) == 1
    assert quota.words("alice") == ""
    assert "2 chains are not watched yet: only 3 new ones" in quota.words("bob")
    assert "(bob: 2)" in quota.words(None)
    assert quota.explain("alice", jobs[4]) is None
    assert quota.explain("bob", jobs[4])["acting"] == "too-many-chains"  # type: ignore[index]
    assert quota.explain("bob", jobs[0]) is None
    world.restart(acting=acting)
    world.cycles(1, step_s=HOUR_S)
    assert len(world.store.chains("bob")) == 3, "a restart begins no new hour"
    world.cycles(1)
    assert len(world.store.chains("bob")) == 5


def test_the_daemon_tells_users_and_the_doctor(tmp_path: Path) -> None:
    quota = ChainQuota(1)
    jobs = tuple(
        Job(
            job_id=n,
            user="bob",
            partition="gpu",
            state=JobState.PENDING,
            nodes=1,
            submit_s=0,
            comment=comment(f"chain{n}"),
        )
        for n in (1, 2, 3)
    )
    store = SqlStore.open(f"sqlite:///{tmp_path}/m.db")
    quota.left_out(Snapshot(at_s=1000, jobs=jobs, nodes=()), store, 1000)
    path = tmp_path / "s"
    with serving(path, Source(store=store, quota=quota)):
        assert "(bob: 2)" in ask(path, {"ask": "chains", "chain": None})["notice"]
        assert "chain3 is not watched yet" in ask(path, {"ask": "explain", "job": 3})["explanation"]
        with pytest.raises(InputError, match="no link of a chain"):
            ask(path, {"ask": "explain", "job": 1})
        (found,) = check_intake(ActingConfig(), str(path))
    assert found.severity is Severity.WARNING
    assert found.what.startswith("1 new chains of a user")
    assert found.what.endswith("2 of bob")
    (found,) = check_intake(ActingConfig(), str(path))
    assert (found.severity, found.what.split()[0]) == (Severity.OK, "60")
