"""The wait by quantile regression on the plan, the waits of like jobs, and the queue.

The plan (`ahead.plan_s`, the rule of `squeue --start`) knows whose turn it is, but takes all limits
for run times and nobody for coming. By how much that is off, past waits tell: linear quantile
regression (Koenker and Bassett, 1978) on logarithms.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirage.domain import Job, Snapshot
from mirage.errors import InputError
from mirage.figures.resample import Mask
from mirage.provision.learn.episode import Floats
from mirage.provision.starts.ahead import plan_s
from mirage.provision.starts.forecast import LEVELS, WAITS_RESULT, StartForecast
from mirage.provision.starts.like_jobs import forecast_from_like_jobs, recent_waits
from slurm_sim.config import ClusterConfig
from slurm_sim.files import read_text
from slurm_sim.formats import parse_json

FEATURES = ("one", "log_plan", "log_like_p50")
"""More of the queue or of the job (nodes, limit, queued nodes, p90 of like jobs) adds nothing."""
AT_ONCE_S = 60.0
"""A job that starts so soon by the plan does start then."""
LEAST_S, MOST_S = 60.0, 14 * 86_400.0
"""Waits are told apart within these."""
SHORT_S = 600.0
"""One job in seven starts sooner, though the plan has it wait. p50 is the median of the others."""
FEWEST = 60
"""Waits that a fit needs."""
STRENGTH = 1e-3
"""Of the penalty on coefficients (L1), for features that tell the same."""


def features(planned_s: float, like_jobs_s: tuple[float, float, float]) -> Floats:
    """(FEATURES,) of a job that enters the queue now: its plan, and p10, p50, p90 of like jobs."""
    waits_s = np.clip([planned_s, like_jobs_s[1]], LEAST_S, MOST_S)
    return np.array([1.0, *np.log(waits_s)])


def in_doubt(rows: Floats) -> Mask:
    """(n,): whether jobs with these features, (n, FEATURES), wait by the plan."""
    return np.asarray(rows[:, FEATURES.index("log_plan")] > np.log(AT_ONCE_S))


@dataclass(frozen=True)
class WaitRegression:
    """What was learnt from past waits."""

    coefficients: Floats
    """(LEVELS, FEATURES): of the logarithm of the wait."""
    cases: int
    """Waits that it was made of."""

    def waits_s(self, rows: Floats) -> Floats:
        """(n, LEVELS): p10, p50, p90 of jobs with these features, (n, FEATURES)."""
        logs = rows @ self.coefficients.T
        found = np.exp(np.clip(np.sort(logs, axis=1), np.log(LEAST_S), np.log(MOST_S)))
        # By the plan it starts at once; that holds for all levels.
        found[~in_doubt(rows)] = AT_ONCE_S
        return np.asarray(found)

    def forecast(self, row: Floats) -> StartForecast:
        low_s, middle_s, high_s = self.waits_s(row[None])[0].tolist()
        return StartForecast(
            wait_s=(low_s, middle_s, high_s),
            method="plan and like jobs",
            reason=(
                "so by the plan of the present queue and the waits of like jobs, as"
                f" {self.cases} past waits came out; the median is that of jobs that had to wait"
            ),
        )

    def as_json(self) -> dict[str, Any]:
        return {
            "features": list(FEATURES),
            "coefficients": self.coefficients.tolist(),
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
        if like is None:
            return None
        planned_s = plan_s(snapshot, cluster, job, records)
        return self.forecast(features(planned_s, like.wait_s))

    @classmethod
    def of_json(cls, record: dict[str, Any]) -> WaitRegression:
        """Raises KeyError, TypeError, ValueError."""
        coefficients = np.array(record["coefficients"], dtype=np.float64)
        if tuple(record["features"]) != FEATURES or coefficients.shape != (
            len(LEVELS),
            len(FEATURES),
        ):
            raise ValueError("it has other features")
        if not np.isfinite(coefficients).all():
            raise ValueError("it has numbers that are not finite")
        return cls(coefficients, int(record["jobs"]))


def read_regression(path: Path) -> WaitRegression | None:
    """From results.json of `mirage evaluate waits`; None: it has none. Raises InputError."""
    try:
        record = parse_json(read_text(path)).get("regression")
        return WaitRegression.of_json(record) if record else None
    except (OSError, AttributeError, KeyError, TypeError, ValueError) as error:
        raise InputError(
            f"{path}: no readable regression of waits; give {WAITS_RESULT}."
        ) from error


def fit_regression(rows: Floats, waits_s: Floats) -> WaitRegression | None:
    """From past jobs: features (n, FEATURES) and waits (n,). None:
    too few of them were in doubt.
    """
    doubtful = in_doubt(rows)
    rows, logs = rows[doubtful], np.log(np.clip(waits_s[doubtful], LEAST_S, MOST_S))
    if len(rows) < FEWEST:
        return None
    return WaitRegression(_fit(rows, logs), len(rows))


def _fit(rows: Floats, logs: Floats) -> Floats:
    from sklearn.linear_model import QuantileRegressor

    found = []
    for level in LEVELS:
        chosen = logs >= np.log(SHORT_S) if level == LEVELS[1] else np.ones(len(logs), bool)
        model = QuantileRegressor(quantile=level, alpha=STRENGTH, solver="highs")
        model.fit(rows[chosen, 1:], logs[chosen])
        found.append([model.intercept_, *model.coef_])
    return np.array(found)
