"""How far equations 12 and 13 of RL-TAPS are from measurements, and what that costs a placement.

    python -m benchmarks.placement_measured --data DIR [--out FILE] [--picture FILE]

DIR has `pollux/<model>/placements.csv` (petuum/adaptdl, branch osdi21-artifact) and
`deepshare/shared_thp_ratio.csv` (gajagajago/deepshare), both Apache-2.0.

- Equation 12 on Pollux's step times: nodes stand for racks. As in the paper, the reduction's size is
  measured on one node (2 to 4 GPUs, square root) and extrapolated to more by the factor
  `1 + 0.2 (nodes - 1)`. Beside it the factor that fits best.
- Equation 13 on DeepShare's pairs: two jobs on the same nodes halve their bandwidth, whoever the
  other is. So a job's ratio is `1 / (1 + f)`, f the share of reduction in its step, at least 0.5. f
  is fitted to each job's own row, the best that the equation can do.
- Placements on Pollux's step times: random free GPUs of four nodes, two jobs; the sum of measured
  speeds that best fit, the search with equation 12, and the best of all placements reach.
"""

from __future__ import annotations

import argparse
import csv
import json
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from mirage.figures.svg import Scale, chart, circle, line, text
from mirage.placement.packing import best_fit
from mirage.placement.search import PlacementJob, propose
from mirage.placement.speed import SpeedModel
from mirage.placement.topology import Gpu, Topology, add_link

NODES, GPUS = 4, 4
PAPER_FACTOR = 0.2
CASES = 300
Steps = Mapping[str, float]
"""Placement (GPUs of each node in falling order, as `42`) -> seconds of a step."""


def pollux(folder: Path) -> dict[tuple[str, int], Steps]:
    """Step times by model and batch of a GPU; of those batches that were measured on one GPU."""
    found: dict[tuple[str, int], dict[str, list[float]]] = {}
    for path in sorted(folder.glob("*/placements.csv")):
        for row in csv.DictReader(path.read_text().splitlines()):
            key = (path.parent.name, int(row["local_bsz"]))
            name = "".join(sorted(row["placement"], reverse=True))
            found.setdefault(key, {}).setdefault(name, []).append(float(row["step_time"]))
    return {
        key: {name: float(np.mean(times)) for name, times in steps.items()}
        for key, steps in found.items()
        if {"1", "2", "3", "4"} <= steps.keys()
    }


def shape(placement: str) -> tuple[int, int]:
    """GPUs and nodes."""
    return sum(map(int, placement)), len(placement)


def root_s(steps: Steps) -> float:
    """c of c sqrt(n), fitted to the steps on one node; at least 0."""
    roots = np.sqrt([2, 3, 4])
    extra = np.array([steps[name] - steps["1"] for name in ("2", "3", "4")])
    return max(float(roots @ extra / (roots @ roots)), 0.0)


def predicted_s(steps: Steps, placement: str, factor: float, per_root_s: float) -> float:
    gpus, nodes = shape(placement)
    if gpus == 1:
        return steps["1"]
    return steps["1"] + per_root_s * np.sqrt(gpus) * (1 + factor * (nodes - 1))


def equation_12(table: Mapping[tuple[str, int], Steps]) -> dict[str, Any]:
    """Errors by model, and by number of nodes."""
    factors = np.concatenate([np.linspace(0, 2, 41), np.linspace(2.25, 30, 112)])
    models: dict[str, Any] = {}
    for name in sorted({model for model, _ in table}):
        cases = [
            (steps, placement)
            for (model, _), steps in table.items()
            if model == name
            for placement in steps
            if shape(placement)[1] > 1
        ]
        errors = {
            float(factor): [
                predicted_s(steps, placement, factor, root_s(steps)) / steps[placement] - 1
                for steps, placement in cases
            ]
            for factor in (PAPER_FACTOR, *factors)
        }
        best = min(errors, key=lambda factor: float(np.mean(np.abs(errors[factor]))))
        paper = np.array(errors[PAPER_FACTOR])
        models[name] = {
            "cases": len(cases),
            "mean_error": float(paper.mean()),
            "mean_absolute_error": float(np.abs(paper).mean()),
            "by_nodes": {
                nodes: float(
                    np.mean(
                        [
                            error
                            for error, (_, placement) in zip(paper, cases, strict=True)
                            if shape(placement)[1] == nodes
                        ]
                    )
                )
                for nodes in sorted({shape(placement)[1] for _, placement in cases})
            },
            "best_factor": best,
            "mean_absolute_error_with_best_factor": float(np.mean(np.abs(errors[best]))),
        }
    return models


def sharing(path: Path) -> tuple[list[str], np.ndarray, np.ndarray]:
    """Kinds, measured ratios (kind, neighbour), and what equation 13 can say at best (kind, 1)."""
    head, *rows = list(csv.reader(path.read_text("utf-8-sig").splitlines()))
    ratios = np.array([[float(value) for value in row[1:]] for row in rows if row])
    return head[1:], ratios, np.clip(np.median(ratios, axis=1, keepdims=True), 0.5, 1.0)


def equation_13(path: Path) -> dict[str, Any]:
    kinds, ratios, expected = sharing(path)
    error = expected - ratios
    spread = ratios - ratios.mean(axis=1, keepdims=True)
    return {
        "pairs": ratios.size,
        "below_half": float((ratios < 0.5).mean()),
        "least": float(ratios.min()),
        "mean_absolute_error": float(np.abs(error).mean()),
        "worst_error": float(np.abs(error).max()),
        "variance_explained": float(1 - (spread**2).mean() / ratios.var()),
        "rows": {
            name: {"expected": float(one), "least": float(row.min()), "most": float(row.max())}
            for name, one, row in zip(kinds, expected[:, 0], ratios, strict=True)
        },
    }


# --- placements


def four_nodes() -> Topology:
    """Nodes as racks of their own: equation 12's factor counts them."""
    graph: nx.Graph[str] = nx.Graph()
    gpus = []
    for node in range(NODES):
        add_link(graph, f"n{node}", "switch", gb_per_s=5.0, source="pollux")
        for nth in range(GPUS):
            name = f"n{node}/gpu{nth}"
            add_link(graph, name, f"n{node}", gb_per_s=16.0, source="pollux")
            gpus.append(Gpu(name=name, node=f"n{node}", rack=f"n{node}", socket=f"n{node}"))
    return Topology(graph, gpus, source="pollux")


def measured_speed(steps: Steps, topology: Topology, held: Sequence[int]) -> float | None:
    """Speed in GPUs that lose nothing: n times the step alone by the step; None: not measured."""
    counts = np.bincount(topology.node_of[list(held)], minlength=NODES)
    name = "".join(str(count) for count in sorted(counts[counts > 0].tolist(), reverse=True))
    return len(held) * steps["1"] / steps[name] if name in steps else None


def placements(table: Mapping[tuple[str, int], Steps], seed: int = 1) -> dict[str, Any]:
    topology, rng = four_nodes(), np.random.default_rng(seed)
    keys = sorted(table)
    found: dict[str, list[float]] = {"best fit": [], "search": [], "best possible": []}
    while len(found["search"]) < CASES:
        kinds = [table[keys[nth]] for nth in rng.integers(len(keys), size=2)]
        wanted = rng.integers(2, 6, size=2)
        available = rng.random(len(topology)) < 0.7
        if available.sum() < wanted.sum():
            continue
        values: dict[str, Sequence[Sequence[int]]] = {
            "best fit": _first_best_fit(topology, available, wanted),
            "search": _search(topology, available, wanted, kinds),
        }
        sums = {name: _sum(topology, kinds, held) for name, held in values.items()}
        sums["best possible"] = max(
            (
                value
                for held in _all(topology, available, wanted)
                if (value := _sum(topology, kinds, held)) is not None
            ),
            default=None,
        )
        if all(value is not None for value in sums.values()):
            for name, value in sums.items():
                found[name].append(float(value or 0.0))
    best = np.array(found["best possible"])
    return {
        name: {
            "mean_speed": float(np.mean(values)),
            "to_best_possible": float(np.sum(values) / best.sum()),
            "is_best": float(np.mean(np.array(values) > best - 1e-9)),
        }
        for name, values in found.items()
    }


def _sum(topology: Topology, kinds: Sequence[Steps], held: Sequence[Sequence[int]]) -> float | None:
    speeds = [measured_speed(s, topology, gpus) for s, gpus in zip(kinds, held, strict=True)]
    return None if None in speeds else float(sum(speed or 0.0 for speed in speeds))


def _first_best_fit(topology: Topology, available: Any, wanted: Any) -> list[list[int]]:
    free, held = available.copy(), []
    for count in wanted:
        gpus = best_fit(topology, free, int(count))
        free[gpus] = False
        held.append(gpus.tolist())
    return held


def _search(
    topology: Topology, available: Any, wanted: Any, kinds: Sequence[Steps]
) -> list[Sequence[int]]:
    model = SpeedModel()
    peak = model.efficiency * model.gpu_flops
    jobs = [
        PlacementJob(
            name=str(nth),
            gpus=int(count),
            minibatch_distance=steps["1"] * peak,
            reduction_per_root_s=root_s(steps),
            weight=float(count)
            * steps["1"]
            / predicted_s(steps, str(int(count)), 0, root_s(steps)),
        )
        for nth, (count, steps) in enumerate(zip(wanted, kinds, strict=True))
    ]
    return list(propose(topology, jobs, available=available).held)


def _all(topology: Topology, available: Any, wanted: Any) -> Iterator[list[list[int]]]:
    """Every way to take GPUs of the nodes, GPUs of a node being alike."""
    room = [np.nonzero(available & (topology.node_of == node))[0].tolist() for node in range(NODES)]
    ways = [
        [
            counts
            for counts in product(*(range(len(free) + 1) for free in room))
            if sum(counts) == count
        ]
        for count in wanted
    ]
    for first, second in product(*ways):
        if all(a + b <= len(free) for a, b, free in zip(first, second, room, strict=True)):
            yield [
                [gpu for count, free in zip(first, room, strict=True) for gpu in free[:count]],
                [
                    gpu
                    for skip, count, free in zip(first, second, room, strict=True)
                    for gpu in free[skip : skip + count]
                ],
            ]


_STYLE = (
    "<style>svg{background:#fff}text{font:12px sans-serif;fill:#59636e}.axis{stroke:#59636e}"
    ".nodes2{fill:#c4512d}.nodes3{fill:#2d6ca8}.nodes4{fill:#5a9630}</style>"
)


def picture(table: Mapping[tuple[str, int], Steps]) -> str:
    """Equation 12's step time by the measured one, over the measured one; logarithms."""
    across, up = Scale(-2, 1.5, 48, 406), Scale(-1.5, 0.5, 300, 10)
    parts = [_STYLE, line(across(-2), up(0), across(1.5), up(0), "axis")]
    for power in (-2, -1, 0, 1):
        parts.append(text(across(power), 318, f"{10**power:g} s", "tick", "middle"))
    for ratio in (0.05, 0.1, 0.2, 0.5, 1, 2):
        parts.append(text(42, up(np.log10(ratio)) + 4, f"{ratio:g}", "tick", "end"))
    means: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for (model, _), steps in table.items():
        for placement, measured in steps.items():
            if shape(placement)[1] > 1:
                expected = predicted_s(steps, placement, PAPER_FACTOR, root_s(steps))
                case = (float(np.log10(measured)), float(np.log10(expected / measured)))
                means.setdefault((model, placement), []).append(case)
    for (model, placement), cases in means.items():
        x, y = np.mean(cases, axis=0)
        style = f"nodes{shape(placement)[1]}"
        parts.append(circle(across(x), up(y), 2, style, f"{model} on {placement}"))
    parts.append(
        text(
            227,
            340,
            "measured step; up: equation 12 by it (means over batches)",
            "axis-word",
            "middle",
        )
    )
    for nth, words in enumerate(("2 nodes", "3 nodes", "4 nodes")):
        parts.append(circle(330, 20 + 16 * nth, 3, f"nodes{nth + 2}"))
        parts.append(text(338, 24 + 16 * nth, words, "tick"))
    drawn = str(chart(346, "Equation 12 against Pollux's step times", "colour: nodes", parts))
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="840" ', 1)


def sharing_picture(path: Path) -> str:
    """Each pair's measured speed beside a neighbour, over what equation 13 says of its kind."""
    across, up = Scale(0.4, 1.05, 48, 406), Scale(0.1, 1.1, 300, 10)
    parts = [_STYLE, line(across(0.4), up(0.4), across(1.05), up(1.05), "axis")]
    for share in (0.4, 0.6, 0.8, 1.0):
        parts.append(text(across(share), 318, f"{share:g}", "tick", "middle"))
        parts.append(text(42, up(share) + 4, f"{share:g}", "tick", "end"))
    kinds, ratios, expected = sharing(path)
    for kind, row, one in zip(kinds, ratios, expected[:, 0], strict=True):
        for neighbour, ratio in zip(kinds, row, strict=True):
            parts.append(circle(across(one), up(ratio), 2, "nodes3", f"{kind} beside {neighbour}"))
    words = "equation 13 at its best; up: measured (shares of the speed alone)"
    parts.append(text(227, 340, words, "axis-word", "middle"))
    drawn = str(
        chart(346, "Equation 13 against DeepShare's pairs", "a dot: a pair of kinds", parts)
    )
    return drawn.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" width="840" ', 1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, type=Path, help="folder with pollux, deepshare")
    parser.add_argument("--out", type=Path, help="JSON file (default: standard output)")
    parser.add_argument("--picture", type=Path, help="svg file of equation 12's errors")
    parser.add_argument("--sharing-picture", type=Path, help="svg file of equation 13's errors")
    args = parser.parse_args()
    table = pollux(args.data / "pollux")
    found = {
        "equation_12": equation_12(table),
        "equation_13": equation_13(args.data / "deepshare" / "shared_thp_ratio.csv"),
        "placements": placements(table),
    }
    content = json.dumps(found, indent=1) + "\n"
    if args.out:
        args.out.write_text(content, encoding="utf-8")
    else:
        print(content, end="")
    if args.picture:
        args.picture.write_text(picture(table) + "\n", encoding="utf-8")
    if args.sharing_picture:
        drawn = sharing_picture(args.data / "deepshare" / "shared_thp_ratio.csv")
        args.sharing_picture.write_text(drawn + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
