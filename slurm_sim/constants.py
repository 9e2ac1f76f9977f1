"""Numbers of a cluster's priorities that its description alone gives (`priority_multifactor.html`)."""

from __future__ import annotations

from slurm_sim.config import ClusterConfig, Params


def partition_parts(config: ClusterConfig) -> dict[str, float]:
    """What each partition adds to a job's priority (PriorityWeightPartition)."""
    of_all = [partition.priority_job_factor for partition in config.partitions]
    largest = 1 if config.params.no_normal_part else max(of_all) or 1
    weight = config.params.priority_weight_partition
    return {item.name: weight * item.priority_job_factor / largest for item in config.partitions}


def qos_parts(config: ClusterConfig) -> dict[str, float]:
    """What each QOS adds to a job's priority (PriorityWeightQOS)."""
    highest = 1 if config.params.no_normal_qos else max(qos.priority for qos in config.qos) or 1
    return {
        qos.name: config.params.priority_weight_qos * qos.priority / highest for qos in config.qos
    }


def decay_per_s(params: Params) -> float:
    """What is left of a past usage after one second (PriorityDecayHalfLife)."""
    half_life_s = params.priority_decay_half_life_s
    return 1 - 0.693 / half_life_s if half_life_s else 1.0
