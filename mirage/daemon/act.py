"""Releasing a successor: re-read, write the intent, act, verify, write the outcome
(docs/service-checks.md).

A crash at any point leaves at most an intent without an outcome, and `resume` finds out from Slurm
what became of it. The act itself is idempotent, so nothing is ever done twice.
"""

from __future__ import annotations

import contextlib
from dataclasses import replace

from mirage.chain.runs import by_job
from mirage.chain.tag import ChainTag, parse_tag
from mirage.daemon.restraint import Acting
from mirage.daemon.tick import awaited, obstacle
from mirage.domain import Decision, Intent, Job, ReleaseOutcome
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused
from mirage.ports import Clock, Cluster, Store

UNDER_WAY_S = 2
"""From the intent to Slurm's carrying it out, at most, if all is well."""
STILL_WAITS = "it still waits for its predecessor; decided again"
REFUSAL_HOLDS_S = 3600
"""A refused release is tried again after this long: rights may have been given meanwhile."""


def release(
    decision: Decision, tag: ChainTag, acting: Acting, cluster: Cluster, store: Store, clock: Clock
) -> tuple[ReleaseOutcome, str]:
    """Carries a release out. Raises StoreError before anything was done, ClusterError if Slurm
    can't be asked.

    What it may do is looked at again after the re-read, and the disable file once more right before
    the act.
    """
    if refusal := _recent_refusal(decision, store):
        return ReleaseOutcome.REFUSED, f"not tried again within the hour: {refusal}"
    fresh = cluster.jobs([decision.predecessor_id, decision.successor_id])
    reason = obstacle(fresh.get(decision.successor_id), fresh.get(decision.predecessor_id), tag)
    if reason:
        return ReleaseOutcome.NOT_DONE, reason
    if restraint := acting.standing(fresh[decision.successor_id]):
        return ReleaseOutcome.NOT_DONE, str(restraint)
    intent = store.open_intent(decision, clock.now_s())
    if restraint := acting.disabled():
        return _close(intent, ReleaseOutcome.NOT_DONE, str(restraint), store, clock)
    try:
        cluster.release(decision.successor_id)
    except Refused as error:
        return _close(intent, ReleaseOutcome.REFUSED, str(error), store, clock)
    except ClusterUnavailable as error:
        return (
            ReleaseOutcome.UNKNOWN,
            f"no answer to the release; looked at again in the next cycle: {error}",
        )
    return resume(intent, cluster, store, clock)


def resume(
    intent: Intent, cluster: Cluster, store: Store, clock: Clock
) -> tuple[ReleaseOutcome, str]:
    """Verifies an open intent against what Slurm shows now, and closes it. Raises ClusterError,
    StoreError.
    """
    decision = intent.decision
    ids = [decision.predecessor_id, decision.successor_id]
    jobs = cluster.jobs(ids)
    if len(jobs) < len(ids):  # slurmctld forgets a job some minutes after its end
        with contextlib.suppress(AccountingUnavailable):
            records = by_job(cluster.accounting(intent.created_s, clock.now_s(), ids))
            jobs = {job_id: lives[-1] for job_id, lives in records.items()} | jobs
    successor = jobs.get(decision.successor_id)
    if successor and not _is_decided_on(successor, decision):
        successor = None
    found = _found(successor, jobs.get(decision.predecessor_id), intent)
    return _close(intent, *found, store, clock)


def _is_decided_on(job: Job, decision: Decision) -> bool:
    """Whether it is the decision's own successor: a slurmctld that was killed may have given that
    one's id to another job.
    """
    tag = parse_tag(job.comment)
    return job.user == decision.user and (tag is None or tag.chain_id == decision.chain_id)


def _found(job: Job | None, predecessor: Job | None, intent: Intent) -> tuple[ReleaseOutcome, str]:
    if job is None:
        return ReleaseOutcome.NOT_DONE, "Slurm does not know the job any more"
    if job.is_pending and awaited(job) == intent.decision.predecessor_id:
        return ReleaseOutcome.NOT_DONE, STILL_WAITS
    if not job.is_pending and job.start_s is None:
        return ReleaseOutcome.NOT_DONE, f"the job ended without a start ({job.state.value})"
    where = "in the queue" if job.is_pending else f"started ({job.state.value})"
    if predecessor is None or not (
        _before_its_end(job, predecessor) or _when_intended(job, intent)
    ):
        return ReleaseOutcome.ALREADY, f"{where}; Slurm let it in as its predecessor ended"
    return ReleaseOutcome.RELEASED, where


def _before_its_end(job: Job, predecessor: Job) -> bool:
    """Whether the job became eligible while its predecessor lived, which only a release brings
    about.
    """
    if predecessor.end_s is None or not predecessor.state.is_over:
        return True
    return job.eligible_s is not None and job.eligible_s < predecessor.end_s


def _when_intended(job: Job, intent: Intent) -> bool:
    """Whether the job became eligible as the release was under way. Its predecessor may have ended
    in that second.
    """
    return job.eligible_s is not None and abs(job.eligible_s - intent.created_s) <= UNDER_WAY_S


def _close(
    intent: Intent, outcome: ReleaseOutcome, detail: str, store: Store, clock: Clock
) -> tuple[ReleaseOutcome, str]:
    with store.transaction():
        store.close_intent(intent, outcome, detail, clock.now_s())
        link = store.link_of_job(intent.decision.successor_id)
        if outcome is ReleaseOutcome.RELEASED and link is not None:
            # Until the next cycle sees the queue, users read here that it no longer waits for its
            # predecessor.
            store.save_link(replace(link, released_s=intent.created_s, reason="", dependency=""))
    return outcome, detail


def times_let_in(job: Job, store: Store) -> int:
    """How often this very job was let in."""
    done = (ReleaseOutcome.RELEASED, ReleaseOutcome.ALREADY)
    tried = (intent for intent in store.intents(job.job_id) if intent.created_s >= job.submit_s)
    return sum(intent.outcome in done for intent in tried)


def times_without_effect(job: Job, store: Store, now_s: int) -> int:
    """How often Slurm accepted a release of this very job within the hour, and it waited on."""
    since_s = max(job.submit_s, now_s - REFUSAL_HOLDS_S)
    tried = (intent for intent in store.intents(job.job_id) if intent.created_s >= since_s)
    return sum(intent.detail == STILL_WAITS for intent in tried)


def _recent_refusal(decision: Decision, store: Store) -> str | None:
    for intent in store.intents(decision.successor_id):
        if (
            intent.outcome is ReleaseOutcome.REFUSED
            and decision.at_s - intent.created_s < REFUSAL_HOLDS_S
        ):
            return intent.detail
    return None
