"""What the contract suite needs of a cluster to try an adapter on it: people, time, jobs, and a way
to be down.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable

from mirage.domain import Job, JobState
from mirage.ports import Cluster


class Site(ABC):
    """An idle cluster with a default partition, its nodes all in it, and three people."""

    alice = "alice"
    bob = "bob"
    operator = "operator"
    nodes = 4

    @abstractmethod
    def cluster(self, user: str) -> Cluster:
        """The adapter, acting as this user."""

    @abstractmethod
    def down(self) -> Cluster:
        """The adapter (as alice) of a cluster that does not answer."""

    @abstractmethod
    def script(self, run_s: int, exit_code: int) -> str:
        """The path of a batch script that runs so long and exits so."""

    @abstractmethod
    def pause(self) -> None:
        """Lets a second pass, or a part of one."""

    def submit(self, *args: str, user: str = "", run_s: int = 600, exit_code: int = 0) -> int:
        """Submits a job, alice's if not said otherwise, with these options of sbatch (in their long
        form).
        """
        return self.cluster(user or self.alice).submit(args, self.script(run_s, exit_code))

    def job(self, job_id: int) -> Job:
        return self.cluster(self.alice).jobs([job_id])[job_id]

    def in_queue(self, job: Job) -> Job:
        """What a snapshot tells of a job."""
        return job

    def recorded_exit_code(self, exit_code: int) -> int:
        """What accounting tells of a job that exits so."""
        return exit_code

    def fill(self) -> int:
        """Bob takes all nodes."""
        job_id = self.submit(f"--nodes={self.nodes}", user=self.bob)
        self.reaches(job_id, JobState.RUNNING)
        return job_id

    def reaches(self, job_id: int, *states: JobState) -> Job:
        """Waits until the job is in one of these states."""
        self.until(
            lambda: self.job(job_id).state in states, lambda: f"{states}; it is {self.job(job_id)}"
        )
        return self.job(job_id)

    def until(
        self, condition: Callable[[], bool], what: Callable[[], str], pauses: int = 480
    ) -> None:
        for _ in range(pauses):
            if condition():
                return
            self.pause()
        raise AssertionError(f"waited in vain for {what()}")


def ids(jobs: Iterable[Job]) -> set[int]:
    return {job.job_id for job in jobs}
