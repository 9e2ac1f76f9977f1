"""What is to be done about one elastic job now: what is seen and wanted -> acts. Pure.

A controller calls `plan` in each cycle and carries the acts out (`act.py`). A task that ended by
itself, by preemption or by anybody's hand is a removal: what is missing is submitted again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from mirage.domain import Job, JobState
from mirage.elastic.jobs.journal import ElasticRecord, ElasticTask
from mirage.elastic.jobs.request import CountedRequest, JobRequest, Role
from mirage.elastic.jobs.sizes import Sizes
from mirage.elastic.jobs.training import TrainingStatus

STOP_LEAD_S = 90
"""The training is asked to save and to end so long before the job's time is up."""
SHORT_S = 60
"""A task that failed within this of its start counts as one that can't run."""
MOST_FAILURES = 3
"""After so many of those in a row the job has failed, unless others of the role run well."""
_ITS_OWN_FAULT = frozenset({JobState.FAILED.value, JobState.OUT_OF_MEMORY.value})


@dataclass(frozen=True, kw_only=True)
class Submit:
    """Queue a new task."""

    role: Role
    is_extra: bool


@dataclass(frozen=True, kw_only=True)
class DrainTask:
    """Ask a task to leave, by a message to the coordinator."""

    task: str
    why: str


@dataclass(frozen=True, kw_only=True)
class Cancel:
    """End a task's Slurm job."""

    task: str
    why: str


@dataclass(frozen=True, kw_only=True)
class StopTraining:
    """Ask the coordinator to save the state and to end all tasks."""

    why: str


@dataclass(frozen=True, kw_only=True)
class Finish:
    """The job is over; it has no task left."""

    state: str
    why: str


Act = Submit | DrainTask | Cancel | StopTraining | Finish


@dataclass(frozen=True, kw_only=True)
class TaskPatience:
    """Seconds after which something else is tried."""

    drain_s: int = 60
    """From the message to the cancellation of a task that has not left."""
    extra_s: int = 45
    """An extra task that has not started by then is withdrawn."""
    failure_s: int = 600
    """After `MOST_FAILURES` of a role no extra task of it is submitted for so long."""


@dataclass(kw_only=True)
class SubmitAllowance:
    """Tasks that may still be submitted in this cycle; shared by all jobs of a controller."""

    tasks: int
    """By MaxSubmitJobs."""
    extras: int
    """By MaxJobs, too."""
    gpus: int
    """By the user's own cap; extras only."""

    def take(self, *, is_extra: bool, gpus: int) -> bool:
        """Whether one more may be submitted; counts it."""
        if self.tasks < 1 or (is_extra and (self.extras < 1 or self.gpus < gpus)):
            return False
        self.tasks -= 1
        self.extras -= 1
        self.gpus -= gpus
        return True


@dataclass(frozen=True, kw_only=True)
class JobView:
    """An elastic job now."""

    now_s: int
    request: JobRequest
    record: ElasticRecord
    jobs: Mapping[str, Job]
    """ElasticTask -> what Slurm shows of it."""
    training: TrainingStatus | None
    """None: the coordinator does not answer, or there is none."""
    give_back: Collection[str] = ()
    """Tasks whose place somebody else waits for."""
    is_stop_asked: bool = False
    """Its owner wants it to end."""
    grow: bool = True
    """Whether extra tasks may be submitted: nobody queues for their nodes."""
    patience: TaskPatience = field(default_factory=TaskPatience)

    def alive(self, role: Role) -> list[ElasticTask]:
        """Tasks of a role that stay, oldest first."""
        return [task for task in self.record.alive if task.role is role and not task.is_leaving]

    def is_running(self, task: ElasticTask) -> bool:
        job = self.jobs.get(task.name)
        return job is not None and job.state.has_nodes


def plan(view: JobView, wanted: Sizes, allowance: SubmitAllowance) -> list[Act]:
    """The acts of a cycle, in their order. ``allowance`` is lessened by what is submitted."""
    record = view.record
    if reason := _reason_to_end(view):
        return list(_ending(view, *reason))
    acts = [*_overdue(view)]
    coordinators = view.alive(Role.COORDINATOR)
    if not coordinators:
        acts += _submissions(view, Role.COORDINATOR, 1, allowance)
    # Without a coordinator a worker would hold its GPU and wait.
    is_coordinated = any(view.is_running(task) for task in coordinators)
    for role, request, count in (
        (Role.SERVER, view.request.servers, wanted.servers),
        (Role.WORKER, view.request.workers, wanted.workers),
    ):
        count = min(max(count, request.min), request.max)
        acts += _leaving(view, role, request, count)
        if is_coordinated:
            acts += _submissions(view, role, count, allowance)
    withdrawn = {act.task for act in acts if isinstance(act, (Cancel, DrainTask))}
    assert len(withdrawn) == sum(isinstance(act, (Cancel, DrainTask)) for act in acts), record.name
    return acts


# --- the end


def _reason_to_end(view: JobView) -> tuple[str, str] | None:
    """(state, why), once the job is to end."""
    record = view.record
    if view.training and view.training.is_finished:
        return "done", "the training is finished"
    if record.stop_s is not None:
        state, _, why = record.why.partition(": ")
        return state, why
    if view.is_stop_asked:
        return "stopped", "its owner stopped it"
    if record.deadline_s is not None and view.now_s >= record.deadline_s - STOP_LEAD_S:
        return "time limit", f"its time of {view.request.time} is up"
    failed = failing_task(record)
    if failed and not _any_settled(view, failed.role):
        return "failed", (
            f"{MOST_FAILURES} {failed.role.value}s in a row failed within {SHORT_S} s of their"
            f" start, the last {failed.name}: see logs/{failed.name}.{failed.job_id}.out"
        )
    return None


def failing_task(record: ElasticRecord) -> ElasticTask | None:
    """The last of `MOST_FAILURES` tasks of a role that failed one after the other, at once."""
    for role in Role:
        over = [
            task
            for task in record.tasks.values()
            if task.role is role and task.start_s and task.submitted_s >= (record.resumed_s or 0)
        ]
        last = [task for task in over if not task.is_alive][-MOST_FAILURES:]
        if len(last) == MOST_FAILURES and all(_failed_at_once(task) for task in last):
            return last[-1]
    return None


def _any_settled(view: JobView, role: Role) -> bool:
    """Whether a task of the role has run for longer: then it is not the job that can't run."""
    starts = [
        job.start_s
        for task in view.record.alive
        if task.role is role and (job := view.jobs.get(task.name)) and job.state.has_nodes
    ]
    return any(start_s is not None and view.now_s - start_s >= SHORT_S for start_s in starts)


def _failed_at_once(task: ElasticTask) -> bool:
    return (
        task.end in _ITS_OWN_FAULT
        and not task.is_leaving
        and (task.end_s or 0) - (task.start_s or 0) < SHORT_S
    )


def _ending(view: JobView, state: str, why: str) -> Iterator[Act]:
    record = view.record
    if not record.alive:
        yield Finish(state=state, why=why)
        return
    begun_s = view.now_s if record.stop_s is None else record.stop_s
    is_late = view.now_s - begun_s >= view.patience.drain_s
    is_saved = view.training is not None and view.training.state == "stopped"
    can_ask = view.training is not None or any(
        view.is_running(task) for task in view.alive(Role.COORDINATOR)
    )
    if record.stop_s is None or (can_ask and not is_saved):
        yield StopTraining(why=f"{state}: {why}")
    for task in record.alive:
        is_pending = not view.is_running(task)
        if task.cancelled_s is None and (is_pending or is_saved or not can_ask or is_late):
            yield Cancel(task=task.name, why=why)


# --- fewer


def _overdue(view: JobView) -> Iterator[Act]:
    """Tasks that were asked to leave, or cancelled, and are still there."""
    for task in view.record.alive:
        if task.cancelled_s is not None:
            if view.now_s - task.cancelled_s >= view.patience.drain_s:
                yield Cancel(task=task.name, why=task.why)
        elif task.drained_s is None:
            continue
        elif view.training and task.name in view.training.drained:
            yield Cancel(task=task.name, why=task.why)
        elif view.now_s - task.drained_s >= view.patience.drain_s:
            yield Cancel(task=task.name, why=f"{task.why}; it did not leave in time")


def _leaving(view: JobView, role: Role, request: CountedRequest, count: int) -> Iterator[Act]:
    there = view.alive(role)
    chosen = {task.name: why for task, why in _withdrawn(view, there)}
    for task in evictable(there, request.min):
        if task.name in view.give_back:
            chosen.setdefault(task.name, "somebody queues for its place")
    surplus = len(there) - len(chosen) - count
    for task in evictable([task for task in there if task.name not in chosen], request.min):
        if surplus > 0:
            chosen[task.name] = "the policy gives the job fewer"
            surplus -= 1
    for task in there:
        if task.name in chosen:
            yield _leave(view, task, chosen[task.name])


def _withdrawn(view: JobView, there: Sequence[ElasticTask]) -> Iterator[tuple[ElasticTask, str]]:
    """Extras that wait in the queue although others do, or for too long."""
    for task in there:
        job = view.jobs.get(task.name)
        if task.is_extra and job is not None and job.is_pending:
            if not view.grow:
                yield task, "somebody queues for its place"
            elif view.now_s - task.submitted_s >= view.patience.extra_s:
                yield task, f"no place for it within {view.patience.extra_s} s ({job.reason})"


def _leave(view: JobView, task: ElasticTask, why: str) -> Act:
    """By a message if it runs and there is somebody to ask."""
    if view.is_running(task) and view.training is not None:
        return DrainTask(task=task.name, why=why)
    return Cancel(task=task.name, why=why)


def evictable(there: Sequence[ElasticTask], least: int) -> list[ElasticTask]:
    """Tasks of a role beyond the least number, in the order in which they go: extras first, the
    newest of them first.
    """
    order = sorted(there, key=lambda task: (not task.is_extra, -task.submitted_s, -task.number))
    return order[: max(len(there) - least, 0)]


# --- more


def _submissions(
    view: JobView, role: Role, count: int, allowance: SubmitAllowance
) -> Iterator[Act]:
    there = view.alive(role)
    # A task that leaves still counts until it is gone, or its place would be taken twice.
    least = 1 if role is Role.COORDINATOR else _counted(view.request, role).min
    base, total = sum(not task.is_extra for task in there), len(there)
    gpus = view.request.of(role).gpus
    failed = failing_task(view.record)
    may_grow = view.grow and not (
        failed is not None
        and failed.role is role
        and view.now_s - (failed.end_s or 0) < view.patience.failure_s
    )
    while total < count:
        is_extra = base >= least
        if is_extra and not may_grow:
            return
        if not allowance.take(is_extra=is_extra, gpus=gpus):
            return
        base, total = base + (not is_extra), total + 1
        yield Submit(role=role, is_extra=is_extra)


def _counted(request: JobRequest, role: Role) -> CountedRequest:
    return request.servers if role is Role.SERVER else request.workers
