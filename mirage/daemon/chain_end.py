"""What became of links that left the queue, and of chains without a living link. Pure, as
`tick.py`.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from mirage.chain.tag import may_be_link, parse_tag
from mirage.domain import USED_UP_EXIT, Chain, ChainState, Job, JobState, Link

LOST_AFTER_S = 1200
"""A link is lost once nobody has known it for so long: answers of squeue may be false for a time."""
RECORDED_AFTER_S = 300
"""So long after all that is known of a chain, accounting has a link that was cancelled."""


def is_job_of(link: Link, job: Job) -> bool:
    """Whether this is the link's job (`may_be_link`). One without a tag is, if it was submitted as
    the link was, or may be the link after a requeue; what a folder alone tells of has no such time.
    """
    if parse_tag(job.comment) is None and link.partition and not link.has_started:
        return job.user == link.user and job.submit_s == link.submit_s
    return may_be_link(job, link.user, link.chain_id, link.segment)


def is_lost(link: Link, others: Sequence[Link], now_s: int, missing_s: int) -> bool:
    """Whether a link of which neither slurmctld nor accounting knows an end was lost by a crash.

    ``others``: of its chain. ``missing_s``: for how long nobody has known it. A link that runs
    is not given up so soon, nor a lone one; one that a later link has passed is, sooner. What is
    known from a folder alone is judged by the end of the link before.
    """
    ends_s = [other.end_s for other in others if other.end_s is not None]
    is_recorded = now_s - max([link.submit_s, *ends_s]) >= RECORDED_AFTER_S
    later_s = [other.start_s for other in others if other.segment > link.segment and other.start_s]
    is_passed = bool(later_s) and now_s - min(later_s) >= RECORDED_AFTER_S
    is_late = missing_s >= LOST_AFTER_S or is_passed or (not link.partition and is_recorded)
    return is_late and link.start_s is None and bool(others)


def lost_link(segment: int) -> str:
    """`Chain.reason` of an open chain whose link Slurm has lost, or which has another chain's tag."""
    return f"link {segment} is not in Slurm any more"


def chain_end(
    chain: Chain, links: Sequence[Link], now_s: int, *, may_lack: bool = False
) -> Chain | None:
    """The chain as it ended; None while a link of it lives. ``may_lack``: accounting could not say
    whether it had more links.

    Judged by the last link that ran, since the queued successor is cancelled when a chain ends
    early. The link itself does that before it ends; a successor that is cancelled later was
    waiting, and the chain was not done. A link's job exits with 0 where the chain is done or the
    next link is queued (`job.sh`). So a link that completed without a next one ended its chain,
    unless Slurm has lost that one.
    """
    if not links or any(not link.is_over for link in links):
        return None
    ran = [link for link in links if link.has_started]
    if not ran:
        return _over(chain, ChainState.CANCELLED, "cancelled before any link started", now_s)
    last = max(ran, key=lambda link: (link.segment, link.start_s or 0))
    queued = [link for link in links if link.segment > last.segment]
    if may_lack and last.state is JobState.COMPLETED and last.segment < chain.segments:
        said = f"link {last.segment} completed, and accounting can't say what followed it"
        return _over(chain, ChainState.UNKNOWN, said, now_s)
    return _over(chain, *_verdict(chain, last, queued), now_s)


FORGET_AFTER_S = 86_400


LAG_S = 3600
"""So far accounting may be behind what slurmctld knows."""


def lost_chain_end(
    chain: Chain, links: Sequence[Link], runaway: Collection[int], now_s: int
) -> Chain | None:
    """The chain of whose unfinished links slurmctld knows nothing more, and accounting no end.
    None: more may come.

    ``runaway``: jobs that accounting has as living. If later links have ended an hour ago, it never
    hears of their end, and the later ones tell how the chain ended. Else the chain is given up a
    day after its last possible end.
    """
    lost = [link for link in links if not link.is_over]
    later = [link for link in links if link.segment > max(link.segment for link in lost)]
    is_settled = bool(later) and all(link.job_id in runaway for link in lost)
    is_settled = is_settled and now_s - max(link.end_s or now_s for link in later) >= LAG_S
    if not is_settled and not is_long_over(lost, now_s):
        return None
    if later:
        return chain_end(chain, later, now_s)
    return _over(
        chain,
        ChainState.UNKNOWN,
        "its jobs are gone and accounting can't say how they ended",
        now_s,
    )


def is_long_over(links: Sequence[Link], now_s: int) -> bool:
    """A day after the last possible end of all of these."""
    ends_s = (
        link.end_s or (link.start_s or link.submit_s) + (link.time_limit_s or 0) for link in links
    )
    return now_s - max(ends_s, default=now_s) >= FORGET_AFTER_S


def _verdict(chain: Chain, last: Link, queued: Sequence[Link]) -> tuple[ChainState, str]:
    """``queued``: later links, which never ran."""
    where = f"link {last.segment} (job {last.job_id})"
    if last.state is JobState.COMPLETED:
        if waiting := next((link for link in queued if _is_later(link.end_s, last.end_s)), None):
            which = f"link {waiting.segment} (job {waiting.job_id})"
            return ChainState.CANCELLED, f"{which} was cancelled while it waited"
        if chain.reason == lost_link(last.segment + 1) and last.segment < chain.segments:
            return ChainState.FAILED, f"{where} completed, but {chain.reason} ({_remedy(chain)})"
        return ChainState.DONE, f"{where} completed{' and the chain ended early' * bool(queued)}"
    if last.state is JobState.CANCELLED:
        return ChainState.CANCELLED, f"{where} was cancelled"
    at_signal = last.state is JobState.FAILED and last.exit_code == USED_UP_EXIT
    how = "the signal before its time limit" if at_signal else last.state.value
    is_cut = at_signal or last.state in (JobState.TIMEOUT, JobState.PREEMPTED)
    if is_cut and (last.segment >= chain.segments or (at_signal and not queued)):
        return ChainState.USED_UP, _used_up(chain.chain_id, where, how)
    if (is_cut or last.state is JobState.NODE_FAIL) and queued:
        return ChainState.CANCELLED, f"{where} ended with {how} and its successor was cancelled"
    is_alone = not queued and last.segment < chain.segments
    # Only the chain's folder tells whether its own job ended it, which is final, or was killed.
    alone = (
        f" and had queued no successor ({_remedy(chain)}, else mirage-submit)" if is_alone else ""
    )
    return (
        ChainState.FAILED,
        f"{where} ended with {last.state.value}, exit code {last.exit_code}{alone}",
    )


def _remedy(chain: Chain) -> str:
    return f"to go on: mirage resume {chain.chain_id}"


def _is_later(end_s: int | None, than_s: int | None) -> bool:
    return end_s is not None and than_s is not None and end_s > than_s


def _used_up(chain_id: str, where: str, how: str) -> str:
    """Why a chain is `used-up`. ``how``: Slurm's state of the last link, which ``where`` names."""
    return (
        f"{where}, the last one, ended with {how}: the work may be unfinished (more links:"
        f" mirage extend {chain_id} --segments +1)"
    )


def _over(chain: Chain, state: ChainState, reason: str, now_s: int) -> Chain:
    return replace(chain, state=state, reason=reason, updated_s=now_s)
