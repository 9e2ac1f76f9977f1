"""The tag by which Slurm knows a task of an elastic job: the first words of its Comment.

    mirage-elastic/1 job=k3m9pq2xha task=w12 share=extra

Slurm authenticates who sets a comment, so a controller acts on jobs of its own user only.
``share``: `base` queues like any job; `extra` uses idle resources and is given back.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from mirage.elastic.jobs.request import Role

LETTERS = {Role.COORDINATOR: "c", Role.SERVER: "s", Role.WORKER: "w"}
_ROLES = {letter: role for role, letter in LETTERS.items()}
_TAG = re.compile(
    r"mirage-elastic/1 job=(?P<job>[a-z0-9]{10}) task=(?P<task>[csw][1-9]\d{0,8})"
    r" share=(?P<share>base|extra)",
    re.ASCII,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskTag:
    """Which task of which elastic job a Slurm job is."""

    job: str
    """The elastic job's id: ten of a-z and 0-9."""
    task: str
    """Its role's letter and a number that no other task of the job ever had."""
    is_extra: bool

    @property
    def role(self) -> Role:
        return role_of(self.task)


def role_of(task: str) -> Role:
    """The role of a task by its name."""
    return _ROLES[task[0]]


def parse_task_tag(comment: str) -> TaskTag | None:
    """The tag in a job's comment; None: it has none."""
    if not (match := _TAG.fullmatch(comment)):
        return None
    return TaskTag(job=match["job"], task=match["task"], is_extra=match["share"] == "extra")


def format_task_tag(tag: TaskTag) -> str:
    """The job's comment; `parse_task_tag` reads it back."""
    share = "extra" if tag.is_extra else "base"
    return f"mirage-elastic/1 job={tag.job} task={tag.task} share={share}"
