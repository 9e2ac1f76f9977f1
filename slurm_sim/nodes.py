"""Sets of nodes as bits of an int, and which nodes Slurm picks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from slurm_sim.config import SelectType
from slurm_sim.resources import Pool, Request


def runs(nodes: int) -> Iterator[tuple[int, int]]:
    """The runs of consecutive nodes, lowest first, each as (first node, how many)."""
    while nodes:
        first = (nodes & -nodes).bit_length() - 1
        rest = nodes >> first
        length = (~rest & (rest + 1)).bit_length() - 1
        yield first, length
        nodes &= -1 << (first + length)


def pick_nodes(free: int, count: int) -> int:
    """Picks as select/linear does (`_job_test` in its source): the shortest run that holds the whole rest, else the
    longest run and go on; of equals the first; within a run the lowest nodes. `free` must hold at least `count`.
    """
    picked = 0
    while count:
        candidates = list(runs(free))
        enough = [run for run in candidates if run[1] >= count]
        first, length = min(enough, key=_length) if enough else max(candidates, key=_length)
        taken = min(length, count)
        block = ((1 << taken) - 1) << first
        picked |= block
        free &= ~block
        count -= taken
    return picked


def _length(run: tuple[int, int]) -> int:
    return run[1]


class Picker:
    """Which nodes a job gets, as its select plugin does; lower Weight first."""

    def __init__(self, select_type: SelectType, weights: Sequence[int]) -> None:
        self._linear = select_type is SelectType.LINEAR
        self._levels = [_where(weights, level) for level in sorted(set(weights))]

    def __call__(self, free: int, count: int, pool: Pool, request: Request, *, starts: bool) -> int:
        """Picks `count` of the nodes in `free`, which must hold as many.

        select/linear adds one weight after the other until there are enough; when it plans, it forgets weights.
        """
        if self._linear and not starts:
            return pick_nodes(free, count)
        if self._linear:
            enough = next(level for level in self._up_to() if (free & level).bit_count() >= count)
            return pick_nodes(free & enough, count)
        # For a job with GPUs each node counts with the CPUs that the job would take there.
        return self._pick_sharing(free, count, (lambda _: request.cpus) if request.gpus else pool.free_cpus)

    def _up_to(self) -> Iterator[int]:
        nodes = 0
        for level in self._levels:
            nodes |= level
            yield nodes

    def _pick_sharing(self, free: int, count: int, cpus: Callable[[int], int]) -> int:
        """select/cons_tres (`_eval_nodes`): as `pick_nodes`, but runs end where the weight changes, and are compared
        by their free CPUs; the last node is the one of its run with the fewest.

        Simplification: slurmctld's tests of jobs with GPUs leave marks on nodes that move later jobs a little.
        """
        picked = 0
        while count:
            level = next(nodes for nodes in self._levels if nodes & free)
            first, length = _best_run(list(runs(free & level)), count, cpus)
            if count == 1:
                block = 1 << min(range(first, first + length), key=cpus)
            else:
                block = ((1 << min(length, count)) - 1) << first
            picked |= block
            free &= ~block
            count -= block.bit_count()
        return picked


def _where(weights: Sequence[int], level: int) -> int:
    return sum(1 << index for index, weight in enumerate(weights) if weight == level)


def _best_run(candidates: Sequence[tuple[int, int]], count: int, cpus: Callable[[int], int]) -> tuple[int, int]:
    def size(run: tuple[int, int]) -> int:
        return sum(cpus(index) for index in range(run[0], run[0] + run[1]))

    enough = [run for run in candidates if run[1] >= count]
    return min(enough, key=size) if enough else max(candidates, key=size)
