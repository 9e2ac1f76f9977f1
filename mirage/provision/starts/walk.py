"""A queue log walked day by day: what a forecaster that learns each night would have known.

The trees of a day are fitted to rows of earlier looks. How far waits lie from what the trees say is
taken from the days before, each by its own trees (conformal prediction: Vovk, Gammerman, Shafer
2005), so that 80 % of the waits lie from p10 to p90.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mirage.provision.learn.episode import Vectors
from mirage.provision.starts.queue_log import Floats, QueueLog
from mirage.provision.starts.wait_trees import WaitTrees, fit_trees, log_wait

LEVELS = (0.1, 0.25, 0.5, 0.75, 0.9)
"""Quantiles of a forecast."""
JUDGED_DAYS = 10
"""The errors of so many days make the range."""
DRIFT_DAYS = 3
"""Coverage of so many days tells whether the range still holds."""
DRIFTED = 0.6
"""Below this share it does not."""
WIDER = 1.5
"""By so much the logarithm's range is wider then."""
FEWEST_JUDGED = 50
"""Waits that a range needs."""
UNKNOWN = (-2.0, -1.0, 0.0, 1.0, 2.0)
"""Errors where too few are known: a factor of 7 either way."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NightlyWaits:
    """What a night learnt."""

    trees: WaitTrees
    errors: tuple[float, ...]
    """By `LEVELS`: quantiles of log(wait) less what the trees say."""
    judged: int
    """Past waits that the errors were taken from."""
    covered: float | None
    """Share of the waits of the last days from p10 to p90; None: too few."""
    planned: NightlyWaits | None = None
    """The same for jobs with a plan of Slurm; None: the log has too few of them."""

    @property
    def has_drifted(self) -> bool:
        return self.covered is not None and self.covered < DRIFTED

    def logs(self, features: Vectors) -> Floats:
        """(n, FEATURES) -> (n, LEVELS): quantiles of the logarithm of the wait."""
        if self.planned is None:
            return np.asarray(self.trees.logs(features)[:, None] + np.array(self.errors))
        found, has_plan = replace(self, planned=None).logs(features), np.isfinite(features[:, -1])
        found[has_plan] = self.planned.logs(features[has_plan])
        return found


@dataclass(eq=False)
class Walk:
    """Each day's trees are fitted once."""

    log: QueueLog
    by_plan: bool = False
    """Whether only rows with a plan are learnt from."""
    _fits: dict[int, WaitTrees | None] = field(default_factory=dict)
    _said: dict[int, Floats] = field(default_factory=dict)

    @cached_property
    def _of_plans(self) -> Walk:
        return Walk(self.log.rows(np.isfinite(self.log.planned_s)), by_plan=True)

    def night(self, now_s: float) -> NightlyWaits | None:
        """What is learnt just before ``now_s``. None: too little is known."""
        found = self._night(now_s)
        if found is None or self.by_plan or not len(self._of_plans.log):
            return found
        return replace(found, planned=self._of_plans.night(now_s))

    def _night(self, now_s: float) -> NightlyWaits | None:
        trees = self._fit(now_s)
        if trees is None:
            return None
        today = int(now_s // 86_400)
        days = [self._errors(day, now_s) for day in range(today - JUDGED_DAYS, today)]
        days = [each for each in days if len(each)]
        judged = sum(map(len, days))
        if judged < FEWEST_JUDGED:
            return NightlyWaits(trees=trees, errors=UNKNOWN, judged=0, covered=None)
        errors = _quantiles(days)
        last = np.concatenate(days[-DRIFT_DAYS:])
        covered = float(((last >= errors[0]) & (last <= errors[-1])).mean())
        if covered < DRIFTED:
            errors = tuple(WIDER * each for each in errors)
        return NightlyWaits(trees=trees, errors=errors, judged=judged, covered=covered)

    def _fit(self, now_s: float) -> WaitTrees | None:
        key = int(now_s)
        if key not in self._fits:
            self._fits[key] = fit_trees(self.log, now_s, by_plan=self.by_plan)
        return self._fits[key]

    def _errors(self, day: int, now_s: float) -> Floats:
        """Of a past day's waits by that day's trees, as they are known now: one that is not over is
        as long as it has been, or as the trees said.
        """
        rows = self.log.rows(self.log.day == day)
        if not len(rows) or (trees := self._fit(rows.poll_s[0])) is None:
            return np.empty(0)
        if day not in self._said:
            self._said[day] = trees.logs(rows.features)
        said, waited = self._said[day], log_wait(now_s - rows.poll_s)
        is_over = rows.start_s < now_s
        waits = np.where(is_over, log_wait(rows.wait_s), np.maximum(waited, said))
        return np.asarray(waits - said)


def _quantiles(days: list[Floats]) -> tuple[float, ...]:
    """By `LEVELS`; each day counts as one, however many jobs it had."""
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in days])
    values = np.concatenate(days)
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    places = np.minimum(np.searchsorted(shares, LEVELS), len(values) - 1)
    return tuple(float(values[order][place]) for place in places)
