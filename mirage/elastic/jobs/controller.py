"""The controller of a user's elastic jobs: looks at Slurm, decides, acts, again and again.

In each cycle it takes one snapshot for all jobs. At the start of a slot the policy decides the
sizes; between, tasks are given back where somebody queues, and what is missing is submitted.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from mirage.domain import Job, Snapshot
from mirage.elastic.baselines import Allocator
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.act import ActiveJob, Actuator
from mirage.elastic.jobs.capacity import ClusterRoom, NodeRoom, TaskKey
from mirage.elastic.jobs.journal import JOURNAL, ElasticTask, JobJournal
from mirage.elastic.jobs.limits import JobCounts, allowance
from mirage.elastic.jobs.plan import (
    Act,
    Cancel,
    DrainTask,
    JobView,
    SubmitAllowance,
    TaskPatience,
    evictable,
    plan,
)
from mirage.elastic.jobs.request import CountedRequest, Role, TaskRequest
from mirage.elastic.jobs.sizes import FreeNode, LiveJob, Sizes, decide_sizes
from mirage.elastic.jobs.speeds import (
    Measurement,
    SpeedBelief,
    SpeedShape,
    believed_speeds,
)
from mirage.elastic.jobs.status import JobNumbers, status_table
from mirage.elastic.jobs.training import LiveTraining, TrainingStatus
from mirage.elastic.speed import TaskDemand
from mirage.errors import AccountingUnavailable, ClusterError, MirageError, StoreError
from mirage.figures.words import several
from mirage.ports import Clock, Cluster
from mirage.store.events import read_events
from slurm_sim.config import ClusterConfig

log = logging.getLogger(__name__)


@dataclass(frozen=True, kw_only=True)
class ControlOptions:
    """How a controller decides."""

    slot_s: int = 300
    """Between two decisions on sizes."""
    most_gpus: int | None = None
    """Of all jobs together; None: no cap."""
    is_polite: bool = True
    """Extra tasks are submitted only if nobody queues for their nodes, and given back."""
    reserve: int = 1
    """Nodes of each partition that polite extra tasks leave idle, for the next job of others."""
    patience: TaskPatience = field(default_factory=TaskPatience)


@dataclass(kw_only=True)
class _Running(ActiveJob):
    """A job under control, with what is forgotten when the controller ends."""

    seen: TrainingStatus | None = None
    sizes: Sizes | None = None
    """As decided in this slot; None: not yet, and it keeps the tasks that it has."""
    measured: list[Measurement] = field(default_factory=list)
    mark: tuple[int, int, int, int] | None = None
    """When the present shape was first seen, at which step, with how many workers and PSs."""
    belief: SpeedBelief | None = None
    """Of its speeds, as of the last decision."""
    trained_gpu_s: float = 0.0
    looked: tuple[int, int] | None = None
    """When the training was last seen to go on, and at which step."""
    stuck: str | None = None
    """Tasks that can't start as they are, as they were logged last."""

    def alive(self, role: Role) -> list[ElasticTask]:
        return [
            task for task in self.journal.record.alive if task.role is role and not task.is_leaving
        ]


class Controller:
    """Of all elastic jobs of one user. Only one may run (`folder.CONTROLLER_LOCK`)."""

    def __init__(
        self,
        root: Path,
        cluster: Cluster,
        clock: Clock,
        *,
        user: str,
        config: Callable[[], ClusterConfig],
        counts: JobCounts,
        policy: Allocator,
        training: Callable[[Path], LiveTraining],
        options: ControlOptions,
        names: Collection[str] | None = None,
    ) -> None:
        """``config`` describes the cluster's nodes; ``training`` speaks to a job's coordinator.

        ``names``: only these jobs; None: all.
        """
        self._names = names
        self.controlled: set[str] = set()
        """Names of all jobs that it took up."""
        self._root, self._cluster, self._clock = root, cluster, clock
        self._user, self._config, self._counts = user, config, counts
        self._policy, self._training, self._options = policy, training, options
        self._actuator = Actuator(cluster, options.slot_s)
        self._jobs: dict[str, _Running] = {}
        self._slot: int | None = None

    def cycle(self) -> bool:
        """One look and what follows from it; returns whether any job is left.

        A Slurm that does not answer, or a full disk, costs the cycle and nothing else.
        """
        self._take_up()
        try:
            for job in self._jobs.values():
                files.renew_lease(job.folder, self._clock.now_s())
            snapshot = self._cluster.snapshot()
            self._cycle(snapshot)
        except (ClusterError, StoreError, OSError) as error:
            log.warning("nothing done in this cycle: %s", error)
        return bool(self._jobs)

    def _take_up(self) -> None:
        """Reads jobs that are new here."""
        for folder in files.job_folders(self._root):
            name = folder.name
            if name in self._jobs or (self._names is not None and name not in self._names):
                continue
            try:
                journal = JobJournal(folder)
                if journal.record.end:
                    continue
                job = _Running(
                    folder=folder,
                    request=files.read_job_request(folder),
                    journal=journal,
                    training=self._training(folder / files.RUNTIME),
                    measured=_measurements(folder),
                    trained_gpu_s=files.read_status(folder).get("gpu_seconds_trained", 0.0),
                )
                self._actuator.resume(job)
            except (MirageError, OSError, ValueError, TypeError) as error:
                log.warning("%s: left alone: %s", folder, error)
                continue
            self._jobs[name] = job
            self.controlled.add(name)
            log.info("%s: taken up", name)

    def _cycle(self, snapshot: Snapshot) -> None:
        now_s = self._clock.now_s()
        room = ClusterRoom(snapshot, self._config(), self._user)
        for job in self._jobs.values():
            self._actuator.adopt(job, room.own, now_s)
            self._settle(job, room.own, now_s)
            job.seen = job.training.status()
            self._note_progress(job, room.own, now_s)
        room.leave(self._leaving())
        given = self._given_back(room)
        slot = now_s // self._options.slot_s
        if slot != self._slot:
            self._decide(room, now_s)
            self._slot = slot
        self._act(snapshot, room, given, now_s)

    # --- what is

    def _settle(self, job: _Running, own: Mapping[TaskKey, Job], now_s: int) -> None:
        """Writes down which tasks have ended. An answer that lacks a job does not prove its end."""
        record = job.journal.record
        gone = {
            task.job_id: task
            for task in record.alive
            if task.job_id is not None and (record.ident, task.name) not in own
        }
        if not gone:
            return
        known: dict[int, Job] = dict(self._cluster.jobs(list(gone)))
        forgotten = gone.keys() - known.keys()
        if forgotten:
            try:
                since_s = min(gone[job_id].submitted_s for job_id in forgotten)
                for found in self._cluster.accounting(since_s, now_s, forgotten):
                    known[found.job_id] = found
            except AccountingUnavailable as error:
                log.info("%s: how tasks ended is not known: %s", record.name, error)
        ended = []
        for job_id, task in gone.items():
            last = known.get(job_id)
            if last is None or last.state.is_over or job_id in forgotten:
                job.journal.over(now_s, task, last)
                log.info("%s: task %s is over: %s", record.name, task.name, task.end)
                ended.append(task.name)
        if ended:
            job.training.gone(ended)

    def _note_progress(self, job: _Running, own: Mapping[TaskKey, Job], now_s: int) -> None:
        record = job.journal.record
        if record.deadline_s is None:
            starts = [
                found.start_s
                for task in record.alive
                if task.role is Role.COORDINATOR
                and (found := own.get((record.ident, task.name)))
                and found.start_s is not None
            ]
            if starts:
                deadline_s = min(starts) + job.request.time_s
                job.journal.write(now_s, "deadline", deadline=deadline_s)
        seen = job.seen
        if seen is None or seen.state != "training" or not seen.workers:
            job.mark = job.looked = None
            return
        if job.looked is None or seen.step > job.looked[1]:
            since_s = job.looked[0] if job.looked else now_s
            job.trained_gpu_s += seen.workers * job.request.workers.gpus * (now_s - since_s)
            job.looked = now_s, seen.step
        if job.mark is None or job.mark[2:] != (seen.workers, seen.servers):
            job.mark = (now_s, seen.step, seen.workers, seen.servers)

    def _leaving(self) -> Collection[TaskKey]:
        return [
            (job.journal.record.ident, task.name)
            for job in self._jobs.values()
            for task in job.journal.record.alive
            if task.is_leaving
        ]

    # --- what is wanted

    def _decide(self, room: ClusterRoom, now_s: int) -> None:
        jobs = sorted(self._jobs.values(), key=lambda job: job.journal.record.created_s)
        for job in jobs:
            self._measure(job, now_s)
        live = [_live(job, room) for job in jobs if not job.journal.record.stop_s]
        sizes = decide_sizes(
            live,
            self._free(room),
            self._policy,
            slot_s=self._options.slot_s,
            most_gpus=self._options.most_gpus,
        )
        for job in jobs:
            if decided := sizes.get(job.request.name):
                if job.request.is_replicated:
                    decided = Sizes(workers=decided.workers, servers=0)
                if decided != job.sizes:
                    log.info(
                        "%s: %s, %s",
                        job.request.name,
                        several(decided.workers, "worker"),
                        several(decided.servers, "server"),
                    )
                job.sizes = decided

    def _measure(self, job: _Running, now_s: int) -> None:
        """Takes in the speed of the slot before, if the shape was the same for most of it."""
        if job.mark is None or job.seen is None:
            return
        since_s, step, workers, servers = job.mark
        steps, seconds = job.seen.step - step, now_s - since_s
        job.mark = (now_s, job.seen.step, workers, servers)
        if steps < 1 or seconds < self._options.slot_s / 2:
            return
        speed = steps / seconds
        job.journal.write(
            now_s, "speed", workers=workers, servers=servers, steps_per_s=round(speed, 6)
        )
        job.measured.append(Measurement(workers=workers, servers=servers, steps_per_s=speed))

    def _free(self, room: ClusterRoom) -> list[FreeNode]:
        """What elastic jobs may have: what their tasks hold, and idle resources if nobody queues."""
        partitions = self._partitions(room, *Role)
        found = []
        for node in room.nodes.values():
            usable = partitions & set(node.partitions)
            if not usable:
                continue
            is_open = not self._options.is_polite or not any(map(room.is_contested, usable))
            gpus = sum(gpus for gpus, _ in node.tasks.values()) + is_open * node.free_gpus
            cpus = sum(cpus for _, cpus in node.tasks.values()) + is_open * node.free_cpus
            found.append(FreeNode(gpus=max(gpus, 0), cpus=max(cpus, 0)))
        return found

    def _partitions(self, room: ClusterRoom, *roles: Role) -> set[str]:
        return {
            job.request.of(role).partition or room.default_partition
            for job in self._jobs.values()
            for role in roles
        }

    # --- what is done

    def _given_back(self, room: ClusterRoom) -> set[TaskKey]:
        """Own tasks that leave for others: for jobs that wait, and for the next one to come."""
        if not self._options.is_polite:
            return set()
        extras = self._extras()
        given = set(room.to_give_back(extras))
        for partition in sorted(self._partitions(room, Role.WORKER)):
            given |= set(room.keep_idle(partition, self._options.reserve, extras - given))
        return given

    def _act(
        self, snapshot: Snapshot, room: ClusterRoom, given: Collection[TaskKey], now_s: int
    ) -> None:
        allowed = allowance(
            snapshot, self._user, self._counts, self._options.most_gpus, self._gpus()
        )
        for name, job in list(self._jobs.items()):
            view = self._view(job, room, given, now_s)
            acts = plan(view, job.sizes or _present(job), allowed)
            if not self._actuator.carry_out(job, acts, now_s):
                _lessen(allowed)
            self._keep_to(job, acts)
            numbers = JobNumbers(
                sizes=job.sizes,
                belief=job.belief,
                measured=job.measured,
                trained_gpu_s=job.trained_gpu_s,
            )
            shown = status_table(view, numbers, self._options.slot_s, time.time())
            files.write_status(job.folder, shown)
            if shown["stuck"] not in (None, job.stuck):
                log.warning("%s: Slurm can't start as they are: %s", name, shown["stuck"])
            job.stuck = shown["stuck"]
            if job.journal.record.end:
                log.info("%s: %s, %s", name, job.journal.record.end, job.journal.record.why)
                del self._jobs[name]

    def _view(
        self, job: _Running, room: ClusterRoom, given: Collection[TaskKey], now_s: int
    ) -> JobView:
        ident = job.journal.record.ident
        contested = room.is_contested(job.request.workers.partition)
        return JobView(
            now_s=now_s,
            request=job.request,
            record=job.journal.record,
            jobs={task: found for (owner, task), found in room.own.items() if owner == ident},
            training=job.seen,
            give_back={task for owner, task in given if owner == ident},
            is_stop_asked=(job.folder / files.STOP).exists(),
            grow=not (self._options.is_polite and contested),
            patience=self._options.patience,
        )

    def _extras(self) -> set[TaskKey]:
        """What may be given back."""
        return {
            (job.journal.record.ident, task.name)
            for job in self._jobs.values()
            for role, least in (
                (Role.WORKER, job.request.workers.min),
                (Role.SERVER, job.request.servers.min),
            )
            for task in evictable(job.alive(role), least)
        }

    def _gpus(self) -> int:
        """Of all tasks that are there or on their way."""
        return sum(task.gpus for job in self._jobs.values() for task in job.journal.record.alive)

    def _keep_to(self, job: _Running, acts: list[Act]) -> None:
        """What was given back or withdrawn is not asked for again in this slot."""
        if job.sizes is None or not any(isinstance(act, (DrainTask, Cancel)) for act in acts):
            return
        job.sizes = Sizes(
            workers=min(job.sizes.workers, len(job.alive(Role.WORKER))),
            servers=min(job.sizes.servers, len(job.alive(Role.SERVER))),
        )


def _present(job: _Running) -> Sizes:
    """What it has now: a controller that has just started changes nothing before its first slot."""
    return Sizes(workers=len(job.alive(Role.WORKER)), servers=len(job.alive(Role.SERVER)))


def _lessen(allowed: SubmitAllowance) -> None:
    """After a refusal nothing more is submitted in this cycle."""
    allowed.tasks = 0


def _believe(job: _Running, room: ClusterRoom) -> SpeedBelief:
    request = job.request
    workers, servers = request.workers, request.servers
    whole = max((node.gpus for node in _nodes_of(workers, room)), default=0)
    shape = SpeedShape(
        most_workers=workers.max,
        most_servers=1 if request.is_replicated else servers.max,
        like=request.speed.like,
        shards=workers.shards,
        on_a_node=whole // workers.gpus if workers.gpus else 0,
    )
    return believed_speeds(
        [replace(each, servers=max(each.servers, 1)) for each in job.measured], shape
    )


def _live(job: _Running, room: ClusterRoom) -> LiveJob:
    request, seen = job.request, job.seen
    workers, servers = request.workers, request.servers
    if request.is_replicated:  # policies think in PSs: one that takes nothing
        servers = CountedRequest(min=1, max=1)
    job.belief = _believe(job, room)
    return LiveJob(
        name=request.name,
        epochs=float(request.epochs),
        trained=(seen.step if seen else 0) / request.steps_per_epoch,
        steps_per_s=job.belief.steps_per_s,
        steps_per_epoch=request.steps_per_epoch,
        least=Sizes(workers=workers.min, servers=servers.min),
        most=Sizes(workers=workers.max, servers=servers.max),
        sizes=workers.sizes,
        present=Sizes(
            workers=len(job.alive(Role.WORKER)),
            servers=1 if request.is_replicated else len(job.alive(Role.SERVER)),
        ),
        ran_slots=len(job.measured),
        like=request.speed.like,
        worker=_task_demand(job, Role.WORKER, room),
        server=TaskDemand(gpus=0, cpus=0)
        if request.is_replicated
        else _task_demand(job, Role.SERVER, room),
    )


def _task_demand(job: _Running, role: Role, room: ClusterRoom) -> TaskDemand:
    part = job.request.of(role)
    if not room.is_whole(part.partition):
        return TaskDemand(gpus=part.gpus, cpus=part.cpus)
    nodes = _nodes_of(part, room)
    return TaskDemand(
        gpus=max((node.gpus for node in nodes), default=part.gpus),
        cpus=max((node.cpus for node in nodes), default=part.cpus),
    )


def _nodes_of(part: TaskRequest, room: ClusterRoom) -> list[NodeRoom]:
    partition = part.partition or room.default_partition
    return [node for node in room.nodes.values() if partition in node.partitions]


def _measurements(folder: Path) -> list[Measurement]:
    return [
        Measurement(
            workers=int(event["workers"]),
            servers=int(event["servers"]),
            steps_per_s=float(event["steps_per_s"]),
        )
        for event in read_events(folder / JOURNAL)
        if event["event"] == "speed"
    ]
