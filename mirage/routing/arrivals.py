"""Streams of jobs that arrive at all partitions together: cut from a job history, or generated in bursts.

A history's nodes become GPUs: 1 node 2, 2 nodes 4, more 8. Limits and run times are the history's, bounded by the
flavour's limit. Its time is stretched so that the GPUs are offered the wanted load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.routing.flavors import Demand, PartitionKind

JOBS, JOBS_A_SERVER = 300, 8
"""Of a stream: so many at least, and so many a server."""
LOADS = (0.7, 1.1)
"""Between these a stream's load is drawn: GPU-hours asked of those that there are, while jobs arrive."""
CPUS, MIB = 8, 32768
"""A GPU's share; fits all partitions of the paper."""
TEST_PART = 0.4
"""Of a history: its end is for judging, what is before for learning."""

Ints = NDArray[np.int64]


@dataclass(frozen=True)
class StreamJob:
    """A job of a stream; ``demand.limit_s`` is set."""

    submit_s: int
    runtime_s: int
    demand: Demand

    @property
    def gpu_s(self) -> int:
        return self.demand.gpus * self.runtime_s


@dataclass(frozen=True)
class History:
    """What a job history tells: (jobs,) each, in order of submission."""

    submit_s: Ints
    limit_s: Ints
    runtime_s: Ints
    nodes: Ints

    def part(self, *, test: bool) -> History:
        """The part to learn from, or the one to judge by."""
        cut = int(len(self.submit_s) * (1 - TEST_PART))
        kept = slice(cut, None) if test else slice(None, cut)
        return History(self.submit_s[kept], self.limit_s[kept], self.runtime_s[kept], self.nodes[kept])


def read_history(path: Path) -> History:
    """The jobs of a trace that ran. Raises InputError for a file that is none, or too short."""
    try:
        from slurm_sim.traces.errors import TraceError
        from slurm_sim.traces.table import read_trace
    except ImportError as error:
        raise InputError(f"{path}: to read it, install the extra `sim` ({error}).") from error
    try:
        trace = read_trace(path)
    except TraceError as error:
        raise InputError(str(error)) from error
    columns = [trace.column(name) for name in ("submit", "start", "end", "timelimit_s", "nodes")]
    ran = np.all(np.isfinite(columns), axis=0) & (columns[2] > columns[1]) & (columns[3] > 0)
    submit_s, start_s, end_s, limit_s, nodes = (column[ran].astype(np.int64) for column in columns)
    if len(submit_s) < 4 * JOBS:
        raise InputError(f"{path}: {len(submit_s)} jobs that ran; streams need at least {4 * JOBS}.")
    return History(submit_s, limit_s, np.minimum(end_s - start_s, limit_s), nodes)


def stream_jobs(kinds: Sequence[PartitionKind]) -> int:
    """How many jobs a stream has: enough to fill the servers several times."""
    return max(JOBS, JOBS_A_SERVER * sum(kind.servers for kind in kinds))


def from_history(history: History, kinds: Sequence[PartitionKind], random: np.random.Generator) -> list[StreamJob]:
    """Consecutive jobs from a random place of the history. Raises InputError for one that is too short."""
    count = stream_jobs(kinds)
    if len(history.submit_s) <= count:
        raise InputError(
            f"a stream for these servers has {count} jobs, this part of the history {len(history.submit_s)}."
        )
    first = int(random.integers(len(history.submit_s) - count))
    chosen = slice(first, first + count)
    gpus = np.select([history.nodes[chosen] == 1, history.nodes[chosen] == 2], [2, 4], 8)
    begin_s = history.submit_s[chosen] - history.submit_s[first]
    columns = zip(begin_s, history.runtime_s[chosen], history.limit_s[chosen], gpus, strict=True)
    return _at_load([_job(kinds, *map(int, row)) for row in columns], kinds, random)


def bursts(kinds: Sequence[PartitionKind], random: np.random.Generator) -> list[StreamJob]:
    """Bursts of 1 to 20 jobs of one user at once; limits from one to 72 hours, run times up to them."""
    jobs: list[StreamJob] = []
    at_s, count = 0, stream_jobs(kinds)
    while len(jobs) < count:
        at_s += int(random.exponential(3600))
        gpus = int(random.choice([2, 4, 8], p=[0.5, 0.3, 0.2]))
        limit_s = int(3600 * np.exp(random.uniform(0, np.log(72))))
        for _ in range(int(random.integers(1, 21))):
            jobs.append(_job(kinds, at_s, int(limit_s * random.uniform(0.05, 1)), limit_s, gpus))
    return _at_load(jobs[:count], kinds, random)


def _job(kinds: Sequence[PartitionKind], submit_s: int, runtime_s: int, limit_s: int, gpus: int) -> StreamJob:
    limit_s = min(limit_s, *(_longest_s(kind, gpus) for kind in kinds))
    return StreamJob(submit_s, max(1, min(runtime_s, limit_s)), Demand(gpus, gpus * CPUS, gpus * MIB, limit_s))


def _longest_s(kind: PartitionKind, gpus: int) -> int:
    """Of the flavours of one server for a job of so many GPUs. Raises InputError if there is none."""
    limits = [flavor.limit_s for flavor in kind.flavors if flavor.servers == 1 and flavor.gpus >= gpus]
    if not limits:
        raise InputError(f"partition {kind.name}: no flavour of one server with {gpus} GPUs; streams have such jobs.")
    return max(limits)


def _at_load(jobs: list[StreamJob], kinds: Sequence[PartitionKind], random: np.random.Generator) -> list[StreamJob]:
    asked = sum(job.gpu_s for job in jobs)
    there = sum(kind.servers * kind.gpus for kind in kinds)
    span_s = asked / (there * random.uniform(*LOADS))
    stretch = span_s / max(jobs[-1].submit_s, 1)
    return [replace(job, submit_s=int(job.submit_s * stretch)) for job in jobs]


def draw_stream(
    kinds: Sequence[PartitionKind], history: History | None, random: np.random.Generator
) -> list[StreamJob]:
    """From the history, and every other time a generated one; without a history always generated."""
    if history is not None and random.random() < 0.5:
        return from_history(history, kinds, random)
    return bursts(kinds, random)
