"""The Cluster port on Slurm's commands: squeue, sinfo, sacct, sacctmgr, scontrol, sbatch, scancel."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from mirage.chain.tag import submitted_tag
from mirage.domain import Job, NodeEvent, Settings, Snapshot
from mirage.errors import AccountingUnavailable, ClusterUnavailable, Refused
from mirage.ports import Cluster
from mirage.slurm import argv, failures, parsing
from mirage.slurm.runner import Runner

if TYPE_CHECKING:
    from mirage.config import ClusterConfig


def _unix_now() -> int:
    return int(time.time())


class CommandCluster(Cluster):
    """A real Slurm. Acts as the calling user, or as the one that the runner's prefix makes of them."""

    def __init__(self, runner: Runner | None = None, *, now_s: Callable[[], int] = _unix_now) -> None:
        self._runner = runner or Runner()
        self._now_s = now_s

    @classmethod
    def from_config(cls, config: ClusterConfig) -> CommandCluster:
        return cls(Runner(bin_dir=config.bin_dir, timeout_s=config.timeout_s))

    def snapshot(self) -> Snapshot:
        """The whole queue and all nodes. Exactly one `squeue` and one `sinfo`, repeated if Slurm gives no answer."""
        at_s, nonce = self._now_s(), argv.new_nonce()
        jobs = parsing.parse_squeue(self._read(argv.squeue(nonce)), nonce, at_s)
        return Snapshot(at_s=at_s, jobs=jobs, nodes=parsing.parse_sinfo(self._read(argv.sinfo())))

    def jobs(self, job_ids: Collection[int]) -> dict[int, Job]:
        """These jobs as slurmctld knows them now. The first task stands for the unsplit rest of a job array."""
        if not job_ids:
            return {}
        nonce = argv.new_nonce()
        command = argv.squeue(nonce, job_ids)
        result = self._runner.run(command)
        if result.returncode and failures.is_unknown_job(result.stderr):
            return {}  # what squeue says of a single id that it does not know; of several it leaves it out
        if result.returncode:
            raise failures.read_failure(command, result.stderr)
        found: dict[int, Job] = {}
        for job in parsing.parse_squeue(result.stdout, nonce, self._now_s()):
            if job.job_id in job_ids:  # of an array's id squeue shows all tasks, also those with ids of their own
                found.setdefault(job.job_id, job)
        return found

    def accounting(self, start_s: int, end_s: int, job_ids: Collection[int] | None = None) -> list[Job]:
        """Accounting records of all jobs (or these) that were pending or running at any time in [start_s, end_s].

        As sacct(1) has it, a job is in the window from its eligible time on: one that a dependency, a hold or a begin
        time keeps back until after ``end_s`` is left out, unless it is asked for by id. A requeued job has a record a
        submission, earlier ones with the state that ended them (REQUEUED, NODE_FAIL, PREEMPTED). Comments are empty
        unless the site has AccountingStoreFlags=job_comment.
        """
        nonce = argv.new_nonce()
        commands = argv.sacct(nonce, start_s, end_s, job_ids)
        answers = [self._read_accounting(command) for command in commands]
        return [job for answer in answers for job in parsing.parse_sacct(answer, nonce, self._now_s())]

    def submissions(self, start_s: int, end_s: int, users: Collection[str]) -> list[Job]:
        """As `accounting`. The tag is read from the command line by which the job was submitted."""
        nonce = argv.new_nonce()
        answers = [self._read_accounting(command) for command in argv.submissions(nonce, start_s, end_s, users)]
        jobs = [job for answer in answers for job in parsing.parse_sacct(answer, nonce, self._now_s())]
        return [replace(job, comment=submitted_tag(job.comment)) for job in jobs]

    def node_events(self, start_s: int, end_s: int) -> list[NodeEvent]:
        return parsing.parse_node_events(self._read_accounting(argv.node_events(start_s, end_s)))

    def settings(self) -> Settings:
        return parsing.parse_settings(self._read(argv.settings()))

    def submit(self, args: Sequence[str], script: str) -> int:
        """Runs sbatch. ClusterUnavailable may then mean that the job was queued: its message says so."""
        return parsing.parse_submitted(self._write(argv.sbatch(args, script)))

    def release(self, job_id: int) -> None:
        """Drops all dependencies. A job that runs already is no error; one that has ended, or none of ours, is."""
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
        """Where a job writes its output, and its errors if they go elsewhere, as far as Slurm expands the names."""
        return parsing.parse_output_files(self._read(argv.job_details(job_id)))

    def set_comment(self, job_id: int, comment: str) -> None:
        """Replaces a job's whole comment."""
        self._each([argv.set_comment(job_id, comment)])

    def _each(self, commands: Sequence[Sequence[str]]) -> None:
        for command in commands:
            result = self._runner.run(command)
            problem = failures.not_cancelled(result.stderr)
            if result.returncode and (problem or not result.stderr):
                raise failures.write_failure(command, problem)

    def _read(self, command: Sequence[str]) -> str:
        result = self._runner.run(command)
        if result.returncode:
            raise failures.read_failure(command, result.stderr)
        return result.stdout

    def _write(self, command: Sequence[str]) -> str:
        result = self._runner.run(command)
        if result.returncode:
            raise failures.write_failure(command, result.stderr)
        return result.stdout

    def _read_accounting(self, command: Sequence[str]) -> str:
        try:
            return self._read(command)
        except (ClusterUnavailable, Refused) as error:
            raise AccountingUnavailable(f"{error} The queue can still be read.") from error
