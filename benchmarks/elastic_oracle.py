"""Elastic jobs: what a scheduler that knows all arrivals could come to, by search.

    python -m benchmarks.elastic_oracle --setting small --out benchmarks/elastic.json

For each test sequence alone, evolution looks for weights of its 30 jobs, and for other costs of
neighbours, on the very course that the jobs are then judged by: arrivals, epochs and varying speeds
are known. Each candidate is `greedy-neighbours` with these weights. What the best one takes can be
reached; it is no lower bound, since a search may miss better schedules.

`bound_slots` is one: each job alone at its best shape without neighbours, at the speeds that the
course really has.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from mirage.elastic.baselines import run_slot
from mirage.elastic.evaluation import difference, estimate
from mirage.elastic.gain_policy import FEATURES, NeighbourGreedy
from mirage.elastic.observation import pick
from mirage.elastic.settings import ElasticSetting, Part, read_setting
from mirage.elastic.workload import ElasticJobs
from mirage.elastic.world import ElasticConfig, ElasticWorld, Floats

JOB_SPREAD, COST_SPREAD = 0.5, 0.2
"""Standard deviations of a candidate's weights: of a job's logarithm, of the costs'."""


class WeighedGreedy(NeighbourGreedy):
    """`greedy-neighbours` with a weight for each job of each cluster, and costs of its own."""

    def __init__(self, job_weights: Floats, costs: Floats) -> None:
        """``job_weights``: logarithms, [B, K]; ``costs``: added to the linear weights, [B, F, 2]."""
        super().__init__()
        self._job_weights, self._costs = np.exp(job_weights), costs

    def reset(self, world: ElasticWorld) -> None:
        """See `NeighbourGreedy`."""
        super().reset(world)
        rows = (world.clusters, 1, 1)
        self.weights.into = np.tile(self.weights.into, rows)
        self.weights.out = np.tile(self.weights.out, rows)
        self.weights.linear = (self.weights.linear + self._costs).astype(np.float32)

    def _scores(self, world: ElasticWorld) -> Floats:
        weighed: Floats = super()._scores(world) * pick(self._job_weights, self._jobs)[..., None]
        return weighed


def search(
    setting: ElasticSetting,
    sequences: list[ElasticJobs],
    *,
    seed: int,
    candidates: int,
    generations: int,
    announce: Callable[[str], None] = lambda _: None,
) -> tuple[Floats, list[float]]:
    """Least mean completion time that was found for each sequence [B]; its mean by generation."""
    rng = np.random.default_rng(seed)
    count, jobs = len(sequences), len(sequences[0])
    size = jobs + 2 * FEATURES
    spread = np.concatenate([np.full(jobs, JOB_SPREAD), np.full(2 * FEATURES, COST_SPREAD)])
    middle, best = np.zeros((count, size)), np.full(count, np.inf)
    best_at, course = middle.copy(), []
    for nth in range(generations):
        wide = 1 - 0.7 * nth / generations
        tried = middle + wide * spread * rng.standard_normal((candidates, count, size))
        tried[0], tried[1] = middle, best_at
        slots = _play(setting.world, sequences, tried, seed)
        order = slots.argsort(axis=0)
        top, rows = order[: candidates // 4], np.arange(count)
        better = slots[order[0], rows] < best
        best_at[better] = tried[order[0], rows][better]
        best = np.minimum(best, slots.min(axis=0))
        middle = tried[top, rows].mean(axis=0)
        course.append(float(best.mean()))
        announce(f"generation {nth + 1}: {course[-1]:.3f} slots")
    return best, course


def _play(config: ElasticConfig, sequences: list[ElasticJobs], tried: Floats, seed: int) -> Floats:
    """Mean completion time, [candidates, B]. Speeds vary as in an evaluation with this seed."""
    copies, count, _ = tried.shape
    jobs = len(sequences[0])
    world = ElasticWorld(config, sequences, seed=seed, copies=copies)
    flat = tried.reshape(copies * count, -1)
    scheduler = WeighedGreedy(flat[:, :jobs], flat[:, jobs:].reshape(-1, FEATURES, 2))
    scheduler.reset(world)
    while not world.over.all():
        run_slot(world, scheduler)
    found: Floats = world.completion_slots().mean(axis=1).reshape(copies, count)
    return found


def bound(config: ElasticConfig, sequences: list[ElasticJobs], *, seed: int) -> Floats:
    """Mean completion time of each sequence with every job alone at its best shape, [B]."""
    world = ElasticWorld(config, sequences, seed=seed)
    best = world.speed_table.max(axis=(1, 2))[world.type_index]
    world.speed_of = lambda _workers, _ps: best  # type: ignore[method-assign]
    while not world.over.all():
        world.begin_slot()
        world.end_slot()
    found: Floats = world.completion_slots().mean(axis=1)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", default="small")
    parser.add_argument("--sequences", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--candidates", type=int, default=16)
    parser.add_argument("--generations", type=int, default=15)
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    setting, cpu = read_setting(args.setting), time.process_time()
    sequences = setting.sequences(Part.TEST, args.seed, args.sequences)
    best, course = search(
        setting,
        sequences,
        seed=args.seed,
        candidates=args.candidates,
        generations=args.generations,
        announce=lambda words: print(words, flush=True),
    )
    record: dict[str, Any] = json.loads(args.out.read_text()) if args.out.exists() else {}
    others = record.get(args.setting, {}).get("schedulers", {})
    found = estimate(best)
    record[f"{args.setting}-oracle"] = {
        "command": (
            f"python -m benchmarks.elastic_oracle --setting {args.setting}"
            f" --sequences {args.sequences} --seed {args.seed}"
            f" --candidates {args.candidates} --generations {args.generations}"
        ),
        "mean_jct_slots": found.value,
        "interval": [found.low, found.high],
        "per_sequence": best.round(6).tolist(),
        "by_generation": course,
        "bound_slots": bound(setting.world, sequences, seed=args.seed).round(6).tolist(),
        "difference_to": {
            name: difference(best, np.array(row["per_sequence"]))
            for name, row in others.items()
            if len(row["per_sequence"]) == len(best)
        },
        "cpu_s": round(time.process_time() - cpu, 1),
    }
    args.out.write_text(json.dumps(record, indent=1, sort_keys=True) + "\n")


if __name__ == "__main__":
    main()
