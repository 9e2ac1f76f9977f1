"""Which jobs a cluster accepts, and what they need there. Nothing here changes while a simulation
runs, so both engines and the checks of job files use it.

Sets of nodes are bits of an int, the first node the lowest bit.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from slurm_sim.config import (
    YEAR_S,
    ClusterConfig,
    Params,
    Partition,
    Qos,
    Reservation,
    SelectType,
)
from slurm_sim.errors import InvalidCluster, InvalidJob, SimulationError
from slurm_sim.jobs import JobSpec
from slurm_sim.ranges import check_kind

MOST_PARTITIONS = 63
"""Of one job."""


class MemoryByCpu(NamedTuple):
    """How select/cons_tres counts a node's free CPUs for a job whose memory is by CPU
    (`_can_job_run_on_node`).
    """

    memory_mib: int
    """Memory of each CPU: no more CPUs count than there is memory for."""
    step: int
    """CPUs of one core, where whole cores count: only a multiple of it counts."""
    task: int
    """CPUs that the job asks for: only a multiple of it counts."""

    def countable(self, cpus: int, memory_mib: int) -> int:
        """How many of these free CPUs count, with these MiB free."""
        with_memory = memory_mib // self.memory_mib
        cpus = min(cpus, with_memory - with_memory % self.step)
        return cpus - cpus % self.task


class NodeRequest(NamedTuple):
    """What a job takes on each of its nodes. A `whole` one takes the node, and needs one without
    any job.
    """

    cpus: int
    memory_mib: int | None
    """None: all that the node has, so that no other job may have any. It is what Slurm gives to
    jobs without --mem.
    """
    gpus: int
    whole: bool
    by_cpu: MemoryByCpu | None = None
    """If its memory is DefMemPerCPU's."""

    def of(self, node: Sequence[int]) -> tuple[int, int, int]:
        """CPUs, MiB and GPUs that it takes on a node with these CPUs, MiB, GPUs."""
        return self.cpus, node[1] if self.memory_mib is None else self.memory_mib, self.gpus


def bits(nodes: int) -> Iterator[int]:
    """The nodes' indexes, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest


def roomy(
    amounts: Iterable[Sequence[int]], totals: Iterable[Sequence[int]], request: NodeRequest
) -> int:
    """The nodes where these amounts of CPUs, MiB and GPUs suffice; `totals`: all that each has."""
    needed = (request.of(total) for total in totals)
    return sum(
        1 << index
        for index, (has, need) in enumerate(zip(amounts, needed, strict=True))
        if has[0] >= need[0] and has[1] >= need[1] and has[2] >= need[2]
    )


class Admission:
    """The static rules of one cluster. Raises InvalidCluster for anything but a `ClusterConfig`."""

    def __init__(self, config: ClusterConfig) -> None:
        check_kind("config", config, ClusterConfig, InvalidCluster)
        self.config = config
        self.params = config.params
        self.node_names = tuple(node.name for node in config.nodes)
        self.every_node = (1 << len(config.nodes)) - 1
        self.totals = [(node.cpus, node.memory_mib, node.gpus) for node in config.nodes]
        """CPUs, MiB and GPUs of each node."""
        self.partitions = {partition.name: partition for partition in config.partitions}
        self.is_linear = config.params.select_type is SelectType.LINEAR
        self._index = {name: index for index, name in enumerate(self.node_names)}
        self.masks = {item.name: self.nodes(item.nodes) for item in config.partitions}
        """The nodes of each partition."""
        self.reserved = {item.name: self.nodes(item.nodes) for item in config.reservations}
        """The nodes of each reservation."""
        self._reservations = {item.name: item for item in config.reservations}
        self._qos = {item.name: item for item in config.qos}
        self._default_qos = config.qos[0].name
        self._suitable: dict[tuple[str, NodeRequest, str, str | None], int] = {}

    # ---- names

    def index(self, node: str) -> int:
        """The node's number. Raises SimulationError."""
        if not isinstance(node, str) or node not in self._index:
            raise SimulationError(
                f"node {node!r} does not exist; this cluster has {', '.join(self.node_names)}"
            )
        return self._index[node]

    def bit(self, node: str) -> int:
        """The node as a set. Raises SimulationError."""
        return 1 << self.index(node)

    def nodes(self, names: Iterable[str]) -> int:
        """These nodes as a set."""
        return sum(1 << self._index[name] for name in set(names))

    def qos_of(self, qos: str | None) -> Qos:
        """The QOS of a job that names this one, or none. Raises InvalidJob."""
        try:
            return self._qos[self._default_qos if qos is None else qos]
        except KeyError:
            raise InvalidJob(
                f"qos {qos!r} does not exist; this cluster has {', '.join(self._qos)}"
            ) from None

    def reservation_of(self, spec: JobSpec) -> Reservation | None:
        """The reservation that the job names. Raises InvalidJob."""
        if spec.reservation is None:
            return None
        try:
            return self._reservations[spec.reservation]
        except KeyError:
            raise InvalidJob(
                f"reservation {spec.reservation!r} does not exist; this cluster has:"
                f" {', '.join(self._reservations)}"
            ) from None

    def partition_of(self, spec: JobSpec) -> Partition:
        """The first partition that the job names, or the cluster's first. Raises InvalidJob."""
        return self._named_partitions(spec)[0]

    def _named_partitions(self, spec: JobSpec) -> list[Partition]:
        names = spec.partition.split(",") if spec.partition else [next(iter(self.partitions))]
        if len(names) > MOST_PARTITIONS:
            raise InvalidJob(f"{len(names)} partitions asked for; give at most {MOST_PARTITIONS}")
        for name in names:
            if name not in self.partitions:
                raise InvalidJob(
                    f"partition {name!r} does not exist; this cluster has"
                    f" {', '.join(self.partitions)}"
                )
        return [self.partitions[name] for name in dict.fromkeys(names)]

    # ---- checks

    def check(self, spec: JobSpec) -> None:
        """Raises InvalidJob for one that could never run here as asked: of several partitions, in
        none.
        """
        check_kind("job", spec, JobSpec, InvalidJob)
        qos = self.qos_of(spec.qos)
        reservation = self.reservation_of(spec)
        if reservation is not None and spec.user not in reservation.users:
            raise InvalidJob(
                f"reservation {reservation.name!r} is not for user {spec.user!r}; leave it out"
            )
        self.choices(spec)
        limit_s = self.limit_s(spec)
        if qos.max_wall_s is not None and (limit_s is None or limit_s > qos.max_wall_s):
            asked = "no limit" if limit_s is None else f"limit of {limit_s} s"
            raise InvalidJob(f"{asked}; qos {qos.name!r} allows {qos.max_wall_s} s")
        if spec.time_min_s is not None and limit_s is not None and spec.time_min_s > limit_s:
            raise InvalidJob(
                f"time_min_s is {spec.time_min_s}, above the job's limit of {limit_s} s"
            )

    def check_size(self, spec: JobSpec, partition: Partition) -> None:
        """Raises InvalidJob if the partition never has that many nodes for the job."""
        most = len(partition.nodes) if partition.max_nodes is None else partition.max_nodes
        if spec.nodes > len(partition.nodes):
            raise InvalidJob(
                f"{spec.nodes} nodes asked for; partition {partition.name!r} has"
                f" {len(partition.nodes)}"
            )
        if not partition.min_nodes <= spec.nodes <= most:
            raise InvalidJob(
                f"{spec.nodes} nodes asked for; partition {partition.name!r} allows"
                f" {partition.min_nodes} to {most}"
            )
        able = self.suitable(spec, partition).bit_count()
        if able < spec.nodes:
            memory_mib = self.memory_mib(spec)
            by_default = " by default" if memory_mib and not spec.memory_mib_per_node else ""
            raise InvalidJob(
                f"{spec.nodes} nodes asked for; {able} of partition {partition.name!r} have"
                f" {spec.cpus_per_node} CPUs, {memory_mib} MiB{by_default},"
                f" {spec.gpus_per_node} GPUs"
                + (f", {spec.constraint}" if spec.constraint else "")
                + (f" in reservation {spec.reservation!r}" if spec.reservation else "")
            )

    def check_resize(self, spec: JobSpec, nodes: int, partitions: Iterable[str]) -> None:
        """Raises InvalidJob if one of the partitions never has that many nodes for the job."""
        for name in partitions:
            self.check_size(replace(spec, nodes=nodes), self.partitions[name])

    def _check_time(self, spec: JobSpec, partition: Partition) -> None:
        limit_s, most_s = self.limit_s(spec), partition.max_time_s
        if most_s is not None and limit_s is not None and limit_s > most_s:
            raise InvalidJob(
                f"limit of {limit_s} s; partition {partition.name!r} allows {most_s} s"
            )

    def choices(self, spec: JobSpec) -> tuple[str, ...]:
        """Partitions in which it may run, of those that it asks for. Raises InvalidJob if there is
        none.
        """
        refusals = list[InvalidJob]()
        fitting = list[str]()
        for partition in self._named_partitions(spec):
            try:
                self.check_size(spec, partition)
                self._check_time(spec, partition)
                fitting.append(partition.name)
            except InvalidJob as error:
                refusals.append(error)
        if not fitting:
            raise refusals[0]
        return tuple(fitting)

    def waits_in(self, spec: JobSpec) -> tuple[str, ...]:
        """The same; of a live cluster's queue, which may have jobs for which there are too few
        nodes, all.
        """
        try:
            return self.choices(spec)
        except InvalidJob:
            return tuple(partition.name for partition in self._named_partitions(spec))

    # ---- what a job needs

    def limit_s(self, spec: JobSpec) -> int | None:
        """Its time limit, or its first partition's default; None: it has no limit."""
        partition = self.partition_of(spec)
        return spec.time_limit_s or partition.default_time_s or partition.max_time_s

    def least_limit_s(self, spec: JobSpec, limit_s: int | None) -> int:
        """The limit with which backfill plans a job that has this one: its --time-min, if it has
        one; a year without any.
        """
        limit_s = limit_s or YEAR_S
        return limit_s if spec.time_min_s is None else min(spec.time_min_s, limit_s)

    def request(self, spec: JobSpec, partition: Partition) -> NodeRequest:
        """What it takes on each node: all of it with select/linear, or if it or its partition is
        exclusive.
        """
        if self.is_linear:
            return NodeRequest(0, 0, 0, whole=True)
        memory_mib = (self.memory_mib(spec) or None) if self.params.memory_is_consumable else 0
        return NodeRequest(
            cpus=self.params.of_cores(spec.cpus_per_node),
            memory_mib=memory_mib,
            gpus=spec.gpus_per_node,
            whole=spec.exclusive or partition.exclusive,
            by_cpu=self._memory_by_cpu(spec),
        )

    def _memory_by_cpu(self, spec: JobSpec) -> MemoryByCpu | None:
        each_mib = self._default_memory(spec).default_memory_per_cpu_mib
        if spec.memory_mib_per_node or each_mib is None or not self.params.memory_is_consumable:
            return None
        return MemoryByCpu(each_mib, self.params.counted_cpus(1), spec.cpus_per_node)

    def memory_mib(self, spec: JobSpec) -> int:
        """What it asks for on each node, or by default (its first partition's); 0: nothing."""
        if spec.memory_mib_per_node:
            return spec.memory_mib_per_node
        default = self._default_memory(spec)
        if default.default_memory_per_cpu_mib is not None:
            return default.default_memory_per_cpu_mib * self.params.counted_cpus(spec.cpus_per_node)
        return default.default_memory_per_node_mib or 0

    def _default_memory(self, spec: JobSpec) -> Partition | Params:
        """Whose default it gets that names no memory: that of the first partition it asks for, if
        it has one.
        """
        own = self.partition_of(spec)
        has_own = (
            own.default_memory_per_cpu_mib is not None
            or own.default_memory_per_node_mib is not None
        )
        return own if has_own else self.params

    def suitable(self, spec: JobSpec, partition: Partition) -> int:
        """Nodes of the partition on which it could run if they were empty."""
        request = self.request(spec, partition)
        key = (partition.name, request, spec.constraint, spec.reservation)
        if key not in self._suitable:
            able = self.masks[partition.name] & roomy(self.totals, self.totals, request)
            able &= self._featured(spec.constraint)
            reservation = self.reservation_of(spec)
            self._suitable[key] = able & (
                self.every_node if reservation is None else self.reserved[reservation.name]
            )
        return self._suitable[key]

    def listed(self, spec: JobSpec, partition: Partition) -> int:
        """Nodes on which slurmctld tries to start such a job; it looks at GPUs later
        (`_build_node_list`).
        """
        return self.suitable(replace(spec, gpus_per_node=0), partition)

    def _featured(self, constraint: str) -> int:
        """The nodes with the features that the constraint wants. Raises InvalidJob."""
        if not constraint:
            return self.every_node
        if not re.fullmatch(r"[\w.-]+(&[\w.-]+)*|[\w.-]+(\|[\w.-]+)*", constraint, re.ASCII):
            raise InvalidJob(
                f"constraint {constraint!r} is not a&b&... or a|b|...; no brackets, counts or"
                " mixtures"
            )
        any_of = "|" in constraint
        wanted = set(re.split(r"[&|]", constraint))
        return sum(
            1 << index
            for index, node in enumerate(self.config.nodes)
            if (wanted & set(node.features) if any_of else wanted <= set(node.features))
        )
