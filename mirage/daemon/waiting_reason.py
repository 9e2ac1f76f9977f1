"""Where a waiting link stands with Slurm, in words. Pure.

Slurm gives one reason at a time (`squeue(1)`, JOB REASON CODES). Only where the reason is the
dependency on the link's predecessor is it true that Slurm starts the link after that job, so each
sentence is made from the reason.
"""

from __future__ import annotations

import time

from mirage.domain import Link
from mirage.reasons import ReasonKind, kind_of

DAEMON, AGENT, OWNER, SLURM = "daemon", "agent", "owner", "slurm"
"""Who let a link into the queue: the site's daemon, its owner's agent, its owner by other means, or
Slurm itself.
"""

_WORDS = {
    "JobHeldAdmin": "an administrator holds it",
    "JobHeldUser": "its owner holds it",
    "BeginTime": "its begin time has not come (BeginTime)",
    "PartitionDown": "its partition is down (PartitionDown)",
    "PartitionInactive": "its partition is inactive (PartitionInactive)",
    "PartitionNodeLimit": (
        "it asks for more nodes than its partition gives a job (PartitionNodeLimit)"
    ),
    "PartitionTimeLimit": (
        "it asks for more time than its partition gives a job (PartitionTimeLimit)"
    ),
}
"""Where they say more than the kind of the reason."""
_KINDS = {
    ReasonKind.HELD: "Slurm holds it ({})",
    ReasonKind.BEGIN: "its begin time has not come ({})",
    ReasonKind.THROTTLE: "its array may not have more tasks running ({})",
    ReasonKind.LIMIT: (
        "a limit keeps it back ({}); while a running link counts against it, an early start can't"
        " be had"
    ),
    ReasonKind.RESOURCE: "it waits for something else than nodes ({})",
    ReasonKind.CANNOT_RUN: "no free node would start it as it is now ({})",
}
_TOO_LARGE = ("PartitionNodeLimit", "PartitionTimeLimit")


def waits_for_predecessor(link: Link) -> bool:
    """Whether `afterany` on its predecessor is all that keeps it, so that Slurm starts it after
    that job.
    """
    return bool(link.dependency) and _is_on_predecessor(link) and not kept_by(link)


def kept_by(link: Link) -> str | None:
    """What keeps a pending link back, apart from nodes and its predecessor, as half a sentence;
    None: nothing does.
    """
    reason, job, kind = link.reason, link.job_id, kind_of(link.reason)
    if reason == "DependencyNeverSatisfied":
        return (
            f"its dependency ({link.dependency or 'none shown'}) can never be satisfied, so Slurm"
            f" never starts it: `scontrol update JobId={job} Dependency=` lets it in, `mirage"
            f" cancel {link.chain_id}` ends the chain"
        )
    words = _WORDS.get(reason) or _KINDS.get(kind, "").format(reason)
    if kind is ReasonKind.HELD:
        return f"{words}, and Slurm does not start it before `scontrol release {job}`"
    if link.begin_s is not None:  # Slurm's reason may still be the dependency
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(link.begin_s))
        now = f"`scontrol update JobId={job} StartTime=now` takes it back"
        return f"its begin time is {at}, and Slurm does not start it sooner ({now})"
    if reason in _TOO_LARGE:
        return f"{words}: `mirage cancel {link.chain_id}`, and submit with less"
    if words:
        return words
    # Right after a change Slurm gives no reason, or the one from before; the dependency is there at
    # once.
    if (link.dependency or kind is ReasonKind.DEPENDENCY) and not _is_on_predecessor(link):
        before = (
            f"not afterany:{link.predecessor_id} alone" if link.predecessor_id else "not Mirage's"
        )
        return (
            f"it waits for {link.dependency or 'its dependency'}, which is {before}, so Mirage"
            " leaves it alone"
        )
    return None


def _is_on_predecessor(link: Link) -> bool:
    return link.dependency.replace("(unfulfilled)", "") == f"afterany:{link.predecessor_id}"


def let_in_by(link: Link, before: Link | None, service: str) -> str | None:
    """Who let the link into the queue; None: nobody yet, or it is not known.

    ``before``: its predecessor. ``service``: whose releases `released_s` tells of. A link that
    became eligible in the second of its predecessor's end counts as Slurm's: in most cases it is.
    """
    link = link.each_run[0]
    if link.dependency:
        # it waits, though it may have been let in before: its owner has given it a dependency again
        return None
    if link.released_s is not None:
        return service
    if link.predecessor_id is None and (link.eligible_s is not None or link.start_s is not None):
        return SLURM
    if link.eligible_s is None:
        return None
    if before is None or before.job_id != link.predecessor_id:
        return None
    if before.is_over:
        if before.end_s is None:
            return None
        return OWNER if link.eligible_s < before.end_s else SLURM
    return OWNER if before.state.has_nodes else None
