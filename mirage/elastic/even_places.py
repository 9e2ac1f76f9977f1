"""Optimus's placement: each job on the fewest servers that hold it, evenly; the smallest job first.

Source: Peng et al., "Optimus", EuroSys 2018, section 4.2: servers in the order of what is free, of
which a job takes the first k, with as many workers and PSs on each; the least k that does.
"""

from __future__ import annotations

import numpy as np

from mirage.elastic.world import ElasticWorld, Ints


def place_evenly(world: ElasticWorld) -> None:
    """Places the tasks of a slot again, before it runs. Where not all find a place they stay."""
    for cluster in range(world.clusters):
        place = _places(world, cluster)
        if place is not None:
            world.set_places(cluster, place)


def _places(world: ElasticWorld, cluster: int) -> Ints | None:
    """Workers and PSs of each job on each server, [K, 2, S]; None: not all have a place."""
    demand = world.task_demands(cluster)
    tasks = np.stack([world.workers[cluster], world.ps[cluster]], axis=1)
    used = np.einsum("kt,ktr->r", tasks, demand)
    found = np.zeros((*tasks.shape, world.config.servers), dtype=np.int64)
    free = world.capacity_by_server()
    whole = np.maximum(free.max(axis=0), 1)
    jobs = np.nonzero(tasks.any(axis=1))[0]
    size = (tasks[jobs, :, None] * demand[jobs]).sum(axis=1) / np.maximum(used, 1)
    for job in jobs[np.argsort(size.max(axis=1), kind="stable")]:
        order = np.argsort(-(free / whole).sum(axis=1), kind="stable")
        place = _fewest(tasks[job], demand[job], free[order])
        if place is None:
            return None
        found[job][:, order[: place.shape[1]]] = place
        free[order[: place.shape[1]]] -= place.T @ demand[job]
    return found


def _fewest(tasks: Ints, demand: Ints, free: Ints) -> Ints | None:
    """[2, k]: tasks [2] of so much demand [2, R] each on the first k servers [S, R]."""
    for count in range(1, min(int(tasks.sum()), len(free)) + 1):
        each, more = np.divmod(tasks, count)
        place = np.stack([np.full(count, number) for number in each])
        place[0, : more[0]] += 1
        place[1, count - more[1] :] += 1
        if (place.T @ demand <= free[:count]).all():
            return place
    return None
