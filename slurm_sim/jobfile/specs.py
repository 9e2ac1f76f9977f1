"""Jobs one by one, for a simulator that takes no columns."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

import numpy as np

from slurm_sim.jobfile.jobs import MISSING, Ints, Jobs
from slurm_sim.jobs import JobSpec


def specs(jobs: Jobs, shift_s: int = 0, circular: Container[int] = ()) -> Iterator[JobSpec]:
    """Each row as a job; `shift_s` is added to its times. Rows in `circular` are held, and depend
    on nothing.
    """
    columns = _columns(jobs, shift_s)
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        given: dict[str, Any] = dict(zip(columns, values, strict=True))
        if row in circular:
            given |= {"held": True, "dependency": ""}
        yield JobSpec(**given)


TIMES = ("submit_s", "begin_s", "cancel_s")
"""Fields and columns that are times."""
NUMBERS: dict[str, tuple[str, int | None]] = {
    "nodes": ("nodes", None),
    "time_limit_s": ("timelimit_s", None),
    "time_min_s": ("timemin_s", None),
    "runtime_s": ("runtime_s", None),
    "job_id": ("job_id", None),
    "exit_code": ("exit_code", 0),
    "cpus_per_node": ("cpus_per_node", 1),
    "memory_mib_per_node": ("mem_mib_per_node", 0),
    "gpus_per_node": ("gpus_per_node", 0),
    "priority": ("priority", None),
    "nice": ("nice", 0),
    "array_job_id": ("array_job_id", None),
    "array_throttle": ("array_throttle", None),
}
"""Fields of `JobSpec` that are numbers: their columns, and what they are without a value."""
FLAGS: dict[str, tuple[str, int]] = {
    "held": ("held", 0),
    "requeue": ("requeue", 1),
    "exclusive": ("exclusive", 0),
}
TEXTS: dict[str, str | None] = {
    "user": "user",
    "partition": None,
    "dependency": "",
    "account": "root",
    "qos": None,
    "constraint": "",
    "reservation": None,
}
"""Fields and columns that are text, and what they are without a value."""


def _columns(jobs: Jobs, shift_s: int) -> dict[str, list[Any]]:
    """The fields of `JobSpec`, each for all rows."""

    def numbers(name: str, otherwise: int | None, shift: int = 0) -> list[int | None]:
        given: Ints = jobs.numbers(name)
        shifted = np.where(given == MISSING, MISSING, np.maximum(given + shift, 0))
        return [otherwise if value == MISSING else value for value in shifted.tolist()]

    columns: dict[str, list[Any]] = {
        field: numbers(name, otherwise) for field, (name, otherwise) in NUMBERS.items()
    }
    columns |= {name: numbers(name, None, shift_s) for name in TIMES}
    columns |= {
        field: [bool(value) for value in numbers(name, otherwise)]
        for field, (name, otherwise) in FLAGS.items()
    }
    columns |= {
        name: [text or otherwise for text in jobs.texts(name).tolist()]
        for name, otherwise in TEXTS.items()
    }
    return columns
