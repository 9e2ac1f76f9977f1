"""What of each node is in use: its argv, its parsing, and the reading of both. One `sinfo`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirage.errors import ClusterNonsense
from mirage.slurm.failures import read_failure
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
    """In sinfo's order. Raises ClusterNonsense."""
    partitions: dict[str, list[str]] = {}
    rows: dict[str, list[str]] = {}
    for line in text.splitlines():
        fields = [field.strip() for field in line.split("|")]
        if len(fields) != len(FIELDS) + 1:
            raise ClusterNonsense(
                f"sinfo: {line[:80]!r}: expected {len(FIELDS)} fields. Nothing was done."
            )
        rows[fields[0]] = fields
        partitions.setdefault(fields[0], []).append(fields[1].rstrip("*"))
    return [_node(fields, tuple(partitions[name])) for name, fields in rows.items()]


def _node(fields: list[str], partitions: tuple[str, ...]) -> NodeUse:
    name, _, cpus, memory, taken, gres, used, _ = fields
    try:
        _, idle, _, every = map(int, cpus.split("/"))
        total_mib, free_mib = int(memory), int(memory) - int(taken)
    except ValueError:
        raise ClusterNonsense(
            f"sinfo: node {name}: CPUs {cpus!r}, memory {memory!r}, {taken!r}."
        ) from None
    gpus = _gpus(gres)
    free = (max(gpus - _gpus(used), 0), idle, max(free_mib, 0))
    return NodeUse(
        name=name,
        partitions=partitions,
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
