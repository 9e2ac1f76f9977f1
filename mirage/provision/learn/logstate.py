"""What a job history shows at one instant: who ran, who waited. As far as it tells; the rest is
counted (`Tally`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from mirage.provision.learn.joblog import JobLog
from slurm_sim.admission import Admission, bits
from slurm_sim.config import ClusterConfig
from slurm_sim.jobfile.jobs import MISSING
from slurm_sim.jobs import JobSpec
from slurm_sim.picking import Picker
from slurm_sim.resources import FreeResources
from slurm_sim.seconds import DAY_S
from slurm_sim.state import PendingJob, RunningJob

GRACE_S = 60
"""So long after its limit a job may still run: slurmctld looks each 30 s, then KillWait passes, 30
s too.
"""
FORGOTTEN_S = 14 * DAY_S
"""A job of which the log says nothing for so long is not missed."""


@dataclass
class Tally:
    """Jobs of a state, and what the log could not tell about them."""

    running: int = 0
    queued: int = 0
    displaced: int = 0
    """Running by the log, but without free nodes: it has more nodes in use than the cluster. They
    queue, as old as they are, with the rest of their run time and limit.
    """
    over_limit: int = 0
    """Running by the log although their limit was over: killed at once."""
    unknown_start: int = 0
    """Submitted in the last two weeks, and nothing more is known: left out."""
    unknown_end: int = 0
    """Running without an end in the log, and their limit, if they have one, is over: left out."""


@dataclass
class LogState:
    """For `Simulator.from_state`."""

    running: list[RunningJob] = field(default_factory=list)
    pending: list[PendingJob] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)


def state_at(log: JobLog, cluster: ClusterConfig, at_s: int, down: Collection[str]) -> LogState:
    """Jobs submitted until `at_s` that were not over then.

    Which nodes the running ones had, no log tells: they get those that Slurm would pick, the oldest
    job first.
    """
    count = int(np.searchsorted(log.column("submit_s"), at_s, side="right"))
    submit_s, start_s, end_s = (
        log.column(name)[:count] for name in ("submit_s", "start_s", "end_s")
    )
    alive = (end_s == MISSING) | (end_s > at_s)
    started = (start_s != MISSING) & (start_s <= at_s)
    unknown = (start_s == MISSING) & (end_s == MISSING)
    state = LogState()
    state.tally.unknown_start = int((unknown & (submit_s > at_s - FORGOTTEN_S)).sum())
    rows = np.flatnonzero(alive & started)
    _run(
        state,
        log.pick(rows[np.argsort(start_s[rows], kind="stable")]),
        _Placer(cluster, down),
        at_s,
    )
    _queue(state, log, np.flatnonzero(alive & ~started & ~unknown), at_s)
    state.pending.sort(key=lambda item: item.spec.job_id or 0)
    return state


def _run(state: LogState, log: JobLog, placer: _Placer, at_s: int) -> None:
    tally = state.tally
    for spec, times in zip(
        log.specs(without=("submit_s", "begin_s", "dependency")), _times(log), strict=True
    ):
        start_s = at_s if times.start_s is None else times.start_s
        over_limit = spec.time_limit_s is not None and start_s + spec.time_limit_s + GRACE_S < at_s
        if times.end_s is None and (over_limit or spec.time_limit_s is None):
            tally.unknown_end += 1
        elif nodes := placer.place(spec):
            tally.running += 1
            tally.over_limit += over_limit
            state.running.append(RunningJob(spec, start_s, nodes, times.submit_s, times.eligible_s))
        else:
            tally.displaced += 1
            since_s = times.submit_s if times.eligible_s is None else times.eligible_s
            state.pending.append(PendingJob(_rest(spec, at_s - start_s), times.submit_s, since_s))


def _rest(spec: JobSpec, ran_s: int) -> JobSpec:
    """What is left of it."""
    runtime_s = None if spec.runtime_s is None else max(1, spec.runtime_s - ran_s)
    limit_s = None if spec.time_limit_s is None else max(GRACE_S, spec.time_limit_s - ran_s)
    return replace(spec, runtime_s=runtime_s, time_limit_s=limit_s, held=False)


def _queue(state: LogState, log: JobLog, rows: NDArray[np.intp], at_s: int) -> None:
    waiting = log.pick(rows)
    state.tally.queued = len(waiting)
    for spec, times in zip(waiting.specs(without=("submit_s",)), _times(waiting), strict=True):
        since_s = _competes_since(spec, times, log, at_s)
        if since_s is not None:
            spec = replace(spec, dependency="", begin_s=None)
        state.pending.append(PendingJob(spec, times.submit_s, since_s))


def _competes_since(spec: JobSpec, times: _Times, log: JobLog, at_s: int) -> int | None:
    """None: something keeps it back still. Slurm takes a dependency on a job that it does not know
    for fulfilled.
    """
    if spec.held:
        return None
    since_s: list[int | None] = [times.submit_s]
    if times.eligible_s is not None:
        since_s = [times.eligible_s]
    elif spec.dependency:
        since_s += [
            log.ends_s.get(int(needed), 0) for needed in re.findall(r":(\d+)", spec.dependency)
        ]
    elif spec.begin_s is not None:
        since_s = [spec.begin_s]
    known_s = [time_s for time_s in since_s if time_s is not None and time_s <= at_s]
    return max(known_s) if len(known_s) == len(since_s) else None


class _Times(NamedTuple):
    """Of a job in the log; None: unknown."""

    submit_s: int
    start_s: int | None
    end_s: int | None
    eligible_s: int | None


def _times(log: JobLog) -> Iterator[_Times]:
    known = (
        [None if time == MISSING else time for time in log.column(name).tolist()]
        for name in _Times._fields[1:]
    )
    return map(_Times, log.column("submit_s").tolist(), *known)


class _Placer:
    """Gives nodes to jobs, as Slurm picks them on an empty cluster."""

    def __init__(self, cluster: ClusterConfig, down: Collection[str]) -> None:
        self._admission = Admission(cluster)
        self._free = FreeResources(cluster.nodes)
        self._pick = Picker(cluster.params.select_type, cluster.nodes)
        self._up = self._admission.every_node & ~sum(map(self._admission.bit, down))

    def place(self, spec: JobSpec) -> tuple[str, ...]:
        """Empty: there are not enough."""
        admission = self._admission
        partition = admission.partition_of(spec)
        request = admission.request(spec, partition)
        free = self._free.hosts(request) & admission.masks[partition.name] & self._up
        if free.bit_count() < spec.nodes:
            return ()
        nodes = self._pick(free, spec.nodes, self._free, request, starts=True)
        self._free.take(nodes, request)
        return tuple(admission.node_names[index] for index in bits(nodes))
