"""What sbatch's options ask for, as a job's shape (sbatch(1))."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence

from mirage.chain.durations import format_duration, parse_time_limit
from mirage.chain.sbatch import SbatchOption
from mirage.errors import InputError
from mirage.provision.starts.forecast import JobShape
from slurm_sim.config import ClusterConfig

_GPUS = re.compile(
    r"(?:gpu:)?(?:(?P<type>[A-Za-z]\w*):)?(?P<count>\d+)|gpu(?::(?P<one>[A-Za-z]\w*))?"
)
_SIZE = re.compile(r"(\d+)([KMGT]?)B?", re.IGNORECASE)
_MIB = {"K": 1 / 1024, "M": 1, "": 1, "G": 1024, "T": 1024**2}
_RANGE = re.compile(r"(\d+)(?:-(\d+)(?::(\d+))?)?")


def shape_of(options: Sequence[SbatchOption], live: ClusterConfig) -> JobShape:
    """With the cluster's defaults; of options of one name the last counts. Raises InputError: a value
    that can't be read, or a partition that does not exist.
    """
    said = {option.name: option.value or "" for option in options}
    names = [each.name for each in live.partitions]
    partition = said.get("partition") or names[0]
    if unknown := [name for name in partition.split(",") if name not in names]:
        raise InputError(
            f"partition {unknown[0]!r} does not exist; this cluster has {', '.join(names)}."
        )
    nodes, tasks, cpus = _counts(said)
    gpus, gpu_type = _gpus(said, nodes, tasks)
    default = next(each for each in live.partitions if each.name == partition.split(",")[0])
    limit_s = _limit(said, "time") or default.default_time_s or default.max_time_s
    asked = [each for each in live.partitions if each.name in partition.split(",")]
    most_s = max(each.max_time_s or math.inf for each in asked)
    if limit_s is not None and limit_s > most_s:
        raise InputError(
            f"such a job could never start: a limit of {format_duration(limit_s)}; partition"
            f" {partition!r} allows {format_duration(most_s)}."
        )
    return JobShape(
        nodes=nodes,
        time_limit_s=limit_s,
        time_min_s=_limit(said, "time-min") or 0,
        partition=partition,
        cpus=cpus,
        gpus=gpus,
        gpu_type=gpu_type,
        memory_mib=_memory_mib(said, nodes, cpus, gpus),
        account=said.get("account", ""),
        qos=said.get("qos", ""),
        constraint=said.get("constraint", ""),
        tasks=_array_tasks(said["array"]) if "array" in said else 1,
    )


def _counts(said: Mapping[str, str]) -> tuple[int, int, int]:
    """Nodes, tasks and CPUs of the whole job."""
    a_node, asked = _number(said, "ntasks-per-node"), _number(said, "ntasks")
    nodes = _number(said, "nodes") or (-(-asked // a_node) if asked and a_node else 1)
    tasks = asked or nodes * (a_node or 1)
    return nodes, tasks, tasks * (_number(said, "cpus-per-task") or 1)


def _gpus(said: Mapping[str, str], nodes: int, tasks: int) -> tuple[int, str]:
    """Of the whole job, and the type; empty: any."""
    gres = [word for word in said.get("gres", "").split(",") if word.startswith("gpu")]
    ways = (
        (said.get("gpus", ""), 1),
        (said.get("gpus-per-node", ""), nodes),
        (gres[0] if gres else "", nodes),
        (said.get("gpus-per-task", ""), tasks),
    )
    for text, times in ways:
        if text:
            match = _matched(_GPUS, text, "gpus", "4, a100:4 or gpu:a100:4")
            return int(match["count"] or 1) * times, match["type"] or match["one"] or ""
    return 0, ""


def _memory_mib(said: Mapping[str, str], nodes: int, cpus: int, gpus: int) -> int:
    for name, times in (("mem", nodes), ("mem-per-cpu", cpus), ("mem-per-gpu", gpus)):
        if name in said:
            match = _matched(_SIZE, said[name], name, "4000M or 16G")
            return round(int(match[1]) * _MIB[match[2].upper()]) * times
    return 0


def _array_tasks(text: str) -> int:
    total = 0
    for word in text.partition("%")[0].split(","):
        match = _matched(_RANGE, word, "array", "1-9, 1-9:2 or 1,4,7")
        first, last = int(match[1]), int(match[2] or match[1])
        total += max(0, (last - first) // max(int(match[3] or 1), 1) + 1)
    return max(total, 1)


def _number(said: Mapping[str, str], name: str) -> int:
    """0: not given. Of a range, 2-4, the least."""
    if name not in said:
        return 0
    return int(_matched(re.compile(r"(\d+)(-\d+)?"), said[name], name, "a whole number")[1])


def _limit(said: Mapping[str, str], name: str) -> int | None:
    return _read(said[name], name, parse_time_limit) if said.get(name) else None


def _read(text: str, name: str, parse: Callable[[str], int | None]) -> int | None:
    try:
        found = parse(text)
    except ValueError as error:
        raise InputError(f"--{name}: {error}") from error
    if found is None:  # sbatch takes 0 for UNLIMITED
        raise InputError(f"--{name}: {text!r}: expected a time above 0, such as 48:00:00")
    return found


def _matched(pattern: re.Pattern[str], text: str, name: str, wanted: str) -> re.Match[str]:
    match = pattern.fullmatch(text)
    if match is None:
        raise InputError(f"--{name}: expected {wanted}, got {text!r}")
    return match
