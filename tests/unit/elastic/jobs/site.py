"""A simulated Slurm with GPU nodes, a training that only counts, and a controller on both."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from pathlib import Path

from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.controller import Controller, ControlOptions
from mirage.elastic.jobs.limits import JobCounts
from mirage.elastic.jobs.plan import TaskPatience
from mirage.elastic.jobs.request import CountedRequest, JobRequest, TaskRequest, WorkerRequest
from mirage.elastic.jobs.sizes import policy_named
from mirage.elastic.jobs.tag import TaskTag, parse_task_tag
from mirage.elastic.jobs.training import LiveTraining, TrainingStatus
from mirage.ports import Cluster
from mirage.slurm.simulated import SimulatedClock, SimulatedCluster
from slurm_sim import Simulator
from slurm_sim.config import ClusterConfig, Params, Partition, SelectType, named_nodes
from slurm_sim.jobs import JobSpec

NOW = 1_800_000_000
NODES = ("n1", "n2", "n3", "n4")
ALICE, BOB = "alice", "bob"
REQUEST = JobRequest(
    name="mnist",
    script="train.py",
    folder="/tmp",
    time="10:00:00",
    epochs=1000,
    steps_per_epoch=100,
    workers=WorkerRequest(min=1, max=6, gpus=1),
    servers=CountedRequest(min=1, max=2, partition="cpu"),
    coordinator=TaskRequest(partition="cpu"),
)


class CountingTraining(LiveTraining):
    """A training whose coordinator answers while its Slurm job runs."""

    def __init__(self, site: ElasticSite, folder: Path) -> None:
        self._site, self._name = site, folder.parent.name
        self.state = "training"
        self.gone_names: list[str] = []
        self.drains: list[str] = []
        self.unregistered: set[str] = set()
        """Processes that run and have not spoken to the coordinator."""
        self.answers = True
        self._steps, self._at_s = 0.0, site.sim.now_s

    def _running(self, letter: str) -> list[int]:
        """Slurm jobs of a role that run."""
        ident = self._site.ident(self._name)
        return [
            job_id
            for job_id, tag in self._site.tasks(running=True).items()
            if tag.job == ident and tag.task[0] == letter
        ]

    def status(self) -> TrainingStatus | None:
        if not self.answers or not (self._running("c") or self.state == "finished"):
            return None
        now_s, workers = self._site.sim.now_s, len(self._running("w"))
        self._steps += (now_s - self._at_s) * workers * 0.1
        self._at_s = now_s
        return TrainingStatus(
            state=self.state,
            step=int(self._steps),
            steps=100_000,
            steps_per_s=0.1,
            loss=1.0,
            workers=workers,
            servers=len(self._running("s")),
            drained=list(self.drains),
        )

    def drain(self, names: Collection[str]) -> Collection[str]:
        self.drains += [name for name in names if name not in self.unregistered]
        return [name for name in names if name in self.unregistered]

    def gone(self, names: Collection[str]) -> None:
        self.gone_names += names

    def stop(self) -> None:
        self.state = "stopped"


class ElasticSite:
    """Four nodes of two GPUs and a CPU node; jobs share nodes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        cpu = named_nodes(("c1",), cpus=32)
        self.config = ClusterConfig(
            (*named_nodes(NODES, cpus=8, gpus=2), *cpu),
            (Partition("gpu", NODES, max_time_s=86_400), Partition("cpu", ("c1",))),
            Params(select_type=SelectType.CONS_TRES, bf_interval_s=5, sched_interval_s=5),
        )
        self.sim = Simulator(self.config, (), NOW)
        self.cluster = SimulatedCluster(self.sim, ALICE)
        self.trainings: dict[str, CountingTraining] = {}
        self.counts = JobCounts()

    def add(self, request: JobRequest = REQUEST, **changes: object) -> Path:
        """A new elastic job of alice."""
        wanted = replace(request, **changes)  # type: ignore[arg-type]
        return files.create_job(self.root, wanted, self.sim.now_s)

    def controller(
        self, cluster: Cluster | None = None, *, policy: str = "greedy", **options: object
    ) -> Controller:
        """A controller that has just been started."""
        return Controller(
            self.root,
            cluster or self.cluster,
            SimulatedClock(self.sim),
            user=ALICE,
            config=lambda: self.config,
            counts=self.counts,
            policy=policy_named(policy),
            training=self.training,
            options=ControlOptions(
                **{"slot_s": 300, "patience": TaskPatience(drain_s=30, extra_s=45)} | options  # type: ignore[arg-type]
            ),
        )

    def training(self, folder: Path) -> CountingTraining:
        return self.trainings.setdefault(folder.parent.name, CountingTraining(self, folder))

    def run(self, controller: Controller, seconds: int, *, every_s: int = 10) -> None:
        """Cycles, until the controller has no job left or the time is over."""
        for _ in range(0, seconds, every_s):
            going = controller.cycle()
            self.sim.step(every_s)
            if not going:
                return

    def others_job(self, *, nodes: int = 1, gpus: int = 2, runtime_s: int | None = None) -> int:
        """A job of bob's."""
        return self.sim.submit(
            JobSpec(
                nodes,
                time_limit_s=3600,
                runtime_s=runtime_s,
                user=BOB,
                gpus_per_node=gpus,
                partition="gpu",
            )
        )

    def ident(self, name: str) -> str:
        from mirage.elastic.jobs.journal import JobJournal

        return JobJournal(self.root / name).record.ident

    def tasks(self, *, running: bool = False) -> dict[int, TaskTag]:
        """Slurm's jobs with a tag: those that are pending or run, or only the latter."""
        jobs = [*self.sim.running(), *([] if running else self.sim.pending())]
        return {job.job_id: tag for job in jobs if (tag := parse_task_tag(job.spec.comment))}

    def count(self, letter: str, *, running: bool = True) -> int:
        """Tasks of a role, of all elastic jobs."""
        return sum(tag.task[0] == letter for tag in self.tasks(running=running).values())
