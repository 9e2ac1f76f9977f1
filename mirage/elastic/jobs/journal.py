"""What a controller meant to do with an elastic job and what came of it: `journal.jsonl`.

An intent without an outcome is checked against Slurm, never repeated blindly (`mirage.store.events`).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from mirage.domain import Job, JobState
from mirage.elastic.jobs.request import Role
from mirage.elastic.jobs.tag import LETTERS, role_of
from mirage.errors import StoreError
from mirage.store.events import Event, append_events, read_events

JOURNAL = "journal.jsonl"


@dataclass(kw_only=True)
class ElasticTask:
    """A task as the journal has it."""

    name: str
    is_extra: bool
    submitted_s: int
    """When its submission was intended."""
    job_id: int | None = None
    """None: Slurm has not been seen to have it."""
    drained_s: int | None = None
    """When it was asked to leave, by a message."""
    cancelled_s: int | None = None
    """When it was cancelled in Slurm."""
    why: str = ""
    """Why it leaves, or what Slurm said against it."""
    end: str = ""
    """Slurm's last state of it, or `refused` or `lost`; empty: it is there or on its way."""
    start_s: int | None = None
    end_s: int | None = None
    gpus: int = 0

    @property
    def role(self) -> Role:
        return role_of(self.name)

    @property
    def is_alive(self) -> bool:
        """In the queue, running, or being submitted."""
        return not self.end

    @property
    def is_leaving(self) -> bool:
        return self.drained_s is not None or self.cancelled_s is not None

    @property
    def number(self) -> int:
        return int(self.name[1:])


@dataclass(kw_only=True)
class ElasticRecord:
    """All that a journal tells of an elastic job."""

    ident: str
    name: str
    created_s: int
    deadline_s: int | None = None
    """When its time is up; None: its coordinator has not started yet."""
    resumed_s: int | None = None
    """When it was resumed last; None: never."""
    stop_s: int | None = None
    """When it was asked to end."""
    end: str = ""
    """`done`, `failed`, `stopped`, `time limit`; empty: it is not over."""
    why: str = ""
    end_s: int | None = None
    tasks: dict[str, ElasticTask] = field(default_factory=dict)

    @property
    def alive(self) -> list[ElasticTask]:
        """Tasks that are in the queue, running, or being submitted."""
        return [task for task in self.tasks.values() if task.is_alive]

    def next_name(self, role: Role) -> str:
        """A name that no task of the job ever had."""
        numbers = [task.number for task in self.tasks.values() if task.role is role]
        return f"{LETTERS[role]}{max(numbers, default=0) + 1}"

    def apply(self, event: Event) -> None:
        """Takes an event in. What it does not know is ignored: a later version may write more."""
        kind, at_s = event["event"], int(event["at"])
        if kind == "submit":
            self.tasks[event["task"]] = ElasticTask(
                name=event["task"], is_extra=event["extra"], submitted_s=at_s, gpus=event["gpus"]
            )
        elif kind == "deadline":
            self.deadline_s = int(event["deadline"])
        elif kind == "resume":
            self.resumed_s = at_s
            self.deadline_s = self.stop_s = self.end_s = None
            self.end = self.why = ""
        elif kind == "stop":
            self.stop_s, self.why = at_s, event["why"]
        elif kind == "end":
            self.end, self.why, self.end_s = event["state"], event["why"], at_s
        elif task := self.tasks.get(event.get("task", "")):
            _apply_to(task, kind, at_s, event)


def _apply_to(task: ElasticTask, kind: str, at_s: int, event: Event) -> None:
    if kind == "queued":
        task.job_id = int(event["job_id"])
    elif kind == "drain":
        task.drained_s, task.why = at_s, event["why"]
    elif kind == "cancel":
        task.cancelled_s, task.why = at_s, task.why or event["why"]
    elif kind in ("refused", "lost"):
        task.end, task.end_s, task.why = kind, at_s, event["why"]
    elif kind == "over":
        task.end, task.start_s, task.end_s = event["state"], event["start"], event["end"]


class JobJournal:
    """A job's journal: the record, and the file that keeps it."""

    def __init__(self, folder: Path) -> None:
        """Reads what is there. Raises StoreError: no journal, or one that can't be read."""
        self.path = folder / JOURNAL
        events = list(read_events(self.path))
        if not events or events[0].get("event") != "job":
            raise StoreError(
                f"{self.path}: no journal of an elastic job. Remove the folder to forget the job."
            )
        first = events[0]
        self.record = ElasticRecord(
            ident=str(first["ident"]), name=str(first["name"]), created_s=int(first["at"])
        )
        for event in events[1:]:
            self.record.apply(event)

    @classmethod
    def create(cls, folder: Path, *, ident: str, name: str, now_s: int) -> JobJournal:
        """Begins the journal of a new job. Raises StoreError."""
        append_events(
            folder / JOURNAL, [{"at": now_s, "event": "job", "ident": ident, "name": name}]
        )
        return cls(folder)

    def write(self, now_s: int, event: str, **words: Any) -> None:
        """Writes an event durably, then takes it in. Raises StoreError: nothing was written."""
        line = {"at": now_s, "event": event, **words}
        append_events(self.path, [line])
        self.record.apply(line)

    def over(self, now_s: int, task: ElasticTask, job: Job | None) -> None:
        """Writes that a task has ended, as Slurm has it; None: Slurm does not know it any more."""
        self.write(
            now_s,
            "over",
            task=task.name,
            state=(job.state if job else JobState.UNKNOWN).value,
            start=job.start_s if job else None,
            end=(job.end_s if job else None) or now_s,
            exit=job.exit_code if job else None,
        )
