"""Which links the GPUs of a job share: a graph to build and to show, arrays to run.

A job uses each link on the shortest paths between its GPUs (section 4.6.1). To ask that of many
assignments at once, each link is compiled to *rectangles*: pairs of GPU sets between whose members
all paths cross the link. A job uses the link if it has a GPU in both sets of a rectangle.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import count, pairwise

import networkx as nx
import numpy as np
import numpy.typing as npt

from mirage.errors import InputError

Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Words = npt.NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """A GPU and where it is. Names are those of the graph's nodes."""

    name: str
    """The graph's node: `NODE/gpuN`."""
    node: str
    """Slurm's name of the node."""
    rack: str
    """The leaf switch, block or rack; equal for GPUs of which nothing is known."""
    socket: str
    """What it hangs on inside its node: a CPU socket, a PCIe switch, or the node itself."""


class Topology:
    """GPUs, the links between them, and what each job takes of these.

    ``gpus``: in the order of all arrays' last axis (length M).
    ``graph``: an undirected graph whose edges have ``gb_per_s``.
    ``source``: where it came from, for people.

    Raises InputError for a bandwidth that is not positive, a GPU that is no node of the graph, a
    name used twice, and GPUs that no path joins.
    """

    def __init__(self, graph: nx.Graph[str], gpus: Sequence[Gpu], *, source: str) -> None:
        self.graph = graph
        self.gpus = tuple(gpus)
        self.source = source
        self._check()
        self._number_places()
        self._compile()

    def __len__(self) -> int:
        return len(self.gpus)

    def _check(self) -> None:
        names = [gpu.name for gpu in self.gpus]
        if not names:
            raise InputError(f"{self.source}: no GPU in it")
        if len(set(names)) < len(names):
            twice = next(name for name in names if names.count(name) > 1)
            raise InputError(f"{self.source}: GPU {twice} is there twice")
        for one, other, gb_per_s in self.graph.edges(data="gb_per_s"):
            if not (gb_per_s and gb_per_s > 0):
                raise InputError(
                    f"{self.source}: the link {one} - {other} has a bandwidth of {gb_per_s} GB/s;"
                    " give a positive number"
                )
        if missing := [name for name in names if name not in self.graph]:
            raise InputError(f"{self.source}: GPU {missing[0]} has no link")
        reached = nx.node_connected_component(self.graph, names[0])
        if islands := [name for name in names if name not in reached]:
            raise InputError(
                f"{self.source}: no path joins {names[0]} and {islands[0]}"
                f" ({len(islands)} of {len(names)} GPUs are apart): give the link between them"
            )

    def _number_places(self) -> None:
        """Index of node, rack and socket by GPU, each [M]."""
        self.node_of = _numbered([gpu.node for gpu in self.gpus])
        self.rack_of = _numbered([gpu.rack for gpu in self.gpus])
        self.socket_of = _numbered([f"{gpu.node}/{gpu.socket}" for gpu in self.gpus])
        racks = np.arange(int(self.rack_of.max()) + 1)
        self._racks = packed(self.rack_of == racks[:, None])
        nodes = np.arange(int(self.node_of.max()) + 1)
        self._is_on_node = (self.node_of[:, None] == nodes).astype(np.float32)

    def _compile(self) -> None:
        """Rectangles of links. Links that the same pairs of GPUs use become one, the narrowest."""
        merged: dict[tuple[tuple[int, int], ...], tuple[str, str]] = {}
        for link, rectangles in sorted(self._rectangles().items()):
            key = tuple(sorted(rectangles))
            best = merged.setdefault(key, link)
            if self._gb_per_s(link) < self._gb_per_s(best):
                merged[key] = link
        ordered = sorted(merged.items(), key=lambda each: self._gb_per_s(each[1]))
        self.links = tuple(link for _, link in ordered)
        """The compiled links, as pairs of graph nodes, the narrowest first (length E)."""
        self.gb_per_s: Floats = np.array([self._gb_per_s(link) for link in self.links])
        """Default bandwidth of each (Table 1's "Default BW"), GB/s, [E]."""
        sides = [side for rectangles, _ in ordered for side in rectangles]
        counts = [len(rectangles) for rectangles, _ in ordered]
        self._left = packed(_members([left for left, _ in sides], len(self)))
        self._right = packed(_members([right for _, right in sides], len(self)))
        self._first = np.cumsum([0, *counts[:-1]]) if counts else np.zeros(0, dtype=int)
        self._one_each = all(number == 1 for number in counts)
        widths, begins = np.unique(self.gb_per_s, return_index=True)
        bounds = pairwise([*begins, len(self.links)])
        self._of_width = [
            (float(width), slice(*ends)) for width, ends in zip(widths, bounds, strict=True)
        ]

    def _gb_per_s(self, link: tuple[str, str]) -> float:
        return float(self.graph.edges[link]["gb_per_s"])

    def _rectangles(self) -> Mapping[tuple[str, str], set[tuple[int, int]]]:
        """Of each link: pairs of GPU sets (as bits) with a path over it between all members.

        A pair's path is the one that the search from its first GPU finds: the fewest links, among
        these the widest.
        """
        bit = {gpu.name: 1 << nth for nth, gpu in enumerate(self.gpus)}
        sources: dict[tuple[tuple[str, str], int], int] = defaultdict(int)
        later = (1 << len(self)) - 1
        for start, names in self._by_start().items():
            members = sum(bit[name] for name in names)
            later &= ~members
            for link, below in self._below(start, bit).items():
                if targets := below & later:
                    sources[link, targets] |= members
            for name in names if start not in bit else ():
                if targets := later | (members & ~bit[name]):
                    sources[(min(name, start), max(name, start)), targets] |= bit[name]
        found: dict[tuple[str, str], set[tuple[int, int]]] = defaultdict(set)
        for (link, targets), members in sources.items():
            found[link].add((members, targets))
        return {link: _joined(rectangles) for link, rectangles in found.items()}

    def _by_start(self) -> Mapping[str, list[str]]:
        """GPUs by where their paths begin to differ: a GPU of one link shares those of the link's
        other end, which are searched once.
        """
        found: dict[str, list[str]] = defaultdict(list)
        names = {gpu.name for gpu in self.gpus}
        for gpu in self.gpus:
            ends = list(self.graph[gpu.name])
            alone = len(ends) != 1 or ends[0] in names
            found[gpu.name if alone else ends[0]].append(gpu.name)
        return found

    def _below(self, source: str, bit: Mapping[str, int]) -> dict[tuple[str, str], int]:
        """Of each link in the tree of shortest paths from ``source``: the GPUs beyond it."""
        widest: float = max(data for _, _, data in self.graph.edges(data="gb_per_s"))

        def cost(_one: str, _other: str, data: Mapping[str, float]) -> float:
            # Narrow links cost more, but all of a path less than one further hop.
            return 1.0 + 1e-6 * widest / (widest + data["gb_per_s"])

        before, distance = nx.dijkstra_predecessor_and_distance(self.graph, source, weight=cost)
        below: dict[str, int] = {}
        links: dict[tuple[str, str], int] = {}
        for place in sorted(distance, key=distance.__getitem__, reverse=True):
            bits = below.get(place, 0) | bit.get(place, 0)
            if bits and before[place]:
                parent = min(before[place])
                below[parent] = below.get(parent, 0) | bits
                links[min(place, parent), max(place, parent)] = bits
        return links

    def used(self, assigned: Bools) -> Bools:
        """Which links each job uses: ``assigned`` [..., M] -> [..., E].

        A job of a single GPU uses none.
        """
        crossed = self._crossed(packed(assigned.reshape(-1, len(self))))
        found: Bools = crossed.T.reshape(*assigned.shape[:-1], len(self.links))
        return found

    def _crossed(self, held: Words) -> Bools:
        """`used` of jobs whose GPUs are bits: [W, ...] -> [E, ...]."""
        left, right = _overlap(self._left, held), _overlap(self._right, held)
        crossed = left & right
        if not self._one_each:
            crossed = np.logical_or.reduceat(crossed, self._first, axis=0)
        return crossed

    def jobs_on_links(self, assigned: Bools) -> dict[tuple[str, str], list[int]]:
        """For each link of the graph, also those that no job uses: the jobs on it, as rows of
        ``assigned`` [J, M]. For pictures: slow.
        """
        held = [sum(1 << int(nth) for nth in np.nonzero(row)[0]) for row in assigned]
        found: dict[tuple[str, str], list[int]] = {
            (min(link), max(link)): [] for link in self.graph.edges
        }
        for link, rectangles in self._rectangles().items():
            found[link] = [
                row
                for row, bits in enumerate(held)
                if any(bits & left and bits & right for left, right in rectangles)
            ]
        return found

    def limiting_gb_per_s(self, assigned: Bools) -> tuple[Floats, Floats]:
        """Equations 14 and 15: the narrowest link of each job, alone and beside the others.

        ``assigned`` [..., J, M]: the GPUs of each job. Returns two arrays [..., J], infinite for
        jobs that use no link. Run-time bandwidth is the default divided by the jobs on the link. A
        GPU has one job at most.
        """
        *clusters, jobs, gpus = assigned.shape
        # What is reduced over jobs is fastest with the clusters as the last axis.
        held = packed(assigned.reshape(math.prod(clusters), jobs, gpus).swapaxes(0, 1))
        used = self._crossed(held)
        number = np.uint8 if jobs < 256 else np.uint16
        alone = np.full(used.shape[1:], np.inf)
        shared = alone.copy()
        for width, links in reversed(self._of_width):
            # A job counts on its busiest link of each bandwidth; they are few.
            own = used[links].view(np.uint8)
            most = (own * own.sum(axis=1, keepdims=True, dtype=number)).max(axis=0)
            crosses = most > 0
            np.copyto(alone, width, where=crosses)
            busy = np.divide(width, most, out=np.full(most.shape, np.inf), where=crosses)
            np.minimum(shared, busy, out=shared)
        return alone.T.reshape(assigned.shape[:-1]), shared.T.reshape(assigned.shape[:-1])

    def scale_factors(self, assigned: Bools) -> Floats:
        """Equation 13: how much slower sharing makes each job's reduction. [..., J, M] -> [..., J].

        1 for jobs that share nothing or use no link.
        """
        alone, shared = self.limiting_gb_per_s(assigned)
        factors = np.ones_like(alone)
        np.divide(alone, shared, out=factors, where=np.isfinite(shared))
        return factors

    def racks(self, assigned: Bools) -> npt.NDArray[np.int64]:
        """Over how many racks each job is spread: [..., M] -> [...]; 0 without a GPU."""
        held = packed(assigned.reshape(-1, len(self)))
        spread = _overlap(self._racks, held).sum(axis=0)
        found: npt.NDArray[np.int64] = spread.reshape(assigned.shape[:-1])
        return found

    def on_nodes(self, assigned: Bools) -> npt.NDArray[np.float32]:
        """GPUs of each job on each node: [..., M] -> [..., nodes]."""
        # Of two axes: with more NumPy multiplies small matrices one by one.
        flat = assigned.reshape(-1, len(self)).astype(np.float32) @ self._is_on_node
        found: npt.NDArray[np.float32] = flat.reshape(*assigned.shape[:-1], flat.shape[1])
        return found


def counts(assigned: Bools) -> npt.NDArray[np.int64]:
    """How many GPUs each job has: [..., M] -> [...]."""
    ones = np.ones(assigned.shape[-1], dtype=np.float32)
    found: npt.NDArray[np.int64] = (assigned.astype(np.float32) @ ones).astype(np.int64)
    return found


def packed(assigned: Bools) -> Words:
    """GPUs as bits of 32 each: [..., M] -> [W, ...]."""
    octets = np.packbits(assigned, axis=-1, bitorder="little")
    if spare := -octets.shape[-1] % 4:
        octets = np.concatenate([octets, np.zeros((*octets.shape[:-1], spare), np.uint8)], axis=-1)
    words: Words = np.ascontiguousarray(np.moveaxis(octets.view(np.uint32), -1, 0))
    return words


def _overlap(sets: Words, held: Words) -> Bools:
    """Whether two sets have a GPU in common: [W, S], [W, ...] -> [S, ...]."""
    shape = (-1, *[1] * (held.ndim - 1))
    common = sets[0].reshape(shape) & held[0]
    for one, other in zip(sets[1:], held[1:], strict=True):
        common |= one.reshape(shape) & other
    found: Bools = common != 0
    return found


def add_link(graph: nx.Graph[str], one: str, other: str, *, gb_per_s: float, source: str) -> None:
    """Adds a link. Raises InputError if the graph has it with another bandwidth, or if both ends
    are one.
    """
    if one == other:
        raise InputError(f"{source}: a link from {one} to itself")
    if graph.has_edge(one, other) and graph.edges[one, other]["gb_per_s"] != gb_per_s:
        raise InputError(
            f"{source}: the link {one} - {other} is there twice, with"
            f" {graph.edges[one, other]['gb_per_s']:g} and {gb_per_s:g} GB/s: keep one"
        )
    graph.add_edge(one, other, gb_per_s=gb_per_s)


def _numbered(names: Sequence[str]) -> npt.NDArray[np.int64]:
    numbers: dict[str, int] = {}
    new = count()
    return np.array(
        [numbers[n] if n in numbers else numbers.setdefault(n, next(new)) for n in names]
    )


def _joined(rectangles: set[tuple[int, int]]) -> set[tuple[int, int]]:
    """The same pairs in fewer rectangles.

    As each pair is looked at from its first GPU alone, one rectangle falls into several: those of
    the same targets are one already; here (A, B) and (B', C) become one where B' is B.
    """
    left = dict[int, int]()
    for members, targets in rectangles:
        left[targets] = left.get(targets, 0) | members
    joined = set(map(_ordered, ((members, targets) for targets, members in left.items())))
    by_side: dict[int, int] = defaultdict(int)
    for one, other in joined:
        by_side[one] |= other
        by_side[other] |= one
    whole: set[tuple[int, int]] = set()
    rest = set(joined)
    for one, other in sorted(by_side.items(), key=lambda sides: -sides[1].bit_count()):
        covered = {pair for pair in rest if one in pair}
        if len(covered) > 1:
            whole.add(_ordered((one, other)))
            rest -= covered
    return whole | rest


def _ordered(sides: tuple[int, int]) -> tuple[int, int]:
    return (min(sides), max(sides))


def _members(sets: Sequence[int], gpus: int) -> Bools:
    """Sets as bits -> [len(sets), gpus]."""
    rows = [[bool((bits >> nth) & 1) for nth in range(gpus)] for bits in sets]
    return np.array(rows, dtype=bool).reshape(len(sets), gpus)
