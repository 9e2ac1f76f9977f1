"""Elastic jobs: completion time of all schedulers, and the speed of world and decisions.

    python -m benchmarks.elastic --setting small --sequences 10 --out benchmarks/elastic.json

A setting's part of the file is replaced, the others stay. `--model LABEL=DIR` adds trained
policies, and what their trainings came to (`trainings`). With `--keep` schedulers that the file has
are not run again. `--speed` measures slots a
CPU second and milliseconds a decision.
"""

from __future__ import annotations

import argparse
import json
import re
import shlex
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.sim_common import write_json
from mirage.elastic.baselines import BASELINES, baseline
from mirage.elastic.evaluation import ElasticEvaluationPlan, difference, evaluate
from mirage.elastic.learn.training import TrainingOptions
from mirage.elastic.model import ElasticModel, load_model, new_model, options_table
from mirage.elastic.rollout import roll_out
from mirage.elastic.settings import Part, read_setting
from mirage.elastic.world import ElasticWorld, TaskKind


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--setting", default="small")
    parser.add_argument("--sequences", type=int, default=10)
    parser.add_argument("--against", default=",".join(BASELINES))
    parser.add_argument("--model", action="append", default=[])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true")
    parser.add_argument("--speed", action="store_true")
    parser.add_argument("--out", type=Path, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    name = "speed" if args.speed else args.setting
    record = json.loads(args.out.read_text()) if args.out.exists() else {}
    part = speed() if args.speed else comparison(args)
    if args.keep:
        part = joined(record[name], part)
    write_json(args.out, record | {name: part})
    print(json.dumps(part if args.speed else summary(part), indent=1))


def comparison(args: argparse.Namespace) -> dict[str, Any]:
    """As `mirage elastic evaluate` gives it."""
    models: dict[str, tuple[Path, ElasticModel]] = {}
    for word in args.model:
        label, _, folder = word.partition("=")
        models[label] = Path(folder), load_model(Path(folder))
    plan = ElasticEvaluationPlan(
        setting=read_setting(args.setting),
        models=models,
        against=[name for name in args.against.split(",") if name],
        sequences=args.sequences,
        seed=args.seed,
    )
    record = evaluate(plan, lambda name: print(name, flush=True)).record
    record["provenance"]["command"] = command(sys.argv[1:])
    trainings = {label: training(model) for label, (_, model) in models.items()}
    return part_of(record | {"trainings": trainings})


ROW = ("mean_jct_slots", "interval", "p95_jct_slots", "makespan_slots", "finished", "per_sequence")
RUN = ("command", "commit", "machine", "started")


def part_of(record: Mapping[str, Any]) -> dict[str, Any]:
    """What is kept: no differences, which `compared` makes of the sequences' values."""
    names = ("setting", "jobs", "sequences", "lower_bound_slots", "models", "trainings")
    runs = {name: record[name] for name in ("provenance", "provenance_of_models") if name in record}
    return {name: record[name] for name in names if name in record} | {
        **{name: {key: run[key] for key in RUN if key in run} for name, run in runs.items()},
        "schedulers": {
            name: {key: row[key] for key in ROW if key in row}
            for name, row in record["schedulers"].items()
        },
    }


def command(words: Sequence[str]) -> str:
    """As it can be typed anywhere: a folder is named without the way to it."""
    plain = [re.sub(r"(^|=)/\S*/", r"\1", word) for word in words]
    return shlex.join(["python", "-m", "benchmarks.elastic", *plain])


def training(model: ElasticModel) -> dict[str, Any]:
    """How a policy was trained: options that are not the default ones, validation in slots."""
    # Through JSON, since a recipe has no tuples.
    defaults = json.loads(json.dumps(options_table(TrainingOptions())))
    return {
        "setting": model.about.setting,
        "teacher": model.about.teacher,
        "seed": model.seed,
        "options": _changed(model.options, defaults),
        "curve": [list(point) for point in model.curve],
        "references": dict(model.references),
    }


def _changed(options: Mapping[str, Any], defaults: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value in options.items():
        if isinstance(value, Mapping):
            inner = _changed(value, defaults.get(name, {}))
            found |= {f"{name}.{key}": each for key, each in inner.items()}
        elif value != defaults.get(name):
            found[name] = value
    return found


def joined(old: dict[str, Any], new: dict[str, Any]) -> dict[str, Any]:
    """The figures of both, on the same sequences. The schedulers that both have must have come to the
    same.
    """
    rows = new["schedulers"] | {
        name: row for name, row in old["schedulers"].items() if name not in new["models"]
    }
    for name in new["schedulers"].keys() & old["schedulers"].keys() - set(new["models"]):
        each = [part["schedulers"][name]["per_sequence"] for part in (old, new)]
        assert np.allclose(*each, rtol=1e-4), f"{name}: the sequences are not the same"
    return old | {
        "schedulers": rows,
        "models": [*dict.fromkeys([*old["models"], *new["models"]])],
        "trainings": old.get("trainings", {}) | new["trainings"],
        "provenance_of_models": new["provenance"],
    }


def summary(record: dict[str, Any]) -> dict[str, Any]:
    rows = {name: row["mean_jct_slots"] for name, row in record["schedulers"].items()}
    return rows | {"lower bound": record["lower_bound_slots"], "less than": compared(record)}


def compared(record: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Of each model the paired differences to all others, in slots."""
    values = {name: np.array(row["per_sequence"]) for name, row in record["schedulers"].items()}
    return {
        model: {
            name: difference(values[model], other)
            for name, other in values.items()
            if name != model
        }
        for model in record["models"]
    }


def speed() -> dict[str, Any]:
    """Slots a CPU second of baselines on the small setting; a decision with 40 jobs."""
    setting = read_setting("small-known")
    sequences = setting.sequences(Part.TEST, 1, 100)
    slots = {}
    for name in ("drf", "fifo", "greedy"):
        began = time.process_time()
        found = roll_out(baseline(name), setting.world, sequences)
        slots[name] = found.slots * len(sequences) / (time.process_time() - began)
    return {"slots_per_cpu_s": slots, "decision_ms_40_jobs": {"dl2": decision_ms()}}


def decision_ms(jobs: int = 40, decisions: int = 200) -> float:
    """CPU milliseconds of one decision, one cluster of 500 servers. The weights are untrained,
    which costs the same.
    """
    setting = read_setting("large")
    model = new_model(setting, "drf", hidden=TrainingOptions().hidden, seed=1)
    (sequence,) = setting.sequences(Part.TEST, 1, 1)
    world = ElasticWorld(setting.world, [sequence])
    world.slot = int(world.arrival[0, jobs - 1])
    world.finish[0, jobs:] = 0.0
    world.finish[0, :jobs] = np.nan
    world.arrival[0, :jobs] = 0
    policy = model.allocator()
    policy.reset(world)
    world.begin_slot()
    policy.begin_slot(world)
    began = time.process_time()
    for _ in range(decisions):
        job, kind = policy.choose(world)
        if job[0] < 0:
            world.begin_slot()
            policy.begin_slot(world)
        world.add(job, np.where(job < 0, TaskKind.WORKER, kind))
    return 1000 * (time.process_time() - began) / decisions


if __name__ == "__main__":
    main()
