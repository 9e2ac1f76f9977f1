"""Who has which slice, who computes which micro-shard, in which order gradients are summed.

Pure functions. Slices and the summation tree depend on the job alone, never on the number of
members: that is why the result is the same to the last bit however many there are.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeVar

from mirage.elastic.runtime.protocol import ProtocolError, TrainingJob, WorkerShare

SLICES = 60
"""About how many slices a small model has: a number with many divisors balances well."""
MIN_SLICE, MAX_SLICE = 64, 4 << 20
"""In elements of 4 bytes."""

T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class Slice:
    """Elements `first` to `last - 1` of the flat parameters, all of one parameter group."""

    first: int
    last: int
    group: int

    @property
    def size(self) -> int:
        """Its number of elements."""
        return self.last - self.first


def cut(job: TrainingJob) -> tuple[Slice, ...]:
    """The slices of the flat parameters: groups in order, tensors of a group in order."""
    sizes = [0] * len(job.groups)
    for parameter in job.parameters:
        sizes[parameter.group] += parameter.size
    wish = min(max(-(-sum(sizes) // SLICES), MIN_SLICE), MAX_SLICE)
    slices, start = [], 0
    for group, size in enumerate(sizes):
        count = -(-size // wish)
        edges = [start + size * each // count for each in range(count + 1)] if count else []
        slices += [Slice(first=first, last=last, group=group) for first, last in pairwise(edges)]
        start += size
    return tuple(slices)


def sizes_of(geometry: Sequence[Slice], slices: Sequence[int]) -> list[int]:
    """Elements of each of these slices. Raises ProtocolError: a peer names none, or no slice."""
    if not slices or max(slices) >= len(geometry):
        raise ProtocolError("slices: none, or one that is out of range.")
    return [geometry[index].size for index in slices]


def best_fit(
    sizes: Sequence[int], owners: Sequence[str | None], servers: Sequence[str]
) -> tuple[str, ...]:
    """A new owner for each slice, so that servers hold nearly the same number of elements and
    little moves (section 5, step 2).

    `owners[i]`: the owner now; one that is not in `servers` (leaving, lost) or None gives the slice
    away. Slices without an owner go, the largest first, to the server with the least. Then the
    fullest server gives the emptiest the slice that fits their difference best, while that helps.
    """
    loads = dict.fromkeys(servers, 0)
    new: list[str] = [owner if owner in loads else "" for owner in owners]
    for size, owner in zip(sizes, new, strict=True):
        if owner:
            loads[owner] += size
    homeless = [index for index, owner in enumerate(new) if not owner]
    for index in sorted(homeless, key=lambda each: (-sizes[each], each)):
        new[index] = min(servers, key=lambda each: (loads[each], each))
        loads[new[index]] += sizes[index]
    while True:
        fullest = max(servers, key=lambda each: (loads[each], each))
        emptiest = min(servers, key=lambda each: (loads[each], each))
        gap = loads[fullest] - loads[emptiest]
        fitting = [i for i, owner in enumerate(new) if owner == fullest and sizes[i] < gap]
        if not fitting:
            return tuple(new)
        best = min(fitting, key=lambda i: (abs(gap / 2 - sizes[i]), i))
        new[best] = emptiest
        loads[fullest] -= sizes[best]
        loads[emptiest] += sizes[best]


def share_out(micro_shards: int, workers: Sequence[str]) -> tuple[WorkerShare, ...]:
    """Neighbouring micro-shards for each worker, as even as they go. With more workers than
    micro-shards, the last workers have none.
    """
    busy = workers[:micro_shards]
    edges = [micro_shards * each // len(busy) for each in range(len(busy) + 1)] if busy else []
    return tuple(
        WorkerShare(worker=name, first=first, last=last)
        for name, (first, last) in zip(busy, pairwise(edges), strict=True)
    )


# --- the summation tree over micro-shards: node (first, last) is the sum of its two halves


def cover(first: int, last: int, *, micro_shards: int) -> list[tuple[int, int]]:
    """The fewest nodes of the tree that make up micro-shards `first` to `last - 1`."""

    def inside(low: int, high: int) -> list[tuple[int, int]]:
        if first <= low and high <= last:
            return [(low, high)]
        if high <= first or last <= low:
            return []
        middle = (low + high) // 2
        return inside(low, middle) + inside(middle, high)

    return inside(0, micro_shards) if first < last else []


def is_node(first: int, last: int, *, micro_shards: int) -> bool:
    """Whether the tree has this node."""
    low, high = 0, micro_shards
    while low <= first and last <= high and first < last:
        if (first, last) == (low, high):
            return True
        middle = (low + high) // 2
        low, high = (low, middle) if last <= middle else (middle, high)
        if high - low < last - first:
            return False
    return False


def total(
    nodes: Mapping[tuple[int, int], T], first: int, last: int, add: Callable[[T, T], T]
) -> T | None:
    """The sum over micro-shards `first` to `last - 1`; None: a shard is still missing.

    Whatever nodes are given, every addition is one of the tree, so the bits are the same.
    """
    if (node := nodes.get((first, last))) is not None:
        return node
    if last - first == 1:
        return None
    middle = (first + last) // 2
    left = total(nodes, first, middle, add)
    right = total(nodes, middle, last, add) if left is not None else None
    return None if left is None or right is None else add(left, right)
