"""Clusters from what a real slurmctld 22.05.8 printed (tests/data/slurm_conf/small/live), and from
changes to it.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slurm_sim.clusters import ClusterDescription, NoteKind, read_cluster, read_live
from slurm_sim.clusters.sacctmgr import read_accounting
from slurm_sim.config import Association, NodeAction, NodeChange, Qos
from slurm_sim.errors import InvalidCluster

SMALL = Path(__file__).parents[2] / "data" / "slurm_conf" / "small"


def text(name: str) -> str:
    return (SMALL / "live" / f"{name}.txt").read_text()


def live(config: str | None = None, assoc: str = "assoc_parents") -> ClusterDescription:
    return read_live(
        config or text("config"), text("nodes"), text("partitions"), text("qos"), text(assoc)
    )


def test_the_live_cluster_is_that_of_its_slurm_conf() -> None:
    """What slurmctld made of the files is what we make of them."""
    real, ours = live().cluster, read_cluster(SMALL / "slurm.conf").cluster
    assert ours.nodes == real.nodes
    assert ours.partitions == real.partitions
    assert ours.params == real.params
    assert ours.name == real.name
    # The node that was drained by hand is not in the files.
    assert set(real.node_changes) - set(ours.node_changes) == {
        NodeChange(0, "n2", NodeAction.DRAIN)
    }
    assert set(ours.node_changes) <= set(real.node_changes)


def test_nothing_that_slurmctld_prints_is_unknown() -> None:
    assert [note for note in live().notes if note.kind is NoteKind.UNKNOWN] == []


def test_what_is_not_simulated_is_named() -> None:
    named = [note.parameter for note in live().notes if note.kind is NoteKind.NOT_SIMULATED]
    parameters = ["EnforcePartLimits", "MaxJobCount"]
    assert named == [
        *parameters,
        "Nodes",
        "Flags",
        "GrpTRESMins",
        "MaxSubmit",
        "Share",
        "ThreadsPerCore",
    ]


def test_qos() -> None:
    normal, part, high = live().cluster.qos
    assert normal == Qos("normal")
    assert part == Qos(
        "part",
        max_nodes_per_user=2,
        max_cpus_per_user=16,
        max_gpus_per_user=4,
        grp_nodes=3,
        grp_gpus=6,
    )
    assert high == Qos(
        "high",
        100,
        max_jobs_per_user=3,
        max_submit_jobs_per_user=8,
        grp_jobs=20,
        max_wall_s=12 * 3600,
    )


def test_usage_factors() -> None:
    def of(text: str) -> tuple[Qos, ...] | None:
        return read_accounting(text, None, "cluster").qos

    assert of("Name|UsageFactor\nnormal|1.000000\nlow|0.250000\n") == (
        Qos("normal"),
        Qos("low", usage_factor=0.25),
    )
    with pytest.raises(
        InvalidCluster, match=r"sacctmgr show qos:2: UsageFactor=-1: give a number from 0"
    ):
        of("Name|UsageFactor\nnormal|-1\n")


def test_limits_of_accounts_in_a_qos() -> None:
    table = "Name|MaxTRESPA|MaxJobsPA|MaxSubmitPA\nnormal|cpu=8,gres/gpu=4,node=2|5|9\n"
    most = {"max_cpus_per_account": 8, "max_gpus_per_account": 4, "max_nodes_per_account": 2}
    more = {"max_jobs_per_account": 5, "max_submit_jobs_per_account": 9}
    assert read_accounting(table, None, "cluster").qos == (Qos("normal", **most, **more),)  # type: ignore[arg-type]


def test_associations() -> None:
    associations = live().cluster.associations
    assert Association("research", shares=4, max_jobs=5) in associations
    assert Association("lab", parent="research", shares=2, max_jobs=5) in associations
    assert Association("research", "mirage-alice", shares=3, max_jobs=2) in associations
    assert all(item.user is not None for item in associations if item.account == "root"), (
        "root is above all"
    )


def test_without_parents_there_is_a_note() -> None:
    loaded = live(assoc="assoc")
    assert {item.parent for item in loaded.cluster.associations} == {"root"}
    assert any("ParentName" in note.why for note in loaded.notes)


def test_parents_by_indentation() -> None:
    """`sacctmgr show assoc tree`."""
    tree = "Account|User|Share\nroot||1\n a||2\n  b||3\n   b|x|1\n  a|y|1\n c||4\n"
    associations = read_live(
        text("config"), text("nodes"), text("partitions"), text("qos"), tree
    ).cluster.associations
    accounts = {item.account: item.parent for item in associations if item.user is None}
    assert accounts == {"a": "root", "b": "a", "c": "root"}


def test_limits_count_only_where_they_are_enforced() -> None:
    config = text("config").replace("associations,limits,qos", "associations")
    loaded = live(config)
    assert loaded.cluster.qos == (Qos("normal"), Qos("part"), Qos("high", 100))
    assert {item.max_jobs for item in loaded.cluster.associations} == {None}
    assert any(note.parameter == "AccountingStorageEnforce" for note in loaded.notes)


def test_other_clusters_are_left_out() -> None:
    other = text("assoc_parents").replace("mirage|", "elsewhere|")
    assert (
        read_live(
            text("config"), text("nodes"), text("partitions"), None, None
        ).cluster.associations
        == ()
    )
    loaded = read_live(text("config"), text("nodes"), text("partitions"), text("qos"), other)
    assert loaded.cluster.associations == ()


@pytest.mark.parametrize(
    ("state", "action"),
    [
        ("IDLE", None),
        ("MIXED+PLANNED", None),
        ("ALLOCATED+COMPLETING", None),
        ("IDLE+DRAIN", NodeAction.DRAIN),
        ("MIXED+DRAIN", NodeAction.DRAIN),
        ("DOWN+DRAIN", NodeAction.DOWN),
        ("IDLE*", NodeAction.DOWN),
        ("IDLE+NOT_RESPONDING", NodeAction.DOWN),
        ("UNKNOWN", NodeAction.DOWN),
        ("IDLE+CLOUD+POWERED_DOWN", None),
        ("(null)", NodeAction.DOWN),
        ("", NodeAction.DOWN),
    ],
)
def test_states_of_nodes(state: str, action: NodeAction | None) -> None:
    nodes = text("nodes").replace("State=IDLE+DRAIN", f"State={state}")
    changes = read_live(text("config"), nodes, text("partitions"), text("qos")).cluster.node_changes
    assert [change.action for change in changes if change.node == "n2"] == (
        [action] if action else []
    )


def test_a_record_without_a_name_costs_a_note() -> None:
    texts = {name: text(name) for name in ("nodes", "partitions")}
    first = {name: whole.splitlines()[0] for name, whole in texts.items()}
    nodes = texts["nodes"] + re.sub("NodeName=[^ ]*", "NodeName=(null)", first["nodes"])
    shown = re.sub("PartitionName=[^ ]*", "PartitionName=", first["partitions"])
    found = read_live(text("config"), nodes, texts["partitions"] + shown, text("qos"))
    known = read_live(text("config"), texts["nodes"], texts["partitions"], text("qos"))
    assert found.cluster == known.cluster
    assert len(found.notes) == len(known.notes) + 2


def test_a_reason_cannot_pass_for_an_attribute() -> None:
    nodes = text("nodes").replace("Reason=fan to be changed", "Reason=was State=DOWN CPUTot=1")
    assert "was State=DOWN" in nodes
    nodes_read = read_live(text("config"), nodes, text("partitions"), text("qos")).cluster.nodes
    assert nodes_read == live().cluster.nodes


@pytest.mark.parametrize(
    ("config", "nodes", "qos", "message"),
    [
        ("", None, None, "scontrol show config: no SchedulerType"),
        (
            "slurm_load_ctl_conf error: Unable to contact",
            None,
            None,
            "scontrol show config:1: found 'slurm_load",
        ),
        (
            text("config").rpartition("Slurmctld(")[0],
            None,
            None,
            r"show config: no line Slurmctld\(\.\.\.\) at its end",
        ),
        (text("config")[:3000], None, None, "scontrol show config: no .*cut short"),
        (None, "", None, "no nodes that could be used"),
        (
            None,
            text("nodes").partition(" State=")[0],
            None,
            "show node:1: NodeName=n1: no State in its record: cut",
        ),
        (
            None,
            text("nodes").partition(" Weight=")[0],
            None,
            "show node:1: NodeName=n1: no Weight in its record: cut",
        ),
        (None, "NODELIST STATE\nn1 idle", None, "scontrol show node:1: found 'NODELIST STATE'"),
        (None, None, "", "sacctmgr show qos:1: found 'nothing'; give the output"),
        (None, None, "Name|Priority\nnormal|0\n", "qos of partition 'sets': unknown: part"),
        (
            None,
            None,
            "Name|Priority\nnormal|0|1\n",
            "sacctmgr show qos:2: 3 columns; its header has 2",
        ),
        (
            None,
            None,
            "Name|Priority\npart|high\n",
            "sacctmgr show qos:2: Priority=high: give a whole number",
        ),
    ],
)
def test_errors(config: str | None, nodes: str | None, qos: str | None, message: str) -> None:
    texts = [
        given if given is not None else text(name)
        for given, name in ((config, "config"), (nodes, "nodes"))
    ]
    with pytest.raises(InvalidCluster, match=message):
        read_live(*texts, text("partitions"), text("qos") if qos is None else qos)


def test_a_partition_that_is_cut_short_is_refused() -> None:
    cut = text("partitions").rstrip().rpartition(" State=")[0]
    with pytest.raises(
        InvalidCluster, match=r"show partition:\d+: PartitionName=\w+: no State in its record: cut"
    ):
        read_live(text("config"), text("nodes"), cut, text("qos"))


def test_unknown_values_of_a_slurmctld_that_runs_cost_a_note_each() -> None:
    """It has taken them, so they are of a newer release."""
    config = text("config")
    for name, value in (
        ("PriorityCalcPeriod", "DYNAMIC"),
        ("PriorityType", "priority/newer"),
        ("SchedulerType", "sched/newer"),
        ("SelectType", "select/newer"),
        ("SelectTypeParameters", "NEWER_STILL"),
        ("KillWait", "soon"),
    ):
        config = re.sub(rf"^{name}( *)= .*$", rf"{name}\1= {value}", config, flags=re.MULTILINE)
    config = config.replace("\nKillWait", "\nwords of a newer release\nKillWait")
    nodes = (
        text("nodes").replace(" State=IDLE", " State=9?", 1).replace(" Weight=10 ", " Weight=x ", 1)
    )
    parts = re.sub("MaxTime=[^ ]+", "MaxTime=ADAPTIVE", text("partitions"), count=1)
    found = read_live(config, "slurm_load: a warning\n" + nodes, parts + "more\n", text("qos"))
    unknown = {note.parameter: note for note in found.notes if note.kind is NoteKind.UNKNOWN}
    assert set(unknown) == {
        *[
            "PriorityCalcPeriod",
            "PriorityType",
            "SchedulerType",
            "SelectType",
            "SelectTypeParameters",
        ],
        *["KillWait", "State", "Weight", "MaxTime"],
        "words of a newer release",
        "slurm_load: a warning",
        "more",
    }
    usual = live().cluster
    assert {node.name for node in found.cluster.nodes} == {node.name for node in usual.nodes}
    assert len(found.cluster.partitions) == len(usual.partitions)
    first = next(iter(usual.nodes)).name
    assert NodeChange(0, first, NodeAction.DOWN) in found.cluster.node_changes
