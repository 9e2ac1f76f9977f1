"""How well `mirage when` forecasts the starts of jobs: of a month that nothing was trained on.

    .venv/bin/python -m benchmarks.start_forecasts --trace T.csv.gz
        --cluster models/ls6-a100/cluster.toml --futures models/ls6-a100/lookahead
        --calibrate 2023-01-08 --start 2023-02-01 --end 2023-02-22 --jobs 100 --count 16
        --out benchmarks/start_forecasts.json

Jobs are drawn uniformly (--seed) among those that ran. Look-ahead is calibrated on half as many jobs
from --calibrate until two days before --start; the law of like jobs calibrates itself on the last
days. Compared with them: the rule of `squeue --start` (the simulator's plan with limits as run
times) and the mean of like jobs. Waits are those of one simulation of the history.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from pathlib import Path

import numpy as np

from mirage.cli.learning import instant
from mirage.figures.provenance import file_record
from mirage.provision.learn.futures import read
from mirage.provision.learn.inputs import read_inputs
from mirage.provision.starts.replay import Replay
from mirage.provision.starts.score import Score, calibration_of, scores
from slurm_sim.seconds import DAY_S, HOUR_S


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    for name in ("--trace", "--cluster", "--futures", "--out"):
        parser.add_argument(name, required=True, type=Path)
    for name in ("--calibrate", "--start", "--end"):
        parser.add_argument(name, required=True, type=instant)
    parser.add_argument("--jobs", type=int, default=140)
    parser.add_argument("--count", type=int, default=24, help="futures for each job")
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    began_s = time.time()
    inputs = read_inputs(args.trace, args.cluster, None)
    replay = Replay(
        background=inputs.background,
        partition=inputs.partition,
        futures=read(args.futures),
        count=args.count,
        seed=args.seed,
    )
    judged = replay.cases(args.start, args.end, args.jobs, _progress)
    past = replay.cases(args.calibrate, args.start - 2 * DAY_S, args.jobs // 2, _progress)
    calibration = calibration_of(past)
    found = scores(judged, calibration, args.seed)
    record = {
        "trace": file_record(args.trace),
        "cluster": file_record(args.cluster),
        "setup": {
            name: value.name if isinstance(value, Path) else value
            for name, value in vars(args).items()
        },
        "machine": platform.platform(),
        "wall_s": round(time.time() - began_s),
        "calibration": {"levels": calibration.levels, "jobs": calibration.cases},
        "mean_wait_h": float(np.mean([case.wait_s for case in judged])) / HOUR_S,
        "scores": [score.as_dict() for score in found],
    }
    args.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    _show(found)


def _show(found: list[Score]) -> None:
    print("method                   covered   in doubt (jobs)   ratio's quartiles   as published")
    for score in found:
        doubt, ratios = score.covered_in_doubt, score.ratio_quartiles or (0, 0, 0)
        print(
            f"{score.method:<24} {score.covered.value:7.0%}"
            f"   {doubt.value if doubt else 0:8.0%} ({score.doubtful:4d})"
            f"   {ratios[0]:5.2f} {ratios[1]:5.2f} {ratios[2]:5.2f}"
            f"   {score.as_published or 0:8.0%}   error {score.error_h:.1f} h"
        )


def _progress(done: int) -> None:
    if done % 20 == 0:
        print(f"{done} jobs asked about", flush=True)


if __name__ == "__main__":
    main()
