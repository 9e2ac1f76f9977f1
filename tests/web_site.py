"""A site for the web page: two users' chains, a queue, decisions and an audit log, the same ones
each time.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from mirage.chain.durations import format_duration
from mirage.chain.handoff import handoffs
from mirage.chain.tag import ChainTag, format_tag
from mirage.daemon.audit import handover_record
from mirage.daemon.audit_summary import AuditSummary
from mirage.daemon.last_cycle import LastCycle
from mirage.daemon.restraint import Acting
from mirage.domain import (
    ActingMode,
    Action,
    Chain,
    ChainState,
    ClusterNode,
    Decision,
    Job,
    JobState,
    Link,
    Mode,
    Penalties,
    Snapshot,
)
from mirage.store.journal import Journal
from mirage.store.repository import SqlStore
from mirage.web.allowance import Allowance
from mirage.web.app import Desk, make_app
from mirage.web.server import served
from mirage.web.sessions import Visitors

HOUR = 3600
LIMIT_S = 24 * HOUR
LEAD_S = 3 * HOUR


@dataclass
class WebSite:
    """``url``: where it is served. ``desk``: what the pages are made from."""

    url: str
    desk: Desk
    store: SqlStore
    folder: Path

    def link(self, user: str | None) -> str:
        """As `mirage web` prints it."""
        return f"{self.url}/enter/{self.desk.visitors.ticket(user)}"


@contextmanager
def web_site(
    folder: Path, now_s: int, chains: Mapping[str, int], queued: int = 60
) -> Iterator[WebSite]:
    """Serves it on a free port. ``chains``: so many of each user."""
    url = f"sqlite:///{folder / 'mirage.db'}"
    journal = Journal(
        path=folder / "audit.jsonl", max_bytes=64 << 20, max_age_s=7 * 86_400, keep=20
    )
    last_cycle = LastCycle(acting=Acting(mode=ActingMode.ENFORCE), policy="quantile", poll_s=600)
    with ExitStack() as stack:
        store = stack.enter_context(SqlStore.open(url))
        jobs = fill(store, journal, chains, now_s, queued)
        decisions = [
            decided for job in jobs if job.dependency for decided in store.decisions(job.job_id, 1)
        ]
        last_cycle.decisions_made(
            Snapshot(at_s=now_s - 90, jobs=tuple(jobs), nodes=tuple(nodes())), decisions
        )
        last_cycle.cycle_ended(True, 0.4, now_s - 90)
        reader = stack.enter_context(SqlStore.open(url, readonly=True, busy_timeout_s=1))
        audit_summary = stack.enter_context(
            closing(AuditSummary(journal.path, LEAD_S, now_s=lambda: now_s))
        )
        desk = Desk(
            last_cycle=last_cycle,
            store=reader,
            visitors=Visitors(),
            audit_summary=audit_summary,
            now_s=lambda: now_s,
            allowance=Allowance(1e9),
        )
        yield WebSite(
            stack.enter_context(served(make_app(desk), "127.0.0.1:0")), desk, store, folder
        )


def nodes() -> list[ClusterNode]:
    """Two partitions."""
    gpu = [
        ClusterNode(name=f"g{number:02}", partitions=("gpu",), up=number != 7, idle=number in (3,))
        for number in range(32)
    ]
    return gpu + [
        ClusterNode(name=f"c{number}", partitions=("cpu", "debug"), up=True, idle=number > 5)
        for number in range(8)
    ]


def fill(
    store: SqlStore, journal: Journal, chains: Mapping[str, int], now_s: int, queued: int
) -> list[Job]:
    """Writes the chains and their records; returns the queue."""
    rng = random.Random(5)
    jobs = [_other_job(rng, 900_000 + number, now_s) for number in range(queued)]
    records: list[dict[str, object]] = []
    number = 0
    with store.transaction():
        for user, count in chains.items():
            for _ in range(count):
                number += 1
                jobs += _chain(store, records, rng, user, number, now_s)
    journal.append(records)
    return jobs


def _other_job(rng: random.Random, job_id: int, now_s: int) -> Job:
    partition, waited_s = rng.choice(["gpu", "gpu", "gpu", "cpu", "debug"]), rng.randrange(9 * HOUR)
    user, submit_s = f"user{job_id % 23}", now_s - waited_s - rng.randrange(HOUR)
    job = Job(
        job_id=job_id,
        user=user,
        partition=partition,
        state=JobState.PENDING,
        nodes=rng.choice([1, 1, 2, 4]),
        submit_s=submit_s,
        time_limit_s=LIMIT_S,
        reason="Priority",
    )
    job = replace(job, eligible_s=submit_s, priority=rng.randrange(1000, 9000))
    return (
        replace(job, state=JobState.RUNNING, start_s=now_s - waited_s, reason="")
        if job_id % 3
        else job
    )


def _chain(
    store: SqlStore,
    records: list[dict[str, object]],
    rng: random.Random,
    user: str,
    number: int,
    now_s: int,
) -> list[Job]:
    """One chain: links that are over, one that runs (unless the chain is over), one that waits."""
    chain_id = f"run{rng.randrange(36**6):07d}"
    past = rng.choice([0, 1, 2, 3])
    over = number % 6 == 0
    links: list[Link] = []
    at_s = now_s - past * LIMIT_S - rng.randrange(2 * HOUR, 21 * HOUR)
    for segment in range(1, past + 2):
        released = segment > 1 and rng.random() < 0.8
        wait_s = rng.randrange(600, 5 * HOUR)
        before = links[-1] if links else None
        entered_s = at_s - rng.randrange(600, 4 * HOUR) if released else at_s
        start_s = max(entered_s + wait_s, at_s - HOUR) if before else at_s
        end_s = start_s + LIMIT_S
        if before and start_s < (before.end_s or 0):
            links[-1] = replace(before, end_s=start_s + 60)
        done = end_s < now_s or over
        link = Link(
            chain_id=chain_id,
            user=user,
            segment=segment,
            job_id=1000 * number + segment,
            predecessor_id=before.job_id if before else None,
            state=JobState.TIMEOUT if done else JobState.RUNNING,
            partition="gpu",
            nodes=2,
            time_limit_s=LIMIT_S,
            submit_s=(before.start_s or 0) if before else at_s - HOUR,
            eligible_s=entered_s,
            start_s=min(start_s, now_s - 300),
            end_s=min(end_s, now_s - HOUR) if done else None,
            exit_code=0,
            released_s=entered_s if released else None,
        )
        links.append(link)
        at_s = end_s
        if not done:
            break
    over = over or links[-1].end_s is not None
    state = (
        (ChainState.FAILED if number % 12 == 0 else ChainState.DONE) if over else ChainState.ACTIVE
    )
    reason = {"failed": "link 2 failed (exit code 1)", "done": "all of its links are over"}.get(
        state.value, ""
    )
    segments = len(links) + 3 * (not over)
    began_s = links[0].submit_s
    store.save_chain(
        Chain(
            chain_id=chain_id,
            user=user,
            segments=segments,
            mode=Mode.TRAIN,
            penalties=Penalties(),
            state=state,
            reason=reason,
            created_s=began_s,
            updated_s=now_s - 60,
        )
    )
    if not over:
        links.append(_waiting(links[-1], number))
    for link in links:
        store.save_link(link)
        if link.predecessor_id:
            _decide(store, records, rng, link, now_s)
    records += [
        handover_record(handoff, min(now_s, handoff.link.start_s or 0))
        for handoff in handoffs(links)
    ]
    return [] if over else [_job(link, len(links) + 2) for link in links[-2:]]


def _waiting(last: Link, number: int) -> Link:
    waiting = replace(
        last,
        segment=last.segment + 1,
        job_id=last.job_id + 1,
        predecessor_id=last.job_id,
        state=JobState.PENDING,
        submit_s=last.start_s or 0,
        eligible_s=None,
        start_s=None,
        end_s=None,
        released_s=None,
    )
    return (
        replace(waiting, released_s=last.start_s, eligible_s=last.start_s)
        if number % 5 == 0
        else waiting
    )


def _job(link: Link, segments: int) -> Job:
    tag = ChainTag(
        chain_id=link.chain_id,
        segment=link.segment,
        segments=segments,
        predecessor_id=link.predecessor_id,
        mode=Mode.TRAIN,
        penalties=Penalties(),
    )
    waits = link.start_s is None and link.released_s is None
    return Job(
        job_id=link.job_id,
        user=link.user,
        partition=link.partition,
        state=link.state,
        nodes=link.nodes,
        submit_s=link.submit_s,
        time_limit_s=link.time_limit_s,
        reason="Dependency" if waits else "Priority" if link.start_s is None else "",
        eligible_s=link.eligible_s,
        start_s=link.start_s,
        dependency=f"afterany:{link.predecessor_id}(unfulfilled)" if waits else "",
        priority=4000,
        comment=format_tag(tag),
    )


def _decide(
    store: SqlStore, records: list[dict[str, object]], rng: random.Random, link: Link, now_s: int
) -> None:
    """The last decisions about a link: in the store if it waits, in the audit log if it has
    started.
    """
    until_s = link.released_s or (link.start_s or now_s) - 60
    before = next(
        each for each in store.links(link.user, link.chain_id) if each.job_id == link.predecessor_id
    )
    end_s = (before.start_s or now_s) + LIMIT_S
    real_s = (link.start_s or now_s) - (link.eligible_s or now_s)
    p50 = max(600, real_s or rng.uniform(0.5, 4) * HOUR) * rng.uniform(0.6, 1.7)
    low, high = format_duration(round(p50 / 3, -2)), format_duration(round(p50 * 2.2, -2))
    reason = (
        f"{rng.randrange(21, 90)} like jobs waited {low} to {high}; at penalties 1 and 1 their"
        " median counts"
    )
    for back in (2, 1, 0):
        at_s = until_s - 600 * back
        action = Action.RELEASE if link.released_s and not back else Action.WAIT
        marked = "[observe: this service only observes] " if link.job_id % 7 == 0 else ""
        decision = Decision(
            at_s=at_s,
            chain_id=link.chain_id,
            user=link.user,
            predecessor_id=link.predecessor_id or 0,
            successor_id=link.job_id,
            policy="quantile",
            action=action,
            reason=marked + reason,
            inputs_hash="0" * 64,
            remaining_s=max(600, end_s - at_s),
            wait_p10_s=p50 / 3,
            wait_p50_s=p50,
            wait_p90_s=p50 * 2.2,
            expected_interruption_s=HOUR / 2,
            expected_overlap_s=HOUR / 4,
        )
        if link.start_s is None:
            store.add_decision(decision)
            continue
        about = {
            "at": at_s,
            "user": link.user,
            "chain": link.chain_id,
            "successor": link.job_id,
            "held_back": None,
        }
        waits = {"wait_p10_s": p50 / 3, "wait_p50_s": p50, "wait_p90_s": p50 * 2.2}
        records.append(about | waits | {"kind": "decision", "action": action.value})
