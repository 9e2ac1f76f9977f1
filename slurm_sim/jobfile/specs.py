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

    def numbers(name: str, otherwise: int | None = None, shift: int = 0) -> list[int | None]:
        given: Ints = jobs.numbers(name)
        shifted = np.where(given == MISSING, MISSING, np.maximum(given + shift, 0))
        return [otherwise if value == MISSING else value for value in shifted.tolist()]

    def texts(name: str, otherwise: str | None) -> list[str | None]:
        return [text or otherwise for text in jobs.texts(name).tolist()]

    columns = {
        "nodes": numbers("nodes"),
        "time_limit_s": numbers("timelimit_s"),
        "runtime_s": numbers("runtime_s"),
        "user": texts("user", "user"),
        "partition": texts("partition", None),
        "submit_s": numbers("submit_s", shift=shift_s),
        "job_id": numbers("job_id"),
        "dependency": texts("dependency", ""),
        "begin_s": numbers("begin_s", shift=shift_s),
        "held": [bool(value) for value in numbers("held", 0)],
        "requeue": [bool(value) for value in numbers("requeue", 1)],
        "exit_code": numbers("exit_code", 0),
        "cpus_per_node": numbers("cpus_per_node", 1),
        "memory_mib_per_node": numbers("mem_mib_per_node", 0),
        "gpus_per_node": numbers("gpus_per_node", 0),
        "exclusive": [bool(value) for value in numbers("exclusive", 0)],
        "account": texts("account", "root"),
        "qos": texts("qos", None),
        "constraint": texts("constraint", ""),
        "reservation": texts("reservation", None),
        "priority": numbers("priority"),
        "nice": numbers("nice", 0),
        "array_job_id": numbers("array_job_id"),
        "array_throttle": numbers("array_throttle"),
        "cancel_s": numbers("cancel_s", shift=shift_s),
    }
    for row, values in enumerate(zip(*columns.values(), strict=True)):
        given: dict[str, Any] = dict(zip(columns, values, strict=True))
        if row in circular:
            given |= {"held": True, "dependency": ""}
        yield JobSpec(**given)
