"""The Cluster port on PySlurm: queue and nodes come from slurmctld without a process each time, all
else by commands.

Names and files below are those of PySlurm 25.11.2. Its other calls can't do what the port promises,
or lose something:

- `JobSubmitDescription` has no way to send an empty dependency (core/job/submission.pyx), and none
  to run a script with
  the sbatch options that users write;
- `Job.cancel` judges by errno even where slurmctld agreed (`send_signal`, core/job/job.pyx);
- `Job.exit_code` takes 128 off codes from 128 on (`_get_exit_code`, utils/helpers.pyx), and
  `dependencies` leaves out
  what it does not know, `singleton(unfulfilled)` too (`dependency_str_to_dict`, core/job/util.pyx).
  So single jobs, which are what Mirage acts on, are read as Slurm prints them;
- `db.Jobs` keeps one record a job id where a requeued job has several (db/job.pyx), and there are
  no node events.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any, Protocol

from mirage.domain import ClusterNode, Job, NodeEvent, Settings, Snapshot
from mirage.errors import ClusterNonsense, ClusterUnavailable
from mirage.ports import Cluster
from mirage.slurm import failures, fields, parsing
from mirage.slurm.oddities import OddityLog


class Module(Protocol):
    """What is used of the package `pyslurm`."""

    Jobs: Any
    Nodes: Any
    RPCError: type[Exception]


def _unix_now() -> int:
    return int(time.time())


class PyslurmCluster(Cluster):
    """A real Slurm. ``commands`` is asked for everything but snapshots, and for a snapshot that
    PySlurm can't give.

    PySlurm waits in the process, for Slurm's MessageTimeout and not for ours; and it reads as the
    user who runs this.
    """

    def __init__(
        self, pyslurm: Module, commands: Cluster, *, now_s: Callable[[], int] = _unix_now
    ) -> None:
        self._pyslurm = pyslurm
        self._commands = commands
        self._now_s = now_s
        self._oddities = OddityLog()

    def snapshot(self) -> Snapshot:
        """The whole queue and all nodes: three requests to slurmctld (jobs; nodes and their
        partitions).
        """
        at_s = self._now_s()
        try:
            records = self._pyslurm.Jobs.load().values()
            nodes = tuple(map(node, self._pyslurm.Nodes.load().values()))
            jobs = queued_jobs(records, at_s)
        except self._pyslurm.RPCError as error:
            hint = f" {failures.advice('pyslurm')}" if failures.is_transient(str(error)) else ""
            raise ClusterUnavailable(f"PySlurm: {error}.{hint}") from error
        # a comment that is no UTF-8, a list of array tasks cut short: a user's job, not an outage
        except ValueError:
            return self._commands.snapshot()
        if not nodes:
            raise ClusterNonsense(
                "PySlurm: no nodes, but every cluster has some. Nothing was done; retry later."
            )
        oddities = tuple(oddity for job in jobs for oddity in parsing.oddities_of(job))
        self._oddities.report(oddities)
        return Snapshot(at_s=at_s, jobs=jobs, nodes=nodes, oddities=oddities)

    def queue_of(self, user: str) -> Snapshot:
        return self._commands.queue_of(user)

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        return self._commands.jobs(job_ids)

    def accounting(
        self, start_s: int, end_s: int, job_ids: Collection[int] | None = None
    ) -> list[Job]:
        return self._commands.accounting(start_s, end_s, job_ids)

    def submissions(self, start_s: int, end_s: int, users: Collection[str]) -> list[Job]:
        return self._commands.submissions(start_s, end_s, users)

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:
        return self._commands.node_events(start_s, end_s)

    def settings(self) -> Settings:
        return self._commands.settings()

    def submit(self, args: Sequence[str], script: str) -> int:
        return self._commands.submit(args, script)

    def release(self, job_id: int) -> None:
        self._commands.release(job_id)

    def cancel(self, job_ids: Collection[int]) -> None:
        self._commands.cancel(job_ids)


def queued_jobs(records: Collection[Any], now_s: int) -> tuple[Job, ...]:
    """Those of `pyslurm.Jobs` that are pending or hold nodes, which is what squeue shows. Raises
    ValueError.
    """
    users: dict[int, str] = {}
    jobs = (parsing.queued_job(row, now_s) for record in records for row in _rows(record, users))
    return tuple(job for job in jobs if not job.state.is_over)


def _rows(job: Any, users: dict[int, str]) -> Iterator[list[str]]:
    """A `pyslurm.Job` in squeue's fields (`argv.SQUEUE_FIELDS`), so that one place judges what they
    mean.
    """
    if job.user_id not in users:  # a question to the user database, so once a user
        users[job.user_id] = job.user_name
    for task in _tasks(job):
        yield [
            str(job.id),
            task or "N/A",
            users[job.user_id],
            job.partition,
            job.account or "(null)",
            job.state,
            str(job.num_nodes or 0),
            _time(job.submit_time),
            "UNLIMITED" if job.time_limit is None else str(job.time_limit),  # minutes
            _time(job.eligible_time),
            _time(job.start_time),
            _time(job.end_time),
            "" if job.priority is None else str(job.priority),
            f"{job.exit_code}:{job.exit_code_signal}",
            ",".join(f"gres/{name}={gpu.count}" for name, gpu in job.gpus.items()),
            job.allocated_nodes or "",
            _dependency(job.dependencies),
            job.state_reason or "None",
            job.name or "",
            job.comment or "(null)",
        ]


def _tasks(job: Any) -> list[str]:
    """The array tasks that a record stands for; of no array: [""]. PySlurm shows task 0 as none."""
    if job.array_tasks_waiting:
        return fields.array_tasks(f"{job.id}_[{job.array_tasks_waiting}]")
    if job.array_id is None:
        return [""]
    return [str(job.array_task_id or 0)]


def _time(at_s: int | None) -> str:
    return "N/A" if at_s is None else str(at_s)


def _dependency(kinds: dict[str, Any] | None) -> str:
    """PySlurm's dictionary as Slurm prints it: {"afterany": ["7(unfulfilled)"], ...} ->
    afterany:7(unfulfilled).
    """
    if not kinds:
        return "(null)"
    words = [
        f"{kind}:{job}" for kind, jobs in kinds.items() if isinstance(jobs, list) for job in jobs
    ]
    words += ["singleton"] if kinds["singleton"] else []
    return ("?" if kinds["satisfy"] == "any" else ",").join(words) or "(null)"


def node(record: Any) -> ClusterNode:
    """A `pyslurm.Node`, whose state is like `IDLE+DRAIN`."""
    return parsing.cluster_node(record.name, tuple(record.partitions), record.state.lower())
