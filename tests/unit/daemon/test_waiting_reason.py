"""Every sentence on a waiting link holds in the state that the link is in."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from mirage.daemon.report import chain_reports, explain
from mirage.daemon.waiting_reason import AGENT, DAEMON, kept_by, let_in_by
from mirage.domain import Action, Chain, Decision, JobState, Link, ReleaseOutcome
from mirage.reasons import KINDS, ReasonKind
from mirage.store.memory import MemoryStore
from tests.links import link as a_link

FIRST = a_link(1, eligible_s=100, start_s=200)
BEHIND = a_link(2, reason="Dependency", dependency="afterany:11(unfulfilled)")
LET_IN = replace(BEHIND, eligible_s=900, reason="Priority", dependency="", released_s=900)
FALLBACK = "Slurm starts it after job 11 ends"
RELEASE = Decision(
    at_s=900,
    chain_id="c1",
    user="alice",
    predecessor_id=11,
    successor_id=12,
    policy="timer",
    action=Action.RELEASE,
    reason="an hour is left",
    inputs_hash="ab",
)


def said(
    second: Link,
    first: Link = FIRST,
    *decisions: Decision,
    service: str = DAEMON,
    decides: bool = True,
) -> str:
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=3))
    for link in (first, second):
        store.save_link(link)
    for decision in decisions:
        store.put(decision)
    (report,) = chain_reports(store, None, None, service, decides=decides)
    explanation = explain(store, None, 12, service, decides=decides)["explanation"]
    assert explanation.removesuffix(f" Why then: {RELEASE.reason}.") == report["next"]
    return str(report["next"])


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        (
            "JobHeldUser",
            "its owner holds it, and Slurm does not start it before `scontrol release 12`",
        ),
        ("JobHeldAdmin", "an administrator holds it"),
        ("JobHoldMaxRequeue", "Slurm holds it"),
        ("DependencyNeverSatisfied", "can never be satisfied, so Slurm never starts it"),
        ("BeginTime", "its begin time has not come (BeginTime)"),
        ("PartitionDown", "its partition is down (PartitionDown)"),
        ("QOSMaxJobsPerUserLimit", "a limit keeps it back (QOSMaxJobsPerUserLimit)"),
        ("AssocGrpNodeLimit", "a limit keeps it back (AssocGrpNodeLimit)"),
        ("MaxCpuPerAccount", "a limit keeps it back (MaxCpuPerAccount)"),
        ("QOSNotAllowed", "no free node would start it as it is now (QOSNotAllowed)"),
        ("Licenses", "it waits for something else than nodes (Licenses)"),
        (
            "launch failed requeued held",
            "Slurm holds it (launch failed requeued held), and Slurm does not start it",
        ),
    ],
)
@pytest.mark.parametrize("decided", [(), (RELEASE,)])
def test_what_keeps_a_link_back_is_told_and_no_fallback_that_does_not_hold(reason, words, decided):
    for link in (replace(BEHIND, reason=reason), replace(LET_IN, reason=reason)):
        text = said(link, FIRST, *decided)
        assert words in text
        assert FALLBACK not in text
        assert "waits for nodes" not in text
        assert "enter the queue now" not in text


@pytest.mark.parametrize("reason", ["Dependency", "", "BeginTime"])
def test_a_begin_time_is_told_with_its_time(reason):
    """Slurm says "Dependency", or nothing, of a link that waits for its predecessor as well."""
    begin_s = 1_800_000_000
    text = said(replace(BEHIND, reason=reason, begin_s=begin_s))
    assert time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(begin_s)) in text
    assert "`scontrol update JobId=12 StartTime=now` takes it back" in text
    assert FALLBACK not in text


@pytest.mark.parametrize(
    "dependency", ["afterok:11(unfulfilled)", "afterany:99(unfulfilled)", "afterany:11,singleton"]
)
def test_another_dependency_than_mirages_is_told(dependency):
    for reason in (
        "Dependency",
        "",
        "Priority",
    ):  # the last two right after a change, until Slurm looks at the job
        text = said(replace(BEHIND, dependency=dependency, reason=reason))
        assert (
            f"it waits for {dependency}, which is not afterany:11 alone, so Mirage leaves it alone"
            in text
        )
        assert FALLBACK not in text
        assert "nodes" not in text


def test_behind_its_predecessor_the_fallback_holds():
    assert said(BEHIND).endswith(
        f"Mirage has not decided anything yet. If Mirage stops, {FALLBACK}."
    )
    assert said(BEHIND, FIRST, replace(RELEASE, action=Action.WAIT)).endswith(
        f"If Mirage stops, {FALLBACK}."
    )
    assert said(replace(BEHIND, reason="")).endswith(f"If Mirage stops, {FALLBACK}.")
    assert (
        said(replace(BEHIND, reason="", dependency=""))
        == "Job 12 (link 2) is pending; Slurm gives no reason yet."
    )
    assert said(BEHIND, decides=False) == f"Job 12 (link 2) waits for job 11. {FALLBACK}."


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("JobHeldUser", "Job 11 has not started: its owner holds it"),
        ("QOSMaxJobsPerUserLimit", "Job 11 has not started: a limit keeps it back"),
        ("Priority", "Job 11 has not started yet."),
    ],
)
def test_a_predecessor_that_has_not_started_is_told(reason, words):
    """The first link that waits is what the chain's own sentence is about."""
    first = replace(FIRST, state=JobState.PENDING, start_s=None, eligible_s=None, reason=reason)
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=3))
    store.save_link(first)
    store.save_link(BEHIND)
    assert words in explain(store, None, 12)["explanation"]
    assert chain_reports(store, None)[0]["next"].startswith("Job 11 (link 1) is")


def test_what_an_agent_that_is_gone_decided_is_not_told_as_if_it_held():
    text = said(BEHIND, FIRST, RELEASE, service=AGENT, decides=False)
    assert "enter the queue now" not in text
    assert "If Mirage stops" not in text


def test_a_refusal_is_told_only_while_it_matters():
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=3))
    store.save_link(FIRST)
    store.save_link(BEHIND)
    from mirage.domain import Intent

    store.put(
        RELEASE,
        Intent(
            intent_id=1,
            decision=RELEASE,
            created_s=900,
            outcome=ReleaseOutcome.REFUSED,
            detail="Access denied",
            finished_s=901,
        ),
    )
    assert "Slurm refused (Access denied)" in chain_reports(store, None)[0]["next"]
    store.save_link(replace(BEHIND, reason="JobHeldUser"))
    assert "Slurm refused" not in chain_reports(store, None)[0]["next"]


OVER = replace(FIRST, state=JobState.TIMEOUT, end_s=3800)


@pytest.mark.parametrize(
    ("link", "before", "who"),
    [
        (FIRST, None, "slurm"),
        (BEHIND, FIRST, None),
        (LET_IN, FIRST, "daemon"),
        (replace(LET_IN, released_s=None), FIRST, "owner"),
        (replace(LET_IN, released_s=None), OVER, "owner"),
        (replace(LET_IN, released_s=None, eligible_s=3800), OVER, "slurm"),
        (replace(LET_IN, released_s=None), None, None),
        (replace(LET_IN, released_s=None), replace(OVER, end_s=None), None),
    ],
)
def test_who_let_a_link_in(link, before, who):
    assert let_in_by(link, before, DAEMON) == who


def test_a_link_that_started_tells_who_let_it_in():
    ran = replace(LET_IN, state=JobState.RUNNING, start_s=1000, reason="")
    assert "by Mirage's daemon, 1 min 40 s before it started" in said_of(ran, OVER)
    assert "by its owner or the owner's agent before job 11 ended" in said_of(
        replace(ran, released_s=None), OVER
    )
    later = replace(ran, released_s=None, eligible_s=3800, start_s=3900)
    assert "Slurm let it in once job 11 had ended, 1 min 40 s before it started" in said_of(
        later, OVER
    )


def said_of(second: Link, first: Link) -> str:
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=3))
    store.save_link(first)
    store.save_link(second)
    return str(explain(store, None, 12)["explanation"])


def test_the_running_link_without_a_waiting_one():
    store = MemoryStore()
    store.save_chain(Chain(chain_id="c1", user="alice", segments=2))
    store.save_link(FIRST)
    assert chain_reports(store, None)[0]["next"] == "Job 11 (link 1) runs; no link waits."
    store.save_link(replace(LET_IN, state=JobState.RUNNING, start_s=1))
    assert chain_reports(store, None)[0]["next"] == "Job 12 (link 2) runs; it is the last one."
    for link in (FIRST, LET_IN):
        store.save_link(replace(link, state=JobState.COMPLETED, end_s=5))
    assert "how it ended is not known yet" in chain_reports(store, None)[0]["next"]


def test_every_reason_that_slurm_has_is_told_for_what_it_means():
    for reason, kind in KINDS.items():
        link = replace(LET_IN, reason=reason, released_s=None)
        kept = kept_by(link)
        assert (kept is None) == (kind is ReasonKind.NODES), reason
        assert (
            kind is ReasonKind.DEPENDENCY
            or kept is None
            or reason in kept
            or reason in ("JobHeldAdmin", "JobHeldUser")
        )
        if kept:
            assert "waits for nodes" not in said(link)
            assert FALLBACK not in said(link)
