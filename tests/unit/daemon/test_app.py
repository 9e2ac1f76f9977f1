"""The whole service on the simulated cluster: the same code as on a real one, with its faults at a
switch.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import pytest

from mirage.chain.handoff import Handoff
from mirage.chain.tag import ChainTag, format_tag, parse_tag
from mirage.daemon import act
from mirage.daemon.cycle import Daemon
from mirage.daemon.metrics import Metrics
from mirage.daemon.observers import Observer
from mirage.daemon.report import chain_reports, explain
from mirage.daemon.restraint import Acting
from mirage.domain import (
    ActingMode,
    Action,
    ChainState,
    Decision,
    JobState,
    Mode,
    Penalties,
    ReleaseOutcome,
    Run,
)
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused, StoreError
from mirage.ports import Policy
from mirage.provision.policies.heuristics import Reactive, Timer
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from mirage.store.repository import SqlStore
from slurm_sim.config import Partition
from slurm_sim.jobs import JobSpec
from tests.sims import fast_simulator

HOUR = 3600
START = 1_700_000_000


@dataclass
class World:
    """Two nodes, a chain of Alice's with its first link running, and a service."""

    policy: Policy = field(default_factory=lambda: Timer(HOUR))
    segments: int = 2
    store: SqlStore = field(default_factory=lambda: SqlStore.open("sqlite://"))

    def __post_init__(self) -> None:
        nodes = ("n1", "n2")
        self.sim = fast_simulator(nodes, [Partition("gpu", nodes)], start_s=START)
        self.cluster = SimulatedCluster(self.sim, user="mirage", operator=True)
        self.first = self.submit(1, None)
        self.second = self.submit(2, self.first)
        self.sim.step(60)
        self.daemon = self.restart()

    def submit(
        self,
        segment: int,
        predecessor: int | None,
        runtime_s: int | None = None,
        exit_code: int = 0,
    ) -> int:
        tag = ChainTag(
            chain_id="chain1",
            segment=segment,
            segments=self.segments,
            predecessor_id=predecessor,
            mode=Mode.TRAIN,
            penalties=Penalties(),
        )
        dependency = f"afterany:{predecessor}" if predecessor else ""
        return self.sim.submit(
            JobSpec(
                1,
                2 * HOUR,
                runtime_s,
                user="alice",
                partition="gpu",
                comment=format_tag(tag),
                dependency=dependency,
                exit_code=exit_code,
            )
        )

    def live_between_two_cycles(self, exit_code: int = 0) -> tuple[int, int]:
        """The first two links end, then two more live, and slurmctld forgets them all. Their job
        ids.
        """
        self.sim.set_runtime_end(self.first, self.sim.now_s + 1)
        self.sim.step(5)
        third = self.submit(3, self.second, 20)
        self.sim.set_runtime_end(self.second, self.sim.now_s + 10)
        self.sim.step(20)
        fourth = self.submit(4, third, 20, exit_code)
        self.sim.step(600)
        return third, fourth

    def restart(self, **more: object) -> Daemon:
        clock = SimulatedClock(self.sim)
        more = {"acting": Acting(mode=ActingMode.ENFORCE), **more}
        self.daemon = Daemon(self.cluster, self.store, clock, self.policy, poll_s=600, **more)  # type: ignore[arg-type]
        return self.daemon

    def cycles(self, count: int = 1, step_s: int = 600) -> None:
        for _ in range(count):
            self.daemon.run_cycle()
            self.sim.step(step_s)

    def outcomes(self) -> list[ReleaseOutcome | None]:
        return [intent.outcome for intent in reversed(self.store.intents(self.second))]

    @property
    def chain(self):
        return self.store.chain("alice", "chain1")


@pytest.fixture
def world():
    return World()


def test_the_successor_is_let_in_once_an_hour_before_the_end(world):
    world.cycles(6)
    assert world.outcomes() == []
    world.cycles(2)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]
    link = world.store.link_of_job(world.second)
    started = world.sim.job(world.second).start_s
    assert abs(link.released_s - (START + HOUR)) < 700
    assert started < world.sim.job(world.first).start_s + 2 * HOUR
    world.cycles(40)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]
    assert world.chain.state is ChainState.USED_UP


def test_a_release_is_told_from_its_own_cycle_on(world):
    """The next look at the queue comes ten minutes later."""
    world.cycles(6)
    while not world.outcomes():
        world.cycles(1)
    text = explain(world.store, None, world.second)["explanation"]
    assert text.startswith(
        f"Job {world.second} (link 2) was let into the queue by Mirage's daemon and waits for"
        " nodes. Why then: it is to enter the queue 1 h before the end;"
    )


def test_every_decision_is_written_down_with_its_grounds(world):
    world.cycles(3)
    decisions = world.store.decisions(world.second)
    assert [decision.action for decision in decisions] == [Action.WAIT] * 3
    assert len({decision.inputs_hash for decision in decisions}) == 3


def test_with_the_reactive_policy_slurm_carries_the_chain(world):
    world.policy = Reactive()
    world.restart()
    world.cycles(40)
    assert world.outcomes() == []
    assert world.store.link_of_job(world.second).released_s is None
    assert world.chain.state is ChainState.USED_UP


def test_an_empty_queue_is_not_believed(world):
    world.cycles(2)
    world.cluster.empty_queue_answers = 3
    world.cycles(3, step_s=10)
    assert world.chain.state is ChainState.ACTIVE
    assert {link.state for link in world.store.open_links()} == {JobState.RUNNING, JobState.PENDING}


def test_while_slurm_is_down_nothing_happens_and_nothing_is_lost(world, caplog):
    world.cycles(5)
    world.cluster.down = True
    with caplog.at_level(logging.WARNING):
        assert world.daemon.run_cycle() is False
    assert "cycle skipped" in caplog.text
    world.sim.step(1200)
    assert world.chain.state is ChainState.ACTIVE
    world.cluster.down = False
    world.cycles(1)
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def test_without_accounting_it_says_so_and_goes_on(world, caplog):
    world.cluster.has_accounting = False
    with caplog.at_level(logging.WARNING):
        world.cycles(8)
    assert "accounting can't be read" in caplog.text
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


def test_a_chain_whose_end_nobody_saw_is_given_up_in_the_end(world):
    world.policy = Reactive()
    world.restart()
    world.cycles(2)
    world.cluster.has_accounting = False
    world.sim.step(6 * HOUR)
    world.cycles(3)
    assert world.chain.state is ChainState.ACTIVE
    world.sim.step(48 * HOUR)
    world.cycles(1)
    assert world.chain.state is ChainState.UNKNOWN


def test_links_that_lived_between_two_cycles_are_in_the_store_and_so_are_their_handovers():
    world = World(segments=9)
    metrics = Metrics("enforce", "timer")
    world.restart(observers=(metrics,))
    world.cycles(1, step_s=10)
    ids = world.live_between_two_cycles(exit_code=1)
    world.cycles(1)
    links = {link.segment: link for link in world.store.links("alice", "chain1")}
    assert [links[number].job_id for number in (3, 4)] == list(ids)
    assert (links[4].state, links[4].exit_code) == (JobState.FAILED, 1)
    assert (world.chain.state, world.chain.reason[:8]) == (ChainState.FAILED, "link 4 (")
    assert metrics.registry.get_sample_value("mirage_interruption_seconds_count") == 3


def test_a_link_that_was_skipped_is_found_while_the_chain_goes_on():
    world = World(segments=9)
    world.cycles(1, step_s=10)
    third, fourth = world.live_between_two_cycles()
    fifth = world.submit(5, fourth)
    world.sim.step(60)
    world.cycles(1)
    assert [link.job_id for link in world.store.links("alice", "chain1")][2:] == [
        third,
        fourth,
        fifth,
    ]
    assert world.chain.state is ChainState.ACTIVE


def test_one_question_to_accounting_finds_the_missing_links_of_all_chains(monkeypatch):
    world = World(segments=9)
    world.cycles(1, step_s=10)
    world.live_between_two_cycles()
    asked = []
    submissions = world.cluster.submissions
    monkeypatch.setattr(
        world.cluster, "submissions", lambda *args: asked.append(args) or submissions(*args)
    )
    world.cycles(3)
    assert [users for _since_s, _until_s, users in asked] == [{"alice"}]


def accounting_away(*_args):
    raise AccountingUnavailable


def test_a_chain_is_not_closed_on_what_accounting_could_still_correct(monkeypatch):
    world = World(segments=9)
    world.cycles(1, step_s=10)
    world.live_between_two_cycles(exit_code=1)
    monkeypatch.setattr(world.cluster, "submissions", accounting_away)
    world.cycles(2)
    assert world.chain.state is ChainState.ACTIVE
    monkeypatch.undo()
    world.cycles(1)
    assert world.chain.state is ChainState.FAILED


def test_without_accounting_a_chain_is_closed_after_a_day_on_what_is_known(monkeypatch):
    world = World(segments=9)
    world.cycles(1, step_s=10)
    world.live_between_two_cycles(exit_code=1)
    monkeypatch.setattr(world.cluster, "submissions", accounting_away)
    world.cycles(1)
    world.sim.step(24 * HOUR)
    world.cycles(1)
    assert (world.chain.state, world.chain.reason[:8]) == (ChainState.UNKNOWN, "link 2 c")


def test_a_record_that_runs_for_ever_does_not_keep_a_chain_open(monkeypatch):
    """A slurmctld that is killed while slurmdbd is away takes the end of a job with it (`sacctmgr
    show runaway`).
    """
    world = World()
    world.cycles(1, step_s=10)
    ends = world.cluster.accounting

    def without_the_first_end(*args):
        first = {"state": JobState.RUNNING, "end_s": None}
        return [replace(job, **first) if job.job_id == world.first else job for job in ends(*args)]

    world.sim.step(5 * HOUR)
    monkeypatch.setattr(world.cluster, "accounting", accounting_away)
    world.cycles(1)
    assert world.chain.state is ChainState.ACTIVE, "accounting may tell yet"
    monkeypatch.setattr(world.cluster, "accounting", without_the_first_end)
    world.cycles(1)
    assert (world.chain.state, world.chain.reason[:8]) == (ChainState.USED_UP, "link 2 (")


def test_a_last_link_whose_comment_nobody_kept_ends_its_chain_as_done():
    """It learnt that it is the last as it started, and ended before the next look."""
    world = World(segments=20)
    world.cycles(1)
    world.live_between_two_cycles()
    world.cycles(3)
    assert (world.chain.state, world.chain.segments) == (ChainState.DONE, 20)


def give_id_away(world, monkeypatch, job_id, **to):
    """slurmctld was killed, forgot this job, and gave its id to another one."""

    def given(jobs):
        return [replace(job, **to) if job.job_id == job_id else job for job in jobs]

    cluster = world.cluster
    snapshot, jobs, accounting = cluster.snapshot, cluster.jobs, cluster.accounting
    seen = lambda: replace(it := snapshot(), jobs=tuple(given(it.jobs)))  # noqa: E731
    monkeypatch.setattr(cluster, "snapshot", seen)
    asked = lambda ids: {job.job_id: job for job in given(jobs(ids).values())}  # noqa: E731
    monkeypatch.setattr(cluster, "jobs", asked)
    monkeypatch.setattr(cluster, "accounting", lambda *args: given(accounting(*args)))
    submissions = cluster.submissions
    monkeypatch.setattr(cluster, "submissions", lambda *args: given(submissions(*args)))


@pytest.mark.parametrize(
    "to",
    [
        {"user": "carol", "comment": "", "dependency": ""},
        {"comment": "", "submit_s": START + 90, "dependency": ""},
        {"comment": "mirage/1 chain=other1 seg=1/2 mode=train ei=1 eo=1", "dependency": ""},
    ],
    ids=["another user's", "a job of its owner", "a link of another chain"],
)
def test_a_lost_successor_whose_id_went_to_another_job_does_not_make_its_chain_done(
    monkeypatch, to
):
    world, told = World(segments=5), []
    observer = Observer()
    observer.links_lost = told.extend
    world.restart(observers=[observer])
    world.cycles(1, step_s=10)
    give_id_away(world, monkeypatch, world.second, **to)
    world.sim.set_runtime_end(world.first, world.sim.now_s + 10)
    world.sim.step(15)
    world.cycles(2)
    chain = world.store.chain("alice", "chain1")
    assert chain.state is ChainState.FAILED
    assert "link 2 is not in Slurm any more (to go on: mirage resume chain1)" in chain.reason
    assert [link.segment for link in world.store.links("alice", "chain1")] == [1]
    assert [link.segment for link in told] == ([] if "other1" in to["comment"] else [2])


@pytest.mark.parametrize("has_run", [False, True], ids=["waits", "was requeued"])
def test_a_waiting_link_that_slurm_does_not_show_for_a_while_is_not_lost(monkeypatch, has_run):
    """Answers may lack jobs for some minutes; a link that nobody knows for longer is."""
    world = World(segments=5)
    world.cycles(1, step_s=10)
    if has_run:
        times = {"submit_s": START, "eligible_s": START, "start_s": START, "end_s": START + 9}
        run = replace(world.store.link_of_job(world.second), **times, state=JobState.REQUEUED)
        run = Run._make(getattr(run, name) for name in Run._fields)
        world.store.save_link(replace(world.store.link_of_job(world.second), runs=(run,)))
    shown = world.cluster.snapshot

    def hidden(jobs):
        return [job for job in jobs if job.job_id != world.second]

    monkeypatch.setattr(
        world.cluster, "snapshot", lambda: replace(it := shown(), jobs=tuple(hidden(it.jobs)))
    )
    monkeypatch.setattr(world.cluster, "jobs", lambda ids: {})
    monkeypatch.setattr(world.cluster, "accounting", lambda *args: [])
    world.cycles(2)
    assert [link.segment for link in world.store.links("alice", "chain1")] == [1, 2]
    world.cycles(1)
    left = world.store.links("alice", "chain1")
    assert [link.segment for link in left] == ([1, 2] if has_run else [1])
    assert left[-1].is_over is has_run
    assert world.chain.reason == "link 2 is not in Slurm any more"


SERVICE = "mirage/1 chain=chain1 seg=1/2 mode=service ei=1 eo=1"


@pytest.mark.parametrize(("comment", "ready_s"), [("ready={}", 60), ("ready=0", None), ("", None)])
def test_when_a_link_was_ready_is_asked_of_accounting_once_slurmctld_has_forgotten(
    monkeypatch, comment, ready_s
):
    """The daemon was away from before the link was ready until after its end."""
    world = World()
    give_id_away(world, monkeypatch, world.first, comment=SERVICE)
    world.cycles(1, step_s=10)
    assert world.store.link_of_job(world.first).ready_s is None
    start_s = world.sim.job(world.first).start_s
    said = f"{SERVICE} {comment}".format(start_s + 60).strip()
    give_id_away(world, monkeypatch, world.first, comment=said)
    monkeypatch.setattr(world.cluster, "jobs", lambda ids: {})
    world.sim.set_runtime_end(world.first, world.sim.now_s + 600)
    world.sim.step(1200)
    world.cycles(1)
    link = world.store.link_of_job(world.first)
    assert link.end_s is not None
    assert link.ready_s == (ready_s and start_s + ready_s)


def test_a_link_that_says_that_it_is_the_last_one_ends_its_chain_well(monkeypatch):
    """It was done before it had queued a successor, which it could have cancelled."""
    world = World(segments=5)
    world.cycles(1, step_s=10)
    give_id_away(world, monkeypatch, world.second, user="carol", comment="", dependency="")
    world.sim.set_runtime_end(world.first, world.sim.now_s + 10)
    world.sim.step(15)
    last = "mirage/1 chain=chain1 seg=1/1 mode=train ei=1 eo=1"
    give_id_away(world, monkeypatch, world.first, comment=last)
    world.cycles(2)
    assert world.store.chain("alice", "chain1").state is ChainState.DONE


def test_a_release_that_was_cut_short_is_not_taken_for_done_by_another_jobs_start(monkeypatch):
    world = World()
    world.cycles(6)
    monkeypatch.setattr(world.cluster, "release", crash_in(world.cluster.release, after=True))
    with pytest.raises(CrashError):
        world.cycles(3)
    monkeypatch.undo()
    other = {"user": "carol", "comment": "", "dependency": "", "state": JobState.RUNNING}
    give_id_away(world, monkeypatch, world.second, **other, start_s=world.sim.now_s)
    world.restart()
    world.daemon.run_cycle()
    assert world.outcomes() == [ReleaseOutcome.NOT_DONE]


def test_accrue_always_is_noticed(world, caplog, monkeypatch):
    settings = replace(world.cluster.settings(), accrue_always=True)
    monkeypatch.setattr(world.cluster, "settings", lambda: settings)
    with caplog.at_level(logging.WARNING):
        world.cycles(2)
    assert caplog.text.count("ACCRUE_ALWAYS") == 1


def test_history_survives_a_restart_without_accounting(world, caplog):
    world.cycles(4)
    world.cluster.has_accounting = False
    world.restart()
    with caplog.at_level(logging.WARNING):
        world.cycles(1)
    assert "the store has 4 steps of history" in caplog.text


def test_an_agent_without_rights_over_others_is_refused_once_an_hour(world, caplog):
    world.cluster = world.cluster.as_user("bob")
    world.restart()
    with caplog.at_level(logging.WARNING):
        world.cycles(10)
    assert world.outcomes() == [ReleaseOutcome.REFUSED]
    assert "not tried again within the hour" in caplog.text


def test_a_user_filter_leaves_others_alone(world):
    world.restart(only_user="bob")
    world.cycles(8)
    assert world.chain is None
    assert world.outcomes() == []


# --- a crash at each point of a release
# -------------------------------------------------------------------------------


class CrashError(BaseException):
    """Stands for SIGKILL: nothing catches it."""


def crash_in(method, *, after: bool):
    def crashing(*args, **kwargs):
        if after:
            method(*args, **kwargs)
        raise CrashError

    return crashing


@pytest.mark.parametrize(
    ("port", "method", "after", "expected"),
    [
        ("store", "open_intent", False, [ReleaseOutcome.RELEASED]),
        ("store", "open_intent", True, [ReleaseOutcome.NOT_DONE, ReleaseOutcome.RELEASED]),
        ("cluster", "release", False, [ReleaseOutcome.NOT_DONE, ReleaseOutcome.RELEASED]),
        ("cluster", "release", True, [ReleaseOutcome.RELEASED]),
        ("store", "close_intent", False, [ReleaseOutcome.RELEASED]),
        ("store", "close_intent", True, [ReleaseOutcome.RELEASED]),
    ],
)
def test_a_crash_at_any_point_of_a_release(world, monkeypatch, port, method, after, expected):
    world.cycles(6)
    target = getattr(world, port)
    monkeypatch.setattr(target, method, crash_in(getattr(target, method), after=after))
    with pytest.raises(CrashError):
        world.cycles(3)
    monkeypatch.undo()
    world.restart()
    world.daemon.run_cycle()
    assert world.outcomes() == expected
    assert world.store.open_intents() == []
    assert world.store.link_of_job(world.second).released_s is not None
    assert len(world.sim.running()) + len(world.sim.pending()) == 2


def test_a_crash_before_the_act_that_is_noticed_after_the_end(world, monkeypatch):
    """Then Slurm let the successor in, and it must not be counted as Mirage's release."""
    world.cycles(6)
    monkeypatch.setattr(world.cluster, "release", crash_in(world.cluster.release, after=False))
    with pytest.raises(CrashError):
        world.cycles(3)
    monkeypatch.undo()
    world.sim.run_until(world.sim.job(world.first).limit_end_s + 120)
    world.restart()
    world.daemon.run_cycle()
    assert world.outcomes() == [ReleaseOutcome.ALREADY]
    assert world.store.link_of_job(world.second).released_s is None


def test_a_release_in_the_very_second_in_which_the_predecessor_ends(world, monkeypatch):
    """Slurm's own times are equal then; that the job became eligible as the release was under way
    decides.
    """
    world.cycles(6)
    monkeypatch.setattr(world.cluster, "release", crash_in(world.cluster.release, after=True))
    with pytest.raises(CrashError):
        world.cycles(3)
    monkeypatch.undo()
    world.sim.set_runtime_end(world.first, world.sim.now_s)
    world.sim.step(5)
    assert world.sim.job(world.first).end_s == world.sim.job(world.second).eligible_s
    world.restart()
    world.daemon.run_cycle()
    assert world.outcomes() == [ReleaseOutcome.RELEASED]


# --- act, step by step
# ------------------------------------------------------------------------------------------------


def decide(world) -> tuple[Decision, ChainTag]:
    tag = parse_tag(world.sim.job(world.second).spec.comment)
    decision = Decision(
        at_s=world.sim.now_s,
        chain_id="chain1",
        user="alice",
        predecessor_id=world.first,
        successor_id=world.second,
        policy="timer",
        action=Action.RELEASE,
        reason="because",
        inputs_hash="0" * 64,
    )
    return decision, tag


def release(world, **more):
    decision, tag = decide(world)
    acting = Acting(mode=ActingMode.ENFORCE)
    return act.release(
        replace(decision, **more),
        tag,
        acting,
        world.cluster,
        world.store,
        SimulatedClock(world.sim),
    )


def test_what_changed_since_the_decision_is_respected(world):
    world.cycles(1)
    world.sim.drop_dependency(world.second)
    outcome, detail = release(world)
    assert outcome is ReleaseOutcome.NOT_DONE
    assert "its dependency is gone" in detail
    assert world.outcomes() == []


def test_an_answer_that_is_lost_leaves_the_intent_open(world, monkeypatch):
    world.cycles(1)

    def lost(job_id):
        raise ClusterUnavailable("no answer")

    monkeypatch.setattr(world.cluster, "release", lost)
    assert release(world)[0] is ReleaseOutcome.UNKNOWN
    assert world.outcomes() == [None]
    monkeypatch.undo()
    world.daemon.run_cycle()
    assert world.outcomes()[0] is ReleaseOutcome.NOT_DONE


def test_nothing_is_done_that_can_not_be_written_down_first(world, monkeypatch):
    world.cycles(1)

    def locked(*args):
        raise StoreError("database is locked")

    monkeypatch.setattr(world.store, "open_intent", locked)
    with pytest.raises(StoreError):
        release(world)
    assert world.sim.job(world.second).dependency


def test_a_refusal_is_kept_in_slurms_own_words(world, monkeypatch):
    world.cycles(1)

    def refuse(job_id):
        raise Refused("Invalid user id")

    monkeypatch.setattr(world.cluster, "release", refuse)
    assert release(world) == (ReleaseOutcome.REFUSED, "Invalid user id")
    assert release(world, at_s=world.sim.now_s + 60)[1].startswith("not tried again")
    monkeypatch.undo()
    assert release(world, at_s=world.sim.now_s + act.REFUSAL_HOLDS_S)[0] is ReleaseOutcome.RELEASED


def test_metrics_tell_what_happened():
    world = World()
    metrics = Metrics("enforce", "timer")
    world.restart(observers=(metrics,))
    world.cycles(14)

    def value(name, **labels):
        return metrics.registry.get_sample_value(name, labels)

    assert value("mirage_releases_total", outcome="released") == 1
    assert value("mirage_decisions_total", policy="timer", action="release") == 1
    assert value("mirage_decisions_total", policy="timer", action="wait") > 0
    assert value("mirage_nodes", state="up") == 2
    assert value("mirage_interruption_seconds_count") == value("mirage_overlap_seconds_count") == 1
    assert value("mirage_overlap_seconds_sum") > 0


class Told(Observer):
    def __init__(self) -> None:
        self.handovers: list[Handoff] = []

    def chains_followed(self, handovers, active_chains, now_s) -> None:
        self.handovers += handovers


@pytest.mark.parametrize("has_accounting", [True, False])
def test_a_link_that_requeues_itself_as_it_hands_over_keeps_its_run(has_accounting):
    """As Lightning does. The requeued job waits, starts, and leaves at once."""
    world, told = World(segments=3), Told()
    world.cluster.has_accounting = has_accounting
    world.restart(observers=[told])
    world.cycles(8)
    before, second = world.store.links("alice", "chain1")
    assert second.start_s is not None, "the second link has taken over"
    world.submit(3, world.second)
    world.sim.requeue(world.first)
    requeued_s = world.sim.now_s
    world.daemon.run_cycle()
    first, second, third = world.store.links("alice", "chain1")
    assert (first.state, first.start_s) == (JobState.REQUEUED, before.start_s)
    assert first.end_s == requeued_s if has_accounting else 0 <= first.end_s - requeued_s <= 2
    (report,) = chain_reports(world.store, None)
    assert f"Job {third.job_id} (link 3)" in report["next"], "the one that waits for its work"
    world.sim.step(300)
    world.sim.set_runtime_end(world.first, world.sim.now_s + 1)
    world.cycles(3)
    assert world.sim.job(world.first).state.is_over
    assert world.store.links("alice", "chain1")[0] == first, "its empty start counts as nothing"
    assert [(each.link.segment, each.interruption_s) for each in told.handovers] == [(2, 0)]
    assert told.handovers[0].overlap_s == first.end_s - second.start_s
    assert world.chain.state is ChainState.ACTIVE


@pytest.mark.parametrize("has_accounting", [True, False])
def test_a_link_that_slurm_requeues_goes_on_and_both_its_runs_count(has_accounting):
    world, told = World(policy=Reactive()), Told()
    world.cluster.has_accounting = has_accounting
    world.restart(observers=[told])
    world.cycles(2)
    world.sim.requeue(world.first)
    requeued_s = world.sim.now_s
    start_s = world.store.links("alice", "chain1")[0].start_s
    world.cycles(4)
    first = world.store.links("alice", "chain1")[0]
    assert first.each_run[0].start_s == start_s
    (again,) = told.handovers
    assert again.is_requeue
    assert again.interruption_s == first.start_s - again.predecessor.end_s > 0
    assert 0 <= again.predecessor.end_s - requeued_s <= 2
    (report,) = chain_reports(world.store, None)
    assert report["links"][0]["interruption_s"] == again.interruption_s
    assert [run["state"] for run in report["links"][0]["runs"]] == ["REQUEUED", "RUNNING"]
    assert report["links"][0]["start"] == start_s
