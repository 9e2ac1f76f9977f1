"""What can be reached at all in the paper's episodes: all 81 sequences of four flavours, each
weighed alike.

    python -m benchmarks.routing_bounds

Utilization (equation 4) and hours when the full job starts, the paper's terminal state, and hours
until all is done:
- naive: the rule that gives the paper's 0.62 (`mirage.routing.rules.naive`; 20 draws a sequence);
- no job is put aside: the least time in which two servers can run the four jobs, all known
  beforehand, waits allowed;
- jobs may be put aside: of all subsets the one that uses the servers best; the others run after the
  full job.
The last two are bounds for every agent: the first of them for one that never lets a job wait beside
a free server, as section 5.2 rewards it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import combinations, permutations, product

import numpy as np

from mirage.routing.episode import EpisodeOutcome, play
from mirage.routing.flavors import paper_partitions
from mirage.routing.rules import first_fit, naive
from mirage.routing.world import Arrival
from slurm_sim.seconds import HOUR_S

KIND = paper_partitions()[0]
GPUS = [flavor.gpus for flavor in KIND.flavors]
HOURS = [flavor.limit_s // HOUR_S for flavor in KIND.flavors]
SINGLES, FULL = (0, 1, 2), 3
DRAWS = 20


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


Row = tuple[float, float, float]


def used(flavors: Sequence[int], aside: Sequence[int] = ()) -> Row:
    """Of these jobs, packed best; those put aside, packed best too, come after the full one."""
    hours = shortest(tuple(sorted(flavors)))
    after = shortest(tuple(sorted(aside))) if aside else 0
    gpu_h = sum(GPUS[each] * HOURS[each] for each in flavors)
    return gpu_h / (KIND.servers * KIND.gpus * hours), hours, hours + HOURS[FULL] + after


def best_with_some_aside(flavors: Sequence[int]) -> Row:
    splits = [chosen for count in range(1, 5) for chosen in combinations(range(4), count)]
    return max(
        used(
            [flavors[each] for each in chosen],
            [flavors[each] for each in range(4) if each not in chosen],
        )
        for chosen in splits
    )


def seen(outcome: EpisodeOutcome) -> Row:
    return outcome.utilization, outcome.start_s / HOUR_S, outcome.run_s / HOUR_S


def main() -> None:
    random = np.random.default_rng(1)
    found: dict[str, list[Row]] = {}
    for flavors in product(SINGLES, repeat=4):
        jobs = [Arrival(number * HOUR_S, flavor) for number, flavor in enumerate((*flavors, FULL))]
        drawn = [play(KIND, jobs, naive(random), masked=False) for _ in range(DRAWS)]
        found.setdefault("naive", []).extend(map(seen, drawn))
        found.setdefault("first-fit", []).append(seen(play(KIND, jobs, first_fit)))
        found.setdefault("best, no job put aside", []).append(used(flavors))
        found.setdefault("best, jobs may be put aside", []).append(best_with_some_aside(flavors))
    for name, each in found.items():
        utilization, hours, all_h = np.mean(each, axis=0)
        print(
            f"{name:28} utilization {utilization:.3f}, full job after {hours:.0f} h, all done after"
            f" {all_h:.0f} h"
        )


if __name__ == "__main__":
    main()
