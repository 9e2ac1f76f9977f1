"""Ranges of `mirage when`: fitted once, fitted each day (the service's), and calibrated too.

usage: python -m benchmarks.wait_ranges --name NAME --trace CSV --cluster TOML --past TIME
           --start TIME --end TIME [--jobs 400] [--seed 1] [--out benchmarks/wait_ranges.json]

Calibrated: by split conformal prediction (Romano, Patterson, Candes: Conformalized quantile
regression, 2019). By how far each of the newest known waits left its own day's range, or stayed
inside, is its score. The range of today is made wider or narrower by a quantile of the scores.

The jobs are those of `mirage evaluate waits` with the same options. A row of each way to get the
range: the share of waits in it, of all jobs and of those in doubt, and the middle half of p50 over
the wait. Rows of the same name are replaced.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

import numpy as np

from benchmarks.sim_common import write_json
from mirage.cli.learning import instant
from mirage.provision.learn.episode import Floats
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.learn.reporter import SILENT
from mirage.provision.starts.daily import columns, daily_waits_s
from mirage.provision.starts.evaluation import APART_S
from mirage.provision.starts.forecast import LEVELS
from mirage.provision.starts.regression import LEAST_S, MOST_S, fit_regression, in_doubt
from mirage.provision.starts.replay import Replay, StartCase
from mirage.provision.starts.score import Score, scores
from slurm_sim.seconds import DAY_S, HOUR_S

NEWEST, FEWEST = 50, 30
"""So many of the newest known waits in doubt make the margin; fewer than `FEWEST` make none."""
COVERED = LEVELS[2] - LEVELS[0]


def calibrated(cases: list[StartCase], daily_s: Floats) -> Floats:
    """(n, LEVELS) of each case, with the margin of its day."""
    rows, submit_s, waits_s = columns(cases)
    day, logs = submit_s // DAY_S, np.log(np.clip(waits_s, LEAST_S, MOST_S))
    low, middle, high = np.log(daily_s).T
    score = np.maximum(low - logs, logs - high)
    found_s, usable = daily_s.copy(), in_doubt(rows) & np.isfinite(low)
    for today in np.unique(day):
        known = np.flatnonzero(usable & (submit_s + waits_s < today * DAY_S))
        newest = known[np.argsort(submit_s[known], kind="stable")[-NEWEST:]]
        if len(newest) < FEWEST:
            continue
        margin = float(np.quantile(score[newest], COVERED, method="median_unbiased"))
        chosen = usable & (day == today)
        lowest = np.clip(low - margin, np.log(LEAST_S), middle)
        highest = np.clip(high + margin, middle, np.log(MOST_S))
        found_s[chosen, 0], found_s[chosen, 2] = np.exp(lowest[chosen]), np.exp(highest[chosen])
    return found_s


def ways(past: list[StartCase], judged: list[StartCase], seed: int) -> dict[str, Score]:
    """The score of each way. Raises SystemExit: too few past jobs had to wait."""
    rows = np.array([case.features for case in past])
    once = fit_regression(rows, np.array([case.wait_s for case in past]))
    daily_s = daily_waits_s([*past, *judged])
    if once is None or not np.isfinite(daily_s[len(past) :]).all():
        raise SystemExit("too few of the past jobs waited by the plan; give an earlier --past")
    ranges_s = {
        "fitted once": once.waits_s(np.array([case.features for case in judged])),
        "fitted each day": daily_s[len(past) :],
        "and calibrated": calibrated([*past, *judged], daily_s)[len(past) :],
    }
    return {
        way: scores(judged, by_plan_s=found_s, seed=seed)[0] for way, found_s in ranges_s.items()
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--name", required=True)
    parser.add_argument("--trace", type=Path, required=True)
    parser.add_argument("--cluster", type=Path, required=True)
    for name in ("past", "start", "end"):
        parser.add_argument(f"--{name}", type=instant, required=True)
    parser.add_argument("--jobs", type=int, default=400)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--out", type=Path, default=Path(__file__).with_suffix(".json"))
    args = parser.parse_args()
    inputs = read_inputs(args.trace, args.cluster, None, SILENT)
    replay = Replay(background=inputs.background, partition=inputs.partition, seed=args.seed)
    past = replay.cases(args.past, args.start - APART_S, 2 * args.jobs)
    judged = replay.cases(args.start, args.end, args.jobs)
    mean_h = float(np.mean([case.wait_s for case in judged])) / HOUR_S
    rows = json.loads(args.out.read_text()) if args.out.exists() else []
    rows = [row for row in rows if row["name"] != args.name]
    for way, score in ways(past, judged, args.seed).items():
        row = {"name": args.name, "way": way, "past": len(past), "mean_wait_h": round(mean_h, 2)}
        rows.append(row | score.as_dict())
        print(json.dumps(rows[-1]), flush=True)
    write_json(args.out, rows)


if __name__ == "__main__":
    main()
