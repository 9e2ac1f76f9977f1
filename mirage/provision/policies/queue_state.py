"""The law of a successor's wait, from what is queued now, from what like jobs found as they entered
the queue, and from the chain's own last wait. Training chains and services share it.

What does not depend on the chain is worked out once: by snapshot and pool (`Competitors`), and by
what successors ask for (`QueueState`). So a cycle costs jobs plus chains, not jobs times chains.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property

import numpy as np

from mirage.domain import Job, Snapshot
from mirage.ports import Observation
from mirage.provision.policies.wait_law import (
    ENOUGH,
    Begun,
    Changes,
    Floats,
    WaitLaw,
    mixed,
    nearest,
    wait_law,
)
from mirage.state.likeness import Alike, Requests, Waits


class Competitors:
    """The jobs that wait for nodes of a pool, by the time at which they began to."""

    def __init__(self, jobs: Sequence[Job]) -> None:
        jobs = sorted(jobs, key=lambda job: job.eligible_s or 0)
        self._requests = Requests.of(jobs)
        self._began_s = np.array([job.eligible_s for job in jobs], dtype=np.float64)
        self._work = self._requests.nodes * self._requests.limit_s.astype(np.float64)
        self.work = float(self._work.sum())
        """Node-seconds of all, by time limits."""
        self.states: dict[tuple[Waits, Alike, int, int], QueueState] = {}
        """Those that were worked out, by what they were worked out from."""

    @classmethod
    def of(cls, observation: Observation) -> Competitors:
        """Those of the successor's pool; none without a snapshot."""
        snapshot = observation.snapshot
        if snapshot is None:
            return cls(())
        if cls not in snapshot.memo:
            snapshot.memo[cls] = cls._by_pool(snapshot)
        pools: defaultdict[str, Competitors] = snapshot.memo[cls]
        return pools[snapshot.pool_of(observation.successor.partition)]

    @classmethod
    def _by_pool(cls, snapshot: Snapshot) -> Mapping[str, Competitors]:
        jobs: dict[str, list[Job]] = defaultdict(list)
        pool_of = cache(snapshot.pool_of)
        for job in snapshot.jobs:
            if job.eligible_s is not None and job.is_queueing:
                jobs[pool_of(job.partition)].append(job)
        return defaultdict(lambda: cls(()), {pool: cls(those) for pool, those in jobs.items()})

    def like(self, alike: Alike, now_s: int) -> Begun:
        """The waits of those that are like the successor, as long as they last already."""
        began_s = self._began_s[alike.likeness.among(self._requests)]
        return Begun(began_s, now_s - began_s)

    def backlog(self, at_s: Floats) -> Floats:
        """Node-seconds of these that were queued at each time."""
        total = np.concatenate([[0.0], np.cumsum(self._work)])
        return total[np.searchsorted(self._began_s, at_s, side="right")]


@dataclass(frozen=True, eq=False, kw_only=True)
class QueueState:
    """What is queued now, and what like jobs found and how long they waited."""

    ended: Begun
    under_way: Begun
    found: Floats
    """Node-seconds that were queued as each of these waits began, the ended ones first."""
    work: float | None
    """Node-seconds that are queued now; None: there is no snapshot to tell."""

    @classmethod
    def of(cls, observation: Observation, alike: Alike, last: int) -> QueueState:
        """``last``: so many waits that ended are looked at."""
        competitors = Competitors.of(observation)
        key = observation.waits, alike, last, observation.now_s
        if key not in competitors.states:
            work = None if observation.snapshot is None else competitors.work
            competitors.states[key] = cls._of(competitors, *key, work)
        return competitors.states[key]

    @classmethod
    def _of(
        cls,
        competitors: Competitors,
        waits: Waits,
        alike: Alike,
        last: int,
        now_s: int,
        work: float | None,
    ) -> QueueState:
        ended = Begun(alike.eligible_s[-last:], alike.wait_s[-last:])
        under_way = competitors.like(alike, now_s)
        began_s = np.concatenate([ended.began_s, under_way.began_s])
        found = waits.backlog(began_s) + competitors.backlog(began_s)
        return cls(ended=ended, under_way=under_way, found=found, work=work)

    @cached_property
    def exceeds_known(self) -> bool:
        """Whether more is queued than any of the jobs found whose wait is known."""
        found = float(self.found[: len(self.ended.began_s)].max())
        return self.work is not None and self.work > found

    @cached_property
    def changes(self) -> Changes:
        """What waits of like jobs changed by within a day."""
        return Changes.of(self.ended, self.under_way)

    @cached_property
    def law_of_backlog(self) -> WaitLaw:
        """Of the waits, ended ones and others, that began with about as much work queued."""
        count = len(self.ended.began_s)
        near = np.arange(len(self.found))
        if self.work is not None:
            near = nearest(self.found, self.work)
        of_ended, of_under_way = near[near < count], near[near >= count]
        if len(of_ended) < ENOUGH:
            return wait_law(self.ended.waits_s, self.under_way.waits_s)
        return wait_law(self.ended.waits_s[of_ended], self.under_way.waits_s[of_under_way - count])

    def law(self, observation: Observation) -> WaitLaw:
        """Of the successor's wait if it is released now, by the backlog and by the chain's own last
        wait.
        """
        last_s = observation.predecessor.wait_s
        changed = None if last_s is None else self.changes.law_after(last_s)
        return self.law_of_backlog if changed is None else mixed([self.law_of_backlog, changed])
