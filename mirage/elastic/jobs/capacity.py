"""What the cluster has room for, and which own tasks must leave so that others' jobs can start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from mirage.domain import Job, Snapshot
from mirage.elastic.jobs.tag import TaskTag, parse_task_tag
from slurm_sim.config import ClusterConfig, SelectType

MOST_QUEUED = 200
"""Jobs of the queue, by priority, for which room is made in one cycle."""
TaskKey = tuple[str, str]
"""An elastic job's id and a task's name."""


@dataclass(kw_only=True)
class NodeRoom:
    """A node that is up, and what is free on it."""

    name: str
    partitions: tuple[str, ...]
    gpus: int
    cpus: int
    free_gpus: int
    free_cpus: int
    tasks: dict[TaskKey, tuple[int, int]] = field(default_factory=dict)
    """GPUs and CPUs of own tasks here that are not leaving."""
    others: int = 0
    """Jobs here that are not own tasks."""

    def fits(self, gpus: int, cpus: int) -> bool:
        return self.free_gpus >= gpus and self.free_cpus >= cpus

    def take(self, gpus: int, cpus: int) -> None:
        self.free_gpus -= gpus
        self.free_cpus -= cpus

    def give(self, key: TaskKey) -> None:
        """Counts an own task as gone."""
        gpus, cpus = self.tasks.pop(key)
        self.free_gpus += gpus
        self.free_cpus += cpus


@dataclass(kw_only=True)
class Demand:
    """What a job takes of each of its nodes."""

    nodes: int
    gpus: int
    cpus: int
    partitions: tuple[str, ...]


class ClusterRoom:
    """A snapshot with the nodes' sizes, as the user ``user`` sees it."""

    def __init__(self, snapshot: Snapshot, config: ClusterConfig, user: str) -> None:
        """``config``: of the same cluster. Nodes that it does not know are left out."""
        self._config = config
        self.default_partition = config.partitions[0].name
        self._whole = {
            partition.name
            for partition in config.partitions
            if partition.exclusive or config.params.select_type is SelectType.LINEAR
        }
        sizes = {node.name: node for node in config.nodes}
        self.nodes = {
            node.name: NodeRoom(
                name=node.name,
                partitions=node.partitions,
                gpus=sizes[node.name].gpus,
                cpus=sizes[node.name].cpus,
                free_gpus=sizes[node.name].gpus,
                free_cpus=sizes[node.name].cpus,
            )
            for node in snapshot.nodes
            if node.up and node.name in sizes
        }
        self.own: dict[TaskKey, Job] = {}
        """Jobs of own elastic jobs."""
        self.queue: list[Job] = []
        """Jobs that wait for nodes, but for `extra` tasks of anybody; most urgent first."""
        for job in snapshot.jobs:
            self._add(job, user)
        self.queue.sort(key=lambda job: (-job.priority, job.submit_s, job.job_id))

    def _add(self, job: Job, user: str) -> None:
        tag = parse_task_tag(job.comment)
        is_own = tag is not None and job.user == user
        if tag and is_own:
            self.own[tag.job, tag.task] = job
        if job.is_queueing and not (tag and tag.is_extra):
            self.queue.append(job)
        demand = self.demand(job)
        for name in job.node_names if job.state.has_nodes else ():
            if node := self.nodes.get(name):
                self._place(node, demand, tag if is_own else None)

    def _place(self, node: NodeRoom, demand: Demand, tag: TaskTag | None) -> None:
        gpus, cpus = self._on(node, demand)
        node.take(gpus, cpus)
        if tag:
            node.tasks[tag.job, tag.task] = gpus, cpus
        else:
            node.others += 1

    def _on(self, node: NodeRoom, demand: Demand) -> tuple[int, int]:
        if any(partition in self._whole for partition in demand.partitions):
            return node.gpus, node.cpus
        return demand.gpus, demand.cpus

    def demand(self, job: Job) -> Demand:
        """What a job asks of each of its nodes."""
        nodes = max(job.nodes, 1)
        return Demand(
            nodes=nodes,
            gpus=-(-job.gpus // nodes),
            cpus=max(-(-job.cpus // nodes), 1),
            partitions=tuple(job.partition.split(",")),
        )

    def is_whole(self, partition: str) -> bool:
        """Whether jobs of the partition get whole nodes."""
        return (partition or self.default_partition) in self._whole

    def is_contested(self, partition: str, *, beside: Collection[TaskKey] = ()) -> bool:
        """Whether a job waits for nodes that the partition has too. ``beside``: these don't count."""
        return any(
            self._may_use(node, (partition or self.default_partition,))
            and self._may_use(node, tuple(job.partition.split(",")))
            for job in self.queue
            if not self._is_one_of(job, beside)
            for node in self.nodes.values()
        )

    def _is_one_of(self, job: Job, keys: Collection[TaskKey]) -> bool:
        return any(key in self.own and self.own[key].job_id == job.job_id for key in keys)

    @staticmethod
    def _may_use(node: NodeRoom, partitions: Sequence[str]) -> bool:
        return any(partition in node.partitions for partition in partitions)

    def leave(self, keys: Iterable[TaskKey]) -> None:
        """Counts tasks that leave already as gone."""
        gone = set(keys)
        for node in self.nodes.values():
            for key in gone & node.tasks.keys():
                node.give(key)

    def to_give_back(self, extras: Mapping[TaskKey, int]) -> list[TaskKey]:
        """Extra tasks whose end lets jobs of the queue start, and without which they can't.

        ``extras``: what may be given back, with a rank; the lowest goes first. A job that would not
        start even then costs nothing.
        """
        given: list[TaskKey] = []
        for job in self.queue[:MOST_QUEUED]:
            demand = self.demand(job)
            options = sorted(
                (
                    (len(needed), rank, node.name)
                    for rank, node in enumerate(self.nodes.values())
                    if self._may_use(node, demand.partitions)
                    and (needed := self._needed(node, demand, extras)) is not None
                ),
            )
            if len(options) < demand.nodes:
                continue
            for _, _, name in options[: demand.nodes]:
                node = self.nodes[name]
                for key in self._needed(node, demand, extras) or ():
                    node.give(key)
                    given.append(key)
                node.take(*self._on(node, demand))
        return given

    def _needed(
        self, node: NodeRoom, demand: Demand, extras: Mapping[TaskKey, int]
    ) -> list[TaskKey] | None:
        """Extra tasks to end on this node so that the job fits; None: it can't be."""
        gpus, cpus = self._on(node, demand)
        free_gpus, free_cpus, needed = node.free_gpus, node.free_cpus, list[TaskKey]()
        candidates = sorted((key for key in node.tasks if key in extras), key=extras.__getitem__)
        while free_gpus < gpus or free_cpus < cpus:
            if not candidates:
                return None
            key = candidates.pop(0)
            freed = node.tasks[key]
            if not (freed[0] and free_gpus < gpus) and not (freed[1] and free_cpus < cpus):
                continue
            needed.append(key)
            free_gpus, free_cpus = free_gpus + freed[0], free_cpus + freed[1]
        return needed
