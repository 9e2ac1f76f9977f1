"""One step of the service, without side effects: what the cluster shows and the store knows -> what
is to be done.

`cycle.py` has the actions carried out. Nothing here talks to Slurm or writes anything, so a test needs
neither.
"""

from __future__ import annotations

import hashlib
import logging
import re
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from mirage.chain.handoff import short_handovers, waited_for_predecessor_s
from mirage.chain.run_law import run_law
from mirage.chain.runs import is_requeued, ready_of, start_of, was_held, with_past
from mirage.chain.spread import apart_s, earlier_s
from mirage.chain.tag import ChainTag, may_be_link, parse_tag
from mirage.daemon.chain_end import is_job_of
from mirage.domain import (
    Action,
    Chain,
    ChainState,
    Decision,
    Job,
    Link,
    Mode,
    RunLaw,
    Snapshot,
    assumed_handover_s,
    wanted_uptime,
)
from mirage.ports import Advice, BatchPolicy, ChainStore, Clock, Observation, Policy, Store
from slurm_sim.seconds import DAY_S

if TYPE_CHECKING:
    from mirage.state.history import History
    from mirage.state.likeness import Waits


log = logging.getLogger(__name__)

LATE_S = 60
"""So long after a requeue accounting may not have it."""

Gains = Sequence[tuple[int, float]]


class ClusterMemory(Protocol):
    """What the daemon remembers of the cluster (`memory.py`)."""

    def waits(self, pool: str) -> Waits:
        """Recent starts in a pool, oldest first."""

    def history(self, pool: str) -> History | None:
        """The pool's last 24 h."""

    def digest(self, pool: str) -> str:
        """Hash of both."""


@dataclass(frozen=True, slots=True)
class SaveChain:
    chain: Chain


@dataclass(frozen=True, slots=True)
class SaveLink:
    link: Link
    before: Link | None
    """As the store has it."""


@dataclass(frozen=True, slots=True)
class DropLink:
    """Its job belongs to another chain now: the owner has changed the tag."""

    link: Link


@dataclass(frozen=True, slots=True, kw_only=True)
class Grounds:
    """What is known of a decision beyond its record in the store."""

    successor: Job
    penalty_now_s: float | None
    penalty_later_s: float | None
    baseline: Mapping[str, str]
    """Policy -> the action that it would take."""
    competing: int = 0
    """Links of the chain that compete for nodes already."""
    handover_s: int | None = None
    """What a handover costs a training chain; None: it is a service."""


@dataclass(frozen=True, slots=True)
class Wait:
    """A decision to leave the successor where it is."""

    decision: Decision
    grounds: Grounds


@dataclass(frozen=True, slots=True)
class Release:
    """A decision to let the successor into the queue now."""

    decision: Decision
    grounds: Grounds


@dataclass(frozen=True, slots=True)
class LookUp:
    """Links whose jobs the queue no longer shows. That alone does not mean that they are over."""

    links: tuple[Link, ...]
    requeued: tuple[Link, ...] = ()
    """Links that it does show, of whose earlier runs only accounting can tell."""


TickAction = SaveChain | SaveLink | DropLink | Wait | Release | LookUp


def tick(
    snapshot: Snapshot,
    store: Store,
    clock: Clock,
    policy: Policy,
    view: ClusterMemory,
    *,
    step_s: int,
    only_user: str | None = None,
    left_out: Collection[tuple[str, str]] = (),
    baselines: Sequence[Policy] = (),
) -> list[TickAction]:
    """What is to be done now, for every chain (of ``only_user``) that the snapshot shows or the
    store has open.

    ``left_out``: user and id of chains that are not watched (`chain_quota.py`).
    ``baselines``: policies whose answers are only written down, beside those of ``policy``.
    """
    snapshot = with_leads(snapshot)
    now_s = clock.now_s()
    seen, actions = _observed(_links_of(snapshot, only_user, left_out), snapshot, store, now_s)
    snapshot, pairs = _with_pasts(list(_pairs(seen, snapshot)), snapshot, store, now_s)
    pairs = _of_services(pairs, seen, now_s)
    competing = _competing(seen)
    gains = store.gains(policy.name, now_s - DAY_S) if pairs else {}
    observations = [_observation(pair, snapshot, view, gains, now_s, step_s) for pair in pairs]
    for pair, observation, advice in zip(
        pairs, observations, _advices(policy, observations), strict=True
    ):
        digest = view.digest(snapshot.pool_of(observation.successor.partition))
        chain = pair.successor.user, pair.tag.chain_id
        grounds = replace(_grounds(advice, observation, baselines), competing=competing[chain])
        actions.append(_decided(advice, observation, pair.tag, policy.name, digest, grounds))
    return actions


def observed(
    snapshot: Snapshot,
    store: ChainStore,
    clock: Clock,
    *,
    only_user: str | None = None,
    left_out: Collection[tuple[str, str]] = (),
) -> list[TickAction]:
    """What is to be written down of the chains that `tick` is about, and looked up; nothing is
    decided.
    """
    jobs = _links_of(snapshot, only_user, left_out)
    return _observed(jobs, snapshot, store, clock.now_s())[1]


def _observed(
    jobs: Sequence[tuple[Job, ChainTag]], snapshot: Snapshot, store: ChainStore, now_s: int
) -> tuple[list[_Seen], list[TickAction]]:
    """The links in the queue that are to start or run, and what is to be done about all links."""
    known = store.open_links()
    seen = _seen_links(jobs, known, store)
    living = [each for each in seen if not each.is_passed]
    return living, [*_chains(living, store, now_s), *_links(seen, known, snapshot, now_s)]


def _links_of(
    snapshot: Snapshot, only_user: str | None, left_out: Collection[tuple[str, str]]
) -> list[tuple[Job, ChainTag]]:
    return [
        (job, tag)
        for job, tag in tagged_jobs(snapshot)
        if only_user in (None, job.user) and (job.user, tag.chain_id) not in left_out
    ]


class _Seen(NamedTuple):
    """A link in the queue."""

    job: Job
    tag: ChainTag
    link: Link
    """As the queue shows it now."""
    before: Link | None
    """As the store has it."""
    was_requeued: bool = False

    @property
    def is_passed(self) -> bool:
        """Slurm requeued the job after a later link had taken over: it will start for nothing."""
        return self.link.is_over and not self.job.state.is_over

    def is_incomplete(self, now_s: int) -> bool:
        """Whether accounting may have more of its earlier runs than is known."""
        before = self.before
        is_news = before is None or (is_requeued(before, self.job) and not before.is_over)
        return self.was_requeued and (is_news or now_s - self.job.submit_s <= LATE_S)


def _seen_links(
    jobs: Sequence[tuple[Job, ChainTag]], known: Sequence[Link], store: ChainStore
) -> list[_Seen]:
    by_key = {(link.user, link.chain_id, link.job_id): link for link in known}
    found = []
    for job, tag in jobs:
        key = (job.user, tag.chain_id, job.job_id)
        before = by_key.get(key) or _closed_link(job, tag, store)
        found.append(_Seen(job, tag, link_of(job, tag, before), before))
    chains: dict[tuple[str, str], list[Link]] = defaultdict(list)
    for each in found:
        chains[each.link.user, each.link.chain_id].append(each.link)
    return [_with_past(each, chains[each.job.user, each.tag.chain_id], store) for each in found]


def _with_past(each: _Seen, chain: Sequence[Link], store: ChainStore) -> _Seen:
    """With the runs before this one, if Slurm has requeued the job. ``chain``: its links as the
    queue shows them. Those after it were submitted after its first submission.
    """
    link, before = each.link, each.before
    later = [other for other in chain if other.segment > link.segment]
    is_again = any(other.submit_s < link.submit_s for other in later)
    if not (is_again or (before and (before.runs or is_requeued(before, each.job)))):
        return each
    if before is not None:
        now = {other.job_id for other in later}
        known = [each for each in store.links(link.user, link.chain_id) if each.job_id not in now]
        link = with_past(before, [link], [*known, *later])
    return each._replace(link=link, was_requeued=True)


class _Pair(NamedTuple):
    successor: Job
    tag: ChainTag
    predecessor: Job
    run_law: RunLaw | None = None
    """Of a link like the predecessor."""
    short_handovers: int = 0
    idle_s: int = 0
    """Of the predecessor's run, before it makes progress."""
    earlier_s: int = 0

    @property
    def handover_s(self) -> int:
        """What the chain or its owner says, or else the default."""
        if self.tag.handover_s is not None:
            return self.tag.handover_s
        return assumed_handover_s(self.predecessor.time_limit_s)

    @property
    def uptime(self) -> float | None:
        return wanted_uptime(self.tag.mode, self.tag.penalties, self.tag.uptime)


def _with_pasts(
    pairs: Sequence[_Pair], snapshot: Snapshot, store: ChainStore, now_s: int
) -> tuple[Snapshot, list[_Pair]]:
    """The pairs, and the snapshot, whose predecessors know how long earlier links ran."""
    found: list[_Pair] = []
    jobs: dict[int, Job] = {}
    for pair in pairs:
        job = pair.predecessor
        links = store.links(job.user, pair.tag.chain_id) if pair.tag.segment > 2 else []
        law = run_law(links, job)
        if law is not None:
            median_s = law.after(0 if job.start_s is None else now_s - job.start_s).median_s
            if median_s < law.runs_s[-1]:
                job = jobs[job.job_id] = replace(job, usual_run_s=median_s)
        short = short_handovers(links, pair.tag.least_run_s, pair.handover_s)
        idle_s = pair.handover_s + waited_for_predecessor_s(links, job.job_id)
        found.append(
            pair._replace(predecessor=job, run_law=law, short_handovers=short, idle_s=idle_s)
        )
    if jobs:
        snapshot = replace(snapshot, jobs=tuple(jobs.get(job.job_id, job) for job in snapshot.jobs))
    return snapshot, found


def _of_services(pairs: Sequence[_Pair], seen: Sequence[_Seen], now_s: int) -> list[_Pair]:
    """The pairs, of which those of replicas know how much earlier they are to hand over, so that no
    two of a service do so at once.
    """
    newest: dict[tuple[str, str | None], dict[int, Job]] = defaultdict(dict)
    for each in sorted(seen, key=lambda each: each.tag.segment):
        if each.tag.replica is not None and each.job.state.has_nodes:
            newest[each.job.user, each.tag.service][each.tag.replica] = each.job
    return [
        pair
        if pair.tag.replica is None
        else _spread(pair, newest[pair.successor.user, pair.tag.service], now_s)
        for pair in pairs
    ]


def _spread(pair: _Pair, running: Mapping[int, Job], now_s: int) -> _Pair:
    """``running``: the newest link that runs, of each replica of its service."""
    ends_s = {
        replica: max(end_s, now_s)
        for replica, job in running.items()
        if (end_s := job.expected_end_s) is not None
    }
    gap_s = apart_s(pair.predecessor.expected_limit_s or 0, len(ends_s))
    return pair._replace(earlier_s=earlier_s(ends_s, gap_s).get(pair.tag.replica or 0, 0))


def _observation(
    pair: _Pair,
    snapshot: Snapshot,
    view: ClusterMemory,
    gains: Mapping[tuple[int, int], Gains],
    now_s: int,
    step_s: int,
) -> Observation:
    pool = snapshot.pool_of(pair.successor.partition)
    return Observation(
        now_s=now_s,
        step_s=step_s,
        predecessor=pair.predecessor,
        successor=pair.successor,
        penalties=pair.tag.penalties,
        mode=pair.tag.mode,
        waits=view.waits(pool),
        history=view.history(pool),
        snapshot=snapshot,
        run_law=pair.run_law,
        short_handovers=pair.short_handovers,
        idle_s=pair.idle_s,
        uptime=pair.uptime,
        handover_s=pair.handover_s,
        earlier_s=pair.earlier_s,
        is_handover_known=pair.tag.handover_s is not None,
        gains=gains.get((pair.predecessor.job_id, pair.successor.job_id), ()),
    )


def _pairs(seen: Sequence[_Seen], snapshot: Snapshot) -> Iterator[_Pair]:
    """Each successor that may be released, with its predecessor, which runs or queues for nodes.

    Of several jobs that name the same one only the first submitted is the successor, also once it
    is let in.
    """
    taken: set[int] = set()
    for job, tag, *_ in sorted(seen, key=lambda entry: entry.job.job_id):
        predecessor = snapshot.by_id.get(tag.predecessor_id or 0)
        if predecessor is None or predecessor.user != job.user or predecessor.job_id in taken:
            continue
        taken.add(predecessor.job_id)
        if obstacle(job, predecessor, tag) is None and (
            predecessor.state.has_nodes or predecessor.is_queueing
        ):
            yield _Pair(job, tag, predecessor)


def tagged_jobs(snapshot: Snapshot) -> Iterator[tuple[Job, ChainTag]]:
    """The jobs whose owners opted in: those that carry Mirage's tag in the comment, which only the
    owner can set.

    A link is a plain job: an array task that carries the tag is none.
    """
    for job in snapshot.jobs:
        if job.comment and not job.array_task and (tag := parse_tag(job.comment)):
            yield job, tag


def with_leads(snapshot: Snapshot) -> Snapshot:
    """The snapshot whose links know their signal's lead and their --time-min, which squeue does not
    show.

    All links of a chain have the same `--signal`. So a successor's tag also tells of its
    predecessor, whose own comment a script may have replaced.
    """
    leads, least_s = dict[int, int](), dict[int, int]()
    for job, tag in tagged_jobs(snapshot):
        predecessor = snapshot.by_id.get(tag.predecessor_id or 0)
        if tag.lead_s and predecessor is not None and predecessor.user == job.user:
            leads.setdefault(predecessor.job_id, tag.lead_s)
        if tag.lead_s:
            leads[job.job_id] = tag.lead_s
        if tag.time_min_s and job.is_pending:
            least_s[job.job_id] = tag.time_min_s
    if not leads and not least_s:
        return snapshot
    jobs = (
        replace(job, lead_s=leads.get(job.job_id, 0), time_min_s=least_s.get(job.job_id, 0))
        if job.job_id in leads or job.job_id in least_s
        else job
        for job in snapshot.jobs
    )
    return replace(snapshot, jobs=tuple(jobs))


def obstacle(successor: Job | None, predecessor: Job | None, tag: ChainTag) -> str | None:
    """Why the successor must be left alone; None if it may be released.

    Released is what is still pending, for its dependency alone, on the same predecessor, and whose
    owner opted in.
    """
    if successor is None:
        return "Slurm does not know the job any more"
    if not successor.is_pending:
        return f"the job is not pending any more ({successor.state.value})"
    if parse_tag(successor.comment) != tag:
        return "its owner changed or removed the chain's tag in its comment"
    if awaited(successor) != tag.predecessor_id:
        return (
            f"its dependency is {successor.dependency or 'gone'}, not afterany:{tag.predecessor_id}"
            " alone"
        )
    if successor.reason != "Dependency":
        return f"something else keeps it back too ({successor.reason or 'no reason given'})"
    if predecessor is None or predecessor.state.is_over:
        return "its predecessor is over, so Slurm lets it in now"
    if not may_be_link(predecessor, successor.user, tag.chain_id, tag.segment - 1):
        if predecessor.user == successor.user:
            return "the job that it waits for is no link of its chain"
        return f"its predecessor belongs to another user ({predecessor.user})"
    return None


def awaited(job: Job) -> int | None:
    """The job that ``job`` waits for, if one `afterany` is its whole dependency."""
    match = re.fullmatch(r"afterany:(\d+)(?:\(unfulfilled\))?", job.dependency)
    return int(match[1]) if match else None


def _chains(seen: Sequence[_Seen], store: ChainStore, now_s: int) -> list[TickAction]:
    """Chains that are new, that their owner paused, resumed or extended, or alive though the store
    has them as over.
    """
    active = {(chain.user, chain.chain_id): chain for chain in store.active_chains()}
    jobs: dict[tuple[str, str], list[tuple[Job, ChainTag]]] = defaultdict(list)
    for job, tag, *_ in seen:
        jobs[job.user, tag.chain_id].append((job, tag))
    actions: list[TickAction] = []
    for key, entries in jobs.items():
        known = active.get(key) or store.chain(*key)
        chain = _chain(entries, known, now_s)
        if known is None or chain != replace(known, updated_s=now_s):
            actions.append(SaveChain(chain))
    return actions


def _chain(entries: Sequence[tuple[Job, ChainTag]], known: Chain | None, now_s: int) -> Chain:
    """The chain as its jobs in the queue show it. The tag of its last link says how long it is."""
    by_segment = sorted(entries, key=lambda entry: (entry[1].segment, entry[0].job_id))
    (first, tag), last = by_segment[0], by_segment[-1][1]
    following = next((job for job, _ in by_segment if job.is_pending), None)
    state = ChainState.PAUSED if following and following.is_held else ChainState.ACTIVE
    name = by_segment[-1][0].name
    if known is not None:
        return replace(
            known,
            segments=last.segments,
            length=last.length,
            handover_s=last.handover_s,
            state=state,
            reason="",
            name=name,
            updated_s=now_s,
        )
    return Chain(
        chain_id=tag.chain_id,
        user=first.user,
        segments=last.segments,
        length=last.length,
        mode=tag.mode,
        penalties=tag.penalties,
        state=state,
        created_s=first.submit_s,
        updated_s=now_s,
        name=name,
        uptime=tag.uptime,
        handover_s=last.handover_s,
        service=tag.service,
        replica=tag.replica,
    )


def _links(
    seen: Sequence[_Seen], known: Sequence[Link], snapshot: Snapshot, now_s: int
) -> list[TickAction]:
    actions: list[TickAction] = [
        SaveLink(each.link, each.before) for each in seen if each.link != each.before
    ]
    chain_of = {(job.user, job.job_id): tag.chain_id for job, tag, *_ in seen}
    gone = []
    for link in known:
        if chain_of.get((link.user, link.job_id), link.chain_id) != link.chain_id:
            actions.append(DropLink(link))
        elif not is_present(link, snapshot):
            gone.append(link)
    requeued = tuple(each.link for each in seen if each.is_incomplete(now_s))
    return [*actions, LookUp(tuple(gone), requeued)] if gone or requeued else actions


def is_present(link: Link, snapshot: Snapshot) -> bool:
    """Whether the queue shows the link's job, and not another one that has its id."""
    job = snapshot.by_id.get(link.job_id)
    return link.job_id in snapshot.present if job is None else is_job_of(link, job)


def _closed_link(job: Job, tag: ChainTag, store: ChainStore) -> Link | None:
    """The link of a chain that was taken to be over, if this is one of it."""
    link = store.link_of_job(job.job_id)
    return link if link and (link.user, link.chain_id) == (job.user, tag.chain_id) else None


def link_of(job: Job, tag: ChainTag, before: Link | None) -> Link:
    """The link as the queue shows it now."""
    start_s = start_of(job, before)
    ready_s, down_s = ready_of(tag, start_s, before)
    return Link(
        chain_id=tag.chain_id,
        user=job.user,
        segment=tag.segment,
        job_id=job.job_id,
        predecessor_id=tag.predecessor_id,
        state=job.state,
        partition=job.partition,
        nodes=job.nodes,
        time_limit_s=job.time_limit_s,
        submit_s=job.submit_s,
        eligible_s=job.eligible_s,
        start_s=start_s,
        end_s=job.end_s,
        ready_s=ready_s,
        down_s=down_s,
        exit_code=job.exit_code,
        released_s=before.released_s if before else None,
        lead_s=tag.lead_s,
        reason=job.reason if job.is_pending else "",
        dependency=job.dependency if job.is_pending else "",
        begin_s=job.begin_s,
        was_held=was_held(job, before),
    )


def _grounds(advice: Advice, observation: Observation, baselines: Sequence[Policy]) -> Grounds:
    baseline = {policy.name: policy.decide(observation).action.value for policy in baselines}
    return Grounds(
        successor=observation.successor,
        penalty_now_s=advice.penalty_now_s,
        penalty_later_s=advice.penalty_later_s,
        baseline=baseline,
        handover_s=observation.handover_s if observation.mode is Mode.TRAIN else None,
    )


def _competing(seen: Sequence[_Seen]) -> Counter[tuple[str, str]]:
    """By user and chain: links that compete for nodes."""
    return Counter((job.user, tag.chain_id) for job, tag, *_ in seen if job.is_queueing)


def _decided(
    advice: Advice,
    observation: Observation,
    tag: ChainTag,
    policy: str,
    digest: str,
    grounds: Grounds,
) -> Wait | Release:
    decision = Decision(
        at_s=observation.now_s,
        chain_id=tag.chain_id,
        user=observation.successor.user,
        predecessor_id=observation.predecessor.job_id,
        successor_id=observation.successor.job_id,
        policy=advice.policy or policy,
        action=advice.action,
        reason=advice.reason,
        inputs_hash=_inputs_hash(observation, policy, digest),
        remaining_s=observation.remaining_s,
        wait_p10_s=advice.wait_p10_s,
        wait_p50_s=advice.wait_p50_s,
        wait_p90_s=advice.wait_p90_s,
        expected_interruption_s=advice.expected_interruption_s,
        expected_overlap_s=advice.expected_overlap_s,
        gain=advice.gain,
    )
    return (
        Release(decision, grounds) if advice.action is Action.RELEASE else Wait(decision, grounds)
    )


def _advices(policy: Policy, observations: Sequence[Observation]) -> list[Advice]:
    if isinstance(policy, BatchPolicy) and observations:
        try:
            advices = policy.decide_all(observations)
            if len(advices) != len(observations):
                raise ValueError(f"{len(advices)} answers to {len(observations)} pairs")
            return advices
        except (
            Exception
        ):  # one by one, so that only the pair that it fails on goes without an answer
            log.exception(
                "policy %s failed on %d pairs at once; trying one by one",
                policy.name,
                len(observations),
            )
    return [_advice(policy, observation) for observation in observations]


def _advice(policy: Policy, observation: Observation) -> Advice:
    try:
        return policy.decide(observation)
    except (
        Exception
    ) as error:  # a policy that fails on one user's pair must not stop the service for the others
        log.exception("policy %s failed on job %d", policy.name, observation.successor.job_id)
        return Advice(action=Action.WAIT, reason=f"the policy failed: {error!r}")


def _inputs_hash(observation: Observation, policy: str, digest: str) -> str:
    given = (
        policy,
        observation.now_s,
        observation.step_s,
        observation.predecessor,
        observation.successor,
        observation.penalties,
        observation.run_law,
        observation.short_handovers,
        observation.idle_s,
        observation.uptime,
        observation.handover_s,
        observation.earlier_s,
        tuple(observation.gains),
        digest,
    )
    return hashlib.sha256(repr(given).encode()).hexdigest()
