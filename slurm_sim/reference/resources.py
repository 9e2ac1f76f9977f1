"""What nodes have and what is left on them (select/linear, select/cons_tres). Sets of nodes are
bits of an int.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from slurm_sim.config import Node


class MemoryByCpu(NamedTuple):
    """How select/cons_tres counts a node's free CPUs for a job whose memory is by CPU
    (`_can_job_run_on_node`).
    """

    memory_mib: int
    """Of each CPU: no more CPUs count than there is memory for,"""
    step: int
    """of whole cores, where these count,"""
    task: int
    """and of those only a multiple of what the job asks for."""

    def countable(self, cpus: int, memory_mib: int) -> int:
        """Of so many free CPUs and MiB."""
        with_memory = memory_mib // self.memory_mib
        cpus = min(cpus, with_memory - with_memory % self.step)
        return cpus - cpus % self.task


class Request(NamedTuple):
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
        """What it asks for on a node with these CPUs, MiB, GPUs."""
        return self.cpus, node[1] if self.memory_mib is None else self.memory_mib, self.gpus


class Pool:
    """Free resources, node by node; whether a node may be used at all is not its business."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        self._total = [(node.cpus, node.memory_mib, node.gpus) for node in nodes]
        self._free = [list(total) for total in self._total]
        self._jobs = [0] * len(nodes)
        self.idle = self.shared = (1 << len(nodes)) - 1
        """Nodes without a job, and those without one that has the whole node."""

    def copy(self) -> Pool:
        twin = copy.copy(self)
        twin._free = [list(free) for free in self._free]
        twin._jobs = list(self._jobs)
        return twin

    def capable(self, request: Request) -> int:
        """Nodes that could host it if they were empty."""
        return self._where(self._total, request)

    def hosts(self, request: Request) -> int:
        """Nodes on which it fits now."""
        return self.idle if request.whole else self._where(self._free, request)

    def _where(self, amounts: Sequence[Sequence[int]], request: Request) -> int:
        asked = [request.of(node) for node in self._total]
        return sum(
            1 << index
            for index, (has, need) in enumerate(zip(amounts, asked, strict=True))
            if has[0] >= need[0] and has[1] >= need[1] and has[2] >= need[2]
        )

    def countable_cpus(self, index: int, request: Request) -> int:
        """Free ones on one node, as far as they count for this request."""
        cpus, memory_mib, _ = self._free[index]
        return cpus if request.by_cpu is None else request.by_cpu.countable(cpus, memory_mib)

    def cpus(self, nodes: int, request: Request) -> int:
        """How many it holds in all on these nodes."""
        return sum(
            self._total[index][0] if request.whole else request.cpus for index in bits(nodes)
        )

    def gpus(self, nodes: int, request: Request) -> int:
        return sum(
            self._total[index][2] if request.whole else request.gpus for index in bits(nodes)
        )

    def take(self, nodes: int, request: Request) -> None:
        self._change(nodes, request, -1)

    def give(self, nodes: int, request: Request) -> None:
        self._change(nodes, request, 1)

    def _change(self, nodes: int, request: Request, sign: int) -> None:
        for index in bits(nodes):
            total = self._total[index]
            amounts = total if request.whole else request.of(total)
            for kind, amount in enumerate(amounts):
                self._free[index][kind] += sign * amount
            self._jobs[index] -= sign
            bit = 1 << index
            self.idle = self.idle & ~bit if self._jobs[index] else self.idle | bit
            if request.whole:
                self.shared = self.shared & ~bit if sign < 0 else self.shared | bit


def bits(nodes: int) -> Iterator[int]:
    """The nodes' indexes, lowest first."""
    while nodes:
        lowest = nodes & -nodes
        yield lowest.bit_length() - 1
        nodes ^= lowest
