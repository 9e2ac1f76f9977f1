"""How near synthetic jobs are to a trace: two-sample distances, beside those between parts of the
trace itself.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import ks_2samp, wasserstein_distance

from slurm_sim.traces.table import Trace

Floats = NDArray[np.float64]
MIN_SAMPLE = 30


@dataclass(frozen=True)
class Distance:
    """One quantity's distances. ks: the greatest gap between the distribution functions, 0 to 1."""

    quantity: str
    ks: float
    wasserstein: float
    """Mean distance (earth mover's) of log10(1 + x): 0.3 is a factor of 2; of x itself for run /
    limit.
    """
    floor_ks: float
    """The same between the trace's first and second half."""
    floor_wasserstein: float
    months_ks: float
    """Mean over consecutive 28-day parts of the trace; NaN if it has fewer than two."""

    def as_dict(self) -> dict[str, Any]:
        return {name: None if value != value else value for name, value in asdict(self).items()}


def compare_workloads(trace: Trace, synthetic: Trace) -> list[Distance]:
    """Distances of inter-arrival times, nodes, limits, run times, run/limit and jobs per user and
    hour.
    """
    whole, drawn = samples(trace), samples(synthetic)
    halves = [samples(part) for part in _parts(trace, 2)]
    span = float(trace.column("submit").max() - trace.column("submit").min())
    months = [samples(part) for part in _parts(trace, int(span // (28 * 86400)))]
    result = []
    for name, values in whole.items():
        pairs = [_distance(name, left[name], right[name])[0] for left, right in pairwise(months)]
        ks, far = _distance(name, values, drawn[name])
        floor_ks, floor_far = _distance(name, halves[0][name], halves[1][name])
        known = [value for value in pairs if value == value]
        result.append(
            Distance(
                quantity=name,
                ks=ks,
                wasserstein=far,
                floor_ks=floor_ks,
                floor_wasserstein=floor_far,
                months_ks=float(np.mean(known)) if known else float("nan"),
            )
        )
    return result


def samples(trace: Trace) -> dict[str, Floats]:
    """The compared quantities."""
    submit, limit, run = trace.column("submit"), trace.column("timelimit_s"), trace.run_s
    ran = trace.ran
    return {
        "inter-arrival time": np.diff(submit),
        "nodes": trace.column("nodes"),
        "time limit": limit[limit > 0],
        "run time": run[ran],
        "run / limit": (run / limit)[ran & (limit > 0)],
        "jobs per user and hour": jobs_per_user_hour(trace),
    }


def jobs_per_user_hour(trace: Trace) -> Floats:
    """Jobs of each user in each hour in which the user submitted any."""
    _, user = np.unique(trace.text("user").astype(str), return_inverse=True)
    hour = (trace.column("submit") // 3600).astype(np.int64)
    hour -= hour.min() if len(hour) else 0
    _, count = np.unique(user * (int(hour.max(initial=0)) + 1) + hour, return_counts=True)
    return np.asarray(count, dtype=np.float64)


def _parts(trace: Trace, count: int) -> list[Trace]:
    if count < 2:
        return []
    submit = trace.column("submit")
    edges = np.linspace(submit.min(), submit.max() + 1, count + 1)
    part = np.searchsorted(edges, submit, side="right") - 1
    return [trace.pick(part == number) for number in range(count)]


def _distance(name: str, left: Floats, right: Floats) -> tuple[float, float]:
    if len(left) < MIN_SAMPLE or len(right) < MIN_SAMPLE:
        return float("nan"), float("nan")
    ks = float(ks_2samp(left, right, method="asymp").statistic)
    if name != "run / limit":
        left, right = np.log10(1 + left), np.log10(1 + right)
    return ks, float(wasserstein_distance(left, right))
