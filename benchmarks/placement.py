"""All schedulers of `mirage.placement` on the same test sequences: the figures of docs/placement.md.

    python -m benchmarks.placement PART [--models DIR] [--out FILE]

Parts: `overload` (the paper's setting, a job alone takes its length), `stream` (the same, the agent
of streaming training), `cells` (the same by equation 11), `feasible` (loads 0.7 and 0.9 of what best
fit carries, without and with a price of pausing), `greedy` (short, with `greedy`),
`heavy` (load 2), `big` (256 GPUs), `exact` (small cases against the best of all schedules),
`speed`. A part replaces its table in FILE and leaves the others. `tables` writes FILE's tables as
Markdown beside it.

DIR has model folders of three seeds: `paper-static-N`, `paper-stream-N`, `scalable-N`. Intervals are
95 %, by resampling the test sequences; of a trained agent over its seeds' means as well.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.placement_speed import BIG_RACKS, decisions, worlds
from mirage.figures.provenance import provenance
from mirage.figures.resample import mean_interval, ratio_interval
from mirage.models.card import markdown_table
from mirage.placement.baselines import Placer
from mirage.placement.jobs import PlacementJobs, PlacementWorkload, draw
from mirage.placement.minsky import minsky
from mirage.placement.model import PaperModel, ScalableModel, read_model
from mirage.placement.paper import PaperAgent, PaperNetwork, paper_image
from mirage.placement.planner import Planner
from mirage.placement.rollout import PlacementRollout, roll_out
from mirage.placement.scalable import NetworkGuide, ScalableNetwork
from mirage.placement.schedulers import scheduler
from mirage.placement.setting import PlacementSetting
from mirage.placement.speed import SpeedModel
from mirage.placement.topology import Floats
from mirage.placement.world import PlacementConfig, PlacementWorld, Price
from mirage.rl.fit import seeded

INTRODUCTION = """# Placement of GPU jobs: measured

Made by `python -m benchmarks.placement tables` from `placement.json`; the commands, seeds and the
machine of each part stand there. What the names mean: [docs/placement.md](../docs/placement.md).
In brackets 95 % intervals over the sequences. Agents that learned are means of three seeds.

"""
SEEDS = (1, 2, 3)
TEST_SEED = 77
NOT_PREEMPTIVE = ("random", "sjf", "tetris", "best-fit")
BASELINES = ("random", "sjf", "tetris", "best-fit", "srtf", "las")
Json = dict[str, Any]


def figures(rollouts: Sequence[PlacementRollout], reference: Floats) -> Json:
    """Of one scheduler, or of one trained with several seeds: their mean on each sequence."""
    slowdown = np.mean([each.mean_slowdown for each in rollouts], axis=0)
    reward = np.mean([each.first_return for each in rollouts], axis=0)
    return {
        "mean_slowdown": float(slowdown.mean()),
        "mean_slowdown_95": list(mean_interval(slowdown)),
        "to_best_baseline": float(slowdown.sum() / reference.sum()),
        "to_best_baseline_95": list(ratio_interval(slowdown, reference)),
        "mean_reward": float(reward.mean()),
        "mean_reward_95": list(mean_interval(reward)),
        "finished": float(np.mean([each.finished for each in rollouts])),
        "decision_ms": float(np.mean([each.decision_ms for each in rollouts])),
        "seeds_slowdown": [float(each.mean_slowdown.mean()) for each in rollouts],
        "seeds_reward": [float(each.first_return.mean()) for each in rollouts],
    }


def compare(
    setting: PlacementSetting, sequences: int, placers: dict[str, Sequence[Placer]]
) -> Json:
    jobs = setting.sequences(TEST_SEED, "test", sequences)
    found = {
        name: [roll_out(each, setting.config, jobs) for each in seeds]
        for name, seeds in placers.items()
    }
    present = [name for name in (*BASELINES, "greedy") if name in found]
    best = min(present, key=lambda name: float(found[name][0].mean_slowdown.mean()))
    reference = found[best][0].mean_slowdown
    return {
        "setting": setting.facts(),
        "sequences": sequences,
        "best_baseline": best,
        "bound_alone": bound(setting, jobs),
        "schedulers": {name: figures(each, reference) for name, each in found.items()},
    }


def bound(setting: PlacementSetting, jobs: Sequence[PlacementJobs]) -> float:
    """No scheduler has a lower mean slowdown: each job alone, always on its best GPUs, from its
    arrival.
    """
    model, gpus = setting.config.model, np.arange(1, len(setting.topology) + 1)[:, None]
    racks = np.sort(np.bincount(setting.topology.rack_of))[::-1].cumsum()
    spread = 1 + model.rack_factor * np.searchsorted(racks, gpus)
    values = []
    for each in jobs:
        root = np.where(gpus > 1, each.reduction_per_root_s * np.sqrt(gpus), 0.0)
        step_s = model.training_s(each.minibatch_distance) + root * spread
        speed = (each.minibatch_distance * gpus / step_s).max(axis=0)
        steps = np.ceil(each.total_distance / (speed * model.step_s) - 1e-9)
        values.append(float((steps / each.length_steps).mean()))
    return float(np.mean(values))


def simple(*names: str) -> dict[str, Sequence[Placer]]:
    return {name: [scheduler(name, seed=1)] for name in names}


# --- parts


def overload(models: Path) -> Json:
    setting = PlacementSetting(workload=PlacementWorkload(total_work="alone"))
    placers = simple(*BASELINES, "search")
    placers["untrained"] = [untrained(setting, seed) for seed in SEEDS]
    placers["paper, static"] = papers(models, "static")
    return {"a job alone takes its length": compare(setting, 5, placers)}


def stream(models: Path) -> Json:
    """On the sequences of `overload`."""
    setting = PlacementSetting(workload=PlacementWorkload(total_work="alone"))
    placers = simple("sjf", "srtf")
    placers["paper, stream"] = papers(models, "stream")
    return {"a job alone takes its length": compare(setting, 5, placers)}


def cells(models: Path) -> Json:
    """Equation 11, with the agents that learned under the other reading."""
    setting = PlacementSetting()
    placers = simple(*BASELINES, "search")
    placers["untrained"] = [untrained(setting, 1)]
    placers["paper, static"] = papers(models, "static")[:1]
    return {"equation 11": compare(setting, 2, placers)}


def papers(models: Path, loop: str) -> list[Placer]:
    """Of the seeds that are there."""
    folders = [models / f"paper-{loop}-{seed}" for seed in SEEDS]
    return [PaperAgent(_paper(each).network) for each in folders if each.is_dir()]


def untrained(setting: PlacementSetting, seed: int) -> PaperAgent:
    with seeded(seed):
        return PaperAgent(PaperNetwork(paper_image(setting)), "untrained")


def _paper(folder: Path) -> PaperModel:
    model = read_model(folder)
    assert isinstance(model, PaperModel)
    return model


def networks(models: Path) -> list[ScalableNetwork]:
    found = []
    for seed in SEEDS:
        model = read_model(models / f"scalable-{seed}")
        assert isinstance(model, ScalableModel)
        found.append(model.network)
    return found


def guided(models: Path) -> list[Placer]:
    return [Planner(guide=NetworkGuide(each), most_s=1.0) for each in networks(models)]


def with_load(load: float, price_s: float, jobs: int = 60) -> PlacementSetting:
    return PlacementSetting(
        load=load,
        price=Price(pause_s=price_s, restart_s=price_s, move_s=price_s),
        most_steps=20_000,
        workload=PlacementWorkload(jobs=jobs, total_work="alone"),
    )


def feasible(models: Path) -> Json:
    """Without `random` and `tetris`, which are behind `sjf`."""
    found = {}
    for load, price_s in product((0.7, 0.9), (0.0, 20.0)):
        placers = simple("sjf", "best-fit", "srtf", "las", "search", "search-as-asked")
        placers["scalable+search"] = guided(models)
        name = f"load {load}, price {price_s:g} s"
        found[name] = compare(with_load(load, price_s), 6, placers)
    return found


def greedy(_models: Path) -> Json:
    """Apart from the others, since a decision takes a tenth of a second and more."""
    names = ("srtf", "greedy", "search", "search-as-asked")
    return {
        f"load {load}, price 0 s": compare(with_load(load, 0.0, 25), 2, simple(*names))
        for load in (0.7, 0.9)
    }


def heavy(models: Path) -> Json:
    found = {}
    for price_s in (0.0, 20.0):
        placers = simple("srtf", "las", "search") | {"scalable+search": guided(models)}
        found[f"load 2, price {price_s:g} s"] = compare(with_load(2.0, price_s), 6, placers)
    return found


def big(models: Path) -> Json:
    """Of 256 GPUs."""
    found = {}
    for price_s in (0.0, 20.0):
        setting = replace(with_load(0.9, price_s, 400), racks=BIG_RACKS, slots=80, backlog=480)
        placers = simple("best-fit", "srtf", "las", "search", "search-as-asked")
        placers["scalable+search"] = guided(models)
        found[f"256 GPUs, load 0.9, price {price_s:g} s"] = compare(setting, 2, placers)
    return found


# --- exact


def exact(cases: int = 30) -> Json:
    """Three jobs on one machine of four GPUs, every schedule of sizes; the mean of all slowdowns.

    GPUs of a machine differ by their socket alone, so sizes decide; places are the best of all.
    """
    topology, model = minsky((1,)), SpeedModel()
    config = PlacementConfig(topology=topology, slots=3, most_steps=60)
    workload = PlacementWorkload(
        jobs=3,
        few_gpus=(1, 2),
        many_gpus=(3, 4),
        short_steps=(1, 2),
        long_steps=(3, 4),
        total_work="alone",
    )
    found: dict[str, list[float]] = {"best possible": [], "search": [], "srtf": []}
    for nth in range(cases):
        jobs = draw(workload, model, np.random.default_rng([TEST_SEED, nth]))
        for name in ("search", "srtf"):
            slowdown = roll_out(scheduler(name), config, [jobs]).mean_slowdown[0]
            found[name].append(float(slowdown))
        world = PlacementWorld(config, [jobs])
        found["best possible"].append(_best(world, found["search"][-1] * 3) / 3)
    best = np.array(found["best possible"])
    return {
        name: {
            "mean_slowdown": float(np.mean(values)),
            "to_best_possible": float(np.sum(values) / best.sum()),
            "is_best": float(np.mean(np.array(values) < best + 1e-9)),
        }
        for name, values in found.items()
    }


def _best(world: PlacementWorld, known: float) -> float:
    """The least sum of slowdowns, by branch and bound."""
    from copy import deepcopy

    model = world.config.model
    gpus = np.arange(1, 5)[:, None]
    root = np.where(gpus > 1, world.per_root_s[0] * np.sqrt(gpus), 0.0)
    fastest = (world.distance[0] * gpus / (model.training_s(world.distance[0]) + root)).max(
        axis=0
    ) * model.step_s
    best = known

    def floor(at: PlacementWorld) -> float:
        left = np.ceil((at.total[0] - at.done[0]) / fastest - 1e-9)
        end = np.maximum(at.time, at.arrival[0]) + left
        end = np.where(at.finish_step[0] >= 0, at.finish_step[0], end)
        return float(((end - at.arrival[0]) / at.length[0]).sum())

    def search(at: PlacementWorld) -> None:
        nonlocal best
        if at.over.all():
            best = min(best, float(at.slowdowns().sum()))
            return
        options = []
        for action in _actions(at):
            new = deepcopy(at)
            new.step(action)
            options.append((floor(new), len(options), new))
        for low, _, new in sorted(options, key=lambda each: each[:2]):
            if low >= best - 1e-9:
                break
            search(new)

    search(world)
    return best


def _actions(world: PlacementWorld) -> Iterator[np.ndarray]:
    """Every assignment of four GPUs to the jobs that are there, alike ones once."""
    rows = [int(row) for row in np.nonzero(world.filled[0])[0]]
    seen = set()
    for choice in product([*rows, world.rows], repeat=4):
        sockets = tuple(sorted((tuple(sorted(choice[:2])), tuple(sorted(choice[2:])))))
        if sockets not in seen:
            seen.add(sockets)
            yield np.array([choice])


def speed(_models: Path) -> Json:
    return {"steps_per_s": worlds(), "decision_ms": decisions()}


# --- tables


def tables(content: Json) -> str:
    """Markdown of all parts that are there."""
    lines: list[str] = []
    for part in ("overload", "stream", "cells", "feasible", "greedy", "heavy", "big"):
        for name, table in content.get(part, {}).items():
            if name != "provenance":
                lines += ["", f"## {part}: {name}", "", *_compared(table)]
    if "exact" in content:
        head = ("schedule", "mean slowdown", "to the best possible", "is the best")
        rows = [
            (
                name,
                f"{row['mean_slowdown']:.3f}",
                f"{row['to_best_possible']:.3f}",
                f"{row['is_best']:.0%}",
            )
            for name, row in content["exact"].items()
            if name != "provenance"
        ]
        lines += ["", "## exact: 30 small cases", "", *markdown_table(head, rows)]
    if "speed" in content:
        rows = [
            (name.replace("_", " "), f"{value:,.0f}" if value > 100 else f"{value:.2f}")
            for table in ("steps_per_s", "decision_ms")
            for name, value in content["speed"][table].items()
        ]
        lines += ["", "## speed: time steps a second; milliseconds of a decision", ""]
        lines += markdown_table(("what", "value"), rows)
    return "\n".join(lines).strip() + "\n"


def _compared(table: Json) -> Iterator[str]:
    facts = table["setting"]
    yield (
        f"{table['sequences']} sequences of {facts['jobs']} jobs, {facts['gpus']} GPUs,"
        f" {facts['arrivals_per_step']:.3f} jobs a step. Best baseline: {table['best_baseline']}."
        f" No scheduler can have a mean slowdown below {table['bound_alone']:.3f}."
    )
    yield ""
    head = ("scheduler", "mean slowdown", "to the best baseline", "mean reward", "ended", "ms")
    rows = [
        (
            name,
            _cell(row, "mean_slowdown", "{:.2f}"),
            _cell(row, "to_best_baseline", "{:.3f}"),
            _cell(row, "mean_reward", "{:,.0f}"),
            f"{row['finished']:.3f}",
            f"{row['decision_ms']:.1f}",
        )
        for name, row in table["schedulers"].items()
    ]
    yield from markdown_table(head, rows)


def _cell(row: Json, key: str, form: str) -> str:
    low, high = row[f"{key}_95"]
    return f"{form.format(row[key])} ({form.format(low)} to {form.format(high)})"


PARTS = {
    "overload": overload,
    "stream": stream,
    "cells": cells,
    "feasible": feasible,
    "greedy": greedy,
    "heavy": heavy,
    "big": big,
    "exact": lambda _models: exact(),
    "speed": speed,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=[*PARTS, "tables"])
    parser.add_argument("--models", type=Path, default=Path("models"), help="model folders")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/placement.json"))
    args = parser.parse_args()
    if args.part == "tables":
        text = INTRODUCTION + tables(json.loads(args.out.read_text()))
        args.out.with_suffix(".md").write_text(text, encoding="utf-8")
        return
    torch.set_num_threads(1)
    started_s = time.time()
    table = PARTS[args.part](args.models)
    record = provenance(
        ["python", "-m", "benchmarks.placement", args.part],
        inputs={},
        split={"test": f"seed {TEST_SEED}, part `test`"},
        seed=TEST_SEED,
        started_s=started_s,
        wall_s=time.time() - started_s,
    )
    content = json.loads(args.out.read_text()) if args.out.exists() else {}
    content[args.part] = table | {"provenance": record}
    args.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
