"""How good forecasts of starts were: coverage of the range, and the ratio of p50 to the wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass

import numpy as np

from mirage.figures.estimate import Estimate
from mirage.figures.resample import Ints, Mask, ratio_interval
from mirage.provision.learn.episode import Floats
from mirage.provision.starts.forecast import AS_IT_IS, QuantileCalibration
from mirage.provision.starts.like_jobs import MINUTE_S, places, rank_in
from mirage.provision.starts.replay import StartCase
from slurm_sim.seconds import DAY_S, HOUR_S

LONG_S = 600
"""Shorter waits, and ranges that end sooner, are in no doubt; ratios of them say nothing."""
BLOCK_S = 3 * DAY_S
"""Jobs of so many days share a queue: they are drawn together for an interval."""
PUBLISHED = (0.37, 2.69)
"""Between these times the truth is the middle half of the published predictor's predictions."""


@dataclass(frozen=True, kw_only=True)
class Score:
    """Of one method. Ratios are of p50 to the wait, of jobs that waited `LONG_S` or longer."""

    method: str
    jobs: int
    covered: Estimate
    """Share of waits from p10 to p90, to the minute."""
    doubtful: int
    """Jobs whose p90 is `LONG_S` or longer."""
    covered_in_doubt: Estimate | None
    """The same of these, which a forecast without a spread can't have right by chance."""
    waited: int
    """Jobs that waited `LONG_S` or longer."""
    ratio_quartiles: tuple[float, float, float] | None
    as_published: float | None
    """Share of ratios inside `PUBLISHED`."""
    error_h: float
    """Median of |p50 - wait| of the same jobs."""

    def as_dict(self) -> dict[str, object]:
        return asdict(self)


def scores(
    cases: Sequence[StartCase],
    calibration: QuantileCalibration = AS_IT_IS,
    by_plan_s: Floats | None = None,
    seed: int = 0,
) -> list[Score]:
    """Of all methods. ``calibration``: of look-ahead. ``by_plan_s``: (n, LEVELS) of the regression;
    None or NaN in any row: it is left out.
    """
    wait_s = np.array([case.wait_s for case in cases])
    block = np.array([case.submit_s // BLOCK_S for case in cases])
    ranges_s: dict[str, Floats] = {}
    if by_plan_s is not None and np.isfinite(by_plan_s).all():
        ranges_s["plan and like jobs"] = by_plan_s
    if all(case.futures_s is not None for case in cases):
        ranges_s["look-ahead, calibrated"] = _of_futures(cases, calibration)
        ranges_s["look-ahead"] = _of_futures(cases, AS_IT_IS)
    ranges_s["like jobs"] = np.array([case.like_jobs_s for case in cases])
    ranges_s["mean of like jobs"] = np.array([[case.mean_s] * 3 for case in cases])
    ranges_s["squeue --start"] = np.array([[case.plan_s] * 3 for case in cases])
    ranges_s["bound: true run times"] = np.array([[case.true_runs_s] * 3 for case in cases])
    return [_score(method, found_s, wait_s, block, seed) for method, found_s in ranges_s.items()]


def calibration_of(cases: Sequence[StartCase]) -> QuantileCalibration:
    """Of look-ahead; as it is where it was not asked."""
    ranks = [
        rank_in(
            case.futures_s,
            np.full(len(case.futures_s), 1 / len(case.futures_s)),
            case.wait_s,
            place,
        )
        for case, place in zip(cases, places(len(cases)), strict=True)
        if case.futures_s is not None
    ]
    return QuantileCalibration.of(np.array(ranks))


def _of_futures(cases: Sequence[StartCase], calibration: QuantileCalibration) -> Floats:
    return np.array(
        [
            np.quantile(case.futures_s, calibration.levels)
            for case in cases
            if case.futures_s is not None
        ]
    )


def _score(method: str, ranges_s: Floats, wait_s: Floats, block: Ints, seed: int) -> Score:
    low_s, middle_s, high_s = ranges_s.T
    covered = (wait_s >= low_s - MINUTE_S) & (wait_s <= high_s + MINUTE_S)
    doubtful, waited = high_s >= LONG_S, wait_s >= LONG_S
    ratios = np.maximum(middle_s, MINUTE_S)[waited] / wait_s[waited]
    inside = (ratios >= PUBLISHED[0]) & (ratios <= PUBLISHED[1])
    low, middle, high = np.quantile(ratios, (0.25, 0.5, 0.75)) if waited.any() else (0.0,) * 3
    everybody = np.ones(len(wait_s), bool)
    return Score(
        method=method,
        jobs=len(wait_s),
        covered=_share(covered, everybody, block, seed),
        doubtful=int(doubtful.sum()),
        covered_in_doubt=_share(covered, doubtful, block, seed) if doubtful.any() else None,
        waited=int(waited.sum()),
        ratio_quartiles=(float(low), float(middle), float(high)) if waited.any() else None,
        as_published=float(inside.mean()) if waited.any() else None,
        error_h=float(np.median(np.abs(middle_s - wait_s)[waited])) / HOUR_S
        if waited.any()
        else 0.0,
    )


def _share(covered: Mask, among: Mask, block: Ints, seed: int) -> Estimate:
    """With the 95 % interval of whole blocks drawn again."""
    number = np.unique(block, return_inverse=True)[1]
    count = np.bincount(number, weights=among)
    hits = np.bincount(number, weights=covered & among)
    above, below = (np.asarray(each[count > 0], np.float64) for each in (hits, count))
    low, high = ratio_interval(above, below, seed=seed)
    return Estimate(float(hits.sum() / count.sum()), low, high)
