"""DeepShare (Ryu and Eo, ICPADS 2023) beside our search, on its jobs and its measured interference.

    python -m benchmarks.placement_deepshare --data DIR [--out FILE]

DIR has `isolated_thp.csv`, `shared_thp_ratio.csv` and `total_samples_trained.csv` of
gajagajago/deepshare (Apache-2.0). The world is that of its simulator: 4 nodes of 8 GPUs, rounds of
300 s, 256 jobs that are all there at the begin, each on 2 or 4 nodes. A job's throughput is its
isolated one times the least ratio that was measured beside any other job on its nodes.

Its published figures count the time that a job runs, not the time that it waits: an average of
5,975.39 s for its SRTF and 6,082.03 s for its LAS. Both are reproduced here, with the order and the
skipped updates of its code (`as published`), and beside them the schedulers that the names promise.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path

NODES, GPUS_PER_NODE, ROUND_S = 4, 8, 300
LEAST_RATIO = 0.35
"""Its simulator takes no ratio below this."""
PUBLISHED = {"srtf as published": 5975.39, "las as published": 6082.03}
MODELS = {
    "D": "DLRM",
    "F": "FSDP",
    "G": "GraphSage",
    "M": "MoE",
    "N": "MobileNetV3",
    "T": "Transformer-XL",
}
# The 256 jobs of scheduler/traces/simulate/trace0: model and GPUs.
JOBS = """
T4 F4 M2 D4 M8 G4 F2 T8 F4 D8 M4 T4 F8 G2 M4 T4 N2 D8 T4 N2 M8 D4 M2 T4 F2 M4 N8 D2 T8 M8 G8 T4
T8 G2 F4 F4 G2 T2 D8 T8 G4 D2 D8 F4 G8 M8 G4 F8 G2 D8 T4 G4 G2 G2 D8 N8 T2 F8 T2 N4 T2 G8 G4 G2
M2 N2 D8 N4 D2 G4 G2 M2 G4 G8 F8 F4 N2 G2 G8 M8 G4 N2 F2 N4 N8 T8 G2 G4 N2 N4 G8 F8 G4 T2 N2 F4
T2 G8 T8 D2 F2 G8 M2 D8 G2 N8 D4 M2 D8 F4 G8 F4 D8 F8 F8 N8 N8 G4 G4 N8 F2 G2 G4 G4 M2 D2 G4 F4
D4 G4 F4 M8 F8 F8 F8 G2 F4 M4 N4 N4 G4 M8 D8 D8 G2 F4 F4 G4 G4 D4 G2 D4 T2 T8 T8 N4 F8 N4 D8 G2
G2 D8 G8 T4 G2 M4 F2 G2 M2 M8 G4 N4 F2 G2 G2 T2 M4 T8 T2 N8 F4 T2 N4 F8 G8 D4 G4 G8 G4 M8 D2 F4
G8 D4 T4 G8 F8 T8 M4 F8 D4 N4 N2 F4 D4 G2 T2 F4 T4 M8 T8 G2 N8 D8 G8 D4 N2 F4 F2 G2 F4 G2 D2 F2
D4 G8 M2 N8 F4 M2 N8 N4 F8 G8 T2 D8 N8 T4 F2 G8 F8 D2 N2 G2 G2 G2 F2 D4 M4 F8 G4 N4 M8 M2 N2 G4
"""


@dataclass(frozen=True, kw_only=True)
class Tables:
    """DeepShare's measurements. A kind is (model, GPUs, nodes)."""

    isolated: Mapping[str, float]
    """Samples a second."""
    ratio: Mapping[tuple[str, str], float]
    """Of the first kind's throughput beside the second, to that alone."""
    samples: Mapping[tuple[str, int], float]
    """That a job of a model and a number of GPUs has to train."""


def read_tables(folder: Path) -> Tables:
    isolated = {row[0]: float(row[1]) for row in _rows(folder / "isolated_thp.csv")[1:]}
    head, *rows = _rows(folder / "shared_thp_ratio.csv")
    ratio = {
        (row[0], other): float(value)
        for row in rows
        for other, value in zip(head[1:], row[1:], strict=True)
    }
    head, *rows = _rows(folder / "total_samples_trained.csv")
    samples = {
        (row[0], int(gpus)): float(value)
        for row in rows
        for gpus, value in zip(head[1:], row[1:], strict=True)
    }
    return Tables(isolated=isolated, ratio=ratio, samples=samples)


def _rows(path: Path) -> list[list[str]]:
    return [row for row in csv.reader(path.read_text("utf-8-sig").splitlines()) if row]


@dataclass(kw_only=True)
class Job:
    number: int
    model: str
    gpus: int
    samples: float
    done: float = 0.0
    ran_s: int = 0
    nodes: tuple[int, ...] = ()
    end_s: int | None = None

    def kind(self, nodes: int) -> str:
        return f"{self.model},{self.gpus},{nodes}"


@dataclass(kw_only=True)
class Cluster:
    """Running jobs and the free GPUs of each node."""

    tables: Tables
    running: list[Job] = field(default_factory=list)

    def free(self) -> list[int]:
        free = [GPUS_PER_NODE] * NODES
        for job in self.running:
            for node in job.nodes:
                free[node] -= job.gpus // len(job.nodes)
        return free

    def fits(self, job: Job, nodes: Sequence[int]) -> bool:
        free = self.free()
        return all(free[node] >= job.gpus // len(nodes) for node in nodes)

    def ratio(self, job: Job) -> float:
        mine = set(job.nodes)
        beside = [o for o in self.running if o is not job and mine & set(o.nodes)]
        kind = job.kind(len(job.nodes))
        least = min((self.tables.ratio[kind, o.kind(len(o.nodes))] for o in beside), default=1.0)
        return max(min(1.0, least), LEAST_RATIO)

    def speed(self, job: Job) -> float:
        """Samples a second."""
        return self.tables.isolated[job.kind(len(job.nodes))] * self.ratio(job)


Scheduler = Callable[[list[Job], Cluster], list[Job]]
"""Jobs that wait -> jobs that start, with their nodes; all jobs are paused each round."""


def spread_first(job: Job, cluster: Cluster) -> tuple[int, ...]:
    """DeepShare's placement of SRTF and LAS: the most nodes, the first with room."""
    for nodes in (4, 2):
        if job.gpus >= nodes:
            room = [n for n, free in enumerate(cluster.free()) if free >= job.gpus // nodes]
            if len(room) >= nodes:
                return tuple(room[:nodes])
    return ()


def in_order(key: Callable[[Job], float], *, skips: bool) -> Scheduler:
    """The first jobs by a key; ``skips``: goes on behind one that does not fit."""

    def schedule(waiting: list[Job], cluster: Cluster) -> list[Job]:
        for job in sorted(waiting, key=key):
            job.nodes = spread_first(job, cluster)
            if job.nodes:
                cluster.running.append(job)
            elif not skips:
                break
        return cluster.running

    return schedule


def search(tables: Tables) -> Scheduler:
    """Our search's objective on the measured table: the sum of each job's share of its remaining
    work in a round. First the best placement of each job in turn, then the best exchanges.
    """

    def remaining_s(job: Job) -> float:
        kinds = [job.kind(nodes) for nodes in (2, 4) if job.gpus >= nodes]
        return (job.samples - job.done) / max(tables.isolated[kind] for kind in kinds)

    def gain(cluster: Cluster) -> float:
        return sum(
            min(1.0, cluster.speed(job) * ROUND_S / (job.samples - job.done))
            for job in cluster.running
        )

    def best_nodes(job: Job, cluster: Cluster) -> tuple[float, tuple[int, ...]]:
        best = (gain(cluster), ())
        cluster.running.append(job)
        for nodes in PLACEMENTS:
            cluster.running.pop()
            possible = job.gpus >= len(nodes) and cluster.fits(job, nodes)
            cluster.running.append(job)
            if possible:
                job.nodes = nodes
                best = max(best, (gain(cluster), nodes))
        cluster.running.pop()
        return best

    def place(jobs: Sequence[Job], cluster: Cluster) -> None:
        for job in jobs:
            _, job.nodes = best_nodes(job, cluster)
            if job.nodes:
                cluster.running.append(job)

    def schedule(waiting: list[Job], cluster: Cluster) -> list[Job]:
        order = sorted(waiting, key=lambda job: (remaining_s(job) * job.gpus, job.number))[:24]
        place(order, cluster)
        best, score = [(job, job.nodes) for job in cluster.running], gain(cluster)
        for out in list(cluster.running):
            cluster.running = [job for job in cluster.running if job is not out]
            place([job for job in order if job not in cluster.running and job is not out], cluster)
            place([] if out in cluster.running else [out], cluster)
            if gain(cluster) > score + 1e-12:
                best, score = [(job, job.nodes) for job in cluster.running], gain(cluster)
            for job, nodes in best:
                job.nodes = nodes
            cluster.running = [job for job, _ in best]
        return cluster.running

    return schedule


PLACEMENTS = [*combinations(range(NODES), 2), tuple(range(NODES))]


def simulate(tables: Tables, schedule: Scheduler, *, published: bool) -> dict[str, float]:
    """``published``: a job whose predecessor ends in a round gets no progress in it, as in the
    published simulator, which removes from the list that it walks.
    """
    waiting = [
        Job(
            number=number,
            model=MODELS[word[0]],
            gpus=int(word[1]),
            samples=tables.samples[MODELS[word[0]], int(word[1])],
        )
        for number, word in enumerate(JOBS.split())
    ]
    ended: list[Job] = []
    shares: list[float] = []
    used: list[float] = []
    clock_s = 0
    while waiting:
        cluster = Cluster(tables=tables)
        running = list(schedule(waiting, cluster))
        cluster.running = running
        speeds = {job.number: cluster.speed(job) for job in running}
        ratios = {job.number: cluster.ratio(job) for job in running}
        used.append(sum(job.gpus for job in running) / (NODES * GPUS_PER_NODE))
        clock_s += ROUND_S
        done, nth = [], 0
        while nth < len(running):
            job = running[nth]
            job.done += speeds[job.number] * ROUND_S
            job.ran_s += ROUND_S
            shares.append(ratios[job.number])
            if job.samples - job.done < (ratios[job.number] * ROUND_S if published else 1e-9):
                job.end_s = clock_s
                done.append(job)
                nth += published  # the next one is passed over
            nth += 1
        ended += done
        names = {job.number for job in done}
        started = {job.number for job in running}
        waiting = [job for job in waiting if job.number not in started] + [
            job for job in running if job.number not in names
        ]
    return {
        "jobs": len(ended),
        "mean_running_s": sum(job.ran_s for job in ended) / len(ended),
        "mean_completion_s": sum(job.end_s or 0 for job in ended) / len(ended),
        "makespan_s": clock_s,
        "mean_ratio": sum(shares) / len(shares),
        "mean_used": sum(used) / len(used),
    }


def results(tables: Tables) -> dict[str, dict[str, float]]:
    """Of each scheduler."""

    def part_done(job: Job) -> float:
        return job.done / job.samples

    def left_s(job: Job) -> float:
        return (job.samples - job.done) / tables.isolated[job.kind(2)]

    return {
        "srtf as published": simulate(tables, in_order(part_done, skips=False), published=True),
        "las as published": simulate(
            tables, in_order(lambda job: -job.ran_s, skips=False), published=True
        ),
        "srtf": simulate(tables, in_order(left_s, skips=True), published=False),
        "las": simulate(
            tables, in_order(lambda job: job.ran_s * job.gpus, skips=True), published=False
        ),
        "search": simulate(tables, search(tables), published=False),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="folder of the three tables")
    parser.add_argument("--out", type=Path, help="JSON file (default: standard output)")
    args = parser.parse_args()
    found = {"published_mean_running_s": PUBLISHED, "schedulers": results(read_tables(args.data))}
    text = json.dumps(found, indent=1) + "\n"
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
