"""An episode as the policies of the daemon see it: with the recent starts, and a history, at each
decision point.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import overload

import numpy as np

from mirage.domain import Job, JobState, Penalties, WaitSample
from mirage.ports import Observation
from mirage.provision.learn.episode import HISTORY, STEP_S, Episode, Ints, PairJob
from mirage.state.encoder import HistoryStep, JobMatrix, JobPair, Vectors
from mirage.state.history import History
from mirage.state.likeness import Requests, Waits
from mirage.state.variables import NODES, QUEUED, RUNNING

KEPT_S = 7 * 86_400
"""So old may a start be that a policy still learns from: as in the daemon."""
PARTITION = ""
"""The pair and all starts are in one pool, whose name does not matter."""
PREDECESSOR_ID, SUCCESSOR_ID = 1, 2
_COUNTS = (QUEUED.start, RUNNING.start, NODES.start, NODES.start + 1)
"""Columns: queued jobs, running jobs, idle nodes, nodes up."""


@dataclass(frozen=True)
class PoolStarts:
    """Jobs that started in the simulated cluster and, before the simulation, in the log. Oldest
    start first.
    """

    start_s: Ints
    """(n,) Unix seconds."""
    wait_s: Ints
    """(n,) start - eligible."""
    nodes: Ints
    """(n,)"""
    limit_s: Ints
    """(n,); 0: no limit."""

    def __post_init__(self) -> None:
        assert np.all(np.diff(self.start_s) >= 0), "starts must be in the order of time"

    @classmethod
    def none(cls) -> PoolStarts:
        empty = np.empty(0, dtype=np.int64)
        return cls(empty, empty, empty, empty)

    def seen_at(self, now_s: int) -> PoolWaits:
        """Those that a daemon knows of at this time."""
        first, last = np.searchsorted(self.start_s, (now_s - KEPT_S, now_s + 1))
        return PoolWaits(self, int(first), int(last))


class PoolWaits(Waits):
    """A run of `PoolStarts` as `Waits`, without an object for each job: so a decision point costs next
    to nothing.
    """

    def __init__(self, starts: PoolStarts, first: int, last: int) -> None:
        part = slice(first, last)
        places = np.zeros(last - first, dtype=np.int32)
        self._fill(
            (),
            None,
            Requests([PARTITION], places, starts.nodes[part], starts.limit_s[part]),
            starts.wait_s[part].astype(np.float64),
            starts.start_s[part].astype(np.float64),
        )

    def __len__(self) -> int:
        return len(self.wait_s)

    @overload
    def __getitem__(self, index: int) -> WaitSample: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[WaitSample]: ...

    def __getitem__(self, index: int | slice) -> WaitSample | Sequence[WaitSample]:
        if isinstance(index, slice):
            return [self._sample(row) for row in range(*index.indices(len(self)))]
        return self._sample(range(len(self))[index])

    def _sample(self, row: int) -> WaitSample:
        return WaitSample(
            job_id=0,
            partition=PARTITION,
            nodes=int(self.requests.nodes[row]),
            time_limit_s=int(self.requests.limit_s[row]) or None,
            start_s=int(self._start_s[row]),
            wait_s=int(self.wait_s[row]),
        )


class EpisodeHistory(History):
    """What an episode tells of its pool at one decision point: the state matrix of its own pair, and
    the latest step.

    The step has the right numbers of jobs and nodes, but not the jobs' own values, which an episode
    does not keep.
    """

    def __init__(self, episode: Episode, point: int) -> None:
        super().__init__(PARTITION)
        self._matrix = episode.rows[point : point + HISTORY]
        row = self._matrix[-1]
        queued, running, idle, up = (int(row[column]) for column in _COUNTS)
        self._newest = HistoryStep(
            at_s=int(episode.decision_s[point]),
            queued=_jobs(queued),
            running=_jobs(running),
            idle_nodes=idle,
            up_nodes=up,
        )

    @property
    def latest(self) -> HistoryStep:
        return self._newest

    def matrices(self, pairs: Sequence[JobPair], now_s: int) -> Vectors:  # noqa: ARG002
        """(pairs, 144, 40): the episode's, whatever pair is asked about."""
        return np.repeat(self._matrix[None], len(pairs), axis=0)

    def known(self, now_s: int, every_s: int = 0) -> float:  # noqa: ARG002
        """1: the simulation knows every row."""
        return 1.0


def _jobs(count: int) -> JobMatrix:
    values = np.zeros((3, count), dtype=np.int32)
    return JobMatrix(np.arange(count) + SUCCESSOR_ID + 1, values, values)


@dataclass(frozen=True)
class Case:
    """One episode to be judged on."""

    episode: Episode
    starts: PoolStarts
    _observed: dict[int, Observation] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    def observe(self, point: int, penalties: Penalties) -> Observation:
        """What the daemon would give its policy at a decision point."""
        if point not in self._observed:
            self._observed[point] = self._observation(point)
        return replace(self._observed[point], penalties=penalties)

    def _observation(self, point: int) -> Observation:
        episode = self.episode
        now_s = int(episode.decision_s[point])
        return Observation(
            now_s=now_s,
            step_s=STEP_S,
            predecessor=self._job(PREDECESSOR_ID, episode.pair.predecessor, JobState.RUNNING),
            successor=self._job(SUCCESSOR_ID, episode.pair.successor, JobState.PENDING),
            penalties=Penalties(),
            waits=self.starts.seen_at(now_s),
            history=EpisodeHistory(episode, point),
        )

    def _job(self, job_id: int, link: PairJob, state: JobState) -> Job:
        runs = state is JobState.RUNNING
        begin_s = self.episode.begin_s
        return Job(
            job_id=job_id,
            user="",
            partition=PARTITION,
            state=state,
            nodes=link.nodes,
            submit_s=begin_s,
            time_limit_s=link.time_limit_s,
            reason="" if runs else "Dependency",
            eligible_s=begin_s if runs else None,
            start_s=self.episode.predecessor_start_s if runs else None,
            dependency="" if runs else f"afterany:{PREDECESSOR_ID}(unfulfilled)",
        )
