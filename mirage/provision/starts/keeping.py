"""A site's own queue log, kept by the service: what `mirage when` learns from each night.

Every few hours the whole queue is noted, and each cycle the jobs that came since the one before:
also those that started at once, which no look at the queue alone would see. Users do not appear.
Starts come later from accounting (`add_starts`).
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage.domain import Job, Snapshot
from mirage.errors import MirageError
from mirage.provision.starts.queue_rows import competes, first_partition, rows_of
from slurm_sim.seconds import DAY_S, HOUR_S

log = logging.getLogger(__name__)

Row = dict[str, Any]

EVERY_S, NEW_EVERY_S = 4 * HOUR_S, HOUR_S
"""Between two notes of the whole queue, and of the jobs that are new."""
KEPT_DAYS = 40
MOST_ALIKE = 10
"""Rows of identical jobs in one note; they wait for the same."""
FILE = "queue-{at_s}.csv.gz"


def noted(
    snapshot: Snapshot,
    since_s: int | None,
    *,
    whole: bool,
    plans_s: Mapping[str, int | None] | None = None,
) -> list[Row]:
    """Rows of the jobs that came after ``since_s`` (None: none), or of the whole queue.

    ``plans_s``: by `job_key`, the first plan of each new job that was seen to wait.
    """

    def is_new(job: Job) -> bool:
        return _is_new(job, since_s, snapshot.at_s)

    def is_wanted(job: Job) -> bool:
        return is_new(job) or (whole and competes(job))

    rows = [
        _row(job, row, snapshot.at_s, plans_s or {}, is_new=is_new(job))
        for job, row in rows_of(snapshot, is_wanted)
    ]
    return list(_thinned(rows))


def job_key(job: Job) -> str:
    """The same in the queue and in accounting, where a task of a job array has an id of its own."""
    if not job.array_task:
        return str(job.job_id)
    array = hashlib.sha256(f"{job.user} {job.submit_s}".encode()).hexdigest()[:12]
    return f"{array}_{job.array_task}"


def starts_of(records: Iterable[Job]) -> dict[str, int]:
    """By `job_key`: when each job of accounting started first."""
    starts: dict[str, int] = {}
    for job in records:
        if job.start_s is not None:
            key = job_key(job)
            starts[key] = min(job.start_s, starts.get(key, job.start_s))
    return starts


def _is_new(job: Job, since_s: int | None, at_s: int) -> bool:
    return since_s is not None and since_s < (job.eligible_s or job.submit_s) <= at_s


def _row(
    job: Job,
    columns: dict[str, float],
    at_s: int,
    plans_s: Mapping[str, int | None],
    *,
    is_new: bool,
) -> Row:
    """A new job counts as looked at when it became eligible, whether it has started or not: else the
    age of 0 would tell that it started soon. Its plan is the first one; a job that was never seen to
    wait has none.
    """
    has_started = job.start_s is not None and job.state.has_nodes
    eligible_s = job.submit_s if job.eligible_s is None else job.eligible_s
    return {
        "poll_time": min(eligible_s, job.start_s or at_s) if is_new else at_s,
        "submit_time": job.submit_s,
        "eligible_time": eligible_s,
        "start_time": job.start_s if has_started else None,
        "planned_time": plans_s.get(job_key(job), job.planned_s) if is_new else job.planned_s,
        "job_unique_id": job_key(job),
        "account_id": job.account,
        "partition_id": first_partition(job),
        **columns,
    }


def _thinned(rows: Sequence[Row]) -> Iterator[Row]:
    """Of identical jobs only some, evenly over their places in the queue."""
    alike: dict[tuple[Any, ...], list[Row]] = {}
    names = (
        "account_id",
        "partition_id",
        "req_cpus",
        "req_mem_total",
        "req_gpus",
        "time_limit_sec",
    )
    for row in rows:
        alike.setdefault(tuple(row[name] for name in names), []).append(row)
    for them in alike.values():
        step = max(1.0, len(them) / MOST_ALIKE)
        yield from (them[int(number * step)] for number in range(min(len(them), MOST_ALIKE)))


@dataclass(kw_only=True)
class QueueKeeper:
    """Writes a file each `EVERY_S`, and drops the oldest."""

    folder: Path
    _rows: list[Row] = field(default_factory=list)
    _last_s: int | None = None
    _whole_s: int | None = None
    _plans_s: dict[str, int | None] = field(default_factory=dict)
    """First plans of the jobs that are new since the last note."""

    def note(self, snapshot: Snapshot) -> None:
        """A failure to write is logged, and the cycle goes on."""
        if self._whole_s is None:
            self._whole_s = newest_s(self.folder)
        self._see_plans(snapshot)
        is_due = snapshot.at_s - self._whole_s >= EVERY_S
        if not is_due and self._last_s and snapshot.at_s - self._last_s < NEW_EVERY_S:
            return
        self._rows += noted(snapshot, self._last_s, whole=is_due, plans_s=self._plans_s)
        self._plans_s = {}
        self._last_s = snapshot.at_s
        if is_due:
            self._whole_s = snapshot.at_s
            self._write(snapshot.at_s)

    def _see_plans(self, snapshot: Snapshot) -> None:
        for job in snapshot.jobs:
            if competes(job) and _is_new(job, self._last_s, snapshot.at_s):
                key = job_key(job)
                self._plans_s[key] = self._plans_s.get(key) or job.planned_s

    def _write(self, at_s: int) -> None:
        from mirage.provision.starts.queue_log import write_queue_log

        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_queue_log(self.folder / FILE.format(at_s=at_s), self._rows)
            self._rows = []
            for path in kept_files(self.folder, before_s=at_s - KEPT_DAYS * DAY_S):
                path.unlink(missing_ok=True)
        except (OSError, MirageError) as error:
            log.warning("the queue log is not written: %s", error)
            self._rows = []


def newest_s(folder: Path) -> int:
    """When the last file was written; 0: there is none."""
    files = kept_files(folder)
    return int(files[-1].name.removeprefix("queue-").removesuffix(".csv.gz")) if files else 0


def kept_files(folder: Path, *, before_s: int | None = None) -> list[Path]:
    """Oldest first."""
    found = []
    for path in folder.glob(FILE.format(at_s="*")):
        number = path.name.removeprefix("queue-").removesuffix(".csv.gz")
        if number.isdecimal() and (before_s is None or int(number) < before_s):
            found.append((int(number), path))
    return [path for _, path in sorted(found)]
