"""Advice on live jobs: what is moved where, what stays, and what it brings."""

from __future__ import annotations

from dataclasses import replace
from xml.etree import ElementTree

import numpy as np
import pytest

from mirage.domain import JobState
from mirage.errors import InputError
from mirage.placement.live.advice import Terms, advise, after, progress
from mirage.placement.live.network import NetworkText
from mirage.placement.live.nvidia import parse_topo
from mirage.placement.live.picture import save_picture
from mirage.placement.live.words import _nodes, as_json, in_words
from tests.unit.placement.live_site import NOW_S, OPT_IN, LiveSite

TERMS = Terms(pause_s=120, horizon_s=14_400)


def moved(moves) -> list[list[tuple[int, str]]]:
    return [
        [(each.job_id, ",".join(sorted(each.to_nodes))) for each in move.relocations]
        for move in moves
    ]


def test_a_job_over_two_racks_goes_into_one_and_keeps_what_it_can():
    site = LiveSite()
    site.run(1, "n1,n5")
    (move,) = advise(site.state(), TERMS)
    assert moved([move]) == [[(1, "n1,n2")]]
    state = site.state()
    assert move.before == pytest.approx(progress(state, state.assigned))
    assert move.gain > 0.1
    assert move.value_gpu_s == pytest.approx(move.gain * 14_400 - 120 * move.before[0])
    assert after(state, move).topology.racks(move.assigned).tolist() == [1]


def test_who_shares_a_link_gains_too():
    site = LiveSite()
    site.run(1, "n1,n5")
    site.run(2, "n2,n6")
    moves = advise(site.state(), TERMS)
    assert len(moves) == 2
    assert (moves[0].after - moves[0].before > 0.1).all()
    assert moves[1].before == pytest.approx(moves[0].after)


def test_two_jobs_swap_nodes_where_nothing_is_free():
    site = LiveSite()
    site.run(1, "n1,n5")
    site.run(2, "n2,n6")
    site.run(3, "n3,n4", comment="")
    site.run(4, "n7,n8", comment="")
    (move,) = advise(site.state(), TERMS)
    assert sorted(moved([move])[0]) in (
        [(1, "n1,n2"), (2, "n5,n6")],
        [(1, "n5,n6"), (2, "n1,n2")],
    )
    assert not (move.assigned.sum(axis=0) > 1).any()


def test_who_has_not_opted_in_is_a_constraint_of_run_and_named_by_advise():
    site = LiveSite()
    site.run(1, "n1,n5", comment="my own words")
    assert advise(site.state(), TERMS) == ()
    (move,) = advise(site.state(), Terms(pause_s=120, horizon_s=14_400, only_opted_in=False))
    words = in_words(site.state(), [move])
    assert "if its owner opts in" in words
    assert words.splitlines()[1].split() == [
        "JOB",
        "USER",
        "GPUS",
        "SHARES",
        "LINKS",
        "WITH",
        "NODES",
        "NOTE",
    ]


def test_nodes_are_in_the_order_of_their_numbers():
    site = LiveSite()
    site.run(1, "n5,n1")
    assert "n1,n5 in 2 racks" in in_words(site.state(), ())
    assert _nodes(["z1", "n10", "aa1", "n2", "head"]) == "aa1,head,n2,n10,z1"


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"ties": ["is a task of a job array"]}, "job array"),
        ({"ties": ["asks for features"]}, "features"),
        ({"state": JobState.SUSPENDED}, "SUSPENDED"),
        (
            {"comment": "mirage/1 chain=k3m9pq2xha seg=1/5 mode=train ei=1 eo=1"},
            "link of a chain",
        ),
    ],
)
def test_what_stays_says_why(options, why):
    site = LiveSite()
    site.run(1, "n1,n5", **options)
    state = site.state()
    assert advise(state, Terms(pause_s=0, horizon_s=9e9, only_opted_in=False)) == ()
    assert why in state.jobs[0].obstacle
    assert f"stays: {state.jobs[0].obstacle}" in in_words(state, ())


def test_a_gain_below_its_price_is_no_move():
    site = LiveSite()
    site.run(1, "n1,n5", limit_s=50 + 60)
    assert advise(site.state(), TERMS) == ()
    site = LiveSite()
    site.run(1, "n1,n5")
    assert advise(site.state(), Terms(pause_s=9_000, horizon_s=3_600)) == ()


@pytest.mark.parametrize("flag", ["DRAIN", "RESERVED", "PLANNED", "MAINTENANCE", "COMPLETING"])
def test_nodes_that_take_no_job_are_no_target(flag):
    site = LiveSite(states={f"n{number}": f"IDLE+{flag}" for number in (2, 3, 6, 7, 8)})
    site.run(1, "n1,n5")
    if flag in ("RESERVED", "PLANNED", "COMPLETING"):
        assert moved(advise(site.state(), TERMS)) == [[(1, "n1,n4")]]
    site.states["n4"] = site.states["n2"]
    snapshot = site.snapshot()
    assert snapshot.nodes[3].state == f"IDLE+{flag}"


def test_a_job_stays_in_its_partition_and_takes_only_what_is_free():
    site = LiveSite(gpus_each=4)
    site.run(1, "n1,n5", each=2, whole=False)
    site.run(2, "n2,n3,n4", each=3, comment="", whole=False)
    for node in ("n6", "n7"):
        site.run(int(node[1]), node, each=3, comment="", whole=False)
    assert moved(advise(site.state(), TERMS)) == [[(1, "n5,n8")]]
    site.run(8, "n8", each=1, comment="", whole=True)
    assert moved(advise(site.state(), TERMS)) == [[(1, "n5,n8")]]


def test_whole_nodes_are_not_shared():
    site = LiveSite(gpus_each=4)
    site.run(1, "n1,n5", each=2, whole=True)
    for node in ("n2", "n3", "n4", "n6", "n7"):
        site.run(int(node[1]), node, each=1, comment="", whole=False)
    assert moved(advise(site.state(), TERMS)) == [[(1, "n5,n8")]]
    site.run(8, "n8", each=1, comment="", whole=False)
    assert advise(site.state(), TERMS) == ()


def test_a_plan_of_several_moves_gives_no_gpu_twice():
    site = LiveSite(gpus_each=4)
    for job_id, nodes in enumerate(("n1,n5", "n2,n6", "n3,n7", "n4,n8", "n1,n6"), start=1):
        site.run(job_id, nodes, each=2, whole=False)
    state = site.state()
    for move in advise(state, TERMS):
        state = after(state, move)
        assert not (state.assigned.sum(axis=0) > 1).any()
        held = state.assigned.any(axis=0)
        free = np.array([room.gpus for room in state.rooms.values()]).any(axis=0)
        assert not (held & free).any()
    assert (
        progress(state, state.assigned).sum() > progress(site.state(), site.state().assigned).sum()
    )


def test_a_tag_says_which_network_a_job_trains():
    site = LiveSite()
    site.run(1, "n1,n5", comment=f"{OPT_IN} network=vgg-vd-19 minibatch=32 -- mine")
    site.run(2, "n2,n6", comment=OPT_IN)
    state = site.state()
    assert state.work.flops[0] == pytest.approx(6 * 20e9 * 32, rel=0.05)
    assert state.work.gradient_mb[0] > 3 * state.work.gradient_mb[1]


@pytest.mark.parametrize(
    ("comment", "words"),
    [
        ("mirage-place/1 signal=KILL", "none that a job can handle"),
        ("mirage-place/1", "expected mirage-place/1 signal="),
        ("mirage-place/2 signal=USR1", "can't be read"),
        ("mirage-place/1 signal=USR1 network=nosuch", "is not known"),
        ("mirage-place/1 signal=USR1\nsignal=USR2", "can't be read"),
    ],
)
def test_a_tag_that_can_not_be_read_is_no_opt_in(comment, words):
    site = LiveSite()
    site.run(1, "n1,n5", comment=comment)
    state = site.state()
    assert state.jobs[0].opt_in is None
    assert words in state.notes[0]
    assert advise(state, TERMS) == ()


def test_a_job_that_asks_for_more_gpus_than_there_are_is_named():
    site = LiveSite()
    site.wait(9, 64)
    state = site.state()
    assert state.notes == ("job 9 of bob asks for 64 GPUs; the cluster has 16",)
    assert as_json(state, ())["waiting"] == [{"job_id": 9, "gpus": 64}]
    assert "no GPU job runs" in in_words(state, ())


def test_a_move_that_makes_room_for_a_waiting_job_is_worth_its_throughput():
    site = LiveSite(gpus_each=4)
    site.run(1, "n1", each=2, whole=False)
    site.run(2, "n2", each=2, whole=False)
    site.run(3, "n3,n4,n5,n6,n7,n8", comment="", whole=False)
    assert advise(site.state(), TERMS) == ()
    site.wait(9, 4)
    (move,) = advise(site.state(), TERMS)
    assert moved([move]) in ([[(1, "n2")]], [[(2, "n1")]])
    (start,) = move.starts
    (source,) = move.relocations[0].from_nodes
    assert (start.job.job_id, start.nodes) == (9, (source,))
    assert move.value_gpu_s == pytest.approx(start.worth * 14_400 - move.price_gpu_s)
    assert f"makes room for: job 9 (bob, 4 GPUs) on {source}" in in_words(site.state(), [move])
    then = after(site.state(), move)
    assert not then.waiting
    assert then.rooms[source].gpus.sum() == 0


@pytest.mark.parametrize("ties", [["asks for features"], ["runs in a reservation"]])
def test_no_room_is_made_for_a_job_that_is_tied_to_nodes_or_that_has_room_already(ties):
    site = LiveSite(gpus_each=4)
    site.run(1, "n1", each=2, whole=False)
    site.run(2, "n2", each=2, whole=False)
    site.run(3, "n3,n4,n5,n6,n7", comment="", whole=False)
    site.wait(9, 4)
    assert advise(site.state(), TERMS) == ()
    site.run(4, "n8", comment="", whole=False)
    assert len(advise(site.state(), TERMS)) == 1
    site.jobs = [job for job in site.jobs if job.job_id != 9]
    site.wait(9, 4, ties=ties)
    assert advise(site.state(), TERMS) == ()


def test_without_a_topology_it_says_so():
    site = LiveSite(tree=None)
    site.run(1, "n1,n5")
    state = site.state()
    assert "no topology is known" in in_words(state, ())
    assert advise(state, TERMS) == ()


@pytest.mark.parametrize(
    ("tree", "words"),
    [
        ("SwitchName=r1 Nodes=n[1-8]\nSwitchName=r2 Nodes=x9\n", "node x9 is not in this cluster"),
        ("hello\n", "no switch and no block in it"),
    ],
)
def test_a_topology_that_does_not_fit_is_one_clear_line(tree, words):
    site = LiveSite()
    network = NetworkText(switches=tree, source="t.conf", is_given=True)
    with pytest.raises(InputError, match=words) as error:
        site.state(network)
    assert "\n" not in str(error.value)
    assert "t.conf" in str(error.value)


def test_free_gpus_that_no_job_can_have_are_named():
    site = LiveSite(states={"n2": "IDLE+DRAIN", "n3": "DOWN", "n4": "IDLE+PLANNED"})
    site.run(1, "n3")
    whole = site.use()

    def use():
        return [replace(node, free=(2, 0, 4000)) if node.name == "n5" else node for node in whole]

    site.use = use
    assert site.state().notes == (
        "n2: 2 free GPUs are stranded, the node is IDLE+DRAIN",
        "n5: 2 free GPUs are stranded, no CPU of the node is free",
    )


def test_a_node_outside_the_topology_costs_the_others_nothing():
    site = LiveSite(
        tree="SwitchName=r1 Nodes=n[1-3]\nSwitchName=r2 Nodes=n[4-7]\nSwitchName=top Switches=r[1-2]\n"
    )
    site.run(1, "n1,n5")
    site.run(2, "n2")
    site.run(3, "n3")  # so that job 1 would fit on n8 beside n4, n6, n7
    state = site.state()
    assert [name for name, room in state.rooms.items() if not room.takes_jobs] == ["n8"]
    [move] = advise(state, TERMS)
    assert all("n8" not in nodes for row in moved([move]) for _, nodes in row)
    assert "note: n8: on no switch and in no block" in in_words(state, ())


def test_gpus_that_squeue_does_not_count_are_those_of_scontrol():
    """AccountingStorageTRES without gres/gpu."""
    site = LiveSite()
    job = site.run(1, "n1,n5")
    site.jobs[0] = replace(job, gpus=0)
    state = site.state()
    assert [int(each.gpus.sum()) for each in state.jobs] == [4]
    assert "AccountingStorageTRES=gres/gpu" in in_words(state, ())
    assert len(advise(state, TERMS)) == 1
    site.jobs.clear()  # and PrivateData hides it
    site.details = {1: site.details[1]}
    state = site.state()
    assert [int(state.rooms[name].gpus.sum()) for name in ("n1", "n2")] == [0, 2]
    assert "n1: 2 GPUs are in use, by sinfo, that no job in the queue has" in in_words(state, ())


def test_links_inside_nodes_count_and_have_to_fit():
    text = "\tGPU0\tGPU1\nGPU0\t X \tSYS\nGPU1\tSYS\t X \n"
    network = NetworkText(switches=LiveSite().tree, source="x", links=parse_topo(text, "topo.txt"))
    assert len({gpu.socket for gpu in LiveSite().state(network).topology.gpus}) == 16
    with pytest.raises(InputError, match="node n1 has 4 GPUs, its topology text 2"):
        LiveSite(gpus_each=4).state(network)


def test_where_squeue_and_scontrol_do_not_agree_the_job_stays():
    site = LiveSite()
    job = site.run(1, "n1,n5")
    site.run(2, "n2")
    site.details[1] = site.details[2]
    state = site.state()
    forged = next(each for each in state.jobs if each.job.job_id == 1)
    assert "other GPUs by squeue" in forged.obstacle
    assert {share.node for share in forged.shares} == set(job.node_names)
    assert state.at_s == NOW_S


def test_the_picture_shows_bandwidth_and_jobs_of_each_link(tmp_path):
    site = LiveSite()
    site.run(1, "n1,n5")
    site.run(2, "n2,n6")
    state = site.state()
    jobs = state.topology.jobs_on_links(state.assigned)
    assert jobs["r1", "top"] == jobs["r2", "top"] == [0, 1]
    assert jobs["n1", "r1"] == [0]
    assert jobs["n3", "r1"] == []
    save_picture(tmp_path / "a.svg", state.topology, state.assigned, ["job <1>", "job 2"])
    root = ElementTree.fromstring((tmp_path / "a.svg").read_text())
    words = ["".join(each.itertext()) for each in root.iter("{http://www.w3.org/2000/svg}text")]
    assert words.count("12.5 GB/s, 2 jobs") == 2
    assert words.count("12.5 GB/s, 1 job") == 4
    assert "n1/gpu0  job <1>" in words
    tips = [each.text for each in root.iter("{http://www.w3.org/2000/svg}title")]
    assert "12.5 GB/s: job <1>, job 2" in tips
