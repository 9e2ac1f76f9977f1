"""All schedulers of `mirage.placement` on the same test sequences: benchmarks/placement.md's figures.

    python -m benchmarks.placement SETTING "NAME;..." [--models DIR] [--out FILE]

SETTING: one of `SETTINGS`, such as `"load 0.9"`. NAME: a scheduler, `untrained`, or a trained agent
of `TRAINED`, of which DIR has a model folder for each seed, `FOLDER-SEED`. FILE keeps what each
scheduler reached on each sequence; those that are there and not named stay. `tables` in place of
SETTING prints FILE's tables as Markdown.

Intervals are 95 %, by resampling the ten test sequences, which no training saw. An agent that
learned counts as the mean of its three seeds on each sequence; the seeds' own means stand beside it.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from heapq import heappop, heappush
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.sim_common import machine, write_json
from mirage.figures.resample import mean_interval, ratio_interval
from mirage.models.card import markdown_table
from mirage.placement.simulated.baselines import Placer
from mirage.placement.simulated.elastic_rules import ELASTIC_RULES
from mirage.placement.simulated.jobs import PlacementJobs, PlacementWorkload
from mirage.placement.simulated.model import read_model
from mirage.placement.simulated.paper import PaperAgent, PaperNetwork, paper_image
from mirage.placement.simulated.planner import Planner
from mirage.placement.simulated.rollout import roll_out
from mirage.placement.simulated.schedulers import scheduler
from mirage.placement.simulated.setting import PlacementSetting
from mirage.placement.simulated.world import PlacementWorld, Price
from mirage.placement.speed import MinibatchCosts, PaperLaw
from mirage.placement.topology import Floats, Ints
from mirage.rl.fit import seeded

INTRODUCTION = """# Placement of GPU jobs: all tables

In brackets 95 % intervals over the test sequences. `difference`: mean slowdown less that of the best
baseline on the same sequences. `seeds`: of each training. `bound`: no scheduler can have a lower mean
slowdown, since each job needs its time alone on its best GPUs, and all jobs together need the GPUs
that there are. `ms`: a decision, on a machine that others used too.

"""
SEEDS = (1, 2, 3)
TEST_SEED = 77
SEQUENCES = 10
BASELINES = (
    *("random", "sjf", "tetris", "best-fit", "srtf", "las", "greedy", "greedy-as-asked"),
    *ELASTIC_RULES,
)
TRAINED = {
    "paper, static": "paper-static",
    "paper, stream": "paper-stream",
    "paper, load 0.9": "paper-feasible",
    "paper, equation 11": "paper-cells",
}
"""Agent -> model folders. The paper's agent, by what it was trained on."""
Json = dict[str, Any]


def _load(load: float, price_s: float = 0.0, jobs: int = 60, **more: Any) -> PlacementSetting:
    return PlacementSetting(
        load=load,
        price=Price(pause_s=price_s, restart_s=price_s, move_s=price_s),
        workload=PlacementWorkload(jobs=jobs, total_work="alone"),
        **more,
    )


BIG: Json = {"racks": (8,) * 8, "slots": 80, "backlog": 480}
SETTINGS = {
    "overload": PlacementSetting(workload=PlacementWorkload(total_work="alone")),
    "overload, equation 11": PlacementSetting(),
    "load 0.7": _load(0.7),
    "load 0.7, price 20 s": _load(0.7, 20.0),
    "load 0.9": _load(0.9),
    "load 0.9, price 20 s": _load(0.9, 20.0),
    "load 2": _load(2.0),
    "load 2, price 20 s": _load(2.0, 20.0),
    "256 GPUs, load 0.9": _load(0.9, 0.0, 120, **BIG),
    "256 GPUs, load 0.9, price 20 s": _load(0.9, 20.0, 120, **BIG),
    "pollux, load 0.9": _load(0.9, speeds="pollux"),
}


def measure(setting: PlacementSetting, placers: Sequence[Placer]) -> Json:
    """Of one scheduler, or of one trained with several seeds: means over the seeds of each sequence."""
    jobs = setting.sequences(TEST_SEED, "test", SEQUENCES)
    rollouts = [roll_out(each, setting.config, jobs) for each in placers]
    return row_of(
        np.array([each.mean_slowdown for each in rollouts]),
        np.array([each.first_return for each in rollouts]),
        finished=float(np.mean([each.finished for each in rollouts])),
        decision_ms=float(np.mean([each.decision_ms for each in rollouts])),
    )


def row_of(slowdown: Floats, reward: Floats, **others: float) -> Json:
    """What is kept of [seeds, sequences]."""
    reward = reward.mean(axis=0)
    return {
        "slowdown": slowdown.mean(axis=0).tolist(),
        "seeds": slowdown.mean(axis=1).tolist(),
        "reward": [float(reward.mean()), *mean_interval(reward)],
        **others,
    }


def placers_of(name: str, setting: PlacementSetting, models: Path) -> list[Placer]:
    if name == "untrained":
        return [untrained(setting, seed) for seed in SEEDS]
    if name == "search, equation 12":
        # Believes the paper's law where another holds.
        law = PaperLaw(setting.config.model, setting.topology)
        return [Planner(name=name, law=law)]
    if name not in TRAINED:
        return [scheduler(name, seed=1)]
    folders = [models / f"{TRAINED[name]}-{seed}" for seed in SEEDS]
    return [_trained(folder) for folder in folders if folder.is_dir()]


def _trained(folder: Path) -> Placer:
    return PaperAgent(read_model(folder).network)


def untrained(setting: PlacementSetting, seed: int) -> PaperAgent:
    with seeded(seed):
        return PaperAgent(PaperNetwork(paper_image(setting)), "untrained")


def bound(setting: PlacementSetting, jobs: Sequence[PlacementJobs], *, as_asked: bool) -> float:
    """No scheduler has a lower mean slowdown, of two reasons the stronger for each sequence. Each
    job needs its time alone on its best GPUs. And all jobs together need the GPUs (`shared`).

    ``as_asked``: on as many as it asks for.
    """
    world, values = PlacementWorld(setting.config, jobs), []
    step_s = setting.config.model.step_s
    every = np.arange(1, len(setting.topology) + 1)[:, None]
    for row, each in enumerate(jobs):
        costs = MinibatchCosts(
            minibatch_distance=world.distance[row],
            per_root_s=world.per_root_s[row],
            kind=world.kind[row],
        )
        gpus = each.gpus[None] if as_asked else every
        steps = each.total_distance / (world.law.packed(gpus, costs) * step_s)
        alone = np.ceil(steps.min(axis=0) - 1e-9)
        least = (steps * gpus).min(axis=0) / len(setting.topology)
        length = each.length_steps
        value = float((alone / length).mean())
        # Who does not end counts to T_max; so the second reason holds where all could end by then.
        if least.sum() + each.arrival_step[-1] <= setting.most_steps:
            value = max(value, shared(least, each.arrival_step, 1 / length))
        values.append(value)
    return float(np.mean(values))


def shared(needed: Floats, arrival: Ints, weight: Floats) -> float:
    """Least mean weighted time in a cluster that gives all GPUs to one job at a time, at no loss.

    ``needed``: time steps of the whole cluster. The jobs' mean busy times when the job of the
    greatest weight by need is always at work, plus half of the need, bound any schedule (Goemans
    1997, "Improved approximation algorithms for scheduling with release dates").
    """
    order = np.argsort(arrival, kind="stable")
    left, busy = needed.copy(), np.zeros(len(needed))
    ready: list[tuple[float, int]] = []
    clock, nth = 0.0, 0
    while nth < len(order) or ready:
        if not ready:
            clock = max(clock, float(arrival[order[nth]]))
        while nth < len(order) and arrival[order[nth]] <= clock:
            job = int(order[nth])
            heappush(ready, (-weight[job] / needed[job], job))
            nth += 1
        job = ready[0][1]
        until = float(arrival[order[nth]]) if nth < len(order) else np.inf
        spent = min(left[job], until - clock)
        busy[job] += spent * (clock + spent / 2)
        clock, left[job] = clock + spent, left[job] - spent
        if left[job] <= 1e-12:
            heappop(ready)
    return float((weight * (busy / needed + needed / 2 - arrival)).mean())


def head_of(setting: PlacementSetting) -> Json:
    jobs = setting.sequences(TEST_SEED, "test", SEQUENCES)
    return {
        "setting": setting.facts(),
        "sequences": SEQUENCES,
        "bound": bound(setting, jobs, as_asked=False),
        "bound_as_asked": bound(setting, jobs, as_asked=True),
    }


def figures(row: Json, reference: Floats | None) -> Json:
    """Means and intervals of one scheduler; ``reference``: of the best baseline, [sequences]."""
    slowdown = np.array(row["slowdown"])
    found: Json = {"slowdown": (float(slowdown.mean()), *mean_interval(slowdown))}
    if reference is not None:
        difference = slowdown - reference
        found["difference"] = (float(difference.mean()), *mean_interval(difference))
        ratio = float(slowdown.sum() / reference.sum())
        found["ratio"] = (ratio, *ratio_interval(slowdown, reference))
    return found


def tables(content: Json) -> str:
    """Markdown of all settings that are there."""
    lines: list[str] = []
    for name in SETTINGS:
        if table := content.get(name):
            lines += ["", f"## {name}", "", *_compared(table)]
    return "\n".join(lines).strip() + "\n"


def _compared(table: Json) -> Iterator[str]:
    facts, rows = table["setting"], table["schedulers"]
    means = {name: float(np.mean(rows[name]["slowdown"])) for name in BASELINES if name in rows}
    best = min(means, key=means.__getitem__) if means else None
    reference = np.array(rows[best]["slowdown"]) if best else None
    yield (
        f"{table['sequences']} sequences of {facts['jobs']} jobs, {facts['gpus']} GPUs,"
        f" {facts['arrivals_per_step']:.3f} jobs a step. Best baseline: {best}."
        f" Bound: {table['bound']:.3f}; with what jobs ask for: {table['bound_as_asked']:.3f}."
    )
    yield ""
    head = (
        "scheduler",
        "mean slowdown",
        "difference",
        "ratio",
        "mean reward",
        "ended",
        "seeds",
        "ms",
    )
    order = [name for name in ORDER if name in rows]
    cells = []
    for name in order:
        row = rows[name]
        found = figures(row, reference)
        seeds = row["seeds"] if len(row["seeds"]) > 1 else []
        cells.append(
            (
                name,
                _cell(found["slowdown"], "{:.2f}"),
                _cell(found["difference"], "{:+.2f}") if name != best and best else "",
                _cell(found["ratio"], "{:.2f}") if name != best and best else "",
                _cell(row["reward"], "{:,.0f}"),
                f"{rows[name]['finished']:.3f}",
                ", ".join(f"{value:.2f}" for value in seeds),
                f"{rows[name]['decision_ms']:.1f}",
            )
        )
    yield from markdown_table(head, cells)


def _cell(values: Sequence[float], form: str) -> str:
    mean, low, high = (form.format(value) for value in values)
    return f"{mean} ({low} to {high})"


SEARCHES = ("search", "search, equation 12", "search-as-asked")
ORDER = (*BASELINES, *SEARCHES, "untrained", *TRAINED)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("setting", choices=[*SETTINGS, "tables"])
    parser.add_argument("names", nargs="?", default="", help="schedulers, separated by ;")
    parser.add_argument("--models", type=Path, default=Path("models"), help="model folders")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/placement.json"))
    args = parser.parse_args()
    if args.setting == "tables":
        print(INTRODUCTION + tables(json.loads(args.out.read_text())))
        return
    torch.set_num_threads(1)
    for name in args.names.split(";") if args.names else ():
        setting = SETTINGS[args.setting]
        row = measure(setting, placers_of(name, setting, args.models)) | {"machine": machine()}
        _keep(args.out, args.setting, head_of(setting) | {"schedulers": {name: row}})
        print(args.setting, name, np.mean(row["slowdown"]), flush=True)


def _keep(path: Path, setting: str, table: Json) -> None:
    """Adds to the file; the schedulers that are there and not in ``table`` stay."""
    content = json.loads(path.read_text()) if path.exists() else {}
    before = content.get(setting, {}).get("schedulers", {})
    if "schedulers" in table:
        table["schedulers"] = before | table["schedulers"]
    content[setting] = table
    write_json(path, content)


if __name__ == "__main__":
    main()
