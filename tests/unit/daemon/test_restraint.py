"""What the service may do: modes, allow-lists, the disable file, the rate, stale data."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from mirage.chain.tag import ChainTag, format_tag
from mirage.daemon.audit import Audit
from mirage.daemon.execute import Executor
from mirage.daemon.observers import Observer
from mirage.daemon.report import chain_reports, explain
from mirage.daemon.restraint import Acting, Code, Restraint, restraint_in
from mirage.daemon.tick import Grounds, Release
from mirage.domain import (
    ActingMode,
    Action,
    ChainState,
    Decision,
    Job,
    JobState,
    Mode,
    Penalties,
    ReleaseOutcome,
)
from mirage.errors import ClusterUnavailable
from mirage.provision.policies.heuristics import Reactive, Timer
from mirage.slurm.simulated import SimulatedClock
from mirage.store.journal import Journal, read_journal
from mirage.store.repository import SqlStore
from tests.unit.daemon.test_app import HOUR, World

ENFORCE = Acting(mode=ActingMode.ENFORCE)
JOB = Job(
    job_id=2,
    user="alice",
    partition="gpu",
    state=JobState.PENDING,
    nodes=1,
    submit_s=0,
    account="research",
)


def audit(folder: Path, mode: ActingMode = ActingMode.ENFORCE) -> Audit:
    return Audit(
        Journal(path=folder / "audit.jsonl", max_bytes=1 << 20, max_age_s=86_400 * 365, keep=3),
        mode,
        lambda: {"folder": "m", "version": "v1"},
    )


def records(folder: Path, kind: str) -> list[dict]:
    return [each for each in read_journal(folder / "audit.jsonl") if each["kind"] == kind]


@pytest.mark.parametrize("mode", [ActingMode.OBSERVE, ActingMode.ADVISE])
def test_a_service_that_may_not_act_decides_and_slurm_carries_the_chain(tmp_path, mode):
    world = World()
    world.restart(acting=Acting(mode=mode), observers=(audit(tmp_path, mode),))
    world.cycles(40)
    assert world.store.newest_intents(10) == []
    assert world.store.link_of_job(world.second).released_s is None
    assert world.sim.job(world.second).start_s >= world.sim.job(world.first).end_s
    assert world.chain.state is ChainState.USED_UP
    decided = records(tmp_path, "decision")
    assert {record["action"] for record in decided} == {"wait", "release"}
    assert {(record["mode"], record["held_back"]) for record in decided} == {
        (mode.value, mode.value)
    }
    (handover,) = records(tmp_path, "handover")
    assert (handover["successor"], handover["released"]) == (world.second, None)


def told(world: World) -> tuple[str, str]:
    """What status and explain say of the successor."""
    (report,) = chain_reports(world.store, "alice")
    return report["next"], explain(world.store, "alice", world.second)["explanation"]


def test_status_tells_the_advice_only_of_a_service_that_advises():
    world = World()
    for mode in (ActingMode.OBSERVE, ActingMode.ADVISE):
        world.restart(acting=Acting(mode=mode))
        if mode is ActingMode.OBSERVE:
            world.cycles(7)
        world.cycles(1, step_s=1)
        status, asked = told(world)
        assert f"Slurm starts it after job {world.first} ends." in status
        assert f"Slurm starts it after job {world.first} ends." in asked
        assert ("let it into the queue now" in status) is (mode is ActingMode.ADVISE)
        assert ("scontrol update JobId=" in status) is (mode is ActingMode.ADVISE)
        assert "let it into the queue now" in asked
        assert chain_reports(world.store, "alice")[0]["acting"] == mode.value


def test_the_disable_file_stops_acting_and_its_removal_starts_it_again(tmp_path):
    world, file = World(), tmp_path / "disabled"
    world.restart(acting=replace(ENFORCE, disable_files=(file,)))
    file.touch()
    world.cycles(8)
    assert world.outcomes() == []
    assert f"since {file} exists" in told(world)[0]
    file.unlink()
    world.cycles(1)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def test_a_disable_file_that_comes_in_the_last_moment_counts(tmp_path, monkeypatch):
    world, file = World(), tmp_path / "disabled"
    world.restart(acting=replace(ENFORCE, disable_files=(file,)))
    world.cycles(6)
    opened = world.store.open_intent

    def open_intent(*args):
        file.touch()
        return opened(*args)

    monkeypatch.setattr(world.store, "open_intent", open_intent)
    world.cycles(2)
    assert world.outcomes() == [ReleaseOutcome.NOT_DONE]
    assert world.sim.job(world.second).dependency
    assert world.store.open_intents() == []


def test_a_disable_file_that_can_not_be_looked_for_counts_as_there(tmp_path):
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    assert replace(ENFORCE, disable_files=(loop / "disabled",)).disabled().code is Code.DISABLED
    assert replace(ENFORCE, disable_files=(tmp_path / "no" / "folder",)).disabled() is None
    link = tmp_path / "link"
    link.symlink_to("nowhere")
    assert replace(ENFORCE, disable_files=(link,)).disabled().code is Code.DISABLED


@pytest.mark.parametrize(
    ("allowed", "words"),
    [
        ({"partitions": frozenset({"cpu"})}, "partition gpu is not in acting.partitions"),
        ({"accounts": frozenset({"others"})}, "account research is not in acting.accounts"),
        ({"users": frozenset({"bob"})}, "user alice is not in acting.users"),
        (
            {
                "partitions": frozenset({"gpu"}),
                "accounts": frozenset({"research"}),
                "users": frozenset({"alice"}),
            },
            None,
        ),
    ],
)
def test_allow_lists(allowed, words):
    restraint = replace(ENFORCE, **allowed).standing(JOB)
    assert (restraint.words if restraint else None) == words


def test_a_job_of_several_partitions_needs_all_of_them_allowed():
    acting = replace(ENFORCE, partitions=frozenset({"gpu"}))
    assert (
        acting.standing(replace(JOB, partition="gpu,debug")).words
        == "partition debug is not in acting.partitions"
    )


def test_a_partition_that_changed_since_the_decision_is_respected(monkeypatch):
    world = World()
    world.restart(acting=replace(ENFORCE, partitions=frozenset({"gpu"})))
    world.cycles(6)
    known = world.cluster.jobs
    moved = lambda ids: {each: replace(job, partition="other") for each, job in known(ids).items()}  # noqa: E731
    monkeypatch.setattr(world.cluster, "jobs", moved)
    world.cycles(2)
    assert world.outcomes() == []
    assert world.sim.job(world.second).dependency


def intent_at(store: SqlStore, at_s: int) -> None:
    intent = store.open_intent(
        Decision(
            at_s=at_s,
            chain_id="c",
            user="u",
            predecessor_id=98,
            successor_id=99,
            policy="p",
            action=Action.RELEASE,
            reason="",
            inputs_hash="0" * 64,
        ),
        at_s,
    )
    store.close_intent(intent, ReleaseOutcome.RELEASED, "", at_s)


def test_the_rate_is_counted_in_the_store_so_that_a_restart_begins_no_new_minute():
    store, acting = SqlStore.open("sqlite://"), replace(ENFORCE, releases_per_minute=2)
    intent_at(store, 1000)
    assert acting.momentary(1010, 1010, acting.recent(1010, store)) is None
    intent_at(store, 1005)
    assert acting.momentary(1010, 1010, acting.recent(1010, store)).code is Code.RATE
    assert acting.momentary(1060, 1060, acting.recent(1060, store)) is None
    assert acting.momentary(100, 100, acting.recent(100, store)) is None, (
        "a clock that went back must not stop the service for hours"
    )


def test_at_its_rate_it_waits_for_the_next_cycle():
    world = World()
    world.restart(acting=replace(ENFORCE, releases_per_minute=1))
    world.cycles(6)
    intent_at(world.store, world.sim.now_s - 30)
    world.cycles(1, step_s=60)
    assert world.outcomes() == [], "somebody else's release was 30 s ago"
    assert "1 releases in the last minute" in told(world)[0]
    world.cycles(1)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def two_due() -> list[Release]:
    tag = ChainTag(
        chain_id="chain1",
        segment=2,
        segments=2,
        predecessor_id=1,
        mode=Mode.TRAIN,
        penalties=Penalties(),
    )
    grounds = Grounds(
        successor=replace(JOB, comment=format_tag(tag)),
        penalty_now_s=None,
        penalty_later_s=None,
        baseline={},
    )
    decision = Decision(
        at_s=0,
        chain_id="chain1",
        user="alice",
        predecessor_id=1,
        successor_id=2,
        policy="p",
        action=Action.RELEASE,
        reason="",
        inputs_hash="0" * 64,
    )
    return [
        Release(replace(decision, successor_id=each, remaining_s=left), grounds)
        for each, left in ((2, 900), (3, 60))
    ]


def executor(world: World, log: Observer | None) -> Executor:
    return Executor(
        cluster=world.cluster,
        store=world.store,
        clock=SimulatedClock(world.sim),
        acting=ENFORCE,
        observers=(log,) if log else (),
    )


def test_whose_predecessor_ends_first_is_released_first(monkeypatch):
    asked = []

    def release(decision, *_):
        asked.append(decision.successor_id)
        return ReleaseOutcome.RELEASED, ""

    monkeypatch.setattr("mirage.daemon.execute.act.release", release)
    world = World()
    executor(world, None).carry_out(two_due(), world.sim.now_s)
    assert asked == [3, 2]
    begun = []

    class Before(Observer):
        def release_begins(self, job: Job) -> None:
            begun.append((job.job_id, len(asked)))

    executor(world, Before()).carry_out(two_due(), world.sim.now_s)
    assert [count for _, count in begun] == [2, 3]  # each before its own release


def test_what_comes_after_a_release_without_answer_is_written_down_and_not_tried(
    monkeypatch, tmp_path
):
    def release(*_):
        raise ClusterUnavailable("no answer")

    monkeypatch.setattr("mirage.daemon.execute.act.release", release)
    world = World()
    with pytest.raises(ClusterUnavailable):
        executor(world, audit(tmp_path)).carry_out(two_due(), world.sim.now_s)
    assert [(each["successor"], each["held_back"]) for each in records(tmp_path, "decision")] == [
        (3, None),
        (2, "no-answer"),
    ]
    assert [each["outcome"] for each in records(tmp_path, "outcome")] == ["unknown"]


@pytest.mark.parametrize("age_s", [301, -1])
def test_nothing_is_acted_on_that_was_seen_too_long_ago(age_s):
    restraint = ENFORCE.momentary(5000, 5000 + age_s, Counter())
    assert restraint.code is Code.STALE


def test_a_slow_policy_makes_the_snapshot_old_and_nothing_is_done(monkeypatch):
    world = World()
    world.cycles(6)
    snapshot = world.cluster.snapshot

    def slow():
        found = snapshot()
        return replace(found, at_s=found.at_s - 400)

    monkeypatch.setattr(world.cluster, "snapshot", slow)
    world.cycles(2)
    assert world.outcomes() == []
    assert "was read 400 s ago" in told(world)[0]


def test_a_reason_is_marked_and_taken_apart_again():
    mark = Restraint(Code.DISABLED, "/etc/a]b exists")
    restraint, reason = restraint_in(f"{mark} 20 jobs [stale: x] waited")
    assert (restraint.code, restraint.words, reason) == (
        Code.DISABLED,
        "/etc/a)b exists",
        "20 jobs [stale: x] waited",
    )
    assert restraint_in("[stale: old] because") == (None, "[stale: old] because")


# --- the audit log
# ----------------------------------------------------------------------------------------------------


def test_every_decision_its_outcome_and_the_handover_are_in_the_audit_log(tmp_path):
    world = World()
    world.restart(observers=(audit(tmp_path),), baselines=(Reactive(), Timer(2 * HOUR)))
    world.cycles(40)
    decided = records(tmp_path, "decision")
    assert [record["action"] for record in decided] == ["wait"] * 6 + ["release"]
    last = decided[-1]
    assert (last["policy"], last["model"]["version"], last["held_back"]) == ("timer", "v1", None)
    assert last["baseline"] == {"reactive": "wait", "timer": "release"}
    assert (last["user"], last["predecessor"], last["successor"]) == (
        "alice",
        world.first,
        world.second,
    )
    assert len(last["inputs_sha256"]) == 64
    (outcome,) = records(tmp_path, "outcome")
    assert (outcome["outcome"], outcome["decided"]) == ("released", last["at"])
    (handover,) = records(tmp_path, "handover")
    first, second = world.sim.job(world.first), world.sim.job(world.second)
    assert (handover["entered"], handover["started"]) == (handover["released"], second.start_s)
    assert handover["overlap_s"] == first.end_s - second.start_s
    assert oct((tmp_path / "audit.jsonl").stat().st_mode)[-3:] == "600"


def test_what_can_not_be_written_down_is_not_done_and_the_loop_goes_on(tmp_path, caplog):
    world = World()
    blocked = tmp_path / "folder" / "audit.jsonl"
    blocked.mkdir(parents=True)
    journal = Journal(path=blocked, max_bytes=1 << 20, max_age_s=86_400, keep=3)
    world.restart(observers=(Audit(journal, ActingMode.ENFORCE),))
    world.cycles(8)
    assert world.outcomes() == []
    assert "can't be written" in told(world)[0]
    assert "Audit log" in caplog.text
    blocked.rmdir()
    world.cycles(1)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def test_an_act_that_fails_is_in_the_audit_log_as_unknown(tmp_path, monkeypatch):
    world = World()
    world.restart(observers=(audit(tmp_path),))
    world.cycles(6)

    def down(ids):
        raise ClusterUnavailable("no answer")

    monkeypatch.setattr(world.cluster, "jobs", down)
    world.cycles(2)
    assert {record["outcome"] for record in records(tmp_path, "outcome")} == {"unknown"}


def journal(folder: Path, **more: int) -> Journal:
    return Journal(
        path=folder / "log" / "audit.jsonl",
        **{"max_bytes": 1 << 20, "max_age_s": 1 << 40, "keep": 2, **more},
    )


def test_a_journal_rotates_by_size_and_keeps_so_many(tmp_path):
    log = journal(tmp_path, max_bytes=100)
    for number in range(12):
        log.append([{"at": 1_700_000_000, "kind": "x", "number": number, "pad": "y" * 40}])
    assert len(list(log.path.parent.iterdir())) == 3
    numbers = [record["number"] for record in read_journal(log.path)]
    assert numbers == list(range(numbers[0], 12))


def test_a_journal_rotates_by_the_age_of_its_first_record(tmp_path):
    log = journal(tmp_path, max_age_s=100)
    for at_s in (1000, 1050, 1101, 1150, 1250):
        log.append([{"at": at_s}])
    assert [record["at"] for record in read_journal(log.path)] == [1000, 1050, 1101, 1150, 1250]
    assert len(list(log.path.parent.iterdir())) == 3


def test_a_journal_that_rotates_while_it_is_read_is_read_in_whole(tmp_path):
    log = journal(tmp_path, max_bytes=100)
    for number in range(6):
        log.append([{"at": 1_700_000_000, "number": number, "pad": "y" * 40}])
    reader = read_journal(log.path)
    found = [next(reader)]
    there = {name.name for name in log.path.parent.iterdir()}
    log.append([{"at": 1_700_000_000, "number": 6, "pad": "y" * 40}])
    assert {name.name for name in log.path.parent.iterdir()} != there, "it has rotated"
    numbers = [record["number"] for record in [*found, *reader]]
    assert numbers == list(range(numbers[0], 6))


def test_half_a_line_is_skipped_and_hurts_no_other(tmp_path):
    log = journal(tmp_path)
    log.append([{"at": 1}])
    with log.path.open("a") as file:
        file.write('{"at": 2, "cut')
    log.append([{"at": 3}])
    assert [record and record["at"] for record in read_journal(log.path)] == [1, None, 3]


def test_a_write_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    log = journal(tmp_path)
    log.append([{"at": 1}])
    before = log.path.read_bytes()

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("mirage.store.journal.os.fsync", full)
    with pytest.raises(Exception, match="No space left on device"):
        log.append([{"at": 2}])
    assert log.path.read_bytes() == before
    assert json.loads(before) == {"at": 1}


def test_a_bound_of_links_that_compete() -> None:
    acting = Acting(mode=ActingMode.ENFORCE, most_ahead=2, disable_files=())
    assert acting.standing(JOB, 1) is None
    restraint = acting.standing(JOB, 2)
    assert restraint is not None
    assert restraint.code is Code.AHEAD
    assert restraint_in(f"{restraint} why") == (restraint, "why")
    assert "2 links of this chain compete for" in restraint.words
    one = Acting(mode=ActingMode.ENFORCE, most_ahead=1, disable_files=()).standing(JOB, 1)
    assert one is not None
    assert "1 link of this chain competes for" in one.words
