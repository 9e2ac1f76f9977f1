"""Pausing a chain: its folder says so, its queued jobs are held, its running link may be asked to end."""

from __future__ import annotations

import time

from mirage.chain.folder import is_paused, mark_paused, read_starts
from mirage.chain.tag import parse_tag
from mirage.domain import Job, Mode
from mirage.errors import ClusterError
from mirage.user.ending import ROUNDS
from mirage.user.steering import Steering


def mark(chain: Steering) -> bool:
    """False: the chain was paused already. Raises ClusterError: its folder can't be written."""
    if is_paused(chain.folder):
        return False
    try:
        mark_paused(chain.folder, int(time.time()))
    except OSError as error:
        raise ClusterError(
            f"can't write to the chain's folder {chain.folder}: {error}; nothing was done"
        ) from error
    return True


def hold(chain: Steering) -> list[int]:
    """Holds the chain's queued jobs; a link that has just started may be queueing another."""
    held: list[int] = []
    for attempt in range(ROUNDS):
        waiting = [job.job_id for job in chain.jobs() if job.is_pending and not job.is_held]
        if waiting:
            chain.cluster.hold(waiting)
            held += [job_id for job_id in waiting if job_id not in held]
        elif attempt:
            break
        time.sleep(1)
    return sorted(held)


def end_now(chain: Steering, running: list[Job]) -> list[str]:
    """Asks the links that work to end; returns what was done, in words. A link that waits for its
    predecessor's end goes back to the queue by itself.
    """
    said = []
    segments = {job.job_id: tag.segment for job in running if (tag := parse_tag(job.comment))}
    works = (
        set(segments.values()) if chain.mode is Mode.SERVICE else set(list(segments.values())[:1])
    )
    if chain.segments in works:  # else the rest of its work would have no link left
        chain.set_length(chain.segments + 1, chain.length)
        said.append("it has one link more, for the rest of its work")
        chain.go_on()
    starts = read_starts(chain.folder)
    for job in running:
        segment = segments.get(job.job_id, 0)
        if segment in starts and starts[segment].job_id == job.job_id:
            chain.ask_to_end(job, segment)
            said.append(f"asked job {job.job_id} to end")
    return said
