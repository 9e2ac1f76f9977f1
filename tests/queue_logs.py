"""Queue logs whose waits are known: an hour for each job before it, and noise."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from mirage.provision.starts.queue_log import (
    FEATURES,
    Floats,
    QueueLog,
    read_queue_log,
    write_queue_log,
)
from mirage.provision.starts.walk import LEVELS, NightlyWaits, Walk
from slurm_sim.seconds import DAY_S, HOUR_S

FIRST_S = 1_675_209_600
JOBS = 60


def write_log(path: Path, days: int = 8, stretched: dict[int, float] | None = None) -> Path:
    """Each day at 0 h. ``stretched``: by day, how many times as long its jobs wait."""
    rows, generator = [], np.random.default_rng(1)
    for day in range(days):
        at_s, times = FIRST_S + day * DAY_S, (stretched or {}).get(day, 1.0)
        for number, cpus in enumerate(generator.choice([1, 8, 64], JOBS).tolist()):
            noise = float(generator.lognormal(0, 0.2))
            start_s = at_s + times * (600 + HOUR_S / 3 * number * noise)
            names = {"job_unique_id": f"{day}-{number}", "account_id": "a", "partition_id": "gpu"}
            look = {"poll_time": at_s, "submit_time": at_s - 600, "start_time": start_s}
            rows.append(look | names | {"req_cpus": cpus, "q_p_jobs_above": number})
    write_queue_log(path, rows)
    return path


def log_of(folder: Path, days: int = 8, stretched: dict[int, float] | None = None) -> QueueLog:
    return read_queue_log([write_log(folder / "log.csv.gz", days, stretched)])


class SameWait:
    """What a night learnt, where all jobs wait equally long."""

    judged, has_drifted, rule, words = 100, False, "trees", "all waits were alike"

    def __init__(self, wait_s: float) -> None:
        self.wait_s = wait_s
        self.asked: list[dict[str, float]] = []

    def for_job(self, *, has_plan: bool) -> SameWait:
        return self

    def logs(self, rows: Floats) -> Floats:
        self.asked += [dict(zip(FEATURES, row, strict=True)) for row in rows.tolist()]
        return np.full((len(rows), len(LEVELS)), np.log(self.wait_s))


def learned_waits(folder: Path, days: int = 8) -> NightlyWaits:
    """As of the end of a log."""
    found = Walk(log_of(folder, days)).night(FIRST_S + days * DAY_S)
    assert found is not None
    return found
