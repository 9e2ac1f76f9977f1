"""Draws jobs from a `WorkloadModel`.

Only `Generator(PCG64).random()` and inverse transforms, so a seed means the same jobs with every
numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.special import gammaincinv, ndtr, ndtri, pdtr

from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.table import Trace, make_trace
from slurm_sim.workload.model import SIZE_EDGES, Cell, Table, WorkloadModel
from slurm_sim.workload.tables import draw, mean, pick

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
HOUR = 3600
MOST_JOBS = 20_000_000
"""As many as it is expected to draw at once: they take about a minute and some 10 GB of memory."""


@dataclass(frozen=True)
class _Batches:
    """Shape (batches,)."""

    begin: Floats
    user: Ints
    cell: Ints
    size: Ints


def generate(
    model: WorkloadModel,
    seed: int,
    duration_s: float,
    nodes: int | None = None,
    load: float = 1.0,
    begin: int = 0,
    first_hour: int = 0,
) -> Trace:
    """Jobs submitted within ``duration_s`` from ``begin``, Unix seconds; no start, no end.

    ``first_hour``: the model's hour of the week that ``begin`` is, 0: Monday 00:00
    (`hour_of_week`). ``nodes``: of the cluster (None: the model's): arrivals scale with it, jobs
    are at most as wide. ``load`` multiplies arrivals. Columns beside the trace's: ``runtime_s``;
    ``cancel_after_s`` (cancelled if still pending then); ``dependency``; array columns;
    ``exit_code``. Raises ValueError for what must be positive and isn't, TraceError for more than
    `MOST_JOBS`.
    """
    nodes = model.nodes if nodes is None else nodes
    if not duration_s > 0 or not load > 0 or nodes < 1:
        raise ValueError(
            f"duration_s, load and nodes must be positive, got {duration_s}, {load}, {nodes}"
        )
    rng = np.random.Generator(np.random.PCG64(seed))
    factor = load * nodes / model.nodes
    batches = _batches(
        model, _session_times(model, rng, float(duration_s), factor, first_hour), rng
    )
    return _jobs(model, batches, rng, float(duration_s), nodes, begin)


def hour_of_week(time_s: int, timezone: str = "UTC") -> int:
    """From Monday 00:00 in that zone: 0 to 167."""
    there = datetime.fromtimestamp(time_s, ZoneInfo(timezone))
    return there.weekday() * 24 + there.hour


def _session_times(
    model: WorkloadModel,
    rng: np.random.Generator,
    duration_s: float,
    factor: float,
    first_hour: int,
) -> Floats:
    hours = int(np.ceil(duration_s / HOUR))
    rate = (
        model.sessions_per_h
        * factor
        * np.asarray(model.hour_of_week)[(first_hour + np.arange(hours)) % 168]
    )
    if model.day_shape > 0:
        days = rng.random(hours // 24 + 1)
        rate = rate * (gammaincinv(model.day_shape, days) / model.day_shape)[np.arange(hours) // 24]
    _refuse_too_many(model, float(rate.sum()))
    count = _poisson(rate, rng.random(hours))
    times = (np.repeat(np.arange(hours), count) + rng.random(int(count.sum()))) * HOUR
    return np.sort(times)


def _refuse_too_many(model: WorkloadModel, sessions: float) -> None:
    size = np.array([mean(cell.batch, least=1.0) for cell in model.cells])
    share, jobs = 0.0, 0.0
    for group in model.classes:
        batch = np.average(size[list(group.cells)], weights=group.weights)
        share, jobs = (
            share + group.share,
            jobs + group.share * mean(group.batches, least=1.0) * float(batch),
        )
    expected = sessions * jobs / share
    if not expected <= MOST_JOBS:
        raise TraceError(
            f"model {model.name}",
            f"at most {MOST_JOBS:,}: fewer days, a lower load, a smaller cluster, or a lower"
            " sessions_per_h",
            found=f"about {expected:.3g}",
            field="jobs",
        )


def _poisson(mean: Floats, uniform: Floats) -> Ints:
    """The inverse of the Poisson distribution: the first count whose cumulative share reaches
    ``uniform``.
    """
    most = int(mean.max() + 12 * np.sqrt(mean.max()) + 20)
    low, high = np.full(len(mean), -1), np.full(len(mean), most)
    while (high - low > 1).any():
        middle = (low + high) // 2
        reached = pdtr(middle, mean) >= uniform
        high, low = (
            np.where(reached & (high - low > 1), middle, high),
            np.where(~reached & (high - low > 1), middle, low),
        )
    return high.astype(np.int64)


def _choose(weights: Floats, uniform: Floats) -> Ints:
    """Row numbers with these probabilities."""
    edges = np.cumsum(weights) / np.sum(weights)
    return np.minimum(np.searchsorted(edges, uniform, side="right"), len(weights) - 1)


def _batches(model: WorkloadModel, times: Floats, rng: np.random.Generator) -> _Batches:
    of_class = _choose(np.array([each.share for each in model.classes]), rng.random(len(times)))
    picks, sizes = rng.random(len(times)), rng.random(len(times))
    user, count = np.zeros(len(times), dtype=np.int64), np.ones(len(times), dtype=np.int64)
    offset = 0
    for number, group in enumerate(model.classes):
        mine = of_class == number
        activity = draw(group.activity, (np.arange(group.users) + 0.5) / group.users)
        user[mine] = offset + _choose(np.maximum(activity, 1e-6), picks[mine])
        count[mine] = np.maximum(np.rint(draw(group.batches, sizes[mine])), 1)
        offset += group.users
    session = np.repeat(np.arange(len(times)), count)
    gap = np.where(_is_first(count), 0.0, draw(model.batch_gap_s, rng.random(len(session))))
    cell = _batch_cells(model, of_class[session], rng.random(len(session)))
    size = _by_cell(model, cell, "batch", rng.random(len(session)))
    jobs = np.maximum(np.rint(size), 1).astype(np.int64)
    return _Batches(times[session] + _running_sum(gap, count), user[session], cell, jobs)


def _batch_cells(model: WorkloadModel, of_class: Ints, uniform: Floats) -> Ints:
    cell = np.zeros(len(of_class), dtype=np.int64)
    for number, group in enumerate(model.classes):
        mine = of_class == number
        cell[mine] = np.asarray(group.cells)[_choose(np.asarray(group.weights), uniform[mine])]
    return cell


def _by_cell(model: WorkloadModel, cell: Ints, name: str, uniform: Floats) -> Floats:
    """Draws from the cells' tables of this name."""
    result = np.zeros(len(cell))
    order = np.argsort(cell, kind="stable")
    bounds = np.searchsorted(cell[order], np.arange(len(model.cells) + 1))
    for number, each in enumerate(model.cells):
        rows = order[bounds[number] : bounds[number + 1]]
        if len(rows):
            points: Table = getattr(each, name)
            own = name == "nodes" or (name == "limit_s" and not each.smooth)
            result[rows] = (pick if own else draw)(points, uniform[rows])
    return result


def _is_first(count: Ints) -> NDArray[np.bool_]:
    """Marks each group's first in the row of all, shape (sum of counts,)."""
    first = np.zeros(int(count.sum()), dtype=np.bool_)
    first[(np.cumsum(count) - count)[count > 0]] = True
    return first


def _running_sum(values: Floats, count: Ints) -> Floats:
    """Cumulative sums that begin again with each group."""
    total = np.cumsum(values)
    before = np.concatenate([[0.0], total])[np.cumsum(count) - count]
    return np.asarray(total - np.repeat(before, count), dtype=np.float64)


def _jobs(
    model: WorkloadModel,
    batches: _Batches,
    rng: np.random.Generator,
    duration_s: float,
    nodes: int,
    begin: int,
) -> Trace:
    size = batches.size
    jobs = int(size.sum())
    batch = np.repeat(np.arange(len(size)), size)
    first = _is_first(size)
    cell = batches.cell[batch]
    array, throttle = _arrays(model, size, rng)
    gap = np.where(first | array[batch], 0.0, _gaps(model, size[batch], rng.random(jobs)))
    submit = np.floor(batches.begin[batch] + _running_sum(gap, size))
    # a batch is of equal jobs: one draw for all of them
    wide = np.minimum(_by_cell(model, batches.cell, "nodes", rng.random(len(size))), nodes)[batch]
    limit = np.rint(_by_cell(model, batches.cell, "limit_s", rng.random(len(size))))[batch]
    run = _by_cell(model, cell, "run", _run_scores(model, batch, rng))
    cancelled = rng.random(jobs) < _share(model.cells, "cancelled")[cell]
    failed = rng.random(jobs) < _share(model.cells, "failed")[cell]
    patience = np.floor(draw(model.patience_s, rng.random(jobs)))
    chained = (rng.random(len(size)) < model.chained)[batch] & ~first & ~array[batch]
    order, number = _in_order(submit, duration_s)
    # Within a batch times only grow, so a predecessor is inside, too.
    before = np.concatenate([[0], number[:-1]])
    columns = {
        "job_id": number.astype(str),
        "submit": begin + submit.astype(np.int64),
        "timelimit_s": np.where(limit > 0, limit, np.nan),
        "nodes": wide,
        "gpus": wide * model.gpus_per_node,
        "dependency": _afterany(chained, before),
        "exit_code": np.where(failed, "1:0", "0:0"),
        "runtime_s": np.maximum(np.rint(run * np.where(limit > 0, limit, 1.0)), 1),
        "cancel_after_s": np.where(cancelled, patience, np.nan),
    }
    if model.has_users:
        columns["user"] = np.char.mod("s%04d", batches.user)[batch]
    if array.any():
        columns |= _array_columns(array, throttle, number[first], size)
    frame = pd.DataFrame({name: values[order] for name, values in columns.items()})
    return make_trace(frame.assign(**_of_every_job(model)), f"synthetic {model.name}")


def _array_columns(
    array: NDArray[np.bool_], throttle: NDArray[np.float64], leader: Ints, size: Ints
) -> dict[str, Any]:
    """Of batches that are arrays; `leader`: the number of each batch's first job."""
    batch = np.repeat(np.arange(len(size)), size)
    task = _running_sum(np.ones(len(batch)), size) - 1
    return {
        "array_job_id": np.where(array[batch], leader[batch], np.nan),
        "array_task_id": np.where(array[batch], task, np.nan),
        "array_throttle": np.where(array[batch], throttle[batch], np.nan),
    }


def _in_order(submit: NDArray[np.float64], duration_s: float) -> tuple[Ints, Ints]:
    """The rows of jobs before the end, by submission, and each row's number among them, or 0."""
    inside = submit < duration_s
    order = np.flatnonzero(inside)[np.argsort(submit[inside], kind="stable")]
    number = np.zeros(len(submit), dtype=np.int64)
    number[order] = np.arange(1, len(order) + 1)
    return order, number


def _of_every_job(model: WorkloadModel) -> dict[str, object]:
    """Columns in which all jobs are equal: nothing has happened yet."""
    nobody = {} if model.has_users else {"user": ""}
    return nobody | {
        "partition": "",
        "start": np.nan,
        "end": np.nan,
        "cpus": np.nan,
        "state": "PENDING",
    }


def _afterany(chained: NDArray[np.bool_], before: Ints) -> NDArray[np.object_]:
    text = np.full(len(chained), "", dtype=object)
    rows = np.flatnonzero(chained & (before > 0))
    text[rows] = [f"afterany:{job}" for job in before[rows]]
    return text


def _arrays(
    model: WorkloadModel, size: Ints, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], Floats]:
    array = (rng.random(len(size)) < model.arrays) & (size >= SIZE_EDGES[1])
    held = rng.random(len(size)) < model.throttled
    tasks = np.maximum(np.rint(draw(model.throttle, rng.random(len(size))) * size), 1)
    return array, np.where(array & held, tasks, np.nan)


def _gaps(model: WorkloadModel, size: Ints, uniform: Floats) -> Floats:
    gap = np.zeros(len(size))
    for low, high, points in zip(SIZE_EDGES, (*SIZE_EDGES[1:], 10**9), model.gaps_s, strict=True):
        mine = (size >= low) & (size < high)
        gap[mine] = draw(points, uniform[mine])
    return gap


def _run_scores(model: WorkloadModel, batch: Ints, rng: np.random.Generator) -> Floats:
    """Uniform numbers, correlated within a batch: a normal score shared by the batch plus one of
    the job's own.
    """
    shared = ndtri(np.clip(rng.random(int(batch[-1]) + 1 if len(batch) else 0), 1e-12, 1 - 1e-12))
    own = ndtri(np.clip(rng.random(len(batch)), 1e-12, 1 - 1e-12))
    weight = model.run_correlation
    return np.asarray(ndtr(np.sqrt(weight) * shared[batch] + np.sqrt(1 - weight) * own))


def _share(cells: tuple[Cell, ...], name: str) -> Floats:
    return np.array([getattr(cell, name) for cell in cells])
