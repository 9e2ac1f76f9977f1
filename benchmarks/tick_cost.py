"""One cycle of the daemon with a long queue and many chains: time, peak memory, commands run.

    .venv/bin/python -m benchmarks.tick_cost [--queued 10000] [--chains 500] [--cycles 7]

The Cluster port is answered from memory: encoding, deciding and the store are measured, Slurm and parsing are not.
"""

from __future__ import annotations

import argparse
import random
import resource
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from statistics import median

from mirage.chain.tag import ChainTag, format_tag
from mirage.config import PolicyConfig
from mirage.daemon.app import Daemon
from mirage.domain import Job, JobState, Mode, Node, NodeEvent, Penalties, Settings, Snapshot
from mirage.provision.registry import make_policy
from mirage.store.repository import SqlStore

HOUR = 3600
NODES = 1000


class Queue:
    """A Cluster with a given queue. Counts what it is asked."""

    def __init__(self, snapshot: Snapshot) -> None:
        self.now = snapshot
        self.asked = {"snapshot": 0, "jobs": 0, "accounting": 0}

    def snapshot(self) -> Snapshot:
        self.asked["snapshot"] += 1
        return self.now

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        self.asked["jobs"] += 1
        return {job: self.now.by_id[job] for job in job_ids if job in self.now.by_id}

    def accounting(self, start_s: int, end_s: int, job_ids: Collection[int] | None = None) -> list[Job]:
        self.asked["accounting"] += 1
        return [job for job in self.now.jobs if job.start_s is not None]

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:
        return []

    def settings(self) -> Settings:
        return Settings("benchmark")


def queue(queued: int, chains: int, now_s: int) -> Snapshot:
    rng = random.Random(1)
    jobs = []
    for job_id in range(1, queued + 1):
        age = rng.randrange(48 * HOUR)
        jobs.append(
            Job(job_id, f"user{job_id % 200}", "gpu", JobState.PENDING, rng.choice([1, 1, 1, 2, 4, 8]), now_s - age,
                rng.choice([2, 8, 24, 48]) * HOUR, "Priority", now_s - age)
        )  # fmt: skip
    for number in range(chains):
        first = queued + 2 * number + 1
        start = now_s - rng.randrange(40 * HOUR)
        tag = ChainTag(f"chain{number:05d}", 1, 9, None, Mode.TRAIN, Penalties())
        jobs.append(
            Job(first, f"user{number}", "gpu", JobState.RUNNING, 1, start - HOUR, 48 * HOUR, "None", start - HOUR,
                start, comment=format_tag(tag))
        )  # fmt: skip
        tag = ChainTag(f"chain{number:05d}", 2, 9, first, Mode.TRAIN, Penalties())
        jobs.append(
            Job(first + 1, f"user{number}", "gpu", JobState.PENDING, 1, start, 48 * HOUR, "Dependency",
                dependency=f"afterany:{first}(unfulfilled)", comment=format_tag(tag))
        )  # fmt: skip
    nodes = tuple(Node(f"n{number}", ("gpu",), True, number > chains) for number in range(NODES))
    return Snapshot(now_s, tuple(jobs), nodes)


class StepClock:
    def __init__(self, now_s: int) -> None:
        self.time_s = now_s

    def now_s(self) -> int:
        return self.time_s


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--queued", type=int, default=10_000)
    parser.add_argument("--chains", type=int, default=500)
    parser.add_argument("--cycles", type=int, default=7)
    args = parser.parse_args()
    clock = StepClock(1_800_000_000)
    cluster = Queue(queue(args.queued, args.chains, clock.time_s))
    with tempfile.TemporaryDirectory() as folder:
        store = SqlStore.open(f"sqlite:///{Path(folder) / 'mirage.db'}")
        daemon = Daemon(cluster, store, clock, make_policy(PolicyConfig()), poll_s=600)  # type: ignore[arg-type]
        times = []
        for _ in range(args.cycles):
            begin = time.process_time()
            assert daemon.run_cycle()
            times.append(time.process_time() - begin)
            clock.time_s += 600
            cluster.now = queue(args.queued, args.chains, clock.time_s)
        decided = len(store.decisions(args.queued + 2))
        size_mib = sum(file.stat().st_size for file in Path(folder).iterdir()) / 2**20
    peak_mib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(
        f"{args.queued} queued jobs, {args.chains} chains: first cycle {times[0]:.2f} CPU s, then median "
        f"{median(times[1:]):.2f} CPU s; peak memory {peak_mib:.0f} MiB; database {size_mib:.1f} MiB after "
        f"{args.cycles} cycles; {decided} decisions on the first chain; asked of Slurm: {cluster.asked}"
    )


if __name__ == "__main__":
    main()
