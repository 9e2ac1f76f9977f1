"""Waiting until a chain is over and none of its links runs any more."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from mirage.chain.folder import over_marker, queued_jobs, read_link, read_segments, read_starts
from mirage.chain.tag import may_be_link
from mirage.domain import ChainState, Job
from mirage.errors import ClusterError
from mirage.ports import Cluster
from mirage.user.sources import find_chains, me

LOOK_S = 5
"""How often the chain's folder is looked at, which costs nothing,"""
ASK_S = 60
"""and Slurm is asked: a chain whose links were all cancelled by hand has nobody to say so in its
folder.
"""


def unmarked(chain_id: str, folder: Path) -> tuple[str, str]:
    """How a chain ended that none of its jobs marked as over: its state as `mirage status` has it,
    and the reason.
    """
    report = find_chains(chain_id)[0][0]
    is_over = ChainState(report["state"]).is_over
    state = report["state"] if is_over else "over"  # a daemon may not have seen the end yet
    reason = f"{report['reason']}. " if is_over and report["reason"] else ""
    nothing = "nothing says that the work is done"
    if max(read_starts(folder), default=0) < read_segments(folder):
        return state, f"{reason}No link of it is left, and {nothing}. To go on: mirage resume"
    ways = "If it is: mirage done. For more links: mirage extend --segments +1"
    return state, f"{reason}All its links have run, and {nothing}. {ways}"


def wait_until_over(
    folder: Path,
    cluster: Cluster,
    until_s: float | None,
    complain: Callable[[str], None],
) -> bool:
    """Until the chain is over and none of its links runs. False: the time was up. ``complain`` gets why
    Slurm can't be asked, once.
    """
    ask_at_s, marked, complained = time.monotonic(), False, False
    while True:
        if not marked and over_marker(folder):
            marked, ask_at_s = True, time.monotonic()
        if time.monotonic() >= ask_at_s:
            try:
                if not _lives(folder, cluster, marked=marked):
                    return True
                complained = False
            except ClusterError as error:
                if not complained:
                    complain(f"trying on: {error}")
                complained = True
            ask_at_s = time.monotonic() + (LOOK_S if marked else ASK_S)
        if until_s is not None and time.monotonic() >= until_s:
            return False
        left_s = LOOK_S if until_s is None else max(0.0, min(LOOK_S, until_s - time.monotonic()))
        time.sleep(left_s)


def _lives(folder: Path, cluster: Cluster, *, marked: bool) -> bool:
    """Whether a link may still do something: it runs, or, while the chain goes on, waits."""
    jobs = queued_jobs(folder)
    ended = [segment for segment in jobs if read_link(folder, segment)]
    # The last to end may be about to end the chain, and queue what follows.
    asked = {job_id: segment for segment, job_id in jobs.items() if segment not in ended[:-1]}
    known = cluster.jobs(list(asked)) if asked else {}
    return any(
        _is_live(job, marked) and may_be_link(job, me(), folder.name, asked[job_id])
        for job_id, job in known.items()
    )


def _is_live(job: Job, marked: bool) -> bool:
    return not job.state.is_over and not (marked and job.is_pending)
