"""Sets of nodes as bits of an int, and which nodes Slurm picks."""

from __future__ import annotations

from collections.abc import Iterator


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
