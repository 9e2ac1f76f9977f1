"""What `mirage extend`, `pause` and `resume` share: they act with the user's own Slurm rights, not
through the daemon.

The chain's folder goes first and Slurm's queue second, so a link that starts in between finds the
new state.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from mirage.chain.folder import (
    CHAIN_RECORD,
    JOB_SCRIPT,
    PAUSE,
    is_used_up,
    over_marker,
    queued_jobs,
    read_length,
    read_link,
    read_record,
    read_segments,
    read_starts,
    refused_link,
    reopen,
    write_length,
)
from mirage.chain.submission import queue_link
from mirage.chain.tag import MAX_SEGMENTS, may_be_link, parse_tag, with_length
from mirage.domain import Job, JobState, Mode
from mirage.errors import ClusterError, InputError
from mirage.slurm.commands import CommandCluster
from mirage.user.chain_names import own_folder
from mirage.user.slurm_access import adapter_config
from mirage.user.sources import me

STEERING_LOCK = ".steering"
"""In the chain's folder: held while a command looks for the chain's jobs and queues what is
missing.
"""
LAST_LINK_S = 60
"""A link whose script has ended may stay in Slurm's queue for so long: an epilog, steps that save.
"""
START_AGAIN = "start it again with mirage-submit"
"""What goes on with a chain that can't be extended nor resumed."""


@dataclass(frozen=True)
class Steering:
    """One's own chain, and Slurm."""

    chain_id: str
    folder: Path
    cluster: CommandCluster

    @classmethod
    def of(cls, chain_id: str) -> Steering:
        """InputError: the chain is not one's own, or was started by a Mirage that could not steer
        it.
        """
        folder = own_folder(chain_id)
        if b"\nm_outside()" not in (folder / JOB_SCRIPT).read_bytes():
            raise InputError(
                f"chain {chain_id} was started by an older Mirage, whose jobs don't know this"
                " command"
            )
        return cls(chain_id, folder, CommandCluster.from_config(adapter_config()))

    @property
    def segments(self) -> int:
        return read_segments(self.folder)

    @property
    def length(self) -> str:
        """What its links may use in all (`mirage.chain.length`)."""
        return read_length(self.folder)

    @property
    def is_up_front(self) -> bool:
        return read_record(self.folder / CHAIN_RECORD).get("up_front") == "1"

    @property
    def mode(self) -> Mode:
        return Mode(read_record(self.folder / CHAIN_RECORD).get("mode", Mode.TRAIN.value))

    @property
    def started(self) -> int:
        """The last link that has started; 0: none."""
        return max(read_starts(self.folder), default=0)

    def jobs(self) -> list[Job]:
        """The chain's jobs that are not over, by segment. Raises ClusterError."""
        tagged = [(parse_tag(job.comment), job) for job in self.cluster.queue_of(me()).jobs]
        mine = [
            (tag.segment, job.job_id, job)
            for tag, job in tagged
            if tag and tag.chain_id == self.chain_id
        ]
        jobs = [job for _segment, _id, job in sorted(mine, key=lambda entry: entry[:2])]
        # an answer without any may be unsound, and much hangs on it: ask for the last ones by their
        # ids
        if not jobs:
            jobs = [job for job in map(self.job, list(queued_jobs(self.folder))[-2:]) if job]
        return [job for job in jobs if not job.state.is_over]

    def job(self, segment: int) -> Job | None:
        """The job that was queued as this link; None: slurmctld does not know it. Raises
        ClusterError.
        """
        job_id = queued_jobs(self.folder).get(segment, 0)
        job = self.cluster.jobs([job_id]).get(job_id) if job_id else None
        return job if job and may_be_link(job, me(), self.chain_id, segment) else None

    def first_jobs(self) -> list[Job]:
        """As `jobs`, before anything is done. Raises ClusterError within seconds where Slurm does
        not answer.
        """
        glance = CommandCluster.for_a_glance(adapter_config())
        try:
            return replace(self, cluster=glance).jobs()
        except ClusterError as error:
            raise ClusterError(f"Slurm does not answer, so nothing was done: {error}") from error

    def goes_back(self, job: Job) -> bool:
        """Whether a job that leaves its nodes may be a link that found the chain paused, and is
        requeued.
        """
        tag = parse_tag(job.comment)
        ended = read_link(self.folder, tag.segment) if tag else None
        return job.state is JobState.COMPLETING and (ended is None or ended.job_id != job.job_id)

    def refuse_if_over(self, instead: str) -> None:
        """InputError: the chain is over; ``instead``: what to do."""
        if over := over_marker(self.folder):
            raise InputError(f"chain {self.chain_id} is over ({over[0]}: {over[1]}): {instead}")

    def reaches(self, length: str) -> bool:
        """Whether the last link that has started would be the last one of a chain of this length."""
        words = ["sh", str(self.folder / JOB_SCRIPT), "reaches", length, str(self.started)]
        return self.started > 0 and subprocess.run(words, capture_output=True).returncode == 0

    def set_length(self, segments: int, length: str) -> None:
        """Writes how long the chain is: in its folder, and in the tags of its jobs. Raises
        ClusterError.
        """
        if segments > MAX_SEGMENTS:
            raise InputError(
                f"chain {self.chain_id}: {segments} links are too many: expected at most"
                f" {MAX_SEGMENTS}"
            )
        try:
            write_length(self.folder, segments, length)
        except OSError as error:
            raise ClusterError(
                f"can't write to the chain's folder {self.folder}: {error}; nothing was done"
            ) from error
        for job in self.jobs():
            comment = with_length(job.comment, segments, length)
            if comment != job.comment and "\ufffd" not in comment:
                self.cluster.set_comment(job.job_id, comment)

    def go_on(self) -> dict[int, int]:
        """Sees to it that some job carries the chain on; segment -> job id of the links queued
        here.

        A running link queues the next one itself. Where none runs or waits, or links can't run
        sbatch, this does. Two at the same time take turns, so the second one finds the job of the
        first. Raises InputError if the chain is over for another reason than that its links had
        run, ClusterError.
        """
        with self._turn():
            return self._go_on()

    @contextmanager
    def _turn(self) -> Iterator[None]:
        with (self.folder / STEERING_LOCK).open("ab") as file:
            with suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_EX)
            yield

    def _go_on(self) -> dict[int, int]:
        jobs = self._jobs_of_an_open_chain()
        alive = [(tag.segment, job.job_id) for job in jobs if (tag := parse_tag(job.comment))]
        if alive and not self.is_up_front and not self._must_queue_next(max(alive)[0]):
            return {}
        starts = read_starts(self.folder)
        if not alive and not starts:
            raise InputError(
                f"chain {self.chain_id}: no link has started and none is queued: {START_AGAIN}"
            )
        before, job_id = (
            max(alive) if alive else max((start.segment, start.job_id) for start in starts.values())
        )
        last = self.segments if self.is_up_front else min(before + 1, self.segments)
        queued: dict[int, int] = {}
        for segment in range(before + 1, last + 1):
            job_id = queued[segment] = queue_link(self.folder, segment, job_id)
        if over := over_marker(self.folder):
            raise ClusterError(
                f"the chain's last link ended meanwhile ({over[1]}): run the command again"
            )
        return queued

    def _must_queue_next(self, segment: int) -> bool:
        """Whether the running link does not queue the next one: it has done so once, and that one
        has left the queue, by `scancel` say; or it can't. Raises ClusterError.
        """
        if segment + 1 not in queued_jobs(self.folder):
            return refused_link(self.folder) is not None
        job = self.job(segment + 1)
        return job is None or job.state.is_over

    def ask_to_end(self, job: Job, segment: int, why: str = PAUSE) -> None:
        """Asks a running link to checkpoint and end, as its successor would. Raises ClusterError."""
        words = ["sh", str(self.folder / JOB_SCRIPT), "ask", str(job.job_id), str(segment), why]
        done = subprocess.run(words, capture_output=True)
        if done.returncode:
            said = (
                os.fsdecode(done.stderr).strip() or f"scancel failed (exit code {done.returncode})"
            )
            raise ClusterError(
                f"the chain is paused, but job {job.job_id} (link {segment}) was not asked to end:"
                f" {said}"
            )

    def _jobs_of_an_open_chain(self) -> list[Job]:
        """Waits for a last link that is just ending. Takes back the mark of a chain whose links had
        all run.
        """
        deadline = time.monotonic() + LAST_LINK_S
        while True:
            over, jobs = over_marker(self.folder), self.jobs()
            if over and not is_used_up(over):
                self.refuse_if_over(START_AGAIN)
            is_ending = all(job.state is JobState.COMPLETING for job in jobs)
            if not jobs or (over is None and not is_ending):
                if not jobs:
                    reopen(self.folder)
                return jobs
            if time.monotonic() > deadline:
                raise ClusterError(
                    f"chain {self.chain_id}: its last job is still ending: run the command again"
                    " later"
                )
            time.sleep(1)


def links(queued: dict[int, int]) -> str:
    """In words: "link 6 (job 130)"."""
    return ", ".join(f"link {segment} (job {job_id})" for segment, job_id in queued.items())
