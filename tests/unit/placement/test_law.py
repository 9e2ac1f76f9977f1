"""The law of a step by levels, and what the site's own measurements change."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mirage.errors import InputError
from mirage.placement.live.advice import Terms, advise, progress
from mirage.placement.live.law import MACHINES, with_measured
from mirage.placement.live.words import as_json, in_words, sharers
from tests.unit.placement.live_site import LiveSite

HEAD = "# nThread 1 nGpus 1 minBytes 8 maxBytes 1073741824\n# Using devices\n"
ROWS = """#       size         count      type   redop    root     time   algbw   busbw #wrong
     1048576        262144     float     sum      -1    90.10   11.64   21.80      0
  1073741824     268435456     float     sum      -1  8000.00  134.20   {busbw}      0
# Avg bus bandwidth    : 120.0
"""


def measured(tmp_path, *hosts: str, busbw: float = 91.5):
    ranks = "".join(
        f"#  Rank  {nth} Group  0 Pid  71 on  {host} device  {nth} [0x07] NVIDIA A100\n"
        for nth, host in enumerate(hosts)
    )
    file = tmp_path / "all_reduce.txt"
    file.write_text(HEAD + ranks + ROWS.format(busbw=busbw))
    return file


def speed(site: LiveSite, machine: str = "dgx-a100") -> float:
    """Of the first job, for each of its GPUs."""
    state = replace(site.state(), machine=MACHINES[machine])
    return float(progress(state, state.assigned)[0] / state.assigned[0].sum())


@pytest.mark.parametrize("machine", MACHINES)
def test_closer_is_never_slower_and_one_gpu_never_waits(machine):
    speeds = []
    for nodes, each in (("n1", 1), ("n1", 4), ("n1,n2", 2), ("n1,n5", 2)):
        site = LiveSite(gpus_each=4)
        site.run(1, nodes, each=each)
        speeds.append(speed(site, machine))
    assert speeds[0] == 1
    assert sorted(speeds, reverse=True) == speeds or machine == "mi250"
    assert speeds[1] > 0.7


def test_a_node_of_four_gpus_keeps_what_pollux_measured():
    """ResNet-50, 81 examples a GPU: 94 % of one GPU's speed each."""
    site = LiveSite(gpus_each=4)
    site.run(1, "n1", comment="mirage-place/1 signal=USR1 network=resnet-50 minibatch=81")
    assert speed(site, "t4") == pytest.approx(0.94, abs=0.05)


@pytest.mark.parametrize(
    ("hosts", "level", "rate"),
    [
        (("n1", "n1"), "node", 91.5),
        (("n1", "n2.site"), "leaf", 8 * 91.5),
        (("n1", "n1", "n5", "n5"), "spine", 4 * 91.5),
    ],
)
def test_a_sites_own_rates_replace_public_ones(tmp_path, hosts, level, rate):
    topology = LiveSite().state().topology
    found = with_measured(MACHINES["dgx-a100"], [measured(tmp_path, *hosts)], topology)
    assert getattr(found, f"{level}_gb_per_s") == pytest.approx(rate)
    assert "all_reduce.txt" in found.source
    others = {"node", "leaf", "spine"} - {level}
    for name in others:
        name += "_gb_per_s"
        assert getattr(found, name) == getattr(MACHINES["dgx-a100"], name)


@pytest.mark.parametrize(
    ("hosts", "busbw", "words"),
    [
        ((), 90, "no line '# Rank"),
        (("x9",), 90, "x9 is no node"),
        (("n1",), 0, "give a positive number"),
        (("n1",), "N/A", "no row with a size and a busbw"),
    ],
)
def test_rates_that_do_not_fit_are_one_clear_line(tmp_path, hosts, busbw, words):
    with pytest.raises(InputError, match=words) as error:
        with_measured(
            MACHINES["t4"],
            [measured(tmp_path, *hosts, busbw=busbw)],
            LiveSite().state().topology,
        )
    assert "all_reduce.txt" in str(error.value)


def test_without_a_named_machine_no_speed_is_shown_but_switches_and_shared_links():
    site = LiveSite()
    site.run(1, "n1,n5")
    site.run(2, "n2,n6")
    site.run(3, "n3,n4")
    state = site.state()
    assert sharers(state) == [[2], [1], []]
    moves = advise(state, Terms(pause_s=120, horizon_s=14_400))
    words = in_words(state, moves)
    assert "throughput" not in words.lower()
    assert "n1,n5 in 2 racks, 1 would do" in words
    moved = moves[0].relocations[0].job_id
    assert f"job {moved}: racks 2 -> 1, shares links with {3 - moved} -> -" in words
    assert f"price: job {moved} (4 GPUs) without progress for about 120 s" in words
    found = as_json(state, moves)
    assert "throughput" not in found
    assert "gain" not in found["moves"][0]
    assert [job["shares_links_with"] for job in found["jobs"]] == [[2], [1], []]
    named = replace(state, machine=MACHINES["dgx-h100"], is_named=True)
    assert "NVIDIA's data sheet" in in_words(named, ())
    assert set(as_json(named, ())["throughput"]) == {"1", "2", "3"}
