"""Topologies from Slurm's and NVIDIA's own texts."""

from __future__ import annotations

import numpy as np
import pytest

from mirage.errors import InputError
from mirage.placement.live.network import read_network
from mirage.placement.live.nvidia import parse_topo
from mirage.placement.live.slurm_topology import Bandwidths, slurm_topology
from mirage.slurm import oddities
from mirage.slurm.runner import Runner

TREE = """\
# two leaf switches
SwitchName=s0 Nodes=n[1-2]
SwitchName=s1 Nodes=n[3-4] LinkSpeed=100
SwitchName=top Switches=s[0-1]
"""
SHOWN = """\
SwitchName=s0 Level=0 LinkSpeed=1 Nodes=n[1-2]
SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[3-4]
SwitchName=top Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[0-1]
"""
BLOCKS = "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n[3-4]\nBlockSizes=2\n"
GPUS = {f"n{number}": 2 for number in range(1, 5)} | {"login": 0}
TOPO = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tNIC0\tCPU Affinity\tNUMA Affinity\x1b[0m
GPU0\t X \tNV12\tSYS\tSYS\tPIX\t0-15\t0
GPU1\tNV12\t X \tSYS\tSYS\tSYS\t0-15\t0
GPU2\tSYS\tSYS\t X \tPIX\tSYS\t16-31\t1
GPU3\tSYS\tSYS\tPIX\t X \tSYS\t16-31\t1
NIC0\tPIX\tSYS\tSYS\tSYS\t X \t\t

Legend:
  X    = Self
"""


def used(topology, *gpus: int) -> np.ndarray:
    row = np.zeros((1, len(topology)), dtype=bool)
    row[0, list(gpus)] = True
    return row


@pytest.mark.parametrize("text", [TREE, SHOWN])
def test_a_tree_of_switches(text):
    topology = slurm_topology(text, GPUS, source="topology.conf")
    assert [gpu.rack for gpu in topology.gpus] == ["s0"] * 4 + ["s1"] * 4
    slow = slurm_topology(
        text, GPUS, source="x", bandwidths=Bandwidths(node_gb_per_s=10, switch_gb_per_s=5)
    )
    widths = [float(slow.limiting_gb_per_s(used(slow, 0, other))[0][0]) for other in (1, 2, 4)]
    assert widths == [16, 10, 5]
    assert "bandwidths are assumed" in topology.source


def test_blocks_are_joined_by_an_assumed_network():
    topology = slurm_topology(BLOCKS, GPUS, source="x", bandwidths=Bandwidths(switch_gb_per_s=5))
    widths = [
        float(topology.limiting_gb_per_s(used(topology, 0, other))[0][0]) for other in (1, 2, 4)
    ]
    assert widths == [16, 12.5, 5]


def test_without_a_topology_one_switch_is_assumed():
    topology = slurm_topology(None, GPUS, source="this cluster")
    assert "no topology is known, one switch is assumed" in topology.source
    assert topology.racks(used(topology, 0, 7)).tolist() == [1]


def test_the_links_of_a_node_are_nvidias():
    links = {"n1": parse_topo(TOPO, "topo.txt")}
    topology = slurm_topology(None, {"n1": 4, "n2": 4}, source="x", links=links)
    widths = [
        float(topology.limiting_gb_per_s(used(topology, *pair))[0][0])
        for pair in ((0, 1), (2, 3), (0, 2), (0, 4))
    ]
    assert widths == [300, 16, 16, 12.5]
    sockets = ["n1/numa0", "n1/numa0", "n1/numa1", "n1/numa1"]
    assert [gpu.socket for gpu in topology.gpus[:4]] == sockets
    without = "\n".join(line.rpartition("\t")[0] for line in TOPO.splitlines())
    assert parse_topo(without, "x").numa == ()
    assert parse_topo(without, "x").words == links["n1"].words


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "topology.conf: no switch and no block in it"),
        ("SwitchName=s0 Nodes=n[1-", "line 1: 'n\\[1-' is no list of hosts"),
        ("Nodes=n1", "topology.conf: no switch and no block in it"),
        (
            "SwitchName=s0 Nodes=n1\nSwitchName=s0 Nodes=n2",
            "line 2: s0 is there twice, first in line 1",
        ),
    ],
)
def test_a_wrong_topology_conf_is_refused_with_its_line(text, message):
    with pytest.raises(InputError, match=message):
        slurm_topology(text, GPUS, source="topology.conf")


@pytest.mark.parametrize(
    ("text", "racks", "words"),
    [
        ("SwitchName=s0 Nodes=n[1-3]", ["s0", "s0", "s0", "n4"], ""),
        ("BlockName=s0 Nodes=n[1-3]", ["s0", "s0", "s0", "n4"], ""),
        (
            "SwitchName=s0 Nodes=n[1-2]\nSwitchName=s1 Nodes=n[3-4]",
            ["s0", "s0", "s1", "s1"],
            "",
        ),
        (
            "SwitchName=s0 Nodes=n[1-4]\nSwitchName=s1 Nodes=n4",
            ["s0", "s0", "s0", "s0"],
            "line 2: node n4 is on s0 and s1; the first counts",
        ),
        (
            "SwitchName=s0 Nodes=n[1-4]\nSwitchName=top Switches=s[0-1]",
            ["s0", "s0", "s0", "s0"],
            "line 2: switch s1 is not there",
        ),
        (
            "SwitchName=s0 Nodes=n[1-4] Newer=9\nRingName=r Nodes=n1",
            ["s0", "s0", "s0", "s0"],
            "line 1: 'Newer=9' is no setting",
        ),
    ],
)
def test_what_a_topology_lacks_or_says_twice_costs_a_note(text, racks, words, monkeypatch, caplog):
    monkeypatch.setattr(oddities, "_noted", set())
    topology = slurm_topology(text, GPUS, source="topology.conf")
    assert list({gpu.node: gpu.rack for gpu in topology.gpus}.values()) == racks
    assert words in caplog.text
    assert bool(caplog.text) is bool(words)
    everything = np.ones((1, len(topology)), dtype=bool)
    assert np.isfinite(topology.limiting_gb_per_s(everything)[0]).all()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nothing here", "topo.txt: no row of a GPU"),
        (
            TOPO.replace("PIX\t X \tSYS\t16", "ABC\t X \tSYS\t16"),
            "line 5: 'ABC' between GPU3 and GPU2",
        ),
        (
            TOPO.replace("GPU1\tNV12", "GPU1\tSYS"),
            "GPU1 - GPU0 is SYS in one row and NV12 in the other",
        ),
        ("GPU0\t X \tPIX\nGPU1\tPIX", "line 2: 1 of 2 GPUs in the row"),
        (
            TOPO.replace("GPU1\tNV12\t X ", "GPU1\tX\t X "),
            "line 3: 'X' between GPU1 and GPU0: X stands for a GPU and itself, and nowhere else",
        ),
        (
            TOPO.replace("GPU1\tNV12\t X \tSYS\tSYS\tSYS\t0-15\t0\n", ""),
            "line 3: 'SYS' between GPU1 and GPU1: X stands for .* row or a column is missing",
        ),
    ],
)
def test_a_text_of_another_form_is_refused(text, message):
    with pytest.raises(InputError, match=message):
        parse_topo(text, "topo.txt")


def test_another_number_of_gpus_is_refused():
    with pytest.raises(InputError, match="node n1 has 2 GPUs, its topology text 4"):
        slurm_topology(None, {"n1": 2}, source="x", links={"n1": parse_topo(TOPO, "t")})


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "the file is empty"),
        (b"\xff\xfe\x00\x9d", "no text"),
        (b"---\n- topology: t1\n  tree:\n    switches:\n      - switch: s0\n", "a topology.yaml"),
        (b"     GPU0  GPU1\nGPU0   0  XGMI\nGPU1   XGMI  0\n", "expected X, NV#"),
    ],
)
def test_files_of_other_forms_are_refused(content, message, tmp_path):
    file = tmp_path / "given"
    file.write_bytes(content)
    with pytest.raises(InputError, match=message):
        read_network([file], Runner(timeout_s=1))
    with pytest.raises(IsADirectoryError):
        read_network([tmp_path], Runner(timeout_s=1))


ONE_GPU = (
    "\tGPU0\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \tNODE\t0-19\t0\t\tN/A\n"
)
WITH_CARDS = """\
        GPU0    GPU1    GPU2    mlx5_0  cxi0    CPU Affinity    NUMA Affinity   GPU NUMA ID
GPU0     X      NV4     NODE    NODE    SYS     64-71   1               N/A
GPU1    NV4      X      NODE    NODE    SYS     64-71   1               N/A
GPU2    NODE    NODE     X      PHB     SYS     64-71   3               N/A
mlx5_0  NODE    NODE    PHB      X      SYS
cxi0    SYS     SYS     SYS     SYS      X

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
"""
SXM = "\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\n" + (
    "GPU0\t X \tNV18\tPXB\t0-55\tN/A\nGPU1\tNV18\t X \tSYS\t56-111\tN/A\nNIC0\tPXB\tSYS\t X\n"
)
OLD = "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tSOC\t0-7\nGPU1\tSOC\t X \t8-15\n"


@pytest.mark.parametrize(
    ("text", "first_row", "numa"),
    [
        (ONE_GPU, ("X",), ("0",)),
        (WITH_CARDS, ("X", "NV4", "NODE"), ("1", "1", "3")),
        (SXM, ("X", "NV18"), ()),
        (OLD, ("X", "SYS"), ()),
    ],
)
def test_texts_of_several_drivers(text, first_row, numa):
    links = parse_topo(text, "topo.txt")
    assert links.words[0] == first_row
    assert links.numa == numa


@pytest.mark.parametrize(
    ("shown", "known"),
    [
        ("SwitchName=s0 Level=0 LinkSpeed=0 Nodes=n[1-4]", True),
        ("RingName=r1 RingSize=4 Nodes=n[1-4]", False),  # topology/ring of 26.05
        ("Topology plugin has no information", False),
    ],
)
def test_a_kind_of_network_that_is_not_known_costs_a_note(tmp_path, shown, known):
    command = tmp_path / "scontrol"
    command.write_text(f"#!/bin/sh\necho '{shown}'\n")
    command.chmod(0o755)
    network = read_network([], Runner(bin_dir=str(tmp_path)))
    assert (network.switches is not None) is known
    assert network.source == "scontrol show topology"
