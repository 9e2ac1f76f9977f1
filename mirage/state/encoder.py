"""A snapshot becomes a `HistoryStep`, and a step with a pair becomes the paper's 40-row vector (section
4.1).

A step keeps what every queued and running job adds, sorted once. A vector leaves its own pair's
jobs out, and that by rank: taking at most two values out of a sorted row moves a percentile by at
most two places, so no pair costs a pass over the jobs.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from mirage.domain import ClusterNode, Job, JobState, Snapshot
from mirage.state.variables import (
    NODES,
    PAIR,
    PERCENTILES,
    QUEUED,
    RUNNING,
    VARIABLES,
    capped_limit_s,
)

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]
Vectors: TypeAlias = NDArray[np.float32]

# The job's own work is over in these, and the accounting records give the time before them as its
# end.
_ENDING = frozenset({JobState.COMPLETING, JobState.STAGE_OUT})
_NEVER = 2**62
_INT32_MAX = 2**31 - 1
_FRACTIONS = np.array(PERCENTILES) / 100


@dataclass(frozen=True, slots=True, eq=False)
class JobMatrix:
    """Jobs of one kind at one instant. Make it with `of`.

    ``values`` has three rows: nodes, seconds since (eligible or start), capped time limit in
    seconds; its columns are the jobs by id. ``ordered`` is the same with each row sorted by itself.
    """

    ids: Ints
    values: NDArray[np.int32]
    ordered: NDArray[np.int32]

    @classmethod
    def of(
        cls, ids: ArrayLike, nodes: ArrayLike, seconds: ArrayLike, limits_s: ArrayLike
    ) -> JobMatrix:
        """Jobs in any order; a negative number of seconds (Slurm's clock is ahead of ours) counts
        as zero.
        """
        unordered = np.asarray(ids, dtype=np.int64)
        order = np.argsort(unordered, kind="stable")
        columns = np.array([nodes, seconds, limits_s], dtype=np.int64)[:, order]
        return cls.by_id(unordered[order], np.clip(columns, 0, _INT32_MAX).astype(np.int32))

    @classmethod
    def by_id(cls, ids: Ints, values: NDArray[np.int32]) -> JobMatrix:
        """Jobs that are in the order of their ids already."""
        table = cls(ids, values, np.sort(values, axis=1))
        for array in (table.ids, table.values, table.ordered):
            array.flags.writeable = False
        return table

    def __len__(self) -> int:
        return len(self.ids)

    def summary(self, without: Ints) -> Floats:
        """Count and percentiles, (n, 16), leaving the jobs of each row of ``without``, (n, 2), out."""
        result = np.zeros((len(without), 1 + 3 * len(PERCENTILES)))
        if len(self):
            position, found = self._find(without)
            left = len(self) - found.sum(axis=1)
            result[:, 0] = left
            result[:, 1:] = self._percentiles(left, self._ranks(position, found)).reshape(
                len(without), -1
            )
        return result

    def _find(self, job_ids: Ints) -> tuple[Ints, NDArray[np.bool_]]:
        position = np.minimum(np.searchsorted(self.ids, job_ids), len(self) - 1)
        return position, self.ids[position] == job_ids

    def _ranks(self, position: Ints, found: NDArray[np.bool_]) -> Ints:
        """Where the values of these jobs stand in `ordered`, (n, 3, 2) ascending; beyond the end
        for jobs not found.
        """
        columns = zip(self.ordered, self.values, strict=True)
        ranks = np.stack(
            [np.searchsorted(ordered, values[position]) for ordered, values in columns], axis=1
        )
        ranks = np.sort(np.where(found[:, None, :], ranks, len(self)), axis=2)
        ranks[..., 1] += ranks[..., 0] == ranks[..., 1]  # two equal values stand side by side
        return ranks

    def _percentiles(self, left: Ints, gone: Ints) -> Floats:
        """Percentiles, (n, 3, 5), of what is ``left`` of each row when the ranks ``gone`` are taken
        out.
        """
        place = np.maximum(left - 1, 0)[:, None] * _FRACTIONS
        lower = place.astype(np.int64)
        upper = np.minimum(lower + 1, np.maximum(left - 1, 0)[:, None])
        low, high = self._pick(lower, gone), self._pick(upper, gone)
        return np.where(
            left[:, None, None] > 0, low + (high - low) * (place - lower)[:, None, :], 0.0
        )

    def _pick(self, place: Ints, gone: Ints) -> Floats:
        """The values at these places, (n, 5), of the rows without the ranks ``gone``: (n, 3, 5)."""
        rank = place[:, None, :] + (place[:, None, :] >= gone[..., :1])
        rank += rank >= gone[..., 1:]
        rows = np.arange(len(self.ordered))[:, None]
        return self.ordered[rows, np.minimum(rank, len(self) - 1)].astype(np.float64)


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class HistoryStep:
    """A pool at one instant: all that any pair's 40 variables need."""

    at_s: int
    queued: JobMatrix
    running: JobMatrix
    idle_nodes: int
    up_nodes: int


@dataclass(frozen=True, slots=True)
class JobPair:
    """A running or queued job, and the one that continues its work."""

    predecessor: Job
    successor: Job


def encode(snapshot: Snapshot, pool: str) -> HistoryStep:
    """The pool's step at the snapshot's instant."""
    at_s = snapshot.at_s
    jobs = jobs_in(snapshot.jobs, snapshot, pool)
    queued = [
        (job, job.eligible_s) for job in jobs if job.eligible_s is not None and is_queued(job, at_s)
    ]
    running = [(job, job.start_s) for job in jobs if job.start_s is not None and is_running(job)]
    nodes = nodes_in(snapshot, pool)
    return HistoryStep(
        at_s=at_s,
        queued=_table(queued, at_s),
        running=_table(running, at_s),
        idle_nodes=sum(node.idle for node in nodes),
        up_nodes=sum(node.up for node in nodes),
    )


def is_queued(job: Job, at_s: int) -> bool:
    """Whether the job competes for nodes. Slurm's reason alone is late: it is `None` for a while
    after each change.
    """
    return job.eligible_s is not None and job.eligible_s <= at_s and job.is_queueing


def is_running(job: Job) -> bool:
    """Whether the job holds nodes and its work is not over (a COMPLETING job only cleans up)."""
    return job.start_s is not None and job.state.has_nodes and job.state not in _ENDING


def jobs_in(jobs: Collection[Job], snapshot: Snapshot, pool: str) -> list[Job]:
    """Those of the jobs that belong to the pool."""
    pool_of = cache(snapshot.pool_of)
    return [job for job in jobs if pool_of(job.partition) == pool]


def nodes_in(snapshot: Snapshot, pool: str) -> list[ClusterNode]:
    """The pool's nodes."""
    return [
        node
        for node in snapshot.nodes
        if node.partitions and snapshot.pool_of(node.partitions[0]) == pool
    ]


def _table(jobs: Sequence[tuple[Job, int]], at_s: int) -> JobMatrix:
    return JobMatrix.of(
        ids=[job.job_id for job, _ in jobs],
        nodes=[job.nodes for job, _ in jobs],
        seconds=[at_s - since_s for _, since_s in jobs],
        limits_s=[capped_limit_s(job.time_limit_s) for job, _ in jobs],
    )


def vector(step: HistoryStep, pair: JobPair) -> Vectors:
    """The pair's 40 variables at the step's instant, in the order of `VARIABLES`."""
    row: Vectors = vectors(step, [pair])[0]
    return row


def vectors(step: HistoryStep, pairs: Sequence[JobPair]) -> Vectors:
    """The 40 variables of many pairs at the step's instant, (pairs, 40)."""
    result = np.empty((len(pairs), len(VARIABLES)), dtype=np.float32)
    fill_cluster(result, step, pair_ids(pairs))
    result[:, PAIR] = pair_columns(pairs, np.array([step.at_s]))[:, 0]
    return result


def pair_ids(pairs: Sequence[JobPair]) -> Ints:
    """(pairs, 2): the job ids to leave out of the pair's own picture of the cluster."""
    ids = [(pair.predecessor.job_id, pair.successor.job_id) for pair in pairs]
    return np.array(ids, dtype=np.int64).reshape(len(pairs), 2)


def fill_cluster(out: Vectors, step: HistoryStep, without: Ints) -> None:
    """Writes the columns of queue, servers and nodes into ``out``, (pairs, 40); ``without`` as from
    `pair_ids`.
    """
    out[:, QUEUED] = step.queued.summary(without)
    out[:, RUNNING] = step.running.summary(without)
    out[:, NODES] = step.idle_nodes, step.up_nodes


def pair_columns(pairs: Sequence[JobPair], instants_s: Ints) -> Ints:
    """The six columns of the pairs themselves, (pairs, instants, 6): zero before the predecessor
    became eligible.
    """
    facts = np.array([_pair_facts(pair) for pair in pairs], dtype=np.int64).reshape(len(pairs), 7)
    eligible, start, end = facts[:, :3, None].transpose(1, 0, 2)
    waited = np.minimum(np.minimum(instants_s, start), end) - eligible
    elapsed = np.maximum(np.minimum(instants_s, end) - start, 0)
    fixed = np.broadcast_to(facts[:, None, 3:], (*waited.shape, 4))
    columns = np.concatenate(
        [fixed[..., :2], waited[..., None], elapsed[..., None], fixed[..., 2:]], axis=2
    )
    return np.where((eligible <= instants_s)[..., None], np.maximum(columns, 0), 0)


def _pair_facts(pair: JobPair) -> tuple[int, ...]:
    predecessor, successor = pair.predecessor, pair.successor
    start = _NEVER if predecessor.start_s is None else predecessor.start_s
    return (
        start if predecessor.eligible_s is None else predecessor.eligible_s,
        start,
        _NEVER if predecessor.end_s is None else predecessor.end_s,
        predecessor.nodes,
        capped_limit_s(predecessor.expected_limit_s),  # in training it ends at its limit
        successor.nodes,
        capped_limit_s(successor.time_limit_s),
    )
