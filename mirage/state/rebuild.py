"""Cold start: the last 24 hours of a pool from accounting records, as live snapshots would have
shown them.

At an instant t a job is queued if eligible <= t < start (t < end, if it never started), running if
start <= t < end. A node is up outside its events, and idle if up and in no running job's node list.
What accounting cannot tell is listed in `docs/state.md`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mirage.domain import ClusterNode, Job, NodeEvent, Snapshot
from mirage.state.encoder import HistoryStep, Ints, JobMatrix, encode, jobs_in, nodes_in
from mirage.state.variables import capped_limit_s

_NEVER = 2**62


def rebuild(
    records: Sequence[Job],
    events: Iterable[NodeEvent],
    snapshot: Snapshot,
    pool: str,
    step_s: int = 600,
    length: int = 144,
) -> list[HistoryStep]:
    """The pool's steps at snapshot.at_s - k * step_s, k < length, oldest first; the last is the
    snapshot's own.

    ``records`` are those of `Cluster.accounting` over that time and ``events`` those of
    `Cluster.node_events`. Read both after the snapshot: a job that ends in between is then in at
    least one of them.
    """
    first_s = snapshot.at_s - (length - 1) * step_s
    lives = _Lives.of(
        sorted(_incarnations(records, snapshot, pool, first_s), key=lambda job: job.job_id)
    )
    servers = _Servers.of(nodes_in(snapshot, pool), events, lives.node_names, snapshot.at_s)
    past = [_step(lives, servers, at_s) for at_s in range(first_s, snapshot.at_s, step_s)]
    return [*past, encode(snapshot, pool)]


def _incarnations(
    records: Sequence[Job], snapshot: Snapshot, pool: str, first_s: int
) -> Iterator[Job]:
    """Each life of the pool's jobs after ``first_s`` once; a requeued job has several, with their
    own submit times.

    What slurmctld knows now goes before a record that is still open. An open record that slurmctld
    does not know is of a job that was lost (`sacctmgr show runawayjobs`): nobody can say when it
    ended, so it is left out.
    """
    by_key = {
        (record.job_id, record.submit_s): record for record in jobs_in(records, snapshot, pool)
    }
    yield from (
        record for record in by_key.values() if record.end_s is not None and record.end_s > first_s
    )
    for job in jobs_in(snapshot.jobs, snapshot, pool):
        record = by_key.get((job.job_id, job.submit_s))
        if record is None:
            yield job
        elif record.end_s is None:
            yield job if job.node_names else replace(job, node_names=record.node_names)


def _step(lives: _Lives, servers: _Servers, at_s: int) -> HistoryStep:
    running = (lives.start <= at_s) & (at_s < lives.end)
    queued = (lives.eligible <= at_s) & (at_s < lives.left)
    up, idle = servers.count(running, lives.nodes, at_s)
    return HistoryStep(
        at_s=at_s,
        queued=lives.table(queued, at_s - lives.eligible),
        running=lives.table(running, at_s - lives.start),
        idle_nodes=idle,
        up_nodes=up,
    )


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Lives:
    """Incarnations by job id: queued in [eligible, left), running in [start, end)."""

    ids: Ints
    nodes: Ints
    limits_s: Ints
    eligible: Ints
    left: Ints
    start: Ints
    end: Ints
    node_names: list[tuple[str, ...]]

    @classmethod
    def of(cls, jobs: Sequence[Job]) -> _Lives:
        eligible, left, start, end = _columns([_life(job) for job in jobs], 4)
        return cls(
            ids=np.array([job.job_id for job in jobs], dtype=np.int64),
            nodes=np.array([job.nodes for job in jobs], dtype=np.int64),
            limits_s=np.array([capped_limit_s(job.time_limit_s) for job in jobs], dtype=np.int64),
            eligible=eligible,
            left=left,
            start=start,
            end=end,
            node_names=[job.node_names for job in jobs],
        )

    def table(self, these: NDArray[np.bool_], seconds: Ints) -> JobMatrix:
        return JobMatrix.of(
            self.ids[these], self.nodes[these], seconds[these], self.limits_s[these]
        )


def _life(job: Job) -> tuple[int, int, int, int]:
    """(eligible, left the queue, start, end) of one incarnation."""
    end = _end(job)
    start = _NEVER if job.start_s is None else job.start_s
    # What a hold or a limit keeps back now, it is taken to have kept back since: accounting has no
    # reasons.
    kept_back = job.is_pending and job.end_s is None and not job.is_queueing
    eligible = _NEVER if job.eligible_s is None or kept_back else job.eligible_s
    return eligible, min(start, end), start, end


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class _Servers:
    """The pool's nodes, the times when they were down, and who was on them."""

    present: int
    event_node: Ints
    event_start: Ints
    event_end: Ints
    held_job: Ints
    """With `held_node`: one entry for each node of each job, as indices."""
    held_node: Ints
    unnamed: NDArray[np.bool_]
    """Jobs without node names: they are counted instead."""

    @classmethod
    def of(
        cls,
        nodes: Sequence[ClusterNode],
        events: Iterable[NodeEvent],
        names: Sequence[tuple[str, ...]],
        at_s: int,
    ) -> _Servers:
        index = {node.name: i for i, node in enumerate(nodes)}
        down = [(index[e.node], e.start_s, _end(e)) for e in _settled(nodes, events, at_s)]
        event_node, event_start, event_end = _columns(down, 3)
        held = [(job, index[name]) for job, on in enumerate(names) for name in on if name in index]
        held_job, held_node = _columns(held, 2)
        unnamed = np.array([not on for on in names], dtype=np.bool_)
        return cls(
            present=len(nodes),
            event_node=event_node,
            event_start=event_start,
            event_end=event_end,
            held_job=held_job,
            held_node=held_node,
            unnamed=unnamed,
        )

    def count(self, running: NDArray[np.bool_], sizes: Ints, at_s: int) -> tuple[int, int]:
        """(nodes up, nodes idle) at an instant at which these jobs run."""
        up = np.ones(self.present, dtype=np.bool_)
        up[self.event_node[(self.event_start <= at_s) & (at_s < self.event_end)]] = False
        empty = up.copy()
        empty[self.held_node[running[self.held_job]]] = False
        idle = int(empty.sum()) - int(sizes[running & self.unnamed].sum())
        return int(up.sum()), max(0, idle)


def _settled(
    nodes: Sequence[ClusterNode], events: Iterable[NodeEvent], at_s: int
) -> Iterator[NodeEvent]:
    """The pool's events. Where an event without an end and the node's present state disagree, the
    state is right.

    So an open event of a node that is up is left out, and a node that is down without a present
    event always was.
    """
    up_now = {node.name: node.up for node in nodes}
    unexplained = {name for name, up in up_now.items() if not up}
    for event in events:
        if event.node in up_now and not (up_now[event.node] and event.end_s is None):
            yield event
            if _end(event) >= at_s:
                unexplained.discard(event.node)
    yield from (NodeEvent(name, 0, None) for name in unexplained)


def _end(record: Job | NodeEvent) -> int:
    return _NEVER if record.end_s is None else record.end_s


def _columns(rows: Sequence[tuple[int, ...]], width: int) -> tuple[Ints, ...]:
    return tuple(np.array(rows, dtype=np.int64).reshape(len(rows), width).T.copy())
