"""What can be reached at all in the paper's episodes: all 81 sequences of four flavours, each
weighed alike.

    python -m benchmarks.routing_bounds > benchmarks/routing_bounds.json

The full job is the last, as in Figure 3: its start ends an episode (equation 3). Of A100:
- naive: draws a server, waits if it has no room, and draws again when a job ends
  (`mirage.routing.rules.naive`); or keeps to the server that it has drawn;
- best: the least time in which two servers can run the four jobs, all known beforehand, waits
  allowed. It bounds every agent;
- agent: both variants, five training seeds each, of a thousand episodes as `mirage route train
  --lesson paper` draws them.
Inefficient power is that of unused GPUs until then, and the paper's sum, which takes 720 hours.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache
from itertools import permutations, product

import numpy as np

from mirage.routing.dqn import train_on_episodes
from mirage.routing.episode import play
from mirage.routing.evaluate import PAPER_HOURS
from mirage.routing.flavors import paper_partitions
from mirage.routing.rules import agent_rule, best_possible, first_fit, naive, random_fit
from mirage.routing.state import Variant
from mirage.routing.world import Arrival
from slurm_sim.seconds import HOUR_S

KIND = paper_partitions()[0]
GPUS = [flavor.gpus for flavor in KIND.flavors]
HOURS = [flavor.limit_s // HOUR_S for flavor in KIND.flavors]
SINGLES, FULL = (0, 1, 2), 3
DRAWS = 20
EPISODES, SEEDS = 1000, (1, 2, 3, 4, 5)
SEQUENCES = {
    flavors: [Arrival(number * HOUR_S, flavor) for number, flavor in enumerate((*flavors, FULL))]
    for flavors in product(SINGLES, repeat=4)
}


def earliest(placed: Sequence[tuple[int, int, int]], flavor: int) -> int:
    """When a server with these jobs (start, end, GPUs) has room for one more, for as long as that
    takes.
    """
    for at in sorted({0, *(end for _, end, _ in placed)}):
        moments = [at, *(start for start, _, _ in placed if at < start < at + HOURS[flavor])]
        used = [
            sum(gpus for start, end, gpus in placed if start <= moment < end) for moment in moments
        ]
        if max(used) + GPUS[flavor] <= KIND.gpus:
            return at
    raise AssertionError("an empty server has room")


@cache
def shortest(flavors: tuple[int, ...]) -> int:
    """Hours until both servers are free again: the least of all orders and servers."""
    return min(
        _hours(order, servers)
        for order in set(permutations(flavors))
        for servers in product(range(KIND.servers), repeat=len(flavors))
    )


def _hours(order: Sequence[int], servers: Sequence[int]) -> int:
    placed: list[list[tuple[int, int, int]]] = [[] for _ in range(KIND.servers)]
    for flavor, server in zip(order, servers, strict=True):
        at = earliest(placed[server], flavor)
        placed[server].append((at, at + HOURS[flavor], GPUS[flavor]))
    return max(end for each in placed for _, end, _ in each)


def used(flavors: Sequence[int], hours: float) -> float:
    """Equation 4 when these jobs have run for so long."""
    return sum(GPUS[each] * HOURS[each] for each in flavors) / (KIND.servers * KIND.gpus * hours)


def kept_servers_h(flavors: Sequence[int], random: np.random.Generator) -> float:
    """Hours if each job waits for the server that it has drawn; of those that fit the largest goes
    first.
    """
    servers = random.integers(KIND.servers, size=len(flavors))
    return max(
        _server_h([(at, each) for at, each in enumerate(flavors) if servers[at] == server])
        for server in range(KIND.servers)
    )


def _server_h(coming: list[tuple[int, int]]) -> float:
    running: list[tuple[int, int]] = []
    waiting: list[tuple[int, int]] = []
    last_h = 0
    while coming or waiting:
        now_h = min([at for at, _ in coming] + [end for end, _ in running])
        running = [(end, flavor) for end, flavor in running if end > now_h]
        waiting += [job for job in coming if job[0] <= now_h]
        coming = [job for job in coming if job[0] > now_h]
        for job in sorted(waiting, key=lambda job: (-job[1], job[0])):
            if sum(GPUS[flavor] for _, flavor in running) + GPUS[job[1]] <= KIND.gpus:
                waiting.remove(job)
                running.append((now_h + HOURS[job[1]], job[1]))
                last_h = max(last_h, now_h + HOURS[job[1]])
    return last_h


def figures(rows: Sequence[tuple[float, float]], naive_h: float) -> dict[str, float]:
    """Of (utilization, hours) each."""
    utilization, hours = np.mean(rows, axis=0)
    wasted_h = float(np.mean([(1 - used) * hours for used, hours in rows]))
    kw = KIND.servers * KIND.busy_w / 1000
    return {
        "utilization": round(float(utilization), 3),
        "least_utilization": round(min(used for used, _ in rows), 3),
        "share_under_0.3": round(float(np.mean([used < 0.3 for used, _ in rows])), 4),
        "hours": round(float(hours), 1),
        "hours_to_naive": round(float(hours) / naive_h, 3),
        "inefficient_kwh": round(wasted_h * kw),
        "inefficient_kwh_as_paper": round((1 - float(utilization)) * PAPER_HOURS * kw),
    }


def learned(variant: Variant, seed: int) -> list[tuple[float, float]]:
    """(utilization, hours) of each sequence by a new agent."""
    rule = agent_rule(train_on_episodes(KIND, variant, EPISODES, seed=seed))
    masked = variant is Variant.OURS
    outcomes = [play(KIND, jobs, rule, masked=masked) for jobs in SEQUENCES.values()]
    return [(outcome.utilization, outcome.run_s / HOUR_S) for outcome in outcomes]


def main() -> None:
    random = np.random.default_rng(1)
    rules = {"random, with room": random_fit(random), "first-fit": first_fit}
    found: dict[str, list[tuple[float, float]]] = {}
    for flavors, jobs in SEQUENCES.items():
        outcomes = [("naive", play(KIND, jobs, naive(random), masked=False)) for _ in range(DRAWS)]
        for _ in range(DRAWS):
            hours = kept_servers_h(flavors, random)
            found.setdefault("naive, keeps its server", []).append((used(flavors, hours), hours))
        outcomes += [(name, play(KIND, jobs, rule)) for name, rule in rules.items()]
        outcomes.append(("best server for each, known beforehand", best_possible(KIND, jobs)))
        for name, outcome in outcomes:
            row = (outcome.utilization, outcome.run_s / HOUR_S)
            found.setdefault(name, []).append(row)
        hours = shortest(tuple(sorted(flavors)))
        found.setdefault("best of all orders and waits", []).append((used(flavors, hours), hours))
    for variant in (Variant.PAPER, Variant.OURS):
        name = f"agent ({variant.value})"
        for seed in SEEDS:
            found[f"{name}, seed {seed}"] = rows = learned(variant, seed)
            found.setdefault(f"{name}, {len(SEEDS)} seeds", []).extend(rows)
    naive_h = float(np.mean([hours for _, hours in found["naive"]]))
    print(json.dumps({name: figures(rows, naive_h) for name, rows in found.items()}, indent=1))


if __name__ == "__main__":
    main()
