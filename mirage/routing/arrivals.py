"""Streams of jobs that arrive at all partitions together: cut from a job history, or generated in
bursts.

Jobs are of three sizes: the smallest, a middle and the largest number of GPUs that a partition
offers on one server (the paper's partitions: 2, 4 and 8). Not each has to fit in each partition. A
history's jobs of one node are small, of two nodes middle, of more large. Limits and run times are
the history's, bounded by the flavours' limits. Each job is of a type, which runs at its own speed
in each partition. The stream's time is stretched so that the GPUs are offered the wanted load.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import NamedTuple

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
USERS = 12
"""Of generated bursts; the first ones submit most."""
MUCH_MEMORY = 0.2
"""The share of jobs that ask for twice as much memory, where a flavour has so much."""
TEST_PART = 0.4
"""Of a history: its end is for judging, what is before for learning."""

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StreamJob:
    """A job of a stream; ``demand.limit_s`` is set."""

    submit_s: int
    runtime_s: int
    """At speed 1."""
    demand: Demand
    type: int = 0
    """Which of the partitions' `speeds` are its."""
    user: str = "u0"

    @property
    def gpu_s(self) -> int:
        """At speed 1."""
        return self.demand.gpus * self.runtime_s

    def runtime_in(self, kind: PartitionKind) -> int:
        """Seconds that it runs in a partition."""
        return max(1, round(self.runtime_s / kind.speeds[self.type]))


@dataclass(frozen=True)
class ArrivalHistory:
    """What a job history tells: (jobs,) each, in order of submission."""

    submit_s: Ints
    limit_s: Ints
    runtime_s: Ints
    nodes: Ints
    users: NDArray[np.str_]

    def split(self, share: float) -> tuple[ArrivalHistory, ArrivalHistory]:
        """The first jobs, this share of them, and the rest."""
        cut = int(len(self.submit_s) * share)
        return self._of(slice(None, cut)), self._of(slice(cut, None))

    def part(self, *, test: bool) -> ArrivalHistory:
        """The part to learn from, or the one to judge by."""
        return self.split(1 - TEST_PART)[test]

    def _of(self, kept: slice) -> ArrivalHistory:
        return ArrivalHistory(*(getattr(self, each.name)[kept] for each in fields(self)))


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
    users = np.array(trace.text("user"), np.str_)[ran]
    return ArrivalHistory(submit_s, limit_s, np.minimum(end_s - start_s, limit_s), nodes, users)


def stream_jobs(kinds: Sequence[PartitionKind]) -> int:
    """How many jobs a stream has: enough to fill the servers several times."""
    return max(JOBS, JOBS_A_SERVER * sum(kind.servers for kind in kinds))


def windows(history: ArrivalHistory, kinds: Sequence[PartitionKind]) -> int:
    """How many streams without common jobs a history has. Raises InputError: none."""
    count = stream_jobs(kinds)
    if len(history.submit_s) < count:
        raise InputError(
            f"a stream for these servers has {count} jobs, this part of the history"
            f" {len(history.submit_s)}."
        )
    return len(history.submit_s) // count


def from_history(
    history: ArrivalHistory,
    kinds: Sequence[PartitionKind],
    window: int,
    random: np.random.Generator,
) -> list[StreamJob]:
    """The consecutive jobs of a window, one of `windows`; sizes in GPUs, memory and load are drawn."""
    count = stream_jobs(kinds)
    first = window * count
    chosen = slice(first, first + count)
    small, middle, large = stream_sizes(kinds)
    gpus = np.select(
        [history.nodes[chosen] == 1, history.nodes[chosen] == 2], [small, middle], large
    )
    begin_s = history.submit_s[chosen] - history.submit_s[first]
    columns = zip(begin_s, history.runtime_s[chosen], history.limit_s[chosen], gpus, strict=True)
    users = history.users[chosen].tolist()
    jobs = [
        replace(_job(kinds, random, *map(int, row)), user=user)
        for row, user in zip(columns, users, strict=True)
    ]
    return _at_load(jobs, kinds, random)


def bursts(kinds: Sequence[PartitionKind], random: np.random.Generator) -> list[StreamJob]:
    """Bursts of 1 to 20 jobs of one user at once; limits of `LIMITS_H`, run times up to them."""
    jobs: list[StreamJob] = []
    at_s, count, sizes = 0, stream_jobs(kinds), stream_sizes(kinds)
    allowed_s = min(
        max(each.limit_s for each in kind.flavors if each.servers == 1) for kind in kinds
    )
    shortest_s, longest_s = (
        min(LIMITS_H[0] * HOUR_S, allowed_s / 4),
        min(LIMITS_H[1] * HOUR_S, allowed_s),
    )
    while len(jobs) < count:
        at_s += int(random.exponential(3600))
        gpus = int(random.choice(sizes, p=SHARES))
        limit_s = int(shortest_s * np.exp(random.uniform(0, np.log(longest_s / shortest_s))))
        user = f"u{min(int(random.geometric(1 / 4)), USERS)}"
        for _ in range(int(random.integers(1, 21))):
            runtime_s = int(limit_s * random.uniform(0.05, 1))
            job = _job(kinds, random, at_s, runtime_s, limit_s, gpus)
            jobs.append(replace(job, user=user))
    return _at_load(jobs[:count], kinds, random)


def stream_sizes(kinds: Sequence[PartitionKind]) -> tuple[int, int, int]:
    """GPUs of a small, a middle and a large job, each of which a partition can run on one server.

    Raises InputError if a partition has no flavour of one server.
    """
    of_one_server = {
        kind.name: [each.gpus for each in kind.flavors if each.servers == 1] for kind in kinds
    }
    if none := [name for name, gpus in of_one_server.items() if not gpus]:
        raise InputError(
            f"partition {none[0]}: no flavour of one server (servers = 1); streams need one."
        )
    sizes = sorted({each for gpus in of_one_server.values() for each in gpus})
    return sizes[0], sizes[len(sizes) // 2], sizes[-1]


def fitting(kinds: Sequence[PartitionKind], demand: Demand) -> list[PartitionKind]:
    """The partitions that have a flavour for a job."""
    return [kind for kind in kinds if kind.flavor_of(demand) is not None]


def _job(
    kinds: Sequence[PartitionKind],
    random: np.random.Generator,
    submit_s: int,
    runtime_s: int,
    limit_s: int,
    gpus: int,
) -> StreamJob:
    able = [
        each for kind in kinds for each in kind.flavors if each.servers == 1 and each.gpus >= gpus
    ]
    memory_mib = gpus * MIB * (2 if random.random() < MUCH_MEMORY else 1)
    demand = Demand(
        gpus,
        min(gpus * CPUS, *(flavor.cpus for flavor in able), 10**9),
        min(memory_mib, max(flavor.memory_mib for flavor in able)),
        min(limit_s, max(flavor.limit_s for flavor in able)),
    )
    if not fitting(kinds, demand):  # the one with the memory has not the limit
        demand = replace(demand, memory_mib=min(flavor.memory_mib for flavor in able))
    kind_of_job = int(random.integers(len(kinds[0].speeds)))
    # Its owner gave a limit that holds wherever it fits.
    slowest = min(kind.speeds[kind_of_job] for kind in fitting(kinds, demand))
    most_s = int((demand.limit_s or 0) * min(slowest, 1.0))
    return StreamJob(submit_s, max(1, min(runtime_s, most_s)), demand, kind_of_job)


def _at_load(
    jobs: list[StreamJob], kinds: Sequence[PartitionKind], random: np.random.Generator
) -> list[StreamJob]:
    asked = sum(job.gpu_s for job in jobs)
    there = sum(kind.servers * kind.gpus * float(np.mean(kind.speeds)) for kind in kinds)
    span_s = asked / (there * random.uniform(*LOADS))
    stretch = span_s / max(jobs[-1].submit_s, 1)
    return [replace(job, submit_s=int(job.submit_s * stretch)) for job in jobs]


class Streams(NamedTuple):
    """Streams, and how far they are independent."""

    jobs: list[list[StreamJob]]
    windows: list[int]
    """Of each stream: those of one window have the same arrivals, limits and run times."""


def draw_streams(
    kinds: Sequence[PartitionKind],
    history: ArrivalHistory | None,
    count: int,
    random: np.random.Generator,
) -> Streams:
    """Of a history's windows, evenly spaced, or each several times; without a history bursts.

    Raises InputError for a history that is too short.
    """
    if history is None:
        return Streams([bursts(kinds, random) for _ in range(count)], list(range(count)))
    many = windows(history, kinds)
    chosen = [n * many // count if count <= many else n % many for n in range(count)]
    return Streams([from_history(history, kinds, each, random) for each in chosen], chosen)


def by_window(values: Sequence[float], window: Sequence[int]) -> Floats:
    """(windows,): the mean of the values of each window's streams."""
    own, places = np.unique(window, return_inverse=True)
    return np.bincount(places, weights=values) / np.bincount(places, minlength=len(own))
