"""Jobs and a cluster made ready for the simulator: what could never run, what waits in a circle,
where time begins.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from slurm_sim.config import ClusterConfig, NodeSpec, SelectType
from slurm_sim.jobfile.dependencies import Wishes, as_typed, check_known, circles, ranks, wishes_of
from slurm_sim.jobfile.impossible import Impossible, find_impossible, refusal, skipped
from slurm_sim.jobfile.jobs import MISSING, Jobs
from slurm_sim.ranges import LAST_S
from slurm_sim.traces.errors import TraceError


@dataclass(frozen=True)
class SimulationInput:
    """Input of the simulator, whose own time begins at 0 with slurmctld's start."""

    cluster: ClusterConfig
    jobs: Jobs
    """``job_id`` is as slurmctld would number them; the file's own are the labels."""
    shift_s: int
    """What to add to the file's times to get the simulator's."""
    circular: dict[int, str]
    """Rows of jobs that wait for each other, and how: they are kept back for ever."""


def prepare(
    cluster: ClusterConfig,
    jobs: Jobs,
    started_s: int,
    skip_impossible: bool = False,
    strict: bool = False,
) -> tuple[SimulationInput, list[str]]:
    """Checks all jobs; returns what to simulate and what the user should know.

    Raises TraceError for the first job that could never run, unless those are to be left out; if
    `strict`, also for a dependency on a job that is not submitted before.
    """
    _check_times(jobs, started_s)
    cluster, of_memory = _memory(cluster, jobs)
    notes = [*jobs.notes, *of_memory]
    impossible = find_impossible(cluster, jobs)
    if impossible:
        if not skip_impossible:
            raise refusal(jobs, impossible)
        notes.append(skipped(jobs, impossible))
        jobs = _without(jobs, impossible)
    wishes = wishes_of(jobs)
    circular = circles(jobs, wishes)
    notes += [
        *_remarks(cluster, jobs),
        *check_known(jobs, wishes, circular, strict),
        *_uncounted(cluster, jobs),
    ]
    ready = SimulationInput(
        cluster=_shifted(cluster, -started_s),
        jobs=renumbered(jobs, wishes),
        shift_s=-started_s,
        circular=circular,
    )
    return ready, notes


def _check_times(jobs: Jobs, started_s: int) -> None:
    """Raises TraceError without a job, or for times too early or too late for the simulator."""
    if not len(jobs):
        raise TraceError(jobs.source, "at least one job", found="none")
    submit_s = jobs.numbers("submit_s")
    if started_s > int(submit_s.min()):
        raise jobs.refuse(
            int(submit_s.argmin()),
            "submit_s",
            f"a time from slurmctld's start on (--slurmctld-started-s, {started_s})",
        )
    if int(submit_s.max()) - started_s > LAST_S:
        raise TraceError(
            "--slurmctld-started-s",
            f"at most {LAST_S:,} s before the last job",
            found=str(started_s),
        )


def _without(jobs: Jobs, impossible: list[Impossible]) -> Jobs:
    """The other jobs. Raises TraceError if there are none."""
    keep = np.ones(len(jobs), bool)
    keep[[each.row for each in impossible]] = False
    if not keep.any():
        left_out = skipped(jobs, impossible)
        raise TraceError(
            jobs.source, f"at least one job that this cluster can run; {left_out}", found="none"
        )
    return jobs.pick(keep)


def _remarks(cluster: ClusterConfig, jobs: Jobs) -> list[str]:
    notes = []
    later = any(
        (cluster.params.over_time_limit_s, *(each.over_time_limit_s for each in cluster.partitions))
    )
    limits, runs = jobs.numbers("timelimit_s"), jobs.numbers("runtime_s")
    if over := int(((limits > 0) & (runs > limits)).sum()):
        killed = "at it, or OverTimeLimit later" if later else "at it"
        notes.append(f"{over} jobs would run longer than their limit: they are killed {killed}")
    if unknown := int(((runs < 0) & (jobs.numbers("cancel_s") < 0)).sum()):
        notes.append(f"{unknown} jobs have no run time: they run until their limit")
    array, throttle = jobs.numbers("array_job_id"), jobs.numbers("array_throttle")
    pairs = np.unique(np.stack([array, throttle])[:, array != MISSING], axis=1)
    if several := np.unique(pairs[0][:-1][pairs[0][1:] == pairs[0][:-1]]).tolist():
        whose = (
            f"{len(several)} arrays, like {jobs.name_of(several[0])}"
            if len(several) > 1
            else f"array {several[0]}"
        )
        notes.append(
            f"{whose}: its tasks have different throttles, and each keeps to its own; in Slurm an"
            " array has one"
        )
    return notes


def _memory(cluster: ClusterConfig, jobs: Jobs) -> tuple[ClusterConfig, list[str]]:
    """The cluster as far as the jobs' memory is known, and a note on those that name none."""
    unnamed = int((jobs.numbers("mem_mib_per_node") <= 0).sum()) if cluster.counts_memory else 0
    if not unnamed:
        return cluster, []
    if unnamed == len(jobs):
        return cluster.without_memory(), ["memory is not counted: no job of the file names any"]
    gets = "what DefMemPerCPU or DefMemPerNode say, or all" if cluster.has_default_memory else "all"
    return cluster, [f"{unnamed} jobs name no memory: each gets {gets} of its nodes', as in Slurm"]


SIZES = {"cpus_per_node": "cpus", "gpus_per_node": "gpus", "mem_mib_per_node": "memory_mib"}
"""What a job asks for on each node, and what a node has."""


def _uncounted(cluster: ClusterConfig, jobs: Jobs) -> list[str]:
    """A note on what jobs ask for and this kind of cluster does not count."""
    if cluster.params.select_type is SelectType.LINEAR:
        uncounted, why = (
            list(SIZES),
            "select/linear gives whole nodes and does not look at what they have",
        )
    else:
        uncounted = [] if cluster.params.memory_is_consumable else ["mem_mib_per_node"]
        why = "SelectTypeParameters without memory, such as CR_Core"
    asked = [name for name in uncounted if (jobs.numbers(name) > (name == "cpus_per_node")).any()]
    if not asked:
        return []
    shown = f"not used: {', '.join(map(jobs.own_name, asked))} ({why})"
    over = np.any([_over(cluster, jobs, name) for name in asked], axis=0)
    if over.any():
        first = jobs.labels[int(np.argmax(over))]
        shown += f"; {over.sum()} jobs ask for more than any node has, like job {first}"
    return [shown]


def _over(cluster: ClusterConfig, jobs: Jobs, name: str) -> NDArray[np.bool_]:
    """Jobs that ask for more than any node has, where nodes are described at all."""
    most = max(getattr(node, SIZES[name]) for node in cluster.nodes)
    undescribed = getattr(NodeSpec(""), SIZES[name])
    return jobs.numbers(name) > (most if most > undescribed else np.inf)


def renumbered(jobs: Jobs, wishes: Wishes) -> Jobs:
    """With ids as slurmctld gives them, by submission: of jobs of equal priority the one submitted
    first goes first.

    Those of one second come in the file's order. Dependencies (`wishes`) and arrays follow.
    """
    given, size = jobs.numbers("job_id"), len(jobs)
    new = ranks(jobs) + 1
    columns = {**jobs.columns, "job_id": new}
    new_of = (
        dict(zip(given.tolist(), new.tolist(), strict=True))
        if {"dependency", "array_job_id"} & set(columns)
        else {}
    )
    if "array_job_id" in columns:
        for array in np.unique(columns["array_job_id"]).tolist():
            new_of.setdefault(array, len(new_of) + 1)
        new_of[MISSING] = MISSING
        columns["array_job_id"] = np.array(
            [new_of[array] for array in columns["array_job_id"].tolist()], np.int64
        )
    if "dependency" in columns:
        columns["dependency"] = columns["dependency"].copy()
        for row, wish in wishes.items():
            columns["dependency"][row] = as_typed(wish, new_of, nobody=2 * size + 1)
    return replace(jobs, columns=columns)


def _shifted(cluster: ClusterConfig, shift_s: int) -> ClusterConfig:
    """With the cluster's times as the simulator's; what was over before it begins happens at its
    beginning.
    """
    changes = tuple(
        replace(each, time_s=max(0, each.time_s + shift_s)) for each in cluster.node_changes
    )
    reservations = tuple(
        replace(each, start_s=max(0, each.start_s + shift_s), end_s=max(1, each.end_s + shift_s))
        for each in cluster.reservations
        if each.users or each.end_s + shift_s > 0
    )
    return replace(cluster, node_changes=changes, reservations=reservations)
