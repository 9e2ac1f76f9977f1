"""Carries acts out on Slurm: intent, act, verify.

The intent is in the job's journal before the act, so whatever a crash cuts short is found again:
`adopt` compares the journal with what Slurm shows. A submission without an answer is never
repeated; it is found by its tag, or given up after `UNCLEAR_S`.
"""

from __future__ import annotations

import logging
import shlex
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from mirage.domain import Job, JobState
from mirage.elastic.jobs import folder as files
from mirage.elastic.jobs.capacity import TaskKey
from mirage.elastic.jobs.journal import ElasticTask, JobJournal
from mirage.elastic.jobs.plan import Act, Cancel, DrainTask, Finish, StopTraining, Submit
from mirage.elastic.jobs.request import CountedRequest, JobRequest, Role
from mirage.elastic.jobs.tag import TaskTag, format_task_tag
from mirage.elastic.jobs.training import LiveTraining
from mirage.errors import ClusterUnavailable, Refused
from mirage.ports import Cluster
from slurm_sim.files import write_whole

log = logging.getLogger(__name__)

UNCLEAR_S = 120
"""A submission whose job is not seen for so long was not taken by Slurm."""
NICE = 1_000_000
"""Of extra tasks: they come after everybody else's jobs (sbatch(1), --nice)."""
MINUTE_S = 60
LEASE_SHARE, LEAST_LEASE_S = 0.75, 60
"""Of a slot: an extra task leaves when its lease was not renewed for so long. A cycle may be slow."""
LEASE_POLL_S, LEASE_GRACE_S = 15, 60


@dataclass(kw_only=True)
class ActiveJob:
    """What an actuator needs of a job."""

    folder: Path
    request: JobRequest
    journal: JobJournal
    training: LiveTraining


class Actuator:
    """Acts as the user who runs it."""

    def __init__(self, cluster: Cluster, slot_s: int) -> None:
        self._cluster = cluster
        self._lease_s = max(round(LEASE_SHARE * slot_s), LEAST_LEASE_S)

    def adopt(self, job: ActiveJob, own: Mapping[TaskKey, Job], now_s: int) -> None:
        """Closes open submissions, by what Slurm shows. Raises ClusterError, StoreError.

        A job with the tag of a task that is over or unknown is cancelled: nobody waits for it.
        """
        record = job.journal.record
        mine = {task: found for (ident, task), found in own.items() if ident == record.ident}
        for task in record.alive:
            if task.job_id is None and task.name in mine:
                job.journal.write(now_s, "queued", task=task.name, job_id=mine[task.name].job_id)
            elif task.job_id is None and now_s - task.submitted_s > UNCLEAR_S:
                job.journal.write(now_s, "lost", task=task.name, why="Slurm did not take it")
        strays = [
            found.job_id
            for task, found in mine.items()
            if found.state is not JobState.COMPLETING
            and (task not in record.tasks or not record.tasks[task].is_alive)
        ]
        if strays:
            log.warning("%s: jobs %s of no task are cancelled", record.name, strays)
            self._cluster.cancel(strays)

    def resume(self, job: ActiveJob) -> None:
        """Does again what a crash may have kept from being done: messages and cancellations.

        Both may be repeated. Raises ClusterError.
        """
        alive = job.journal.record.alive
        cancelled = [task.job_id for task in alive if task.cancelled_s and task.job_id]
        if cancelled:
            self._cluster.cancel(cancelled)
        job.training.drain([task.name for task in alive if is_drained(task)])

    def carry_out(self, job: ActiveJob, acts: Sequence[Act], now_s: int) -> bool:
        """Returns whether Slurm took all submissions. Raises ClusterError, StoreError."""
        taken = True
        # A message to a coordinator that was restarting is lost, so it is repeated.
        drains = {task.name: task.why for task in job.journal.record.alive if is_drained(task)}
        for act in acts:
            match act:
                case Submit():
                    taken = taken and self._submit(job, act, now_s)
                case DrainTask(task=task, why=why):
                    job.journal.write(now_s, "drain", task=task, why=why)
                    drains[task] = why
                case StopTraining(why=why):
                    if job.journal.record.stop_s is None:
                        job.journal.write(now_s, "stop", why=why)
                    job.training.stop()
                case Finish(state=state, why=why):
                    job.journal.write(now_s, "end", state=state, why=why)
                case Cancel():
                    pass
        cancels = {act.task: act.why for act in acts if isinstance(act, Cancel)}
        for task in job.training.drain([task for task in drains if task not in cancels]):
            cancels[task] = drains[task]
        self._cancel(job, cancels, now_s)
        return taken

    def _cancel(self, job: ActiveJob, cancels: Mapping[str, str], now_s: int) -> None:
        """``cancels``: task -> why."""
        tasks = job.journal.record.tasks
        ids = []
        for task, why in cancels.items():
            # Without an id it may be on its way to Slurm: `adopt` finds it, and the next cycle
            # cancels it.
            if (job_id := tasks[task].job_id) is not None:
                job.journal.write(now_s, "cancel", task=task, why=why)
                ids.append(job_id)
        if ids:
            self._cluster.cancel(ids)

    def _submit(self, job: ActiveJob, act: Submit, now_s: int) -> bool:
        record = job.journal.record
        name = record.next_name(act.role)
        if (minutes := _minutes_left(job, now_s)) < 1:
            return False
        lease_s = self._lease_s if act.is_extra else None
        script = write_script(job.folder, job.request, act.role, name, lease_s)
        tag = TaskTag(job=record.ident, task=name, is_extra=act.is_extra)
        args = sbatch_options(job.folder, job.request, tag, minutes)
        gpus = job.request.of(act.role).gpus
        job.journal.write(now_s, "submit", task=name, extra=act.is_extra, gpus=gpus)
        try:
            job_id = self._cluster.submit(args, str(script))
        except Refused as error:
            job.journal.write(now_s, "refused", task=name, why=str(error))
            log.warning("%s: task %s is refused: %s", record.name, name, error)
            return False
        except ClusterUnavailable as error:
            log.warning("%s: whether task %s is queued is not known: %s", record.name, name, error)
            return False
        job.journal.write(now_s, "queued", task=name, job_id=job_id)
        return True


def is_drained(task: ElasticTask) -> bool:
    """Whether it was asked to leave, and not cancelled yet."""
    return task.drained_s is not None and task.cancelled_s is None


def _minutes_left(job: ActiveJob, now_s: int) -> int:
    """Of the job's own time; its tasks get no more."""
    deadline_s = job.journal.record.deadline_s
    left_s = job.request.time_s if deadline_s is None else deadline_s - now_s
    return left_s // MINUTE_S


def sbatch_options(folder: Path, request: JobRequest, tag: TaskTag, minutes: int) -> list[str]:
    """What sbatch is called with for a task; pure."""
    part = request.of(tag.role)
    return [
        f"--job-name={request.name}-{tag.task}",
        f"--comment={format_task_tag(tag)}",
        f"--time={minutes}",
        f"--output={folder / files.LOGS / tag.task}.%j.out",
        f"--chdir={folder}",
        "--no-requeue",
        "--nodes=1",
        "--ntasks=1",
        f"--cpus-per-task={part.cpus}",
        *([f"--gpus-per-node={part.gpus}"] if part.gpus else []),
        *([f"--mem={part.memory}"] if part.memory else []),
        *([f"--partition={part.partition}"] if part.partition else []),
        *([f"--nice={NICE}"] if tag.is_extra else []),
        *part.options,
        *(part.extra_options if tag.is_extra and isinstance(part, CountedRequest) else ()),
    ]


def write_script(
    folder: Path, request: JobRequest, role: Role, name: str, lease_s: int | None = None
) -> Path:
    """The batch script of a task; slurmctld keeps its own copy. Raises OSError."""
    path = folder / files.SCRIPT
    write_whole(path, batch_script(folder, request, role, name, lease_s), 0o700)
    return path


def batch_script(
    folder: Path, request: JobRequest, role: Role, name: str, lease_s: int | None = None
) -> str:
    """`exec`, so that Slurm's signals reach the process itself; pure.

    ``lease_s``: of an extra task; None: it needs no lease.
    """
    runtime = str(folder / files.RUNTIME)
    words = [sys.executable, "-m", f"mirage.elastic.runtime.{role.value}", "--folder", runtime]
    if role is not Role.COORDINATOR:
        words += ["--name", name]
    if role is Role.WORKER:
        words += ["--plane", request.plane, "--", request.script, *request.arguments]
    lease = "" if lease_s is None else lease_watch(folder / files.LEASE, lease_s)
    return f"#!/bin/sh\n{lease}cd {shlex.quote(request.folder)} || exit\nexec {shlex.join(words)}\n"


def lease_watch(lease: Path, lease_s: int) -> str:
    """Lines of a batch script: SIGTERM to its process once the file has not changed for ``lease_s``.

    A change counts, not its time: clocks of nodes differ. The process is asked as Slurm would ask.
    """
    poll_s = max(min(lease_s // 4, LEASE_POLL_S), 1)
    return f"""\
watch_lease() {{
  seen= since=$(date +%s)
  while sleep {poll_s} && kill -0 $$ 2>/dev/null; do
    now=$(cat {shlex.quote(str(lease))} 2>/dev/null)
    if [ "$now" != "$seen" ]; then
      seen=$now since=$(date +%s)
    elif [ $(($(date +%s) - since)) -ge {lease_s} ]; then
      echo "no controller has renewed the lease for {lease_s} s: the task leaves" >&2
      kill -TERM $$
      sleep {LEASE_GRACE_S}
      kill -KILL $$
      return
    fi
  done
}}
(watch_lease &)
"""
