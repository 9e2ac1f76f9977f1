"""Clusters as TOML."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slurm_sim.clusters import NoteKind, read_cluster, write_toml
from slurm_sim.config import (
    YEAR_S,
    Association,
    ClusterConfig,
    NodeAction,
    NodeChange,
    NodeSpec,
    Params,
    Partition,
    Qos,
    Reservation,
    SelectType,
    whole_nodes,
)
from slurm_sim.errors import InvalidCluster

LEAST = '[[nodes]]\nname = "n[1-4]"\n[[partitions]]\nname = "p"\nnodes = "ALL"\n'


def load(folder: Path, text: str) -> ClusterConfig:
    path = folder / "cluster.toml"
    path.write_text(text)
    loaded = read_cluster(path)
    assert loaded.notes == ()
    return loaded.cluster


def test_what_a_person_writes(tmp_path: Path) -> None:
    text = """
        [cluster]
        name = "ls6"
        [scheduler]
        bf_window_s = "2-0"
        select_type = "select/cons_tres"
        [[nodes]]
        name = "g"
        count = 2
        gpus = 3
        busy_w = 900
        [[nodes]]
        name = ["c[08-09]", "x"]
        cpus = 128
        features = ["big"]
        [[partitions]]
        name = "all"
        nodes = "ALL"
        max_time_s = "48:00:00"
        [[partitions]]
        name = "gpu"
        nodes = "g1, g2"
        max_time_s = 3600
        qos = "part"
        [[qos]]
        name = "normal"
        [[qos]]
        name = "part"
        max_jobs_per_user = 2
        [[associations]]
        account = "research"
        shares = 4
        [[reservations]]
        name = "service"
        start_s = 100
        end_s = 200
        nodes = "c[08-09]"
        [[node_changes]]
        time_s = 0
        node = "c[08-09]"
        action = "DRAIN"
    """
    assert load(tmp_path, text) == ClusterConfig(
        (
            NodeSpec("g1", gpus=3, busy_w=900.0),
            NodeSpec("g2", gpus=3, busy_w=900.0),
            *(NodeSpec(name, cpus=128, features=("big",)) for name in ("c08", "c09", "x")),
        ),
        (
            Partition("all", ("g1", "g2", "c08", "c09", "x"), 172800),
            Partition("gpu", ("g1", "g2"), 3600, qos="part"),
        ),
        Params(bf_window_s=172800, select_type=SelectType.CONS_TRES),
        (Qos("normal"), Qos("part", max_jobs_per_user=2)),
        (Association("research", shares=4),),
        (Reservation("service", 100, 200, ("c08", "c09")),),
        (NodeChange(0, "c08", NodeAction.DRAIN), NodeChange(0, "c09", NodeAction.DRAIN)),
        "ls6",
    )


def test_what_is_left_out_has_its_default(tmp_path: Path) -> None:
    assert load(tmp_path, LEAST).params == Params()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[cluster\n", r"cluster\.toml: not TOML: .*line 1"),
        (
            "colour = 1\n" + LEAST,
            r"cluster\.toml: colour: give a key that is known here: cluster, scheduler, nodes",
        ),
        (
            LEAST + "[scheduler]\nbf_windows_s = 1",
            r"cluster\.toml: scheduler.bf_windows_s: .*known here: bf_window_s\?",
        ),
        (
            LEAST + "[scheduler]\nbf_window_s = true",
            r"scheduler\.bf_window_s is True: give a whole number",
        ),
        (
            LEAST + '[scheduler]\nbf_window_s = "two days"',
            r"scheduler\.bf_window_s is 'two days': give seconds, or",
        ),
        (
            LEAST + "[scheduler]\nbf_window_s = 0",
            r"cluster\.toml: scheduler: Params.bf_window_s is 0; give at least 1",
        ),
        (
            LEAST + "priority_tier = 65536\n",
            r"cluster\.toml: .*partition 'p'.priority_tier is 65536; give at most 65,535",
        ),
        (
            LEAST + '[scheduler]\nselect_type = "x"',
            "scheduler.select_type is 'x': give select/linear or",
        ),
        (LEAST + 'max_time_s = "2h"', r"partitions\[0\]\.max_time_s is '2h': give seconds"),
        (
            LEAST + 'color = "red"',
            r"partitions\[0\]\.color: give a key that is known here: name, nodes",
        ),
        ("", r"nodes and partitions: give at least one \[\[nodes\]\]"),
        ("[[nodes]]\ncpus = 1", r"nodes\[0\]\.name: give a list of nodes such as"),
        ('[[nodes]]\nname = "n[1-"', r"nodes\[0\]\.name: give a list of nodes such as"),
        (
            '[[nodes]]\nname = "n[1-2]"\ncount = 3',
            r"nodes\[0\]\.count: give a number from 1 to 100,000, and as name",
        ),
        (
            '[[nodes]]\nname = "n"\ncount = 1_000_000_000',
            r"nodes\[0\]\.count: give a number from 1 to 100,000, and",
        ),
        (
            '[[nodes]]\nname = "n"\nfeatures = [1]',
            r"nodes\[0\]\.features is \[1\]: give a list of strings",
        ),
        ('[nodes]\nname = "n"', r"nodes: give tables \[\[nodes\]\]"),
        (LEAST.replace("ALL", "n9"), r"cluster\.toml: nodes of partition 'p': unknown: n9"),
        (
            LEAST.replace('nodes = "ALL"', ""),
            r"partitions\[0\]\.nodes: give a value; it is missing",
        ),
        (LEAST + "[[qos]]\npriority = 1", r"qos\[0\]\.name: give a value; it is missing"),
        (
            LEAST + '[[reservations]]\nname="r"\nstart_s=2\nend_s=1\nnodes="n1"',
            r"reservations\[0\]: reservation 'r' ends",
        ),
        (
            LEAST
            + '[[associations]]\naccount="research"\n[[associations]]\naccount="lab"\nparent="reserch"',
            (
                r"associations\[1\]\.parent is 'reserch': give an account of the associations; did"
                r" you mean research\?"
            ),
        ),
        (
            LEAST
            + '[[associations]]\naccount="research"\n[[associations]]\naccount="Research"\nuser="ann"',
            r"associations\[1\]\.account is 'Research': .*; did you mean research\?",
        ),
        (
            LEAST
            + "".join(
                f'[[associations]]\naccount="{a}"\nparent="{b}"\n' for a, b in ("ab", "bc", "ca")
            ),
            r"associations: accounts above each other: a -> b -> c -> a; put one under root",
        ),
    ],
)
def test_errors_say_file_and_key(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InvalidCluster, match=message) as raised:
        load(tmp_path, text)
    assert str(raised.value).startswith(str(tmp_path / "cluster.toml"))


def test_a_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InvalidCluster, match=r"none\.toml: No such file"):
        read_cluster(tmp_path / "none.toml")


def test_users_alone_need_no_accounts(tmp_path: Path) -> None:
    """They are under root then, as every account that nothing is said of."""
    assert (
        load(tmp_path, LEAST + '[[associations]]\naccount="lab"\nuser="ann"')
        .associations[0]
        .account
        == "lab"
    )


def test_what_could_not_be_read_back_is_not_written() -> None:
    cluster = replace(whole_nodes(1), associations=(Association("lab", parent="nobody"),))
    with pytest.raises(InvalidCluster, match=r"associations\[0\]\.parent is 'nobody'"):
        write_toml(cluster)


def test_priorities_beside_priority_basic_are_noted(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    scheduler = (
        "[scheduler]\npriority_weight_age = 5\npriority_weight_qos = 0\naccrue_always = true\n"
    )
    path.write_text(f"{scheduler}priority_multifactor = false\n{LEAST}")
    notes = read_cluster(path).notes
    assert [(note.kind, note.parameter) for note in notes] == [
        (NoteKind.IGNORED, "priority_weight_age"),
        (NoteKind.IGNORED, "accrue_always"),
    ]
    path.write_text(scheduler + LEAST)
    assert read_cluster(path).notes == ()


def test_what_select_linear_does_not_look_at_is_noted(tmp_path: Path) -> None:
    path = tmp_path / "c.toml"
    scheduler = "[scheduler]\nthreads_per_core = 2\nbf_busy_nodes = true\nbf_window_linear_s = 60\n"
    path.write_text(f"{scheduler}bf_window_s = 60\n{LEAST}")
    assert [(note.kind, note.parameter) for note in read_cluster(path).notes] == [
        (NoteKind.IGNORED, "threads_per_core"),
        (NoteKind.IGNORED, "bf_busy_nodes"),
        (NoteKind.IGNORED, "bf_window_linear_s"),
    ]
    cores = LEAST.replace("[[part", "cpus = 2\n[[part")
    path.write_text(f'{scheduler}select_type = "select/cons_tres"\n{cores}')
    assert read_cluster(path).notes == ()


def test_nodes_that_change_together_are_one_table() -> None:
    changes = [NodeChange(5, f"n{number}", NodeAction.DRAIN) for number in range(1, 9)]
    text = write_toml(
        replace(whole_nodes(8), node_changes=(*changes, NodeChange(5, "n8", NodeAction.RESUME)))
    )
    assert text.count("[[node_changes]]") == 2
    assert 'node = "n[1-8]"' in text


def test_equal_nodes_are_one_table() -> None:
    text = write_toml(whole_nodes(76))
    assert text.count("[[nodes]]") == 1
    assert 'name = "n[1-76]"' in text


def test_names_that_cannot_be_written() -> None:
    odd = ClusterConfig((NodeSpec("a,b"),), (Partition("p", ("a,b",)),))
    with pytest.raises(InvalidCluster, match="cannot be written"):
        write_toml(odd)


words = st.text(st.characters(exclude_categories=("Cs",)), max_size=6)
counts = st.none() | st.integers(0, 9)
many = st.integers(1, 10**6)


@st.composite
def associations(draw: st.DrawFn) -> tuple[Association, ...]:
    accounts = draw(st.lists(words, max_size=3, unique=True))
    tree = [
        Association(
            name, parent=draw(st.sampled_from(["root", *accounts[:number]])), shares=draw(many)
        )
        for number, name in enumerate(accounts)
    ]
    users = [
        Association(draw(st.sampled_from(["root", *accounts])), draw(words), shares=draw(many))
    ]
    return (*tree, *users[: draw(st.integers(0, 1))])


@st.composite
def clusters(draw: st.DrawFn) -> ClusterConfig:
    nodes = tuple(
        NodeSpec(
            f"{draw(st.sampled_from('ab'))}{number}",
            draw(st.integers(1, 2)),
            draw(many),
            gpus,
            weight,
            tuple(features),
            watts,
        )
        for number, (gpus, weight, features, watts) in enumerate(
            draw(
                st.lists(
                    st.tuples(
                        st.integers(0, 1),
                        st.integers(0, 1),
                        st.lists(words, max_size=1),
                        st.floats(0, 9),
                    ),
                    min_size=1,
                    max_size=8,
                )
            )
        )
    )
    names = [node.name for node in nodes]
    some = st.lists(st.sampled_from(names), min_size=1, unique=True).map(tuple)
    qos = tuple(
        Qos(name, draw(many), draw(counts), max_wall_s=draw(st.none() | many))
        for name in draw(st.sets(words, min_size=1))
    )
    times = st.tuples(st.integers(100, 999), st.none() | st.integers(1, 100)) | st.tuples(
        st.none(), st.none() | many
    )
    qos_names = st.none() | st.sampled_from([item.name for item in qos])
    partitions = tuple(
        Partition(
            name, draw(some), *draw(times), exclusive=draw(st.booleans()), qos=draw(qos_names)
        )
        for name in draw(st.sets(words, min_size=1, max_size=3))
    )
    params = Params(
        draw(st.sampled_from(SelectType)),
        draw(st.booleans()),
        sched_interval_s=draw(many),
        bf_max_job_user=draw(st.none() | many),
    )
    return ClusterConfig(
        nodes,
        partitions,
        params,
        qos,
        draw(associations()),
        tuple(
            Reservation(draw(words), 1, draw(many) + 1, draw(some), (draw(words),))
            for _ in range(draw(st.integers(0, 1)))
        ),
        tuple(
            NodeChange(draw(many), name, draw(st.sampled_from(NodeAction))) for name in draw(some)
        ),
        draw(words),
    )


@settings(max_examples=60, deadline=None)
@given(clusters())
def test_round_trip(tmp_path_factory: pytest.TempPathFactory, cluster: ClusterConfig) -> None:
    path = tmp_path_factory.getbasetemp() / "round.toml"
    path.write_text(write_toml(cluster), encoding="utf-8", newline="")
    assert read_cluster(path).cluster == cluster


def test_no_end_to_how_long_a_job_may_exceed_its_limit(tmp_path: Path) -> None:
    partition = '[[partitions]]\nname = "p"\nnodes = "ALL"\n'
    text = f'[scheduler]\nover_time_limit_s = "unlimited"\n[[nodes]]\nname = "n1"\n{partition}'
    path = tmp_path / "c.toml"
    path.write_text(text + 'over_time_limit_s = "UNLIMITED"\n')
    cluster = read_cluster(path).cluster
    assert (cluster.params.over_time_limit_s, cluster.partitions[0].over_time_limit_s) == (
        YEAR_S,
        YEAR_S,
    )
    path.write_text(text)
    assert read_cluster(path).cluster.partitions[0].over_time_limit_s is None
