"""The regression of waits, fitted again each day to what is known by then.

Months differ: what a quiet month taught is off as the queue grows. `mirage evaluate waits` once a
night does the same on a site.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mirage.provision.learn.episode import Floats
from mirage.provision.starts.forecast import LEVELS
from mirage.provision.starts.regression import FEATURES, WaitRegression, fit_regression
from mirage.provision.starts.replay import StartCase
from slurm_sim.seconds import DAY_S


def columns(cases: Sequence[StartCase]) -> tuple[Floats, Floats, Floats]:
    """Features (n, FEATURES), times of submission (n,) and waits (n,), seconds."""
    rows = np.array([case.features for case in cases]).reshape(len(cases), len(FEATURES))
    submit_s = np.array([case.submit_s for case in cases], dtype=np.float64)
    return rows, submit_s, np.array([case.wait_s for case in cases], dtype=np.float64)


def daily_waits_s(cases: Sequence[StartCase]) -> Floats:
    """(n, LEVELS) of each case, by the waits that had ended as its day began; NaN: too few had."""
    rows, submit_s, waits_s = columns(cases)
    day = (submit_s // DAY_S).astype(np.int64)
    found_s = np.full((len(cases), len(LEVELS)), np.nan)
    for today in np.unique(day):
        known, chosen = submit_s + waits_s < today * DAY_S, day == today
        if (regression := fit_regression(rows[known], waits_s[known])) is not None:
            found_s[chosen] = regression.waits_s(rows[chosen])
    return found_s


def latest_regression(cases: Sequence[StartCase]) -> WaitRegression | None:
    """By all cases; None: too few."""
    rows, _, waits_s = columns(cases)
    return fit_regression(rows, waits_s)
