"""The network as Slurm knows it: `topology.conf`, or what `scontrol show topology` prints.

Both are lines of KEY=VALUE (topology.conf(5)): switches of `topology/tree`, blocks of
`topology/block`. Slurm gives no bandwidths: LinkSpeed has no unit and slurmctld does not use it.
So these are assumed, and `Topology.source` says so.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field

import networkx as nx
from hostlist import BadHostlist, expand_hostlist

from mirage.errors import InputError
from mirage.placement.live.nvidia import GpuLinks
from mirage.placement.topology import Gpu, Topology, add_link
from mirage.slurm.oddities import note_once

_KNOWN = {
    "switchname",
    "switches",
    "nodes",
    "linkspeed",
    "level",
    "blockname",
    "blockindex",
    "blocksize",
    "blocksizes",
    "aggregatedblock",
}


BETWEEN = "network"
"""What joins the blocks of `topology/block`, the trees of `topology/tree`, and nodes on no switch."""


@dataclass(frozen=True, kw_only=True)
class Bandwidths:
    """Assumed bandwidths, GB/s, where nobody measured them."""

    node_gb_per_s: float = 12.5
    """A node's link to its switch: 100 Gb/s."""
    switch_gb_per_s: float = 12.5
    """A switch's link to the one above; less than the sum of its nodes' links."""
    gpu_gb_per_s: float = 16.0
    """A GPU's link inside its node, of which nothing else is known: PCIe 3.0 x16."""

    def __post_init__(self) -> None:
        for name in ("node_gb_per_s", "switch_gb_per_s", "gpu_gb_per_s"):
            if not getattr(self, name) > 0:
                raise InputError(f"bandwidths: {name} must be above 0, not {getattr(self, name)}")


@dataclass(kw_only=True)
class _Switch:
    line: int
    is_block: bool
    nodes: list[str] = field(default_factory=list)
    below: list[str] = field(default_factory=list)


def read_switches(text: str, source: str) -> Mapping[str, _Switch]:
    """The switches (or blocks) of a text by name. Raises InputError with the line."""
    switches: dict[str, _Switch] = {}
    for number, raw in enumerate(text.splitlines(), start=1):
        where = f"{source}, line {number}"
        words = raw.partition("#")[0].split()
        if not words:
            continue
        values = _values(words, where)
        name = values.get("switchname") or values.get("blockname")
        if name is None:
            if not {"blocksizes", "blockindex", "aggregatedblock"} & values.keys():
                note_once(f"{where}: no SwitchName= or BlockName=, so it is left out: {raw[:80]!r}")
            continue
        switch = _Switch(line=number, is_block="blockname" in values)
        switch.below = _hosts(values.get("switches", ""), where)
        # scontrol shows all nodes below a switch; only leaf switches have nodes of their own.
        switch.nodes = [] if switch.below else _hosts(values.get("nodes", ""), where)
        for each in _hosts(name, where):
            if each in switches:
                raise InputError(
                    f"{where}: {each} is there twice, first in line {switches[each].line}"
                )
            switches[each] = switch
    if not switches:
        raise InputError(f"{source}: no switch and no block in it")
    return switches


def _values(words: Sequence[str], where: str) -> dict[str, str]:
    values = {}
    for word in words:
        key, _, value = word.partition("=")
        if key.lower() not in _KNOWN:
            note_once(f"{where}: {word[:80]!r} is no setting of topology.conf that is known here")
        values[key.lower()] = "" if value == "(null)" else value
    return values


def _hosts(text: str, where: str) -> list[str]:
    try:
        hosts: list[str] = expand_hostlist(text) if text else []
    except BadHostlist:
        raise InputError(f"{where}: {text!r} is no list of hosts") from None
    return hosts


def slurm_topology(
    text: str | None,
    gpus: Mapping[str, int],
    *,
    source: str,
    links: Mapping[str, GpuLinks] | None = None,
    bandwidths: Bandwidths | None = None,
) -> Topology:
    """The topology of nodes with GPUs (node -> number of GPUs, nodes with 0 are left out).

    A node on no switch is a rack of its own (`is_outside`), behind a network that is assumed.

    ``text``: topology.conf or `scontrol show topology`; None: nothing is known, and all nodes hang
    on one switch. ``links``: what `nvidia-smi topo -m` shows on a node; others get one PCIe switch.
    Raises InputError.
    """
    assumed = bandwidths or Bandwidths()
    graph: nx.Graph[str] = nx.Graph()
    nodes = {node for node, number in gpus.items() if number > 0}
    leaf = _network(graph, text, nodes, source, assumed)
    found: list[Gpu] = []
    for node, number in gpus.items():
        if number < 1:
            continue
        rack = "switch" if leaf is None else leaf.get(node, node)
        above = BETWEEN if rack == node else rack
        add_link(graph, node, above, gb_per_s=assumed.node_gb_per_s, source=source)
        found += _node(graph, node, number, rack, (links or {}).get(node), assumed, source)
    words = source if text is not None else f"{source}: no topology is known, one switch is assumed"
    return Topology(graph, found, source=f"{words}; bandwidths are assumed")


def is_outside(gpu: Gpu) -> bool:
    """Whether its node is on no switch and in no block."""
    return gpu.rack == gpu.node


def _network(
    graph: nx.Graph[str],
    text: str | None,
    nodes: Set[str],
    source: str,
    assumed: Bandwidths,
) -> dict[str, str] | None:
    """Adds the switches' links; each node's leaf switch, None: nothing is known. ``nodes``: with GPUs."""
    if text is None:
        return None
    switches = read_switches(text, source)
    leaf: dict[str, str] = {}
    for name, switch in switches.items():
        for node in switch.nodes:
            if leaf.setdefault(node, name) != name:
                note_once(
                    f"{source}, line {switch.line}: node {node} is on {leaf[node]} and {name}; the"
                    " first counts"
                )
        for below in switch.below:
            if below not in switches:
                note_once(f"{source}, line {switch.line}: switch {below} is not there")
                continue
            add_link(graph, name, below, gb_per_s=assumed.switch_gb_per_s, source=source)
    lower = {below for switch in switches.values() for below in switch.below}
    tops = [name for name in switches if name not in lower]
    if len(tops) > 1 or any(switches[name].is_block for name in tops) or not leaf.keys() >= nodes:
        # The text does not join blocks, trees and nodes on no switch; a network between is assumed.
        for name in tops:
            add_link(graph, name, BETWEEN, gb_per_s=assumed.switch_gb_per_s, source=source)
    return leaf


def _node(
    graph: nx.Graph[str],
    node: str,
    number: int,
    rack: str,
    links: GpuLinks | None,
    assumed: Bandwidths,
    source: str,
) -> list[Gpu]:
    if links is not None:
        return links.add_to(graph, node, number, rack, source)
    gpus = []
    for nth in range(number):
        name = f"{node}/gpu{nth}"
        add_link(graph, name, node, gb_per_s=assumed.gpu_gb_per_s, source=source)
        gpus.append(Gpu(name=name, node=node, rack=rack, socket=node))
    return gpus
