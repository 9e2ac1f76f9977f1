"""What the cluster has room for, and which own tasks must leave so that others' jobs can start."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field

from mirage.domain import Job, Snapshot
from mirage.elastic.jobs.tag import parse_task_tag
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
    lent: dict[int, tuple[int, int]] = field(default_factory=dict)
    """The same of other users' extra tasks, by Slurm job: they leave for others, too."""

    def take(self, gpus: int, cpus: int) -> None:
        self.free_gpus -= gpus
        self.free_cpus -= cpus

    def give(self, key: TaskKey) -> None:
        """Counts an own task as gone."""
        gpus, cpus = self.tasks.pop(key)
        self.take(-gpus, -cpus)

    def give_lent(self, job_id: int) -> None:
        """Counts another user's extra task as gone."""
        gpus, cpus = self.lent.pop(job_id)
        self.take(-gpus, -cpus)


@dataclass(kw_only=True)
class NodeDemand:
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
                held = self._on(node, demand)
                node.take(*held)
                if tag and is_own:
                    node.tasks[tag.job, tag.task] = held
                elif tag and tag.is_extra:
                    node.lent[job.job_id] = held

    def _on(self, node: NodeRoom, demand: NodeDemand) -> tuple[int, int]:
        if any(partition in self._whole for partition in demand.partitions):
            return node.gpus, node.cpus
        return demand.gpus, demand.cpus

    def demand(self, job: Job) -> NodeDemand:
        """What a job asks of each of its nodes."""
        nodes = max(job.nodes, 1)
        return NodeDemand(
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

    def to_give_back(self, extras: Collection[TaskKey]) -> list[TaskKey]:
        """Own tasks whose end lets jobs of the queue start, and without which they can't.

        ``extras``: own tasks that may be given back. Extra tasks of other users count as leaving
        too, and every controller makes the same choice of nodes: where the fewest must leave, and
        there the newest. A job that would not start even then costs nothing.
        """
        given: list[TaskKey] = []
        for job in self.queue[:MOST_QUEUED]:
            demand = self.demand(job)
            options = sorted(
                (len(needed), node.name)
                for node in self.nodes.values()
                if self._may_use(node, demand.partitions)
                and (needed := self._needed(node, demand, extras)) is not None
            )
            if len(options) < demand.nodes:
                continue
            for _, name in options[: demand.nodes]:
                given += self._make_room(self.nodes[name], demand, extras)
        return given

    def _make_room(
        self, node: NodeRoom, demand: NodeDemand, extras: Collection[TaskKey]
    ) -> list[TaskKey]:
        """Counts extra tasks of this node as gone and their place as taken: the own ones."""
        given: list[TaskKey] = []
        for leaving in self._needed(node, demand, extras) or ():
            if isinstance(leaving, int):
                node.give_lent(leaving)
            else:
                node.give(leaving)
                given.append(leaving)
        node.take(*self._on(node, demand))
        return given

    def keep_idle(self, partition: str, count: int, extras: Collection[TaskKey]) -> list[TaskKey]:
        """Takes ``count`` whole nodes of a partition out of the room, one less than it has at most.

        Idle nodes first, then those where the fewest extra tasks must leave: these are returned.
        Every controller makes the same choice, as in `to_give_back`.
        """
        nodes = [node for node in self.nodes.values() if partition in node.partitions]
        options = sorted(
            (len(needed), node.name)
            for node in nodes
            if (needed := self._needed(node, _whole(node), extras)) is not None
        )
        given: list[TaskKey] = []
        for _, name in options[: min(count, len(nodes) - 1)]:
            node = self.nodes[name]
            given += self._make_room(node, _whole(node), extras)
        return given

    def _needed(
        self, node: NodeRoom, demand: NodeDemand, extras: Collection[TaskKey]
    ) -> list[TaskKey | int] | None:
        """Extra tasks to end on this node so that the job fits: own ones, and Slurm jobs of other
        users. None: it can't be.
        """
        gpus, cpus = self._on(node, demand)
        free_gpus, free_cpus = node.free_gpus, node.free_cpus
        candidates = self._candidates(node, extras)
        needed: list[TaskKey | int] = []
        while free_gpus < gpus or free_cpus < cpus:
            if not candidates:
                return None
            leaving, freed = candidates.pop(0)
            if (freed[0] and free_gpus < gpus) or (freed[1] and free_cpus < cpus):
                needed.append(leaving)
                free_gpus, free_cpus = free_gpus + freed[0], free_cpus + freed[1]
        return needed

    def _candidates(
        self, node: NodeRoom, extras: Collection[TaskKey]
    ) -> list[tuple[TaskKey | int, tuple[int, int]]]:
        """What may leave this node, and what that frees; the newest first."""
        found: list[tuple[int, TaskKey | int, tuple[int, int]]] = [
            (self.own[key].job_id, key, held) for key, held in node.tasks.items() if key in extras
        ]
        found += [(job_id, job_id, held) for job_id, held in node.lent.items()]
        found.sort(key=lambda entry: -entry[0])
        return [(leaving, held) for _, leaving, held in found]


def _whole(node: NodeRoom) -> NodeDemand:
    return NodeDemand(nodes=1, gpus=node.gpus, cpus=node.cpus, partitions=node.partitions)
