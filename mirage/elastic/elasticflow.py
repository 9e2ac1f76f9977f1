"""ElasticFlow's measured A100 speeds, and two days of jobs of Microsoft's clusters (ITP).

Sources: `data/README.md`. Speeds are by number of GPUs alone, all-reduce: a worker is a GPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache

import numpy as np

from mirage.elastic.pollux import read_rows
from mirage.elastic.speed import JobType, all_reduce_type
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import ElasticConfig

STEPS_PER_EPOCH = 1000
"""The trace counts steps; this many are an epoch here."""
SLOT_S = 600.0
SERVERS, GPUS_PER_SERVER = 16, 8
"""ElasticFlow's cluster."""
RESTART_S = 30.0
"""A job that changes its GPUs stands still for about this long; `scaling_s` is a GPU's part of it."""


@cache
def elasticflow_types() -> tuple[JobType, ...]:
    """Every model and total batch size that the jobs have, as `bert-64`."""
    pairs = sorted({(row["model"], row["batch"]) for row in _jobs()})
    speeds = {(row["model"], row["global_batch_size"]): row for row in _speeds()}
    return tuple(_type(name, batch, speeds[name, batch]) for name, batch in pairs)


def _type(name: str, batch: str, row: Mapping[str, str]) -> JobType:
    measured = {int(gpus): float(speed) for gpus, speed in row.items() if gpus.isdigit()}
    return all_reduce_type(
        f"{name}-{batch}",
        {gpus: speed for gpus, speed in measured.items() if speed > 0},
        batches_per_epoch=STEPS_PER_EPOCH,
        cpus_per_worker=0,
    )


def elasticflow_config() -> ElasticConfig:
    """16 servers of 8 A100 GPUs, slots of ten minutes."""
    return ElasticConfig(
        types=elasticflow_types(),
        servers=SERVERS,
        gpus_per_server=GPUS_PER_SERVER,
        cpus_per_server=0,
        slot_s=SLOT_S,
        most_workers=64,
        most_ps=0,
        placement="packed",
        scaling_s=RESTART_S / GPUS_PER_SERVER,
    )


def itp_jobs() -> ElasticJobs:
    """The 195 jobs as they were submitted."""
    rows = _jobs()
    return _jobs_of(rows, np.array([int(row["submitted_s"]) for row in rows]))


def drawn_itp_jobs(rng: np.random.Generator) -> ElasticJobs:
    """195 new jobs: each is one of the trace, submitted in one of its hours."""
    rows = _jobs()
    chosen = [rows[nth] for nth in rng.integers(len(rows), size=len(rows))]
    hours = np.array([int(row["submitted_s"]) // 3600 for row in rows])
    submitted = rng.choice(hours, len(rows)) * 3600 + rng.integers(0, 3600, len(rows))
    return _jobs_of(chosen, np.sort(submitted))


def _jobs_of(rows: Sequence[Mapping[str, str]], submitted_s: np.ndarray) -> ElasticJobs:
    index = {kind.name: nth for nth, kind in enumerate(elasticflow_types())}
    epochs = np.array([int(row["iterations"]) / STEPS_PER_EPOCH for row in rows])
    return ElasticJobs(
        arrival_slot=np.asarray(-(-submitted_s // int(SLOT_S)), dtype=np.int64),
        type_index=np.array([index[f"{row['model']}-{row['batch']}"] for row in rows]),
        epochs=epochs,
        estimate=epochs,
    )


def _jobs() -> list[dict[str, str]]:
    return read_rows("itp-195.csv")


def _speeds() -> list[dict[str, str]]:
    return read_rows("elasticflow-a100.csv")
