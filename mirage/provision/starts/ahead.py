"""When a job would start in simulated futures of the live queue, and if nobody else came.

All shapes are asked in the same futures (`mirage.provision.starts.drawn`), so their difference is
not chance.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType

import numpy as np

from mirage.domain import Job, JobState, Snapshot
from mirage.provision.learn.episode import Floats
from mirage.provision.learn.futures import Futures
from mirage.provision.starts.drawn import Aging, DrawnFutures
from mirage.provision.starts.forecast import AS_IT_IS, QuantileCalibration, StartForecast, held
from mirage.slurm.lookahead import Known, simulator_from
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, Params
from slurm_sim.seconds import DAY_S

LONGEST_S = 7 * DAY_S
"""A wait that lasts longer in a future counts as this one."""
AT_ONCE_S = 60
"""A job that would start so soon does so in every future, so none is simulated."""
FEWEST = 8
"""Futures that are simulated even if the time is up."""


@dataclass(frozen=True)
class StartsAhead:
    """Futures of one snapshot in which jobs are asked for: ``jobs`` are those that are not in the
    queue yet. Raises InputError, SimulationError.
    """

    futures: Futures
    snapshot: Snapshot
    jobs: Sequence[Job] = ()
    records: Sequence[Job] = ()
    """Of accounting: what priority users without a job in the queue had."""
    count: int = 64
    seconds: float = 20.0
    """After so long no further future is begun."""
    seed: int = 0
    clock: Callable[[], float] = field(default=time.monotonic)

    def waits_s(self) -> dict[int, Floats]:
        """By job id, of ``jobs``: the wait in each future, (futures,); seconds."""
        plans_s = {
            job.job_id: plan_s(self.snapshot, self.futures.cluster, job, self.records)
            for job in self.jobs
        }
        at_once = {job_id: wait_s for job_id, wait_s in plans_s.items() if wait_s <= AT_ONCE_S}
        others = [job for job in self.jobs if job.job_id not in at_once]
        found = replace(self, jobs=others)._in_futures() if others else {}
        return found | {job_id: np.full(1, wait_s, float) for job_id, wait_s in at_once.items()}

    def _in_futures(self) -> dict[int, Floats]:
        return self._in_each(self._of_new)

    def left_s(self, job_id: int) -> Floats:
        """The same of a job in the queue."""
        return self._in_each(lambda future: {job_id: _wait_s(future.fork(), job_id)})[job_id]

    def _of_new(self, future: Simulator) -> dict[int, int]:
        found = {}
        for job in self.jobs:
            fork = future.fork()
            fork.release(job.job_id)
            found[job.job_id] = _wait_s(fork, job.job_id)
        return found

    def _in_each(self, ask: Callable[[Simulator], dict[int, int]]) -> dict[int, Floats]:
        params = self.futures.cluster.params
        added = [
            held(job, _priority(job, self.snapshot, params, self.records)) for job in self.jobs
        ]
        snapshot = replace(self.snapshot, jobs=(*self.snapshot.jobs, *added))
        drawn = DrawnFutures(self.futures, snapshot, LONGEST_S, self.seed)
        until = self.clock() + self.seconds
        rows: list[dict[int, int]] = []
        while len(rows) < self.count and (len(rows) < FEWEST or self.clock() < until):
            rows.append(ask(drawn.future(len(rows))))
        return {job_id: np.array([row[job_id] for row in rows], float) for job_id in rows[0]}


def plan_s(
    snapshot: Snapshot,
    cluster: ClusterConfig,
    job: Job,
    records: Sequence[Job] = (),
    runs_s: Mapping[int, int] = MappingProxyType({}),
) -> int:
    """Seconds until the start if nobody else came and all jobs ran until their limits: the rule of
    `squeue --start`. ``job``: one that is not in the queue yet. ``runs_s``: by job id, run times
    that are known.
    """
    added = held(job, _priority(job, snapshot, cluster.params, records))
    known = Known(runtimes=runs_s, priorities=cluster.params.priority_weight_fairshare > 0)
    simulation = simulator_from(replace(snapshot, jobs=(*snapshot.jobs, added)), cluster, known)
    simulation.release(job.job_id)
    return _wait_s(simulation, job.job_id)


def forecast_ahead(waits_s: Floats, calibration: QuantileCalibration = AS_IT_IS) -> StartForecast:
    """From the waits in futures."""
    low_s, middle_s, high_s = (float(wait_s) for wait_s in np.quantile(waits_s, calibration.levels))
    checked = (
        f"the range is checked on {calibration.cases} past waits"
        if calibration.cases
        else "the range is not checked on past waits, and rather too narrow"
    )
    reason = (
        f"so in {len(waits_s)} simulated futures of the present queue; {checked}"
        if len(waits_s) > 1
        else "nodes are free for it, and no other job comes before"
    )
    return StartForecast(wait_s=(low_s, middle_s, high_s), method="look-ahead", reason=reason)


def _wait_s(simulation: Simulator, job_id: int) -> int:
    now_s = simulation.now_s
    start_s = simulation.run_until_start(job_id, now_s + LONGEST_S)
    return LONGEST_S if start_s is None else max(0, start_s - now_s)


def _priority(job: Job, snapshot: Snapshot, params: Params, records: Sequence[Job]) -> int:
    """What a job that enters the queue now would get: what its owner's other jobs had without their
    age, the newest record first. Owners without any have used nothing lately, so they come before
    nine in ten. 0: without fair-share the simulator calculates it.
    """
    if not params.priority_weight_fairshare:
        return 0
    others = replace(snapshot, jobs=tuple(each for each in snapshot.jobs if each.priority))
    own = replace(others, jobs=tuple(each for each in others.jobs if each.user == job.user))
    if own.jobs:
        return int(np.median(Aging.of(own, params, 0).fresh))
    ended = [each for each in records if each.user == job.user and each.priority and each.start_s]
    if ended:
        last = max(ended, key=lambda each: each.start_s or 0)
        at_start = replace(last, state=JobState.RUNNING)
        return int(Aging.of(replace(snapshot, jobs=(at_start,)), params, 0).fresh[0])
    return int(np.quantile(Aging.of(others, params, 0).fresh, 0.9))
