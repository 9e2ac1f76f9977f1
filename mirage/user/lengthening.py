"""Other lengths for a chain: links, or the time that they run in all."""

from __future__ import annotations

from mirage.chain.folder import read_then
from mirage.chain.length import UNTIL_DONE, is_time, links_in, most_links, of_time, seconds_of
from mirage.chain.tag import MAX_SEGMENTS
from mirage.domain import Job
from mirage.errors import InputError
from mirage.user.sources import me
from mirage.user.steering import Steering

Change = tuple[bool, int]
"""Whether it comes on top of what there is, and how many."""


def wanted(
    chain: Steering, jobs: list[Job], more: Change | None, total_s: Change | None
) -> tuple[int, str]:
    """How many links the chain may have from now on, and what they may use in all. One of ``more``
    (links) and ``total_s`` is given. Raises InputError.
    """
    asked = more or total_s
    assert asked is not None
    is_more, number = asked
    if is_more and chain.length == UNTIL_DONE:
        raise InputError(f"chain {chain.chain_id} has no length: it runs until the work is done")
    in_time = is_time(chain.length) if is_more else bool(total_s) and not chain.is_up_front
    if in_time:
        seconds = number if total_s else number * _limit_s(jobs)
        length = of_time(seconds + (seconds_of(chain.length) if is_more else 0))
        links = links_in(seconds_of(length), _limit_s(jobs))
    else:
        links = number if more else links_in(number, _limit_s(jobs))
        links += int(chain.length or chain.segments) if is_more else 0
        length = "" if chain.is_up_front else str(links)
    if links > MAX_SEGMENTS:
        raise InputError(
            f"chain {chain.chain_id}: that makes {links} links: expected 1 to {MAX_SEGMENTS}"
        )
    return chain.started if chain.reaches(length) else most_links(length, links), length


def move_then(chain: Steering, last_id: int) -> None:
    """What was queued to follow the chain waits for its new last link. Raises ClusterError."""
    for then in read_then(chain.folder):
        if (
            then.job_id
            and (job := chain.cluster.jobs([then.job_id]).get(then.job_id))
            and job.is_pending
            and job.user == me()
            and job.comment.startswith(f"mirage-then/1 chain={chain.chain_id} ")
        ):
            chain.cluster.wait_for(then.job_id, last_id)


def _limit_s(jobs: list[Job]) -> int:
    limits_s = [job.time_limit_s for job in jobs if job.time_limit_s]
    if not limits_s:
        raise InputError(
            "--total-time needs the time limit of a link, and no job with one runs or waits: use"
            " --segments"
        )
    return limits_s[-1]
