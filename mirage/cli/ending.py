"""What `mirage cancel` and `mirage done` share: they act with the user's own Slurm rights, not through the daemon."""

from __future__ import annotations

import time
from pathlib import Path

from mirage.chain.folder import chain_folder, mark_over, over_marker
from mirage.chain.submission import let_follow
from mirage.chain.tag import parse_tag
from mirage.cli.sources import me
from mirage.config import ClusterConfig
from mirage.domain import Job
from mirage.errors import ClusterError, InputError
from mirage.slurm.commands import CommandCluster

ROUNDS = 3
"""How often the queue is looked at: a link that just started may be queueing its successor."""


def end_chain(chain_id: str, marker: str, reason: str, *, running_too: bool) -> list[int]:
    """Marks the chain as over and ends its queued jobs (and running ones), successors first; their ids.

    What `--then` asked for is queued, or taken out of the queue. Raises InputError if the chain is not one's own,
    ClusterError if Slurm can't be asked, SubmissionFailed if what should follow is not queued.
    """
    cluster = CommandCluster.from_config(ClusterConfig())
    folder = chain_folder(chain_id)
    jobs = _jobs(cluster, chain_id)
    if not folder.is_dir() and not jobs:
        raise InputError(f"chain {chain_id}: not one of yours. `mirage status` lists your chains.")
    _mark(folder, marker, reason)
    let_follow(folder)  # before the links go that it may wait for
    ended: list[int] = []
    for attempt in range(ROUNDS):
        # The last link first: its predecessor's end would let it start.
        left = [job for job in reversed(jobs) if (running_too or job.is_pending) and not job.state.is_over]
        if not left and attempt:
            break
        for job in left:
            cluster.cancel([job.job_id])
            ended.append(job.job_id)
        time.sleep(1)
        jobs = [job for job in _jobs(cluster, chain_id) if job.job_id not in ended]
    return ended


def _mark(folder: Path, marker: str, reason: str) -> None:
    """The folder may be missing (another machine's home): then the queue alone is cleared."""
    if folder.is_dir() and over_marker(folder) is None:
        try:
            mark_over(folder, marker, reason)
        except OSError as error:
            raise ClusterError(f"can't write to the chain's folder {folder}: {error}; nothing was done") from error


def _jobs(cluster: CommandCluster, chain_id: str) -> list[Job]:
    """One's own jobs of a chain that are not over, by segment."""
    user = me()
    tagged = [(job, parse_tag(job.comment)) for job in cluster.snapshot().jobs if job.user == user]
    mine = [(tag.segment, job.job_id, job) for job, tag in tagged if tag and tag.chain_id == chain_id]
    return [job for _segment, _id, job in sorted(mine, key=lambda entry: entry[:2])]
