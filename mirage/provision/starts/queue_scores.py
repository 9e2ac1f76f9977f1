"""How good forecasts of real waits were, day by day, beside rules that they must beat."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass

import numpy as np

from mirage.provision.starts.baselines import boosted_point_s, like_jobs_s, plan_constants_s
from mirage.provision.starts.queue_log import Floats, QueueLog
from mirage.provision.starts.wait_trees import FEWEST, SEED
from mirage.provision.starts.walk import LEVELS, Walk

PUBLISHED = (0.37, 2.69)
"""Between these times the truth is the middle half of the published predictor's predictions."""
MINUTE_S = 60.0
SHOWN = [LEVELS.index(level) for level in (0.1, 0.5, 0.9)]
TREES = "mirage when"
"""Our forecaster, by name."""


@dataclass(frozen=True, kw_only=True)
class WaitScore:
    """Of one method. Ratios are of p50 to the wait, both at least a minute."""

    method: str
    jobs: int
    within_2: float
    """Share of ratios within a factor of 2,"""
    within_3: float
    """of 3,"""
    as_published: float
    """and in `PUBLISHED`."""
    middle_half: tuple[float, float]
    """Quartiles of the ratio."""
    covered: float | None
    """Share of the waits from p10 to p90, to the minute; None: it gives no range."""
    width: float | None
    """Median of p90 over p10."""
    cpu_s: float
    """Of fits and forecasts together."""


@dataclass(frozen=True, kw_only=True)
class WaitsFound:
    scores: tuple[WaitScore, ...]
    days: tuple[tuple[str, tuple[WaitScore, ...]], ...]
    """By day (ISO date), `mirage when` first."""
    silent: int
    """Rows of days on which too little was known for a forecast."""

    def as_dict(self) -> dict[str, object]:
        return {
            "silent": self.silent,
            "scores": [asdict(score) for score in self.scores],
            "days": [
                {"day": day, "scores": [asdict(score) for score in scores]}
                for day, scores in self.days
            ],
        }


@dataclass(eq=False)
class _Method:
    name: str
    ask: Callable[[QueueLog, QueueLog], Floats | None]
    """(rows of the past that had started, rows of today) -> seconds, (n, 3)."""
    cpu_s: float = 0.0


def score_log(
    log: QueueLog,
    begin_s: float,
    end_s: float,
    progress: Callable[[int], None] = lambda _: None,
    asked: QueueLog | None = None,
) -> WaitsFound:
    """Of all rows of looks in [begin_s, end_s) whose start is known; ``asked``: of these in place of
    the log's.
    """
    methods, found, silent = _methods(log), list[tuple[str, QueueLog, dict[str, Floats]]](), 0
    for number, today in enumerate(_days(asked or log, begin_s, end_s), start=1):
        now_s = today.poll_s[0]
        past = log.rows((log.poll_s < now_s) & (log.start_s < now_s))
        if len(past) < FEWEST:
            silent += len(today)
            continue
        judged = today.rows(np.isfinite(today.start_s))
        answers = {method.name: _asked(method, past, judged) for method in methods}
        date = str(np.datetime64(int(now_s), "s"))[:10]
        found.append(
            (date, judged, {name: each for name, each in answers.items() if each is not None})
        )
        progress(number)
    return WaitsFound(
        scores=_scores(methods, found),
        days=tuple(
            (date, _scores(methods, [(date, rows, answers)])) for date, rows, answers in found
        ),
        silent=silent,
    )


def _methods(log: QueueLog) -> list[_Method]:
    walk = Walk(log)

    def trees(_: QueueLog, today: QueueLog) -> Floats | None:
        logs = walk.logs(today)
        return None if logs is None else np.exp(logs[:, SHOWN])

    methods = [
        _Method(TREES, trees),
        _Method("boosted point", lambda past, today: boosted_point_s(past, today, SEED)),
        _Method("like jobs", lambda past, today: like_jobs_s(past, today, today.poll_s[0])),
    ]
    if np.isfinite(log.planned_s).any():
        methods.append(_Method("3 x squeue --start", plan_constants_s))
    return methods


def _days(log: QueueLog, begin_s: float, end_s: float) -> Iterator[QueueLog]:
    rows = log.rows((log.poll_s >= begin_s) & (log.poll_s < end_s))
    for day in np.unique(rows.day):
        yield rows.rows(rows.day == day)


def _asked(method: _Method, past: QueueLog, today: QueueLog) -> Floats | None:
    begun_s = time.process_time()
    answer = method.ask(past, today)
    method.cpu_s += time.process_time() - begun_s
    return answer


def _scores(
    methods: list[_Method], found: list[tuple[str, QueueLog, dict[str, Floats]]]
) -> tuple[WaitScore, ...]:
    scores = []
    for method in methods:
        there = [
            (rows, answers[method.name]) for _, rows, answers in found if method.name in answers
        ]
        if not there:
            continue
        wait_s = np.concatenate([rows.wait_s for rows, _ in there])
        ranges_s = np.concatenate([answer for _, answer in there])
        known = np.isfinite(ranges_s[:, 1])
        if known.any():
            scores.append(_score(method, wait_s[known], ranges_s[known]))
    return tuple(scores)


def _score(method: _Method, wait_s: Floats, ranges_s: Floats) -> WaitScore:
    low_s, middle_s, high_s = ranges_s.T
    ratios = np.maximum(middle_s, MINUTE_S) / np.maximum(wait_s, MINUTE_S)
    has_range = bool(np.isfinite(low_s).all())
    inside = (wait_s >= low_s - MINUTE_S) & (wait_s <= high_s + MINUTE_S)
    widths = np.maximum(high_s, MINUTE_S) / np.maximum(low_s, MINUTE_S)
    first, third = (float(each) for each in np.quantile(ratios, (0.25, 0.75)))
    return WaitScore(
        method=method.name,
        jobs=len(wait_s),
        within_2=_share(ratios, 1 / 2, 2),
        within_3=_share(ratios, 1 / 3, 3),
        as_published=_share(ratios, *PUBLISHED),
        middle_half=(first, third),
        covered=float(inside.mean()) if has_range else None,
        width=float(np.median(widths)) if has_range else None,
        cpu_s=method.cpu_s,
    )


def _share(ratios: Floats, low: float, high: float) -> float:
    return float(((ratios >= low) & (ratios <= high)).mean())
