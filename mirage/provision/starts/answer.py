"""The answer to `mirage when`: looks at the cluster once, and asks the best method that there is."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple

from mirage.chain.durations import format_duration
from mirage.chain.sbatch import SbatchOption
from mirage.domain import Job, Snapshot
from mirage.errors import ClusterError, InputError, MirageError
from mirage.ports import Cluster
from mirage.provision.starts.at_once import AT_ONCE_S
from mirage.provision.starts.forecast import JobShape, StartForecast
from mirage.provision.starts.forecaster import QueueView, forecast_job, new_job
from mirage.provision.starts.options import shape_of
from mirage.provision.starts.slurms_plan import PLAN, TREES_AND_PLAN
from mirage.provision.starts.words import ahead_words, reason_words
from mirage.reasons import ReasonKind, kind_of
from mirage.slurm.agreement import RESERVED, of_records, of_snapshot, says_reserved
from mirage.slurm.reservations import hindrance
from slurm_sim.admission import Admission
from slurm_sim.config import ClusterConfig, Partition, Reservation, named_nodes
from slurm_sim.errors import InvalidJob
from slurm_sim.jobs import JobSpec
from slurm_sim.seconds import HOUR_S

if TYPE_CHECKING:
    from mirage.provision.starts.walk import NightlyWaits

LEAST_LIMIT_S = 600
"""No shorter limit is proposed."""
MAP_LIMITS_S = tuple(hours * HOUR_S for hours in (1, 4, 12, 24, 72, 168))
"""Time limits of `StartSources.by_size`."""
RECENT_S = 7 * 86_400
"""Records of so many days are read where nothing is learnt yet."""


class SlurmsPlan(NamedTuple):
    """What `sbatch --test-only` says."""

    start_s: int | None = None
    """None: nothing."""
    using: str = ""
    """`using 4 processors on nodes n1 in partition gpu`"""


TestOnly = Callable[[], SlurmsPlan]
"""Raises InputError with sbatch's words where it refuses."""


class StartQuestion(NamedTuple):
    """What sbatch would be given."""

    options: Sequence[SbatchOption]
    """Of the script, the environment and the command line; the last of a name counts."""
    test_only: TestOnly | None = None


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
    ahead: str
    """What stands before it, in words."""
    slurm: str = ""
    """What Slurm itself says; empty: nothing."""
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
    learned: Callable[[], NightlyWaits | None] = lambda: None
    """What the service learnt of this site; None: nothing yet."""
    warn: Callable[[str], None] = lambda _: None
    reservations: Callable[[], Sequence[Reservation]] = tuple
    """Raises ClusterError."""

    def of_shape(self, question: StartQuestion) -> StartAnswer:
        plan = question.test_only() if question.test_only else SlurmsPlan()
        snapshot = self._snapshot
        shape = shape_of(question.options, self._live)
        _check(shape, self._live)
        found = [ShapeForecast(shape, self._of(shape, plan.start_s))]
        if found[0].forecast.method not in (
            PLAN,
            TREES_AND_PLAN,
        ):  # that has no plans of the others
            found += [ShapeForecast(each, self._of(each)) for each in _beside(shape, self._live)]
        return StartAnswer(
            at_s=snapshot.at_s,
            job_id=None,
            ahead=ahead_words(new_job(shape, self._view), snapshot),
            slurm=_planned_words(plan, snapshot.at_s),
            forecasts=tuple(found),
        )

    def by_size(self, question: StartQuestion) -> list[ShapeForecast]:
        """Of such a job with each number of nodes and each time limit that its partitions allow; without
        Slurm's plans, which `sbatch --test-only` would have to be asked for one by one.
        """
        asked = shape_of(question.options, self._live)
        names = set(asked.partition.split(","))
        most = sum(not names.isdisjoint(node.partitions) for node in self._snapshot.nodes)
        sizes = [2**power for power in range(most.bit_length()) if 2**power <= most]
        shapes = (
            replace(_with_nodes(asked, nodes), time_limit_s=limit_s)
            for nodes in dict.fromkeys((*sizes, most))
            for limit_s in MAP_LIMITS_S
        )
        return [
            ShapeForecast(each, self._of(each)) for each in shapes if _is_possible(each, self._live)
        ]

    def of_job(self, job_id: int, task: str = "") -> StartAnswer:
        """``task``: of a job array; empty: the first that is pending."""
        snapshot = self._snapshot
        job = _pending(job_id, task, snapshot)
        forecast = self._beside_reservations(job, self._known(forecast_job(job, self._view), job))
        if kept := "" if job.is_queueing else reason_words(job.reason):
            forecast = replace(forecast, reason=f"{forecast.reason}; {kept}, which is not counted")
        return StartAnswer(
            at_s=snapshot.at_s,
            job_id=job_id,
            task=task,
            ahead=ahead_words(job, snapshot),
            slurm=_slurms_words(job, snapshot.at_s, starts_now=forecast.wait_s[2] <= AT_ONCE_S),
            forecasts=(ShapeForecast(_shape_of(job), forecast),),
        )

    @cached_property
    def _snapshot(self) -> Snapshot:
        snapshot = self.cluster.snapshot()
        for each in of_snapshot(snapshot):
            if each.kind != RESERVED or not self._reserved:  # else the answer says it
                self.warn(f"Slurm's answers disagree: {each}. {each.why}")
        return snapshot

    @cached_property
    def _view(self) -> QueueView:
        return QueueView(
            snapshot=self._snapshot,
            user=self.user,
            ask_records=self._records,
            learned=self.learned(),
        )

    @cached_property
    def _live(self) -> ClusterConfig:
        """As scontrol describes it; where that fails, as sinfo does, which knows no limits."""
        try:
            return self.describe()
        except ClusterError as error:
            self.warn(f"the partitions' limits are not checked: {error}")
            return _of_snapshot(self._snapshot)

    @cached_property
    def _reserved(self) -> Sequence[Reservation]:
        try:
            return self.reservations()
        except ClusterError as error:
            self.warn(f"reservations are not known: {error}")
            return ()

    def _of(self, shape: JobShape, planned_s: int | None = None) -> StartForecast:
        job = replace(new_job(shape, self._view), planned_s=planned_s)
        return self._beside_reservations(job, self._known(forecast_job(job, self._view), job))

    def _known(self, forecast: StartForecast | None, job: Job) -> StartForecast:
        if forecast is None:
            raise MirageError(
                f"no job of {job.partition} was seen to start in the last"
                f" {RECENT_S // 86_400} days, so no wait is known. The service learns it as it runs"
                " (mirage daemon, or mirage agent)."
            )
        return forecast

    def _records(self) -> list[Job]:
        at_s = self._snapshot.at_s
        try:
            records = self.cluster.accounting(at_s - RECENT_S, at_s)
        except ClusterError as error:
            self.warn(f"only the jobs that run now are known: {error}")
            return []
        for each in of_records(records, self._snapshot):
            self.warn(f"Slurm's answers disagree: {each}. {each.why}")
        return records

    def _beside_reservations(self, job: Job, forecast: StartForecast) -> StartForecast:
        """Not before the job fits beside them."""
        found = hindrance(job, self._snapshot, self._reserved)
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
        law = tuple((level, max(found.wait_s, wait_s)) for level, wait_s in forecast.law)
        return replace(forecast, wait_s=(low_s, middle_s, high_s), reason=reason, law=law)


def _shape_of(job: Job) -> JobShape:
    return JobShape(
        nodes=job.nodes,
        time_limit_s=job.time_limit_s,
        partition=job.partition,
        cpus=job.cpus,
        gpus=job.gpus,
        memory_mib=job.memory_mib,
        account=job.account,
    )


def _of_snapshot(snapshot: Snapshot) -> ClusterConfig:
    names = sorted({name for node in snapshot.nodes for name in node.partitions})
    return ClusterConfig(
        named_nodes(node.name for node in snapshot.nodes),
        tuple(
            Partition(name, tuple(node.name for node in snapshot.nodes if name in node.partitions))
            for name in names
        ),
    )


def _check(shape: JobShape, live: ClusterConfig) -> None:
    """Raises InputError for what could never start."""
    try:
        Admission(live).check(_spec(shape))
    except InvalidJob as error:
        raise InputError(f"such a job could never start: {error}.") from error


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
        found.append(_with_nodes(shape, -(-shape.nodes // 2)))
    return [each for each in found if _is_possible(each, live)]


def _with_nodes(shape: JobShape, nodes: int) -> JobShape:
    sizes = {
        name: getattr(shape, name) * nodes // shape.nodes for name in ("cpus", "gpus", "memory_mib")
    }
    return replace(shape, nodes=nodes, **sizes)


def _is_possible(shape: JobShape, live: ClusterConfig) -> bool:
    try:
        _check(shape, live)
    except InputError:
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


def _planned_words(plan: SlurmsPlan, now_s: int) -> str:
    if plan.start_s is None:
        return ""
    return f"plans a start in {format_duration(max(0, plan.start_s - now_s))} {plan.using}"


def _slurms_words(job: Job, now_s: int, *, starts_now: bool) -> str:
    words = []
    if says_reserved(job):
        words.append(job.reason)
    elif job.reason:
        words.append(f"{job.reason}: {reason_words(job.reason)}")
    if job.planned_s:
        planned = f"its start in {format_duration(max(0, job.planned_s - now_s))}"
        is_old = starts_now and job.planned_s - now_s > AT_ONCE_S
        words.append(
            f"had planned {planned}, before nodes came free" if is_old else f"plans {planned}"
        )
    return "; ".join(words)
