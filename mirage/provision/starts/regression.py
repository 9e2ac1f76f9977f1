"""The wait by quantile regression on the plan, the waits of like jobs, and the queue.

The plan (`ahead.plan_s`, the rule of `squeue --start`) knows whose turn it is, but takes all limits
for run times and nobody for coming. By how much that is off, past waits tell: linear quantile
regression (Koenker and Bassett, 1978) on logarithms. The newest part of the past is left out of the
fit and moves p10 and p90 until they hold there (conformalized quantile regression: Romano,
Patterson, Candes, 2019).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirage.domain import Job, Snapshot
from mirage.errors import InputError
from mirage.provision.learn.episode import Floats
from mirage.provision.starts.ahead import plan_s
from mirage.provision.starts.forecast import LEVELS, StartForecast
from mirage.provision.starts.like_jobs import (
    forecast_from_like_jobs,
    mean_of_like_jobs,
    recent_waits,
)
from slurm_sim.config import ClusterConfig
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

FEATURES = (
    "one",
    "log_plan",
    "log_like_p50",
    "log_like_p90",
    "log_like_mean",
    "log_nodes",
    "log_limit",
    "log_queued_share",
)
AT_ONCE_S = 60.0
"""A job that starts so soon by the plan does start then."""
LEAST_S, MOST_S = 60.0, 14 * 86_400.0
"""Waits are told apart within these."""
FEWEST = 60
"""Waits that a fit needs."""
NEWEST = 0.3
"""Share of them that moves p10 and p90."""
STRENGTH = 1e-3
"""Of the penalty on coefficients (L1), for features that tell the same."""


def features(
    job: Job,
    snapshot: Snapshot,
    plan_s: float,
    like_jobs_s: tuple[float, float, float],
    mean_s: float,
) -> Floats:
    """(FEATURES,) of a job that enters the queue now."""
    pool = snapshot.pool_of(job.partition)
    queued = sum(
        other.nodes
        for other in snapshot.jobs
        if other.is_queueing and snapshot.pool_of(other.partition) == pool
    )
    nodes = sum(
        node.up and not set(job.partition.split(",")).isdisjoint(node.partitions)
        for node in snapshot.nodes
    )
    waits_s = np.clip([plan_s, like_jobs_s[1], like_jobs_s[2], mean_s], LEAST_S, MOST_S)
    shape = job.nodes, job.time_limit_s or MOST_S, 1 + queued / max(nodes, 1)
    return np.array([1.0, *np.log(waits_s), *np.log(shape)])


@dataclass(frozen=True)
class WaitRegression:
    """What was learnt from past waits."""

    coefficients: Floats
    """(LEVELS, FEATURES): of the logarithm of the wait."""
    moves: tuple[float, float]
    """By so much p10 goes down and p90 up, in logarithms."""
    cases: int
    """Waits that it was made of."""

    def waits_s(self, rows: Floats) -> Floats:
        """(n, LEVELS): p10, p50, p90 of jobs with these features, (n, FEATURES)."""
        logs = rows @ self.coefficients.T
        logs[:, 0] -= self.moves[0]
        logs[:, 2] += self.moves[1]
        found = np.exp(np.clip(np.sort(logs, axis=1), np.log(LEAST_S), np.log(MOST_S)))
        # By the plan it starts at once; that holds for all levels.
        at_once = rows[:, FEATURES.index("log_plan")] <= np.log(AT_ONCE_S)
        found[at_once] = AT_ONCE_S
        return np.asarray(found)

    def forecast(self, row: Floats) -> StartForecast:
        low_s, middle_s, high_s = self.waits_s(row[None])[0].tolist()
        return StartForecast(
            wait_s=(low_s, middle_s, high_s),
            method="plan and like jobs",
            reason=(
                "so by the plan of the present queue and the waits of like jobs, as"
                f" {self.cases} past waits came out"
            ),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "features": list(FEATURES),
            "coefficients": self.coefficients.tolist(),
            "moves": list(self.moves),
            "jobs": self.cases,
        }

    def ask(
        self, job: Job, snapshot: Snapshot, records: Sequence[Job], cluster: ClusterConfig
    ) -> StartForecast | None:
        """For a job that enters the queue now; ``records``: of accounting. None: no job of its pool
        has started. Raises InputError, SimulationError.
        """
        samples = recent_waits(records, snapshot, job)
        like = forecast_from_like_jobs(job, samples, snapshot)
        if like is None or not samples:
            return None
        planned_s = plan_s(snapshot, cluster, job, records)
        mean_s = mean_of_like_jobs(job, samples)
        return self.forecast(features(job, snapshot, planned_s, like.wait_s, mean_s))

    @classmethod
    def of_json(cls, record: dict[str, Any]) -> WaitRegression:
        """Raises KeyError, TypeError, ValueError."""
        coefficients = np.array(record["coefficients"], dtype=np.float64)
        if tuple(record["features"]) != FEATURES or coefficients.shape != (
            len(LEVELS),
            len(FEATURES),
        ):
            raise ValueError("it has other features")
        low, high = (float(move) for move in record["moves"])
        if not np.isfinite([*coefficients.ravel(), low, high]).all():
            raise ValueError("it has numbers that are not finite")
        return cls(coefficients, (low, high), int(record["jobs"]))


def read_regression(path: Path) -> WaitRegression | None:
    """From results.json of `mirage evaluate --waits`; None: it has none. Raises InputError."""
    try:
        record = parse_json(read_text(path)).get("regression")
        return WaitRegression.of_json(record) if record else None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: no readable regression of waits ({error!r}); give results.json of mirage"
            " evaluate --waits."
        ) from error


def fit_regression(rows: Floats, waits_s: Floats) -> WaitRegression | None:
    """From past jobs in the order of their submission: features (n, FEATURES) and waits (n,). None:
    too few of them were in doubt.
    """
    doubtful = rows[:, FEATURES.index("log_plan")] > np.log(AT_ONCE_S)
    rows, logs = rows[doubtful], np.log(np.clip(waits_s[doubtful], LEAST_S, MOST_S))
    if len(rows) < FEWEST:
        return None
    older = int(len(rows) * (1 - NEWEST))
    first = _fit(rows[:older], logs[:older])
    newest = np.sort(rows[older:] @ first.T, axis=1)
    moves = (
        _move(newest[:, 0] - logs[older:], LEVELS[0]),
        _move(logs[older:] - newest[:, 2], LEVELS[0]),
    )
    return WaitRegression(_fit(rows, logs), moves, len(rows))


def _move(beyond: Floats, share: float) -> float:
    """So that a ``share`` stays beyond, with the finite-sample correction; never inwards by more
    than the range.
    """
    level = min(1.0, (1 - share) * (1 + 1 / len(beyond)))
    return float(np.quantile(beyond, level))


def _fit(rows: Floats, logs: Floats) -> Floats:
    from sklearn.linear_model import QuantileRegressor

    found: Sequence[Floats] = [
        QuantileRegressor(quantile=level, alpha=STRENGTH, fit_intercept=True, solver="highs").fit(
            rows[:, 1:], logs
        )
        for level in LEVELS
    ]
    return np.array([[model.intercept_, *model.coef_] for model in found])  # type: ignore[attr-defined]
