"""The answer to `mirage when`: looks at the cluster once, and asks the best method that there is."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from mirage.chain.durations import format_duration
from mirage.domain import Job, Snapshot
from mirage.errors import ClusterError, InputError, MirageError
from mirage.models.folder import check_folder
from mirage.ports import Cluster
from mirage.provision.learn import futures as trained
from mirage.provision.learn.about import ProvisionAbout
from mirage.provision.learn.forecast import CLUSTER, read_cluster
from mirage.provision.learn.futures import Futures
from mirage.provision.starts.ahead import StartsAhead, forecast_ahead
from mirage.provision.starts.forecast import AS_IT_IS, JobShape, QuantileCalibration, StartForecast
from mirage.provision.starts.like_jobs import RECENT_S, forecast_from_like_jobs, recent_waits
from mirage.provision.starts.records import futures_of
from mirage.provision.starts.regression import WaitRegression
from mirage.reasons import ReasonKind, kind_of
from mirage.slurm.agreement import RESERVED, of_records, of_snapshot, says_reserved
from mirage.slurm.limits import LIMITS
from mirage.slurm.reservations import hindrance, with_reservations
from slurm_sim.admission import Admission
from slurm_sim.config import ClusterConfig, Partition, Reservation, named_nodes
from slurm_sim.errors import InvalidJob, SimulationError
from slurm_sim.jobs import JobSpec

LEAST_LIMIT_S = 600
"""No shorter limit is proposed."""


class StartQuestion(NamedTuple):
    """A shape as it was asked for; None: Slurm's default."""

    nodes: int
    time_limit_s: int | None
    partition: str | None


class ShapeForecast(NamedTuple):
    shape: JobShape
    forecast: StartForecast


@dataclass(frozen=True, kw_only=True)
class StartAnswer:
    at_s: int
    """When the queue was read."""
    job_id: int | None
    """None: it is about a shape."""
    task: str = ""
    """Of a job array; empty: none was asked for."""
    forecasts: tuple[ShapeForecast, ...]
    """Of what was asked, then of shapes beside it."""


@dataclass(frozen=True, kw_only=True)
class StartSources:
    """Where the answer comes from. Raises ClusterError, InputError, MirageError."""

    cluster: Cluster
    describe: Callable[[], ClusterConfig]
    """The live cluster (`scontrol show`); raises ClusterError."""
    user: str
    """Who would submit the shape."""
    model: str = ""
    """A model folder; empty: none."""
    calibration: QuantileCalibration = AS_IT_IS
    """Of look-ahead with this model."""
    regression: WaitRegression | None = None
    """Of past waits; it answers for shapes in place of look-ahead."""
    futures: int = 64
    warn: Callable[[str], None] = lambda _: None

    reservations: Callable[[], Sequence[Reservation]] = tuple
    """Raises ClusterError."""

    def of_shape(self, question: StartQuestion) -> StartAnswer:
        snapshot = self._snapshot()
        live = self._live(snapshot, question)
        shape = _checked(question, live)
        shapes = [shape, *_beside(shape, live)]
        return StartAnswer(
            at_s=snapshot.at_s,
            job_id=None,
            forecasts=tuple(self._forecasts(shapes, snapshot)),
        )

    def of_job(self, job_id: int, task: str = "") -> StartAnswer:
        """``task``: of a job array; empty: the first that is pending."""
        snapshot = self._snapshot()
        job, snapshot = _alone(_pending(job_id, task, snapshot), snapshot)
        shape = JobShape(nodes=job.nodes, time_limit_s=job.time_limit_s, partition=job.partition)
        records = self._records(snapshot)
        forecast = self._ahead_of_job(job, snapshot, records) or self._like(job, snapshot, records)
        forecast = self._beside_reservations(job, snapshot, forecast)
        kept = _kept_back(job, forecast.method) + _slurms_plan(job, snapshot.at_s, forecast)
        forecast = replace(forecast, reason=forecast.reason + kept)
        forecasts = (ShapeForecast(shape, forecast),)
        return StartAnswer(at_s=snapshot.at_s, job_id=job_id, task=task, forecasts=forecasts)

    def _snapshot(self) -> Snapshot:
        snapshot = self.cluster.snapshot()
        for each in of_snapshot(snapshot):
            if each.kind != RESERVED or not self._reserved:  # else the answer says it
                self.warn(f"Slurm's answers disagree: {each}. {each.why}")
        return snapshot

    @cached_property
    def _reserved(self) -> Sequence[Reservation]:
        try:
            return self.reservations()
        except ClusterError as error:
            self.warn(f"reservations are not known: {error}")
            return ()

    def _beside_reservations(
        self, job: Job, snapshot: Snapshot, forecast: StartForecast
    ) -> StartForecast:
        """Not before the job fits beside them."""
        found = hindrance(job, snapshot, self._reserved)
        if found is None or found.wait_s <= forecast.wait_s[0]:
            return forecast
        low_s, middle_s, high_s = (max(found.wait_s, wait_s) for wait_s in forecast.wait_s)
        ends = time.strftime("%m-%d %H:%M", time.localtime(found.reservation.end_s))
        reason = (
            f"it would run into reservation {found.reservation.name}, which ends at {ends}, and Slurm"
            " starts no such job before"
        )
        if found.wait_s < forecast.wait_s[2]:
            reason += f"; else {forecast.reason}"
        return replace(forecast, wait_s=(low_s, middle_s, high_s), reason=reason)

    def _live(self, snapshot: Snapshot, question: StartQuestion) -> ClusterConfig:
        """As scontrol describes it; where that fails, as sinfo does, which names no default
        partition and no limits.
        """
        try:
            return self.describe()
        except ClusterError as error:
            self.warn(f"the partitions' limits are not checked: {error}")
        found = _of_snapshot(snapshot)
        if question.partition is None and len(found.partitions) > 1:
            names = ", ".join(partition.name for partition in found.partitions)
            raise InputError(f"give a partition, -p: this cluster has {names}.")
        return found

    def _forecasts(self, shapes: Sequence[JobShape], snapshot: Snapshot) -> list[ShapeForecast]:
        first_id = max((job.job_id for job in snapshot.jobs), default=0) + 1
        jobs = [
            shape.job(first_id + number, self.user, snapshot.at_s)
            for number, shape in enumerate(shapes)
        ]
        records = self._records(snapshot)
        found = self._ahead_of_shapes(jobs, snapshot, records) or [
            self._like(job, snapshot, records) for job in jobs
        ]
        found = [
            self._beside_reservations(job, snapshot, forecast)
            for job, forecast in zip(jobs, found, strict=True)
        ]
        return [ShapeForecast(*pair) for pair in zip(shapes, found, strict=True)]

    def _records(self, snapshot: Snapshot) -> list[Job]:
        try:
            records = self.cluster.accounting(snapshot.at_s - RECENT_S, snapshot.at_s)
            for each in of_records(records, snapshot):
                self.warn(f"Slurm's answers disagree: {each}. {each.why}")
            return records
        except ClusterError as error:
            self.warn(f"only the jobs that run now are known: {error}")
            return []

    # ---- by the waits of like jobs

    def _like(self, job: Job, snapshot: Snapshot, records: Sequence[Job]) -> StartForecast:
        samples = recent_waits(records, snapshot, job)
        forecast = forecast_from_like_jobs(job, samples, snapshot)
        if forecast is None:
            raise MirageError(
                f"no job of {job.partition} was seen to start in the last"
                f" {RECENT_S // 86_400} days, so no wait is known; give --model."
            )
        return forecast

    # ---- by simulated futures

    def _futures(self, records: Sequence[Job], now_s: int) -> Futures | None:
        """Of a folder of futures; of a model the cluster, with habits from the records."""
        if not self.model:
            return None
        folder = Path(self.model)
        recipe = check_folder(folder, system=ProvisionAbout.SYSTEM)
        if recipe.method == trained.NAME:
            return trained.read(folder)
        if not (folder / CLUSTER).exists():
            raise InputError(f"{folder}: has no {CLUSTER}; give another model folder.")
        cluster = read_cluster(folder)
        try:
            return futures_of(records, cluster, now_s)
        except InputError as error:
            self.warn(f"without look-ahead: {error}")
            return None

    def _ahead_of_shapes(
        self, jobs: Sequence[Job], snapshot: Snapshot, records: Sequence[Job]
    ) -> list[StartForecast]:
        """Empty: not possible."""

        def ask(futures: Futures) -> list[StartForecast]:
            if found := self._by_regression(jobs, snapshot, records, futures.cluster):
                return found
            waits_s = StartsAhead(futures, snapshot, jobs, records, self.futures).waits_s()
            return [forecast_ahead(waits_s[job.job_id], self.calibration) for job in jobs]

        return self._asked(ask, records, snapshot) or []

    def _by_regression(
        self,
        jobs: Sequence[Job],
        snapshot: Snapshot,
        records: Sequence[Job],
        cluster: ClusterConfig,
    ) -> list[StartForecast]:
        """Empty: there is none, or no job of their pool has started."""
        if self.regression is None:
            return []
        found = [self.regression.ask(job, snapshot, records, cluster) for job in jobs]
        known = [forecast for forecast in found if forecast is not None]
        return known if len(known) == len(jobs) else []

    def _ahead_of_job(
        self, job: Job, snapshot: Snapshot, records: Sequence[Job]
    ) -> StartForecast | None:
        def ask(futures: Futures) -> list[StartForecast]:
            left_s = StartsAhead(futures, snapshot, count=self.futures).left_s(job.job_id)
            return [forecast_ahead(left_s, self.calibration)]

        found = self._asked(ask, records, snapshot)
        return found[0] if found else None

    def _asked(
        self,
        ask: Callable[[Futures], list[StartForecast]],
        records: Sequence[Job],
        snapshot: Snapshot,
    ) -> list[StartForecast] | None:
        futures = self._futures(records, snapshot.at_s)
        if futures is None:
            return None
        if self._reserved:
            cluster = with_reservations(futures.cluster, self._reserved)
            futures = replace(futures, cluster=cluster)
        try:
            return ask(futures)
        except (InputError, SimulationError) as error:
            self.warn(f"without look-ahead, since it does not fit the live cluster: {error}")
            return None


def _of_snapshot(snapshot: Snapshot) -> ClusterConfig:
    names = sorted({name for node in snapshot.nodes for name in node.partitions})
    return ClusterConfig(
        named_nodes(node.name for node in snapshot.nodes),
        tuple(
            Partition(name, tuple(node.name for node in snapshot.nodes if name in node.partitions))
            for name in names
        ),
    )


def _checked(question: StartQuestion, live: ClusterConfig) -> JobShape:
    """With Slurm's defaults filled in. Raises InputError for what could never start."""
    names = [partition.name for partition in live.partitions]
    partition = question.partition or names[0]
    if unknown := [name for name in partition.split(",") if name not in names]:
        raise InputError(
            f"partition {unknown[0]!r} does not exist; this cluster has {', '.join(names)}."
        )
    default = next(item for item in live.partitions if item.name == partition.split(",")[0])
    limit_s = question.time_limit_s or default.default_time_s or default.max_time_s
    shape = JobShape(nodes=question.nodes, time_limit_s=limit_s, partition=partition)
    asked = [item for item in live.partitions if item.name in partition.split(",")]
    most_s = max(item.max_time_s or math.inf for item in asked)
    if limit_s is not None and limit_s > most_s:
        raise InputError(
            f"such a job could never start: a limit of {format_duration(limit_s)}; partition"
            f" {partition!r} allows {format_duration(most_s)}."
        )
    try:
        Admission(live).check(_spec(shape))
    except InvalidJob as error:
        raise InputError(f"such a job could never start: {error}.") from error
    return shape


def _spec(shape: JobShape) -> JobSpec:
    return JobSpec(
        shape.nodes, shape.time_limit_s, partition=shape.partition, memory_mib_per_node=1
    )


def _beside(shape: JobShape, live: ClusterConfig) -> list[JobShape]:
    """Shapes that ask for less: half the time, half the nodes."""
    found = []
    if shape.time_limit_s and shape.time_limit_s // 2 >= LEAST_LIMIT_S:
        found.append(replace(shape, time_limit_s=shape.time_limit_s // 2))
    if shape.nodes > 1:
        found.append(replace(shape, nodes=-(-shape.nodes // 2)))
    return [each for each in found if _is_possible(each, live)]


def _is_possible(shape: JobShape, live: ClusterConfig) -> bool:
    try:
        Admission(live).check(_spec(shape))
    except InvalidJob:
        return False
    return True


def _pending(job_id: int, task: str, snapshot: Snapshot) -> Job:
    """Raises InputError: it is not in the queue, or could never start as it is."""
    jobs = [job for job in snapshot.jobs if job.job_id == job_id]
    if not jobs:
        raise InputError(f"job {job_id} is not in the queue (squeue).")
    job = next((job for job in jobs if task in ("", job.array_task)), None)
    if job is None:
        raise InputError(
            f"task {task} of job array {job_id} does not wait in the queue; it may have started:"
            f" squeue -j {job_id}_{task}."
        )
    if not job.is_pending:
        raise InputError(f"job {job_id} is {job.state.value} already; it has started.")
    kind = kind_of(job.reason)
    if job.reason == "DependencyNeverSatisfied" or kind is ReasonKind.CANNOT_RUN:
        raise InputError(
            f"job {job_id} can't ever start as it is: Slurm says {job.reason}. Change it (scontrol"
            " update), or submit one that fits."
        )
    if job.has_zero_priority or kind is ReasonKind.HELD:
        raise InputError(
            f"job {job_id} is held ({job.reason}), so it does not start: scontrol release {job_id}."
        )
    return job


def _alone(job: Job, snapshot: Snapshot) -> tuple[Job, Snapshot]:
    """With an id of its own, as tasks have that Slurm has split off."""
    if sum(each.job_id == job.job_id for each in snapshot.jobs) == 1:
        return job, snapshot
    own = replace(job, job_id=max(each.job_id for each in snapshot.jobs) + 1)
    jobs = tuple(own if each is job else each for each in snapshot.jobs)
    return own, replace(snapshot, jobs=jobs)


def _slurms_plan(job: Job, now_s: int, forecast: StartForecast) -> str:
    """Where Slurm says something else of this job."""
    words = f"; Slurm says: {job.reason}" if says_reserved(job) else ""
    wait_s = (job.planned_s or 0) - now_s
    if wait_s > max(forecast.wait_s[2], LEAST_LIMIT_S):
        words += f"; Slurm itself plans its start later, in {format_duration(wait_s)}"
    return words


def _kept_back(job: Job, method: str) -> str:
    """What is to be added for a job that something else than the lack of nodes keeps back."""
    if job.is_queueing or (method == "look-ahead" and job.reason in LIMITS):
        return ""
    return f"; it waits for {job.reason} besides, which is not counted"
