"""Where a job's GPUs are best: close together, in the smallest gap that holds them."""

from __future__ import annotations

import numpy as np

from mirage.placement.topology import Bools, Ints, Topology


def best_fit(topology: Topology, free: Bools, wanted: int) -> Ints:
    """Indices of ``wanted`` of the ``free`` GPUs [M], packed into a socket, node or rack.

    The smallest gap that holds all is taken; across racks the freest come first. At least
    ``wanted`` must be free.
    """
    for places in (topology.socket_of, topology.node_of, topology.rack_of):
        gaps = np.bincount(places[free], minlength=int(places.max()) + 1)
        if (gaps >= wanted).any():
            place = int(np.where(gaps >= wanted, gaps, len(free) + 1).argmin())
            return _packed(topology, free & (places == place), wanted)
    return _packed(topology, free, wanted)


def _packed(topology: Topology, free: Bools, wanted: int) -> Ints:
    """From the rack, then node, then socket with the most free GPUs."""
    order = np.nonzero(free)[0]
    keys = []
    for places in (topology.socket_of, topology.node_of, topology.rack_of):
        gaps = np.bincount(places[free], minlength=int(places.max()) + 1)
        keys += [places[order], -gaps[places[order]]]
    return order[np.lexsort(keys)][:wanted]
