"""The order of the queue: priority/multifactor (`priority_multifactor.html`) and priority/basic
(`slurm.conf(5)`).
"""

from __future__ import annotations

from collections.abc import Iterable

from slurm_sim.admission import Admission
from slurm_sim.config import WEIGHTS_OF_TRES, ClusterConfig, Partition
from slurm_sim.constants import partition_parts, qos_parts
from slurm_sim.jobs import JobRecord
from slurm_sim.ranges import MOST_WEIGHT
from tests.reference.fairshare import FairShare

TOP_PRIORITY = 0xFFFF_0000
"""With priority/basic each job gets one less than the one before it; the first gets one less than
this.
"""


class Priorities:
    """Priorities as slurmctld stores them: integers of 32 bits, truncated, at least 1; 0 is a held
    job's.
    """

    def __init__(
        self,
        admission: Admission,
        fairshare: FairShare,
    ) -> None:
        config = admission.config
        self.kept = False
        """Whether jobs keep the priority that they have."""
        self.tested: dict[int, int] = {}
        """CPUs that a job would hold where a test last found room for it, whether it started there
        or not.
        """
        self._counted: dict[int, int] = {}
        """The same as of the last recalculation: the CPUs with which its size counts (total_cpus).
        """
        self._calculated_s: int | None = None
        self._lowest = TOP_PRIORITY
        """That priority/basic has given to a job, before its nice value."""
        self._params = config.params
        self._nodes = len(config.nodes)
        self._cpus = sum(node.cpus for node in config.nodes)
        self._is_linear = admission.is_linear
        self._sizes_vary = len({node.cpus for node in config.nodes}) > 1
        self._admission = admission
        self._fairshare = fairshare
        self._partition_part = partition_parts(config)
        self._qos_part = qos_parts(config)
        self._tres_weights = tuple(getattr(self._params, name) for name in WEIGHTS_OF_TRES)
        self._tres = {
            partition.name: self._tres_of(config, partition) for partition in config.partitions
        }

    def come_before(self, given: Iterable[int | None]) -> None:
        """Jobs with these priorities were there before the simulation; those of 1 are as low as
        any.
        """
        self._lowest = min(
            [
                self._lowest,
                *(priority for priority in given if priority is not None and priority > 1),
            ]
        )

    def give(self, job: JobRecord) -> None:
        """A job is submitted or released: with priority/basic it comes last (`set_job_prio`), also
        if others were held.

        It keeps its place when it is requeued.
        """
        if self._params.priority_multifactor or job.held or job.spec.priority is not None:
            return
        self._lowest = max(1, self._lowest - 1)
        job.priority = max(1, min(MOST_WEIGHT, self._lowest - job.spec.nice))

    def calculate(self, calculated_s: int) -> None:
        """Priorities are recalculated at this time; nothing happens if they have been."""
        if calculated_s != self._calculated_s:
            self._calculated_s = calculated_s
            self._counted = self.tested.copy()

    def forget(self, job: JobRecord) -> None:
        """A job is requeued, or asks for other nodes."""
        self.tested.pop(job.job_id, None)
        self._counted.pop(job.job_id, None)

    def recalculated(self, job: JobRecord, calculated_s: int) -> int:
        """The priority of a job that may have one already."""
        new = self.of(job, calculated_s)
        return (
            max(job.priority, new)
            if self._params.incr_only and self._params.priority_multifactor
            else new
        )

    def of(self, job: JobRecord, calculated_s: int) -> int:
        """The job's priority as calculated at this time."""
        if job.held:
            return 0
        if self.kept and job.priority:
            return job.priority
        if job.spec.priority is not None:
            return job.spec.priority
        if not self._params.priority_multifactor:
            return job.priority
        age_part = self._params.priority_weight_age * self._age_factor(job, calculated_s)
        share_part = self._share_part(job, calculated_s)
        size_part = self._params.priority_weight_job_size * self._size_factor(job, calculated_s)
        qos_part = self._qos_part[self._admission.qos_of(job.spec.qos).name]
        factors = age_part + share_part + size_part + self._partition_part[job.partition] + qos_part
        return max(1, int(min(MOST_WEIGHT, factors + self._tres_part(job) - job.spec.nice)))

    def _age_factor(self, job: JobRecord, calculated_s: int) -> float:
        since_s = job.submit_s if self._params.accrue_always else job.accrues_s
        if since_s is None:
            return 0.0
        return min(1.0, max(0, calculated_s - since_s) / self._params.priority_max_age_s)

    def _size_factor(self, job: JobRecord, calculated_s: int) -> float:
        """The mean of its parts of the cluster's nodes and CPUs, or, relative to time, its CPUs'
        part by minutes.

        The CPUs are those that it would hold where a test last found room for it
        (`set_priority_factors`, total_cpus), from the first recalculation after that on: all of
        whole nodes, those of whole cores; before, those that it asks for. select/linear tests every
        job as it is submitted, so where nodes are equal it is known what comes of it.
        """
        cpus, small = job.nodes * job.spec.cpus_per_node, self._params.priority_favor_small
        if not self._is_linear or self._sizes_vary:
            cpus = self._counted.get(job.job_id, cpus)
        elif job.accrues_s is not None and calculated_s > job.accrues_s:
            cpus = job.nodes * self._cpus // self._nodes
        if self._params.small_relative_to_time:
            size = max(job.nodes * self._cpus / self._nodes, cpus) / _minutes(job) / self._cpus
            return min(1.0, max(0.0, 1.0 - size if small else size))
        of_nodes = (self._nodes - job.nodes if small else job.nodes) / self._nodes
        return (of_nodes + (self._cpus - cpus if small else cpus) / self._cpus) / 2

    @staticmethod
    def _tres_of(config: ClusterConfig, partition: Partition) -> tuple[int, int, int, int]:
        """CPUs, memory, nodes and GPUs of a partition, up or not."""
        names = set(partition.nodes)
        nodes = [node for node in config.nodes if node.name in names]
        return (
            sum(node.cpus for node in nodes),
            sum(node.memory_mib for node in nodes),
            len(nodes),
            sum(node.gpus for node in nodes),
        )

    def _tres_part(self, job: JobRecord) -> float:
        """PriorityWeightTRES: of what the job asks for, also where it gets whole nodes."""
        spec, part = job.spec, 0.0
        each = (spec.cpus_per_node, self._admission.memory_mib(spec), 1, spec.gpus_per_node)
        for weight, value, there in zip(
            self._tres_weights, each, self._tres[job.partition], strict=True
        ):
            asked = job.nodes * value
            if self._params.no_normal_tres:
                part += asked * weight
            elif there:
                part += asked / there * weight
        return part

    def _share_part(self, job: JobRecord, calculated_s: int) -> float:
        if not self._params.priority_weight_fairshare:
            return 0.0
        factor = self._fairshare.factor(job.spec.account, job.user, calculated_s)
        return self._params.priority_weight_fairshare * factor


def _minutes(job: JobRecord) -> int:
    """Its limit as slurmctld has it; UNLIMITED is the largest number there."""
    return 2**32 - 1 if job.time_limit_s is None else -(-job.time_limit_s // 60)
