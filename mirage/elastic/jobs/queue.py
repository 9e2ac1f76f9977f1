"""Elastic jobs as the queue shows them to anybody: by the tags of their tasks. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from mirage.domain import Job
from mirage.elastic.jobs.request import Role
from mirage.elastic.jobs.tag import TaskTag, parse_task_tag


@dataclass(frozen=True, kw_only=True)
class QueuedElasticJob:
    """An elastic job with a task in the queue. Its owner may have written any tag."""

    user: str
    ident: str
    tasks: tuple[tuple[TaskTag, Job], ...]

    @property
    def workers(self) -> int:
        """Running ones."""
        return self._running(Role.WORKER)

    @property
    def servers(self) -> int:
        """Running ones."""
        return self._running(Role.SERVER)

    def _running(self, role: Role) -> int:
        return sum(tag.role is role and job.state.has_nodes for tag, job in self.tasks)

    @property
    def extras(self) -> int:
        """Running tasks that are given back where somebody queues."""
        return sum(tag.is_extra and job.state.has_nodes for tag, job in self.tasks)

    @property
    def pending(self) -> int:
        return sum(job.is_pending for _, job in self.tasks)

    @property
    def gpus(self) -> int:
        """Of running tasks."""
        return sum(job.gpus for _, job in self.tasks if job.state.has_nodes)

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({name for _, job in self.tasks for name in job.node_names}))


def queued_elastic_jobs(jobs: Iterable[Job]) -> tuple[QueuedElasticJob, ...]:
    """By user and id."""
    found: dict[tuple[str, str], list[tuple[TaskTag, Job]]] = defaultdict(list)
    for job in jobs:
        if tag := parse_task_tag(job.comment):
            found[job.user, tag.job].append((tag, job))
    return tuple(
        QueuedElasticJob(user=user, ident=ident, tasks=tuple(tasks))
        for (user, ident), tasks in sorted(found.items())
    )
