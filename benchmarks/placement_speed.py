"""Time steps a second of the vectorised world against a plain one on NetworkX; decisions.

    python -m benchmarks.placement_speed [--out FILE]

The plain world does what section 4.6.1 says, in Python on the graph: it walks the shortest path
between every two GPUs of each job, collects the links in sets, counts jobs on each link as an
attribute of the graph's edges, and takes the narrowest. `looked up`: paths were computed before.
`searched`: NetworkX searches them in the step. Both give the same speeds as the vectorised world,
which is checked. Jobs hold what they ask for, packed as `best-fit` does, in the paper's setting.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from functools import partial
from itertools import combinations, pairwise
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from mirage.placement.baselines import Placer, baseline
from mirage.placement.jobs import PlacementWorkload
from mirage.placement.model import read_model
from mirage.placement.paper import PaperAgent, PaperNetwork, paper_image
from mirage.placement.schedulers import agents_of, scheduler
from mirage.placement.setting import PlacementSetting
from mirage.placement.topology import Floats
from mirage.placement.world import Ints, PlacementWorld

CLUSTERS, STEPS, PLAIN_STEPS = 512, 60, 60
BIG_RACKS = (8,) * 8
"""256 GPUs."""


class PlainSpeeds:
    """Equations 3 and 12 to 15 on the graph, for one cluster."""

    def __init__(self, world: PlacementWorld, *, searches: bool) -> None:
        self._world, self._searches = world, searches
        topology = world.config.topology
        self._graph = topology.graph.copy()
        self._names = [gpu.name for gpu in topology.gpus]
        self._racks = [gpu.rack for gpu in topology.gpus]
        self._paths = {} if searches else dict(nx.all_pairs_shortest_path(self._graph))

    def _links(self, gpus: list[int]) -> set[tuple[str, str]]:
        links: set[tuple[str, str]] = set()
        for one, other in combinations(gpus, 2):
            ends = self._names[one], self._names[other]
            path = (
                nx.shortest_path(self._graph, *ends)
                if self._searches
                else self._paths[ends[0]][ends[1]]
            )
            links.update((min(pair), max(pair)) for pair in pairwise(path))
        return links

    def speeds(self, held: list[list[int]], cluster: int) -> Floats:
        world, model = self._world, self._world.config.model
        links = [self._links(gpus) for gpus in held]
        nx.set_edge_attributes(self._graph, 0, "jobs")
        for own in links:
            for one, other in own:
                self._graph.edges[one, other]["jobs"] += 1
        found = np.zeros(len(held))
        for row, gpus in enumerate(held):
            if not gpus:
                continue
            edges = [self._graph.edges[link] for link in links[row]]
            alone = min((edge["gb_per_s"] for edge in edges), default=1.0)
            shared = min((edge["gb_per_s"] / edge["jobs"] for edge in edges), default=1.0)
            racks = len({self._racks[gpu] for gpu in gpus})
            job = world.slot_job[cluster, row]
            root = np.sqrt(len(gpus)) if len(gpus) > 1 else 0.0
            reduction = world.per_root_s[cluster, job] * root
            reduction *= (1 + model.rack_factor * (racks - 1)) * alone / shared
            distance = world.distance[cluster, job]
            found[row] = distance * len(gpus) / (float(model.training_s(distance)) + reduction)
        return found


def busy_world(clusters: int) -> tuple[PlacementWorld, Ints]:
    """Clusters in the paper's overload, and an action for their present state."""
    setting = PlacementSetting()
    world = PlacementWorld(setting.config, setting.sequences(1, "test", clusters))
    placer = baseline("best-fit")
    placer.reset(world)
    for _ in range(25):
        world.step(placer.decide(world))
    return world, placer.decide(world)


def rate(step: Callable[[], Any], times: int) -> float:
    """Calls a second of processor time, which other programs on the machine do not change."""
    step()
    began = time.process_time()
    for _ in range(times):
        step()
    return times / (time.process_time() - began)


def worlds(runs: int = 3) -> dict[str, float]:
    """Medians of the runs; `times_...` are medians of each run's own ratio."""
    found = [_worlds() for _ in range(runs)]
    return {name: float(np.median([each[name] for each in found])) for name in found[0]}


def _worlds() -> dict[str, float]:
    world, action = busy_world(CLUSTERS)
    held = [np.nonzero(action[0] == row)[0].tolist() for row in range(world.rows)]
    vector = world.speeds_of(world.assignment(action))[0]
    found: dict[str, float] = {}
    for name, searches in (("looked up", False), ("searched", True)):
        plain = PlainSpeeds(world, searches=searches)
        np.testing.assert_allclose(plain.speeds(held, 0), vector, rtol=1e-9)
        found[f"plain_{name.replace(' ', '_')}"] = rate(partial(plain.speeds, held, 0), PLAIN_STEPS)
    found["vectorised"] = CLUSTERS * rate(lambda: world.step(action), STEPS)
    for name in ("looked_up", "searched"):
        found[f"times_{name}"] = found["vectorised"] / found[f"plain_{name}"]
    return found


def decisions(seed: int = 1) -> dict[str, float]:
    """Milliseconds of processor time of a decision at load 0.9, mean."""
    model = read_model(shipped_model())
    found = {}
    for gpus, racks, slots in ((32, (2, 2, 2, 2), 10), (256, BIG_RACKS, 80)):
        setting = PlacementSetting(
            racks=racks,
            load=0.9,
            slots=slots,
            backlog=600,
            most_steps=60,
            workload=PlacementWorkload(jobs=20 * gpus // 8, total_work="alone"),
        )
        placers = [scheduler(name) for name in ("best-fit", "srtf", "search", "search-as-asked")]
        placers += agents_of(model, setting)
        if gpus == 32:
            placers.append(PaperAgent(PaperNetwork(paper_image(setting))))
        for placer in placers:
            found[f"{placer.name}, {gpus} GPUs"] = _decision_ms(placer, setting, seed)
    return found


def shipped_model() -> Path:
    return Path(__file__).resolve().parents[1] / "models" / "placement-minsky" / "scalable"


def _decision_ms(placer: Placer, setting: PlacementSetting, seed: int) -> float:
    world = PlacementWorld(setting.config, setting.sequences(seed, "test", 1))
    placer.reset(world)
    spent_s = []
    while not world.over.all():
        began = time.process_time()
        actions = placer.decide(world)
        spent_s.append(time.process_time() - began)
        world.step(actions)
    return 1000 * float(np.mean(spent_s))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="JSON file (default: standard output)")
    args = parser.parse_args()
    content = json.dumps({"steps_per_s": worlds(), "decision_ms": decisions()}, indent=1) + "\n"
    if args.out:
        args.out.write_text(content, encoding="utf-8")
    else:
        print(content, end="")


if __name__ == "__main__":
    main()
