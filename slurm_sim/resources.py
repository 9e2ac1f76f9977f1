"""What is left on the nodes (select/linear, select/cons_tres). Sets of nodes are bits of an int."""

from __future__ import annotations

import copy
from collections.abc import Sequence

from slurm_sim.admission import NodeRequest, bits, roomy
from slurm_sim.config import NodeSpec


class FreeResources:
    """Free resources, node by node; whether a node may be used at all is not its business."""

    def __init__(self, nodes: Sequence[NodeSpec]) -> None:
        self._total = [(node.cpus, node.memory_mib, node.gpus) for node in nodes]
        self._free = [list(total) for total in self._total]
        self._jobs = [0] * len(nodes)
        self.idle = self.shared = (1 << len(nodes)) - 1
        """Nodes without a job, and those without one that has the whole node."""

    def copy(self) -> FreeResources:
        twin = copy.copy(self)
        twin._free = [list(free) for free in self._free]
        twin._jobs = list(self._jobs)
        return twin

    def hosts(self, request: NodeRequest) -> int:
        """Nodes on which it fits now."""
        return self.idle if request.whole else roomy(self._free, self._total, request)

    def countable_cpus(self, index: int, request: NodeRequest) -> int:
        """Free ones on one node, as far as they count for this request."""
        cpus, memory_mib, _ = self._free[index]
        return cpus if request.by_cpu is None else request.by_cpu.countable(cpus, memory_mib)

    def cpus(self, nodes: int, request: NodeRequest) -> int:
        """How many it holds in all on these nodes."""
        return sum(
            self._total[index][0] if request.whole else request.cpus for index in bits(nodes)
        )

    def gpus(self, nodes: int, request: NodeRequest) -> int:
        return sum(
            self._total[index][2] if request.whole else request.gpus for index in bits(nodes)
        )

    def take(self, nodes: int, request: NodeRequest) -> None:
        self._change(nodes, request, -1)

    def give(self, nodes: int, request: NodeRequest) -> None:
        self._change(nodes, request, 1)

    def _change(self, nodes: int, request: NodeRequest, sign: int) -> None:
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
