"""A queue log walked day by day: what a forecaster that learns each night would have known.

The trees of a day are fitted to rows of earlier looks. How far waits lie from what a rule says is
taken from the days before, each by what was known then (conformal prediction: Vovk, Gammerman,
Shafer 2005), so that 80 % of the waits lie from p10 to p90. The rule whose medians were nearest on
these days answers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from mirage.provision.learn.episode import Vectors
from mirage.provision.starts.baselines import like_jobs_s
from mirage.provision.starts.queue_log import Floats, QueueLog
from mirage.provision.starts.slurms_plan import LIKE, PLAN, TREES
from mirage.provision.starts.wait_trees import WaitTrees, fit_trees, log_wait, planned_logs

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
"""Waits that a choice of a rule and its range need."""


@dataclass(frozen=True, kw_only=True, eq=False)
class NightlyWaits:
    """What a night learnt."""

    trees: WaitTrees
    off: Mapping[str, float]
    """By rule: the factor by which its medians were off on the days held back (geometric mean of
    the days' means). The least answers.
    """
    errors: tuple[float, ...]
    """By `LEVELS`: quantiles of log(wait) less what the rule that answers says."""
    judged: int
    """Past waits that the errors were taken from."""
    covered: float
    """Share of the waits of the last days from p10 to p90."""
    planned: NightlyWaits | None = None
    """The same for jobs with a plan of Slurm; None: the log has too few of them."""

    @property
    def rule(self) -> str:
        """Which answers: `TREES`, `LIKE` or `PLAN`."""
        return min(self.off, key=self.off.__getitem__)

    @property
    def has_drifted(self) -> bool:
        return self.covered < DRIFTED

    @property
    def words(self) -> str:
        """How far each rule was off, the one that answers first."""
        ranked = sorted(self.off.items(), key=lambda each: each[1])
        each = ", ".join(f"{off:.1f} ({name})" for name, off in ranked)
        return f"on days held back ({self.judged} waits) medians were off by a factor of {each}"

    def for_job(self, *, has_plan: bool) -> NightlyWaits:
        return self.planned if self.planned is not None and has_plan else self

    def logs(self, features: Vectors) -> Floats:
        """(n, FEATURES) -> (n, LEVELS): quantiles of the logarithm of the wait, of `TREES` or `PLAN`."""
        said = planned_logs(features) if self.rule == PLAN else self.trees.logs(features)
        return np.asarray(said[:, None] + np.array(self.errors))


@dataclass(eq=False)
class Walk:
    """Each day's trees are fitted once."""

    log: QueueLog
    by_plan: bool = False
    """Whether only rows with a plan are learnt from."""
    _fits: dict[int, WaitTrees | None] = field(default_factory=dict)
    _said: dict[tuple[int, str], Floats] = field(default_factory=dict)

    @cached_property
    def _of_plans(self) -> Walk:
        return Walk(self.log.rows(np.isfinite(self.log.planned_s)), by_plan=True)

    def night(self, now_s: float) -> NightlyWaits | None:
        """What is learnt just before ``now_s``. None: too little is known, or was held back."""
        found = self._night(now_s)
        if found is None or self.by_plan or not len(self._of_plans.log):
            return found
        return replace(found, planned=self._of_plans.night(now_s))

    def logs(self, today: QueueLog) -> Floats | None:
        """(n, LEVELS): what is said of a later day's rows, by whichever rule answers. None: nothing."""
        night = self.night(today.poll_s[0])
        if night is None:
            return None
        found = self._logs_by(night, today)
        if night.planned is not None and (has_plan := np.isfinite(today.planned_s)).any():
            found[has_plan] = self._of_plans._logs_by(night.planned, today.rows(has_plan))
        return found

    def _logs_by(self, night: NightlyWaits, rows: QueueLog) -> Floats:
        if night.rule != LIKE:
            return night.logs(rows.features)
        return np.asarray(self._like(rows)[:, None] + np.array(night.errors))

    def _night(self, now_s: float) -> NightlyWaits | None:
        trees = self._fit(now_s)
        if trees is None:
            return None
        by_rule = {rule: self._held_back(rule, now_s) for rule in self._rules}
        if sum(map(len, by_rule[TREES])) < FEWEST_JUDGED:
            return None
        off = {rule: _off(days) for rule, days in by_rule.items()}
        days = by_rule[min(off, key=off.__getitem__)]
        errors, last = _quantiles(days), np.concatenate(days[-DRIFT_DAYS:])
        covered = float(((last >= errors[0]) & (last <= errors[-1])).mean())
        if covered < DRIFTED:
            errors = tuple(WIDER * each for each in errors)
        judged = sum(map(len, days))
        return NightlyWaits(trees=trees, off=off, errors=errors, judged=judged, covered=covered)

    @property
    def _rules(self) -> tuple[str, ...]:
        """The simplest first: of equally good ones it answers."""
        return (PLAN, LIKE, TREES) if self.by_plan else (LIKE, TREES)

    def _held_back(self, rule: str, now_s: float) -> list[Floats]:
        """Errors by day, of days with any."""
        today = int(now_s // 86_400)
        days = (self._errors(rule, day, now_s) for day in range(today - JUDGED_DAYS, today))
        return [each for each in days if len(each)]

    def _fit(self, now_s: float) -> WaitTrees | None:
        key = int(now_s)
        if key not in self._fits:
            self._fits[key] = fit_trees(self.log, now_s, by_plan=self.by_plan)
        return self._fits[key]

    def _errors(self, rule: str, day: int, now_s: float) -> Floats:
        """Of a past day's waits by what was known at its begin; the waits as they are known now: one
        that is not over is as long as it has been, or as the rule said.
        """
        rows = self.log.rows(self.log.day == day)
        if not len(rows) or (trees := self._fit(rows.poll_s[0])) is None:
            return np.empty(0)
        if (day, rule) not in self._said:
            says = {
                TREES: lambda: trees.logs(rows.features),
                PLAN: lambda: planned_logs(rows.features),
                LIKE: lambda: self._like(rows),
            }
            self._said[day, rule] = says[rule]()
        said, waited = self._said[day, rule], log_wait(now_s - rows.poll_s)
        is_over = rows.start_s < now_s
        waits = np.where(is_over, log_wait(rows.wait_s), np.maximum(waited, said))
        return np.asarray(waits - said)

    def _like(self, rows: QueueLog) -> Floats:
        """(n,): logarithms of the medians of like jobs, as known at the first of the rows."""
        now_s, log = rows.poll_s[0], self.log
        past = log.rows((log.poll_s < now_s) & (log.start_s < now_s))
        said = like_jobs_s(past, rows, now_s)[:, 1]
        return log_wait(np.where(np.isfinite(said), said, np.median(past.wait_s)))


def _off(days: list[Floats]) -> float:
    """By which factor medians are off, once what they miss on all days together is mended."""
    middle = _quantiles(days)[LEVELS.index(0.5)]
    return float(np.exp(np.mean([np.abs(each - middle).mean() for each in days])))


def _quantiles(days: list[Floats]) -> tuple[float, ...]:
    """By `LEVELS`; each day counts as one, however many jobs it had."""
    weights = np.concatenate([np.full(len(each), 1 / len(each)) for each in days])
    values = np.concatenate(days)
    order = np.argsort(values)
    shares = np.cumsum(weights[order]) / weights.sum()
    places = np.minimum(np.searchsorted(shares, LEVELS), len(values) - 1)
    return tuple(float(values[order][place]) for place in places)
