"""Policies of live elastic jobs on the same arrivals: the controller itself, on Slurm's simulator.

    python -m benchmarks.elastic_live [--seeds 1 2 3] [--jobs 20] [--policies greedy drf ...] [--types-known]

Everything is the live code but two things: Slurm is `slurm_sim`, which places tasks as slurmctld
does, and a training is a counter that goes by DL2's measured speeds for its workers and PSs. Another
user's jobs take about half of the nodes. The same jobs of his also run without elastic ones. Speeds
are measured by the controller. DL2's policy gets the type that each job is like; with `--types-known`
all do. Writes JSON.
"""

from __future__ import annotations

import argparse
import json
import logging
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sim_common import write_json
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.controller import Controller, ControlOptions
from mirage.elastic.jobs.limits import JobCounts
from mirage.elastic.jobs.request import (
    CountedRequest,
    JobRequest,
    SpeedRequest,
    TaskRequest,
    WorkerRequest,
)
from mirage.elastic.jobs.sizes import policy_named
from mirage.elastic.jobs.tag import parse_task_tag
from mirage.elastic.jobs.training import LiveTraining, TrainingStatus
from mirage.elastic.speed import JobType, dl2_types
from mirage.elastic.workload import ElasticWorkload, draw
from mirage.figures.provenance import provenance
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, Params, Partition, SelectType, named_nodes
from slurm_sim.jobs import JobSpec

RESULT = Path("benchmarks/elastic_live.json")
BEGIN_S, SLOT_S, POLL_S, MOST_S = 1_800_000_000, 1200, 60, 4 * 86_400
NODES = tuple(f"n{nth}" for nth in range(1, 14))
ALICE, BOB = "alice", "bob"
MOST_TASKS = 12
POLICIES = ("base", "greedy", "drf", "optimus", "srtf")
"""`base`: as many tasks as each job has at least, and no extra one."""


@dataclass(frozen=True, kw_only=True)
class OtherJob:
    """A job of Bob's."""

    at_s: int
    nodes: int
    run_s: int


@dataclass(frozen=True, kw_only=True)
class LiveArrival:
    """An elastic job of Alice's."""

    at_s: int
    kind: JobType
    epochs: float
    """That it really needs."""
    request: JobRequest


class CountedTraining(LiveTraining):
    """A training that goes by a speed table while its tasks run."""

    def __init__(self, site: LiveSite, folder: Path) -> None:
        self._site, self._arrival = site, site.by_name[folder.parent.name]
        self._folder, self._steps, self._at_s = folder.parent, 0.0, site.sim.now_s
        self._needed = self._arrival.epochs * self._arrival.kind.batches_per_epoch
        self._drained: list[str] = []
        self.ended_s: int | None = None

    def status(self) -> TrainingStatus | None:
        running = self._site.running(self._folder)
        workers, servers = running["w"], running["s"]
        table = self._arrival.kind.steps_per_s
        now_s, is_there = self._site.sim.now_s, running["c"] > 0
        inside = workers < table.shape[1] and servers < table.shape[0]
        speed = float(table[servers, workers]) if inside and is_there else 0.0
        self._steps += speed * (now_s - self._at_s)
        if self.ended_s is None and self._steps >= self._needed:
            self.ended_s = round(now_s - (self._steps - self._needed) / speed)
        self._at_s = now_s
        if not is_there and self.ended_s is None:
            return None
        return TrainingStatus(
            state="training" if self.ended_s is None else "finished",
            step=int(self._steps),
            steps=int(self._needed),
            steps_per_s=speed,
            loss=1.0,
            workers=workers,
            servers=servers,
            drained=list(self._drained),
        )

    def drain(self, names: Collection[str]) -> Collection[str]:
        self._drained += names
        return []

    def gone(self, names: Collection[str]) -> None:
        """Nothing is kept of members."""

    def stop(self) -> None:
        """Never asked here."""


class LiveSite:
    """13 nodes of two GPUs, one for tasks without; other jobs and elastic ones arrive by plan."""

    def __init__(self, root: Path, arrivals: Sequence[LiveArrival]) -> None:
        self.root, self.arrivals = root, arrivals
        self.by_name = {each.request.name: each for each in arrivals}
        self.config = ClusterConfig(
            (*named_nodes(NODES, cpus=8, gpus=2), *named_nodes(("c1",), cpus=512)),
            (Partition("gpu", NODES, max_time_s=MOST_S), Partition("cpu", ("c1",))),
            Params(select_type=SelectType.CONS_TRES, bf_interval_s=30, sched_interval_s=30),
        )
        self.sim = Simulator(self.config, (), BEGIN_S)
        self.cluster = SimulatedCluster(self.sim, ALICE)
        self.trainings: dict[str, CountedTraining] = {}
        self._idents: dict[Path, str] = {}
        self._seen: tuple[int, dict[str, Counter[str]]] = (0, {})

    def running(self, folder: Path) -> Counter[str]:
        """Running tasks of a job by role."""
        if self._seen[0] != self.sim.now_s:
            found: dict[str, Counter[str]] = {}
            for job in self.sim.running():
                if tag := parse_task_tag(job.spec.comment):
                    found.setdefault(tag.job, Counter())[tag.task[0]] += 1
            self._seen = self.sim.now_s, found
        if folder not in self._idents:
            self._idents[folder] = files.JobJournal(folder).record.ident
        return self._seen[1].get(self._idents[folder], Counter())

    def training(self, folder: Path) -> CountedTraining:
        return self.trainings.setdefault(folder.parent.name, CountedTraining(self, folder))

    def controller(self, policy: str) -> Controller:
        return Controller(
            self.root,
            self.cluster,
            SimulatedClock(self.sim),
            user=ALICE,
            config=lambda: self.config,
            counts=JobCounts(),
            policy=policy_named(policy),
            training=self.training,
            options=ControlOptions(slot_s=SLOT_S),
        )


def play(policy: str | None, arrivals: Sequence[LiveArrival], others: Sequence[OtherJob]) -> Any:
    """Waits of others, and what became of the elastic jobs; ``policy`` None: others alone."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        site = LiveSite(Path(folder), arrivals if policy else ())
        controller = site.controller(policy or "greedy")
        coming, elastic = list(others), list(site.arrivals)
        bobs: list[int] = []
        while coming or elastic or site.sim.running() or site.sim.pending():
            at_s = site.sim.now_s - BEGIN_S
            while coming and coming[0].at_s <= at_s:
                job = coming.pop(0)
                bobs.append(site.sim.submit(_spec(job)))
            while elastic and elastic[0].at_s <= at_s:
                files.create_job(site.root, elastic.pop(0).request, site.sim.now_s)
            controller.cycle()
            site.sim.step(POLL_S)
            if at_s > MOST_S:
                break
        waits = [site.sim.job(each) for each in bobs]
        shown = [files.read_status(path) for path in files.job_folders(site.root)]
        return {
            "waits_s": [(job.start_s or site.sim.now_s) - job.submit_s for job in waits],
            "completion_s": [_completion(site, each) for each in site.arrivals],
            "finished": sum(it.ended_s is not None for it in site.trainings.values()),
            "gpu_seconds": {
                key: sum(each.get(key, 0) for each in shown)
                for key in ("gpu_seconds", "gpu_seconds_extra", "gpu_seconds_trained")
            },
        }


def _completion(site: LiveSite, arrival: LiveArrival) -> int:
    training = site.trainings.get(arrival.request.name)
    ended_s = training.ended_s if training else None
    return (ended_s or site.sim.now_s) - BEGIN_S - arrival.at_s


def _spec(job: OtherJob) -> JobSpec:
    return JobSpec(
        job.nodes,
        time_limit_s=2 * job.run_s,
        runtime_s=job.run_s,
        user=BOB,
        gpus_per_node=2,
        partition="gpu",
    )


def plan_of(seed: int, count: int) -> tuple[list[LiveArrival], list[OtherJob]]:
    """The arrivals of a seed."""
    rng = np.random.default_rng([7, seed])
    types = dl2_types()
    jobs = draw(ElasticWorkload(types=types, jobs=count, jobs_per_slot=0.5, epoch_error=0.2), rng)
    arrivals = []
    for nth, (slot, kind, epochs, estimate) in enumerate(
        zip(jobs.arrival_slot, jobs.type_index, jobs.epochs, jobs.estimate, strict=True)
    ):
        request = JobRequest(
            name=f"job-{nth}",
            script="train.py",
            folder="/tmp",
            time="3-00:00:00",
            epochs=max(round(float(estimate)), 1),
            steps_per_epoch=types[kind].batches_per_epoch,
            workers=WorkerRequest(min=1, max=MOST_TASKS, gpus=1, shards=0, partition="gpu"),
            servers=CountedRequest(min=1, max=MOST_TASKS - 1, partition="cpu"),
            coordinator=TaskRequest(partition="cpu"),
            speed=SpeedRequest(like=types[kind].name),
        )
        at_s = int(slot) * SLOT_S + nth
        arrivals.append(
            LiveArrival(at_s=at_s, kind=types[kind], epochs=float(epochs), request=request)
        )
    others, at_s, end_s = [], 0.0, arrivals[-1].at_s + 12 * 3600
    while at_s < end_s:
        nodes, run_s = int(rng.integers(1, 4)), int(rng.integers(600, 5400))
        others.append(OtherJob(at_s=int(at_s), nodes=nodes, run_s=run_s))
        at_s += rng.exponential(nodes * run_s / (0.5 * len(NODES)))
    return arrivals, others


def unknown(arrivals: Sequence[LiveArrival]) -> list[LiveArrival]:
    """Their owners name no type: the controller measures."""
    return [replace(each, request=replace(each.request, speed=SpeedRequest())) for each in arrivals]


def least(arrival: LiveArrival) -> LiveArrival:
    """Without extra tasks."""
    request = arrival.request
    workers = replace(request.workers, max=request.workers.min)
    servers = replace(request.servers, max=request.servers.min)
    return replace(arrival, request=replace(request, workers=workers, servers=servers))


def compared(runs: Mapping[str, Any]) -> dict[str, Any]:
    """Completion in hours, and what others waited longer than without elastic jobs."""
    alone = np.array(runs["nobody"]["waits_s"])
    found = {}
    for name, run in runs.items():
        if name == "nobody":
            continue
        hours, delay = np.array(run["completion_s"]) / 3600, np.array(run["waits_s"]) - alone
        found[name] = {
            "mean_h": round(float(hours.mean()), 3),
            "p95_h": round(float(np.percentile(hours, 95)), 3),
            "finished": run["finished"],
            "delay_s": {
                "mean": round(float(delay.mean()), 1),
                "max": int(delay.max()),
                "more_than_a_slot": int((delay > SLOT_S).sum()),
            },
            **run["gpu_seconds"],
        }
    return found


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--jobs", type=int, default=20)
    parser.add_argument("--types-known", action="store_true", help="owners name each job's type")
    parser.add_argument("--policies", nargs="+", default=list(POLICIES))
    parser.add_argument("--out", type=Path, default=RESULT)
    args = parser.parse_args()
    logging.disable(logging.WARNING)
    started_s, began = time.time(), time.monotonic()
    record: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    for seed in args.seeds:
        arrivals, others = plan_of(seed, args.jobs)
        runs = {"nobody": play(None, arrivals, others)}
        for policy in args.policies:
            types_known = args.types_known or Path(policy).is_dir()
            jobs = arrivals if types_known else unknown(arrivals)
            name = Path(policy).name + (", types known" if args.types_known else "")
            if policy == "base":
                runs[name] = play("drf", [least(each) for each in jobs], others)
            else:
                runs[name] = play(policy, jobs, others)
            print(seed, name, compared(runs)[name], flush=True)
            record.setdefault(f"seed {seed}", {}).update(compared(runs))
            write_json(args.out, record)
    record["provenance"] = provenance(
        sys.argv,
        inputs={},
        split={},
        seed=args.seeds[0],
        started_s=started_s,
        wall_s=time.monotonic() - began,
    )
    write_json(args.out, record)


if __name__ == "__main__":
    main()
