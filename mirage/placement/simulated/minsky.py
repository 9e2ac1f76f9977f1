"""The paper's cluster: IBM Power8 Minsky machines (S822LC) in racks (section 4.6.1, Table 1)."""

from __future__ import annotations

from collections.abc import Sequence

import networkx as nx

from mirage.errors import InputError
from mirage.placement.topology import Gpu, Topology, add_link

CPU_CPU_GB_PER_S = 38.5
CPU_GPU_GB_PER_S = 40.0
CPU_IBC_GB_PER_S = 1000.0
IBC_TRS_GB_PER_S = 12.5
TRS_DS_GB_PER_S = 6.25
SOCKETS = 2
GPUS_PER_SOCKET = 2
MOST_MACHINES = 1024


def minsky(machines_per_rack: Sequence[int]) -> Topology:
    """The topology of so many machines in each rack; the paper's is `[2, 2, 2, 2]`: 32 GPUs.

    Each machine has two CPUs, two GPUs and one InfiniBand card (IBC) on each CPU. Cards meet in the
    rack's top-of-rack switch (TRS), these in one director switch (DS). Raises InputError.
    """
    source = ",".join(map(str, machines_per_rack))
    if not machines_per_rack or min(machines_per_rack) < 1:
        raise InputError(f"topology {source!r}: give the machines of each rack, such as 2,2,2,2")
    if sum(machines_per_rack) > MOST_MACHINES:
        raise InputError(
            f"topology {source!r}: {sum(machines_per_rack)} machines; at most {MOST_MACHINES}"
        )
    graph: nx.Graph[str] = nx.Graph()
    gpus: list[Gpu] = []
    for rack, machines in enumerate(machines_per_rack, start=1):
        add_link(graph, f"rack{rack}", "director", gb_per_s=TRS_DS_GB_PER_S, source=source)
        for _ in range(machines):
            gpus += _machine(
                graph, f"n{len(gpus) // (SOCKETS * GPUS_PER_SOCKET) + 1}", rack, source
            )
    return Topology(graph, gpus, source=source)


def _machine(graph: nx.Graph[str], node: str, rack: int, source: str) -> list[Gpu]:
    gpus = []
    for socket in range(SOCKETS):
        cpu, card = f"{node}/cpu{socket}", f"{node}/ibc{socket}"
        add_link(graph, cpu, card, gb_per_s=CPU_IBC_GB_PER_S, source=source)
        add_link(graph, card, f"rack{rack}", gb_per_s=IBC_TRS_GB_PER_S, source=source)
        for nth in range(GPUS_PER_SOCKET):
            name = f"{node}/gpu{socket * GPUS_PER_SOCKET + nth}"
            add_link(graph, name, cpu, gb_per_s=CPU_GPU_GB_PER_S, source=source)
            gpus.append(Gpu(name=name, node=node, rack=f"rack{rack}", socket=cpu))
    add_link(graph, f"{node}/cpu0", f"{node}/cpu1", gb_per_s=CPU_CPU_GB_PER_S, source=source)
    return gpus


def parse_racks(text: str) -> tuple[int, ...]:
    """`2,2,2,2` -> (2, 2, 2, 2). Raises InputError."""
    try:
        return tuple(int(word) for word in text.strip("[] ").split(","))
    except ValueError:
        raise InputError(
            f"topology {text!r}: give the machines of each rack, such as 2,2,2,2"
        ) from None
