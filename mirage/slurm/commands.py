"""The Cluster port on Slurm's commands: squeue, sinfo, sacct, sacctmgr, scontrol, sbatch, scancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.chain.tag import submitted_tag
from mirage.domain import Job, NodeEvent, Settings, Snapshot
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused, Unreadable
from mirage.ports import Cluster, JobMover
from mirage.slurm import argv, failures, parsing
from mirage.slurm.oddities import OddityLog
from mirage.slurm.runner import CommandResult, Runner

if TYPE_CHECKING:
    from mirage.config import AdapterConfig


GLANCE_S = 5
"""A squeue of one user's jobs takes less on a slurmctld that is well."""


def _unix_now() -> int:
    return int(time.time())


class CommandCluster(Cluster, JobMover):
    """A real Slurm. Acts as the calling user, or as the one that the runner's prefix makes of them."""

    def __init__(
        self, runner: Runner | None = None, *, now_s: Callable[[], int] = _unix_now
    ) -> None:
        self._runner = runner or Runner()
        self._now_s = now_s
        self._oddities = OddityLog()

    @classmethod
    def from_config(cls, config: AdapterConfig) -> CommandCluster:
        return cls(Runner(bin_dir=config.bin_dir, timeout_s=config.timeout_s))

    @classmethod
    def for_a_glance(cls, config: AdapterConfig) -> CommandCluster:
        """For reads that somebody waits for and can do without: one try, of `GLANCE_S` at most."""
        timeout_s = min(config.timeout_s, GLANCE_S)
        return cls(Runner(bin_dir=config.bin_dir, timeout_s=timeout_s, retries=0))

    def snapshot(self) -> Snapshot:
        """The whole queue and all nodes. Exactly one `squeue` and one `sinfo`, repeated if Slurm
        gives no answer.
        """
        queue = self._queue(argv.squeue())
        return replace(queue, nodes=parsing.parse_sinfo(self._read(argv.sinfo())))

    def queue_of(self, user: str) -> Snapshot:
        """This user's jobs, and no nodes: on a large site far less to read than `snapshot`."""
        return self._queue(argv.squeue(user=user))

    def _queue(self, command: Sequence[str]) -> Snapshot:
        at_s, nonce = self._now_s(), argv.new_nonce()
        result = self._runner.run(command, argv.squeue_format(nonce))
        listed = parsing.parse_squeue(_stdout(command, result), nonce, at_s)
        self._oddities.report(listed.oddities)
        return Snapshot(
            at_s=at_s, jobs=tuple(listed.jobs), nodes=(), oddities=tuple(listed.oddities)
        )

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        """These jobs as slurmctld knows them now. The first task stands for the unsplit rest of a
        job array.

        Raises Unreadable if one of them is there and can't be read.
        """
        if not job_ids:
            return {}
        nonce, command = argv.new_nonce(), argv.squeue(job_ids)
        result = self._runner.run(command, argv.squeue_format(nonce))
        if result.returncode and failures.is_unknown_job(result.stderr):
            # what squeue says of a single id that it does not know; of several it leaves it out
            return {}
        listed = parsing.parse_squeue(_stdout(command, result), nonce, self._now_s())
        found: dict[int, Job] = {}
        for job in listed.jobs:
            if (
                job.job_id in job_ids
            ):  # of an array's id squeue shows all tasks, also those with ids of their own
                found.setdefault(job.job_id, job)
        odd = [oddity for oddity in listed.oddities if oddity.job_id in job_ids]
        self._oddities.report(odd)
        lost = [oddity for oddity in odd if oddity.is_set_apart and oddity.job_id not in found]
        if lost:
            raise Unreadable(lost, found)
        return found

    def accounting(
        self, start_s: int, end_s: int, job_ids: Collection[int] | None = None
    ) -> list[Job]:
        """Accounting records of all jobs (or these) that were pending or running at any time in
        [start_s, end_s].

        As sacct(1) has it, a job is in the window from its eligible time on: one that a dependency,
        a hold or a begin time keeps back until after ``end_s`` is left out, unless it is asked for
        by id. A requeued job has a record a submission, earlier ones with the state that ended them
        (REQUEUED, NODE_FAIL, PREEMPTED). Comments are not asked for. A record that can't be read
        for a value that its user chose is left out and logged.
        """
        return self._accounted(argv.sacct(start_s, end_s, job_ids))

    def submissions(self, start_s: int, end_s: int, users: Collection[str]) -> list[Job]:
        """As `accounting`. The tag is read from the command line by which the job was submitted."""
        jobs = self._accounted(argv.submissions(start_s, end_s, users))
        lines: dict[tuple[int, int], str] = {}
        for command in argv.submit_lines(start_s, end_s, users) if jobs else ():
            lines |= parsing.parse_submit_lines(self._read_accounting(command).stdout_bytes)
        return [
            replace(job, comment=submitted_tag(lines.get((job.job_id, job.submit_s), "")))
            for job in jobs
        ]

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:
        return parsing.parse_node_events(
            self._read_accounting(argv.node_events(start_s, end_s)).stdout
        )

    def settings(self) -> Settings:
        return parsing.parse_settings(self._read(argv.settings()))

    def submit(self, args: Sequence[str], script: str) -> int:
        """Runs sbatch. ClusterUnavailable may then mean that the job was queued: its message says
        so.
        """
        return parsing.parse_submitted(self._write(argv.sbatch(args, script)))

    def release(self, job_id: int) -> None:
        """Drops all dependencies. A job that runs already is no error; one that has ended, or none
        of ours, is.
        """
        command = argv.release(job_id)
        result = self._runner.run(command)
        if result.returncode and not failures.is_started(result.stderr):
            raise failures.write_failure(command, result.stderr)

    def cancel(self, job_ids: Collection[int]) -> None:
        """Ends these jobs. Jobs that are over, or that slurmctld has forgotten, are no error."""
        self._each(argv.cancel(job_ids))

    def hold(self, job_ids: Collection[int]) -> None:
        """Holds these jobs in the queue, as their owner. Jobs that are over are no error."""
        self._each(argv.hold(job_ids))

    def unhold(self, job_ids: Collection[int]) -> None:
        """Undoes `hold`. Jobs that are over, or are not held, are no error."""
        self._each(argv.unhold(job_ids))

    def output_files(self, job_id: int) -> tuple[str, ...]:
        """Where a job writes its output, and its errors if they go elsewhere, as far as Slurm
        expands the names.
        """
        return parsing.parse_output_files(self._read(argv.job_details(job_id)))

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replaces a job's whole comment."""
        self._each([argv.set_comment(job_id, comment)])

    def set_partition(self, job_id: int, partitions: str) -> None:
        """Lets a pending job start in these partitions only, ``a,b``."""
        self._write(argv.set_partition(job_id, partitions))

    def end_within(self, job: Job, grace_s: int, now_s: int) -> None:
        """Lowers a running job's time limit, so that Slurm ends it after the grace."""
        run_s = now_s - (job.start_s or now_s) + grace_s
        if job.time_limit_s is None or run_s < job.time_limit_s:
            self._write(argv.set_limit(job.job_id, -(-run_s // 60)))

    def wait_for(self, job_id: int, awaited_id: int) -> None:
        """Lets a pending job wait for the good end of another, in place of what it waited for."""
        self._write(argv.wait_for(job_id, awaited_id))

    def signal(self, job_id: int, signal: str, *, batch: bool) -> None:
        self._write(argv.signal(job_id, signal, batch=batch))

    def requeue(self, job_id: int) -> None:
        self._write(argv.requeue(job_id))

    def require_nodes(self, job_id: int, nodes: Sequence[str]) -> None:
        self._write(argv.require_nodes(job_id, nodes))

    def _each(self, commands: Sequence[Sequence[str]]) -> None:
        for command in commands:
            result = self._runner.run(command)
            problem = failures.not_cancelled(result.stderr)
            if result.returncode and (problem or not result.stderr):
                raise failures.write_failure(command, problem)

    def _accounted(self, commands: Sequence[Sequence[str]]) -> list[Job]:
        found: list[Job] = []
        for command in commands:
            listed = parsing.parse_sacct(self._read_accounting(command).stdout, self._now_s())
            self._oddities.report(listed.oddities)
            found += listed.jobs
        return found

    def _read(self, command: Sequence[str]) -> str:
        return _stdout(command, self._runner.run(command))

    def _write(self, command: Sequence[str]) -> str:
        result = self._runner.run(command)
        if result.returncode:
            raise failures.write_failure(command, result.stderr)
        return result.stdout

    def _read_accounting(self, command: Sequence[str]) -> CommandResult:
        try:
            result = self._runner.run(command)
            _stdout(command, result)
        except (ClusterUnavailable, Refused) as error:
            raise AccountingUnavailable(f"{error} The queue can still be read.") from error
        return result


def _stdout(command: Sequence[str], result: CommandResult) -> str:
    """What a reading command printed. Raises ClusterUnavailable, Refused."""
    if result.returncode:
        raise failures.read_failure(command, result.stderr)
    return result.stdout
