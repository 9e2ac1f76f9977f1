"""How far below the rule any scheduler, or any network of the set policy, could come on Pollux's
workloads 5 to 8.

    python -m benchmarks.elastic_pollux_bounds relaxed [--slot 120]
    python -m benchmarks.elastic_pollux_bounds restarts
    python -m benchmarks.elastic_pollux_bounds hindsight [--policies 32] [--size 0.5]

Each part is added to ``bounds`` of benchmarks/elastic-pollux.json.

``relaxed``: a lower bound of every schedule, also of one that knows all arrivals: the optimum of a
linear program in which GPUs are divisible, changes are free but for the first start, and each job
has in all epochs the best speedup that it has in one, made concave. A job's work is spread over
slots; it ends no earlier than the mean time of its work plus half of its time at its best shape
(the mean busy time: Goemans, Queyranne, Schulz, Skutella and Wang 2002, "Single machine scheduling
with release dates"). Work of a slot counts as done at the slot's begin.

``restarts``: the rule where a restart takes no time.

``hindsight``: policies whose urgency and stay are random linear functions of the set policy's
features, played on the test workloads and on some like those of a training. The best on the test was
chosen with knowledge that no training has; the one that is best in training was not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import coo_array

from benchmarks.sim_common import machine
from mirage.elastic.measured.rounds import ACTIONS, FEATURES, LinearRounds, RuleRounds
from mirage.elastic.measured.schedulers import mean_completion_s
from mirage.elastic.measured.world import (
    MOST_GPUS,
    TEST_WORKLOADS,
    PolluxConfig,
    PolluxJobs,
    packed_speeds,
    published_workload,
    tails_alone_s,
)
from mirage.elastic.settings import ElasticSetting, Part, read_setting
from mirage.elastic.world import Floats
from mirage.figures.resample import mean_interval
from slurm_sim.files import write_whole

RESULT = Path("benchmarks/elastic-pollux.json")
HORIZON_S = 18 * 3600
TRAINING = 8
"""Workloads like those of a training, on which the random policies are played too."""


# --- relaxed


def concave_speedup(speeds: Floats) -> list[tuple[int, float]]:
    """Corners (GPUs, speedup) of the least concave curve above all epochs' speedups.

    ``speeds``: [E, MOST_GPUS + 1] of one type, zeros in epochs that it does not have.
    """
    there = speeds[speeds[:, 1] > 0]
    best = np.maximum.accumulate((there / there[:, 1:2]).max(axis=0))
    corners = [(0, 0.0)]
    while True:
        at, value = corners[-1]
        slopes = (best[at + 1 :] - value) / np.arange(1, MOST_GPUS + 1 - at)
        if not len(slopes) or slopes.max() <= 1e-9:
            return corners
        step = int(np.flatnonzero(slopes >= slopes.max() - 1e-12).max()) + 1
        corners.append((at + step, float(best[at + step])))


def relaxed_bound_s(config: PolluxConfig, jobs: PolluxJobs, slot_s: float) -> float:
    """Mean completion time in seconds that no schedule of these jobs is below."""
    batches = tuple((name, None) for name, _ in config.batches)
    curves = [concave_speedup(table) for table in packed_speeds(batches)]
    work_s = tails_alone_s(batches)[:, 0]
    starts_s = np.arange(0, HORIZON_S, slot_s)
    cost, gpu_row, work_row, slope, most = [], [], [], [], []
    constant = 0.0
    for nth, kind in enumerate(jobs.type_index):
        ready_s = jobs.arrival_slot[nth] * config.slot_s + config.restart_s
        corners, work = curves[kind], work_s[kind]
        constant += work / (2 * corners[-1][1]) - jobs.submitted_s[nth]
        length_s = np.minimum(slot_s, starts_s + slot_s - ready_s)
        slots = np.flatnonzero(length_s > 0)
        begin_s = np.maximum(starts_s[slots], ready_s)
        for (gpus, value), (more, higher) in pairwise(corners):
            gain = (higher - value) / (more - gpus)
            cost.append(begin_s * gain / work)
            gpu_row.append(slots)
            work_row.append(np.full(len(slots), len(starts_s) + nth))
            slope.append(np.full(len(slots), gain))
            most.append((more - gpus) * length_s[slots])
    count = sum(map(len, cost))
    columns = np.arange(count)
    rows = np.concatenate([*gpu_row, *work_row])
    values = np.concatenate([np.ones(count), *slope])
    size = (len(starts_s) + len(jobs.type_index), count)
    matrix = coo_array((values, (rows, np.concatenate([columns, columns]))), shape=size).tocsr()
    found = linprog(
        np.concatenate(cost),
        A_ub=matrix[: len(starts_s)],
        b_ub=np.full(len(starts_s), config.servers * config.gpus_per_server * slot_s),
        A_eq=matrix[len(starts_s) :],
        b_eq=work_s[jobs.type_index],
        bounds=np.stack([np.zeros(count), np.concatenate(most)], axis=1),
        method="highs",
    )
    if found.status != 0:
        raise RuntimeError(found.message)
    return float(found.fun + constant) / len(jobs.type_index)


# --- policies


def hindsight(
    setting: ElasticSetting, workloads: list[PolluxJobs], policies: int, size: float
) -> dict[str, Any]:
    """Mean completion times of random policies, less that of the rule, which is the first."""
    rng = np.random.default_rng(1)
    drawn = rng.standard_normal((policies, FEATURES, ACTIONS)) * size / FEATURES**0.5
    drawn[0] = 0
    training = setting.sequences(Part.TRAINING, 1, TRAINING)
    sequences = [*workloads, *training]
    weights = np.repeat(drawn, len(sequences), axis=0)
    found = mean_completion_s(LinearRounds(weights=weights), setting.world, sequences * policies)
    less = found.reshape(policies, len(sequences))
    rule = less[0].copy()
    less -= rule
    test, trained = less[:, : len(workloads)], less[:, len(workloads) :]
    chosen = int(trained.mean(axis=1).argmin())
    return {
        "policies": policies,
        "size": size,
        "rule_s": float(rule[: len(workloads)].mean()),
        "best_less_rule_s": float(test.mean(axis=1).min()),
        "median_less_rule_s": float(np.median(test.mean(axis=1)[1:])),
        "chosen_by_training": {
            "workloads": TRAINING,
            "training_less_rule_s": float(trained[chosen].mean()),
            "test_less_rule_s": test[chosen].tolist(),
            "interval_s": mean_interval(test[chosen]),
        },
        "correlation_of_training_and_test": float(
            np.corrcoef(trained[1:].mean(axis=1), test[1:].mean(axis=1))[0, 1]
        ),
        "test_less_rule_s": test.mean(axis=1).tolist(),
        "training_less_rule_s": trained.mean(axis=1).tolist(),
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("part", choices=("relaxed", "restarts", "hindsight"))
    parser.add_argument("--slot", type=float, default=120.0)
    parser.add_argument("--policies", type=int, default=32)
    parser.add_argument("--size", type=float, default=0.5)
    args = parser.parse_args()
    setting = read_setting("pollux")
    config = setting.world
    assert isinstance(config, PolluxConfig)
    workloads = [published_workload(nth, config) for nth in TEST_WORKLOADS]
    began = time.process_time()
    if args.part == "relaxed":
        bounds = [relaxed_bound_s(config, jobs, args.slot) for jobs in workloads]
        found: dict[str, Any] = {"slot_s": args.slot, "workloads_s": bounds}
        found["mean_s"] = float(np.mean(bounds))
    elif args.part == "restarts":
        rule = [
            mean_completion_s(RuleRounds(), replace(config, restart_s=restart_s), workloads)
            for restart_s in (config.restart_s, 0.0)
        ]
        found = {"rule_s": rule[0].tolist(), "without_s": rule[1].tolist()}
    else:
        found = hindsight(setting, workloads, args.policies, args.size)
    found |= {"cpu_s": round(time.process_time() - began), "machine": machine()}
    found["command"] = " ".join(["benchmarks.elastic_pollux_bounds", *sys.argv[1:]])
    print(json.dumps(found, indent=1))
    record = json.loads(RESULT.read_text())
    name = f"{args.part} {args.size}" if args.part == "hindsight" else args.part
    record.setdefault("bounds", {})[name] = found
    write_whole(RESULT, json.dumps(record, indent=1) + "\n")


if __name__ == "__main__":
    main()
