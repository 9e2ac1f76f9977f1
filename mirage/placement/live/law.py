"""How long a step takes on given GPUs: computation, and communication by level.

A step on n GPUs takes its computation and 2 (n - 1) / n of its gradient at the rate of the level
that its GPUs have in common: a node, a leaf switch (rack, block), or what joins leaves. Jobs on one
link share its rate. `benchmarks/placement.md` has the errors on Pollux's measured steps.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from mirage.errors import InputError
from mirage.placement.topology import Bools, Floats, Ints, Topology
from slurm_sim.files import read_text


@dataclass(frozen=True, kw_only=True)
class Machine:
    """Rates of a node and of its GPUs."""

    tflops: float
    """Of training on one GPU: a quarter of its peak with tensor cores (dense), which is assumed."""
    node_gb_per_s: float
    """All-reduce inside a node (nccl-tests' busbw), GB/s."""
    leaf_gb_per_s: float
    """Of a node's network cards together, to nodes on its leaf switch, GB/s."""
    spine_gb_per_s: float
    """The same to nodes on other leaf switches."""
    cards: int
    """Network cards of a node; a job with fewer GPUs on it uses as many cards as it has GPUs."""
    source: str


MACHINES: Mapping[str, Machine] = {
    "dgx-a100": Machine(
        tflops=78,
        node_gb_per_s=300,
        leaf_gb_per_s=200,
        spine_gb_per_s=200,
        cards=8,
        source="NVIDIA's data sheet of the DGX A100: NVLink 600 GB/s both ways, 8 x 200 Gb/s",
    ),
    "dgx-h100": Machine(
        tflops=247,
        node_gb_per_s=450,
        leaf_gb_per_s=400,
        spine_gb_per_s=400,
        cards=8,
        source="NVIDIA's data sheet of the DGX H100: NVLink 900 GB/s both ways, 8 x 400 Gb/s",
    ),
    "gh200-nvl32": Machine(
        tflops=247,
        node_gb_per_s=450,
        leaf_gb_per_s=450,
        spine_gb_per_s=50,
        cards=1,
        source="NVIDIA on GH200 NVL32: NVLink 900 GB/s both ways in a rack, 400 Gb/s beyond it",
    ),
    "mi250": Machine(
        tflops=45,
        node_gb_per_s=50,
        leaf_gb_per_s=100,
        spine_gb_per_s=100,
        cards=4,
        source="AMD's data sheet of the MI250, by die; network of Frontier's user guide: 4 x 200 Gb/s",
    ),
    "t4": Machine(
        tflops=4.5,
        node_gb_per_s=16.9,
        leaf_gb_per_s=1.35,
        spine_gb_per_s=0.675,
        cards=1,
        source="fitted to Pollux's steps of ResNet-50 on four nodes of four T4; half of that between"
        " leaf switches, which nobody measured",
    ),
}
"""Public figures of links: what no job exceeds. Files of `all_reduce_perf` say what a site reaches."""


@dataclass(frozen=True, kw_only=True)
class StepWork:
    """What a step of each job needs, arrays [J]."""

    flops: Floats
    """Forward and backward pass on one GPU, a multiply-add counted as two."""
    gradient_mb: Floats


def progress(machine: Machine, topology: Topology, assigned: Bools, work: StepWork) -> Floats:
    """GPUs' worth of each job, [..., J, M] -> [..., J]: 1 is a GPU that never waits for others."""
    on_node = topology.on_nodes(assigned)
    gpus = on_node.sum(axis=-1)
    compute_s = work.flops / (machine.tflops * 1e12)
    sent_gb = 2 * np.maximum(gpus - 1, 0) / np.maximum(gpus, 1) * work.gradient_mb / 1e3
    rate = rate_gb_per_s(
        machine,
        nodes=(on_node > 0).sum(axis=-1),
        leaves=topology.racks(assigned),
        fewest=np.where(on_node > 0, on_node, np.inf).min(axis=-1),
    )
    communication_s = sent_gb / rate * topology.scale_factors(assigned)
    found: Floats = gpus * compute_s / (compute_s + communication_s)
    return found


def rate_gb_per_s(machine: Machine, *, nodes: Ints, leaves: Ints, fewest: Floats) -> Floats:
    """Of jobs on so many nodes and leaf switches. ``fewest``: GPUs on the node with the fewest."""
    cards = np.minimum(fewest, machine.cards) / machine.cards
    between = np.where(leaves > 1, machine.spine_gb_per_s, machine.leaf_gb_per_s) * cards
    found: Floats = np.where(nodes > 1, between, machine.node_gb_per_s)
    return found


_RANK = re.compile(r"^#\s+Rank\s+\d+\b.*\bon\s+(\S+)\s+device", re.MULTILINE)
_LEAST_COLUMNS = 8


def with_measured(machine: Machine, files: Sequence[Path], topology: Topology) -> Machine:
    """The machine with the rates of `all_reduce_perf` outputs (nccl-tests, rccl-tests) in place of
    its own. A file's level is that of its hosts. Raises InputError.
    """
    leaf_of = {gpu.node: gpu.rack for gpu in topology.gpus}
    for file in files:
        text = read_text(file)
        hosts = _RANK.findall(text)
        if not hosts:
            raise InputError(
                f"--rates {file}: no line '# Rank N ... on HOST device': give all_reduce_perf's"
                " whole output"
            )
        names = {host.partition(".")[0] for host in hosts}
        if unknown := sorted(names - leaf_of.keys()):
            raise InputError(f"--rates {file}: {unknown[0]} is no node with GPUs of this cluster")
        level = "node" if len(names) == 1 else "leaf"
        if len({leaf_of[name] for name in names}) > 1:
            level = "spine"
        busbw = _busbw(text, file)
        if level != "node":  # of all cards; the test may have used fewer
            busbw *= machine.cards / min(machine.cards, len(hosts) / len(names))
        found = {
            f"{level}_gb_per_s": busbw,
            "source": f"{machine.source}; {level}: {file.name}",
        }
        machine = Machine(**(vars(machine) | found))
    return machine


def _busbw(text: str, file: Path) -> float:
    """Of the largest message, out of place, GB/s."""
    rows = [line.split() for line in text.splitlines() if re.match(r"\s*\d+\s+\d+\s+\w+\s", line)]
    try:
        found = max((int(row[0]), float(row[7])) for row in rows if len(row) >= _LEAST_COLUMNS)[1]
    except ValueError:
        raise InputError(f"--rates {file}: no row with a size and a busbw in it") from None
    if not 0 < found < np.inf:
        raise InputError(f"--rates {file}: a busbw of {found} GB/s; give a positive number")
    return found
