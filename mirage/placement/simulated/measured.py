"""Measured speeds in place of equations 12 and 13: Pollux's step times by placement.

The measurements (data of `mirage/elastic`, petuum/adaptdl, branch osdi21-artifact, Apache-2.0) are
of one job at a time on four nodes of four T4 GPUs. Kinds are pairs of an application and a batch
size of a GPU of which all 69 placements were measured.
"""

from __future__ import annotations

import csv
from collections import defaultdict
from dataclasses import dataclass
from functools import cache
from importlib import resources
from itertools import combinations_with_replacement

import networkx as nx
import numpy as np

from mirage.placement.speed import Ints, MinibatchCosts, SpeedModel
from mirage.placement.topology import Bools, Floats, Gpu, Topology, add_link

NODES, GPUS_PER_NODE = 4, 4
_BASE = GPUS_PER_NODE + 1


@dataclass(frozen=True, kw_only=True)
class MeasuredKinds:
    """Step times of K kinds of jobs."""

    names: tuple[str, ...]
    """As `imagenet 20`: application, and samples of a step on a GPU. [K]."""
    step_s: Floats
    """By kind and placement code (`code_of`), seconds; NaN: no such placement. [K, 625]."""

    @property
    def alone_s(self) -> Floats:
        """Step on one GPU, [K]."""
        alone_s: Floats = self.step_s[:, 1]
        return alone_s

    @property
    def per_root_s(self) -> Floats:
        """c of equation 12's c sqrt(n), fitted to the steps on 2 to 4 GPUs of a node, [K]."""
        roots = np.sqrt([2.0, 3.0, 4.0])
        extra = self.step_s[:, 2:5] - self.alone_s[:, None]
        found: Floats = np.maximum(extra @ roots / (roots @ roots), 0.0)
        return found


def code_of(counts: Ints) -> Ints:
    """Code of a placement from the GPUs of each node: [..., 4] -> [...]. Order does not matter."""
    ordered = np.sort(counts, axis=-1)
    return np.asarray(ordered @ _BASE ** np.arange(NODES)[::-1], dtype=np.int64)


@cache
def pollux_kinds() -> MeasuredKinds:
    """All kinds with a complete table."""
    text = resources.files("mirage").joinpath("elastic/data/pollux/steps.csv").read_text()
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in csv.DictReader(text.splitlines()):
        gpus = [int(figure) for figure in row["placement"]]
        if gpus and len(gpus) <= NODES and max(gpus) <= GPUS_PER_NODE:
            code = int(code_of(np.array([*gpus, *[0] * (NODES - len(gpus))])))
            name = f"{row['application']} {row['local_batch']}"
            found[name][code].append(float(row["step_s"]))
    counts = np.array(list(combinations_with_replacement(range(_BASE), NODES)))
    every = set(code_of(counts).tolist()) - {0}
    complete = {name: steps for name, steps in found.items() if every <= steps.keys()}
    table = np.full((len(complete), _BASE**NODES), np.nan)
    for kind, steps in enumerate(complete.values()):
        for code, times in steps.items():
            table[kind, code] = np.mean(times)
    return MeasuredKinds(names=tuple(complete), step_s=table)


def four_nodes() -> Topology:
    """Nodes as racks of their own, so that equation 12's factor counts them."""
    graph: nx.Graph[str] = nx.Graph()
    gpus = []
    for node in range(NODES):
        add_link(graph, f"n{node}", "switch", gb_per_s=5.0, source="pollux")
        for nth in range(GPUS_PER_NODE):
            name = f"n{node}/gpu{nth}"
            add_link(graph, name, f"n{node}", gb_per_s=16.0, source="pollux")
            gpus.append(Gpu(name=name, node=f"n{node}", rack=f"n{node}", socket=f"n{node}"))
    return Topology(graph, gpus, source="pollux")


class MeasuredLaw:
    """Speeds from a table, in the unit of the job's own FLOPS.

    A job on n GPUs is n times as fast as on one, times the share of its step that is not lost.
    Interference is not in it: each job was measured alone.
    """

    def __init__(self, model: SpeedModel, kinds: MeasuredKinds, topology: Topology) -> None:
        self._kinds = kinds
        self._peak_flops = model.efficiency * model.gpu_flops
        nodes = np.arange(NODES)
        self._on_node = (topology.node_of[:, None] == nodes).astype(np.float32)
        full = np.arange(NODES * GPUS_PER_NODE + 1)[:, None] - GPUS_PER_NODE * nodes
        self._packed_code = code_of(np.clip(full, 0, GPUS_PER_NODE))

    def draw(self, count: int, rng: np.random.Generator) -> MinibatchCosts:
        """Jobs of random kinds. Their FLOPs are such that one GPU reaches the model's peak."""
        kind = rng.integers(len(self._kinds.names), size=count)
        return MinibatchCosts(
            minibatch_distance=self._kinds.alone_s[kind] * self._peak_flops,
            per_root_s=self._kinds.per_root_s[kind],
            kind=kind,
        )

    def speeds(self, assigned: Bools, costs: MinibatchCosts) -> Floats:
        counts = (assigned.astype(np.float32) @ self._on_node).astype(np.int64)
        return self._speed(assigned.sum(axis=-1), code_of(counts), costs)

    def packed(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        return self._speed(gpus, self._packed_code[gpus], costs)

    def as_asked(self, gpus: Ints, costs: MinibatchCosts) -> Floats:
        return self.packed(gpus, costs)

    def _speed(self, gpus: Ints, code: Ints, costs: MinibatchCosts) -> Floats:
        kind, code, gpus = np.broadcast_arrays(costs.kind, code, gpus)
        step_s = self._kinds.step_s[kind, code]
        found: Floats = np.where(gpus > 0, costs.minibatch_distance * gpus / step_s, 0.0)
        return found
