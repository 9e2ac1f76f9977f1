"""The links between the GPUs of a node, from the text of `nvidia-smi topo -m`.

The text is a matrix of one row a GPU. Its words (nvidia-smi's own legend): NV# (that many NVLinks),
PIX (one PCIe bridge), PXB (several), PHB (the CPU's host bridge), NODE (several host bridges of one
NUMA node), SYS (between NUMA nodes; SOC with older drivers).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import dropwhile

import networkx as nx

from mirage.errors import InputError
from mirage.placement.topology import Gpu, add_link

PCIE_GB_PER_S = 16.0
"""Assumed: PCIe 3.0 x16, one direction."""
NUMA_GB_PER_S = 19.2
"""Assumed: the link between two CPU sockets, as one QPI link."""
NVLINK_GB_PER_S = 25.0
"""Assumed: one NVLink of the second or third generation, one direction."""
_WORD = re.compile(r"X|NV\d+|PIX|PXB|PHB|NODE|SYS|SOC")
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")


@dataclass(frozen=True, kw_only=True)
class GpuLinks:
    """What connects each two GPUs of a node, as nvidia-smi's words, [M][M]."""

    words: tuple[tuple[str, ...], ...]
    numa: tuple[str, ...]
    """The column NUMA Affinity of each GPU; empty: the text has none."""

    def add_to(
        self, graph: nx.Graph[str], node: str, number: int, rack: str, source: str
    ) -> list[Gpu]:
        """Adds the node's GPUs to a graph that has the node. Raises InputError if it has another
        number of GPUs.
        """
        if number != len(self.words):
            raise InputError(
                f"{source}: node {node} has {number} GPUs, its topology text {len(self.words)}"
            )
        sockets = list(self.numa) if self.numa else self._groups({"SYS"})
        bridges = self._groups({"SYS", "NODE", "PHB"})
        gpus = []
        for nth, row in enumerate(self.words):
            socket = f"{node}/numa{sockets[nth]}"
            bridge = f"{node}/pcie{bridges[nth]}"
            name = f"{node}/gpu{nth}"
            add_link(graph, socket, node, gb_per_s=NUMA_GB_PER_S, source=source)
            add_link(graph, bridge, socket, gb_per_s=PCIE_GB_PER_S, source=source)
            add_link(graph, name, bridge, gb_per_s=PCIE_GB_PER_S, source=source)
            gpus.append(Gpu(name=name, node=node, rack=rack, socket=socket))
            for other, word in enumerate(row[:nth]):
                if word.startswith("NV"):
                    add_link(
                        graph,
                        name,
                        f"{node}/gpu{other}",
                        gb_per_s=int(word[2:]) * NVLINK_GB_PER_S,
                        source=source,
                    )
        return gpus

    def _groups(self, apart: set[str]) -> list[str]:
        """Names groups of GPUs between which stands no word of ``apart``.

        NVLink hides what else joins two GPUs; such a pair counts as apart.
        """
        group: list[int] = []
        for nth, row in enumerate(self.words):
            near = [o for o in range(nth) if row[o] not in apart and not row[o].startswith("NV")]
            group.append(group[near[0]] if near else max(group, default=-1) + 1)
        return [str(number) for number in group]


def parse_topo(text: str, source: str) -> GpuLinks:
    """Reads `nvidia-smi topo -m`. Rows of network cards are left out.

    Raises InputError: no GPU row, a word that is not known, a matrix that is not symmetric.
    """
    rows = []
    for number, line in enumerate(_COLOUR.sub("", text).splitlines(), start=1):
        words = line.split()
        is_head = "X" not in words and {"GPU1", "Affinity"} & set(words[1:])
        if len(words) > 1 and re.fullmatch(r"GPU\d+", words[0]) and not is_head:
            rows.append((number, words[1:]))
    if not rows:
        raise InputError(f"{source}: no row of a GPU: give the output of nvidia-smi topo -m")
    count = len(rows)
    matrix = []
    for nth, (number, words) in enumerate(rows):
        _check_row(words[:count], nth, count, f"{source}, line {number}")
        matrix.append(tuple("SYS" if word == "SOC" else word for word in words[:count]))
    for nth, row in enumerate(matrix):
        for other in range(nth):
            if row[other] != matrix[other][nth]:
                raise InputError(
                    f"{source}: GPU{nth} - GPU{other} is {row[other]} in one row and"
                    f" {matrix[other][nth]} in the other"
                )
    # Behind the links to GPUs and network cards: CPU Affinity, then NUMA Affinity.
    behind = [list(dropwhile(_WORD.fullmatch, words)) for _, words in rows]
    numa = [words[1:2] for words in behind]
    has_numa = all(len(each) == 1 and each[0].isdigit() for each in numa)
    return GpuLinks(words=tuple(matrix), numa=tuple(each[0] for each in numa) if has_numa else ())


def _check_row(cells: Sequence[str], nth: int, count: int, place: str) -> None:
    """Of the nth GPU of ``count``; ``place`` names its line."""
    for other, word in enumerate(cells):
        where = f"{place}: {word!r} between GPU{nth} and GPU{other}"
        if not _WORD.fullmatch(word):
            raise InputError(f"{where}: expected X, NV#, PIX, PXB, PHB, NODE or SYS")
        if (word == "X") != (nth == other):
            raise InputError(
                f"{where}: X stands for a GPU and itself, and nowhere else. A row or a column is"
                " missing or out of order: give all of the output of nvidia-smi topo -m"
            )
    if len(cells) < count:
        raise InputError(f"{place}: {len(cells)} of {count} GPUs in the row")
