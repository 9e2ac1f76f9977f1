"""Pending jobs: what keeps each back, and the order in which passes look at the others."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from slurm_sim.admission import Admission
from slurm_sim.dependency import Dependency, DependencyState
from slurm_sim.jobs import JobRecord, State
from tests.reference.priority import Priorities

PASSES_OWN = ("None", "Priority", "Resources")
"""Reasons that passes give all the time, and nobody notes."""


class QueueEntry(NamedTuple):
    """A job in one of its partitions, as a pass looks at it."""

    job: JobRecord
    partition: str
    priority: int
    """As of this partition."""


class JobQueue:
    """All pending jobs of the cluster."""

    def __init__(
        self,
        admission: Admission,
        priorities: Priorities,
        jobs: Mapping[int, JobRecord],
        arrays: Mapping[int, Sequence[JobRecord]],
        *,
        start_s: int,
    ) -> None:
        """`jobs`, `arrays`: all that were submitted, for dependencies on them."""
        self.waiting: dict[int, JobRecord] = {}
        """Jobs that something other than a lack of nodes keeps back."""
        self.competing: dict[int, JobRecord] = {}
        self._partitions = admission.partitions
        self._period_s = admission.params.priority_calc_period_s
        self._priorities = priorities
        self._jobs = jobs
        self._arrays = arrays
        self._start_s = self._calculated_s = start_s
        self._entries: list[QueueEntry] = []
        self._entries_of_s: int | None = None
        """The recalculation that the entries' order is of; None: it has to be made."""
        self._noted: dict[int, str] = {}
        """The reason that was last noted of a job."""
        self._choices: dict[int, tuple[str, ...]] = {}
        """Of jobs in several partitions: those, in the order in which they ask for them."""

    # ---- who is in it

    def add(self, job: JobRecord, choices: tuple[str, ...]) -> None:
        """A job is submitted to these partitions."""
        self.waiting[job.job_id] = job
        if len(choices) > 1:
            self._choices[job.job_id] = choices

    def remove(self, job: JobRecord) -> None:
        """It starts, or ends without a start."""
        self.waiting.pop(job.job_id, None)
        if self.competing.pop(job.job_id, None):
            self._entries_of_s = None

    def compete(self, job: JobRecord) -> None:
        """Nothing keeps it back any more."""
        self.competing[job.job_id] = self.waiting.pop(job.job_id)
        self._entries_of_s = None

    def put_back(self, job: JobRecord) -> None:
        """A job that ran is requeued."""
        job.partition = self.choices(job)[0]
        self._priorities.forget(job)
        self.waiting[job.job_id] = job

    def choices(self, job: JobRecord) -> tuple[str, ...]:
        """The partitions in which it may start."""
        return self._choices.get(job.job_id, (job.partition,))

    def forget(self, job: JobRecord) -> str:
        """It is over; returns the partition in which it was submitted."""
        return self._choices.pop(job.job_id, (job.partition,))[0]

    # ---- what keeps jobs back

    def review(self, job: JobRecord, now_s: int) -> None:
        """Lets a waiting job compete if nothing keeps it back any more."""
        job.reason = self._kept_back_by(job, now_s)
        if not job.reason:
            job.reason = "None"
            job.eligible_s = now_s if job.begin_s is None else max(job.begin_s, job.submit_s)
            job.accrues_s = job.eligible_s if job.accrues_s is None else job.accrues_s
            self.compete(job)
        # A recalculation of this very second comes later in it, so the job has the last one's.
        job.priority = self._recalculated(job, self._calculated(now_s - 1))

    def _kept_back_by(self, job: JobRecord, now_s: int) -> str:
        if job.held:
            return "JobHeldUser"
        job.dependencies, state = job.dependencies.review(
            lambda dependency: self._state_of(dependency, now_s)
        )
        if state is not DependencyState.MET:
            return str(state.value)
        return "BeginTime" if job.begin_s is not None and job.begin_s > now_s else ""

    def _state_of(self, dependency: Dependency, now_s: int) -> DependencyState:
        jobs = self._arrays.get(dependency.job_id) or [self._jobs[dependency.job_id]]
        started = all(_has_started(job, now_s - dependency.delay_s) for job in jobs)
        over = all(job.state.is_over for job in jobs)
        return dependency.state(
            started=started, over=over, ok=all(job.state is State.COMPLETED for job in jobs)
        )

    def note_reasons(self) -> bool:
        """As a pass begins: whether a pending job has a reason that is none of a pass's own, and
        was not noted before.

        slurmctld notes it to tell slurmdbd (`build_job_queue`: state_reason_prev_db), and counts it
        as a change.
        """
        pending = self.waiting | self.competing
        reasons = {
            job_id: job.reason for job_id, job in pending.items() if job.reason not in PASSES_OWN
        }
        news = any(self._noted.get(job_id) != reason for job_id, reason in reasons.items())
        self._noted |= reasons
        return news

    def hold(self, job: JobRecord, now_s: int) -> None:
        """As `scontrol hold`."""
        self.remove(job)
        self.waiting[job.job_id] = job
        job.held, job.eligible_s, job.priority, job.reason = True, None, 0, "JobHeldUser"
        if job.begin_s is not None and job.begin_s <= now_s:
            job.begin_s = None

    def release(self, job: JobRecord) -> None:
        """As `scontrol release`."""
        job.held, job.reason = False, "None"
        self._priorities.give(job)

    # ---- their order

    def entries(self, seen_s: int) -> list[QueueEntry]:
        """The competing jobs in order; priorities are refreshed each PriorityCalcPeriod, as seen by
        this time.

        A job in several partitions has an entry for each.
        """
        calculated_s = self._calculated(seen_s)
        self._priorities.calculate(calculated_s)
        if self._entries_of_s != calculated_s:
            self._entries_of_s = calculated_s
            for job in (*self.competing.values(), *self.waiting.values()):
                job.priority = self._recalculated(job, calculated_s)
            entries = [
                entry
                for job in self.competing.values()
                for entry in self._entries_for(job, calculated_s)
            ]
            self._entries = sorted(entries, key=self._rank)
        return self._entries

    def _recalculated(self, job: JobRecord, calculated_s: int) -> int:
        in_several = job.job_id in self._choices
        return (self._priorities.of if in_several else self._priorities.recalculated)(
            job, calculated_s
        )

    def _entries_for(self, job: JobRecord, calculated_s: int) -> Iterator[QueueEntry]:
        choices = self._choices.get(job.job_id)
        if choices is None:
            yield QueueEntry(job, job.partition, job.priority)
            return
        for partition in choices:
            job.partition = partition
            yield QueueEntry(job, partition, self._priorities.of(job, calculated_s))
        job.partition = choices[0]

    def show_first_choices(self) -> None:
        """After a pass: jobs in several partitions show the first again."""
        for job, partition, priority in self._entries if self._choices else ():
            if job.state is State.PENDING and partition == self._choices.get(job.job_id, ("",))[0]:
                job.partition, job.priority = partition, priority

    def keep_priorities(self) -> None:
        """From now on the priority of whoever has one stays as it is; in several partitions it is
        that of the first.
        """
        self._priorities.kept = True
        if self._choices:
            self.reorder()

    def reorder(self) -> None:
        """What the order depends on has changed."""
        self._entries_of_s = None

    def _calculated(self, seen_s: int) -> int:
        """When priorities were last calculated, as far as anything has seen it."""
        last_s = seen_s - (seen_s - self._start_s) % self._period_s
        self._calculated_s = max(self._calculated_s, last_s)
        return self._calculated_s

    def _rank(self, entry: QueueEntry) -> tuple[bool, int, int, int, int]:
        """Jobs in a reservation come first."""
        job = entry.job
        return (
            job.spec.reservation is None,
            -self._partitions[entry.partition].priority_tier,
            -entry.priority,
            job.submit_s,
            job.job_id,
        )


def _has_started(job: JobRecord, by_s: int) -> bool:
    return job.state.is_over or (job.start_s is not None and job.start_s <= by_s)
