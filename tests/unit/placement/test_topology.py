"""Which links jobs share: the paper's examples, and NetworkX beside the compiled arrays."""

from __future__ import annotations

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirage.errors import InputError
from mirage.placement.simulated.minsky import minsky, parse_racks
from mirage.placement.topology import Gpu, Topology, add_link

PAPER = minsky((2, 2, 2, 2))


def assigned(topology: Topology, *jobs: set[int]) -> np.ndarray:
    """The GPUs of each job, numbered from 1 as in the paper's Figure 2."""
    rows = np.zeros((len(jobs), len(topology)), dtype=bool)
    for row, job in zip(rows, jobs, strict=True):
        row[[gpu - 1 for gpu in job]] = True
    return rows


def test_the_papers_cluster_has_table_1s_nodes_and_links():
    assert (len(PAPER), PAPER.graph.number_of_nodes(), PAPER.graph.number_of_edges()) == (
        32,
        69,
        76,
    )


@pytest.mark.parametrize(
    ("job", "gb_per_s"),
    [({1, 2}, 40), ({1, 3}, 38.5), ({1, 5}, 12.5), ({1, 9}, 6.25), ({7}, np.inf)],
)
def test_the_narrowest_link_of_a_job_alone(job, gb_per_s):
    alone, shared = PAPER.limiting_gb_per_s(assigned(PAPER, job))
    assert alone == shared == gb_per_s


@pytest.mark.parametrize(
    ("jobs", "factors"),
    [
        ([set(range(1, 9)), set(range(9, 17))], [1, 1]),
        ([{1, 3}, {2, 4}], [2, 2]),
        ([{1, 9}, {2, 10}, {3, 11}], [3, 3, 3]),
        ([set(range(1, 10)), set(range(10, 18))], [2, 2]),
        ([{1, 3, 5, 7}, {2, 4, 6, 8}], [2, 2]),
        ([{1, 2, 3, 4, 5, 6}, {7, 8}], [1, 1]),
        ([{1, 3}, {2}], [1, 1]),
    ],
)
def test_equation_13_on_worked_examples(jobs, factors):
    assert PAPER.scale_factors(assigned(PAPER, *jobs)).tolist() == factors


def test_racks_are_counted():
    assert PAPER.racks(assigned(PAPER, {1}, {1, 8}, {1, 9}, {1, 9, 17, 25})).tolist() == [
        1,
        1,
        2,
        4,
    ]


def by_networkx(topology: Topology, jobs: list[set[int]]) -> list[float]:
    """Equations 13 to 15 as section 4.6.1 says them, link by link."""
    links = []
    for job in jobs:
        mine: set[tuple[str, str]] = set()
        for one in job:
            for other in job - {one}:
                ends = topology.gpus[one].name, topology.gpus[other].name
                path = nx.shortest_path(topology.graph, *ends)
                mine |= {(min(a, b), max(a, b)) for a, b in pairwise(path)}
        links.append(mine)
    factors = []
    for mine in links:
        widths = {link: topology.graph.edges[link]["gb_per_s"] for link in mine}
        shared = {
            link: width / sum(link in each for each in links) for link, width in widths.items()
        }
        factors.append(min(widths.values()) / min(shared.values()) if mine else 1.0)
    return factors


@given(
    racks=st.lists(st.integers(1, 3), min_size=1, max_size=3).map(tuple),
    owners=st.lists(st.integers(0, 5), min_size=36, max_size=36),
)
@settings(max_examples=60, deadline=None)
def test_compiled_links_equal_networkx_on_any_assignment(racks, owners):
    topology = minsky(racks)
    jobs = [{gpu for gpu in range(len(topology)) if owners[gpu] == job} for job in range(5)]
    rows = np.array([[gpu in job for gpu in range(len(topology))] for job in jobs])
    assert topology.scale_factors(rows) == pytest.approx(by_networkx(topology, jobs))


def test_a_ring_of_switches_has_links_with_several_rectangles():
    graph: nx.Graph = nx.Graph()
    for nth in range(5):
        add_link(graph, f"s{nth}", f"s{(nth + 1) % 5}", gb_per_s=10 + nth, source="ring")
        add_link(graph, f"g{nth}", f"s{nth}", gb_per_s=100, source="ring")
    gpus = [Gpu(name=f"g{n}", node=f"n{n}", rack="r", socket="0") for n in range(5)]
    topology = Topology(graph, gpus, source="ring")
    for first in ({0, 1}, {0, 2}, {1, 3, 4}):
        jobs = [first, set(range(5)) - first]
        rows = np.array([[gpu in job for gpu in range(5)] for job in jobs])
        assert topology.scale_factors(rows) == pytest.approx(by_networkx(topology, jobs))


def two_gpus(*links: tuple[str, str, float]) -> Topology:
    graph: nx.Graph = nx.Graph()
    for one, other, gb_per_s in links:
        add_link(graph, one, other, gb_per_s=gb_per_s, source="it.conf")
    gpus = [Gpu(name=name, node=name, rack="r", socket="0") for name in ("a", "b")]
    return Topology(graph, gpus, source="it.conf")


@pytest.mark.parametrize(
    ("links", "message"),
    [
        (
            [("a", "x", 1.0), ("b", "y", 1.0)],
            r"it.conf: no path joins a and b \(1 of 2 GPUs are apart",
        ),
        ([("a", "b", 1.0), ("b", "a", 2.0)], "the link b - a is there twice, with 1 and 2 GB/s"),
        ([("a", "b", 0.0)], "the link a - b has a bandwidth of 0.0 GB/s"),
        ([("a", "b", float("nan"))], "bandwidth of nan"),
        ([("a", "x", 1.0)], "GPU b has no link"),
        ([("a", "a", 1.0)], "a link from a to itself"),
    ],
)
def test_topologies_that_make_no_sense_are_refused(links, message):
    with pytest.raises(InputError, match=message):
        two_gpus(*links)


def test_racks_are_read():
    assert parse_racks("[2,2, 1]") == (2, 2, 1)
    for text in ("", "2,x", "2;2"):
        with pytest.raises(InputError, match="machines of each rack"):
            parse_racks(text)
    with pytest.raises(InputError, match="machines of each rack"):
        minsky((2, 0))
    with pytest.raises(InputError, match="at most 1024"):
        minsky((1000, 1000))
