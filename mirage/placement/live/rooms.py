"""What nodes can give while jobs come and go in thought."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from mirage.domain import Job
from mirage.placement.live.state import PlacedJob, TargetNode
from mirage.placement.topology import Bools
from mirage.slurm.job_details import NodeShare

Rooms = Mapping[str, TargetNode]
"""By the node's name."""


@dataclass(frozen=True, kw_only=True)
class JobStart:
    """A waiting job that there is room for. Whether it starts there is Slurm's decision."""

    job: Job
    nodes: tuple[str, ...]
    gpus: Bools
    """Which it may have, [M]."""
    worth: float
    """Its throughput alone in one rack, GPUs' worth."""


def share_of(job: Job, gpu_type: str) -> NodeShare:
    """What a waiting job asks for on each of its nodes, if it is spread evenly."""
    return NodeShare(
        node="",
        gpus=-(-job.gpus // job.nodes),
        gpu_numbers=(),
        gpu_type=gpu_type,
        cpus=-(-job.cpus // job.nodes),
        memory_mib=-(-job.memory_mib // job.nodes),
    )


def has_room(
    room: TargetNode, partitions: Sequence[str], shares: Sequence[NodeShare], *, whole: bool
) -> bool:
    """Whether a node may take a job of one of these partitions, and has what its largest share
    asks for. ``whole``: the job has its nodes to itself.
    """
    return (
        room.takes_jobs
        and any(partition in room.partitions for partition in partitions)
        and room.gpu_type == shares[0].gpu_type
        and int(room.gpus.sum()) >= max(share.gpus for share in shares)
        and room.cpus >= max(share.cpus for share in shares)
        and room.memory_mib >= max(share.memory_mib for share in shares)
        and not (room.tenants and whole)
    )


def shares_on(each: PlacedJob, nodes: Sequence[str]) -> tuple[NodeShare, ...]:
    """What the job has now, on other nodes, as many. A node that it keeps keeps its share."""
    kept = [share for share in each.shares if share.node in nodes]
    free = [node for node in nodes if node not in {share.node for share in kept}]
    leaving = [share for share in each.shares if share.node not in nodes]
    moved = [
        replace(share, node=node, gpu_numbers=()) for share, node in zip(leaving, free, strict=True)
    ]
    return (*kept, *moved)


def without_job(rooms: Rooms, each: PlacedJob) -> dict[str, TargetNode]:
    """The rooms once the job has gone."""
    found = dict(rooms)
    for share in each.shares:
        if (room := found.get(share.node)) is not None:
            found[share.node] = replace(
                room,
                gpus=room.gpus | (each.gpus & room.members),
                cpus=room.cpus + share.cpus,
                memory_mib=room.memory_mib + share.memory_mib,
                tenants=room.tenants - {each.job.job_id},
            )
    return found


def with_job(rooms: Rooms, each: PlacedJob) -> dict[str, TargetNode]:
    """The rooms once the job is there, with its shares and GPUs."""
    found = dict(rooms)
    for share in each.shares:
        room = found[share.node]
        found[share.node] = replace(
            room,
            gpus=room.gpus & ~each.gpus,
            cpus=room.cpus - share.cpus,
            memory_mib=room.memory_mib - share.memory_mib,
            tenants=room.tenants | {each.job.job_id},
        )
    return found


def relocated(each: PlacedJob, nodes: Sequence[str], gpus: Bools) -> PlacedJob:
    """The job on other nodes."""
    return replace(each, details=replace(each.details, shares=shares_on(each, nodes)), gpus=gpus)


def with_start(rooms: Rooms, start: JobStart) -> dict[str, TargetNode]:
    """The rooms once a waiting job has started."""
    found = dict(rooms)
    share = share_of(start.job, "")
    for node in start.nodes:
        room = found[node]
        found[node] = replace(
            room,
            gpus=room.gpus & ~start.gpus,
            cpus=room.cpus - share.cpus,
            memory_mib=room.memory_mib - share.memory_mib,
            tenants=room.tenants | {start.job.job_id},
        )
    return found
