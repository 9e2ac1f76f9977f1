"""What of each node is in use: its argv, its parsing, and the reading of both. One `sinfo`."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from mirage.errors import ClusterNonsense
from mirage.slurm.failures import read_failure
from mirage.slurm.oddities import note_once
from mirage.slurm.runner import Runner

FIELDS = ("NodeList", "Partition", "CPUsState", "Memory", "AllocMem", "Gres", "GresUsed")
_GPU = re.compile(r"(?:^|,)gpu(?::(?:([^:,()]*)|\(null\)))?:(\d+)")
"""In `gpu:2`, `gpu:a100:2(S:0-1)`, `gpu:(null):1(IDX:0)`."""


@dataclass(frozen=True, kw_only=True)
class NodeUse:
    """A node; GPUs, CPUs and MiB, in whole and free."""

    name: str
    partitions: tuple[str, ...]
    total: tuple[int, int, int]
    free: tuple[int, int, int]
    gpu_type: str = ""
    """As in gres.conf, several separated by commas; empty: none is given."""


def node_use_argv() -> list[str]:
    """A line a node and partition, fields ended by `|`."""
    return ["sinfo", "-h", "-a", "-N", "-O", ",".join(f"{name}:|" for name in FIELDS)]


def parse_node_use(text: str) -> list[NodeUse]:
    """In sinfo's order, without nodes that can't be read. Raises ClusterNonsense if none can."""
    partitions: dict[str, list[str]] = {}
    nodes: dict[str, NodeUse] = {}
    for line in text.splitlines():
        try:
            found = _node([field.strip() for field in line.split("|")])
        except ValueError:
            note_once(f"sinfo: a line that can't be read is left out: {line[:80]!r}")
            continue
        partitions.setdefault(found.name, []).extend(found.partitions)
        nodes[found.name] = found
    if text.strip() and not nodes:
        raise ClusterNonsense(
            f"sinfo: {text[:80]!r}: expected lines of {len(FIELDS)} fields. Nothing was done."
        )
    return [replace(node, partitions=tuple(partitions[name])) for name, node in nodes.items()]


def _node(fields: list[str]) -> NodeUse:
    """Raises ValueError."""
    name, partition, cpus, memory, taken, gres, used, _ = fields
    _, idle, _, every = map(int, cpus.split("/"))
    total_mib, free_mib = int(memory), int(memory) - int(taken)
    gpus = _gpus(gres)
    free = (max(gpus - _gpus(used), 0), idle, max(free_mib, 0))
    return NodeUse(
        name=name,
        partitions=(partition.rstrip("*"),),
        total=(gpus, every, total_mib),
        free=free,
        gpu_type=",".join(sorted({kind for kind, _ in _GPU.findall(gres)})),
    )


def _gpus(gres: str) -> int:
    return sum(int(count) for _, count in _GPU.findall(gres))


def read_node_use(runner: Runner) -> list[NodeUse]:
    """Raises ClusterError."""
    command = node_use_argv()
    result = runner.run(command)
    if result.returncode:
        raise read_failure(command, result.stderr)
    return parse_node_use(result.stdout)
