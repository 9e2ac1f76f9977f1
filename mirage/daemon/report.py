"""What users ask about their chains, as plain JSON values: the same for the socket, the agent's file and `--json`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mirage.chain.durations import format_duration
from mirage.chain.handoff import handoffs
from mirage.daemon.restraint import Code, restraint_in
from mirage.domain import ActingMode, Action, Chain, ChainState, Decision, Intent, JobState, Link, Outcome
from mirage.errors import InputError
from mirage.ports import Store

Json = dict[str, Any]


def chain_reports(store: Store, user: str | None, chain_id: str | None = None) -> list[Json]:
    """Every chain of a user (None: of all users), newest first, with links and the last decision."""
    chains = [chain for chain in store.chains(user) if chain_id in (None, chain.chain_id)]
    return [_chain(chain, store) for chain in chains]


def _chain(chain: Chain, store: Store) -> Json:
    links = store.links(chain.user, chain.chain_id)
    costs = {handoff.link.job_id: handoff for handoff in handoffs(links)}
    cut_short = {handoff.predecessor.job_id: handoff.cut_short_s for handoff in costs.values()}
    return {
        "chain": chain.chain_id,
        "user": chain.user,
        "state": chain.state.value,
        "reason": chain.reason,
        "segments": chain.segments,
        "mode": chain.mode.value,
        "created": chain.created_s,
        "updated": chain.updated_s,
        "penalties": {"interruption": chain.penalties.interruption, "overlap": chain.penalties.overlap},
        "links": [
            _link(link)
            | {
                "interruption_s": costs[link.job_id].interruption_s if link.job_id in costs else None,
                "overlap_s": costs[link.job_id].overlap_s if link.job_id in costs else None,
                "cut_short_s": cut_short.get(link.job_id, 0),
            }
            for link in links
        ],
        "acting": next((acting_of(store.decisions(link.job_id, limit=1)) for link in _waiting(links)), None),
        "next": what_next(chain, links, store),
    }


def _link(link: Link) -> Json:
    return {
        "segment": link.segment,
        "job_id": link.job_id,
        "predecessor": link.predecessor_id,
        "state": link.state.value,
        "partition": link.partition,
        "nodes": link.nodes or None,
        "submit": link.submit_s,
        "eligible": link.eligible_s,
        "start": link.start_s,
        "end": link.end_s,
        "exit_code": link.exit_code,
        "released": link.released_s,
    }


def what_next(chain: Chain, links: list[Link], store: Store) -> str:
    """One sentence: what happens next, and what if Mirage stops."""
    waiting = _waiting(links)
    if chain.state.is_over:
        return chain.reason
    if not waiting:
        running = [link for link in links if link.state.has_nodes]
        return f"Job {running[-1].job_id} (link {running[-1].segment}) runs; no link waits." if running else ""
    return explanation(waiting[0], store, asked=False)


def _waiting(links: list[Link]) -> list[Link]:
    return [link for link in links if link.state is JobState.PENDING]


def explain(store: Store, user: str | None, job_id: int) -> Json:
    """Why Mirage does what it does with a job. Raises InputError for a job that is in no chain of the user."""
    link = store.link_of_job(job_id)
    if link is None or user not in (None, link.user):
        raise InputError(
            f"job {job_id}: no link of a chain of yours that Mirage has seen. `mirage status` lists your chains; a "
            "new job is seen in the daemon's next cycle."
        )
    return {
        "job_id": job_id,
        "chain": link.chain_id,
        "acting": acting_of(store.decisions(job_id, limit=1)),
        "explanation": explanation(link, store),
        "decisions": [decision_json(decision) for decision in store.decisions(job_id, limit=10)],
        "releases": [_intent(intent) for intent in store.intents(job_id)],
    }


def explanation(link: Link, store: Store, *, asked: bool = True) -> str:
    """One plain sentence or two, with the standing fallback.

    ``asked``: somebody wants to know of this job. If not, a service that only observes keeps its opinion to itself.
    """
    if link.state is not JobState.PENDING:
        return _past(link, store)
    who = f"Job {link.job_id} (link {link.segment})"
    chain = store.chain(link.user, link.chain_id)
    if chain and chain.state is ChainState.PAUSED:
        return f"{who} is held: its owner has paused the chain. It goes on with `mirage resume {link.chain_id}`."
    last = next(iter(store.decisions(link.job_id, limit=1)), None)
    if link.released_s is not None and (last is None or last.at_s <= link.released_s):
        return f"{who} was let into the queue by Mirage and waits for nodes."
    if link.predecessor_id is None:
        return f"{who} is the chain's first and waits for nodes."
    if link.eligible_s is not None:
        before = store.link_of_job(link.predecessor_id)
        by_whom = "Slurm let it in as" if before is None or before.state.is_over else "it was let into the queue before"
        return f"{who} waits for nodes: {by_whom} job {link.predecessor_id} ended."
    fallback = f"If Mirage stops, Slurm starts it after job {link.predecessor_id} ends."
    if refused := _refusal(link, store):
        return f"{who} could not be let into the queue: Slurm refused ({refused}). {fallback}"
    if last is None:
        return f"{who} waits for job {link.predecessor_id}; Mirage has not decided anything yet. {fallback}"
    return _decided(who, link, last, asked)


def _refusal(link: Link, store: Store) -> str | None:
    """Slurm's words, if the last release that was tried was refused."""
    last = next(iter(store.intents(link.job_id)), None)
    return last.detail if last and last.outcome is Outcome.REFUSED else None


def _decided(who: str, link: Link, decision: Decision, asked: bool) -> str:
    restraint, reason = restraint_in(decision.reason)
    release = decision.action is Action.RELEASE
    after = f"Slurm starts it after job {link.predecessor_id} ends."
    if restraint is None:
        verb = "is to enter the queue now" if release else "is held back for now"
        return f"{who} {verb}: {reason}. If Mirage stops, {after}"
    if restraint.code is Code.OBSERVE and not asked:
        return f"{who} waits for job {link.predecessor_id}. Mirage only observes here and leaves it alone. {after}"
    choice = "let it into the queue now" if release else "leave it where it is for now"
    if restraint.code is Code.ADVISE:
        how = f" (scontrol update JobId={link.job_id} Dependency=)" if release else ""
        advice = f"{who}: Mirage advises to {choice}{how}: {reason}."
        return f"{advice} It does not do that itself here. If you do nothing, {after}"
    return f"{who} is left alone, since {restraint.words}; Mirage would {choice}: {reason}. {after}"


def acting_of(decisions: Sequence[Decision]) -> str | None:
    """What the service may do with a job: a mode, or the restraint's code; None if nothing was decided yet."""
    if not decisions:
        return None
    restraint, _ = restraint_in(decisions[0].reason)
    return restraint.code.value if restraint else ActingMode.ENFORCE.value


def _past(link: Link, store: Store) -> str:
    who = f"Job {link.job_id} (link {link.segment})"
    if link.start_s is None:
        return f"{who} never started ({link.state.value})."
    if link.predecessor_id is None:
        return f"{who} is the chain's first: it started as soon as Slurm had nodes for it."
    by_whom = (
        "Mirage let it into the queue" if link.released_s else f"Slurm let it in as job {link.predecessor_id} ended"
    )
    since = link.released_s or link.eligible_s
    waited = f", {format_duration(link.start_s - since)} before it started" if since is not None else ""
    released = (d for d in store.decisions(link.job_id) if d.action is Action.RELEASE)
    why = next((restraint_in(decision.reason)[1] for decision in released), "")
    return f"{who}: {by_whom}{waited}." + (f" Why then: {why}." if link.released_s and why else "")


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
