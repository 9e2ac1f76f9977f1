"""Users' running jobs over time: at each job's start, and the peaks that betray a limit
(MaxJobsPerUser).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from slurm_sim.traces.table import Trace
from slurm_sim.traces.usage import Steps, busy_nodes

Floats = NDArray[np.float64]
MIN_USERS = 5
"""So many users have to stop at the same number of running jobs."""
MIN_LIMIT = 2
WAIT_S = 600.0


@dataclass(frozen=True)
class UserLimit:
    """A limit of running jobs per user, and what speaks for it."""

    jobs: int
    users_at: int
    """Users whose peak is exactly this."""
    users_above: int
    users_just_below: int
    """Users whose peak is one less: without a limit there would be about as many at it as here, or
    fewer.
    """
    blocked_jobs: int
    """Jobs that waited over 10 minutes and started within a minute of an end of one of their user's
    full set.
    """
    blocked_while_idle: float
    """Share of them during whose last minute of waiting enough nodes for them were idle."""


def user_codes(trace: Trace) -> NDArray[np.int64]:
    """A number a user, -1 where the log has none; shape (jobs,)."""
    user = trace.text("user").astype(str)
    _, code = np.unique(user, return_inverse=True)
    return np.where(user == "", -1, code)


def running_at(
    trace: Trace, codes: NDArray[np.int64], times: Floats, *, after: bool
) -> NDArray[np.int64]:
    """How many jobs the job's user runs at ``times[job]``; ``after``: with starts and ends of that
    second done.
    """
    start, end = trace.column("start"), trace.column("end")
    held = (codes >= 0) & ~np.isnan(start) & (np.nan_to_num(end, nan=np.inf) > start)
    base = float(np.nanmin(start)) if held.any() else 0.0
    span = float(np.nanmax(np.where(np.isnan(end), start, end)) - base) + 2.0 if held.any() else 1.0

    def before(events: Floats) -> NDArray[np.int64]:
        known = held & ~np.isnan(events)
        keys = np.sort(codes[known] * span + (events[known] - base))
        wanted = codes * span + (np.clip(times, base - 0.5, base + span - 1) - base)
        first = np.searchsorted(keys, codes * span - 0.5)
        return np.asarray(keys.searchsorted(wanted, side="right" if after else "left") - first)

    return np.where(codes >= 0, before(start) - before(end), 0)


def infer_limit(trace: Trace, nodes: Steps | None = None) -> UserLimit | None:
    """The number of running jobs at which many users stop and (nearly) none goes beyond; None:
    there is no such.

    ``nodes``: the cluster's size over time (capacity.infer_nodes), for the evidence of idle nodes.
    Limits: one value for all users and the whole log; a limit on nodes or GPUs, or of one QOS among
    several, is not seen.
    """
    codes = user_codes(trace)
    chosen = trace.ran & (codes >= 0) & ~np.isnan(trace.column("start"))
    if not chosen.any():
        return None
    running = running_at(trace, codes, trace.column("start"), after=True)
    peaks = np.zeros(int(codes.max()) + 1, dtype=np.int64)
    np.maximum.at(peaks, codes[chosen], running[chosen])
    counts = np.bincount(peaks[peaks > 0])
    limit = _sharpest(counts)
    if limit is None:
        return None
    blocked = _blocked(trace, codes, limit)
    idle = _idle_share(trace, blocked, nodes)
    return UserLimit(
        jobs=limit,
        users_at=int(counts[limit]),
        users_above=int(counts[limit + 1 :].sum()),
        users_just_below=int(counts[limit - 1]),
        blocked_jobs=int(blocked.sum()),
        blocked_while_idle=idle,
    )


def _sharpest(counts: NDArray[np.int64]) -> int | None:
    """The peak shared by at least `MIN_USERS`, more than the two below it have, and at most a tenth
    as many above.
    """
    for limit in range(len(counts) - 1, MIN_LIMIT - 1, -1):
        below = counts[max(limit - 2, 1) : limit].sum()
        above = counts[limit + 1 :].sum()
        if counts[limit] >= MIN_USERS and counts[limit] > below and above <= 0.1 * counts[limit]:
            return limit
    return None


def at_limit(trace: Trace, codes: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    """Jobs whose user had the limit's number running in the second before they started."""
    return running_at(trace, codes, trace.column("start") - 61, after=True) >= limit


def _blocked(trace: Trace, codes: NDArray[np.int64], limit: int) -> NDArray[np.bool_]:
    return trace.ran & (np.nan_to_num(trace.queued_s) > WAIT_S) & at_limit(trace, codes, limit)


def _idle_share(trace: Trace, blocked: NDArray[np.bool_], nodes: Steps | None) -> float:
    if nodes is None or not blocked.any():
        return float("nan")
    before = trace.column("start")[blocked] - 61
    idle = nodes.at(before) - busy_nodes(trace).at(before)
    return float((idle >= trace.column("nodes")[blocked]).mean())
