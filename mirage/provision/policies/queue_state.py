"""The law of a successor's wait, from what is queued now, from what like jobs found as they entered
the queue, and from the chain's own last wait. Training chains and services share it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from mirage.domain import Job
from mirage.ports import Observation
from mirage.provision.policies.wait_law import (
    ENOUGH,
    Begun,
    Floats,
    WaitLaw,
    changed_law,
    mixed,
    nearest,
    wait_law,
)
from mirage.state.likeness import Alike


class _Competitors(NamedTuple):
    """The jobs that wait for nodes of the successor's pool, by the time at which they began to."""

    jobs: Sequence[Job]
    began_s: Floats
    work: Floats
    """Node-seconds, by time limits."""

    @classmethod
    def of(cls, observation: Observation) -> _Competitors:
        snapshot = observation.snapshot
        pool = snapshot.pool_of(observation.successor.partition) if snapshot else ""
        jobs = sorted(
            (
                job
                for job in (snapshot.jobs if snapshot else ())
                if snapshot
                and job.is_queueing
                and job.eligible_s is not None
                and snapshot.pool_of(job.partition) == pool
            ),
            key=lambda job: job.eligible_s or 0,
        )
        return cls(
            jobs,
            np.array([job.eligible_s for job in jobs], dtype=np.float64),
            np.array([job.nodes * (job.time_limit_s or 0) for job in jobs], dtype=np.float64),
        )

    def like(self, alike: Alike, now_s: int) -> Begun:
        """The waits of those that are like the successor, as long as they last already."""
        chosen = np.array([alike.is_like(job) for job in self.jobs], dtype=bool)
        began_s = self.began_s[chosen]
        return Begun(began_s, now_s - began_s)

    def backlog(self, at_s: Floats) -> Floats:
        """Node-seconds of these that were queued at each time."""
        total = np.concatenate([[0.0], np.cumsum(self.work)])
        return total[np.searchsorted(self.began_s, at_s, side="right")]


class QueueState(NamedTuple):
    """What is queued now, and what like jobs found and how long they waited."""

    ended: Begun
    under_way: Begun
    found: Floats
    """Node-seconds that were queued as each of these waits began, the ended ones first."""
    work: float | None
    """Node-seconds that are queued now; None: there is no snapshot to tell."""

    @classmethod
    def of(cls, observation: Observation, alike: Alike, last: int) -> QueueState:
        ended = Begun(alike.eligible_s[-last:], alike.wait_s[-last:])
        competitors = _Competitors.of(observation)
        under_way = competitors.like(alike, observation.now_s)
        began_s = np.concatenate([ended.began_s, under_way.began_s])
        found = observation.waits.backlog(began_s) + competitors.backlog(began_s)
        work = None if observation.snapshot is None else float(competitors.work.sum())
        return cls(ended, under_way, found, work)

    @property
    def exceeds_known(self) -> bool:
        """Whether more is queued than any of the jobs found whose wait is known."""
        found = float(self.found[: len(self.ended.began_s)].max())
        return self.work is not None and self.work > found

    def law(self, observation: Observation) -> WaitLaw:
        """Of the successor's wait if it is released now, by the backlog and by the chain's own last
        wait.
        """
        law, last_s = self.law_of_backlog(), observation.predecessor.wait_s
        changed = None if last_s is None else changed_law(last_s, self.ended, self.under_way)
        return law if changed is None else mixed([law, changed])

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
