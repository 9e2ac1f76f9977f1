"""What `mirage elastic status` shows of a job, as the controller saw it last."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mirage.domain import Job
from mirage.elastic.jobs.journal import ElasticRecord, ElasticTask
from mirage.elastic.jobs.plan import JobView
from mirage.elastic.jobs.request import Role
from mirage.elastic.jobs.sizes import Sizes
from mirage.elastic.jobs.speeds import Measurement, SpeedBelief
from mirage.reasons import ReasonKind, kind_of

Json = dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class JobNumbers:
    """What a controller knows of a job beside Slurm's view."""

    sizes: Sizes | None
    """As decided for this slot."""
    belief: SpeedBelief | None
    measured: Sequence[Measurement]
    trained_gpu_s: float
    """GPU seconds of workers that were members of a training that went on."""


def status_table(view: JobView, numbers: JobNumbers, slot_s: int, at_s: float) -> Json:
    """For `status.json`."""
    sizes = numbers.sizes
    record, seen = view.record, view.training
    return {
        "at": round(at_s),
        "name": record.name,
        "id": record.ident,
        "state": state_of(view),
        "why": record.why,
        "deadline": record.deadline_s,
        "slot_s": slot_s,
        "wanted": None if sizes is None else {"workers": sizes.workers, "servers": sizes.servers},
        "held_back": not view.grow,
        "refused": refusal(record),
        "stuck": stuck(record, view.jobs),
        "step": seen.step if seen else None,
        "steps": seen.steps if seen else None,
        "steps_per_s": seen.steps_per_s if seen else None,
        "loss": seen.loss if seen else None,
        "training": seen.state if seen else None,
        "speeds": _speeds(view, numbers),
        "gpu_seconds": gpu_seconds(record.tasks.values(), view),
        "gpu_seconds_extra": gpu_seconds(
            [task for task in record.tasks.values() if task.is_extra], view
        ),
        "gpu_seconds_trained": round(numbers.trained_gpu_s),
        "tasks": [
            {
                "task": task.name,
                "role": task.role.value,
                "share": "extra" if task.is_extra else "base",
                "job_id": task.job_id,
                "state": job.state.value if (job := view.jobs.get(task.name)) else "SUBMITTED",
                "reason": job.reason if job else "",
                "nodes": list(job.node_names) if job else [],
                "leaving": task.is_leaving,
                "why": task.why,
            }
            for task in record.alive
        ],
    }


def stuck(record: ElasticRecord, jobs: Mapping[str, Job]) -> str | None:
    """Which tasks Slurm has taken but can't start as they are, and why, in words; None: none."""
    names: dict[str, list[str]] = {}
    for task in record.alive:
        job = jobs.get(task.name)
        if job is not None and job.is_pending and kind_of(job.reason) is ReasonKind.CANNOT_RUN:
            names.setdefault(job.reason, []).append(task.name)
    if not names:
        return None
    return "; ".join(f"{', '.join(tasks)} ({reason})" for reason, tasks in sorted(names.items()))


def state_of(view: JobView) -> str:
    """In one word: `waiting`, `training`, `ending`, or how it ended."""
    record = view.record
    if record.end:
        return record.end
    if record.stop_s is not None:
        return "ending"
    running = {task.role for task in record.alive if view.is_running(task)}
    return "running" if set(Role) <= running else "waiting"


def refusal(record: ElasticRecord) -> str | None:
    """What Slurm said against the last task of a role that has none in the queue; None: nothing."""
    for role in Role:
        tasks = [task for task in record.tasks.values() if task.role is role]
        if tasks and tasks[-1].end == "refused" and not any(task.is_alive for task in tasks):
            return tasks[-1].why
    return None


def _speeds(view: JobView, numbers: JobNumbers) -> list[Json]:
    """What is believed of each size that the job can use, at its present number of PSs."""
    if numbers.belief is None:
        return []
    row = min(max(numbers.sizes.servers if numbers.sizes else 1, 1), len(numbers.belief.error) - 1)
    return [
        {
            "workers": size,
            "steps_per_s": round(float(numbers.belief.steps_per_s[row, size]), 4),
            "error": round(float(numbers.belief.error[row, size]), 3),
            "measured_slots": sum(each.workers == size for each in numbers.measured),
        }
        for size in view.request.workers.sizes
    ]


def gpu_seconds(tasks: Iterable[ElasticTask], view: JobView) -> int:
    """That these tasks held up to now."""
    total = 0
    for task in tasks:
        start_s, end_s = task.start_s, task.end_s
        if task.is_alive:
            job = view.jobs.get(task.name)
            start_s, end_s = (job.start_s if job else None), view.now_s
        if start_s is not None and end_s is not None:
            total += task.gpus * max(end_s - start_s, 0)
    return total
