"""The order of the queue: priority/multifactor and priority/basic (`priority_multifactor.html`)."""

from __future__ import annotations

from slurm_sim.config import ClusterConfig, SelectType
from slurm_sim.fairshare import FairShare
from slurm_sim.jobs import JobRecord
from slurm_sim.limits import Limits


class Multifactor:
    """Priorities as slurmctld stores them: integers, truncated, at least 1; 0 is a held job's.

    With priority/basic all are 1, so that the earlier submission comes first.
    """

    def __init__(self, config: ClusterConfig, limits: Limits, fairshare: FairShare) -> None:
        self.kept = False
        """Whether jobs keep the priority that they have."""
        self._params = config.params
        self._nodes = len(config.nodes)
        self._cpus = sum(node.cpus for node in config.nodes)
        self._exclusive = {partition.name for partition in config.partitions if partition.exclusive}
        self._limits = limits
        self._fairshare = fairshare
        largest = max(partition.priority_job_factor for partition in config.partitions) or 1
        self._partition_part = {
            partition.name: self._params.priority_weight_partition * partition.priority_job_factor / largest
            for partition in config.partitions
        }
        highest = max(qos.priority for qos in config.qos) or 1
        self._qos_part = {qos.name: self._params.priority_weight_qos * qos.priority / highest for qos in config.qos}

    def of(self, job: JobRecord, calculated_s: int) -> int:
        """The job's priority as calculated at this time."""
        if job.held:
            return 0
        if self.kept and job.priority:
            return job.priority
        if job.spec.priority is not None:
            return job.spec.priority
        if not self._params.priority_multifactor:
            return 1
        age_part = self._params.priority_weight_age * self._age_factor(job, calculated_s)
        share_part = self._share_part(job, calculated_s)
        size_part = self._params.priority_weight_job_size * self._size_factor(job, calculated_s)
        qos_part = self._qos_part[self._limits.qos_of(job.spec.qos).name]
        return max(1, int(age_part + share_part + size_part + self._partition_part[job.partition] + qos_part))

    def _age_factor(self, job: JobRecord, calculated_s: int) -> float:
        since_s = job.submit_s if self._params.accrue_always else job.accrues_s
        if since_s is None:
            return 0.0
        return min(1.0, max(0, calculated_s - since_s) / self._params.priority_max_age_s)

    def _size_factor(self, job: JobRecord, calculated_s: int) -> float:
        """The mean of its parts of the cluster's nodes and CPUs.

        Of a job on whole nodes all their CPUs count from the first recalculation on, when a pass has looked for nodes
        (total_cpus in `set_priority_factors`); before, those that it asks for. Simplification: the cluster's nodes may
        have unequal CPUs, and which it gets is known only later.
        """
        small = self._params.priority_favor_small
        of_nodes = (self._nodes - job.nodes if small else job.nodes) / self._nodes
        if self._whole(job) and job.accrues_s is not None and calculated_s > job.accrues_s:
            return of_nodes
        cpus = job.nodes * job.spec.cpus_per_node
        return (of_nodes + (self._cpus - cpus if small else cpus) / self._cpus) / 2

    def _whole(self, job: JobRecord) -> bool:
        linear = self._params.select_type is SelectType.LINEAR
        return linear or job.spec.exclusive or job.partition in self._exclusive

    def _share_part(self, job: JobRecord, calculated_s: int) -> float:
        if not self._params.priority_weight_fairshare:
            return 0.0
        factor = self._fairshare.factor(job.spec.account, job.user, calculated_s)
        return self._params.priority_weight_fairshare * factor
