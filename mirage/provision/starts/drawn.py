"""Simulations of the live queue in which run times and arrivals are drawn from what was learnt of
the cluster's habits (`mirage.provision.learn.futures`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np

from mirage.domain import Job, Snapshot
from mirage.provision.learn.episode import Ints
from mirage.provision.learn.futures import Futures
from mirage.provision.learn.runtimes import JobQuery
from mirage.slurm.lookahead import Known, simulator_from
from slurm_sim import JobSpec, Simulator
from slurm_sim.config import Params


class Aging(NamedTuple):
    """Priorities under fair-share. A snapshot doesn't tell what users have used, so that they can't
    be calculated.

    Jobs in the queue keep theirs: they age alike. Whoever comes later has that much less as those
    have aged until then.
    """

    since_s: int
    """The snapshot's time."""
    a_second: float
    """By which a job in the queue ages, up to PriorityMaxAge; what users do meanwhile is left out.
    """
    raised: int
    """What all priorities of the snapshot are raised by, so that none of those who come later falls
    to 0.
    """
    fresh: Ints
    """Those of the jobs in the queue, and of running ones as they were at their start, without
    their age. The queue alone would stand for a cluster where nobody's jobs start soon.
    """

    @classmethod
    def of(cls, snapshot: Snapshot, params: Params, horizon_s: int) -> Aging:
        a_second = params.priority_weight_age / max(params.priority_max_age_s, 1)
        known = [
            job
            for job in snapshot.jobs
            if job.priority and (job.is_queueing or job.state.has_nodes)
        ]
        fresh = [
            max(1, job.priority - round(a_second * _age_s(job, snapshot.at_s, params)))
            for job in known
        ]
        return cls(
            snapshot.at_s,
            a_second,
            int(a_second * horizon_s) + 1,
            np.array(fresh or [1], dtype=np.int64),
        )

    def at(self, fresh: int, time_s: int) -> int:
        """The priority of a job that begins to compete then, and would have this one without any
        age.
        """
        return max(1, self.raised + fresh - round(self.a_second * (time_s - self.since_s)))

    def raise_all(self, snapshot: Snapshot) -> Snapshot:
        jobs = (
            replace(job, priority=job.priority + self.raised) if job.priority else job
            for job in snapshot.jobs
        )
        return replace(snapshot, jobs=tuple(jobs))


def _age_s(job: Job, now_s: int, params: Params) -> int:
    """For how long its age has counted; of a running job until it started, as its priority has not
    changed since.
    """
    until_s = job.start_s if job.state.has_nodes and job.start_s is not None else now_s
    since_s = now_s if job.eligible_s is None else job.eligible_s
    return min(max(until_s - since_s, 0), params.priority_max_age_s)


@dataclass(frozen=True)
class DrawnFutures:
    """Simulations that begin at one snapshot, and go on for ``horizon_s`` with arrivals."""

    futures: Futures
    snapshot: Snapshot
    horizon_s: int
    seed: int = 0

    def future(self, number: int) -> Simulator:
        """The same for the same snapshot, number and seed. Raises InputError, SimulationError."""
        snapshot, arrivals, aging = self.snapshot, self.futures.arrivals, self.aging()
        generator = np.random.default_rng([self.seed, snapshot.at_s, number])
        known = Known(runtimes=self._runtimes_s(generator), priorities=aging is not None)
        begun = snapshot if aging is None else aging.raise_all(snapshot)
        simulation = simulator_from(begun, self.futures.cluster, known)
        rows, times_s = arrivals.drawn(snapshot.at_s, self.horizon_s, generator)
        fresh = (
            generator.choice(aging.fresh, len(rows))
            if aging
            else np.zeros(len(rows), dtype=np.int64)
        )
        for row, time_s, its in zip(rows.tolist(), times_s.tolist(), fresh.tolist(), strict=True):
            simulation.submit(self._arrival(row, time_s, aging.at(its, time_s) if aging else None))
        return simulation

    def aging(self) -> Aging | None:
        """None without fair-share: then the simulator calculates priorities."""
        params = self.futures.cluster.params
        return (
            Aging.of(self.snapshot, params, self.horizon_s)
            if params.priority_weight_fairshare > 0
            else None
        )

    def _runtimes_s(self, generator: np.random.Generator) -> dict[int, int]:
        """By job id, of jobs with a limit; the others are not known."""
        jobs = [job for job in self.snapshot.jobs if job.time_limit_s]
        if not jobs:
            return {}
        query = _query(jobs, self.snapshot.at_s)
        drawn = self.futures.runtimes.drawn(query, generator, 1)[0]
        return {
            job.job_id: int(runtime_s)
            for job, runtime_s in zip(jobs, drawn, strict=True)
            if runtime_s >= 0
        }

    def _arrival(self, row: int, time_s: int, priority: int | None) -> JobSpec:
        arrivals = self.futures.arrivals
        limit_s, runtime_s, patience_s = (
            int(column[row])
            for column in (arrivals.limit_s, arrivals.runtime_s, arrivals.cancel_after_s)
        )
        return JobSpec(
            int(arrivals.nodes[row]),
            limit_s if limit_s > 0 else None,
            runtime_s if runtime_s >= 0 else None,
            user=f"arrival{arrivals.user[row]}",
            partition=self.futures.partitions[arrivals.partition[row]],
            # a job that names none would get all of its nodes' (decision 0022)
            memory_mib_per_node=1,
            submit_s=time_s,
            cancel_s=time_s + patience_s if patience_s >= 0 else None,
            priority=priority,
        )


def _query(jobs: Sequence[Job], now_s: int) -> JobQuery:
    elapsed_s = [
        now_s - job.start_s if job.start_s is not None and job.state.has_nodes else 0
        for job in jobs
    ]
    return JobQuery(
        [job.user for job in jobs],
        np.array([job.nodes for job in jobs], dtype=np.int64),
        np.array([job.time_limit_s for job in jobs], dtype=np.int64),
        np.maximum(np.array(elapsed_s, dtype=np.int64), 0),
    )
