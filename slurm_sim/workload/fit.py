"""Fits a `WorkloadModel` to a trace."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.cluster.vq import kmeans2
from scipy.special import ndtri

from slurm_sim.traces.chains import MIN_TRUST
from slurm_sim.traces.errors import TraceError
from slurm_sim.traces.inference import Inference, array_groups, infer
from slurm_sim.traces.table import Trace
from slurm_sim.workload.generate import MOST_JOBS, generate
from slurm_sim.workload.model import SIZE_EDGES, Cell, UserClass, WorkloadModel
from slurm_sim.workload.sessions import Sessions, find_sessions
from slurm_sim.workload.tables import table

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]
MIN_JOBS = 200
MIN_CELL = 20
"""A pair of nodes and limit with fewer jobs shares a bin: nobody's single job can be read from the
file.
"""
MIN_BIN = 60
PAIRS = (90, 60, 30, 10)
"""Pairs with a cell of their own: fewer if the file would be too long."""
MAX_BYTES = 100_000
USERS_A_CLASS = 8
MAX_CLASSES = 12


def fit(
    trace: Trace,
    nodes: int,
    *,
    name: str = "fitted",
    source: str = "",
    licence: str = "",
    timezone: str = "UTC",
    inferred: Inference | None = None,
) -> WorkloadModel:
    """The model of a cleaned trace, without its chance: the same trace gives the same model.

    ``nodes``: of the cluster; ``timezone``: of the hours of the week; ``inferred``: chains and
    throttles, found if not given. Raises `TraceError` for fewer than `MIN_JOBS` jobs or less than a
    day.
    """
    span_s = (
        float(trace.column("submit").max() - trace.column("submit").min()) if len(trace) else 0.0
    )
    if len(trace) < MIN_JOBS or span_s < 86400:
        raise TraceError(
            trace.source,
            f"at least {MIN_JOBS} jobs over a day",
            found=f"{len(trace)} over {span_s:.0f} s",
        )
    inferred = inferred or infer(trace)
    about = {"name": name, "source": source, "licence": licence, "timezone": timezone}
    for pairs in PAIRS:
        model = _fit(trace, nodes, pairs, inferred, span_s, **about)
        if len(model.text().encode()) <= MAX_BYTES:
            break
    return _calibrated(model, len(trace) / span_s)


def _fit(
    trace: Trace,
    nodes: int,
    pairs: int,
    inferred: Inference,
    span_s: float,
    *,
    name: str,
    source: str,
    licence: str,
    timezone: str,
) -> WorkloadModel:
    sessions = find_sessions(trace)
    cell_of = _cell_numbers(trace, pairs)
    batch_size = np.bincount(sessions.batch)
    weekly, day_shape = _rates(trace, sessions, timezone)
    arrays, throttled, throttle = _arrays(trace, sessions, inferred)
    return WorkloadModel(
        name=name,
        source=source,
        licence=licence,
        nodes=nodes,
        gpus_per_node=_gpus_per_node(trace),
        jobs=len(trace),
        days=round(span_s / 86400, 2),
        offered_load=_digits(np.nansum(trace.column("nodes") * trace.run_s) / span_s / nodes),
        has_users=sessions.has_users,
        sessions_per_h=_digits(len(sessions.session_first) / (span_s / 3600)),
        hour_of_week=tuple(_digits(value) for value in weekly),
        day_shape=_digits(day_shape),
        run_correlation=_digits(_run_correlation(trace, sessions)),
        chained=_digits(_chained(inferred, batch_size)),
        arrays=_digits(arrays),
        throttled=_digits(throttled),
        throttle=throttle,
        patience_s=_patience(trace),
        gaps_s=_gaps(sessions, batch_size),
        batch_gap_s=_batch_gaps(sessions),
        classes=_classes(trace, sessions, cell_of),
        cells=_cells(trace, sessions, cell_of),
    )


def _calibrated(model: WorkloadModel, jobs_per_s: float) -> WorkloadModel:
    """Tables round the tails of batch sizes: the session rate is set so that the jobs per hour come
    out right.
    """
    a_week = jobs_per_s * 604800
    weeks = int(np.clip(2e5 / a_week, max(1.0, min(8.0, MOST_JOBS / 2 / a_week)), 520))
    drawn = generate(replace(model, day_shape=0.0), seed=0, duration_s=weeks * 604800)
    return replace(
        model,
        sessions_per_h=_digits(model.sessions_per_h * jobs_per_s * weeks * 604800 / len(drawn)),
    )


def _digits(value: float) -> float:
    return float(f"{float(value):.4g}")


def _gpus_per_node(trace: Trace) -> int:
    ratio = trace.column("gpus") / trace.column("nodes")
    return int(np.nan_to_num(np.nanmedian(ratio))) if not np.isnan(ratio).all() else 0


# --- cells
# -----------------------------------------------------------------------------------------------------------


def _cell_numbers(trace: Trace, pairs: int) -> Ints:
    """A cell's number for each job: common pairs of (nodes, limit) one each, the rest by powers of
    two of both.
    """
    nodes, limit = trace.column("nodes"), np.nan_to_num(trace.column("timelimit_s"))
    pair = pd.DataFrame({"nodes": nodes, "limit": limit})
    count = pair.groupby(["nodes", "limit"])["nodes"].transform("size").to_numpy()
    number = pair.groupby(["nodes", "limit"], sort=True).ngroup().to_numpy()
    by_count = np.sort(np.unique(np.column_stack([count, number]), axis=0)[:, 0])[::-1]
    least = max(MIN_CELL, by_count[min(pairs, len(by_count)) - 1])
    bins = np.floor(np.log2(np.maximum(nodes, 1))) * 64 + np.floor(np.log2(np.maximum(limit, 1)))
    key = np.where(count >= least, number, 10_000_000 + bins)
    return _merge_small(key)


def _merge_small(key: Floats) -> Ints:
    """Bins of too few jobs go to the next one by their key, which is of similar nodes."""
    values, code, count = np.unique(key, return_inverse=True, return_counts=True)
    target = np.arange(len(values))
    for index in range(len(values) - 1):
        if values[index] >= 10_000_000 and count[index] < MIN_BIN:
            target[target == index] = index + 1
            count[index + 1] += count[index]
    if values[-1] >= 10_000_000 and count[-1] < MIN_BIN and len(values) > 1:
        target[target == len(values) - 1] = len(values) - 2
    return np.unique(target[code], return_inverse=True)[1]


def _cells(trace: Trace, sessions: Sessions, cell_of: Ints) -> tuple[Cell, ...]:
    nodes, limit = trace.column("nodes"), np.nan_to_num(trace.column("timelimit_s"))
    ran, cancelled = trace.ran, _cancelled(trace)
    ratio = np.where(limit > 0, trace.run_s / np.maximum(limit, 1), trace.run_s)
    failed = np.array([state not in ("COMPLETED", "TIMEOUT", "") for state in trace.text("state")])
    first = sessions.batch_first
    size, batch_cell = np.bincount(sessions.batch), cell_of[sessions.order[first]]
    cells = []
    for cell in range(int(cell_of.max()) + 1):
        inside = cell_of == cell
        runs = ratio[inside & ran]
        limits = limit[inside]
        sizes = size[batch_cell == cell].astype(float)
        cells.append(
            Cell(
                nodes=(
                    table(nodes[inside])
                    if nodes[inside].min() == nodes[inside].max()
                    else _own_values(nodes[inside])
                ),
                limit_s=_own_values(limits) if not _is_smooth(limits) else table(limits),
                smooth=_is_smooth(limits),
                run=table(runs, digits=5) if len(runs) else (0.0,),
                batch=table(sizes) if len(sizes) else (1.0,),
                cancelled=_digits(cancelled[inside].mean()),
                failed=_digits((failed & ran & inside).sum() / max((ran & inside).sum(), 1)),
            )
        )
    return tuple(cells)


def _own_values(values: Floats) -> tuple[float, ...]:
    """As `table`, but of values that occur."""
    from slurm_sim.workload.tables import LEVELS

    points = np.quantile(values, LEVELS, method="inverted_cdf")
    return (
        (float(points[0]),) if points[0] == points[-1] else tuple(float(point) for point in points)
    )


def _is_smooth(limits: Floats) -> bool:
    return len(np.unique(limits)) > 0.3 * len(limits) and len(limits) >= MIN_CELL


def _cancelled(trace: Trace) -> Bools:
    state = trace.jobs["state"].str.startswith("CANCELLED").to_numpy(bool)
    return np.asarray(state & ~trace.ran)


def _patience(trace: Trace) -> tuple[float, ...]:
    patience = trace.column("cancel_after_s")
    gone = _cancelled(trace)
    known = np.where(np.isnan(patience), trace.column("end") - trace.column("submit"), patience)[
        gone
    ]
    return table(known[known >= 0]) or (0.0,)


# --- time
# ------------------------------------------------------------------------------------------------------------


def _rates(trace: Trace, sessions: Sessions, timezone: str) -> tuple[Floats, float]:
    """Factors by hour of the week, and the gamma shape of days. Few weeks: shrunk to day type times
    hour of the day.
    """
    begin = trace.jobs["submit"].to_numpy()[sessions.order[sessions.session_first]]
    stamps = pd.to_datetime(pd.Series(begin), unit="s", utc=True).dt.tz_convert(timezone)
    day, hour = stamps.dt.day_of_week.to_numpy(), stamps.dt.hour.to_numpy()
    count = np.bincount(day * 24 + hour, minlength=168).astype(float).reshape(7, 24)
    weekend = np.arange(7) >= 5
    base = np.where(weekend[:, None], count[weekend].mean(axis=0), count[~weekend].mean(axis=0))
    base = 0.5 * base + 0.25 * (np.roll(base, 1, axis=1) + np.roll(base, -1, axis=1))
    trust = 20.0  # as many sessions as it takes to believe an hour of the week against its day type
    factor = (count * count.mean() + trust * base) / (count.mean() + trust)
    weekly = (factor / factor.mean()).ravel()
    local = stamps.dt.tz_localize(None).astype("datetime64[s]").astype(np.int64).to_numpy()
    return weekly, _day_shape(local, weekly)


def _day_shape(begin: Ints, weekly: Floats) -> float:
    """By moments: counts over expectations vary by 1/mean (Poisson) plus 1/shape. ``begin``: local
    times.
    """
    day = begin // 86400
    daily = np.bincount(day - day.min())[1:-1].astype(float)  # whole days
    weekday = (
        day.min() + 4 + np.arange(len(daily))
    ) % 7  # 1970-01-01 was a Thursday; the first day is left out
    share = weekly.reshape(7, 24).mean(axis=1)[weekday]
    some = share > 0.05
    if some.sum() < 7:
        return 0.0
    expected = daily[some].sum() * share[some] / share[some].sum()
    extra = float(np.var(daily[some] / expected) - np.mean(1 / expected))
    return 1 / extra if extra > 1e-3 else 0.0


def _gaps(sessions: Sessions, batch_size: Ints) -> tuple[tuple[float, ...], ...]:
    inside = np.diff(sessions.batch, prepend=-1) == 0
    size = batch_size[sessions.batch]
    tables = []
    for low, high in zip(SIZE_EDGES, (*SIZE_EDGES[1:], 10**9), strict=True):
        chosen = sessions.gap_s[inside & (size >= low) & (size < high)]
        tables.append(table(chosen) or (1.0,))
    return tuple(tables)


def _batch_gaps(sessions: Sessions) -> tuple[float, ...]:
    between = (np.diff(sessions.batch, prepend=-1) != 0) & ~np.isnan(sessions.gap_s)
    return table(sessions.gap_s[between]) or (60.0,)


# --- users
# -----------------------------------------------------------------------------------------------------------


def _classes(trace: Trace, sessions: Sessions, cell_of: Ints) -> tuple[UserClass, ...]:
    first, session_first = sessions.batch_first, sessions.session_first
    batch_user, session_user = sessions.user[first], sessions.user[session_first]
    users = int(sessions.user.max()) + 1
    group = _groups(trace, sessions, users)
    per_session = np.bincount(sessions.session[first])
    active = np.bincount(session_user, minlength=users).astype(float)
    classes = []
    for number in range(int(group.max()) + 1):
        members = np.flatnonzero(group == number)
        mine = group[session_user] == number
        cells, count = np.unique(
            cell_of[sessions.order[first]][group[batch_user] == number], return_counts=True
        )
        classes.append(
            UserClass(
                users=len(members),
                share=_digits(mine.mean()),
                activity=table(active[members] / active[members].mean()),
                batches=table(per_session[mine].astype(float)),
                cells=tuple(int(cell) for cell in cells),
                weights=tuple(_digits(share) for share in count / count.sum()),
            )
        )
    return tuple(classes)


def _groups(trace: Trace, sessions: Sessions, users: int) -> Ints:
    """k-means over users: mean log size, limit, batch size and run time, and activity. Seeded, so
    repeatable.
    """
    classes = min(MAX_CLASSES, users // USERS_A_CLASS)
    if classes < 2:
        return np.zeros(users, dtype=np.int64)
    rows = sessions.order
    jobs = np.bincount(sessions.user, minlength=users)

    def mean(values: Floats) -> Floats:
        return (
            np.bincount(
                sessions.user, weights=np.log1p(np.nan_to_num(values[rows])), minlength=users
            )
            / jobs
        )

    batch = np.bincount(sessions.batch)[sessions.batch].astype(float)
    in_row_order = np.empty(len(rows))
    in_row_order[rows] = batch
    columns = [
        mean(trace.column("nodes")),
        mean(trace.column("timelimit_s")),
        mean(trace.run_s),
        mean(in_row_order),
    ]
    points = np.column_stack([*columns, np.log1p(jobs)])
    points = (points - points.mean(axis=0)) / np.maximum(points.std(axis=0), 1e-9)
    label = kmeans2(points, classes, minit="++", rng=np.random.default_rng(0), missing="warn")[1]
    return _at_least_three(np.unique(label, return_inverse=True)[1], points)


def _at_least_three(label: Ints, points: Floats) -> Ints:
    """A class of one or two users would describe them: they join the class with the nearest centre."""
    count = np.bincount(label)
    large = np.flatnonzero(count >= 3)
    centres = np.array([points[label == number].mean(axis=0) for number in large])
    for user in np.flatnonzero(count[label] < 3):
        label[user] = large[np.argmin(((centres - points[user]) ** 2).sum(axis=1))]
    return np.unique(label, return_inverse=True)[1]


# --- dependence
# ------------------------------------------------------------------------------------------------------


def _run_correlation(trace: Trace, sessions: Sessions) -> float:
    """Between neighbours in a batch: of normal scores of run times, ranked among jobs of the same
    nodes and limit.
    """
    run = trace.run_s
    keys = [trace.jobs["nodes"], trace.jobs["timelimit_s"].fillna(0)]
    ranks = (
        pd.Series(np.where(trace.ran, run, np.nan))
        .groupby(keys)
        .rank(pct=True, method="average")
        .to_numpy(np.float64)
    )
    size = pd.Series(run).groupby(keys).transform("size").to_numpy(np.float64)
    score = ndtri(np.clip(ranks - 0.5 / size, 1e-6, 1 - 1e-6))[sessions.order]
    pair = (
        (np.diff(sessions.batch) == 0)
        & ~np.isnan(score[1:])
        & ~np.isnan(score[:-1])
        & (size[sessions.order][1:] >= 50)
    )
    if pair.sum() < 100:
        return 0.0
    return float(np.clip(np.corrcoef(score[1:][pair], score[:-1][pair])[0, 1], 0.0, 0.99))


def _chained(inferred: Inference, batch_size: Ints) -> float:
    followers = int((batch_size - 1).sum())
    if not followers or inferred.chains.trust < MIN_TRUST:
        return 0.0
    return min(1.0, inferred.chains.links / followers)


def _arrays(
    trace: Trace, sessions: Sessions, inferred: Inference
) -> tuple[float, float, tuple[float, ...]]:
    """Share of large batches that are arrays, of those with a throttle, and the throttles; zeros
    without array ids.
    """
    is_task = trace.jobs["job_id"].str.contains("_").to_numpy(bool)
    if "array_job_id" in trace.jobs.columns:
        is_task |= trace.jobs["array_job_id"].notna().to_numpy(bool)
    if not is_task.any():
        return 0.0, 0.0, (1.0,)
    size = np.bincount(sessions.batch)
    tasks = np.bincount(sessions.batch, weights=is_task[sessions.order])
    large = size >= SIZE_EDGES[1]
    groups, _names = array_groups(trace)
    found = np.array([each.throttle / each.tasks for each in inferred.throttles])
    known = len(np.unique(groups[(groups >= 0) & is_task]))
    return (
        float((tasks[large] >= 0.8 * size[large]).mean()) if large.any() else 0.0,
        min(1.0, len(found) / known) if known else 0.0,
        table(found) or (1.0,),
    )
