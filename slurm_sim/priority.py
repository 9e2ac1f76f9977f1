"""priority/multifactor: how Slurm orders the queue (`priority_multifactor(7)`, factors age, job size, partition)."""

from __future__ import annotations

from collections.abc import Iterable

from slurm_sim.model import JobRecord, Params, Partition


class Multifactor:
    """Priorities as slurmctld stores them: integers, truncated, at least 1; 0 is a held job's."""

    def __init__(self, params: Params, nodes: int, partitions: Iterable[Partition]) -> None:
        self._params = params
        self._nodes = nodes
        factors = {partition.name: partition.priority_job_factor for partition in partitions}
        largest = max(factors.values(), default=0) or 1
        self._partition_part = {
            name: params.priority_weight_partition * factor / largest for name, factor in factors.items()
        }

    def of(self, job: JobRecord, calculated_s: int) -> int:
        """The job's priority as calculated at this time."""
        if job.held:
            return 0
        age_part = self._params.priority_weight_age * self._age_factor(job, calculated_s)
        return max(1, int(age_part + self._size_part(job.nodes) + self._partition_part[job.partition]))

    def _age_factor(self, job: JobRecord, calculated_s: int) -> float:
        since_s = job.submit_s if self._params.accrue_always else job.eligible_s
        if since_s is None:
            return 0.0
        return min(1.0, max(0, calculated_s - since_s) / self._params.priority_max_age_s)

    def _size_part(self, nodes: int) -> float:
        counted = self._nodes - nodes if self._params.priority_favor_small else nodes
        return self._params.priority_weight_job_size * counted / self._nodes
