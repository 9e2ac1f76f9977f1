"""What routing would have saved: recorded jobs in their own partitions, and in all that admit them
(`-p A,B`), which needs no training.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from mirage.figures.estimate import Estimate
from mirage.figures.resample import Blocks
from slurm_sim import ClusterConfig, JobSpec, Partition, Simulator
from slurm_sim.admission import Admission
from slurm_sim.config import SelectType
from slurm_sim.errors import InvalidJob
from slurm_sim.seconds import DAY_S, HOUR_S
from slurm_sim.traces import Trace

WARM_UP_S = 2 * DAY_S
"""The simulation begins so long before the judged days, with an empty cluster."""
MOST_JOBS = 5_000
"""The latest jobs count: each costs a look at the whole queue."""
RESAMPLES = 2000

Floats = NDArray[np.float64]


@dataclass(frozen=True, kw_only=True)
class RoutingFigures:
    """Of the jobs that ask for GPUs, in the last part of the history."""

    jobs: int
    moved: int
    """Jobs that then start in another partition than the recorded one."""
    recorded_h: float
    """Mean wait in the recorded partitions, simulated."""
    routed_h: float
    saved_h: Estimate
    """Mean hours that a job waits less; negative: more."""


def routing_of(
    trace: Trace, site: ClusterConfig | None, days: float, seed: int
) -> tuple[RoutingFigures | None, str]:
    """Judges the last ``days`` of the history. ``site``: which nodes each partition has; None: not
    known. Without figures, the sentence says why there are none.
    """
    names = set(trace.text("partition")) - {""}
    if len(names) <= 1:
        return None, "all jobs are in one partition, so there is nothing to route"
    if site is None:
        return None, (
            "the history does not say which nodes each partition has, so routing can't be judged;"
            " give --slurm-conf"
        )
    if len(pools(site.partitions)) < 2:
        return None, "all partitions share their nodes, so there is nothing to route"
    if not (trace.column("gpus") > 0).any():
        return None, "only jobs that ask for GPUs are routed, and the history has none"
    cluster = replace(
        site, params=replace(site.params, select_type=SelectType.LINEAR, threads_per_core=1)
    )
    specs, judged = _specs(trace, cluster, days)
    if not judged.any():
        return None, "no job could run in a second partition, so there is nothing to route"
    candidates = _Candidates(cluster)
    recorded, _ = _waits_h(cluster, specs, [spec.partition or "" for spec in specs])
    routed, ran_in = _waits_h(cluster, specs, [",".join(candidates.of(spec)) for spec in specs])
    moved = sum(
        name != spec.partition
        for name, spec, counts in zip(ran_in, specs, judged, strict=True)
        if counts
    )
    return _figures(specs, judged, (recorded, routed), moved, seed), ""


def pools(partitions: Sequence[Partition]) -> list[set[str]]:
    """Names of the partitions that share nodes, together."""
    found: list[tuple[set[str], set[str]]] = []
    for partition in partitions:
        names, nodes = {partition.name}, set(partition.nodes)
        apart = []
        for pool in found:
            if pool[1] & nodes:
                names, nodes = names | pool[0], nodes | pool[1]
            else:
                apart.append(pool)
        found = [*apart, (names, nodes)]
    return [names for names, _ in found]


def _specs(
    trace: Trace, cluster: ClusterConfig, days: float
) -> tuple[list[JobSpec], NDArray[np.bool_]]:
    """The jobs of the judged days and of the warm-up, and which of them are judged."""
    submit, start, end = (trace.column(name) for name in ("submit", "start", "end"))
    since_s = float(submit.max()) - days * DAY_S
    known = trace.ran & np.isfinite(start) & np.isfinite(end) & (submit >= since_s - WARM_UP_S)
    rows = np.flatnonzero(known)[-MOST_JOBS:]
    limits, nodes, gpus = (trace.column(name) for name in ("timelimit_s", "nodes", "gpus"))
    users, names = trace.text("user"), trace.text("partition")
    there = {partition.name: partition for partition in cluster.partitions}
    admission, specs, judged = Admission(cluster), [], []
    for row in rows.tolist():
        if names[row] not in there:
            continue
        spec = JobSpec(
            max(1, int(nodes[row])),
            int(limits[row]) if np.isfinite(limits[row]) and limits[row] > 0 else None,
            int(end[row] - start[row]),
            user=users[row] or "user",
            partition=names[row],
            submit_s=int(submit[row]),
        )
        if not _is_accepted(admission, spec):
            continue
        specs.append(spec)
        judged.append(submit[row] >= since_s and gpus[row] > 0)
    others = _Candidates(cluster)
    choices = np.array([len(others.of(spec)) > 1 for spec in specs], dtype=np.bool_)
    return specs, np.array(judged, dtype=np.bool_) & choices


def _is_accepted(admission: Admission, spec: JobSpec) -> bool:
    try:
        admission.check(spec)
    except InvalidJob:
        return False
    return True


class _Candidates:
    """The partitions in which a job fits, one a pool."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self._pools = pools(cluster.partitions)
        self._partitions = {partition.name: partition for partition in cluster.partitions}
        gpus = {node.name: node.gpus for node in cluster.nodes}
        self._has_gpus = {
            name: any(gpus[node] for node in partition.nodes)
            for name, partition in self._partitions.items()
        }

    def of(self, spec: JobSpec) -> list[str]:
        """The recorded partition, and one of each other pool of the same kind that admits the job."""
        own = spec.partition or ""
        found = [own]
        for pool in self._pools:
            if own not in pool:
                found += [name for name in sorted(pool) if self._admits(name, own, spec)][:1]
        return found

    def _admits(self, name: str, own: str, spec: JobSpec) -> bool:
        partition = self._partitions[name]
        most = min(partition.max_nodes or len(partition.nodes), len(partition.nodes))
        return (
            self._has_gpus[name] == self._has_gpus[own]
            and partition.min_nodes <= spec.nodes <= most
            and (partition.max_time_s or np.inf) >= (spec.time_limit_s or np.inf)
        )


def _waits_h(
    cluster: ClusterConfig, specs: Sequence[JobSpec], partitions: Sequence[str]
) -> tuple[Floats, list[str]]:
    """Of each job, in hours, (jobs,), and where it ran. ``partitions``: of each, with commas."""
    simulator = Simulator(cluster, start_s=(specs[0].submit_s or 0) - 1)
    ids = [
        simulator.submit(replace(spec, partition=names))
        for spec, names in zip(specs, partitions, strict=True)
    ]
    simulator.run()
    jobs = [simulator.job(job_id) for job_id in ids]
    waits_h = np.array([((job.start_s or 0) - job.submit_s) / HOUR_S for job in jobs])
    return waits_h, [job.partition for job in jobs]


def _figures(
    specs: Sequence[JobSpec],
    judged: NDArray[np.bool_],
    waits: tuple[Floats, Floats],
    moved: int,
    seed: int,
) -> RoutingFigures:
    recorded, routed = (each[judged] for each in waits)
    submit_s = np.array([spec.submit_s for spec in specs], dtype=np.int64)[judged]
    days, place = np.unique(submit_s // DAY_S, return_inverse=True)
    saved = np.bincount(place, recorded - routed).astype(np.float64)
    jobs = np.bincount(place).astype(np.float64)
    blocks = Blocks.of(days * DAY_S, np.bincount(place, recorded) / jobs, RESAMPLES, seed)
    interval = blocks.interval(saved, jobs, np.ones(len(days), dtype=np.bool_))
    return RoutingFigures(
        jobs=int(judged.sum()),
        moved=moved,
        recorded_h=float(recorded.mean()),
        routed_h=float(routed.mean()),
        saved_h=Estimate(float(saved.sum() / jobs.sum()), *(interval or (None, None))),
    )
