"""How well laws of a step predict Pollux's measured steps, and what rules keep of the best placement.

    python -m benchmarks.placement_law [--out FILE]

Steps of six types of job on up to four nodes of four T4 GPUs (petuum/adaptdl, Apache-2.0). For each type the levels'
rates are fitted on the other five; of the type itself a law knows the step on one GPU and, in `levels`, one more step,
on `11` (two nodes, a GPU each), from which its size comes. `equation 12`: RL-TAPS's, its c from the same step (nodes
as racks). `nothing`: communication takes no time. Errors are means of |predicted - measured| / measured.

`kept`: random GPUs are free, a job of 2 to 8 arrives, and a rule places it; speed as a share of the best placement's.
200 cases a type for each of five seeds, intervals over the seeds. `one node, else even` has no number to fit, but was
thought of after a look at these data.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections import defaultdict
from importlib import resources
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.sim_common import machine, write_json
from mirage.figures.resample import mean_interval

NODES, GPUS = 4, 4
SEEDS = (11, 12, 13, 14, 15)
CASES = 200
REFERENCE = (1, 1)
Place = tuple[int, ...]
Steps = dict[int, dict[Place, float]]
"""Local batch -> GPUs of each node, sorted -> seconds."""


def pollux() -> dict[str, Steps]:
    """By application; only batches with a step on one GPU and on `REFERENCE`."""
    text = resources.files("mirage").joinpath("elastic/data/pollux/steps.csv").read_text()
    every: dict[str, dict[int, dict[Place, list[float]]]] = defaultdict(
        lambda: defaultdict(lambda: defaultdict(list))
    )
    for row in csv.DictReader(text.splitlines()):
        place = tuple(sorted((int(figure) for figure in row["placement"]), reverse=True))
        if place and len(place) <= NODES and 0 < max(place) <= GPUS:
            every[row["application"]][int(row["local_batch"])][place].append(float(row["step_s"]))
    return {
        name: {
            batch: {place: float(np.mean(times)) for place, times in steps.items()}
            for batch, steps in batches.items()
            if (1,) in steps and REFERENCE in steps
        }
        for name, batches in every.items()
    }


def term(place: Place, node_share: float) -> float:
    """Communication of a placement, where `between nodes` is 1 for the whole gradient."""
    gpus = sum(place)
    return (gpus - 1) / gpus * (node_share if len(place) == 1 else 1.0)


def root(place: Place, _share: float = 0.0) -> float:
    """Equation 12 without its c."""
    return float(np.sqrt(sum(place)) * (1 + 0.2 * (len(place) - 1))) if sum(place) > 1 else 0.0


def fitted_share(types: list[Steps]) -> float:
    """Cost inside a node by that between nodes: the median over types and batches."""
    found = []
    for steps in (each for batches in types for each in batches.values()):
        between = [
            (step - steps[1,]) / term(place, 1.0) for place, step in steps.items() if len(place) > 1
        ]
        inside = [
            (step - steps[1,]) / term(place, 1.0)
            for place, step in steps.items()
            if len(place) == 1 < sum(place)
        ]
        found.append(np.median(inside) / np.median(between))
    return float(np.median(found))


def predicted(steps: dict[Place, float], place: Place, share: float, law: str) -> float:
    if law == "nothing":
        return steps[1,]
    shape = root if law == "equation 12" else term
    size = max(steps[REFERENCE] - steps[1,], 0.0) / shape(REFERENCE, share)
    return steps[1,] + size * shape(place, share)


def errors(batches: Steps, share: float, law: str) -> float:
    return float(
        np.mean(
            [
                abs(predicted(steps, place, share, law) - step) / step
                for steps in batches.values()
                for place, step in steps.items()
                if sum(place) > 1 and place != REFERENCE
            ]
        )
    )


def candidates(free: Place, wanted: int) -> list[Place]:
    """All placements, GPUs of each node in the order of the nodes."""
    return [each for each in product(*(range(n + 1) for n in free)) if sum(each) == wanted]


def chosen(
    rule: str, every: list[Place], free: Place, steps: dict[Place, float], share: float
) -> Place:
    nodes = {each: sum(map(bool, each)) for each in every}
    if rule == "first free":
        return max(every)
    if rule == "fewest nodes":  # of these the one that leaves the smallest gap
        return min(
            every, key=lambda e: (nodes[e], sum(f - n for f, n in zip(free, e, strict=True) if n))
        )
    if rule == "one node, else even":
        return min(every, key=lambda e: (nodes[e] > 1, max(e)))
    return min(every, key=lambda e: predicted(steps, _key(e), share, rule))


def _key(place: Place) -> Place:
    return tuple(sorted((n for n in place if n), reverse=True))


RULES = ("first free", "fewest nodes", "one node, else even", "equation 12", "levels")


def kept(batches: Steps, share: float, seed: int) -> dict[str, float]:
    rng = np.random.default_rng(seed)
    found: dict[str, list[float]] = defaultdict(list)
    complete = [steps for steps in batches.values() if len(steps) >= 60]
    while len(found[RULES[0]]) < CASES:
        steps = complete[int(rng.integers(len(complete)))]
        free = tuple(int(n) for n in rng.integers(0, GPUS + 1, NODES))
        wanted = int(rng.integers(2, 9))
        every = [e for e in candidates(free, wanted) if _key(e) in steps]
        if not every:
            continue
        best = min(steps[_key(each)] for each in every)
        for rule in RULES:
            found[rule].append(best / steps[_key(chosen(rule, every, free, steps, share))])
    return {rule: float(np.mean(found[rule])) for rule in RULES}


def results() -> dict[str, Any]:
    types = pollux()
    content: dict[str, Any] = {"machine": machine(), "types": {}}
    by_seed = []
    for name, batches in types.items():
        share = fitted_share([each for other, each in types.items() if other != name])
        content["types"][name] = {
            "inside_by_between": round(share, 3),
            "errors": {
                law: round(errors(batches, share, law), 3)
                for law in ("levels", "equation 12", "nothing")
            },
        }
        by_seed.append([list(kept(batches, share, seed).values()) for seed in SEEDS])
    means = np.mean(by_seed, axis=0)
    content["kept"] = {
        rule: [
            round(float(means[:, nth].mean()), 4),
            *np.round(mean_interval(means[:, nth]), 4).tolist(),
        ]
        for nth, rule in enumerate(RULES)
    }
    return content


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=Path("benchmarks/placement_law.json"))
    args = parser.parse_args()
    write_json(args.out, results())
    print(json.dumps(json.loads(args.out.read_text()), indent=1))


if __name__ == "__main__":
    main()
