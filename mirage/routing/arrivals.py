"""Streams of jobs that arrive at all partitions together: cut from a job history, or generated in
bursts.

Jobs are of three sizes that every partition offers on one server: its smallest, a middle and its
largest number of GPUs (the paper's partitions: 2, 4 and 8). A history's jobs of one node are small,
of two nodes middle, of more large. Limits and run times are the history's, bounded by the flavour's
limit. Its time is stretched so that the GPUs are offered the wanted load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from mirage.errors import InputError
from mirage.routing.flavors import Demand, PartitionKind
from slurm_sim.seconds import HOUR_S

JOBS, JOBS_A_SERVER = 300, 8
"""Of a stream: so many at least, and so many a server."""
LOADS = (0.7, 1.1)
"""Between these a stream's load is drawn: GPU-hours asked of those that there are, while jobs
arrive.
"""
SHARES = (0.5, 0.3, 0.2)
"""Of small, middle and large jobs in generated bursts."""
CPUS, MIB = 8, 32768
"""That a job asks for with each GPU, where the flavours have so much."""
LIMITS_H = (1.0, 72.0)
"""Shortest and longest time limit in generated bursts, where the flavours allow the longest; else
from a quarter of what they allow, to that.
"""
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
class ArrivalHistory:
    """What a job history tells: (jobs,) each, in order of submission."""

    submit_s: Ints
    limit_s: Ints
    runtime_s: Ints
    nodes: Ints

    def part(self, *, test: bool) -> ArrivalHistory:
        """The part to learn from, or the one to judge by."""
        cut = int(len(self.submit_s) * (1 - TEST_PART))
        kept = slice(cut, None) if test else slice(None, cut)
        return ArrivalHistory(
            self.submit_s[kept], self.limit_s[kept], self.runtime_s[kept], self.nodes[kept]
        )


def read_history(path: Path) -> ArrivalHistory:
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
        raise InputError(
            f"{path}: {len(submit_s)} jobs that ran; streams need at least {4 * JOBS}."
        )
    return ArrivalHistory(submit_s, limit_s, np.minimum(end_s - start_s, limit_s), nodes)


def stream_jobs(kinds: Sequence[PartitionKind]) -> int:
    """How many jobs a stream has: enough to fill the servers several times."""
    return max(JOBS, JOBS_A_SERVER * sum(kind.servers for kind in kinds))


def from_history(
    history: ArrivalHistory, kinds: Sequence[PartitionKind], random: np.random.Generator
) -> list[StreamJob]:
    """Consecutive jobs from a random place of the history. Raises InputError for one that is too
    short.
    """
    count = stream_jobs(kinds)
    if len(history.submit_s) <= count:
        raise InputError(
            f"a stream for these servers has {count} jobs, this part of the history"
            f" {len(history.submit_s)}."
        )
    first = int(random.integers(len(history.submit_s) - count))
    chosen = slice(first, first + count)
    small, middle, large = stream_sizes(kinds)
    gpus = np.select(
        [history.nodes[chosen] == 1, history.nodes[chosen] == 2], [small, middle], large
    )
    begin_s = history.submit_s[chosen] - history.submit_s[first]
    columns = zip(begin_s, history.runtime_s[chosen], history.limit_s[chosen], gpus, strict=True)
    return _at_load([_job(kinds, *map(int, row)) for row in columns], kinds, random)


def bursts(kinds: Sequence[PartitionKind], random: np.random.Generator) -> list[StreamJob]:
    """Bursts of 1 to 20 jobs of one user at once; limits of `LIMITS_H`, run times up to them."""
    jobs: list[StreamJob] = []
    at_s, count, sizes = 0, stream_jobs(kinds), stream_sizes(kinds)
    allowed_s = min(_longest_s(kind, sizes[0]) for kind in kinds)
    shortest_s, longest_s = (
        min(LIMITS_H[0] * HOUR_S, allowed_s / 4),
        min(LIMITS_H[1] * HOUR_S, allowed_s),
    )
    while len(jobs) < count:
        at_s += int(random.exponential(3600))
        gpus = int(random.choice(sizes, p=SHARES))
        limit_s = int(shortest_s * np.exp(random.uniform(0, np.log(longest_s / shortest_s))))
        for _ in range(int(random.integers(1, 21))):
            jobs.append(_job(kinds, at_s, int(limit_s * random.uniform(0.05, 1)), limit_s, gpus))
    return _at_load(jobs[:count], kinds, random)


def stream_sizes(kinds: Sequence[PartitionKind]) -> tuple[int, int, int]:
    """GPUs of a small, a middle and a large job, each of which every partition can run on one
    server.

    Raises InputError if a partition has no flavour of one server, or if two have no size in common.
    """
    of_one_server = {
        kind.name: [each.gpus for each in kind.flavors if each.servers == 1] for kind in kinds
    }
    if none := [name for name, gpus in of_one_server.items() if not gpus]:
        raise InputError(
            f"partition {none[0]}: no flavour of one server (servers = 1); streams need one."
        )
    most = min(max(gpus) for gpus in of_one_server.values())
    sizes = sorted({each for gpus in of_one_server.values() for each in gpus if each <= most})
    return sizes[0], sizes[len(sizes) // 2], sizes[-1]


def _job(
    kinds: Sequence[PartitionKind], submit_s: int, runtime_s: int, limit_s: int, gpus: int
) -> StreamJob:
    limit_s = min(limit_s, *(_longest_s(kind, gpus) for kind in kinds))
    smallest = [
        next(each for each in kind.flavors if each.servers == 1 and each.gpus >= gpus)
        for kind in kinds
    ]
    cpus = min(gpus * CPUS, *(flavor.cpus for flavor in smallest))
    memory_mib = min(gpus * MIB, *(flavor.memory_mib for flavor in smallest))
    return StreamJob(
        submit_s, max(1, min(runtime_s, limit_s)), Demand(gpus, cpus, memory_mib, limit_s)
    )


def _longest_s(kind: PartitionKind, gpus: int) -> int:
    """The longest limit of the flavours of one server for a job of ``gpus`` GPUs."""
    return max(
        flavor.limit_s for flavor in kind.flavors if flavor.servers == 1 and flavor.gpus >= gpus
    )


def _at_load(
    jobs: list[StreamJob], kinds: Sequence[PartitionKind], random: np.random.Generator
) -> list[StreamJob]:
    asked = sum(job.gpu_s for job in jobs)
    there = sum(kind.servers * kind.gpus for kind in kinds)
    span_s = asked / (there * random.uniform(*LOADS))
    stretch = span_s / max(jobs[-1].submit_s, 1)
    return [replace(job, submit_s=int(job.submit_s * stretch)) for job in jobs]


def draw_stream(
    kinds: Sequence[PartitionKind], history: ArrivalHistory | None, random: np.random.Generator
) -> list[StreamJob]:
    """From the history, and every other time a generated one; without a history always generated."""
    if history is not None and random.random() < 0.5:
        return from_history(history, kinds, random)
    return bursts(kinds, random)
