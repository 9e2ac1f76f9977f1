"""What routing would have saved: recorded jobs in their own partitions, and routed by a rule.

The rule is best-fit of docs/routing.md, which needs no training: the partition with room that has
the fewest idle nodes; without room anywhere the one with the least work a node.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
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
Chooser = Callable[[Simulator, JobSpec], str]
"""Names a job's partition at its submission."""


@dataclass(frozen=True, kw_only=True)
class RoutingFigures:
    """Of the jobs that ask for GPUs, in the last part of the history."""

    jobs: int
    moved: int
    """Jobs that the rule sends to another partition than the recorded one."""
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
    recorded = _waits_h(cluster, specs, _as_recorded)
    router = _Router(cluster)
    routed = _waits_h(cluster, specs, router.choose)
    return _figures(specs, judged, (recorded, routed), router.moved, seed), ""


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
    others = _Router(cluster)
    choices = np.array([len(others.candidates(spec)) > 1 for spec in specs], dtype=np.bool_)
    return specs, np.array(judged, dtype=np.bool_) & choices


def _is_accepted(admission: Admission, spec: JobSpec) -> bool:
    try:
        admission.check(spec)
    except InvalidJob:
        return False
    return True


def _as_recorded(simulator: Simulator, spec: JobSpec) -> str:  # noqa: ARG001 - a Chooser
    return spec.partition or ""


class _Router:
    """Best-fit among the pools in which a job fits."""

    def __init__(self, cluster: ClusterConfig) -> None:
        self._pools = pools(cluster.partitions)
        self._partitions = {partition.name: partition for partition in cluster.partitions}
        gpus = {node.name: node.gpus for node in cluster.nodes}
        self._has_gpus = {
            name: any(gpus[node] for node in partition.nodes)
            for name, partition in self._partitions.items()
        }
        self.moved = 0

    def candidates(self, spec: JobSpec) -> list[str]:
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

    def choose(self, simulator: Simulator, spec: JobSpec) -> str:
        candidates = self.candidates(spec)
        if len(candidates) == 1:
            return candidates[0]
        states = {name: self._state(simulator, name) for name in candidates}
        room = [
            name
            for name, (idle, waiting, _) in states.items()
            if idle >= spec.nodes and not waiting
        ]
        chosen = (
            min(room, key=lambda name: states[name][0])
            if room
            else min(candidates, key=lambda name: states[name][2])
        )
        self.moved += chosen != spec.partition
        return chosen

    def _state(self, simulator: Simulator, name: str) -> tuple[int, int, float]:
        """Idle nodes of the partition's pool, jobs that wait there, and work in seconds a node."""
        pool = next(pool for pool in self._pools if name in pool)
        nodes = {node for member in pool for node in self._partitions[member].nodes}
        running = [job for job in simulator.running() if job.partition in pool]
        waiting = [job for job in simulator.pending() if job.partition in pool]
        now_s = simulator.now_s
        work = sum(job.spec.nodes * max((job.limit_end_s or now_s) - now_s, 0) for job in running)
        work += sum(job.spec.nodes * (job.time_limit_s or 0) for job in waiting)
        idle = len(nodes) - sum(job.spec.nodes for job in running)
        return idle, len(waiting), work / len(nodes)


def _waits_h(cluster: ClusterConfig, specs: Sequence[JobSpec], choose: Chooser) -> Floats:
    """Of each job, in hours; (jobs,)."""
    simulator = Simulator(cluster, start_s=(specs[0].submit_s or 0) - 1)
    ids = []
    for spec in specs:
        simulator.run_until(spec.submit_s or 0)
        partition = choose(simulator, spec)
        ids.append(simulator.submit(replace(spec, partition=partition, submit_s=None)))
    simulator.run()
    jobs = [simulator.job(job_id) for job_id in ids]
    return np.array([((job.start_s or 0) - job.submit_s) / HOUR_S for job in jobs])


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
