"""What `mirage cancel` and `mirage done` share: they act with the user's own Slurm rights, not
through the daemon.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage.chain.folder import chain_folder, mark_over, over_marker
from mirage.chain.submission import let_follow
from mirage.chain.tag import parse_tag
from mirage.domain import Job
from mirage.errors import ClusterError
from mirage.ports import Cluster
from mirage.user.chain_names import own_folder
from mirage.user.slurm_access import adapter_config, slurm_of
from mirage.user.sources import me

ROUNDS = 3
"""How often the queue is looked at: a link that just started may be queueing its successor."""


@dataclass(frozen=True)
class ChainEnding:
    """``over``: how the chain was over before, (state, reason); ``jobs``: those that were ended."""

    over: tuple[str, str] | None
    jobs: Sequence[int]


def queue() -> Cluster:
    """Slurm, as the user who runs this. Raises InputError."""
    return slurm_of(adapter_config())


def end_chains(
    cluster: Cluster, chains: Sequence[str], marker: str, reason: str, *, running_too: bool
) -> Mapping[str, ChainEnding]:
    """Marks the chains as over and ends their queued jobs (and running ones), successors first.

    What `--then` asked for is queued, or taken out of the queue. Raises InputError if a chain is
    not one's own, ClusterError if Slurm can't be asked or a folder not be written to,
    SubmissionFailed if what should follow is not queued.
    """
    jobs = jobs_of(cluster, chains)
    for chain in chains:
        if not jobs[chain]:
            own_folder(chain)
    before = {chain: over_marker(chain_folder(chain)) for chain in chains}
    for chain in chains:
        _mark(chain_folder(chain), marker, reason)
    for chain in chains:
        let_follow(chain_folder(chain))  # before the links go that it may wait for
    ended: dict[str, list[int]] = {chain: [] for chain in chains}
    for attempt in range(ROUNDS):
        # The last link first: its predecessor's end would let it start.
        left = [
            (chain, job)
            for chain in chains
            for job in reversed(jobs[chain])
            if (running_too or job.is_pending)
            and not job.state.is_over
            and job.job_id not in ended[chain]
        ]
        if not left and attempt:
            break
        for chain, job in left:
            cluster.cancel([job.job_id])
            ended[chain].append(job.job_id)
        time.sleep(1)
        jobs = jobs_of(cluster, chains)
    return {chain: ChainEnding(before[chain], ended[chain]) for chain in chains}


def jobs_of(cluster: Cluster, chains: Collection[str] | None = None) -> dict[str, list[Job]]:
    """One's own jobs in the queue of these chains (None: of all that have some), by segment. Raises
    ClusterError.
    """
    tagged = [(job, parse_tag(job.comment)) for job in cluster.queue_of(me()).jobs]
    mine = sorted(
        ((tag, job) for job, tag in tagged if tag),
        key=lambda each: (each[0].segment, each[1].job_id),
    )
    found: dict[str, list[Job]] = {chain: [] for chain in chains or ()}
    for tag, job in mine:
        chain = tag.chain_id
        if chains is None or chain in chains:
            found.setdefault(chain, []).append(job)
    return found


def _mark(folder: Path, marker: str, reason: str) -> None:
    """The folder may be missing (another machine's home): then the queue alone is cleared."""
    if folder.is_dir() and over_marker(folder) is None:
        try:
            mark_over(folder, marker, reason)
        except OSError as error:
            raise ClusterError(
                f"can't write to the chain's folder {folder}: {error}; nothing was done"
            ) from error
