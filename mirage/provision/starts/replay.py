"""Forecasts for sampled jobs of a job history, each made from what was known as the job came.

One simulation runs the history. A second before a sampled job comes, the cluster's snapshot and
records are read as from a live cluster, and each method is asked about a job of the same shape and
user. The wait that it had in the same simulation is the truth: other users' jobs, cancellations and
run times are those of the history.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from mirage.domain import Job, Snapshot
from mirage.provision.learn.background import Background, WarmUp, people_of
from mirage.provision.learn.episode import Floats, Ints
from mirage.provision.learn.futures import Futures
from mirage.provision.starts.ahead import StartsAhead, plan_s
from mirage.provision.starts.forecast import JobShape
from mirage.provision.starts.like_jobs import (
    RECENT_S,
    forecast_from_like_jobs,
    mean_of_like_jobs,
    recent_waits,
)
from mirage.provision.starts.regression import features
from mirage.slurm.simulated import SimulatedCluster
from slurm_sim.jobfile.jobs import MISSING
from slurm_sim.seconds import DAY_S

FREE_ID = 10**9
"""Added to a sampled job's id: so that it is not that of a job in the queue."""
WAITS_END_S = 14 * DAY_S
"""The history runs on for so long, so that sampled jobs start."""


@dataclass(frozen=True, kw_only=True)
class StartCase:
    """A sampled job and what each method said of it; seconds."""

    job_id: int
    submit_s: int
    nodes: int
    limit_s: int
    wait_s: float
    """The truth."""
    like_jobs_s: tuple[float, float, float]
    """p10, p50, p90 by the law of like jobs."""
    mean_s: float
    """The mean of like jobs."""
    plan_s: float
    """By the rule of `squeue --start`."""
    features: Floats
    """(FEATURES,) of the regression."""
    true_runs_s: float
    """A bound: the plan with all true run times, which nobody knows, and nobody else coming."""
    futures_s: Floats | None = None
    """(futures,): the wait in each; None: not simulated."""


@dataclass(frozen=True, kw_only=True)
class Replay:
    """Which jobs are sampled, and what is asked."""

    background: Background
    partition: str
    futures: Futures | None = None
    """Of look-ahead; None: it is not asked."""
    count: int = 32
    """Futures for each job."""
    seed: int = 1

    def cases(
        self,
        begin_s: int,
        end_s: int,
        jobs: int,
        progress: Callable[[int], None] = lambda _: None,
    ) -> list[StartCase]:
        """Up to ``jobs`` jobs submitted in [begin_s, end_s), by submission; those that never start
        are left out. Raises InputError, SimulationError.
        """
        log, warm_s = self.background.log, begin_s - RECENT_S - DAY_S
        later = log.between(warm_s, end_s + WAITS_END_S)
        simulation = self.background.start_at(
            warm_s, WarmUp.TRACE, later, people_of(log)
        ).simulation
        cluster, asked = SimulatedCluster(simulation), list[StartCase]()
        for done, row in enumerate(self._sampled(begin_s, end_s, jobs).tolist(), start=1):
            simulation.run_until(int(log.column("submit_s")[row]) - 1)
            if (case := self._ask(cluster, row)) is not None:
                asked.append(case)
            progress(done)
        simulation.run_until(end_s + WAITS_END_S)
        records = ((case, simulation.job(case.job_id)) for case in asked)
        return [
            replace(case, wait_s=float(record.start_s - record.submit_s))
            for case, record in records
            if record.start_s is not None
        ]

    def _sampled(self, begin_s: int, end_s: int, jobs: int) -> Ints:
        """Rows of jobs that ran, in the partition, uniformly drawn."""
        log = self.background.log
        submit_s = log.column("submit_s")
        fits = (
            (submit_s >= begin_s)
            & (submit_s < end_s)
            & (log.column("runtime_s") > 0)
            & (log.column("cancel_s") == MISSING)
            & (log.columns["partition"] == self.partition)
        )
        rows = np.flatnonzero(fits)
        generator = np.random.default_rng(self.seed)
        return np.sort(generator.choice(rows, min(jobs, len(rows)), replace=False))

    def _ask(self, cluster: SimulatedCluster, row: int) -> StartCase | None:
        """None: no job of the pool has started yet."""
        snapshot, columns = cluster.snapshot(), self.background.log.columns
        number, limit_s = int(columns["job_id"][row]), int(columns["timelimit_s"][row])
        shape = JobShape(
            nodes=int(columns["nodes"][row]),
            time_limit_s=limit_s,
            partition=self.partition,
            account=str(columns["account"][row]),
        )
        job = shape.job(FREE_ID + number, str(columns["user"][row]), snapshot.at_s)
        records = cluster.accounting(snapshot.at_s - RECENT_S, snapshot.at_s)
        samples = recent_waits(records, snapshot, job)
        like = forecast_from_like_jobs(job, samples, snapshot)
        if like is None or not samples:
            return None
        mean_s = mean_of_like_jobs(job, samples)
        in_plan_s = float(plan_s(snapshot, self.background.cluster, job, records))
        runs_s = {other.job_id: self._runs_s.get(other.job_id, 0) for other in snapshot.jobs}
        known = {job_id: run_s for job_id, run_s in runs_s.items() if run_s > 0}
        return StartCase(
            job_id=number,
            submit_s=int(columns["submit_s"][row]),
            nodes=shape.nodes,
            limit_s=limit_s,
            wait_s=np.nan,
            like_jobs_s=like.wait_s,
            mean_s=mean_s,
            plan_s=in_plan_s,
            features=features(in_plan_s, like.wait_s),
            true_runs_s=float(plan_s(snapshot, self.background.cluster, job, records, known)),
            futures_s=self._in_futures(snapshot, job, records),
        )

    def _in_futures(self, snapshot: Snapshot, job: Job, records: Sequence[Job]) -> Floats | None:
        if self.futures is None:
            return None
        ahead = StartsAhead(
            self.futures, snapshot, [job], records, self.count, seconds=np.inf, seed=self.seed
        )
        return ahead.waits_s()[job.job_id]

    @cached_property
    def _runs_s(self) -> dict[int, int]:
        log = self.background.log
        return dict(
            zip(log.column("job_id").tolist(), log.column("runtime_s").tolist(), strict=True)
        )
