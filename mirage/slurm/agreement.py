"""Answers of Slurm that do not agree. Each is believed by itself; together they say that one of them is
not what it seems. Pure, and linear in jobs and nodes: nothing is asked for it.

docs/state.md has the table of what is read and what is compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from mirage.chain.durations import format_duration
from mirage.domain import Job, JobState, Settings, Snapshot
from mirage.slurm.fields import known_state
from mirage.slurm.resources import NodeUse
from slurm_sim.config import ClusterConfig
from slurm_sim.node_states import IN_USE

MOST_SKEW_S = 60
"""squeue and sinfo are asked one after the other, and clocks are some seconds apart."""
LATE_S = 600
"""slurmctld ends a job within minutes of its limit; slurmdbd learns of an end as late."""
SHARE = 0.1
"""Fewer nodes than this, of those in use, may have changed between squeue and sinfo."""
SHOWN = 3
RESERVED = "reserved"
"""The kind of jobs that are kept back for a reservation."""


@dataclass(frozen=True, kw_only=True)
class Disagreement:
    """One sentence each."""

    kind: str
    what: str
    """Without names of jobs and users: everybody may read it."""
    why: str
    """What of Mirage's goes by the wrong answer."""
    do: str
    jobs: tuple[Job, ...] = ()

    def __str__(self) -> str:
        """With some of its jobs, for who may see them."""
        names = [
            f"{job.job_id}{job.array_task and '_' + job.array_task} of {job.user}"
            for job in self.jobs[:SHOWN]
        ]
        names += ["..."] * (len(self.jobs) > SHOWN)
        return f"{self.what} (job {', '.join(names)})" if names else self.what


def of_snapshot(snapshot: Snapshot) -> list[Disagreement]:
    """What squeue and sinfo say against each other, or squeue against itself."""
    checks = (_hidden_jobs, _strange_nodes, _counts, _partitions, _clock, _past_limits, _kept_free)
    return [found for check in checks for found in check(snapshot)]


def _hidden_jobs(snapshot: Snapshot) -> Iterator[Disagreement]:
    """Nodes in use of which no job in the queue says that it has them."""
    if any(oddity.is_set_apart for oddity in snapshot.oddities):
        return  # its nodes are not known
    in_use = {node.name for node in snapshot.nodes if known_state(node.state).base in IN_USE}
    running = [job for job in snapshot.jobs if job.state.has_nodes]
    if any(not job.node_names for job in running):
        return
    hidden = in_use.difference(*(job.node_names for job in running))
    if hidden and (not running or len(hidden) > SHARE * len(in_use)):
        yield Disagreement(
            kind="hidden-jobs",
            what=f"sinfo says that {_nodes(hidden)} in use; no job of squeue's has them",
            why="Jobs are hidden from this user, so the queue looks shorter than it is.",
            do="Look at PrivateData and, in a federation, at the other clusters' jobs.",
        )


def _strange_nodes(snapshot: Snapshot) -> Iterator[Disagreement]:
    """Running jobs on nodes that sinfo shows as empty, or not at all."""
    if not snapshot.nodes:
        return
    idle = {node.name: node.idle for node in snapshot.nodes}
    running = [job for job in snapshot.jobs if job.state is JobState.RUNNING and job.node_names]
    unlisted = [job for job in running if any(name not in idle for name in job.node_names)]
    empty = [job for job in running if any(idle.get(name) for name in job.node_names)]
    if unlisted:
        yield Disagreement(
            kind="unlisted-nodes",
            what=f"{_jobs(unlisted)} on nodes that sinfo does not list",
            why="These nodes are no part of the cluster that policies see.",
            do="Dynamic nodes need a partition; look at `sinfo -a -N`.",
            jobs=tuple(unlisted),
        )
    if len(empty) > SHARE * len(running) and len(empty) > 1:
        yield Disagreement(
            kind="idle-nodes",
            what=f"{_jobs(empty)} on nodes that sinfo says are idle",
            why="Free nodes are counted that are not free.",
            do="If it stays so, restart slurmctld, and look at its log.",
            jobs=tuple(empty),
        )


def _counts(snapshot: Snapshot) -> Iterator[Disagreement]:
    running = (job for job in snapshot.jobs if job.state is JobState.RUNNING and job.node_names)
    if wrong := [job for job in running if job.nodes != len(job.node_names)]:
        yield Disagreement(
            kind="node-counts",
            what=f"{_jobs(wrong)} on another number of nodes than its NumNodes says",
            why="The work of such jobs is counted wrongly.",
            do="Look at `scontrol show job`; a job that is resized shows it for a moment.",
            jobs=tuple(wrong),
        )


def _partitions(snapshot: Snapshot) -> Iterator[Disagreement]:
    known = snapshot.sharing
    waiting = (job for job in snapshot.jobs if known and job.is_queueing)
    if lost := [job for job in waiting if not known.keys() & set(job.partition.split(","))]:
        yield Disagreement(
            kind="partitions",
            what=f"{_jobs(lost, 'waits', 'wait')} in partition {lost[0].partition}, of which sinfo has no node",
            why="No node is known on which they could start.",
            do="Look at `scontrol show partition`.",
            jobs=tuple(lost),
        )


def _clock(snapshot: Snapshot) -> Iterator[Disagreement]:
    latest_s = max((max(job.submit_s, job.start_s or 0) for job in snapshot.jobs), default=0)
    if latest_s > snapshot.at_s + MOST_SKEW_S:
        ahead = format_duration(latest_s - snapshot.at_s)
        yield Disagreement(
            kind="clock",
            what=f"slurmctld's clock is ahead of this machine's: a job began {ahead} from now",
            why="Releases aim at the predecessor's end by this machine's clock.",
            do="Run NTP (chrony, timesyncd) on both machines.",
        )


def _past_limits(snapshot: Snapshot) -> Iterator[Disagreement]:
    before_s = snapshot.at_s - LATE_S
    late = [
        job
        for job in snapshot.jobs
        if job.state is JobState.RUNNING and (job.limit_end_s or before_s) < before_s
    ]
    if late:
        yield Disagreement(
            kind="past-limits",
            what=f"{_jobs(late, 'runs', 'run')} for over {LATE_S // 60} min beyond the time limit",
            why="Policies count on ends at the limit.",
            do="Look at OverTimeLimit; jobs that were suspended for a while look so, too.",
            jobs=tuple(late),
        )


def _kept_free(snapshot: Snapshot) -> Iterator[Disagreement]:
    """Pending jobs that say their nodes are reserved, while enough of their partition are idle."""
    idle: dict[str, int] = {}
    for node in snapshot.nodes:
        for name in node.partitions if node.idle else ():
            idle[name] = idle.get(name, 0) + 1
    kept = [
        job
        for job in snapshot.jobs
        if says_reserved(job)
        and any(idle.get(name, 0) >= job.nodes for name in job.partition.split(","))
    ]
    if kept:
        yield Disagreement(
            kind=RESERVED,
            what=f"{_jobs(kept, 'waits', 'wait')} for {kept[0].reason}, though enough nodes are idle",
            why="A reservation or a maintenance lies ahead; policies don't plan with it.",
            do="`scontrol show reservation`; shorter jobs start before it.",
            jobs=tuple(kept),
        )


def says_reserved(job: Job) -> bool:
    """Whether the job waits for nodes that are kept for a reservation, by Slurm's reason."""
    return job.is_pending and "reserved" in job.reason.replace("_", " ").lower()


def of_gpus(use: Sequence[NodeUse], snapshot: Snapshot) -> dict[str, int]:
    """By node, the GPUs that sinfo says are in use, of nodes where no job of squeue's has a GPU."""
    counted = {name for job in snapshot.jobs if job.gpus for name in job.node_names}
    used = {node.name: node.total[0] - node.free[0] for node in use}
    return {name: gpus for name, gpus in used.items() if gpus > 0 and name not in counted}


def of_settings(settings: Settings, live: ClusterConfig) -> Iterator[Disagreement]:
    """GPUs that nodes have and jobs are not counted with."""
    tracked = settings.parameters.get("AccountingStorageTRES", "").lower()
    gpus = sum(node.gpus for node in live.nodes)
    if settings.parameters and gpus and "gres/gpu" not in tracked:
        yield Disagreement(
            kind="gpus",
            what=f"nodes have {gpus} GPUs; AccountingStorageTRES does not list gres/gpu",
            why="squeue and sacct show every job without GPUs: histories, models and limits lack them.",
            do="AccountingStorageTRES=gres/gpu in slurm.conf, then restart slurmctld.",
        )


def of_records(records: Collection[Job], snapshot: Snapshot) -> Iterator[Disagreement]:
    """Jobs that run by sacct, and that slurmctld does not know."""
    before_s = snapshot.at_s - LATE_S
    lost = [
        job
        for job in records
        if job.state is JobState.RUNNING
        and job.end_s is None
        and (job.start_s or before_s) < before_s
        and job.job_id not in snapshot.present
    ]
    if lost:
        yield Disagreement(
            kind="runaway-jobs",
            what=f"{_jobs(lost, 'runs', 'run')} by sacct, and squeue does not have it",
            why="Histories count these jobs as running until today.",
            do="`sacctmgr show runawayjobs` lists and ends them.",
            jobs=tuple(lost),
        )


def _jobs(jobs: Sequence[Job], one: str = "runs", several: str = "run") -> str:
    return f"a job {one}" if len(jobs) == 1 else f"{len(jobs)} jobs {several}"


def _nodes(names: Collection[str]) -> str:
    shown = ", ".join(sorted(names)[:SHOWN]) + ", ..." * (len(names) > SHOWN)
    return f"node {shown} is" if len(names) == 1 else f"{len(names)} nodes ({shown}) are"
