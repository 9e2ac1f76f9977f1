"""Where a batch script's job would start and finish, and what that costs in fair share: each partition,
GPU type, account and QOS that its owner may use.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil

from mirage.provision.starts.finish import FinishForecast, Speeds
from mirage.provision.starts.forecast import JobShape
from mirage.provision.starts.forecaster import QueueView, forecast_shape
from mirage.slurm.entitlements import Entitlement
from mirage.slurm.resources import NodeUse
from slurm_sim.config import ClusterConfig, Partition
from slurm_sim.seconds import HOUR_S


@dataclass(frozen=True, kw_only=True)
class JobPlace:
    """One place, and what the job would find there."""

    entries: tuple[Entitlement, ...]
    """All with the same start, finish and cost."""
    gpu_type: str
    shape: JobShape
    finish: FinishForecast
    half_wait_s: float
    """p50 with half the time limit: of two jobs, as a chain."""
    billing_h: float
    """What the job adds to its account's use for fair share: billing units times hours
    (TRESBillingWeights, UsageFactor).
    """
    reason: str


def choices(
    asked: JobShape,
    allowed: Sequence[Entitlement],
    view: QueueView,
    cluster: ClusterConfig,
    nodes: Sequence[NodeUse],
    *,
    speeds: Speeds,
    usage: Mapping[str, float],
) -> list[JobPlace]:
    """The earliest finish first (by p50). ``usage``: UsageFactor of each QOS. Places in which nothing is
    known of waits are left out.
    """
    found = list(_each(asked, allowed, view, cluster, nodes, usage))
    fastest = max((speeds.of(each.shape.partition, [each.gpu_type]) for each in found), default=1.0)
    scaled = [_at_speed(each, fastest / _speed(each, speeds)) for each in found]
    joined: dict[object, JobPlace] = {}
    for each in scaled:
        key = (each.shape.partition, each.gpu_type, each.finish, round(each.billing_h, 6))
        before = joined.get(key)
        joined[key] = replace(each, entries=(*(before.entries if before else ()), *each.entries))
    return sorted(joined.values(), key=lambda each: each.finish.finish_s[1])


def _speed(choice: JobPlace, speeds: Speeds) -> float:
    return speeds.of(choice.shape.partition, [choice.gpu_type])


def _at_speed(choice: JobPlace, longer: float) -> JobPlace:
    finish = replace(choice.finish, run_s=choice.finish.run_s * longer)
    return replace(choice, finish=finish, billing_h=choice.billing_h * longer)


def _each(
    asked: JobShape,
    allowed: Sequence[Entitlement],
    view: QueueView,
    cluster: ClusterConfig,
    nodes: Sequence[NodeUse],
    usage: Mapping[str, float],
) -> Iterator[JobPlace]:
    partitions = {each.name: each for each in cluster.partitions}
    for entry in allowed:
        partition = partitions.get(entry.partition)
        if partition is None or not _is_asked(asked, entry):
            continue
        limit_s = asked.time_limit_s or partition.default_time_s or partition.max_time_s
        if limit_s is None or limit_s > (partition.max_time_s or limit_s):
            continue
        for kind in _types(asked, partition, nodes):
            shape = replace(
                asked,
                partition=entry.partition,
                account=entry.account,
                qos=entry.qos,
                gpu_type=kind,
                time_limit_s=limit_s,
            )
            forecast = forecast_shape(shape, view)
            half = forecast_shape(replace(shape, time_limit_s=limit_s // 2), view)
            if forecast is not None and half is not None:
                billing = _billing(shape, partition, cluster) * usage.get(entry.qos, 1.0)
                yield JobPlace(
                    entries=(entry,),
                    gpu_type=kind,
                    shape=shape,
                    finish=FinishForecast(
                        partition=entry.partition, wait_s=forecast.wait_s, run_s=float(limit_s)
                    ),
                    half_wait_s=half.wait_s[1],
                    billing_h=billing * limit_s / HOUR_S,
                    reason=forecast.reason,
                )


def _is_asked(asked: JobShape, entry: Entitlement) -> bool:
    """It is in the account and QOS that the job asks for, if any."""
    return asked.account in ("", entry.account) and asked.qos in ("", entry.qos)


def _types(asked: JobShape, partition: Partition, nodes: Sequence[NodeUse]) -> list[str]:
    """GPU types on whose nodes it can run; an empty one for nodes without; none: it can't run here."""
    if not (partition.min_nodes <= asked.nodes <= (partition.max_nodes or asked.nodes)):
        return []
    each = [ceil(value / asked.nodes) for value in (asked.gpus, asked.cpus, asked.memory_mib)]
    fitting = [
        node.gpu_type
        for node in nodes
        if partition.name in node.partitions
        and all(wanted <= total for wanted, total in zip(each, node.total, strict=True))
        and asked.gpu_type in ("", node.gpu_type)
    ]
    counts = {kind: fitting.count(kind) for kind in sorted(set(fitting))}
    return [kind for kind, count in counts.items() if count >= asked.nodes]


def _billing(shape: JobShape, partition: Partition, cluster: ClusterConfig) -> float:
    """Billing units: the sum, or by PriorityFlags=MAX_TRES the largest, of each resource's."""
    parts = (
        max(shape.cpus, shape.nodes) * partition.billing_weight_cpus,
        shape.memory_mib * partition.billing_weight_memory,
        shape.nodes * partition.billing_weight_nodes,
        shape.gpus * partition.billing_weight_gpus,
    )
    return max(parts) if cluster.params.max_tres else sum(parts)
