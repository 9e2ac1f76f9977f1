"""Clusters from slurm.conf. What slurmctld does with odd ones was tried on 22.05.8."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from slurm_sim.clusters import (
    SLURM_DEFAULTS,
    ClusterDescription,
    NoteKind,
    params_from,
    read_cluster,
)
from slurm_sim.clusters.lines import pairs
from slurm_sim.clusters.values import compress_hosts, expand_hosts, parse_time_s
from slurm_sim.config import YEAR_S, ClusterConfig, NodeAction, NodeChange, Params, SelectType
from slurm_sim.errors import InvalidCluster

GOLD = Path(__file__).parents[4] / "shared" / "gold"
SMALL = Path(__file__).parents[2] / "data" / "slurm_conf" / "small"
MULTIFACTOR = "PriorityType=priority/multifactor\n"
LEAST = "NodeName=n[1-4] CPUs=8\nPartitionName=p Nodes=ALL Default=YES\n"
WITH_GPUS = (
    "AccountingStorageTRES=gres/gpu,license/x\nAccountingStorageType=accounting_storage/slurmdbd\n"
)


def load(folder: Path, text: str) -> ClusterDescription:
    path = folder / "slurm.conf"
    path.write_text(text)
    loaded = read_cluster(path)
    # These files don't set EnforcePartLimits; the note on that has a test of its own.
    return replace(
        loaded, notes=tuple(note for note in loaded.notes if note.parameter != "EnforcePartLimits")
    )


def cluster(folder: Path, text: str) -> ClusterConfig:
    return load(folder, text).cluster


def found(loaded: ClusterDescription, kind: NoteKind) -> list[str]:
    return [note.parameter for note in loaded.notes if note.kind is kind]


def not_simulated(folder: Path, text: str) -> list[str]:
    return found(load(folder, text), NoteKind.NOT_SIMULATED)


# ---- recorded and real files


@pytest.mark.skipif(not GOLD.is_dir(), reason="the recorded replays are not here")
def test_gold_files_load_without_anything_unknown() -> None:
    paths = sorted(GOLD.glob("*/slurm.conf"))
    assert paths
    for path in paths:
        loaded = read_cluster(path)
        assert found(loaded, NoteKind.UNKNOWN) == []
        # What differs from the simulator must be named, and nothing else is.
        assert found(loaded, NoteKind.NOT_SIMULATED) == ["MaxJobCount", "EnforcePartLimits"]
        params = loaded.cluster.params
        assert (params.priority_weight_age, params.priority_calc_period_s) == (10000, 300)
        assert params.bf_window_s == (86400 if path.parent.name == "syn1_def" else 172800)
        assert params.select_type is (
            SelectType.CONS_TRES if "cons" in path.parent.name else SelectType.LINEAR
        )
        assert len(loaded.cluster.nodes) == (16 if path.parent.name.startswith("syn1") else 76)
        (partition,) = loaded.cluster.partitions
        assert (partition.name, partition.exclusive, partition.max_time_s) == ("gpu", True, None)


def test_includes_defaults_and_node_sets() -> None:
    """The expected values are those that a real slurmctld showed for these files (live/)."""
    small = read_cluster(SMALL / "slurm.conf").cluster
    nodes = {node.name: node for node in small.nodes}
    assert list(nodes) == ["n1", "n2", "n3", "n4", "rack0n07", "rack0n08", "rack1n07", "rack1n08"]
    assert (nodes["n2"].weight, nodes["n2"].features, nodes["n2"].gpus) == (10, ("a100", "fast"), 2)
    assert (nodes["n3"].cpus, nodes["n3"].weight, nodes["n4"].memory_mib) == (8, 5, 3000)
    assert (nodes["rack1n08"].cpus, nodes["rack1n08"].gpus) == (6, 0)
    assert NodeChange(0, "rack0n07", NodeAction.DOWN) in small.node_changes
    partitions = {partition.name: partition for partition in small.partitions}
    assert list(partitions) == [
        "gpu",
        "long",
        "debug",
        "sets",
        "quick",
    ], "the default one goes first"
    assert partitions["sets"].nodes == ("n1", "n2", "n4", "rack0n07")
    assert partitions["quick"].max_time_s == 91 * 60, "seconds are rounded up to minutes"
    assert (partitions["long"].max_time_s, partitions["long"].default_time_s) == (None, 180)
    assert (partitions["debug"].priority_tier, partitions["sets"].priority_tier) == (10, 3)
    assert small.params.bf_window_s == 172800
    assert small.params.batch_sched_delay_s == 1, "after a continued line"
    assert small.params.requeue_delay_s == 11, "cred_expire and a second"


# ---- the scheduler's parameters


def test_an_empty_configuration_has_slurms_defaults(tmp_path: Path) -> None:
    params = cluster(tmp_path, LEAST).params
    assert params == SLURM_DEFAULTS
    assert not params.priority_multifactor
    assert (params.priority_weight_age, params.priority_weight_job_size) == (0, 0)
    assert (params.bf_window_s, params.bf_interval_s, params.bf_max_job_test) == (86400, 30, 500)


def test_units(tmp_path: Path) -> None:
    text = (
        "SchedulerParameters=bf_window=100,bf_window_linear=45,bf_resolution=600,bf_max_job_user=0,default_queue_depth=7\n"
        "PriorityCalcPeriod=2\nPriorityMaxAge=14-0\nPriorityDecayHalfLife=0\nPriorityUsageResetPeriod=YEARLY\n"
    )
    params = cluster(tmp_path, text + LEAST).params
    assert (params.bf_window_s, params.bf_resolution_s, params.bf_max_job_user) == (6000, 600, None)
    assert params.bf_window_linear_s == 45
    assert (params.priority_calc_period_s, params.priority_max_age_s) == (120, 14 * 86400)
    assert (params.priority_decay_half_life_s, params.default_queue_depth) == (0, 7)


@pytest.mark.parametrize(
    ("value", "interval_s", "note"),
    [("2", 0, False), ("2000000", 2, False), ("1500000", 1, True), ("900", 0, True)],
)
def test_sched_min_interval_is_in_microseconds(
    tmp_path: Path, value: str, interval_s: int, note: bool
) -> None:
    loaded = load(tmp_path, f"SchedulerParameters=sched_min_interval={value}\n{LEAST}")
    assert loaded.cluster.params.sched_min_interval_s == interval_s
    assert any("whole seconds" in str(each) for each in loaded.notes) == note


def test_without_sched_interval_there_are_no_main_passes(tmp_path: Path) -> None:
    loaded = load(tmp_path, f"SchedulerParameters=sched_interval=-1\n{LEAST}")
    assert (loaded.cluster.params.main, loaded.cluster.params.backfill) == (False, True)


def test_of_an_option_given_twice_the_first_counts(tmp_path: Path) -> None:
    """slurmctld 22.05.8 with ``bf_interval=-5,bf_interval=60`` refuses the -5, and does not read
    on.
    """
    loaded = load(
        tmp_path, "SchedulerParameters=bf_interval=45,bf_window=60,BF_INTERVAL=60\n" + LEAST
    )
    assert (loaded.cluster.params.bf_interval_s, loaded.cluster.params.bf_window_s) == (45, 3600)
    [note] = [note for note in loaded.notes if note.kind is NoteKind.IGNORED]
    assert (note.parameter, note.value, note.why) == (
        "BF_INTERVAL",
        "60",
        "given twice: the first one counts",
    )


@pytest.mark.parametrize(
    ("option", "field", "value"),
    [
        ("bf_interval=0", "bf_interval_s", 30),
        ("bf_interval=-2", "bf_interval_s", 30),
        ("bf_interval=99999", "bf_interval_s", 30),
        ("bf_interval=", "bf_interval_s", 30),
        ("bf_interval", "bf_interval_s", 30),
        ('"bf_interval =45"', "bf_interval_s", 30),
        ("bf_interval=0x10", "bf_interval_s", 30),
        ("bf_interval=45s", "bf_interval_s", 45),
        ("xbf_interval=45", "bf_interval_s", 45),
        ("bf_window=43201", "bf_window_s", 86400),
        ("bf_max_job_test=0", "bf_max_job_test", 500),
        ("bf_max_job_start=10001", "bf_max_job_start", None),
        ("bf_max_job_user=-1", "bf_max_job_user", None),
        ("bf_node_space_size=1", "bf_node_space_size", None),
        ("bf_min_prio_reserve=0", "bf_min_prio_reserve", 0),
        ("bf_min_prio_reserve=4294967296", "bf_min_prio_reserve", 0),
        ("bf_job_part_count_reserve=100001", "bf_job_part_count_reserve", None),
        ("default_queue_depth=-3", "default_queue_depth", 100),
        ("default_queue_depth=0", "default_queue_depth", 1),
        ("default_queue_depth=4294967296", "default_queue_depth", 1),
        ("partition_job_depth=4294967299", "partition_job_depth", 3),
        ("sched_interval=-5", "sched_interval_s", 60),
        ("sched_interval=0", "sched_interval_s", 1),
        ("batch_sched_delay=-1", "batch_sched_delay_s", 3),
        ("max_switch_wait=5,defer_batch", "defer", True),
    ],
)
def test_options_that_slurmctld_does_not_take_as_they_stand(
    tmp_path: Path, option: str, field: str, value: object
) -> None:
    """The default counts for what is out of range or no number; each has a note that says so."""
    loaded = load(tmp_path, f"SchedulerParameters={option}\n{LEAST}")
    assert getattr(loaded.cluster.params, field) == value
    assert loaded.notes


def test_what_is_typed_must_be_right(tmp_path: Path) -> None:
    """Of a person's own options none is corrected in silence."""
    with pytest.raises(InvalidCluster, match="bf_interval=0: give a whole number from 1 to 10800"):
        params_from("bf_interval=0")
    assert params_from("bf_interval=-1,sched_interval=-1")[0] == replace(
        SLURM_DEFAULTS, backfill=False, main=False
    )


@pytest.mark.parametrize(
    ("line", "field", "value"),
    [
        ("PriorityMaxAge=0", "priority_max_age_s", 1),
        ("PriorityMaxAge=INFINITE", "priority_max_age_s", 10**9),
        ("PriorityDecayHalfLife=-1", "priority_decay_half_life_s", 10**9),
        ("PriorityFlags=max_tres|INCR_ONLY", "incr_only", True),
        ("PriorityFlags=MAX_TRES_GRES", "max_tres", True),
        ("PriorityWeightJobSize=1K", "priority_weight_job_size", 1024),
        ("KillWait=INFINITE", "kill_wait_s", 65535),
        ("MinJobAge=1", "min_job_age_s", 2),
        ("AuthInfo=socket=/x,cred_expire=7", "requeue_delay_s", 8),
        ("AuthInfo=cred_expire=soon", "requeue_delay_s", 121),
        ('SelectType=select/cons_tres\nSelectTypeParameters=""', "memory_is_consumable", True),
        ("SelectType=select/cray_aries", "select_type", SelectType.LINEAR),
        (
            "SelectType=select/cray_aries\nSelectTypeParameters=CR_Core,OTHER_CONS_TRES",
            "select_type",
            SelectType.CONS_TRES,
        ),
    ],
)
def test_settings_as_slurmctld_takes_them(
    tmp_path: Path, line: str, field: str, value: object
) -> None:
    params = cluster(tmp_path, f"{MULTIFACTOR}{line}\n{LEAST}").params
    assert getattr(params, field) == value


def test_for_whom_nodes_are_kept(tmp_path: Path) -> None:
    text = (
        "SchedulerParameters=bf_min_age_reserve=600,bf_min_prio_reserve=1000000,bf_job_part_count_reserve=3,defer,bf_busy_nodes,"
        "bf_max_job_user_part=4,bf_max_job_assoc=0,partition_job_depth=50,sched_max_job_start=9\n"
    )
    params = cluster(tmp_path, text + LEAST).params
    assert (params.bf_min_age_reserve_s, params.bf_min_prio_reserve) == (600, 1_000_000)
    assert (
        params.bf_job_part_count_reserve,
        params.bf_max_job_user_part,
        params.bf_max_job_assoc,
    ) == (3, 4, None)
    assert (params.partition_job_depth, params.sched_max_job_start) == (50, 9)
    assert (params.defer, params.bf_busy_nodes) == (True, True)


@pytest.mark.parametrize(
    "line", ["SchedulerType=sched/builtin", "SchedulerParameters=bf_interval=-1"]
)
def test_no_backfill(tmp_path: Path, line: str) -> None:
    assert not cluster(tmp_path, f"{line}\n{LEAST}").params.backfill


def test_switching_backfill_off_holds_whatever_comes_after(tmp_path: Path) -> None:
    text = "SchedulerParameters=bf_interval=-1\nSchedulerType=sched/backfill\n"
    assert not cluster(tmp_path, text + LEAST).params.backfill


def test_memory_counts_by_default_with_cons_tres_only(tmp_path: Path) -> None:
    assert cluster(tmp_path, "SelectType=select/cons_tres\n" + LEAST).params.memory_is_consumable
    text = "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core,CR_Pack_Nodes\n"
    assert not cluster(tmp_path, text + LEAST).params.memory_is_consumable
    assert not cluster(tmp_path, LEAST).params.memory_is_consumable


WEIGHTS = "PriorityWeightAge=5\nPriorityWeightFairshare=6\nPriorityWeightJobSize=7\n"


def test_weights_beside_priority_basic_are_noted(tmp_path: Path) -> None:
    more = "PriorityWeightQOS=0\nPriorityMaxAge=1-0\nPriorityFlags=ACCRUE_ALWAYS\nPriorityFavorSmall=NO\n"
    basic = load(tmp_path, WEIGHTS + more + LEAST)
    names = [
        "PriorityWeightAge",
        "PriorityWeightFairshare",
        "PriorityWeightJobSize",
        "PriorityMaxAge",
        "PriorityFlags",
    ]
    assert found(basic, NoteKind.IGNORED) == names
    _, notes = params_from("PriorityWeightAge=5,bf_window=2880")
    assert [(note.parameter, note.kind) for note in notes] == [
        ("PriorityWeightAge", NoteKind.IGNORED)
    ]
    assert params_from("PriorityWeightAge=5", Params())[1] == ()
    assert params_from("PriorityWeightAge=5,PriorityType=priority/multifactor")[1] == ()


def test_age_and_fairshare_need_slurmdbd(tmp_path: Path) -> None:
    """slurmctld: PriorityWeightAge can only be used with SlurmDBD, ignoring."""
    text = "PriorityType=priority/multifactor\n" + WEIGHTS + LEAST
    without = load(tmp_path, text)
    params = without.cluster.params
    assert (
        params.priority_weight_age,
        params.priority_weight_fairshare,
        params.priority_weight_job_size,
    ) == (0, 0, 7)
    assert found(without, NoteKind.IGNORED) == ["PriorityWeightAge", "PriorityWeightFairshare"]
    params = cluster(tmp_path, "AccountingStorageType=accounting_storage/slurmdbd\n" + text).params
    assert (params.priority_weight_age, params.priority_weight_fairshare) == (5, 6)


def test_times_in_seconds(tmp_path: Path) -> None:
    params = cluster(tmp_path, "MinJobAge=15\nKillWait=40\n" + LEAST).params
    assert (params.min_job_age_s, params.kill_wait_s) == (15, 40)


def test_flags_and_weights_of_priority(tmp_path: Path) -> None:
    flags = (
        WITH_GPUS
        + "PriorityType=priority/multifactor\nPriorityFlags=small_relative_to_time,NO_NORMAL_PART\n"
    )
    loaded = load(
        tmp_path,
        flags + "PriorityWeightTRES=CPU=1e3,Mem=.25,billing=3,GRES/gpu=30.5,fs/disk=0\n" + LEAST,
    )
    params = loaded.cluster.params
    assert (params.small_relative_to_time, params.no_normal_part) == (True, True)
    assert (params.no_normal_qos, params.no_normal_tres) == (False, False)
    weights = (
        params.priority_weight_cpus,
        params.priority_weight_memory,
        params.priority_weight_nodes,
    )
    assert (*weights, params.priority_weight_gpus) == (1000, 0.25, 0, 30.5)
    told = [
        (note.parameter, note.value) for note in loaded.notes if note.kind is NoteKind.NOT_SIMULATED
    ]
    assert told == [("PriorityWeightTRES", "billing=3")]
    params = cluster(
        tmp_path, "PriorityType=priority/multifactor\nPriorityFlags=NO_NORMAL_ALL\n" + LEAST
    ).params
    assert (params.no_normal_part, params.no_normal_qos, params.no_normal_tres) == (
        True,
        True,
        True,
    )


def test_weights_by_larger_units(tmp_path: Path) -> None:
    """slurmctld keeps memory in MiB, and divides a weight by what its unit is of that."""
    text = "PriorityType=priority/multifactor\nPriorityWeightTRES=CPU=2K,Mem=0.5G,Node=7\n"
    params = cluster(tmp_path, text + LEAST).params
    weights = (
        params.priority_weight_cpus,
        params.priority_weight_memory,
        params.priority_weight_nodes,
    )
    assert weights == (2 / 1024, 0.5 / 1024, 7)


def test_billing(tmp_path: Path) -> None:
    text = (
        WITH_GPUS + "PriorityType=priority/multifactor\nPriorityFlags=MAX_TRES\nNodeName=n[1-2]\n"
    )
    text += (
        "PartitionName=DEFAULT"
        " TRESBillingWeights=CPU=1.5,Mem=0.25G,Node=3,GRES/gpu=10,license/x=2\n"
    )
    loaded = load(
        tmp_path,
        text
        + "PartitionName=a Nodes=ALL\nPartitionName=b Nodes=n1 TRESBillingWeights=GRES/gpu=1\n",
    )
    first, second = loaded.cluster.partitions
    assert (first.billing_weight_cpus, first.billing_weight_memory) == (1.5, 0.25 / 1024)
    assert (first.billing_weight_nodes, first.billing_weight_gpus) == (3, 10)
    assert (second.billing_weight_cpus, second.billing_weight_gpus) == (0, 1)
    assert loaded.cluster.params.max_tres
    assert ("TRESBillingWeights", "license/x=2") in [
        (note.parameter, note.value) for note in loaded.notes
    ]
    assert cluster(tmp_path, LEAST).partitions[0].billing_weight_cpus == 1
    with pytest.raises(InvalidCluster, match=r"slurm.conf:2: TRESBillingWeights='?.*TRES=weight"):
        load(tmp_path, "NodeName=n1\nPartitionName=a Nodes=n1 TRESBillingWeights=CPU\n")


@pytest.mark.parametrize("value", ["CPU", "CPU=", "CPU=x", "CPU=1,Mem", "CPU=1=2", "CPU=1X"])
def test_weights_that_are_none(tmp_path: Path, value: str) -> None:
    with pytest.raises(InvalidCluster, match=r"slurm.conf:2: PriorityWeightTRES='?.*TRES=weight"):
        load(tmp_path, f"{MULTIFACTOR}PriorityWeightTRES={value}\n" + LEAST)
    # priority/basic does not look at it, and slurmctld starts.
    assert found(load(tmp_path, f"PriorityWeightTRES={value}\n" + LEAST), NoteKind.IGNORED) == [
        "PriorityWeightTRES"
    ]


@pytest.mark.parametrize("value", ["CPU=-1", "CPU=inf", "CPU=nan", "CPU=9999999999"])
def test_weights_that_only_slurmctld_can_have_weigh_nothing_with_a_note(
    tmp_path: Path, value: str
) -> None:
    loaded = load(tmp_path, f"{MULTIFACTOR}PriorityWeightTRES={value},Mem=3\n" + LEAST)
    params = loaded.cluster.params
    assert (params.priority_weight_cpus, params.priority_weight_memory) == (0, 3)
    assert [note.value for note in loaded.notes if note.kind is NoteKind.NOT_SIMULATED] == [value]


def test_weights_of_tres_that_are_not_tracked(tmp_path: Path) -> None:
    """slurmctld: "TRES weight 'gres:gpu' is not a configured TRES type", and ends."""
    billing = "NodeName=n1\nPartitionName=p Nodes=n1 TRESBillingWeights=GRES/gpu=2"
    with pytest.raises(
        InvalidCluster, match=r"slurm.conf:2: TRESBillingWeights=.*AccountingStorageTRES lists"
    ):
        load(tmp_path, billing)
    assert cluster(tmp_path, WITH_GPUS + billing).partitions[0].billing_weight_gpus == 2
    with pytest.raises(
        InvalidCluster, match="AccountingStorageTRES lists, without blanks: not of ' Mem'"
    ):
        load(tmp_path, f'{MULTIFACTOR}PriorityWeightTRES="CPU=1, Mem=2"\n{LEAST}')
    with pytest.raises(
        InvalidCluster, match=r"AccountingStorageTRES=gres/gpu: give it without gres/gpu, or Acc"
    ):
        load(tmp_path, "AccountingStorageTRES=gres/gpu\n" + LEAST)


@pytest.mark.parametrize(
    ("of_all", "own", "expected_s"),
    [
        ("", "", (0, None)),
        ("OverTimeLimit=5\n", "", (300, None)),
        ("OverTimeLimit=65535\n", " OverTimeLimit=-1", (YEAR_S, None)),
        ("OverTimeLimit=0x10\n", " OverTimeLimit=7min", (960, 420)),
        ("", " OverTimeLimit=much", (0, 0)),
        ("", " OverTimeLimit=0", (0, 0)),
        ("OverTimeLimit=UNLIMITED\n", " OverTimeLimit=2", (YEAR_S, 120)),
    ],
)
def test_over_time_limit(
    tmp_path: Path, of_all: str, own: str, expected_s: tuple[int, int | None]
) -> None:
    made = cluster(tmp_path, of_all + LEAST.rstrip() + own)
    assert (made.params.over_time_limit_s, made.partitions[0].over_time_limit_s) == expected_s


@pytest.mark.parametrize(
    ("of_all", "own", "expected_mib"),
    [
        ("", "", (None, None, None, None)),
        ("DefMemPerCPU=1500\n", " DefMemPerNode=UNLIMITED", (1500, None, None, None)),
        ("DefMemPerNode=9000\n", " DefMemPerCPU=100", (None, 9000, 100, None)),
        ("DefMemPerNode=0\n", " DefMemPerNode=7", (None, None, None, 7)),
    ],
)
def test_default_memory(
    tmp_path: Path, of_all: str, own: str, expected_mib: tuple[int | None, ...]
) -> None:
    shared = "SelectType=select/cons_tres\n" + of_all
    loaded = load(tmp_path, shared + LEAST.rstrip() + own)
    assert defaults_of(loaded.cluster) == expected_mib
    assert not loaded.notes
    assert defaults_of(load(tmp_path, of_all + LEAST.rstrip() + own).cluster) == expected_mib
    with pytest.raises(InvalidCluster, match=r"slurm.conf:1: DefMemPerCPU='?much.*whole number"):
        load(tmp_path, "DefMemPerCPU=much\n" + LEAST)


def defaults_of(made: ClusterConfig) -> tuple[int | None, ...]:
    of_all, own = made.params, made.partitions[0]
    names = ("default_memory_per_cpu_mib", "default_memory_per_node_mib")
    return tuple(getattr(item, name) for item in (of_all, own) for name in names)


def test_default_memory_that_does_not_count_is_noted(tmp_path: Path) -> None:
    both = "DefMemPerCPU=5\nDefMemPerNode=6\n" + LEAST.rstrip() + " DefMemPerNode=8 DefMemPerCPU=7"
    loaded = load(tmp_path, "SelectType=select/cons_tres\n" + both)
    assert defaults_of(loaded.cluster) == (None, 6, None, 8), "slurmctld takes DefMemPerNode"
    said = [(note.kind, note.parameter, note.value) for note in loaded.notes]
    assert said == [
        (NoteKind.IGNORED, "DefMemPerCPU", "5"),
        (NoteKind.IGNORED, "DefMemPerCPU", "7"),
    ]
    text = "SelectType=select/cons_tres\nDefMemPerCPU=6\nDefMemPerNode=0\n" + LEAST
    assert defaults_of(cluster(tmp_path, text)) == (
        None,
        None,
        None,
        None,
    ), "also where it asks for nothing"
    assert [note.why for note in load(tmp_path, "DefMemPerCPU=5\n" + LEAST).notes] == [
        "memory is not counted, with these Select parameters"
    ]
    base = replace(
        loaded.cluster.params, default_memory_per_cpu_mib=5, default_memory_per_node_mib=None
    )
    assert params_from("DefMemPerNode=9", base)[0].default_memory_per_cpu_mib is None
    with pytest.raises(
        InvalidCluster, match="DefMemPerCPU and DefMemPerNode are given; give one of them"
    ):
        params_from("DefMemPerNode=9,DefMemPerCPU=3", base)
    with pytest.raises(
        InvalidCluster, match=r"Params: give default_memory_per_cpu_mib or .*, not both"
    ):
        replace(base, default_memory_per_node_mib=1)


# ---- notes


def test_every_parameter_that_is_not_used_is_noted(tmp_path: Path) -> None:
    text = (
        "SlurmctldPort=6817\nPreemptType=preempt/qos\nPreemptMode=CANCEL\nNoSuchThing=1\nTopologyPlugin=topology/tree\n"
        "SchedulerParameters=bf_continue,max_rpc_cnt=5,no_such_option=2\n"
        "PriorityFlags=FAIR_TREE,ACCRUE_ALWAYS,DEPTH_OBLIVIOUS,INCR_ONLY\n"
    )
    loaded = load(tmp_path, text + LEAST)
    assert found(loaded, NoteKind.UNKNOWN) == ["NoSuchThing", "no_such_option"]
    assert found(loaded, NoteKind.NO_EFFECT) == ["SlurmctldPort", "bf_continue", "PriorityFlags"]
    expected = ["PreemptType", "PreemptMode", "TopologyPlugin", "max_rpc_cnt", "PriorityFlags"]
    assert found(loaded, NoteKind.NOT_SIMULATED) == expected
    assert loaded.cluster.params.accrue_always
    assert loaded.cluster.params.incr_only
    note = next(note for note in loaded.notes if note.parameter == "NoSuchThing")
    assert str(note).startswith(f"{tmp_path}/slurm.conf:4: NoSuchThing=1: unknown: ")


def test_passwords_are_not_shown(tmp_path: Path) -> None:
    (note,) = load(tmp_path, "AccountingStoragePass=secret\n" + LEAST).notes
    assert "secret" not in str(note)


def test_notes_on_nodes_and_partitions(tmp_path: Path) -> None:
    node = (
        "GresTypes=gpu,fpga\nNodeName=n1 MemSpecLimit=100 Gres=gpu:a100:4(S:0-1),fpga:1"
        " Colour=red\n"
    )
    assert not_simulated(tmp_path, node + "PartitionName=p Nodes=n1 Default=YES") == [
        "MemSpecLimit",
        "Gres",
        "Gres",
    ]
    partition = "PartitionName=p Nodes=ALL AllowGroups=physics LLN=NO OverSubscribe=FORCE:4\n"
    loaded = load(tmp_path, "NodeName=n1\n" + partition)
    assert found(loaded, NoteKind.NOT_SIMULATED) == [
        "AllowGroups",
        "OverSubscribe",
        "PartitionName",
    ]


@pytest.mark.parametrize(
    ("line", "note"),
    [
        (
            "",
            (
                "slurm.conf: EnforcePartLimits: not simulated: not set, so NO; jobs over a limit of"
                " their partition are"
            ),
        ),
        (
            "EnforcePartLimits=NO\n",
            "slurm.conf:1: EnforcePartLimits=NO: not simulated: jobs over a limit of their",
        ),
        ("EnforcePartLimits=ALL\n", "slurm.conf:1: EnforcePartLimits=ALL: no effect"),
    ],
)
def test_limits_of_partitions_that_are_not_enforced(tmp_path: Path, line: str, note: str) -> None:
    (tmp_path / "slurm.conf").write_text(line + LEAST)
    [told] = [
        each
        for each in read_cluster(tmp_path / "slurm.conf").notes
        if each.parameter == "EnforcePartLimits"
    ]
    assert note in str(told)


def test_files_of_older_releases(tmp_path: Path) -> None:
    text = "ControlMachine=head\nFastSchedule=1\nCryptoType=crypto/munge\nCacheGroups=0\nSelectType=select/cons_res\n"
    old = (
        "NodeName=n[1,2] Procs=24 Sockets=2 CoresPerSocket=12\nPartitionName=p Nodes=n[1-2]"
        " Priority=7 Default=YES\n"
    )
    loaded = load(tmp_path, text + old)
    assert found(loaded, NoteKind.UNKNOWN) == []
    assert found(loaded, NoteKind.NOT_SIMULATED) == ["SelectType"]
    (partition,) = loaded.cluster.partitions
    assert (partition.priority_tier, partition.priority_job_factor) == (7, 7)
    assert [node.cpus for node in loaded.cluster.nodes] == [24, 24]


def test_the_last_of_two_counts(tmp_path: Path) -> None:
    text = "PriorityType=priority/multifactor\nPriorityMaxAge=1-0\nPriorityMaxAge = 2-0\n"
    loaded = load(tmp_path, text + LEAST)
    assert loaded.cluster.params.priority_max_age_s == 2 * 86400
    assert [note.value for note in loaded.notes] == ["1-0"]


# ---- nodes


@pytest.mark.parametrize(
    ("attributes", "cpus"),
    [
        ("", 1),
        ("CPUs=6", 6),
        ("Procs=6", 6),
        ("Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 16),
        ("Boards=2 SocketsPerBoard=2 CoresPerSocket=4", 16),
        ("CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 8),
        ("CPUs=5 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 16),
    ],
)
def test_cpus(tmp_path: Path, attributes: str, cpus: int) -> None:
    text = f"NodeName=n1 {attributes}\nPartitionName=p Nodes=n1"
    loaded = load(tmp_path, text)
    assert [node.cpus for node in loaded.cluster.nodes] == [cpus]
    assert (found(loaded, NoteKind.IGNORED) == ["CPUs"]) == ("CPUs=5" in attributes)


@pytest.mark.parametrize(
    ("attributes", "cpus", "noted"),
    [
        ("CPUs=256 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 Procs=128", 256, "Procs"),
        ("Procs=128 Sockets=2 CoresPerSocket=64 ThreadsPerCore=2 CPUs=256", 256, "Procs"),
        ("CPUs=4 CPUs=8", 8, "CPUs"),
        ("CPUs=0", 1, "CPUs"),
        ("Sockets=0 CoresPerSocket=4", 4, "Sockets"),
        ("CPUs=0x10", 16, ""),
        ("CPUs=010", 8, ""),
        ("CPUs=+4", 4, ""),
        ('CPUs="4"', 4, ""),
        ("CPUs=INFINITE", 65535, ""),
        ("Sockets=2 SocketsPerBoard=4", 4, "Sockets"),
        ("Boards=2 Sockets=4 CoresPerSocket=2", 8, ""),
        ("Boards=2 Sockets=1", 1, ""),
        ("CPUs=4 Boards=2", 4, ""),
        ("CPUs=10 CoresPerSocket=4", 4, "CPUs"),
        ("CPUs=16 CoresPerSocket=4 ThreadsPerCore=2", 16, ""),
        ("CPUs=4 CoresPerSocket=4 ThreadsPerCore=2", 4, ""),
        ("Sockets=300 CoresPerSocket=300 ThreadsPerCore=2", 180_000 - 2 * 65536, ""),
    ],
)
def test_cpus_that_disagree(tmp_path: Path, attributes: str, cpus: int, noted: str) -> None:
    """Each as slurmctld 22.05.8 shows it in CPUTot."""
    loaded = load(tmp_path, f"NodeName=n1 {attributes}\nPartitionName=p Nodes=n1")
    assert [node.cpus for node in loaded.cluster.nodes] == [cpus]
    assert found(loaded, NoteKind.IGNORED) == ([noted] if noted else [])


def test_defaults_of_cpus_and_features_as_slurmctld_merges_them(tmp_path: Path) -> None:
    """CPUs of a DEFAULT line count before Procs of the node's own; Feature before Features, each
    line's own first.
    """
    text = (
        "NodeName=DEFAULT CPUs=4 Feature=x\nNodeName=n1 Procs=2\nNodeName=n2"
        " Features=y\nNodeName=n3 CPUs=3\nNodeName=n4 Features=y Feature=z\nPartitionName=p"
        " Nodes=ALL\n"
    )
    nodes = cluster(tmp_path, text).nodes
    assert [node.cpus for node in nodes] == [4, 4, 3, 4]
    assert [node.features for node in nodes] == [("x",), ("y",), ("x",), ("z",)]


@pytest.mark.parametrize(
    ("attributes", "memory_mib", "weight"),
    [
        ("RealMemory=0 Weight=0", 0, 0),
        ("RealMemory=4K Weight=4k", 4096, 4096),
        ("RealMemory=18446744073709551615 Weight=4294967295", 2**31 - 1, 2**32 - 2),
        ("RealMemory=INFINITE Weight=INFINITE", 2**31 - 1, 2**32 - 2),
        ('RealMemory="" Weight=""', 0, 0),
    ],
)
def test_numbers_of_nodes(tmp_path: Path, attributes: str, memory_mib: int, weight: int) -> None:
    [node] = cluster(tmp_path, f"NodeName=n1 {attributes}\nPartitionName=p Nodes=n1").nodes
    assert (node.memory_mib, node.weight) == (memory_mib, weight)


@pytest.mark.parametrize(
    ("select", "nodes", "threads", "counted"),
    [
        ("cons_tres", "n[1-2] Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 2, True),
        (
            "cons_tres\nSelectTypeParameters=CR_CPU_Memory",
            "n[1-2] CPUs=16 CoresPerSocket=8 ThreadsPerCore=2",
            2,
            False,
        ),
        ("cons_tres", "n[1-2] CPUs=8 Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 1, True),
        ("linear", "n[1-2] Sockets=2 CoresPerSocket=4 ThreadsPerCore=2", 1, True),
        ("cons_tres", "n1 CPUs=8\nNodeName=n2 CoresPerSocket=4 ThreadsPerCore=2", 1, True),
    ],
)
def test_threads(tmp_path: Path, select: str, nodes: str, threads: int, counted: bool) -> None:
    text = f"SelectType=select/{select}\nNodeName={nodes}\nPartitionName=p Nodes=ALL"
    params = cluster(tmp_path, text).params
    assert (params.threads_per_core, params.idle_threads_count) == (threads, counted)


@pytest.mark.parametrize(
    ("gres", "gpus"),
    [
        ("gpu:a100:4(S:0-1)", 4),
        ("gpu", 1),
        ("gpu:v100", 1),
        ("gpu:a:2,gpu:b:3,x:9", 5),
        ("nic:2", 0),
        ("GPU:2", 0),
        ("gpu:a:b:2", 4),
        ("gpu:no_consume:2", 2),
        ('"gpu:2, gpu:3"', 2),
        ("gpu:2K", 2048),
        ("gpu:99999999999", 2**31 - 1),
        ("(null)", 0),
    ],
)
def test_gpus(tmp_path: Path, gres: str, gpus: int) -> None:
    text = f"GresTypes=nic,gpu\nNodeName=n1 Gres={gres}\nPartitionName=p Nodes=n1"
    assert cluster(tmp_path, text).nodes[0].gpus == gpus


@pytest.mark.parametrize("types", ["", "GresTypes=GPU\n", "GresTypes=mic\n"])
def test_gpus_that_grestypes_does_not_name_are_not_there(tmp_path: Path, types: str) -> None:
    loaded = load(tmp_path, f"{types}NodeName=n1 Gres=gpu:2\nPartitionName=p Nodes=n1 Default=YES")
    assert loaded.cluster.nodes[0].gpus == 0
    assert "slurm.conf:" in str(loaded.notes[-1])
    assert ("Gres", "gpu:2", NoteKind.IGNORED) in [
        (note.parameter, note.value, note.kind) for note in loaded.notes
    ]


def test_states_of_nodes(tmp_path: Path) -> None:
    text = (
        "NodeName=n[1-2] State=UNKNOWN\nNodeName=n3 State=drain\nNodeName=n4"
        ' State=FUTURE\nNodeName=n5\nDownNodes=n[2,5] State=DOWN Reason="a fan # not'
        ' two"\nPartitionName=p Nodes=ALL\n'
    )
    # A comment begins within quotes, too: the line then lacks its closing quote.
    with pytest.raises(InvalidCluster, match=r"slurm\.conf:5: found 'fan'"):
        cluster(tmp_path, text)
    made = cluster(tmp_path, text.replace(" # not two", ""))
    assert [node.name for node in made.nodes] == ["n1", "n2", "n3", "n5"]
    assert {(change.node, change.action.value) for change in made.node_changes} == {
        ("n3", "DRAIN"),
        ("n2", "DOWN"),
        ("n5", "DOWN"),
    }


def test_down_nodes_as_slurmctld_takes_them(tmp_path: Path) -> None:
    """Of lines before and after the nodes' own, with nodes and states that there are not."""
    text = (
        "DownNodes=n1,x[1-2]\nNodeName=n[1-5] State=DRAINED\nNodeName=c1 State=CLOUD\nDownNodes=n2"
        " State=IDLE\nDownNodes=n3 State=BROKEN\nDownNodes=n[4-9] State=DOWN\nDownNodes=n5"
        " State=FAILING\nPartitionName=p Nodes=ALL\n"
    )
    loaded = load(tmp_path, text)
    changes = {change.node: change.action.value for change in loaded.cluster.node_changes}
    assert changes == {"n1": "DOWN", "n3": "DRAIN", "n4": "DOWN", "n5": "DRAIN"}
    assert found(loaded, NoteKind.IGNORED) == ["DownNodes", "State", "DownNodes"]
    assert [note.why for note in loaded.notes if "x[1-2]" in note.why] == [
        "no NodeName line has x[1-2]; slurmctld goes on without"
    ]


# ---- partitions


@pytest.mark.parametrize(
    ("attributes", "field", "value", "noted"),
    [
        ("MaxTime=1-", "max_time_s", 86400, ""),
        ("MaxTime=0:30", "max_time_s", 60, ""),
        ("MaxTime=5 MaxTime=6", "max_time_s", 360, "MaxTime"),
        ("MaxTime=20000-0", "max_time_s", None, ""),
        ("MaxTime=99999-0", "max_time_s", 49979008 // 60 * 60 + 60, "MaxTime"),
        ("DefaultTime=UNLIMITED MaxTime=30", "default_time_s", None, "DefaultTime"),
        ("DefaultTime=0", "default_time_s", 60, "DefaultTime"),
        ("MaxNodes=UNLIMITED", "max_nodes", None, ""),
        ("MaxNodes=1K", "max_nodes", 1024, ""),
        ("PriorityTier=7 Priority=5", "priority_tier", 5, "PriorityTier"),
        ("PriorityTier=INFINITE", "priority_tier", 65535, ""),
        ("OverSubscribe=EXCLUSIVE Shared=YES", "exclusive", True, "Shared"),
        ("Shared=EXCLUSIVE OverSubscribe=NO", "exclusive", False, "Shared"),
        ("OverSubscribe=YES:1", "exclusive", False, "OverSubscribe"),
        ("OverSubscribe=FORCE:x", "exclusive", False, "OverSubscribe"),
        ("DefMemPerNode=6 DefMemPerCPU=5", "default_memory_per_node_mib", 6, "DefMemPerCPU"),
        ("DefMemPerCPU=4K", "default_memory_per_cpu_mib", 4096, ""),
        ("TRESBillingWeights=CPU=0x10,Mem=1K", "billing_weight_memory", 1, ""),
        ("TRESBillingWeights=CPU=-1", "billing_weight_cpus", 0, "TRESBillingWeights"),
        ("Nodes=n1 State=UPPER", "nodes", ("n1",), "Nodes"),
        ('Nodes="n1 n3"', "nodes", ("n1", "n3"), "Nodes"),
    ],
)
def test_partitions_as_slurmctld_reads_them(
    tmp_path: Path, attributes: str, field: str, value: object, noted: str
) -> None:
    """Each as slurmctld 22.05.8 shows it; what it corrects has a note."""
    loaded = load(
        tmp_path, f"NodeName=n[1-4]\nPartitionName=p Nodes=ALL Default=YES {attributes}\n"
    )
    assert getattr(loaded.cluster.partitions[0], field) == value
    corrected = [note.parameter for note in loaded.notes if note.kind is not NoteKind.NO_EFFECT]
    assert corrected == ([noted] if noted else [])


@pytest.mark.parametrize(
    "attributes", ["MaxTime=0", "MaxNodes=0", "MinNodes=5 MaxNodes=2", "MinNodes=INFINITE"]
)
def test_partitions_in_which_no_job_can_run_are_left_out(tmp_path: Path, attributes: str) -> None:
    loaded = load(tmp_path, f"{LEAST}PartitionName=q Nodes=ALL {attributes}\n")
    assert [partition.name for partition in loaded.cluster.partitions] == ["p"]
    [note] = [note for note in loaded.notes if note.kind is NoteKind.NOT_SIMULATED]
    assert (note.parameter, "left out" in note.why) == (
        attributes.split()[-1].partition("=")[0],
        True,
    )


def test_node_sets_as_slurmctld_takes_them(tmp_path: Path) -> None:
    """A set goes before a node of its name, the first before others of its name; its name is no
    list.
    """
    text = (
        "NodeName=n[1-4] Feature=a\nNodeName=m1 Feature=b\nPartitionName=p Nodes=s1,m1"
        " Default=YES\nNodeSet=s1 Nodes=n1\nNodeSet=s1 Nodes=n2\nNodeSet=m1 Nodes=n3\nNodeSet=none"
        " Feature=c\nPartitionName=q Nodes=none\n"
    )
    loaded = load(tmp_path, text)
    [partition] = loaded.cluster.partitions
    assert partition.nodes == ("n1", "n3")
    assert found(loaded, NoteKind.IGNORED) == ["NodeSet"]
    with pytest.raises(
        InvalidCluster, match="Nodes=t: give ALL, or names of NodeName lines and NodeSets: not t"
    ):
        load(tmp_path, text + "NodeSet=s,t Nodes=n1\nPartitionName=r Nodes=t\n")


def test_defaults_hold_for_later_lines_only(tmp_path: Path) -> None:
    text = (
        "NodeName=n1\nPartitionName=a Nodes=n1\nPartitionName=DEFAULT Nodes=n1 MaxTime=60"
        " Shared=EXCLUSIVE\nPartitionName=b\nPartitionName=DEFAULT MaxTime=90\nPartitionName=c"
        " OverSubscribe=NO Default=YES\n"
    )
    partitions = cluster(tmp_path, text).partitions
    times = [
        (partition.name, partition.max_time_s, partition.exclusive) for partition in partitions
    ]
    assert times == [("c", 5400, False), ("a", None, False), ("b", 3600, True)]


def test_closed_partitions_are_left_out(tmp_path: Path) -> None:
    text = (
        "NodeName=n1\nPartitionName=a Nodes=n1 State=DOWN\nPartitionName=b Nodes=n1"
        " Default=YES\nPartitionName=c\n"
    )
    loaded = load(tmp_path, text)
    assert [partition.name for partition in loaded.cluster.partitions] == ["b"]
    assert found(loaded, NoteKind.NOT_SIMULATED) == ["State", "PartitionName"]


def test_options_that_select_linear_does_not_look_at_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "slurm.conf"
    line = "SchedulerParameters=bf_busy_nodes,bf_window=60,bf_window_linear=60\n"
    path.write_text(line + LEAST)
    noted = [
        (note.kind, note.parameter)
        for note in read_cluster(path).notes
        if "select/linear" in note.why
    ]
    assert noted == [(NoteKind.IGNORED, "bf_busy_nodes"), (NoteKind.IGNORED, "bf_window_linear")]
    assert [note.parameter for note in params_from("bf_busy_nodes")[1]] == ["bf_busy_nodes"]
    path.write_text(f"SelectType=select/cons_tres\n{line}{LEAST}")
    assert not [note for note in read_cluster(path).notes if "select/linear" in note.why]


def test_a_default_time_beyond_the_longest_is_ignored(tmp_path: Path) -> None:
    """slurmctld: "DefaultTime exceeds MaxTime", and takes MaxTime; whichever line either stands on."""
    text = (
        "NodeName=n1\nPartitionName=DEFAULT DefaultTime=2-0\nPartitionName=a Nodes=n1 MaxTime=1-0"
        ' Default=YES QOS=""\n'
    )
    loaded = load(tmp_path, text)
    [partition] = loaded.cluster.partitions
    assert (partition.max_time_s, partition.default_time_s, partition.qos) == (86400, None, None)
    [note] = [note for note in loaded.notes if note.kind is NoteKind.IGNORED]
    assert str(note).endswith("slurm.conf:2: DefaultTime=2-0: ignored: it exceeds MaxTime=1-0")


def test_a_partitions_qos_is_known_by_name_only(tmp_path: Path) -> None:
    loaded = load(tmp_path, "NodeName=n1\nPartitionName=a Nodes=n1 QOS=part Default=YES\n")
    assert [qos.name for qos in loaded.cluster.qos] == ["normal", "part"]
    assert found(loaded, NoteKind.NOT_SIMULATED) == ["QOS"]


# ---- lines


def test_lines(tmp_path: Path) -> None:
    text = (
        "# a comment that ends in a backslash \\\nclustername = odd  # case and blanks\r\n"
        'PartitionName=p \\\n  Nodes=n1 \\\n  default=yes\nNODENAME=n1 Feature="a,b"\n\n'
    )
    made = cluster(tmp_path, text)
    assert made.name == "odd"
    assert made.nodes[0].features == ("a", "b")


def test_lines_as_slurmctld_reads_them(tmp_path: Path) -> None:
    text = (
        'KillWait+=5\nMinJobAge=1\\\n00 \\ \n\nProlog=/a\\#b # c\nEpilog="/a b"\n  PriorityMaxAge'
        ' \t=  2-0\ninclude "odd name"\nNodeName=n1 Reason=it"s\nPartitionName=P_1.a Nodes=n1\n'
    )
    (tmp_path / '"odd').write_text("")
    loaded = load(tmp_path, text)
    assert found(loaded, NoteKind.UNKNOWN) == ['include "odd name"']
    assert (loaded.cluster.params.kill_wait_s, loaded.cluster.params.min_job_age_s) == (5, 100)
    assert loaded.cluster.params.priority_max_age_s == 2 * 86400
    assert [note.value for note in loaded.notes if note.parameter in ("Prolog", "Epilog")] == [
        "/a#b",
        "/a b",
    ]


def test_keys_of_other_releases_are_noted(tmp_path: Path) -> None:
    """slurmctld 22.05 refuses them, but the site's may be of another release."""
    text = (
        "FastSchedule=1\nCacheGroups=0\nTLSType=tls/s2n\nHashPlugin=hash/k12\nConstrainCores=yes\n"
    )
    nodes = "NodeName=n1 Topology=t:s1\nPartitionName=p Nodes=n1 Default=YES MaxCPUsPerSocket=4\n"
    loaded = load(tmp_path, text + nodes)
    assert found(loaded, NoteKind.UNKNOWN) == []
    assert found(loaded, NoteKind.NO_EFFECT) == ["FastSchedule", "CacheGroups", "ConstrainCores"]
    assert sorted(found(loaded, NoteKind.NOT_SIMULATED)) == [
        "HashPlugin",
        "MaxCPUsPerSocket",
        "TLSType",
        "Topology",
    ]


def test_a_clusters_name_is_in_lower_case(tmp_path: Path) -> None:
    assert cluster(tmp_path, "ClusterName=DeepOps\n" + LEAST).name == "deepops"


def test_blanks_around_an_equals_sign(tmp_path: Path) -> None:
    text = (
        "NodeName=n1\nPartitionName=p Nodes=ALL\nSchedulerParameters ="
        " bf_window=2880,bf_interval=60\n"
    )
    assert cluster(tmp_path, text).params.bf_window_s == 172800


def test_included_files_are_relative_to_the_one_that_includes_them(tmp_path: Path) -> None:
    (tmp_path / "here_nodes").mkdir()
    (tmp_path / "here_nodes" / "nodes.conf").write_text("Include more.conf\n")
    (tmp_path / "here_nodes" / "more.conf").write_text("NodeName=n[1-2]\n")
    text = "ClusterName=Here\nINCLUDE %c_nodes/nodes.conf\nPartitionName=p Nodes=ALL\n"
    assert len(cluster(tmp_path, text).nodes) == 2


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("Include none.conf", r"none\.conf: No such file.*slurm\.conf:1 includes it"),
        ("Include slurm.conf", "slurm.conf: includes .*slurm.conf"),
        ("Include /dev/zero", r"/dev/zero: a device, not a file; .*slurm\.conf:1 includes it"),
        (
            "NodeName=n[1-4] CPUs=four\nPartitionName=p",
            r"slurm\.conf:1: CPUs=four: give a whole number from 0 to 65535",
        ),
        ("NodeName=n[4-1]", r"slurm\.conf:1: NodeName=n\[4-1\]: give a list of nodes such as"),
        ("NodeName=n1\nNodeName=n1", r"slurm\.conf:2: node n1 stands at .*slurm\.conf:1 already"),
        ("NodeName=n1,n1", r"slurm\.conf:1: node n1 stands at .*slurm\.conf:1 already"),
        ("NodeName=ALL", r"slurm\.conf:1: NodeName=ALL: give names of nodes: ALL stands for all"),
        (
            "NodeName=n[1-2]-ib",
            r"slurm\.conf:1: NodeName=.*nothing may stand behind the last bracket",
        ),
        (
            "NodeName=DEFAULT NodeAddr=h",
            r"slurm\.conf:1: NodeAddr=h: give it on the lines of single nodes",
        ),
        (
            "NodeName=n[1-4] NodeAddr=a[1-2]",
            r"slurm\.conf:1: NodeAddr=a\[1-2\]: give one, or 4, one for each node",
        ),
        ("NodeName=n[1-2] Port=0", r"slurm\.conf:1: Port=0: give ports from 1 to 65535"),
        (
            "NodeName=n1 Weight=-1",
            r"slurm\.conf:1: Weight=-1: give a whole number from 0 to 4294967295",
        ),
        (
            "NodeName=n1 Weight=4M",
            r"slurm\.conf:1: Weight=4M: give a whole number from 0 to 4294967295",
        ),
        ("NodeName=n1 CPUs=08", r"slurm\.conf:1: CPUs=08: give a whole number"),
        ("NodeName=n1 CPUs=4K", r"slurm\.conf:1: CPUs=4K: give a whole number"),
        ("NodeName=n1 TmpDisk=10G", r"slurm\.conf:1: TmpDisk=10G: give a whole number"),
        ("KillWait=70000", r"slurm\.conf:1: KillWait=70000: give a whole number from 0 to 65535"),
        ("TreeWidth=wide", r"slurm\.conf:1: TreeWidth=wide: give a whole number from 0 to 65535"),
        ("TrackWCKey=maybe", r"slurm\.conf:1: TrackWCKey=maybe: give YES or NO"),
        (
            "KillWait=5 MinJobAge=9",
            r"slurm\.conf:1: MinJobAge=9 stands behind KillWait; give it a line of its own",
        ),
        ("PreemptMode=SUSPEND\n", r"slurm\.conf:1: PreemptMode=SUSPEND: give SUSPEND,GANG"),
        (
            "PreemptMode=REQUEUE\n",
            r"slurm\.conf:1: PreemptMode=REQUEUE: give it with PreemptType=preempt/qos",
        ),
        (
            "PreemptType=preempt/qos\n",
            r"slurm\.conf:1: PreemptType=preempt/qos: give it with a PreemptMode",
        ),
        (
            "PriorityDecayHalfLife=0\n",
            r"slurm\.conf:1: PriorityDecayHalfLife=0: give more than 0, or PriorityUsage",
        ),
        ("MaxJobCount=0\n", r"slurm\.conf:1: MaxJobCount=0: give at least 1"),
        (
            "SchedulerParameters=max_job_bf=5\n",
            r"slurm\.conf:1: .*: give bf_max_job_test in place of max_job_bf",
        ),
        (
            "SelectTypeParameters=CR_Core\n",
            r"slurm\.conf:1: .*: give CR_Memory at most, with SelectType=select/linear",
        ),
        (
            "SelectType=select/cons_tres\nSelectTypeParameters=CR_Memory\n",
            r"slurm\.conf:2: .*: give one of CR_CPU",
        ),
        (
            "SelectTypeParameters=CR_CPU,CR_Core\n",
            r"slurm\.conf:1: .*: give one of CR_CPU, CR_Core, CR_Socket, CR_Mem",
        ),
        (
            "GresTypes=gpu,mps\n",
            r"slurm\.conf:1: GresTypes=gpu,mps: give mps with SelectType=select/cons_tres only",
        ),
        ("PriorityCalcPeriod=0\n", r"slurm\.conf:1: PriorityCalcPeriod=0: give at least 1 minute"),
        (LEAST + "PartitionName=q Nodes=n1 Hidden=x", r"slurm\.conf:3: Hidden=x: give YES or NO"),
        (
            LEAST + "NodeSet=s Nodes=ALL\nPartitionName=q Nodes=s",
            r"slurm\.conf:3: Nodes=ALL: give ALL, or names",
        ),
        ("PartitionName=p Nodes=n9", "no nodes that could be used"),
        (
            "NodeName=n1\nPartitionName=p Nodes=n9",
            r"slurm\.conf:2: Nodes=n9: give ALL, or names of NodeName lines",
        ),
        ("NodeName=n1", "no partition that can run jobs"),
        (
            "NodeName=n1\n" + 2 * "PartitionName=p Nodes=n1\n",
            r"slurm\.conf:3: partition p stands at .*slurm\.conf:2",
        ),
        (
            LEAST + "PartitionName=q Nodes=n1 PriorityTier=65536",
            r"slurm\.conf:3: PriorityTier=65536: .* to 65535",
        ),
        (
            LEAST + "PartitionName=q Nodes=n1 Priority=65536",
            r"slurm\.conf:3: Priority=65536: .* to 65535",
        ),
        (
            LEAST + "PartitionName=q Nodes=n1 MaxTime=2h",
            r"slurm\.conf:3: MaxTime=2h: give minutes, m:s",
        ),
        (
            LEAST + "PartitionName=q Nodes=n1 MaxTime=90000-0",
            r"slurm\.conf:3: MaxTime=90000-0: give fewer than 24,855",
        ),
        (
            "NodeName=n[1-1000000]\n" + LEAST,
            r"slurm\.conf:1: NodeName=n\[1-1000000\]: give a list .*too large",
        ),
        ("NodeName=\n" + LEAST, r"slurm\.conf:1: found 'NodeName='; give Key=value"),
        ('NodeName=""\n' + LEAST, r"slurm\.conf:1: NodeName=: give a list of nodes"),
        (
            "NodeName=m1 CPUs=9999999999\n",
            r"slurm\.conf:1: CPUs=9+: give a whole number from 0 to 65535",
        ),
        (
            "PriorityWeightAge=4294967296\n" + LEAST,
            r"PriorityWeightAge=4294967296: give a .* to 4294967295",
        ),
    ],
)
def test_errors_say_where_and_what_is_expected(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidCluster, match=message):
        cluster(tmp_path, text)


@pytest.mark.parametrize(
    "line",
    [
        "AccountingStorageType=accounting_storage/mysql",
        "AccountingStorageEnforce=associations,some",
        "SchedulerType=sched/BACKFILL",
        "SelectType=select/serial\nSelectTypeParameters=CR_Core",
        "SelectTypeParameters=CR_Board",
        "SelectType=select/cons_tres\nSelectTypeParameters=CR_Core_Memory,NEWER_STILL",
        "PreemptMode=LATER\nPreemptType=preempt/qos",
        "PreemptType=preempt/newer",
        "PriorityType=priority/fifo",
        "PriorityFlags=NEWER",
        "SchedulerParameters=bf_newer=1",
        "KillWait=",
        "what is this",
        " Include none.conf",
        "NodeName=n7 State=BROKEN",
        "PartitionName=q Nodes=n1 OverSubscribe=4",
        "PartitionName=q Nodes=n1 OverSubscribe=NO:2",
        "PartitionName=q Nodes=n1 PreemptMode=never",
        "PartitionName=q Nodes=n1 State=MAYBE",
        "PartitionName=q Nodes=n1 Exclusive=RACK",
        "PartitionName=q Nodes=n1 SelectTypeParameters=NEWER",
    ],
)
def test_an_unknown_word_costs_a_note_that_names_it(tmp_path: Path, line: str) -> None:
    loaded = load(tmp_path, line + "\n" + LEAST)
    [note] = [each for each in loaded.notes if each.kind is NoteKind.UNKNOWN]
    assert (note.parameter + note.value).strip()
    assert note.where.partition(":")[2] in ("1", "2")
    assert "p" in [partition.name for partition in loaded.cluster.partitions]


def test_what_newer_releases_have_is_noted_as_theirs(tmp_path: Path) -> None:
    names = [
        "LL_SHARED_GRES",
        "MULTIPLE_SHARING_GRES_PJ",
        "ENFORCE_BINDING_GRES",
        "ONE_TASK_PER_SHARING_GRES",
    ]
    text = f"SelectType=select/cons_tres\nSelectTypeParameters=CR_Core,{','.join(names)}\n{LEAST}"
    loaded = load(tmp_path, text)
    assert [note.value for note in loaded.notes if "newer release" in note.why] == names
    assert not loaded.cluster.params.memory_is_consumable
    only = load(tmp_path, f"SelectType=select/cons_tres\nSelectTypeParameters={names[0]}\n{LEAST}")
    assert only.cluster.params.memory_is_consumable  # as where no unit is given


@pytest.mark.parametrize(
    ("words", "exclusive", "differences"),
    [
        ("Exclusive=NODE OverSubscribe=NO", True, []),
        ("Exclusive=NODE", True, []),
        ("Exclusive=NO OverSubscribe=NO", False, []),
        ("Exclusive=TOPO", True, ["Exclusive"]),
        ("Exclusive=USER", False, ["Exclusive"]),
        ("Exclusive=USER,NODE", True, ["Exclusive"]),
        ("ExclusiveTopo=YES OverSubscribe=NO", True, ["ExclusiveTopo"]),
        ("ExclusiveTopo=NO OverSubscribe=EXCLUSIVE", True, []),
    ],
)
def test_whole_nodes_in_the_words_of_newer_releases(
    tmp_path: Path, words: str, exclusive: bool, differences: list[str]
) -> None:
    loaded = load(tmp_path, f"NodeName=n1\nPartitionName=p Nodes=n1 Default=YES {words}\n")
    assert loaded.cluster.partitions[0].exclusive is exclusive
    unlike = [note.parameter for note in loaded.notes if note.kind is NoteKind.NOT_SIMULATED]
    assert unlike == differences


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidCluster, match="none: No such file or directory"):
        read_cluster(tmp_path / "none")


# ---- --slurm-params


def test_params_from() -> None:
    text = (
        "bf_max_job_test=50,"
        " bf_window=2880,PriorityWeightAge=7,PriorityType=priority/multifactor,bf_cycle_us=9,"
        "max_rpc_cnt=9"
    )
    params, notes = params_from(text)
    assert (params.bf_max_job_test, params.bf_window_s, params.priority_weight_age) == (
        50,
        172800,
        7,
    )
    assert params.priority_multifactor
    assert params.bf_cycle_us == 9
    assert [note.parameter for note in notes] == ["max_rpc_cnt"]
    base = Params(bf_interval_s=77)
    assert params_from("bf_resolution=30", base)[0] == Params(bf_interval_s=77, bf_resolution_s=30)
    assert params_from("", base)[0] == base
    lists = "PriorityType=priority/multifactor,"
    lists += "PriorityFlags=NO_NORMAL_PART,no_normal_qos,PriorityWeightTRES=CPU=1,Mem=2"
    params, notes = params_from(f"{lists},bf_interval=9")
    assert (params.no_normal_part, params.no_normal_qos, params.bf_interval_s, notes) == (
        True,
        True,
        9,
        (),
    )
    assert (params.priority_weight_cpus, params.priority_weight_memory) == (1, 2)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "bf_max_jobtest=5",
            "bf_max_jobtest: not a parameter of slurm.conf; did you mean bf_max_job_test",
        ),
        ("bf_window=1 day", "bf_window=1 day: give"),
        ("bf_resolution", "bf_resolution=: give a whole number from 1 to 3600"),
        (
            "PriorityFlags=NO_NORMAL_PART,bf_window,CPU=1",
            "parameters: bf_window=: give a whole number",
        ),
        (
            "bf_interval=30,defer,BF_Interval=5",
            "parameters: BF_Interval is given twice; give it once",
        ),
    ],
)
def test_params_from_bad_text(text: str, message: str) -> None:
    with pytest.raises(InvalidCluster, match=message):
        params_from(text)


# ---- values

names = st.lists(
    st.from_regex(r"[a-z]{1,3}(-[a-z])?[0-9]{0,4}", fullmatch=True), unique=True, min_size=1
)


@given(names)
def test_lists_of_nodes_round_trip(hosts: list[str]) -> None:
    assert list(expand_hosts(compress_hosts(hosts))) == hosts


@given(st.integers(0, 200), st.integers(1, 30), st.integers(1, 4))
def test_runs_are_one_range(first: int, count: int, width: int) -> None:
    hosts = [f"n{number:0{width}}" for number in range(first, first + count)]
    text = compress_hosts(hosts)
    assert list(expand_hosts(text)) == hosts
    assert "," not in text


@given(st.integers(0, 9999), st.integers(0, 99), st.integers(0, 99), st.integers(0, 99))
def test_times_with_days(days: int, hours: int, minutes: int, seconds: int) -> None:
    text = f"{days}-{hours:02}:{minutes:02}:{seconds:02}"
    assert parse_time_s(text) == 86400 * days + 3600 * hours + 60 * minutes + seconds


@given(st.text(max_size=12))
def test_any_text_is_a_time_or_an_error(text: str) -> None:
    try:
        seconds = parse_time_s(text)
    except ValueError:
        return
    assert seconds is None or seconds >= 0


@given(st.text(max_size=40))
def test_any_line_is_pairs_or_an_error(text: str) -> None:
    try:
        entries = pairs(text, "here:1")
    except InvalidCluster:
        return
    assert all(entry.key for entry in entries)


@given(st.text(alphabet='NodeName=n[1-4],\nPartition ALL\\#"CPUs9', max_size=80))
def test_any_file_is_a_cluster_or_an_error(
    tmp_path_factory: pytest.TempPathFactory, text: str
) -> None:
    try:
        loaded = load(tmp_path_factory.getbasetemp(), text)
    except InvalidCluster:
        return
    assert loaded.cluster.nodes
