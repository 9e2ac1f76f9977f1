"""Sets of nodes as bits of an int, and which nodes Slurm picks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slurm_sim.admission import NodeRequest, bits
from slurm_sim.config import NodeSpec, SelectType
from slurm_sim.resources import FreeResources


def runs(nodes: int) -> Iterator[tuple[int, int]]:
    """The runs of consecutive nodes, lowest first, each as (first node, how many)."""
    while nodes:
        first = (nodes & -nodes).bit_length() - 1
        rest = nodes >> first
        length = (~rest & (rest + 1)).bit_length() - 1
        yield first, length
        nodes &= -1 << (first + length)


def pick_nodes(free: int, count: int, cpus: Callable[[int], int] = lambda _: 1) -> int:
    """Picks as select/linear does (`_job_test` in its source): the run with fewest CPUs that holds
    the whole rest, else that with most and go on; of equals the first; within a run the lowest
    nodes. `free` must hold at least `count`.
    """
    picked = 0
    while count:
        first, length = _best_run(list(runs(free)), count, cpus)
        taken = min(length, count)
        block = ((1 << taken) - 1) << first
        picked |= block
        free &= ~block
        count -= taken
    return picked


def _weight(kind: tuple[int, int]) -> int:
    return kind[0]


def node_kinds(nodes: Sequence[NodeSpec]) -> list[tuple[int, int]]:
    """Weight and nodes of each kind, lightest first, of equals in the cluster's order: what differs
    in features, CPUs, memory or GPUs is another record of slurmctld's (`config_list`).
    """
    found = dict[tuple[int, object], int]()
    for index, node in enumerate(nodes):
        kind = (node.weight, (node.features, node.cpus, node.memory_mib, node.gpus))
        found[kind] = found.get(kind, 0) | 1 << index
    return sorted(((weight, alike) for (weight, _), alike in found.items()), key=_weight)


class Picker:
    """Which nodes a job gets, as its select plugin does; lower Weight first.

    A job with a limit of nodes goes first to those that its limits count already: of each kind that
    has such nodes, the others weigh 1 more (`_build_node_list`), until the next attempt to start a
    job there. So where backfill expects a job to start with select/cons_tres depends on which job
    was tried before.

    Of equal weight, select/cons_tres goes to nodes with more GPUs near free CPUs first. It counts
    them in the node's weight (`sched_weight`) as it tests a job with GPUs, up to those that the job
    asks for, and they stay there: where backfill expects a job without GPUs to start depends on
    which jobs were tested before.
    """

    def __init__(self, select_type: SelectType, nodes: Sequence[NodeSpec]) -> None:
        self._linear = select_type is SelectType.LINEAR
        self._weights = [node.weight for node in nodes]
        self._kinds = node_kinds(nodes)
        self._heavier = 0
        """Nodes that weigh 1 more, as the last attempt left it."""
        self._cpus = [node.cpus for node in nodes].__getitem__
        self._gpus = [node.gpus for node in nodes]
        self._near = [0] * len(nodes)

    def attempt(self, nodes: int, preferred: int) -> None:
        """An attempt to start a job on some of these nodes begins; `preferred`: see Limits."""
        self._heavier &= (
            0 if self._linear else ~nodes
        )  # select/linear has no weights of its own to keep
        for _, alike in self._kinds:
            if alike & nodes & preferred:
                self._heavier |= alike & nodes & ~preferred
        for index in bits(nodes):
            self._near[index] = 0

    def tested(self, nodes: int, request: NodeRequest) -> None:
        """On these nodes there was room for a job, in a test."""
        if request.gpus:
            for index in bits(nodes):
                self._near[index] = self._near_for(index, request)

    def _near_for(self, index: int, request: NodeRequest) -> int:
        return min(255, self._gpus[index] if request.whole else request.gpus)

    def __call__(
        self,
        free: int,
        count: int,
        pool: FreeResources,
        request: NodeRequest,
        *,
        starts: bool,
        busy: int = 0,
    ) -> int:
        """Picks `count` of the nodes in `free`, which must hold as many.

        select/linear adds one kind after the other until there are enough; when it plans, it
        forgets them. select/cons_tres takes the first nodes of the lightest, those in `busy` before
        others (`_eval_nodes_busy`).
        """
        if self._linear and not starts:
            return pick_nodes(free, count, self._cpus)
        if self._linear:
            enough = next(nodes for nodes in self._up_to() if (free & nodes).bit_count() >= count)
            return pick_nodes(free & enough, count, self._cpus)
        if busy:
            return self._pick_busy(
                free, count, busy, lambda index: self._level(index, request, starts)
            )

        def cpus(index: int) -> int:
            """Of a node; for a job with GPUs those that the job would take there."""
            return request.cpus if request.gpus else pool.countable_cpus(index, request)

        return self._pick_sharing(
            free, count, cpus, lambda index: self._level(index, request, starts)
        )

    def _level(self, index: int, request: NodeRequest, starts: bool) -> tuple[int, int]:
        near = (
            self._near_for(index, request) if request.gpus else 0 if starts else self._near[index]
        )
        return self._weights[index] + (self._heavier >> index & 1), -near

    def _up_to(self) -> Iterator[int]:
        """The nodes of the lightest kind, of the two lightest, and so on; of equals in the order of
        `node_kinds`.
        """
        weighed = []
        for weight, alike in self._kinds:
            heavier = alike & self._heavier
            weighed.append((weight + 1, heavier) if heavier else (weight, alike))
        weighed += [
            (weight, alike & ~self._heavier)
            for weight, alike in self._kinds[::-1]
            if alike & self._heavier
        ]
        nodes = 0
        for _, alike in sorted(weighed, key=_weight):
            nodes |= alike
            yield nodes

    @staticmethod
    def _pick_busy(
        free: int, count: int, busy: int, level: Callable[[int], tuple[int, int]]
    ) -> int:
        order = sorted(bits(free), key=lambda index: (*level(index), not busy >> index & 1, index))
        return sum(1 << index for index in order[:count])

    @staticmethod
    def _pick_sharing(
        free: int, count: int, cpus: Callable[[int], int], level: Callable[[int], tuple[int, int]]
    ) -> int:
        """select/cons_tres (`_eval_nodes`): as `pick_nodes`, but runs end where the weight changes,
        and are compared by their free CPUs, one after the other: one that is too short but has more
        replaces one that is long enough. The last node is the one of its run with the fewest.
        """
        picked = 0
        while count:
            lightest = min(map(level, bits(free)))
            equal = sum(1 << index for index in bits(free) if level(index) == lightest)
            first, length = _best_run(list(runs(equal)), count, cpus)
            if count == 1:
                block = 1 << min(range(first, first + length), key=cpus)
            else:
                block = ((1 << min(length, count)) - 1) << first
            picked |= block
            free &= ~block
            count -= block.bit_count()
        return picked


def _best_run(
    candidates: Sequence[tuple[int, int]], count: int, cpus: Callable[[int], int]
) -> tuple[int, int]:
    best, best_cpus, best_enough = candidates[0], -1, False
    for first, length in candidates:
        has, enough = sum(map(cpus, range(first, first + length))), length >= count
        better = not best_enough or has < best_cpus if enough else has > best_cpus
        if better:
            best, best_cpus, best_enough = (first, length), has, enough
    return best
