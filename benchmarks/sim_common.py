"""What the benchmarks of the simulator share: the simulator, workloads, CPU time, the machine,
result files.
"""

from __future__ import annotations

import csv
import gzip
import json
import math
import os
import platform
import subprocess
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
from numpy.typing import NDArray

from slurm_sim.config import ClusterConfig, Params, whole_nodes
from slurm_sim.files import write_whole

SHARED = Path(__file__).parents[2] / "shared"
HERE = Path(__file__).parent
Ints = NDArray[np.int64]

YARDSTICK_PARAMS = Params(
    priority_multifactor=False,
    bf_window_s=86400,
    bf_interval_s=30,
    bf_max_job_test=500,
    bf_cycle_us=0,
)
"""The rules of shared/yardstick/bound.cpp, as far as Slurm's parameters say them."""


@dataclass(frozen=True)
class Workload:
    """Whole-node jobs as columns, by submission; times in seconds from 0."""

    submit_s: Ints
    nodes: Ints
    limit_s: Ints
    runtime_s: Ints
    cluster_nodes: int

    def __len__(self) -> int:
        return len(self.submit_s)

    @property
    def columns(self) -> tuple[Ints, Ints, Ints, Ints]:
        return self.submit_s, self.nodes, self.limit_s, self.runtime_s

    def faster(self, times: int) -> Workload:
        """The same jobs arriving so many times as fast."""
        return replace(self, submit_s=self.submit_s // times)

    def first(self, jobs: int) -> Workload:
        return self.each(lambda column: column[:jobs])

    def each(self, change: Callable[[Ints], Ints]) -> Workload:
        """With all columns changed in one way."""
        submit_s, nodes, limit_s, runtime_s = map(change, self.columns)
        return Workload(submit_s, nodes, limit_s, runtime_s, self.cluster_nodes)

    def write_swf(self, path: Path) -> None:
        """In the Standard Workload Format, as the yardstick and other simulators read it."""
        lines = [
            f"; MaxJobs: {len(self)}\n; MaxNodes: {self.cluster_nodes}\n; MaxProcs:"
            f" {self.cluster_nodes}\n"
        ]
        lines.append("; UnixStartTime: 0\n")
        for number, (submit_s, nodes, limit_s, runtime_s) in enumerate(
            zip(*self.columns, strict=True), 1
        ):
            lines.append(
                f"{number} {submit_s} -1 {runtime_s} {nodes} -1 -1 {nodes} {limit_s} -1 1 1 1 -1 1"
                " -1 -1 -1\n"
            )
        path.write_text("".join(lines))


def lublin(jobs: int = 10_000) -> Workload:
    """shared/traces/lublin_256.swf.gz: 256 processors, load 1.06, limits exact."""
    with gzip.open(SHARED / "traces" / "lublin_256.swf.gz", "rt") as file:
        rows = [line.split() for line in file if not line.startswith(";")][:jobs]
    field = np.array(rows, dtype=np.float64).astype(np.int64)
    nodes = np.where(field[:, 7] > 0, field[:, 7], field[:, 4])
    return Workload(field[:, 1], nodes, np.maximum(field[:, 8], field[:, 3]), field[:, 3], 256)


def ls6_rows() -> list[dict[str, str]]:
    """shared/traces/ls6_a100_dev.csv.gz."""
    with gzip.open(SHARED / "traces" / "ls6_a100_dev.csv.gz", "rt") as file:
        return list(csv.DictReader(file))


def ls6() -> Workload:
    """The jobs of the LS6 development trace that ran, on 76 nodes."""
    rows = [
        [int(row[name]) for name in ("submit", "nodes", "timelimit_s", "start", "end")]
        for row in ls6_rows()
        if int(row["end"]) > int(row["start"])
    ]
    submit, nodes, limit, start, end = np.array(rows, dtype=np.int64).T
    runtime = np.minimum(end - start, limit)
    return Workload(submit - submit.min(), nodes, limit, runtime, 76)


def whole_node_cluster(nodes: int, params: Params = YARDSTICK_PARAMS) -> ClusterConfig:
    """Equal nodes, one partition."""
    return whole_nodes(nodes, params)


def cpu_seconds(
    prepare: Callable[[], Any], run: Callable[[Any], object], repeat: int
) -> list[float]:
    """CPU seconds of `run` alone, on fresh input each time."""
    found = []
    for _ in range(repeat):
        made = prepare()
        begin = time.process_time()
        run(made)
        found.append(time.process_time() - begin)
    return found


def spread(seconds: list[float]) -> dict[str, Any]:
    """For JSON: the median, and each."""
    return {
        "median": median(seconds),
        "least": min(seconds),
        "most": max(seconds),
        "repeats": len(seconds),
    }


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        model = next(
            line.partition(":")[2].strip() for line in lines if line.startswith("model name")
        )
    except (OSError, StopIteration):
        model = platform.processor()
    commit = subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], cwd=HERE, capture_output=True, text=True
    )
    return {
        "cpu": model,
        "cores": os.cpu_count(),
        "load_1_min": round(os.getloadavg()[0], 2),
        "system": platform.platform(),
        "python": platform.python_version(),
        "commit": commit.stdout.strip(),
        "at": time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime()),
    }


WIDTH = 200


def write_json(path: Path, result: object) -> None:
    """All or nothing, with five digits; what fits in a line is one."""
    write_whole(path, dense(rounded(result)) + "\n")


def rounded(value: Any) -> Any:
    """Floats with five digits, above 10,000 as whole numbers."""
    if isinstance(value, dict):
        return {key: rounded(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(each) for each in value]
    if not isinstance(value, float) or not math.isfinite(value) or not value:
        return value
    return round(value, max(0, 4 - math.floor(math.log10(abs(value)))))


def dense(value: Any, margin: str = "") -> str:
    line = json.dumps(value)
    if len(line) <= WIDTH or not isinstance(value, dict | list):
        return line
    inner = margin + " "
    parts = (
        [f"{json.dumps(key)}: {dense(each, inner)}" for key, each in value.items()]
        if isinstance(value, dict)
        else [dense(each, inner) for each in value]
    )
    begin, end = "{}" if isinstance(value, dict) else "[]"
    return f"{begin}\n{inner}" + f",\n{inner}".join(parts) + f"\n{margin}{end}"


def table(header: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """Markdown."""
    lines = [
        list(header),
        ["---"] * len(list(header)),
        *([str(cell) for cell in row] for row in rows),
    ]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)
