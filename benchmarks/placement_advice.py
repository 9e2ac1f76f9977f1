"""How much `mirage place advise` finds on crowded clusters, and how long it takes.

    python -m benchmarks.placement_advice [--seeds 5] [--out FILE]

Jobs of one to four nodes and one to four GPUs a node (at most half of its GPUs) lie on random nodes
of a tree of racks, as a scheduler that knows no topology places them; all may be moved. `bound`:
each job alone in one rack, which no placement can exceed and few can reach. `closed`: the share of
the gap to it that the moves close. `fast`: at most 5 moves at a price of 180 s each, as the command
does. `all`: moves without a price, until none helps; each job moves once.
"""

from __future__ import annotations

import argparse
import json
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mirage.placement.live.advice import Terms, advise, after, progress
from mirage.placement.live.state import LiveState
from tests.unit.placement.live_site import LiveSite

SITES = {"32 GPUs": (8, 4, 2), "256 GPUs": (32, 8, 8)}
"""Nodes, GPUs of each, racks."""
FILLED = 0.75
"""Jobs are added until this share of the GPUs is in use, or 200 were drawn."""
TERMS = {
    "fast": Terms(pause_s=180, horizon_s=4 * 3600),
    "all": Terms(pause_s=0, horizon_s=4 * 3600, most_moves=200),
}


@dataclass
class _Crowd(LiveSite):
    nodes: int = 8

    @property
    def names(self) -> list[str]:
        return [f"n{number}" for number in range(1, self.nodes + 1)]


def crowded(nodes: int, gpus: int, racks: int, rng: np.random.Generator) -> LiveState:
    """A cluster with jobs on random nodes."""
    size = nodes // racks
    leaves = [f"SwitchName=r{r} Nodes=n[{r * size + 1}-{(r + 1) * size}]" for r in range(racks)]
    site = _Crowd(gpus_each=gpus, nodes=nodes)
    site.tree = "\n".join([*leaves, f"SwitchName=top Switches=r[0-{racks - 1}]"])
    for job_id in range(1, 201):
        each = int(rng.integers(1, min(gpus // 2, 4) + 1))
        count = int(rng.integers(1, 5))
        free = [name for name in site.names if site.used(name) + each <= gpus]
        if sum(map(site.used, site.names)) >= FILLED * nodes * gpus:
            break
        if len(free) >= count:
            chosen = rng.choice(free, size=count, replace=False)
            site.run(job_id, ",".join(chosen), each=each, whole=False)
    return site.state()


def measured(state: LiveState, terms: Terms, bound: float) -> dict[str, Any]:
    """One search from this state."""
    begun = time.perf_counter()
    moves = advise(state, terms)
    seconds = time.perf_counter() - begun
    before = float(progress(state, state.assigned).sum())
    for move in moves:
        state = after(state, move)
    then = float(progress(state, state.assigned).sum())
    return {
        "moves": len(moves),
        "seconds": round(seconds, 3),
        "throughput": round(then, 2),
        "closed": round((then - before) / (bound - before), 3) if bound > before else None,
    }


def _bound(state: LiveState) -> float:
    """Throughput of all jobs, were each alone in one rack."""
    total = 0.0
    for row, each in enumerate(state.jobs):
        alone = np.zeros_like(state.assigned)
        rack = [nth for nth, gpu in enumerate(state.topology.gpus) if gpu.rack == "r0"]
        nodes = list(dict.fromkeys(state.topology.gpus[nth].node for nth in rack))
        for node, share in zip(nodes, each.shares, strict=False):
            own = [nth for nth in rack if state.topology.gpus[nth].node == node]
            alone[row, own[: share.gpus]] = True
        total += float(progress(state, alone)[row])
    return total


def results(seeds: int) -> list[dict[str, Any]]:
    """A record for each site and seed."""
    found = []
    for name, shape in SITES.items():
        for seed in range(seeds):
            state = crowded(*shape, np.random.default_rng(seed))
            gpus = state.assigned.sum(axis=1)
            bound = _bound(state)
            record: dict[str, Any] = {
                "site": name,
                "seed": seed,
                "jobs": len(state.jobs),
                "gpus_in_use": int(gpus.sum()),
                "throughput": round(float(progress(state, state.assigned).sum()), 2),
                "bound": round(bound, 2),
            }
            for kind, terms in TERMS.items():
                record[kind] = measured(state, terms, bound)
            found.append(record)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--out", type=Path, help="JSON file (default: standard output)")
    args = parser.parse_args()
    content = json.dumps(results(args.seeds), indent=1) + "\n"
    if args.out:
        args.out.write_text(content, encoding="utf-8")
    else:
        print(content, end="")


if __name__ == "__main__":
    main()
