"""What a result of training or evaluation hangs on, and a user must know: the partition, and the
scheduler.
"""

from __future__ import annotations

import numpy as np

from mirage.errors import InputError
from mirage.figures.words import several
from mirage.provision.learn.joblog import JobLog
from slurm_sim.config import ClusterConfig
from slurm_sim.jobfile.jobs import MISSING
from slurm_sim.traces.guess import WHY_IT_MATTERS

FEW_JOBS = 500
"""A partition with fewer jobs in the whole history says little about its queue."""


def choose_partition(
    log: JobLog, cluster: ClusterConfig, wanted: str | None
) -> tuple[str, list[str]]:
    """The partition of the pairs, and sentences about it for the user.

    ``wanted`` None: the one whose jobs took most node-hours. Raises InputError for a name that the
    cluster lacks.
    """
    names = [partition.name for partition in cluster.partitions]
    if wanted is not None and wanted not in names:
        raise InputError(
            f"cluster {cluster.name!r} has no partition {wanted!r}; it has {', '.join(names)}."
        )
    of_job = log.columns["partition"]
    jobs = {name: int((of_job == name).sum()) for name in names}
    node_s = log.column("nodes") * np.where((it := log.column("runtime_s")) == MISSING, 0, it)
    work_s = {name: int(node_s[of_job == name].sum()) for name in names}
    # Without run times the number of jobs has to do.
    share = work_s if any(work_s.values()) else jobs
    chosen = wanted or max(names, key=lambda name: share[name])
    said = []
    if wanted is None and len(names) > 1:
        percent = 100 * share[chosen] / max(1, sum(share.values()))
        said.append(
            f"note: partition {chosen}, with {percent:.0f} % of the history's node-hours"
            " (--partition)"
        )
    if jobs[chosen] < FEW_JOBS:
        said.append(
            f"warning: the history has {several(jobs[chosen], 'job')} of partition {chosen}, too few to tell"
            f" how its queue is; {FEW_JOBS:,} or more would be good"
        )
    return chosen, said


def scheduler_cautions(cluster: ClusterConfig) -> list[str]:
    """Sentences for the user where the scheduler's parameters are not the site's own, or make waits
    unusual.
    """
    if cluster.scheduler_is_assumed:
        advice = "Use `mirage trace infer --scheduler`, or the site's slurm.conf as --cluster"
        return [f"warning: {cluster.name}: {WHY_IT_MATTERS}. {advice}"]
    if not cluster.params.priority_multifactor:
        return [
            f"warning: {cluster.name} has priority/basic, where a job that waits for a dependency"
            " keeps its place in the queue: reactive chains hardly wait. If the site has"
            " PriorityType=priority/multifactor, say so here"
        ]
    return []
