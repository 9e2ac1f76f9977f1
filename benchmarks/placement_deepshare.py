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
import math
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


@dataclass(frozen=True, kw_only=True)
class JobAdvice:
    """Of a guide, for one job: its gain becomes exp(weight) * gain ** exp(bend)."""

    weight: float = 0.0
    bend: float = 0.0


NO_ADVICE = JobAdvice()


@dataclass(frozen=True, kw_only=True)
class RoundSearch:
    """Our search's objective on the measured table: the sum of each job's share of its remaining
    work in a round. First the best placement of each job in turn, then the best exchanges.
    """

    tables: Tables
    candidates: int = 24
    """Jobs that may run: those with the least GPU time left."""
    exchanges: bool = True

    def chosen(self, waiting: Sequence[Job]) -> list[Job]:
        return sorted(waiting, key=self.gpu_s)[: self.candidates]

    def plan(self, order: list[Job], cluster: Cluster, advice: Mapping[int, JobAdvice]) -> None:
        """Starts jobs of ``order`` on the empty cluster; ``advice`` by the job's number."""
        order = sorted(order, key=lambda job: (self._urgency(job, advice), job.number))
        self._place(order, cluster, advice)
        best, score = _nodes(cluster), self._gain(cluster, advice)
        for out in list(cluster.running) if self.exchanges else ():
            cluster.running = [job for job in cluster.running if job is not out]
            others = [job for job in order if job not in cluster.running and job is not out]
            self._place(others, cluster, advice)
            self._place([] if out in cluster.running else [out], cluster, advice)
            if self._gain(cluster, advice) > score + 1e-12:
                best, score = _nodes(cluster), self._gain(cluster, advice)
            for job, nodes in best:
                job.nodes = nodes
            cluster.running = [job for job, _ in best]

    def gpu_s(self, job: Job) -> tuple[float, int]:
        """GPU time left, seconds, alone on the best nodes; and the job's number, for ties."""
        kinds = [job.kind(nodes) for nodes in (2, 4) if job.gpus >= nodes]
        fastest = max(self.tables.isolated[kind] for kind in kinds)
        return ((job.samples - job.done) / fastest * job.gpus, job.number)

    def _urgency(self, job: Job, advice: Mapping[int, JobAdvice]) -> float:
        return self.gpu_s(job)[0] / math.exp(advice.get(job.number, NO_ADVICE).weight)

    def _gain(self, cluster: Cluster, advice: Mapping[int, JobAdvice]) -> float:
        total = 0.0
        for job in cluster.running:
            share = min(1.0, cluster.speed(job) * ROUND_S / (job.samples - job.done))
            own = advice.get(job.number, NO_ADVICE)
            total += math.exp(own.weight) * share ** math.exp(own.bend)
        return total

    def _best_nodes(
        self, job: Job, cluster: Cluster, advice: Mapping[int, JobAdvice]
    ) -> tuple[int, ...]:
        best: tuple[float, tuple[int, ...]] = (self._gain(cluster, advice), ())
        free = cluster.free()
        cluster.running.append(job)
        for nodes in PLACEMENTS:
            each = job.gpus // len(nodes)
            if each and all(free[node] >= each for node in nodes):
                job.nodes = nodes
                best = max(best, (self._gain(cluster, advice), nodes))
        cluster.running.pop()
        return best[1]

    def _place(
        self, jobs: Sequence[Job], cluster: Cluster, advice: Mapping[int, JobAdvice]
    ) -> None:
        for job in jobs:
            job.nodes = self._best_nodes(job, cluster, advice)
            if job.nodes:
                cluster.running.append(job)


def _nodes(cluster: Cluster) -> list[tuple[Job, tuple[int, ...]]]:
    return [(job, job.nodes) for job in cluster.running]


def search(tables: Tables) -> Scheduler:
    """Without a guide."""
    plain = RoundSearch(tables=tables)

    def schedule(waiting: list[Job], cluster: Cluster) -> list[Job]:
        plain.plan(plain.chosen(waiting), cluster, {})
        return cluster.running

    return schedule


PLACEMENTS = [*combinations(range(NODES), 2), tuple(range(NODES))]


def jobs_of(tables: Tables, words: Sequence[str]) -> list[Job]:
    """Of words such as `T4`: model and GPUs."""
    return [
        Job(
            number=number,
            model=MODELS[word[0]],
            gpus=int(word[1]),
            samples=tables.samples[MODELS[word[0]], int(word[1])],
        )
        for number, word in enumerate(words)
    ]


class Rounds:
    """Rounds of 300 s until all jobs have ended.

    ``published``: a job whose predecessor ends in a round gets no progress in it, as in the
    published simulator, which removes from the list that it walks.
    """

    def __init__(self, tables: Tables, jobs: list[Job], *, published: bool = False) -> None:
        self.tables, self.waiting, self._published = tables, jobs, published
        self.ended: list[Job] = []
        self.clock_s = 0
        self._shares: list[float] = []
        self._used: list[float] = []

    def run(self, running: list[Job]) -> None:
        """One round of these jobs."""
        cluster = Cluster(tables=self.tables, running=running)
        ratios = {job.number: cluster.ratio(job) for job in running}
        speeds = {job.number: cluster.speed(job) for job in running}
        self._used.append(sum(job.gpus for job in running) / (NODES * GPUS_PER_NODE))
        self.clock_s += ROUND_S
        done, nth = [], 0
        while nth < len(running):
            job = running[nth]
            job.done += speeds[job.number] * ROUND_S
            job.ran_s += ROUND_S
            self._shares.append(ratios[job.number])
            least = ratios[job.number] * ROUND_S if self._published else 1e-9
            if job.samples - job.done < least:
                job.end_s = self.clock_s
                done.append(job)
                nth += self._published  # the next one is passed over
            nth += 1
        self._put_back(running, done)

    def _put_back(self, running: Sequence[Job], done: Sequence[Job]) -> None:
        self.ended += done
        over, started = {job.number for job in done}, {job.number for job in running}
        paused = [job for job in self.waiting if job.number not in started]
        for job in paused:
            job.nodes = ()
        self.waiting = paused + [job for job in running if job.number not in over]

    def figures(self) -> dict[str, float]:
        count = len(self.ended)
        return {
            "jobs": count,
            "mean_running_s": sum(job.ran_s for job in self.ended) / count,
            "mean_completion_s": sum(job.end_s or 0 for job in self.ended) / count,
            "makespan_s": self.clock_s,
            "mean_ratio": sum(self._shares) / len(self._shares),
            "mean_used": sum(self._used) / len(self._used),
        }


def simulate(tables: Tables, schedule: Scheduler, *, published: bool) -> dict[str, float]:
    """DeepShare's 256 jobs."""
    rounds = Rounds(tables, jobs_of(tables, JOBS.split()), published=published)
    while rounds.waiting:
        rounds.run(list(schedule(rounds.waiting, Cluster(tables=tables))))
    return rounds.figures()


def bounds(tables: Tables) -> dict[str, float]:
    """What no scheduler can be below: each job alone on its best nodes; and the shortest first
    while all GPUs work at that speed, which is the best order on a single machine of 32 GPUs.
    """
    plain, jobs = RoundSearch(tables=tables), jobs_of(tables, JOBS.split())
    gpu_s = sorted((plain.gpu_s(job)[0], job.gpus) for job in jobs)
    clock_s, ends = 0.0, []
    for each, gpus in gpu_s:
        clock_s += each / (NODES * GPUS_PER_NODE)
        ends.append(max(clock_s, each / gpus))
    rounds = [math.ceil(each / gpus / ROUND_S - 1e-9) for each, gpus in gpu_s]
    return {
        "mean_running_s": ROUND_S * sum(rounds) / len(jobs),
        "mean_completion_s": sum(ends) / len(jobs),
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
    parser.add_argument("--out", type=Path, help="JSON file to add to (default: standard output)")
    args = parser.parse_args()
    tables = read_tables(args.data)
    found = {
        "published_mean_running_s": PUBLISHED,
        "bounds": bounds(tables),
        "schedulers": results(tables),
    }
    if args.out and args.out.exists():
        found = json.loads(args.out.read_text()) | found
    text = json.dumps(found, indent=1) + "\n"
    if args.out:
        args.out.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
