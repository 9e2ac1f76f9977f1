"""The law of the waits of like jobs, calibrated on the waits that came: needs no model.

Like jobs are those of `mirage.state.likeness`, the law is that of `policies/wait_law.py`, in which
waits that are still under way count. A recent wait is compared with the law as it was when that
job entered the queue; the shares of these ranks say which quantiles of today's law to show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from mirage.chain.durations import format_duration
from mirage.domain import Job, Snapshot, WaitSample
from mirage.provision.learn.episode import Floats
from mirage.provision.policies.wait_law import WaitLaw, wait_law
from mirage.provision.starts.forecast import LEVELS, StartForecast
from mirage.state.likeness import Alike, Requests, Waits
from mirage.state.waits import WaitBook

LAST, AT_LEAST = 100, 20
"""So many of the newest waits make the law; as alike as leaves so many."""
RECENT_S = 7 * 86_400
"""Waits of so long ago are still looked at."""
CASES = 200
"""So many of the newest waits calibrate it."""
ASKED = (0.07, 0.5, 0.93)
"""Quantiles of their ranks that are shown as p10, p50 and p90. Waits of one burst are alike, and the
queue moves on: by their own 0.1 and 0.9 quantiles only three quarters of later waits were covered.
"""
MINUTE_S = 60


@dataclass(frozen=True)
class QuantileCalibration:
    """Which quantiles of a method's own law were p10, p50 and p90 of the waits that came.

    Conformal prediction on ranks (Chernozhukov, Wuethrich, Zhu: Distributional conformal
    prediction, 2021): a law that was exceeded by 25 % of the waits at its p90 is asked for a higher
    quantile. It holds for waits that are exchangeable with those it was made of.
    """

    levels: tuple[float, float, float] = LEVELS
    cases: int = field(default=0)
    """How many waits it was made of; 0: none, the law is taken as it is."""

    @classmethod
    def of(cls, ranks: Floats, fewest: int = 20) -> QuantileCalibration:
        """From the rank of each past wait in its own forecast, (n,), 0 to 1."""
        if len(ranks) < fewest:
            return cls()
        low, middle, high = (
            float(level) for level in np.quantile(ranks, ASKED, method="median_unbiased")
        )
        return cls((low, middle, high), len(ranks))


class LikeJobs(NamedTuple):
    """Recent waits, for one job."""

    alike: Alike
    begins_s: Floats
    """(n,): when each of the like jobs that started began to wait."""
    waits_s: Floats
    """(n,)"""
    open_s: Floats
    """When each of those that wait still began to."""
    now_s: int

    @classmethod
    def of(cls, job: Job, samples: Sequence[WaitSample], snapshot: Snapshot) -> LikeJobs:
        """``samples``: of the job's pool, oldest start first; ``snapshot``: the queue now."""
        alike = Waits(samples).like(job, AT_LEAST)
        pool = snapshot.pool_of(job.partition)
        waiting = [
            other
            for other in snapshot.jobs
            if other.is_queueing
            and other.eligible_s is not None
            and other.job_id != job.job_id
            and snapshot.pool_of(other.partition) == pool
        ]
        since_s = np.array([other.eligible_s for other in waiting], dtype=np.float64)
        open_s = since_s[alike.likeness.among(Requests.of(waiting))]
        return cls(alike, alike.eligible_s, alike.wait_s, open_s, snapshot.at_s)

    def law_at(self, at_s: float) -> WaitLaw | None:
        """The law as it could be known at that time; None: no like job had started."""
        starts_s = self.begins_s + self.waits_s
        ended_s = self.waits_s[starts_s < at_s][-LAST:]
        if not len(ended_s):
            return None
        under_way = (self.begins_s < at_s) & (starts_s >= at_s)
        since_s = np.concatenate([self.begins_s[under_way], self.open_s[self.open_s < at_s]])
        return wait_law(ended_s, at_s - since_s)

    def calibration(self) -> QuantileCalibration:
        """From the newest waits, those under way at the rank that they have reached."""
        begins_s = np.concatenate([self.begins_s, self.open_s])
        waits_s = np.concatenate([self.waits_s, self.now_s - self.open_s])
        newest = np.argsort(begins_s, kind="stable")[-CASES:]
        ranks = [
            rank_in(law.waits_s, law.shares, float(waits_s[index]), place)
            for index, place in zip(newest, places(len(newest)), strict=True)
            if (law := self.law_at(begins_s[index])) is not None
        ]
        return QuantileCalibration.of(np.array(ranks))


def forecast_from_like_jobs(
    job: Job, samples: Sequence[WaitSample], snapshot: Snapshot
) -> StartForecast | None:
    """For a job that enters the queue now, or is in it; None: no job of its pool has started."""
    like = LikeJobs.of(job, samples, snapshot)
    law = like.law_at(snapshot.at_s + 1)
    if law is None:
        return None
    waited_s = max(0, snapshot.at_s - (snapshot.at_s if job.eligible_s is None else job.eligible_s))
    calibration = like.calibration()
    low_s, middle_s, high_s = (_left_s(law, level, waited_s) for level in calibration.levels)
    count = min(LAST, len(like.waits_s))
    spread = np.quantile(like.waits_s[-LAST:], (0.1, 0.9))
    reason = (
        f"the last {count} {like.alike.words} waited {format_duration(spread[0])} to"
        f" {format_duration(spread[1])} (p10 to p90)"
        + _more_waiting(len(like.open_s))
        + (f"; this job has waited for {format_duration(waited_s)}" if waited_s else "")
        + _words(calibration)
    )
    return StartForecast(wait_s=(low_s, middle_s, high_s), method="like jobs", reason=reason)


def _more_waiting(count: int) -> str:
    if not count:
        return ""
    return f", {count} more {'is' if count == 1 else 'are'} waiting"


def mean_of_like_jobs(job: Job, samples: Sequence[WaitSample]) -> float:
    """Seconds; ``samples``: at least one."""
    return float(Waits(samples).like(job, AT_LEAST).wait_s[-LAST:].mean())


def recent_waits(records: Sequence[Job], snapshot: Snapshot, job: Job) -> list[WaitSample]:
    """Of the job's pool, the starts of the last days, oldest first."""
    book = WaitBook(keep_s=RECENT_S)
    book.observe(snapshot)
    book.add(records, snapshot)
    return list(book.recent(snapshot.pool_of(job.partition), snapshot.at_s - RECENT_S))


def rank_in(values_s: Floats, shares: Floats, wait_s: float, place: float) -> float:
    """Where a wait stands in a law, 0 to 1; ``place``, 0 to 1, where among those that are equal to
    the minute.
    """
    shorter = float(shares[values_s < wait_s - MINUTE_S].sum())
    equal = float(shares[np.abs(values_s - wait_s) <= MINUTE_S].sum())
    return shorter + equal * place


def places(count: int) -> Floats:
    """(count,): evenly spread over 0 to 1, without chance (the golden ratio's multiples)."""
    return np.asarray(np.arange(1, count + 1) * 0.6180339887498949 % 1.0, dtype=np.float64)


def _left_s(law: WaitLaw, level: float, waited_s: float) -> float:
    """The quantile of what is left of a wait that has lasted so long."""
    above = law.share_above(waited_s)
    if above <= 0:
        # No like job waited as long. With an unknown scale, what is left is as long as what was:
        # P(left > x) = waited / (waited + x).
        return float(waited_s * level / max(1 - level, 0.01))
    return max(0.0, law.quantile(1 - above * (1 - level)) - waited_s)


def _words(calibration: QuantileCalibration) -> str:
    if not calibration.cases:
        return "; too few of them to check the range"
    return f"; the range is checked on the last {calibration.cases} waits"
