"""What users ask about their chains, as plain JSON values: the same for the socket, the agent's
file and `--json`.
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from mirage.chain.durations import format_duration
from mirage.chain.handoff import Handoff, handoffs
from mirage.chain.length import in_words
from mirage.chain.progress import chain_progress
from mirage.chain.runs import down_s, each_run
from mirage.chain.serving import Readiness, readiness
from mirage.daemon.attention import attention, starting_words
from mirage.daemon.restraint import Code, restraint_in
from mirage.daemon.services import replica_json
from mirage.daemon.waiting_reason import (
    AGENT,
    DAEMON,
    OWNER,
    SLURM,
    kept_by,
    let_in_by,
    waits_for_predecessor,
)
from mirage.domain import (
    ActingMode,
    Action,
    Chain,
    ChainState,
    Decision,
    Intent,
    Link,
    Penalties,
    ReleaseOutcome,
    wanted_uptime,
)
from mirage.errors import InputError
from mirage.ports import ChainStore
from slurm_sim.seconds import DAY_S

Json = dict[str, Any]

BAD_DAYS = 3
"""So long a chain that ended badly is shown without being asked for: a weekend must not hide it."""
FRESH_S = 15
"""What was seen or decided longer ago is told with its time."""
SHOWN = (
    "all that are not over, and those that failed, used up their links, or were lost within"
    f" {BAD_DAYS} days"
)
"""Chains without being asked for, in words."""
_LET_IN = {
    DAEMON: "Mirage's daemon",
    AGENT: "its owner's Mirage agent",
    OWNER: "its owner or the owner's agent",
}


def chain_reports(
    store: ChainStore,
    user: str | None,
    chain_id: str | None = None,
    service: str = DAEMON,
    *,
    decides: bool = True,
) -> list[Json]:
    """Every chain of a user (None: of all users), newest first, with links and the last decision.

    ``service``: whose store this is, the daemon's or an agent's. ``decides``: that service runs.
    """
    chains = [chain for chain in store.chains(user) if chain_id in (None, chain.chain_id)]
    return [_chain(chain, store, service, decides) for chain in chains]


def is_news(report: Json, now_s: float) -> bool:
    """Whether a chain is shown without being asked for: it is not over, or ended badly lately and its
    owner has not put it away.
    """
    state = ChainState(report["state"])
    is_late = report["updated"] >= now_s - BAD_DAYS * DAY_S
    return not state.is_over or (state.is_bad and is_late and not report.get("dismissed"))


def _chain(chain: Chain, store: ChainStore, service: str, decides: bool) -> Json:
    links = store.links(chain.user, chain.chain_id)
    by_job = {link.job_id: link for link in links}
    costs: dict[int, list[Handoff]] = defaultdict(list)
    cut_short = Counter[int]()
    for handoff in handoffs(links, chain.start_up_s):
        costs[handoff.link.job_id].append(handoff)
        cut_short[handoff.predecessor.job_id] += handoff.cut_short_s
    return {
        "chain": chain.chain_id,
        "user": chain.user,
        "name": chain.name,
        "state": chain.state.value,
        "reason": chain.reason,
        "segments": chain.segments,
        "length": in_words(chain.length, chain.segments),
        "ran_s": sum(_ran_s(run) for run in each_run(links)),
        "mode": chain.mode.value,
        "created": chain.created_s,
        "updated": chain.updated_s,
        "penalties": None if chain.penalties == Penalties() else asdict(chain.penalties),
        "service": _service(chain, links),
        "replica": replica_json(chain, links, int(time.time())),
        "links": [
            _link(link, chain)
            | _costs(costs[link.job_id], down_s(link))
            | {
                "let_in_by": let_in_by(link, by_job.get(link.predecessor_id or 0), service),
                "cut_short_s": cut_short[link.job_id],
            }
            for link in links
        ],
        "attention": _attention(chain, links, store),
        "watched_by": service if decides else None,
        "acting": _acting(links, store) if decides else None,
        "next": what_next(chain, links, store, service, decides=decides),
    }


def _service(chain: Chain, links: Sequence[Link]) -> Json | None:
    """How far a service has been up since it was ready first; None: a training chain."""
    if chain.start_up_s is None:
        return None
    found = chain_progress(links, int(time.time()), start_up_s=chain.start_up_s)
    return {
        "uptime": found.goodput if found.wall_s else None,
        "wanted": wanted_uptime(chain.mode, chain.penalties, chain.uptime),
        "wall_s": found.wall_s,
        "down_s": found.interrupted_s,
        "longest_gap_s": found.longest_gap_s,
        "start_up_s": chain.handover_s,
    }


def _ran_s(link: Link) -> int:
    until_s = link.end_s or (int(time.time()) if link.state.has_nodes else link.start_s)
    return max(0, (until_s or 0) - link.start_s) if link.start_s else 0


def _attention(chain: Chain, links: Sequence[Link], store: ChainStore) -> Json | None:
    found = attention(chain, links, store, time.time())
    return {"trouble": found.trouble.value, "words": found.words} if found else None


def _costs(own: Sequence[Handoff], down_s: int) -> Json:
    """``own``: the handover to a link, and its own requeues. ``down_s``: within its runs."""
    handovers = [handoff for handoff in own if not handoff.is_requeue]
    return {
        "interruption_s": sum(handoff.interruption_s for handoff in own) + down_s
        if own or down_s
        else None,
        "down_s": down_s,
        "overlap_s": sum(handoff.overlap_s for handoff in handovers) if handovers else None,
    }


def _link(link: Link, chain: Chain) -> Json:
    runs = link.each_run
    ready = readiness(runs[-1], chain.start_up_s, time.time())
    first = runs[0]
    return {
        "segment": link.segment,
        "job_id": link.job_id,
        "predecessor": link.predecessor_id,
        "state": link.state.value,
        "partition": link.partition,
        "nodes": link.nodes or None,
        "submit": first.submit_s,
        "eligible": first.eligible_s,
        "start": first.start_s,
        "end": link.end_s,
        "readiness": ready.value if ready else None,
        "ready": link.ready_s or None,
        "limit_s": link.time_limit_s,
        "expected_end": link.expected_end_s,
        "exit_code": link.exit_code,
        "released": link.released_s,
        "reason": link.reason,
        "runs": [
            {
                "submit": run.submit_s,
                "start": run.start_s,
                "end": run.end_s,
                "state": run.state.value,
            }
            for run in runs
            if run.start_s is not None
        ],
    }


def _acting(links: Sequence[Link], store: ChainStore) -> str | None:
    return next(
        (acting_of(store.decisions(link.job_id, limit=1)) for link in _waiting(links)), None
    )


def what_next(
    chain: Chain,
    links: Sequence[Link],
    store: ChainStore,
    service: str = DAEMON,
    *,
    decides: bool = True,
) -> str:
    """One to three sentences: which link of a service starts, what happens next, and what if Mirage
    stops.
    """
    if chain.state.is_over:
        return chain.reason
    now_s = time.time()
    starting = [
        starting_words(link, chain, now_s).replace("job", "Job", 1)
        for link in links
        if readiness(link, chain.start_up_s, now_s) is Readiness.STARTING
    ]
    return " ".join([*starting, _goes_on(chain, links, store, service, decides)])


def _goes_on(
    chain: Chain, links: Sequence[Link], store: ChainStore, service: str, decides: bool
) -> str:
    if waiting := _waiting(links):
        return explanation(waiting[0], store, service, asked=False, decides=decides)
    running = [link for link in links if link.state.has_nodes]
    if not running:
        return "No job of it is in the queue now; how it ended is not known yet."
    last = running[-1]
    rest = "no link waits" if last.segment < chain.segments else "it is the last one"
    return f"Job {last.job_id} (link {last.segment}) runs; {rest}."


def _waiting(links: Sequence[Link]) -> list[Link]:
    """Not those that a later link has passed: they wait for nothing, or Slurm has lost them."""
    last = max((link.segment for link in links if link.start_s is not None), default=0)
    return [link for link in links if link.is_waiting and link.segment > last]


def explain(
    store: ChainStore, user: str | None, job_id: int, service: str = DAEMON, *, decides: bool = True
) -> Json:
    """Why Mirage does what it does with a job. Raises InputError for a job that is in no chain of
    the user.
    """
    link = store.link_of_job(job_id)
    if link is None or user not in (None, link.user):
        raise InputError(
            f"job {job_id}: no link of a chain of yours that Mirage has seen. `mirage status` lists"
            " your chains; a new job is seen in the daemon's next cycle."
        )
    return {
        "job_id": job_id,
        "chain": link.chain_id,
        "acting": acting_of(store.decisions(job_id, limit=1)) if decides else None,
        "let_in_by": let_in_by(link, _before(link, store), service),
        "explanation": explanation(link, store, service, decides=decides),
        "decisions": [decision_json(decision) for decision in store.decisions(job_id, limit=10)],
        "releases": [_intent(intent) for intent in store.intents(job_id)],
    }


def explanation(
    link: Link,
    store: ChainStore,
    service: str = DAEMON,
    *,
    asked: bool = True,
    decides: bool = True,
) -> str:
    """One plain sentence or two, with the standing fallback where it holds.

    ``asked``: somebody wants to know of this job. If not, a service that only observes keeps its
    opinion to itself. ``decides``: the service runs, so its last decision counts.
    """
    if not link.is_waiting:
        return _past(link, store, service)
    who = f"Job {link.job_id} (link {link.segment})"
    before, kept = _before(link, store), kept_by(link)
    chain = store.chain(link.user, link.chain_id)
    if chain and chain.state is ChainState.PAUSED:
        return (
            f"{who} is held: its owner has paused the chain. It goes on with `mirage resume"
            f" {link.chain_id}`."
        )
    let_in = let_in_by(link, before, service)
    if let_in in _LET_IN:
        then = f", but {kept}" if kept else " and waits for nodes"
        when = f" before job {link.predecessor_id} ended" if let_in == OWNER else ""
        why = _why_released(link, store) if asked else ""
        return f"{who} was let into the queue by {_LET_IN[let_in]}{when}{then}.{why}"
    if kept:
        return f"{who} is kept back: {kept}."
    if link.eligible_s is None and not (link.reason or link.dependency):
        return f"{who} is pending; Slurm gives no reason yet."
    if link.predecessor_id is None:
        return f"{who} is the chain's first and waits for nodes."
    if not waits_for_predecessor(link):
        slurm = (
            f": Slurm let it in once job {link.predecessor_id} had ended" if let_in == SLURM else ""
        )
        return f"{who} waits for nodes{slurm}."
    return _behind(who, link, before, store, asked=asked, decides=decides)


def _behind(
    who: str, link: Link, before: Link | None, store: ChainStore, *, asked: bool, decides: bool
) -> str:
    """Of a link that Slurm lets in as its predecessor ends."""
    after = f"Slurm starts it after job {link.predecessor_id} ends."
    if before and before.is_waiting:
        kept = kept_by(before)
        after += (
            f" Job {before.job_id} has not started: {kept}."
            if kept
            else f" Job {before.job_id} has not started yet."
        )
    if not decides:
        return f"{who} waits for job {link.predecessor_id}. {after}"
    if refused := _refusal(link, store):
        return (
            f"{who} could not be let into the queue: Slurm refused ({refused}). If Mirage stops,"
            f" {after}"
        )
    decisions = store.decisions(link.job_id, limit=1)
    if not decisions:
        nothing = "Mirage has not decided anything yet"
        return f"{who} waits for job {link.predecessor_id}; {nothing}. If Mirage stops, {after}"
    return _decided(who, link, decisions[0], after, asked)


def _before(link: Link, store: ChainStore) -> Link | None:
    return None if link.predecessor_id is None else store.link_of_job(link.predecessor_id)


def _refusal(link: Link, store: ChainStore) -> str | None:
    """Slurm's words, if the last release that was tried was refused."""
    last = next(iter(store.intents(link.job_id)), None)
    return last.detail if last and last.outcome is ReleaseOutcome.REFUSED else None


def _decided(who: str, link: Link, decision: Decision, after: str, asked: bool) -> str:
    restraint, reason = restraint_in(decision.reason)
    release, as_of = decision.action is Action.RELEASE, _as_of(decision.at_s)
    if restraint is None:
        verb = "is to enter the queue now" if release else "is held back for now"
        return f"{who} {verb}{as_of}: {reason}. If Mirage stops, {after}"
    if restraint.code is Code.OBSERVE and not asked:
        return (
            f"{who} waits for job {link.predecessor_id}. Mirage only observes here and leaves it"
            f" alone. {after}"
        )
    choice = "let it into the queue now" if release else "leave it where it is for now"
    if restraint.code is Code.ADVISE:
        how = f" (scontrol update JobId={link.job_id} Dependency=)" if release else ""
        advice = f"{who}: Mirage advises to {choice}{how}{as_of}: {reason}."
        return f"{advice} It does not do that itself here. If you do nothing, {after}"
    return f"{who} is left alone, since {restraint.words}; Mirage would {choice}{as_of}: {reason}. {after}"


def _as_of(at_s: int) -> str:
    """When something was decided, since its words are of that time; empty: just now."""
    age_s = int(time.time()) - at_s
    if age_s < FRESH_S:
        return ""
    clock = time.strftime("%H:%M:%S", time.localtime(at_s))
    return f" (as of {clock}, {format_duration(age_s)} ago)"


def acting_of(decisions: Sequence[Decision]) -> str | None:
    """What the service may do with a job: a mode, or the restraint's code; None if nothing was
    decided yet.
    """
    if not decisions:
        return None
    restraint, _ = restraint_in(decisions[0].reason)
    return restraint.code.value if restraint else ActingMode.ENFORCE.value


def _past(link: Link, store: ChainStore, service: str) -> str:
    who, link = f"Job {link.job_id} (link {link.segment})", link.each_run[0]
    if link.start_s is None:
        if not link.is_over:
            return f"{who} is {link.state.value}."
        chain = store.chain(link.user, link.chain_id)
        ended = bool(chain and chain.state.is_over and chain.reason)
        why = f" The chain is {chain.state.value}: {chain.reason}." if chain and ended else ""
        return f"{who} never started ({link.state.value}).{why}"
    if link.predecessor_id is None:
        return f"{who} is the chain's first: it started as soon as Slurm had nodes for it."
    let_in = let_in_by(link, _before(link, store), service)
    if let_in in _LET_IN:
        early = f" before job {link.predecessor_id} ended" if let_in == OWNER else ""
        by_whom = f"it was let into the queue by {_LET_IN[let_in]}{early}"
    elif let_in == SLURM:
        by_whom = f"Slurm let it in once job {link.predecessor_id} had ended"
    else:
        by_whom = "who let it into the queue is not known"
    since = link.released_s or link.eligible_s
    waited = (
        f", {format_duration(link.start_s - since)} before it started" if since is not None else ""
    )
    return f"{who}: {by_whom}{waited}.{_why_released(link, store)}"


def _why_released(link: Link, store: ChainStore) -> str:
    """A further sentence; empty: not by Mirage, or the decision is too old to be kept."""
    released = (d for d in store.decisions(link.job_id) if d.action is Action.RELEASE)
    why = next((restraint_in(decision.reason)[1] for decision in released), "")
    return f" Why then: {why}." if link.released_s and why else ""


def decision_json(decision: Decision) -> Json:
    return {
        "at": decision.at_s,
        "policy": decision.policy,
        "action": decision.action.value,
        "reason": decision.reason,
        "acting": acting_of([decision]),
        "inputs_sha256": decision.inputs_hash,
        "remaining_s": decision.remaining_s,
        "wait_p10_s": decision.wait_p10_s,
        "wait_p50_s": decision.wait_p50_s,
        "wait_p90_s": decision.wait_p90_s,
        "expected_interruption_s": decision.expected_interruption_s,
        "expected_overlap_s": decision.expected_overlap_s,
    }


def _intent(intent: Intent) -> Json:
    return {
        "at": intent.created_s,
        "outcome": intent.outcome.value if intent.outcome else None,
        "detail": intent.detail,
        "finished": intent.finished_s,
    }
